//! A comparison of a report with a real PyTorch run's record (`docs/ddp_record.py`, or an entry of the
//! recorded `buckets.json`).

use super::call::{DdpCall, DdpOp};
use super::indices::{format_indices, parse_indices};
use super::notes::Half;
use super::report::{DdpReport, Phase};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Differences past this many are counted, not listed.
const MAX_DIFFERENCES: usize = 200;

/// Passes past this are not followed.
const MAX_PASSES: u32 = 1_000;

/// The record of a real run. Everything but the buckets may be missing, and is then not compared.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedRun {
    #[serde(default, deserialize_with = "bytes")]
    cap_bytes: Option<i64>,
    #[serde(default, deserialize_with = "bytes")]
    first_bytes: Option<i64>,
    find_unused_parameters: Option<bool>,
    static_graph: Option<bool>,
    broadcast_buffers: Option<bool>,
    init_sync: Option<bool>,
    set_last_bucket_cap: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    comm_hook: Option<Option<String>>,
    world_size: Option<u32>,
    accumulate: Option<u32>,
    passes: Option<u32>,
    error: Option<String>,
    /// True if the module raises the error by itself, without DDP.
    error_of_module: Option<bool>,
    /// `TORCH_DISTRIBUTED_DEBUG`.
    distributed_debug: Option<String>,
    grad_ready_order: Option<IndexList>,
    backend: Option<BackendName>,
    initial: Option<Vec<IndexList>>,
    #[serde(alias = "logged_initial_bytes")]
    initial_bytes: Option<Vec<u64>>,
    /// Null if DDP's log shows no rebuild.
    #[serde(default, deserialize_with = "given")]
    rebuilt: Option<Option<Vec<IndexList>>>,
    rebuilt_bytes: Option<Vec<u64>>,
    construction: Option<Vec<Value>>,
    iterations: Option<Vec<RecordedIteration>>,
}

/// Python's integers have no limit; one that no reducer accepts represents all larger ones.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(from)?;
    // A float that is too large becomes the largest integer.
    Ok(number.and_then(|n| n.as_i64().or(n.as_f64().map(|n| n as i64))))
}

/// A field that is there, be it null.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedIteration {
    forward: Vec<Value>,
    backward: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum IndexList {
    Text(String),
    Indices(Vec<u32>),
}

impl IndexList {
    fn indices(&self) -> Option<Vec<u32>> {
        match self {
            IndexList::Text(text) => parse_indices(text).ok(),
            IndexList::Indices(indices) => Some(indices.clone()),
        }
    }
}

/// The reason that a file is no recorded run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a recorded DDP run: {0}; docs/ddp_record.py writes one")]
pub struct RecordedRunError(String);

impl RecordedRun {
    /// Reads a run.
    ///
    /// # Errors
    /// When it is no JSON of one, or holds nothing to compare.
    pub fn read(text: &str) -> Result<RecordedRun, RecordedRunError> {
        let run: RecordedRun =
            serde_json::from_str(text).map_err(|error| RecordedRunError(error.to_string()))?;
        let nothing = run.initial.is_none() && run.rebuilt().is_none() && run.iterations.is_none();
        if nothing && run.error.is_none() {
            let why = "it has neither \"initial\" nor \"rebuilt\" nor \"iterations\" nor \"error\"";
            return Err(RecordedRunError(why.into()));
        }
        Ok(run)
    }

    fn rebuilt(&self) -> Option<&[IndexList]> {
        self.rebuilt.as_ref()?.as_deref()
    }

    /// The number of ranks that it had, if it says so.
    pub fn world_size(&self) -> Option<u32> {
        self.world_size
    }

    /// The backend that the run was on; gloo if the record does not name one, as `docs/ddp_record.py` runs on
    /// gloo.
    pub fn backend(&self) -> BackendName {
        self.backend.unwrap_or(BackendName::Gloo)
    }

    /// The number of iterations it was to have: those that it holds, unless it raised before the
    /// last; 3 when it does not say.
    pub fn iterations(&self) -> u32 {
        let held =
            self.iterations.as_ref().map(|steps| steps.len().min(MAX_PASSES as usize) as u32);
        match self.passes {
            Some(passes) => passes.min(MAX_PASSES).max(held.unwrap_or(0)),
            None => held.unwrap_or(3),
        }
    }

    /// The number of passes over which it accumulated gradients; 1 when it does not say.
    pub fn accumulate(&self) -> u32 {
        self.accumulate.unwrap_or(1).max(1)
    }

    /// The fields that the file lacks, and that are not compared for that.
    pub fn not_compared(&self, report: &DdpReport) -> Vec<&'static str> {
        let fields = [
            ("world_size", self.world_size.is_none()),
            ("initial", self.initial.is_none()),
            ("rebuilt", self.leaves_the_rebuild_open(report)),
            ("grad_ready_order", self.grad_ready_order.is_none()),
            ("construction", self.construction.is_none()),
            (
                "iterations",
                self.iterations.as_ref().is_none_or(Vec::is_empty) && !self.raised_at_once(),
            ),
        ];
        fields.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect()
    }

    /// True if the constructor raised, so that there are no passes.
    fn raised_at_once(&self) -> bool {
        self.error.is_some() && self.iterations.is_some()
    }

    /// True if the record says neither which buckets a rebuild made, nor that there was no rebuild.
    fn leaves_the_rebuild_open(&self, report: &DdpReport) -> bool {
        if self.rebuilt().is_some() || self.shows_no_rebuild() {
            return false;
        }
        report.rebuilt.is_some() || self.ends_before_the_rebuild()
    }

    /// True if the record has too few passes for its buckets to be rebuilt.
    fn ends_before_the_rebuild(&self) -> bool {
        let Some(steps) = &self.iterations else { return true };
        let static_graph = self.static_graph == Some(true);
        if self.error.is_some() || (self.find_unused_parameters == Some(true) && !static_graph) {
            return false;
        }
        (steps.len() as u64) < self.rebuilding_pass()
    }

    /// The pass that begins with the rebuild, counted from 1: the one behind the first that reduces,
    /// with a static graph behind the second.
    fn rebuilding_pass(&self) -> u64 {
        let reductions = 1 + u64::from(self.static_graph == Some(true));
        reductions * u64::from(self.accumulate()) + 1
    }

    /// True if the record would contain rebuilt buckets, and says that there are none. DDP's own log is
    /// written at the beginning of a pass that reduces, before the rebuild, so it takes one more pass, and
    /// the last one reduces.
    fn shows_no_rebuild(&self) -> bool {
        let says_none = matches!(self.rebuilt, Some(None)) && self.rebuilt_bytes.is_none();
        if !says_none || self.error.is_some() {
            return false;
        }
        match &self.iterations {
            Some(steps) => steps.len() as u64 > self.rebuilding_pass(),
            None => self.initial.is_some(),
        }
    }

    /// The error that DDP raised there: class and text.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// True if `TORCH_DISTRIBUTED_DEBUG` was INFO or DETAIL, so that errors name parameters.
    pub fn debug(&self) -> bool {
        let level = self.distributed_debug.as_deref().unwrap_or("OFF");
        ["INFO", "DETAIL"].iter().any(|named| level.eq_ignore_ascii_case(named))
    }

    /// A note for the reader on the run's end; none where it came to its end, or DDP raised here as
    /// well.
    pub fn ending(&self, report: &DdpReport) -> Option<String> {
        let there = self.error()?;
        let first = there.lines().next().unwrap_or(there);
        match self.error_of_module {
            Some(true) => Some(format!(
                "The recorded run ended in iteration {} by an exception of the module's own, which \
                 it raises without DDP as well: {first}. What came before it is compared.",
                self.iterations.as_ref().map_or(0, Vec::len)
            )),
            None if report.error.is_none() => Some(format!(
                "The recorded run ended by {first}, which DDP does not raise here. The file does not \
                 say whether the module raises that by itself; today's docs/ddp_record.py writes it \
                 down."
            )),
            _ => None,
        }
    }

    /// The difference in DDP's errors, if the recorded run ended by the module's own exception in its last
    /// iteration: DDP raised nothing there until then.
    fn raised_before(&self, report: &DdpReport) -> Option<String> {
        let (here, at) = (report.error.as_ref()?, report.error_at?);
        let held = self.iterations.as_ref().map_or(0, Vec::len) as u32;
        (at.iteration < held || (at.iteration == held && at.phase == Half::Forward)).then(|| {
            format!("raised: here {here:?} in iteration {}, there nothing until then", at.iteration)
        })
    }

    /// The difference between DDP's recorded error and the one here; `None` if there is none.
    pub fn error_difference(&self, here: Option<&str>) -> Option<String> {
        let shown = |of: Option<&str>| of.map_or("nothing".to_owned(), |text| format!("{text:?}"));
        // Behind the first pybind prints the values of all tensors, behind the second the places in
        // an installation's files.
        fn told(text: &str) -> &str {
            let told = text.split("Invoked with:").next().unwrap_or(text);
            told.split("\n\nAt:").next().unwrap_or(told).trim()
        }
        let differs = here.map(told) != self.error().map(told);
        differs.then(|| format!("raised: here {}, there {}", shown(here), shown(self.error())))
    }

    /// Every difference between the report and the run, as a line each.
    pub fn differences(&self, report: &DdpReport) -> Vec<String> {
        let mut found = Found::default();
        found.scalar("cap_bytes", self.cap_bytes, report.cap_bytes);
        found.scalar("first_bytes", self.first_bytes, report.first_bytes);
        found.scalar(
            "find_unused_parameters",
            self.find_unused_parameters,
            report.find_unused_parameters,
        );
        found.scalar("static_graph", self.static_graph, report.static_graph);
        // Buckets alone are the same in every world.
        if self.construction.is_some() || self.iterations.is_some() {
            found.scalar("world_size", self.world_size, report.world_size);
        }
        found.scalar("broadcast_buffers", self.broadcast_buffers, report.broadcast_buffers);
        found.scalar("init_sync", self.init_sync, report.init_sync);
        found.scalar("set_last_bucket_cap", self.set_last_bucket_cap, report.set_last_bucket_cap);
        if let Some(there) = self.comm_hook.as_ref().filter(|there| **there != report.comm_hook) {
            let shown = |hook: &Option<String>| hook.clone().unwrap_or("none".into());
            let (here, there) = (shown(&report.comm_hook), shown(there));
            found.add(format!("comm_hook: here {here}, there {there}"));
        }
        let cut_short = self.error_of_module == Some(true);
        let raised = match cut_short {
            true => self.raised_before(report),
            false => self.error_difference(report.error.as_deref()),
        };
        if let Some(line) = raised {
            found.add(line);
        }
        if let Some(order) = &self.grad_ready_order {
            found.indices("grad_ready_order", Some(order), Some(&report.grad_ready_order));
        }
        if let Some(initial) = &self.initial {
            found.buckets("initial", initial, &report.initial);
        }
        if let Some(rebuilt) = self.rebuilt() {
            found.buckets("rebuilt", rebuilt, report.rebuilt.as_deref().unwrap_or_default());
        } else if report.rebuilt.is_some() && self.shows_no_rebuild() {
            found.add("rebuilt: here the buckets are rebuilt, there they never were".into());
        }
        if let Some(bytes) = &self.initial_bytes {
            found.scalar("initial_bytes", Some(bytes), &report.initial_bytes);
        }
        if let Some(bytes) = &self.rebuilt_bytes {
            let own = report.rebuilt_bytes.clone().unwrap_or_default();
            found.scalar("rebuilt_bytes", Some(bytes), &own);
        }
        if let Some(calls) = &self.construction {
            found.calls("construction", calls, report.calls(0, Phase::Construction));
        }
        let held = self.iterations.as_ref().map_or(0, Vec::len) as u32;
        let fewer = |passes: &u32| self.error.is_none() && held < (*passes).min(MAX_PASSES);
        let known = self.passes.filter(|_| self.iterations.is_some());
        if let Some(passes) = known.filter(fewer) {
            found.add(format!(
                "iterations: here {passes}, there {held}, though the run was to have {passes} and \
                 says of no exception"
            ));
        }
        for (number, step) in (1..).zip(self.iterations.iter().flatten()) {
            let halves = [("forward", Phase::Forward), ("backward", Phase::Backward)];
            for ((half, phase), there) in halves.into_iter().zip([&step.forward, &step.backward]) {
                // An exception of the module's own cuts the last one off, wherever it stands.
                let most = if cut_short && number == held { there.len() } else { usize::MAX };
                let here = report.calls(number, phase).take(most);
                found.calls(&format!("iteration {number}, {half}"), there, here);
            }
        }
        found.lines()
    }
}

#[derive(Default)]
struct Found {
    lines: Vec<String>,
    more: usize,
}

impl Found {
    fn add(&mut self, line: String) {
        if self.lines.len() < MAX_DIFFERENCES {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    fn lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        self.lines
    }

    fn scalar<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, there: Option<T>, here: T) {
        if let Some(there) = there.filter(|there| *there != here) {
            self.add(format!("{what}: here {here:?}, there {there:?}"));
        }
    }

    fn indices(&mut self, what: &str, there: Option<&IndexList>, here: Option<&[u32]>) {
        let read = there.map(IndexList::indices);
        let shown = |indices: Option<&[u32]>| match indices {
            Some(indices) => format!("[{}]", format_indices(indices)),
            None => "no such bucket".into(),
        };
        match read {
            Some(None) => self.add(format!("{what}: {there:?} is no list of indices")),
            Some(Some(there)) if here != Some(&there) => {
                self.add(format!("{what}: here {}, there {}", shown(here), shown(Some(&there))));
            }
            None if here.is_some() => {
                self.add(format!("{what}: here {}, there {}", shown(here), shown(None)));
            }
            _ => {}
        }
    }

    fn buckets(&mut self, what: &str, there: &[IndexList], here: &[Vec<u32>]) {
        for index in 0..there.len().max(here.len()) {
            let here = here.get(index).map(Vec::as_slice);
            self.indices(&format!("{what}, bucket {index}"), there.get(index), here);
        }
    }

    fn calls<'a>(&mut self, what: &str, there: &[Value], here: impl Iterator<Item = &'a DdpCall>) {
        let there = there.iter().filter(|event| event[0] != "grad").map(describe_recorded);
        let (there, here): (Vec<_>, Vec<_>) = (there.collect(), here.map(describe).collect());
        for index in 0..there.len().max(here.len()) {
            let (there, here) = (there.get(index), here.get(index));
            if there != here {
                let shown = |call: Option<&String>| call.cloned().unwrap_or("nothing".into());
                let (here, there) = (shown(here), shown(there));
                self.add(format!("{what}, call {index}: here {here}, there {there}"));
            }
        }
    }
}

/// `broadcast int32[7] from 0`.
fn describe(call: &DdpCall) -> String {
    let root = match call.op {
        DdpOp::Broadcast { root } => format!(" from {root}"),
        _ => String::new(),
    };
    format!("{} {}[{}]{root}", call.name(), call.dtype, call.numel)
}

/// Describes an event as `ddp_cases.json` has them: `["broadcast_", ["int32", [7]], {"root": 0}]`.
fn describe_recorded(event: &Value) -> String {
    let name = match event[0].as_str() {
        Some("allreduce_") => "all_reduce",
        Some("broadcast_") => "broadcast",
        Some("allgather_") => "all_gather",
        other => other.unwrap_or("?"),
    };
    let tensor = if name == "all_gather" { &event[1][1][0] } else { &event[1] };
    let dtype = Dtype::from_torch_name(tensor[0].as_str().unwrap_or_default());
    let sizes = tensor[1].as_array().into_iter().flatten();
    let numel = sizes.filter_map(Value::as_u64).fold(1, u64::saturating_mul);
    let root = match event[2]["root"].as_u64() {
        Some(root) if name == "broadcast" => format!(" from {root}"),
        _ => String::new(),
    };
    format!("{name} {dtype}[{numel}]{root}")
}

#[cfg(test)]
mod tests;
