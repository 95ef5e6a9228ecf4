//! Traces of PyTorch's profiler (Kineto's JSON): one rank's work, with times, and on CUDA its device's work.
//!
//! The calls of NCCL are in `record_param_comms`, with group and sizes, and their kernels; those of gloo in
//! `gloo:…` and `c10d::…`, without a group. [`Profile::read`] reads one rank's file, [`calls_of`] puts a
//! job's together. A profile has only calls that have ended: it shows slow ranks, not hanging ones.

mod calls;
mod json;
mod kernel_name;
mod reader;
mod write;

#[cfg(test)]
mod tests;

pub use crate::rank_calls::Calls;
pub(crate) use calls::{dispatched, dispatched_name, dtype_of_cpp, is_call};
pub(crate) use reader::{KinetoReader, read_stream};
pub use write::{BEGINNING, KinetoWriter};

use crate::job_calls::Shows;
use crate::rank_calls::{Group, RankCalls, Words, join};
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;
use lockstep_core::rank::MAX_WORLD_SIZE;
use lockstep_core::trace::rank_of_file_name;
use lockstep_core::words::counted;
use std::io::BufRead;

/// A larger file is refused.
pub(crate) const MAX_PROFILE_BYTES: usize = 2 << 30;

/// The reason that a file is no profile that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KinetoError {
    /// It is larger than [`MAX_PROFILE_BYTES`].
    #[error(
        "{file} has {bytes} bytes; a profile is read up to {MAX_PROFILE_BYTES}. Profile fewer steps: \
         schedule=torch.profiler.schedule(…)"
    )]
    TooLarge {
        /// The file's name.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// It is damaged or cut off.
    #[error("{file} is no whole trace of PyTorch's profiler: {why}; copy the whole file again")]
    Damaged {
        /// The file's name.
        file: String,
        /// The reader's message.
        why: String,
    },
    /// It has no calls of torch.distributed.
    #[error(
        "{file} is a trace of PyTorch's profiler without calls of torch.distributed: profile a step \
         that has some"
    )]
    NoCalls {
        /// The file's name.
        file: String,
    },
    /// Its calls have neither names nor sizes nor groups.
    #[error(
        "{file} shows {} of NCCL without their names, sizes and groups, as older releases of PyTorch write \
         them: profile with a newer one, or add the job's Flight Recorder dumps",
        counted(*calls, "call")
    )]
    UnnamedCalls {
        /// The file's name.
        file: String,
        /// The number of its calls.
        calls: usize,
    },
    /// It has NCCL's kernels, and nothing of the process that made the calls.
    #[error(
        "{file} shows {} of NCCL, and not the calls that they carry out: profile ProfilerActivity.CPU as well",
        counted(*kernels, "kernel")
    )]
    KernelsOnly {
        /// The file's name.
        file: String,
        /// The number of NCCL's kernels.
        kernels: usize,
    },
    /// The rank is neither in it nor in its name.
    #[error(
        "{file} does not say which rank it is of: it has no distributedInfo; name it by its rank, \
         like rank3.json"
    )]
    NoRank {
        /// The file's name.
        file: String,
    },
}

/// One rank's profile, as far as its calls go.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(RankCalls);

/// The calls of a job's profiles; `None` if there are none. The order of the files does not matter.
pub fn calls_of(profiles: Vec<Profile>) -> Option<Calls> {
    let profiles: Vec<RankCalls> = profiles.into_iter().map(|profile| profile.0).collect();
    shown_calls_of(&profiles).map(|(_, calls)| calls)
}

/// The same with the completeness of the calls.
pub(crate) fn shown_calls_of(profiles: &[RankCalls]) -> Option<(Shows, Calls)> {
    let words = Words {
        by: "PyTorch's profiler",
        file: "a profile",
        files: "profiles",
        missing: "a profiler writes only where it is asked to",
    };
    let mut calls = join(profiles, words)?;
    let mut by_process =
        profiles.iter().filter(|it| it.backend == BackendName::Nccl && !it.on_device).peekable();
    if by_process.peek().is_some() {
        let why = match by_process.any(|profile| profile.computed.is_empty()) {
            true => {
                "The profiles hold nothing of the devices: the calls' times are those of the processes. \
                 Profile ProfilerActivity.CUDA as well."
            }
            // NCCL needs none in a group of one rank.
            false => {
                "The profiles hold kernels of the devices, and none of NCCL: the calls' times are those of the \
                 processes."
            }
        };
        calls.notes.push(why.to_owned());
    }
    Some((RankCalls::shown_by(profiles), calls))
}

impl Profile {
    /// True if bytes begin like a profile; reading it shows if it is a good one.
    pub fn is_one(bytes: &[u8]) -> bool {
        const HEAD: usize = 1 << 16;
        let head = bytes.get(..bytes.len().min(HEAD)).unwrap_or_default();
        let tail = bytes.get(bytes.len().saturating_sub(4096)..).unwrap_or_default();
        let has = |part: &[u8], what: &[u8]| part.windows(what.len()).any(|window| window == what);
        bytes.trim_ascii_start().first() == Some(&b'{')
            && (has(head, b"\"traceEvents\"") || has(tail, b"\"traceEvents\""))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is no profile, has no calls, or is of an unknown rank.
    pub fn read(file_name: &str, bytes: &[u8]) -> Result<Profile, KinetoError> {
        let file = || file_name.to_owned();
        if bytes.len() > MAX_PROFILE_BYTES {
            return Err(KinetoError::TooLarge { file: file(), bytes: bytes.len() });
        }
        let (mut found, mut head) = (calls::Found::default(), json::Head::default());
        let read = json::read(bytes, &mut head, |event| found.take(event));
        Profile::of(file_name, (head, read.err()), found)
    }

    /// Reads a file as it comes, so that it is never in memory as a whole.
    ///
    /// # Errors
    /// Those of [`Profile::read`], and when the stream cannot be read.
    pub(crate) fn read_stream(
        file_name: &str,
        stream: impl BufRead,
    ) -> Result<Profile, KinetoError> {
        let (mut found, mut head) = (calls::Found::default(), json::Head::default());
        let read = json::read_stream(stream, &mut head, |event| found.take(event));
        Profile::of(file_name, (head, read.err()), found)
    }

    /// The profile of what was `found` in a file, up to its end or to where it is `broken`.
    fn of(
        file_name: &str,
        (head, broken): (json::Head, Option<serde_json::Error>),
        mut found: calls::Found,
    ) -> Result<Profile, KinetoError> {
        let file = || file_name.to_owned();
        let broken =
            broken.map(|error| KinetoError::Damaged { file: file(), why: error.to_string() });
        let info = head.distributed.unwrap_or_default();
        let on_device = found.on_device();
        let computed = found.computed(head.base_ns);
        let steps = found.steps(head.base_ns);
        let mut flaws = found.flaws();
        let (unnamed, kernels) = (found.unnamed_calls(), found.kernels());
        let (mut groups, calls) = found.finish(head.base_ns);
        if calls.is_empty() {
            return Err(broken.unwrap_or(match (unnamed, kernels) {
                (0, 0) => KinetoError::NoCalls { file: file() },
                (0, kernels) => KinetoError::KernelsOnly { file: file(), kernels },
                (calls, _) => KinetoError::UnnamedCalls { file: file(), calls },
            }));
        }
        let rank = info.rank.and_then(|rank| u32::try_from(rank).ok()).map(GlobalRank);
        let rank = match rank.filter(|rank| rank.0 < MAX_WORLD_SIZE) {
            Some(rank) => rank,
            None => match rank_of_file_name(file_name) {
                Ok(rank) => rank,
                // The header that says so may stand behind the break.
                Err(_) => return Err(broken.unwrap_or(KinetoError::NoRank { file: file() })),
            },
        };
        flaws.broken = broken.map(|error| error.to_string());
        for config in info.pg_config {
            let ranks = config.ranks.into_iter().map(GlobalRank).collect();
            let name = config.pg_name;
            groups.insert(name.clone(), Group { name, desc: config.pg_desc, ranks });
        }
        let groups: Vec<Group> = groups.into_values().collect();
        let said = info.world_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
        let world_size = RankCalls::world_size_of(rank, said, &groups);
        let backend = match info.backend.as_str() {
            "nccl" => BackendName::Nccl,
            "gloo" => BackendName::Gloo,
            _ if on_device => BackendName::Nccl,
            _ => BackendName::Unknown,
        };
        Ok(Profile(RankCalls {
            file_name: file_name.to_owned(),
            rank,
            world_size,
            backend,
            groups,
            calls,
            computed,
            steps,
            on_device,
            untimed: false,
            base_ns: head.base_ns,
            flaws,
        }))
    }

    /// The rank that it is of.
    pub fn rank(&self) -> GlobalRank {
        self.0.rank
    }
}
