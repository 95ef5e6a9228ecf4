//! A dump from its JSON form, which has no stacks.

use super::dump::{Dump, Form, GroupConfig, GroupStatus};
use super::entry::Numbers;
use super::entry::{Entry, Site};
use super::error::{EntryError, FlightRecorderError};
use super::from_pickle::tensors;
use super::names::{call_name, rank_list};
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything but the rank, which is in the file's name.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Dump, FlightRecorderError> {
    let bare_list = bytes.trim_ascii_start().first() == Some(&b'[');
    let read = if bare_list {
        serde_json::from_slice(bytes).map(|entries| JsonDump { entries, ..JsonDump::default() })
    } else {
        serde_json::from_slice::<JsonDump>(bytes)
    };
    let json = read.map_err(|error| {
        let cut_off =
            if error.is_eof() { "; it is cut off: copy the whole file again" } else { "" };
        FlightRecorderError::Json { file: file.to_owned(), why: format!("{error}{cut_off}") }
    })?;
    if json.version.is_none() && json.pg_config.is_none() && json.entries.is_empty() {
        let why = "the JSON has neither version nor entries".to_owned();
        return Err(FlightRecorderError::NotADump { file: file.to_owned(), why });
    }
    let mut entries = Vec::with_capacity(json.entries.len());
    let mut sites = Sites::default();
    for (at, entry) in json.entries.into_iter().enumerate() {
        let bad = |why| FlightRecorderError::BadEntry { file: file.to_owned(), entry: at, why };
        entries.push(entry.read(&mut sites).map_err(bad)?);
    }
    let groups = json.pg_config.unwrap_or_default().into_iter();
    Ok(Dump {
        file_name: file.to_owned(),
        rank: GlobalRank(0),
        form: Form::Json,
        version: json.version,
        groups: groups.map(|(name, group)| group.read(name)).collect(),
        status: json.pg_status.into_iter().filter_map(status).collect(),
        sites: sites.list,
        entries,
        bytes: bytes.len(),
    })
}

#[derive(Default, Deserialize)]
struct JsonDump {
    version: Option<String>,
    #[serde(default)]
    entries: Vec<JsonEntry>,
    pg_config: Option<BTreeMap<String, JsonGroup>>,
    #[serde(default)]
    pg_status: BTreeMap<String, BTreeMap<String, Number>>,
}

/// The sites so far, and the number of each.
#[derive(Default)]
struct Sites {
    known: BTreeMap<Site, u32>,
    list: Vec<Site>,
}

impl Sites {
    fn number(&mut self, site: Site) -> u32 {
        if let Some(number) = self.known.get(&site) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(site.clone());
        self.known.insert(site, number);
        number
    }
}

fn status((pg_id, fields): (String, BTreeMap<String, Number>)) -> Option<(u64, GroupStatus)> {
    let mut status = GroupStatus::default();
    for (name, number) in fields {
        match name.as_str() {
            "last_enqueued_collective" => status.last_enqueued = number.read(),
            "last_completed_collective" => status.last_completed = number.read(),
            _ => {}
        }
    }
    Some((pg_id.parse().ok()?, status))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonGroup {
    Described {
        #[serde(default)]
        desc: String,
        ranks: JsonRanks,
    },
    Bare(JsonRanks),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonRanks {
    List(Vec<u32>),
    Text(String),
}

/// A number, or the same as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
}

#[derive(Deserialize)]
struct JsonEntry {
    record_id: Option<Number>,
    pg_id: Option<Number>,
    process_group: Option<(String, String)>,
    #[serde(alias = "seq_id")]
    collective_seq_id: Option<Number>,
    p2p_seq_id: Option<Number>,
    profiling_name: Option<String>,
    time_created_ns: Option<Number>,
    time_created_us: Option<Number>,
    time_discovered_started_ns: Option<Number>,
    time_discovered_completed_ns: Option<Number>,
    #[serde(default)]
    input_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    output_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    input_dtypes: Vec<String>,
    #[serde(default)]
    output_dtypes: Vec<String>,
    state: Option<String>,
    #[serde(default)]
    retired: bool,
    timeout_ms: Option<Number>,
    #[serde(default)]
    is_p2p: bool,
}

impl JsonGroup {
    fn read(self, name: String) -> GroupConfig {
        let (desc, ranks) = match self {
            JsonGroup::Described { desc, ranks } => (desc, ranks),
            JsonGroup::Bare(ranks) => (String::new(), ranks),
        };
        let ranks = match ranks {
            JsonRanks::List(ranks) => ranks.into_iter().map(GlobalRank).collect(),
            JsonRanks::Text(text) => rank_list(&text).unwrap_or_default(),
        };
        GroupConfig { name, desc, ranks }
    }
}

impl Number {
    fn read(self) -> Option<u64> {
        match self {
            Number::Unsigned(number) => Some(number),
            Number::Signed(number) => u64::try_from(number).ok(),
            Number::Float(number) => (number >= 0.0).then_some(number as u64),
            Number::Text(text) => text.parse().ok(),
        }
    }
}

impl JsonEntry {
    fn read(self, sites: &mut Sites) -> Result<Entry, EntryError> {
        let number = |number: Option<Number>| number.and_then(Number::read);
        let dtypes = |names: Vec<String>| {
            names.iter().map(|name| Dtype::from_torch_name(name)).collect::<Vec<_>>()
        };
        let (group, group_desc) = self.process_group.unzip();
        let created_us = number(self.time_created_us).map(|us| us.saturating_mul(1000));
        let numbers = Numbers {
            record_id: number(self.record_id),
            collective_seq: number(self.collective_seq_id),
            p2p_seq: number(self.p2p_seq_id),
            created_ns: number(self.time_created_ns).or(created_us),
            started_ns: number(self.time_discovered_started_ns),
            completed_ns: number(self.time_discovered_completed_ns),
            state: self.state.as_deref().unwrap_or_default(),
            retired: self.retired,
        };
        let profiling_name = self.profiling_name.ok_or(EntryError::Lacks("profiling_name"))?;
        let site = Site {
            p2p: self.is_p2p || call_name(&profiling_name).p2p,
            profiling_name: profiling_name.into(),
            pg_id: number(self.pg_id).unwrap_or(0),
            group: group.map(Arc::from),
            group_desc: Arc::from(group_desc.unwrap_or_default()),
            inputs: tensors(self.input_sizes, &dtypes(self.input_dtypes)),
            outputs: tensors(self.output_sizes, &dtypes(self.output_dtypes)),
            timeout_ms: number(self.timeout_ms).filter(|ms| *ms > 0),
            stack: Arc::default(),
        };
        Ok(numbers.entry(sites.number(site)))
    }
}
