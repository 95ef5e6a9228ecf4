//! A dump from its JSON form, which has no stacks.

use super::from_pickle::RawEntry;
use super::names::rank_list;
use super::{Dump, Entry, FlightRecorderError, Form, GroupConfig};
use crate::dtype::Dtype;
use crate::rank::GlobalRank;
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
    for (at, entry) in json.entries.into_iter().enumerate() {
        let bad = |why| FlightRecorderError::BadEntry { file: file.to_owned(), entry: at, why };
        entries.push(entry.read().map_err(bad)?);
    }
    let groups = json.pg_config.unwrap_or_default().into_iter();
    Ok(Dump {
        file_name: file.to_owned(),
        rank: GlobalRank(0),
        form: Form::Json,
        version: json.version,
        groups: groups.map(|(name, group)| group.read(name)).collect(),
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
    fn read(self) -> Result<Entry, String> {
        let number = |number: Option<Number>| number.and_then(Number::read);
        let dtypes = |names: Vec<String>| {
            names.iter().map(|name| Dtype::from_torch_name(name)).collect::<Vec<_>>()
        };
        let (group, group_desc) = self.process_group.unzip();
        let created_us = number(self.time_created_us).map(|us| us.saturating_mul(1000));
        let raw = RawEntry {
            record_id: number(self.record_id),
            pg_id: number(self.pg_id),
            group: group.map(Arc::from),
            group_desc: group_desc.map(Arc::from),
            collective_seq: number(self.collective_seq_id),
            p2p_seq: number(self.p2p_seq_id),
            profiling_name: self.profiling_name.map(Arc::from),
            created_ns: number(self.time_created_ns).or(created_us),
            started_ns: number(self.time_discovered_started_ns),
            completed_ns: number(self.time_discovered_completed_ns),
            input_sizes: self.input_sizes,
            output_sizes: self.output_sizes,
            input_dtypes: dtypes(self.input_dtypes),
            output_dtypes: dtypes(self.output_dtypes),
            state: self.state.map(Arc::from),
            retired: self.retired,
            timeout_ms: number(self.timeout_ms),
            is_p2p: self.is_p2p,
            stack: None,
        };
        raw.finish()
    }
}
