//! NCCL's environment variables that change its choice: read as NCCL reads them.

use crate::algorithm::{Algorithm, Protocol};
use crate::collective::{Collective, UnknownCollective};
use lockstep_core::words::nearest;

/// The settings of NCCL from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    algorithms: Option<List>,
    protocols: Option<List>,
    /// `NCCL_MIN_NCHANNELS`.
    pub min_channels: Option<u32>,
    /// `NCCL_MAX_NCHANNELS`.
    pub max_channels: Option<u32>,
    /// `NCCL_NVLS_ENABLE=0`.
    pub nvls_off: bool,
    /// `NCCL_COLLNET_ENABLE=1`.
    pub coll_net: bool,
}

/// A setting that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The variable is not one that changes the choice.
    #[error("{name} is not modelled:{meant} known are {}", NAMES.join(", "))]
    Unknown {
        /// The variable.
        name: String,
        /// `did you mean …?` with a space before it, or nothing.
        meant: String,
    },
    /// Its value is not one that NCCL takes.
    #[error("{name}={value}: {why}")]
    Value {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// The problem with it.
        why: ValueProblem,
    },
    /// A least number of channels above the largest.
    #[error("NCCL_MIN_NCHANNELS={least} is more than NCCL_MAX_NCHANNELS={most}")]
    Contradiction {
        /// `NCCL_MIN_NCHANNELS`.
        least: u32,
        /// `NCCL_MAX_NCHANNELS`.
        most: u32,
    },
}

/// The reason that NCCL does not take a variable's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// A number is wanted.
    #[error("expected a whole number")]
    NotANumber,
    /// No channels at all.
    #[error("a call needs 1 channel or more, and NCCL has at most 64")]
    NoChannels,
    /// An entry behind the first that is for every collective.
    #[error("every entry but the first names a collective")]
    NoCollective,
    /// A collective that is not known.
    #[error(transparent)]
    UnknownCollective(#[from] UnknownCollective),
    /// A `^` before a later name.
    #[error("NCCL takes one ^ before a whole list, as in {0}")]
    SecondCaret(String),
    /// A name of no algorithm or protocol.
    #[error("no {name:?}; known are {}", known.join(", "))]
    UnknownName {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

/// The variables that are modelled.
pub const NAMES: [&str; 6] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
];

/// A list such as `Ring,Tree` or `^LL128` or `ring;allreduce:tree`: entries with an optional
/// collective, the later ones before the earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    collective: Option<Collective>,
    except: bool,
    names: Vec<String>,
}

impl List {
    fn parse(text: &str, known: &[&str]) -> Result<Self, ValueProblem> {
        let mut entries = Vec::new();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let (collective, names) = match part.split_once(':') {
                Some((collective, names)) => (Some(collective.parse::<Collective>()?), names),
                None if entries.is_empty() => (None, part),
                None => return Err(ValueProblem::NoCollective),
            };
            let (except, names) = match names.trim().strip_prefix('^') {
                Some(names) => (true, names),
                None => (false, names),
            };
            if names.contains('^') {
                let whole: String = names.chars().filter(|letter| *letter != '^').collect();
                let caret = if except { "^" } else { "" };
                return Err(ValueProblem::SecondCaret(format!("{caret}{}", whole.trim())));
            }
            // As strtok reads it: nothing between two commas is no name.
            let names = names.split(',').map(|name| name.trim().to_lowercase());
            let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
            for name in &names {
                if !known.iter().any(|known| known.to_lowercase() == *name) {
                    let known = known.iter().map(|known| (*known).to_owned()).collect();
                    return Err(ValueProblem::UnknownName { name: name.clone(), known });
                }
            }
            entries.push(Entry { collective, except, names });
        }
        Ok(Self { entries })
    }

    fn allows(&self, collective: Collective, name: &str) -> bool {
        let entry = self
            .entries
            .iter()
            .rev()
            .find(|entry| entry.collective.is_none_or(|named| named == collective));
        entry.is_none_or(|entry| entry.names.contains(&name.to_lowercase()) != entry.except)
    }

    fn names(&self, collective: Collective, name: &str) -> bool {
        !self.entries.is_empty()
            && self.entries.iter().any(|entry| {
                !entry.except && entry.collective.is_none_or(|named| named == collective)
            })
            && self.allows(collective, name)
    }
}

impl Settings {
    /// Takes one variable of the environment.
    ///
    /// # Errors
    /// If the variable is not modelled or its value is not one that NCCL takes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let wrong =
            |why| SettingError::Value { name: name.to_owned(), value: value.to_owned(), why };
        let number = || value.trim().parse::<u32>().map_err(|_| wrong(ValueProblem::NotANumber));
        match name {
            "NCCL_ALGO" => {
                let known = Algorithm::TUNED.map(Algorithm::name);
                self.algorithms = Some(List::parse(value, &known).map_err(wrong)?);
            }
            "NCCL_PROTO" => {
                let known = Protocol::ALL.map(Protocol::name);
                self.protocols = Some(List::parse(value, &known).map_err(wrong)?);
            }
            "NCCL_MIN_NCHANNELS" | "NCCL_MAX_NCHANNELS" => {
                let count = number()?;
                if !(1..=64).contains(&count) {
                    return Err(wrong(ValueProblem::NoChannels));
                }
                let (least, most) = match name {
                    "NCCL_MIN_NCHANNELS" => (Some(count), self.max_channels),
                    _ => (self.min_channels, Some(count)),
                };
                if let (Some(least), Some(most)) = (least, most)
                    && least > most
                {
                    return Err(SettingError::Contradiction { least, most });
                }
                (self.min_channels, self.max_channels) = (least, most);
            }
            "NCCL_NVLS_ENABLE" => self.nvls_off = number()? == 0,
            "NCCL_COLLNET_ENABLE" => self.coll_net = number()? != 0,
            _ => {
                let meant = nearest(name, NAMES.iter().copied(), 1);
                let meant = meant
                    .first()
                    .map(|meant| format!(" did you mean {meant}?"))
                    .unwrap_or_default();
                return Err(SettingError::Unknown { name: name.to_owned(), meant });
            }
        }
        Ok(())
    }

    pub(crate) fn allows_algorithm(&self, collective: Collective, algorithm: Algorithm) -> bool {
        self.algorithms.as_ref().is_none_or(|list| list.allows(collective, algorithm.name()))
    }

    pub(crate) fn allows_protocol(&self, collective: Collective, protocol: Protocol) -> bool {
        self.protocols.as_ref().is_none_or(|list| list.allows(collective, protocol.name()))
    }

    /// The protocol is asked for by name, so that NCCL's own doubts about it do not count.
    pub(crate) fn asks_for_protocol(&self, collective: Collective, protocol: Protocol) -> bool {
        self.protocols.as_ref().is_some_and(|list| list.names(collective, protocol.name()))
    }

    /// `channels`, and no more than `NCCL_MAX_NCHANNELS`.
    #[must_use]
    pub(crate) fn at_most(&self, channels: u32) -> u32 {
        self.max_channels.map_or(channels, |most| channels.min(most)).max(1)
    }

    /// `channels` within the bounds that were set.
    #[must_use]
    pub(crate) fn bounded_channels(&self, channels: u32) -> u32 {
        let most = self.at_most(channels);
        most.max(self.min_channels.unwrap_or(1)).clamp(1, 64)
    }
}
