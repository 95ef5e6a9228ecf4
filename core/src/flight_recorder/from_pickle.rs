//! A dump from its pickle.

use super::names::rank_list;
use super::{Dump, Entry, FlightRecorderError, Form, GroupConfig};
use crate::dtype::Dtype;
use crate::pickle::{Pickle, Value};
use crate::rank::GlobalRank;
use crate::trace::{Frame, TensorShape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything but the rank, which is in the file's name.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Dump, FlightRecorderError> {
    let pickle = Pickle::read(bytes)
        .map_err(|error| FlightRecorderError::Pickle { file: file.to_owned(), error })?;
    let mut reader = Reader {
        file,
        pickle: &pickle,
        texts: BTreeMap::new(),
        stacks: BTreeMap::new(),
        budget: bytes.len().saturating_mul(16).saturating_add(1 << 16),
    };
    let root = pickle.root();
    let mut dump = Dump {
        file_name: file.to_owned(),
        rank: GlobalRank(0),
        form: Form::Pickle,
        version: None,
        groups: Vec::new(),
        entries: Vec::new(),
        bytes: bytes.len(),
    };
    if pickle.seq(root).is_some() {
        // torch 2.2 writes the entries alone.
        dump.entries = reader.entries(root)?;
        return Ok(dump);
    }
    let not_a_dump = |why: String| FlightRecorderError::NotADump { file: file.to_owned(), why };
    let Some(items) = pickle.dict(root) else {
        return Err(not_a_dump(format!("the pickle holds {root}, not a dict of entries")));
    };
    let mut known = false;
    for (key, value) in items {
        match pickle.str(*key) {
            Some("version") => {
                known = true;
                dump.version = pickle.str(*value).map(str::to_owned);
            }
            Some("entries") => {
                known = true;
                dump.entries = reader.entries(*value)?;
            }
            Some("pg_config") => {
                known = true;
                dump.groups = reader.groups(*value);
            }
            _ => {}
        }
    }
    if known {
        Ok(dump)
    } else {
        Err(not_a_dump("the pickle has neither version nor entries".to_owned()))
    }
}

struct Reader<'p, 'a> {
    file: &'p str,
    pickle: &'p Pickle<'a>,
    /// Names that many entries share.
    texts: BTreeMap<String, Arc<str>>,
    /// Stacks by their frames' identity: PyTorch writes each distinct frame once.
    stacks: BTreeMap<Vec<u32>, Arc<[Frame]>>,
    /// How much may still be copied out of values that the file writes once and uses often.
    budget: usize,
}

impl<'a> Reader<'_, 'a> {
    fn entries(&mut self, value: Value<'a>) -> Result<Vec<Entry>, FlightRecorderError> {
        let pickle = self.pickle;
        let Some(values) = pickle.seq(value) else {
            let why = format!("its entries are {value}, not a list");
            return Err(FlightRecorderError::NotADump { file: self.file.to_owned(), why });
        };
        let mut entries = Vec::with_capacity(values.len().min(1 << 16));
        for (at, value) in values.iter().enumerate() {
            let entry = self.entry(*value).map_err(|why| FlightRecorderError::BadEntry {
                file: self.file.to_owned(),
                entry: at,
                why,
            })?;
            entries.push(entry);
        }
        Ok(entries)
    }

    fn entry(&mut self, value: Value<'a>) -> Result<Entry, String> {
        let pickle = self.pickle;
        let Some(items) = pickle.dict(value) else {
            return Err(format!("it is {value}, not a dict"));
        };
        self.spend(items.len())?;
        let mut raw = RawEntry::default();
        for (key, value) in items {
            let Some(key) = pickle.str(*key) else { continue };
            self.field(&mut raw, key, *value).map_err(|why| format!("{key}: {why}"))?;
        }
        raw.finish()
    }

    fn field(&mut self, raw: &mut RawEntry, key: &str, value: Value<'a>) -> Result<(), String> {
        match key {
            "record_id" => raw.record_id = self.number(value)?,
            "pg_id" => raw.pg_id = self.number(value)?,
            "process_group" => {
                let pickle = self.pickle;
                if let Some([name, desc]) = pickle.seq(value) {
                    raw.group = Some(self.text(*name)?);
                    raw.group_desc = Some(self.text(*desc)?);
                }
            }
            "collective_seq_id" | "seq_id" => raw.collective_seq = self.number(value)?,
            "p2p_seq_id" => raw.p2p_seq = self.number(value)?,
            "profiling_name" => raw.profiling_name = Some(self.text(value)?),
            "time_created_ns" => raw.created_ns = self.number(value)?,
            "time_created_us" => {
                raw.created_ns = self.number(value)?.map(|us| us.saturating_mul(1000));
            }
            "time_discovered_started_ns" => raw.started_ns = self.number(value)?,
            "time_discovered_completed_ns" => raw.completed_ns = self.number(value)?,
            "input_sizes" => raw.input_sizes = self.sizes(value)?,
            "output_sizes" => raw.output_sizes = self.sizes(value)?,
            "input_dtypes" => raw.input_dtypes = self.dtypes(value)?,
            "output_dtypes" => raw.output_dtypes = self.dtypes(value)?,
            "state" => raw.state = Some(self.text(value)?),
            "retired" => raw.retired = matches!(value, Value::Bool(true) | Value::Int(1)),
            "timeout_ms" => raw.timeout_ms = self.number(value)?,
            "is_p2p" => raw.is_p2p = matches!(value, Value::Bool(true) | Value::Int(1)),
            "frames" => raw.stack = Some(self.stack(value)?),
            _ => {}
        }
        Ok(())
    }

    /// A number that is not negative; `None` for None and for -1, which stands for never.
    fn number(&self, value: Value<'a>) -> Result<Option<u64>, String> {
        match value {
            Value::None => Ok(None),
            Value::Int(number) => Ok(u64::try_from(number).ok()),
            Value::Unsigned(number) => Ok(Some(number)),
            Value::Float(number) => Ok((number >= 0.0).then_some(number as u64)),
            other => match self.pickle.str(other).map(str::parse) {
                Some(Ok(number)) => Ok(Some(number)),
                _ => Err(format!("is {other}, not a number")),
            },
        }
    }

    fn text(&mut self, value: Value<'a>) -> Result<Arc<str>, String> {
        let Some(text) = self.pickle.str(value) else {
            return Err(format!("is {value}, not a string"));
        };
        if let Some(known) = self.texts.get(text) {
            return Ok(Arc::clone(known));
        }
        let shared: Arc<str> = Arc::from(text);
        self.texts.insert(text.to_owned(), Arc::clone(&shared));
        Ok(shared)
    }

    fn sizes(&mut self, value: Value<'a>) -> Result<Vec<Vec<u64>>, String> {
        let pickle = self.pickle;
        let tensors = pickle.seq(value).ok_or_else(|| format!("is {value}, not a list"))?;
        self.spend(tensors.len())?;
        let mut sizes = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let dims = pickle.seq(*tensor).ok_or_else(|| format!("holds {tensor}, not a list"))?;
            self.spend(dims.len())?;
            let dims = dims.iter().map(|dim| Ok(self.number(*dim)?.unwrap_or(0)));
            sizes.push(dims.collect::<Result<_, String>>()?);
        }
        Ok(sizes)
    }

    fn dtypes(&mut self, value: Value<'a>) -> Result<Vec<Dtype>, String> {
        let names = self.pickle.seq(value).ok_or_else(|| format!("is {value}, not a list"))?;
        self.spend(names.len())?;
        let dtype = |name: &Value<'a>| self.pickle.str(*name).map(Dtype::from_torch_name);
        Ok(names.iter().map(|name| dtype(name).unwrap_or(Dtype::Unknown)).collect())
    }

    fn stack(&mut self, value: Value<'a>) -> Result<Arc<[Frame]>, String> {
        let pickle = self.pickle;
        let frames = pickle.seq(value).ok_or_else(|| format!("is {value}, not a list"))?;
        self.spend(frames.len())?;
        let ids = frames.iter().map(|frame| pickle.dict_number(*frame).unwrap_or(u32::MAX));
        let ids: Vec<u32> = ids.collect();
        if let Some(known) = self.stacks.get(&ids) {
            return Ok(Arc::clone(known));
        }
        let mut stack = Vec::with_capacity(frames.len());
        for frame in frames {
            let frame = self.frame(*frame)?;
            self.spend(frame.function.len() + frame.file.len())?;
            stack.push(frame);
        }
        let stack: Arc<[Frame]> = stack.into();
        self.stacks.insert(ids, Arc::clone(&stack));
        Ok(stack)
    }

    fn frame(&self, value: Value<'a>) -> Result<Frame, String> {
        let items = self.pickle.dict(value).ok_or_else(|| format!("holds {value}, not a dict"))?;
        let mut frame = Frame { function: String::new(), file: String::new(), line: 0 };
        for (key, value) in items {
            match self.pickle.str(*key) {
                Some("name") => frame.function = self.pickle.str(*value).unwrap_or("?").to_owned(),
                Some("filename") => frame.file = self.pickle.str(*value).unwrap_or("?").to_owned(),
                Some("line") => {
                    let line = self.number(*value)?.unwrap_or(0);
                    frame.line = u32::try_from(line).unwrap_or(u32::MAX);
                }
                _ => {}
            }
        }
        Ok(frame)
    }

    /// `pg_config`: name to (name, desc, ranks) since 2.4, number to ranks in 2.3. What does not
    /// fit is left out: the entries say the rest.
    fn groups(&mut self, value: Value<'a>) -> Vec<GroupConfig> {
        let pickle = self.pickle;
        let mut groups = Vec::new();
        for (key, value) in pickle.dict(value).unwrap_or_default() {
            let name = match (pickle.str(*key), *key) {
                (Some(name), _) => name.to_owned(),
                (None, Value::Int(number)) => number.to_string(),
                _ => continue,
            };
            let mut group = GroupConfig { name, desc: String::new(), ranks: Vec::new() };
            if pickle.dict(*value).is_none() {
                group.ranks = self.ranks(*value);
            }
            for (key, value) in pickle.dict(*value).unwrap_or_default() {
                match pickle.str(*key) {
                    Some("desc") => group.desc = pickle.str(*value).unwrap_or("").to_owned(),
                    Some("ranks") => group.ranks = self.ranks(*value),
                    _ => {}
                }
            }
            groups.push(group);
        }
        groups
    }

    /// Ranks as a list, or as the string `[0, 1]`.
    fn ranks(&mut self, value: Value<'a>) -> Vec<GlobalRank> {
        let pickle = self.pickle;
        let cost = pickle.str(value).map_or(0, str::len) + pickle.seq(value).map_or(0, <[_]>::len);
        if self.spend(cost).is_err() {
            return Vec::new();
        }
        if let Some(text) = pickle.str(value) {
            return rank_list(text).unwrap_or_default();
        }
        let rank = |value: &Value<'a>| match value {
            Value::Int(rank) => u32::try_from(*rank).ok().map(GlobalRank),
            _ => None,
        };
        let ranks = pickle.seq(value).unwrap_or_default().iter().map(rank).collect::<Option<_>>();
        ranks.unwrap_or_default()
    }

    fn spend(&mut self, cost: usize) -> Result<(), String> {
        let rest = self.budget.checked_sub(cost.saturating_add(1));
        self.budget = rest.ok_or("the file repeats itself beyond what a dump does")?;
        Ok(())
    }
}

/// An entry with whatever the file has of it.
#[derive(Default)]
pub(super) struct RawEntry {
    pub(super) record_id: Option<u64>,
    pub(super) pg_id: Option<u64>,
    pub(super) group: Option<Arc<str>>,
    pub(super) group_desc: Option<Arc<str>>,
    pub(super) collective_seq: Option<u64>,
    pub(super) p2p_seq: Option<u64>,
    pub(super) profiling_name: Option<Arc<str>>,
    pub(super) created_ns: Option<u64>,
    pub(super) started_ns: Option<u64>,
    pub(super) completed_ns: Option<u64>,
    pub(super) input_sizes: Vec<Vec<u64>>,
    pub(super) output_sizes: Vec<Vec<u64>>,
    pub(super) input_dtypes: Vec<Dtype>,
    pub(super) output_dtypes: Vec<Dtype>,
    pub(super) state: Option<Arc<str>>,
    pub(super) retired: bool,
    pub(super) timeout_ms: Option<u64>,
    pub(super) is_p2p: bool,
    pub(super) stack: Option<Arc<[Frame]>>,
}

impl RawEntry {
    /// The entry, or what it lacks.
    pub(super) fn finish(self) -> Result<Entry, String> {
        let profiling_name = self.profiling_name.ok_or("it has no profiling_name")?;
        let p2p = self.is_p2p || super::names::call_name(&profiling_name).p2p;
        // JSON writes 0 where the pickle writes None.
        let time = |ns: Option<u64>| ns.filter(|ns| *ns > 0);
        let completed_ns = time(self.completed_ns);
        let state = self.state.as_deref().unwrap_or_default();
        Ok(Entry {
            record_id: self.record_id,
            pg_id: self.pg_id.unwrap_or(0),
            group: self.group,
            group_desc: self.group_desc.unwrap_or_else(|| Arc::from("")),
            collective_seq: self.collective_seq,
            p2p_seq: self.p2p_seq,
            created_ns: self.created_ns.unwrap_or(0),
            started_ns: time(self.started_ns),
            completed_ns,
            inputs: tensors(self.input_sizes, &self.input_dtypes),
            outputs: tensors(self.output_sizes, &self.output_dtypes),
            started: matches!(state, "started" | "completed"),
            completed: state == "completed" || self.retired || completed_ns.is_some(),
            timeout_ms: self.timeout_ms.filter(|ms| *ms > 0),
            p2p,
            stack: self.stack.unwrap_or_default(),
            profiling_name,
        })
    }
}

fn tensors(sizes: Vec<Vec<u64>>, dtypes: &[Dtype]) -> Vec<TensorShape> {
    let dtype = |at: usize| dtypes.get(at).copied().unwrap_or(Dtype::Unknown);
    let tensors = sizes.into_iter().enumerate();
    tensors.map(|(at, shape)| TensorShape { shape, dtype: dtype(at) }).collect()
}
