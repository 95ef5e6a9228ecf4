//! A dump from its pickle.
//!
//! A dump repeats itself: thousands of entries of a few lines of the program. The common part of entries is
//! read into a [`Site`] once, found again by the numbers that make it up, so that an entry costs no
//! allocation.

use super::dump::{Dump, Form, GroupConfig, GroupStatus};
use super::entry::Numbers;
use super::entry::{Entry, Site};
use super::error::{EntryError, FlightRecorderError};
use super::names::{call_name, rank_list};
use crate::pickle::{Pickle, Value};
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Frame, TensorShape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything but the rank, which is in the file's name.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Dump, FlightRecorderError> {
    let pickle = Pickle::read(bytes)
        .map_err(|error| FlightRecorderError::Pickle { file: file.to_owned(), error })?;
    let mut reader = Reader {
        file,
        pickle: &pickle,
        layout: Vec::new(),
        texts: BTreeMap::new(),
        names: Vec::new(),
        recent: [(Value::None, 0); SLOTS],
        stacks: BTreeMap::new(),
        stack_list: Vec::new(),
        sites: BTreeMap::new(),
        site_list: Vec::new(),
        key: Vec::new(),
        frame_ids: Vec::new(),
        budget: bytes.len().saturating_mul(16).saturating_add(1 << 16),
    };
    let root = pickle.root();
    let mut dump = Dump {
        file_name: file.to_owned(),
        rank: GlobalRank(0),
        form: Form::Pickle,
        version: None,
        groups: Vec::new(),
        status: BTreeMap::new(),
        sites: Vec::new(),
        entries: Vec::new(),
        bytes: bytes.len(),
    };
    if pickle.seq(root).is_some() {
        // torch 2.2 writes the entries alone.
        dump.entries = reader.entries(root)?;
        dump.sites = reader.site_list;
        return Ok(dump);
    }
    let not_a_dump = |why: String| FlightRecorderError::NotADump { file: file.to_owned(), why };
    let Some(items) = pickle.dict(root) else {
        return Err(not_a_dump(format!("the pickle holds {root}, not a dict of entries")));
    };
    let mut known = false;
    for [key, value] in items {
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
            Some("pg_status") => dump.status = reader.status(*value),
            _ => {}
        }
    }
    dump.sites = reader.site_list;
    if known {
        Ok(dump)
    } else {
        Err(not_a_dump("the pickle has neither version nor entries".to_owned()))
    }
}

/// The fields of an entry that are read; the place in the list is the index among an entry's values.
const FIELDS: [&str; 20] = [
    "record_id",
    "pg_id",
    "process_group",
    "collective_seq_id",
    "seq_id",
    "p2p_seq_id",
    "profiling_name",
    "time_created_ns",
    "time_created_us",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "input_sizes",
    "output_sizes",
    "input_dtypes",
    "output_dtypes",
    "state",
    "retired",
    "timeout_ms",
    "is_p2p",
    "frames",
];

/// Texts that entries repeat are looked for at the last one of their kind first.
const SLOTS: usize = 4;
const NAME: usize = 0;
const GROUP: usize = 1;
const DESC: usize = 2;
const DTYPE: usize = 3;

/// The fields that the texts of the slots are in.
const SLOT_FIELDS: [&str; SLOTS] =
    ["profiling_name", "process_group", "process_group", "input_dtypes"];

const FRAMES: &str = "frames";
const STATUS: &str = "pg_status";

/// A field is something else than expected.
fn not(field: &'static str, found: Value<'_>, expected: &'static str) -> EntryError {
    EntryError::Is { field, found: found.to_string(), expected }
}

/// An element of a field's list is something else than expected.
fn holds(field: &'static str, found: Value<'_>, expected: &'static str) -> EntryError {
    EntryError::Holds { field, found: found.to_string(), expected }
}

struct Reader<'p, 'a> {
    file: &'p str,
    pickle: &'p Pickle<'a>,
    /// The keys of the last entry, and which fields they are: entries are alike.
    layout: Vec<(Value<'a>, usize)>,
    /// Texts that many entries share, by their number in `names`.
    texts: BTreeMap<&'p str, u32>,
    names: Vec<Arc<str>>,
    recent: [(Value<'a>, u32); SLOTS],
    /// Stacks by their frames' identity: PyTorch writes each distinct frame once.
    stacks: BTreeMap<Vec<u32>, u32>,
    stack_list: Vec<Arc<[Frame]>>,
    /// Sites by the numbers that make them up.
    sites: BTreeMap<Vec<u64>, u32>,
    site_list: Vec<Site>,
    /// The numbers of the current entry's site.
    key: Vec<u64>,
    frame_ids: Vec<u32>,
    /// The amount that may still be copied out of values that the file writes once and uses often.
    budget: usize,
}

impl<'p, 'a> Reader<'p, 'a> {
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

    /// The field that a key names, the `at`-th of its entry.
    fn field(&mut self, at: usize, key: Value<'a>) -> Option<usize> {
        if let Some((known, field)) = self.layout.get(at)
            && known.is(key)
        {
            return (*field < FIELDS.len()).then_some(*field);
        }
        let name = self.pickle.str(key);
        let field = name.and_then(|name| FIELDS.iter().position(|field| *field == name));
        let found = (key, field.unwrap_or(usize::MAX));
        if at == self.layout.len() {
            self.layout.push(found);
        } else if let Some(place) = self.layout.get_mut(at) {
            *place = found;
        }
        field
    }

    fn entry(&mut self, value: Value<'a>) -> Result<Entry, EntryError> {
        let pickle = self.pickle;
        let Some(items) = pickle.dict(value) else {
            return Err(EntryError::NotADict { found: value.to_string() });
        };
        self.spend(items.len())?;
        let mut values = [Value::None; FIELDS.len()];
        for (at, [key, value]) in items.iter().enumerate() {
            if let Some(place) = self.field(at, *key).and_then(|field| values.get_mut(field)) {
                *place = *value;
            }
        }
        let [
            record_id,
            pg_id,
            process_group,
            collective_seq_id,
            seq_id,
            p2p_seq_id,
            profiling_name,
            created_ns,
            created_us,
            started_ns,
            completed_ns,
            input_sizes,
            output_sizes,
            input_dtypes,
            output_dtypes,
            state,
            retired,
            timeout_ms,
            is_p2p,
            frames,
        ] = values;
        let yes = |value| matches!(value, Value::Bool(true) | Value::Int(1));
        let number = |value, field| self.number(field, value);
        let created_us = number(created_us, "time_created_us")?.map(|us| us.saturating_mul(1000));
        let collective_seq = number(collective_seq_id, "collective_seq_id")?;
        let state = match state {
            Value::None => "",
            state => pickle.str(state).ok_or_else(|| not("state", state, "string"))?,
        };
        let numbers = Numbers {
            record_id: number(record_id, "record_id")?,
            collective_seq: collective_seq.or(number(seq_id, "seq_id")?),
            p2p_seq: number(p2p_seq_id, "p2p_seq_id")?,
            created_ns: number(created_ns, "time_created_ns")?.or(created_us),
            started_ns: number(started_ns, "time_discovered_started_ns")?,
            completed_ns: number(completed_ns, "time_discovered_completed_ns")?,
            state,
            retired: yes(retired),
        };
        let pg_id = number(pg_id, "pg_id")?.unwrap_or(0);
        let timeout_ms = number(timeout_ms, "timeout_ms")?.filter(|ms| *ms > 0);
        if profiling_name == Value::None {
            return Err(EntryError::Lacks("profiling_name"));
        }
        self.key.clear();
        self.key.extend([pg_id, timeout_ms.unwrap_or(0), u64::from(yes(is_p2p))]);
        let name = self.text(NAME, profiling_name)?;
        self.key.push(u64::from(name));
        let group = match pickle.seq(process_group) {
            Some([name, desc]) => Some((self.text(GROUP, *name)?, self.text(DESC, *desc)?)),
            _ => None,
        };
        let (group_name, desc) = group.unwrap_or((u32::MAX, u32::MAX));
        self.key.extend([u64::from(group_name), u64::from(desc)]);
        let stack = self.stack(frames)?;
        self.key.push(u64::from(stack));
        self.sizes("input_sizes", input_sizes)?;
        self.sizes("output_sizes", output_sizes)?;
        self.dtypes("input_dtypes", input_dtypes)?;
        self.dtypes("output_dtypes", output_dtypes)?;
        let site = match self.sites.get(&self.key) {
            Some(site) => *site,
            None => {
                let site = self.site().ok_or(EntryError::Lacks("sizes that are whole"))?;
                let number = self.site_list.len() as u32;
                self.site_list.push(site);
                self.sites.insert(self.key.clone(), number);
                number
            }
        };
        Ok(numbers.entry(site))
    }

    /// Reads the site from the numbers that [`Reader::entry`] has put into the key.
    fn site(&self) -> Option<Site> {
        let mut key = self.key.iter().copied();
        let mut next = || key.next();
        let (pg_id, timeout_ms, p2p) = (next()?, next()?, next()? != 0);
        let name = |id: u64| self.names.get(usize::try_from(id).ok()?).map(Arc::clone);
        let profiling_name = name(next()?)?;
        let (group, desc) = (name(next()?), name(next()?));
        let stack = self.stack_list.get(usize::try_from(next()?).ok()?).map(Arc::clone);
        let mut sizes = || -> Option<Vec<Vec<u64>>> {
            let tensors = next()?;
            (0..tensors).map(|_| (0..next()?).map(|_| next()).collect()).collect()
        };
        let (inputs, outputs) = (sizes()?, sizes()?);
        let mut dtypes = || -> Option<Vec<Dtype>> {
            let dtype = |name: Option<Arc<str>>| name.as_deref().map(Dtype::from_torch_name);
            (0..next()?).map(|_| Some(dtype(name(next()?)).unwrap_or(Dtype::Unknown))).collect()
        };
        let (input_dtypes, output_dtypes) = (dtypes()?, dtypes()?);
        Some(Site {
            p2p: p2p || call_name(&profiling_name).p2p,
            pg_id,
            group,
            group_desc: desc.unwrap_or_else(|| Arc::from("")),
            profiling_name,
            inputs: tensors(inputs, &input_dtypes),
            outputs: tensors(outputs, &output_dtypes),
            timeout_ms: (timeout_ms > 0).then_some(timeout_ms),
            stack: stack.unwrap_or_default(),
        })
    }

    /// A number that is not negative; `None` for None and for -1, which means never.
    fn number(&self, field: &'static str, value: Value<'a>) -> Result<Option<u64>, EntryError> {
        match value {
            Value::None => Ok(None),
            Value::Int(number) => Ok(u64::try_from(number).ok()),
            Value::Unsigned(number) => Ok(Some(number)),
            Value::Float(number) => Ok((number >= 0.0).then_some(number as u64)),
            other => match self.pickle.str(other).map(str::parse) {
                Some(Ok(number)) => Ok(Some(number)),
                _ => Err(not(field, other, "number")),
            },
        }
    }

    /// The number of a text among `names`.
    fn text(&mut self, slot: usize, value: Value<'a>) -> Result<u32, EntryError> {
        if let Some((recent, number)) = self.recent.get(slot)
            && recent.is(value)
            && value != Value::None
        {
            return Ok(*number);
        }
        let pickle = self.pickle;
        let text = pickle.str(value).ok_or_else(|| {
            not(SLOT_FIELDS.get(slot).copied().unwrap_or_default(), value, "string")
        })?;
        let number = match self.texts.get(text) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.names.push(Arc::from(text));
                self.texts.insert(text, number);
                number
            }
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = (value, number);
        }
        Ok(number)
    }

    /// Adds sizes to the key.
    fn sizes(&mut self, field: &'static str, value: Value<'a>) -> Result<(), EntryError> {
        let pickle = self.pickle;
        let tensors = list(pickle, field, value)?;
        self.spend(tensors.len())?;
        self.key.push(tensors.len() as u64);
        for tensor in tensors {
            let dims = pickle.seq(*tensor).ok_or_else(|| holds(field, *tensor, "list"))?;
            self.spend(dims.len())?;
            self.key.push(dims.len() as u64);
            for dim in dims {
                let dim = self.number(field, *dim)?.unwrap_or(0);
                self.key.push(dim);
            }
        }
        Ok(())
    }

    /// Adds element types to the key.
    fn dtypes(&mut self, field: &'static str, value: Value<'a>) -> Result<(), EntryError> {
        let names = list(self.pickle, field, value)?;
        self.spend(names.len())?;
        self.key.push(names.len() as u64);
        for name in names {
            let number = self.text(DTYPE, *name).unwrap_or(u32::MAX);
            self.key.push(u64::from(number));
        }
        Ok(())
    }

    /// The number of a stack among `stack_list`.
    fn stack(&mut self, value: Value<'a>) -> Result<u32, EntryError> {
        let pickle = self.pickle;
        let frames = list(pickle, FRAMES, value)?;
        self.spend(frames.len())?;
        self.frame_ids.clear();
        let ids = frames.iter().map(|frame| pickle.dict_number(*frame).unwrap_or(u32::MAX));
        self.frame_ids.extend(ids);
        if let Some(known) = self.stacks.get(&self.frame_ids) {
            return Ok(*known);
        }
        let mut stack = Vec::with_capacity(frames.len());
        for frame in frames {
            let frame = self.frame(*frame)?;
            self.spend(frame.function.len() + frame.file.len())?;
            stack.push(frame);
        }
        let number = self.stack_list.len() as u32;
        self.stack_list.push(stack.into());
        self.stacks.insert(self.frame_ids.clone(), number);
        Ok(number)
    }

    fn frame(&self, value: Value<'a>) -> Result<Frame, EntryError> {
        let items = self.pickle.dict(value).ok_or_else(|| holds(FRAMES, value, "dict"))?;
        let mut frame = Frame { function: String::new(), file: String::new(), line: 0 };
        for [key, value] in items {
            match self.pickle.str(*key) {
                Some("name") => frame.function = self.pickle.str(*value).unwrap_or("?").to_owned(),
                Some("filename") => frame.file = self.pickle.str(*value).unwrap_or("?").to_owned(),
                Some("line") => {
                    let line = self.number(FRAMES, *value)?.unwrap_or(0);
                    frame.line = u32::try_from(line).unwrap_or(u32::MAX);
                }
                _ => {}
            }
        }
        Ok(frame)
    }

    /// `pg_config`: name to (name, desc, ranks) since 2.4, number to ranks in 2.3. Malformed groups are left
    /// out: the entries have the rest.
    fn groups(&mut self, value: Value<'a>) -> Vec<GroupConfig> {
        let pickle = self.pickle;
        let mut groups = Vec::new();
        for [key, value] in pickle.dict(value).unwrap_or_default() {
            let name = match (pickle.str(*key), *key) {
                (Some(name), _) => name.to_owned(),
                (None, Value::Int(number)) => number.to_string(),
                _ => continue,
            };
            let mut group = GroupConfig { name, desc: String::new(), ranks: Vec::new() };
            if pickle.dict(*value).is_none() {
                group.ranks = self.ranks(*value);
            }
            for [key, value] in pickle.dict(*value).unwrap_or_default() {
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

    /// `pg_status`: per `pg_id`, how far its collectives have come.
    fn status(&mut self, value: Value<'a>) -> BTreeMap<u64, GroupStatus> {
        let pickle = self.pickle;
        let mut found = BTreeMap::new();
        for [key, value] in pickle.dict(value).unwrap_or_default() {
            let Ok(Some(pg_id)) = self.number(STATUS, *key) else { continue };
            let mut status = GroupStatus::default();
            for [key, value] in pickle.dict(*value).unwrap_or_default() {
                // -1 stands for never.
                let seq = self.number(STATUS, *value).unwrap_or(None);
                match pickle.str(*key) {
                    Some("last_enqueued_collective") => status.last_enqueued = seq,
                    Some("last_completed_collective") => status.last_completed = seq,
                    _ => {}
                }
            }
            found.insert(pg_id, status);
        }
        found
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

    fn spend(&mut self, cost: usize) -> Result<(), EntryError> {
        let rest = self.budget.checked_sub(cost.saturating_add(1));
        self.budget = rest.ok_or(EntryError::Repeats)?;
        Ok(())
    }
}

/// The elements of a list; a missing list has none.
fn list<'p, 'a>(
    pickle: &'p Pickle<'a>,
    field: &'static str,
    value: Value<'a>,
) -> Result<&'p [Value<'a>], EntryError> {
    match value {
        Value::None => Ok(&[]),
        value => pickle.seq(value).ok_or_else(|| not(field, value, "list")),
    }
}

pub(super) fn tensors(sizes: Vec<Vec<u64>>, dtypes: &[Dtype]) -> Vec<TensorShape> {
    let dtype = |at: usize| dtypes.get(at).copied().unwrap_or(Dtype::Unknown);
    let tensors = sizes.into_iter().enumerate();
    tensors.map(|(at, shape)| TensorShape { shape, dtype: dtype(at) }).collect()
}
