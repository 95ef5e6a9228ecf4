//! From a profile's events to the calls that they describe.

use super::json::{Args, Event};
use super::kernel_name::KernelNames;
use crate::flight_recorder::{public_name, rank_list};
use crate::frames::StackTexts;
use crate::rank_calls::{
    Call, Computed, Flaws, Group, MAX_CALLS, MAX_COMPUTED, MarkedStep, ends_before_it_begins,
};
use crate::small_json::{KEPT, Small};
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{CallState, TensorShape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The contents of one file's events so far.
#[derive(Default)]
pub(super) struct Found {
    /// `record_param_comms`: calls of NCCL, by the number that their kernels point at.
    params: Vec<(Option<u64>, Timed<Call>)>,
    /// The number of those without a name: before `saveNcclMeta` of `torch/csrc/profiler/util.cpp`, PyTorch wrote none.
    unnamed: usize,
    groups: BTreeMap<String, Group>,
    /// Kernels of NCCL, and the number of the call that they are of. (Their names do not give the reduction:
    /// since 2.19 NCCL has one kernel for all, named after the sum; `best_kernel` in its
    /// `src/device/generate.py`.)
    kernels: Vec<(Option<u64>, Timed<()>)>,
    /// Other kernels, and copies of the devices.
    computed: Vec<Timed<Arc<str>>>,
    names: KernelNames,
    /// `ProfilerStep#…`: the steps that the program marked, by number.
    steps: BTreeMap<u64, Marks>,
    /// `c10d::…`: calls as the program made them, by name.
    made: BTreeMap<String, Vec<Timed<Dispatched>>>,
    /// `gloo:…`: calls as gloo carried them out, by name.
    ran: BTreeMap<String, Vec<Timed<Vec<TensorShape>>>>,
    stacks: StackTexts,
    count: usize,
    flaws: Flaws,
}

/// More steps are left out.
const MAX_STEPS: usize = 1 << 16;

/// Something, and when it began and ended, in microseconds as the file counts.
struct Timed<T> {
    from_us: f64,
    to_us: f64,
    what: T,
}

/// A step's times, in microseconds as the file counts.
#[derive(Default)]
struct Marks {
    in_process: Option<(f64, f64)>,
    /// From the first kernel of any stream to the last.
    on_device: Option<(f64, f64)>,
}

/// The call's arguments in the dispatcher's record.
#[derive(Default)]
pub(crate) struct Dispatched {
    pub(crate) root: Option<GroupRank>,
    pub(crate) peer: Option<GroupRank>,
    pub(crate) tag: u32,
    pub(crate) inputs: Vec<TensorShape>,
    /// Empty for a call whose result is in its inputs, and where they were not recorded.
    pub(crate) outputs: Vec<TensorShape>,
}

impl Found {
    pub(super) fn take(&mut self, event: Event) {
        if event.ph.text() != "X" || self.count >= MAX_CALLS {
            return;
        }
        let Some(from_us) = event.ts.real().filter(|ts| ts.is_finite()) else { return };
        let took_us = event.dur.real().filter(|took| took.is_finite()).unwrap_or(0.0);
        let to_us = from_us + took_us.max(0.0);
        if self.take_timed(&event, (from_us, to_us)) && took_us < 0.0 {
            let clause = || ends_before_it_begins(event.name.text(), -took_us * 1000.0);
            self.flaws.backwards.add(clause);
        }
    }

    /// Takes an event with its times; false if it is of no interest.
    fn take_timed(&mut self, event: &Event, (from_us, to_us): (f64, f64)) -> bool {
        let (name, args) = (event.name.text(), &event.args);
        if name == "record_param_comms" {
            if let Some(mut call) = call_of_params(args) {
                call.stack = self.stacks.read(args.call_stack.text());
                if let Some(group) = group_of(args) {
                    self.groups.entry(group.name.clone()).or_insert(group);
                }
                let what = Timed { from_us, to_us, what: call };
                self.params.push((args.external_id.whole(), what));
                self.count += 1;
            } else if args.collective.text().is_empty() {
                self.unnamed += 1;
            }
        } else if event.cat.text() == "kernel" && name.starts_with("nccl") {
            let timed = Timed { from_us, to_us, what: () };
            self.kernels.push((args.external_id.whole(), timed));
            self.count += 1;
        } else if matches!(event.cat.text(), "kernel" | "gpu_memcpy" | "gpu_memset") {
            if self.computed.len() < MAX_COMPUTED {
                let what = self.names.short(name);
                self.computed.push(Timed { from_us, to_us, what });
            } else {
                self.flaws.has_more_computations = true;
            }
        } else if let Some(number) = name.strip_prefix("ProfilerStep#") {
            let Ok(number) = number.parse() else { return false };
            if self.steps.len() >= MAX_STEPS {
                return false;
            }
            let marks = self.steps.entry(number).or_default();
            let known = match event.cat.text() {
                "gpu_user_annotation" => &mut marks.on_device,
                _ => &mut marks.in_process,
            };
            let (from, to) = known.unwrap_or((from_us, to_us));
            *known = Some((from.min(from_us), to.max(to_us)));
        } else if let Some(op) = name.strip_prefix("gloo:") {
            let what = tensors(&args.input_dims, &args.input_type);
            let timed = Timed { from_us, to_us, what };
            self.ran.entry(public_name(op).to_owned()).or_default().push(timed);
            self.count += 1;
        } else if let Some(op) = name.strip_prefix("c10d::")
            && let Some(op) = dispatched_name(op)
        {
            let what =
                Timed { from_us, to_us, what: dispatched(op, &args.concrete, &args.input_dims) };
            self.made.entry(op.to_owned()).or_default().push(what);
            self.count += 1;
        } else {
            return false;
        }
        true
    }

    pub(super) fn on_device(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// The number of NCCL's kernels.
    pub(super) fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// The number of NCCL's calls whose records say neither name nor size nor group.
    pub(super) fn unnamed_calls(&self) -> usize {
        self.unnamed
    }

    /// Takes out what is wrong with the events.
    pub(super) fn flaws(&mut self) -> Flaws {
        std::mem::take(&mut self.flaws)
    }

    /// Takes out the devices' computations, in the order in which they began.
    pub(super) fn computed(&mut self, base_ns: u64) -> Vec<Computed> {
        let computed = std::mem::take(&mut self.computed).into_iter().map(|one| Computed {
            from_ns: ns(base_ns, one.from_us),
            to_ns: ns(base_ns, one.to_us),
            name: one.what,
        });
        let mut computed: Vec<Computed> = computed.collect();
        computed.sort_by_key(|one| (one.from_ns, one.to_ns));
        computed
    }

    /// Takes out the steps that the program marked, in the order in which it began them.
    pub(super) fn steps(&mut self, base_ns: u64) -> Vec<MarkedStep> {
        let span = |(from_us, to_us): (f64, f64)| (ns(base_ns, from_us), ns(base_ns, to_us));
        let steps = std::mem::take(&mut self.steps).into_iter().filter_map(|(number, marks)| {
            let (in_process, on_device) = (span(marks.in_process?), marks.on_device.map(span));
            Some(MarkedStep { number, in_process, on_device })
        });
        steps.collect()
    }

    /// The groups by name, and the calls in the order in which they were made. Times count from `base_ns`.
    pub(super) fn finish(mut self, base_ns: u64) -> (BTreeMap<String, Group>, Vec<Call>) {
        let mut calls = match self.params.is_empty() {
            true => self.of_gloo(base_ns),
            false => self.of_nccl(base_ns),
        };
        // Stable: what was made at one moment stays in the order of the file.
        calls.sort_by_key(|call| call.made_ns);
        (self.groups, calls)
    }

    fn of_nccl(&mut self, base_ns: u64) -> Vec<Call> {
        let mut kernels: BTreeMap<u64, Vec<Timed<()>>> = BTreeMap::new();
        for (id, kernel) in self.kernels.drain(..) {
            if let Some(id) = id {
                kernels.entry(id).or_default().push(kernel);
            }
        }
        let calls = self.params.drain(..).map(|(id, made)| {
            let own = id.and_then(|id| kernels.remove(&id)).unwrap_or_default();
            let from = own.iter().map(|it| ns(base_ns, it.from_us)).min();
            let to = own.iter().map(|it| ns(base_ns, it.to_us)).max();
            Call { made_ns: ns(base_ns, made.from_us), ran_ns: from.zip(to), ..made.what }
        });
        calls.collect()
    }

    fn of_gloo(&mut self, base_ns: u64) -> Vec<Call> {
        let by_time = |a: f64, b: f64| a.total_cmp(&b);
        let mut calls = Vec::new();
        for (op, mut ran) in std::mem::take(&mut self.ran) {
            ran.sort_by(|a, b| by_time(a.from_us, b.from_us));
            let mut made = self.made.remove(&op).unwrap_or_default();
            made.sort_by(|a, b| by_time(a.from_us, b.from_us));
            // The profile may begin between the two: then who is whose is not known.
            let paired = made.len() == ran.len();
            let mut made = made.into_iter().filter(|_| paired);
            for ran in ran {
                let made = made.next();
                let made_us = made.as_ref().map_or(ran.from_us, |made| made.from_us);
                let said = made.map(|made| made.what).unwrap_or_default();
                let dtype = ran.what.first().map_or(Dtype::Unknown, |tensor| tensor.dtype);
                let outputs = said.outputs.into_iter().map(|it| TensorShape { dtype, ..it });
                calls.push(Call {
                    op: op.clone(),
                    group: None,
                    seq: None,
                    peer: said.peer,
                    tag: said.tag,
                    inputs: if ran.what.is_empty() { said.inputs } else { ran.what },
                    outputs: outputs.collect(),
                    reduce_op: None,
                    root: said.root,
                    unfinished: None,
                    stack: Arc::from([]),
                    made_ns: ns(base_ns, made_us.min(ran.from_us)),
                    ran_ns: Some((ns(base_ns, ran.from_us), ns(base_ns, ran.to_us))),
                });
            }
        }
        calls
    }
}

fn ns(base_ns: u64, us: f64) -> u64 {
    // Past the digits of a float there are no nanoseconds, and before 1970 there is nothing.
    base_ns.saturating_add((us.max(0.0) * 1000.0).round() as u64)
}

/// True of the public name of a call; `wait`, `init` and the like are recorded too, and are none.
pub(crate) fn is_call(op: &str) -> bool {
    matches!(
        op,
        "all_reduce"
            | "broadcast"
            | "reduce"
            | "all_gather"
            | "reduce_scatter"
            | "all_to_all"
            | "gather"
            | "scatter"
            | "barrier"
            | "send"
            | "recv"
            | "allreduce_coalesced"
            | "allgather_into_tensor_coalesced"
            | "reduce_scatter_tensor_coalesced"
    )
}

fn call_of_params(args: &Args) -> Option<Call> {
    let name = args.collective.text();
    let op = public_name(name);
    if !is_call(op) {
        return None;
    }
    let dtype = Dtype::from_torch_name(args.dtype.text());
    let tensor = |numel: &Small| -> Vec<TensorShape> {
        let numel = numel.whole();
        numel.map(|numel| TensorShape { shape: vec![numel], dtype }).into_iter().collect()
    };
    let place = args.rank.whole().and_then(|rank| u32::try_from(rank).ok()).map(GroupRank);
    let rooted = matches!(op, "broadcast" | "scatter" | "reduce" | "gather");
    Some(Call {
        op: op.to_owned(),
        group: Some(args.group_name.text().to_owned()).filter(|name| !name.is_empty()),
        seq: args.seq.whole().filter(|seq| *seq > 0),
        peer: place.filter(|_| matches!(op, "send" | "recv")),
        tag: 0,
        inputs: tensor(&args.in_nelems),
        outputs: tensor(&args.out_nelems),
        reduce_op: None,
        root: place.filter(|_| rooted),
        made_ns: 0,
        ran_ns: None,
        unfinished: match args.state.text() {
            "scheduled" => Some(CallState::Scheduled),
            "started" => Some(CallState::Started),
            _ => None,
        },
        stack: Arc::from([]),
    })
}

fn group_of(args: &Args) -> Option<Group> {
    let name = args.group_name.text();
    if name.is_empty() {
        return None;
    }
    // Long lists are shortened to `[0, 1, ..., 63]`; where they are even, start and stride say all.
    let size = args
        .group_size
        .whole()
        .filter(|size| *size <= u64::from(lockstep_core::rank::MAX_WORLD_SIZE));
    let listed = rank_list(args.group_ranks.text()).filter(|ranks| !ranks.is_empty());
    let even = || {
        let (start, stride) = (args.rank_start.whole()?, args.rank_stride.whole()?);
        let rank = |at: u64| {
            let rank = u32::try_from(start.checked_add(at.checked_mul(stride)?)?).ok()?;
            (rank < lockstep_core::rank::MAX_WORLD_SIZE).then_some(GlobalRank(rank))
        };
        (0..size?).map(rank).collect::<Option<Vec<GlobalRank>>>().filter(|_| stride > 0)
    };
    Some(Group {
        name: name.to_owned(),
        desc: args.group_desc.text().to_owned(),
        ranks: listed.or_else(even).unwrap_or_default(),
    })
}

/// The public name of `c10d::allreduce_` and the like.
pub(crate) fn dispatched_name(op: &str) -> Option<&'static str> {
    Some(match op {
        "allreduce_" => "all_reduce",
        "broadcast_" => "broadcast",
        "reduce_" => "reduce",
        "allgather_" | "_allgather_base_" => "all_gather",
        "reduce_scatter_" | "_reduce_scatter_base_" => "reduce_scatter",
        "alltoall_" | "alltoall_base_" => "all_to_all",
        "gather_" => "gather",
        "scatter_" => "scatter",
        "barrier" => "barrier",
        "send" => "send",
        "recv_" | "recv_any_source_" => "recv",
        _ => return None,
    })
}

/// The arguments of a call, as `torch/csrc/distributed/c10d/Ops.cpp` declares them.
pub(crate) fn dispatched(op: &str, values: &Small, dims: &Small) -> Dispatched {
    let number = |at: usize| {
        let number = values.at(at).whole()?;
        u32::try_from(number).ok()
    };
    let root = match op {
        // broadcast_(tensors, group, root_rank, …)
        "broadcast" => number(2),
        // reduce_(tensors, group, reduce_op, root_rank, …)
        "reduce" => number(3),
        // gather_ and scatter_(outputs, inputs, group, root_rank, …)
        "gather" | "scatter" => number(3),
        _ => None,
    };
    let p2p = matches!(op, "send" | "recv");
    // allgather_, reduce_scatter_, alltoall_, gather_, scatter_ and their base forms have (outputs, inputs, …).
    let has_outputs =
        matches!(op, "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter");
    let sizes = |at: usize| -> Vec<TensorShape> {
        let shapes = shapes_in(dims.at(at));
        shapes.into_iter().map(|shape| TensorShape { shape, dtype: Dtype::Unknown }).collect()
    };
    let (inputs, outputs) = match op {
        "barrier" => (Vec::new(), Vec::new()),
        _ if has_outputs => (sizes(1), sizes(0)),
        _ => (sizes(0), Vec::new()),
    };
    // A list that is as long as lists are kept may have been longer.
    let outputs = if outputs.len() < KEPT { outputs } else { Vec::new() };
    Dispatched {
        root: root.map(GroupRank),
        peer: number(2).filter(|_| p2p).map(GroupRank),
        tag: number(3).filter(|_| p2p).unwrap_or(0),
        inputs,
        outputs,
    }
}

/// The shapes of the tensors in an argument: a tensor, or a list of tensors or of such lists.
fn shapes_in(argument: &Small) -> Vec<Vec<u64>> {
    let list = argument.list();
    match list.iter().map(Small::whole).collect::<Option<Vec<u64>>>() {
        Some(shape) if !shape.is_empty() => vec![shape],
        _ => list.iter().flat_map(shapes_in).collect(),
    }
}

/// The element type of a name in C++.
pub(crate) fn dtype_of_cpp(name: &str) -> Dtype {
    match name {
        "unsigned char" => Dtype::Uint8,
        "signed char" => Dtype::Int8,
        "long int" | "long" => Dtype::Int64,
        "c10::Half" => Dtype::Float16,
        "c10::BFloat16" => Dtype::Bfloat16,
        name => Dtype::from_torch_name(name),
    }
}

/// Tensors by their sizes and C++ types.
fn tensors(dims: &Small, types: &Small) -> Vec<TensorShape> {
    let shapes = dims.list().iter().enumerate().filter_map(|(at, dims)| {
        let shape: Option<Vec<u64>> = dims.list().iter().map(Small::whole).collect();
        let dtype = dtype_of_cpp(types.at(at).text());
        Some(TensorShape { shape: shape?, dtype })
    });
    shapes.collect()
}
