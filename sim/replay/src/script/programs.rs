//! From what the ranks of a script noted to the plan's programs.

use super::event::{Place, ScriptEvent};
use super::roles::{NotesByRank, Roles};
use lockstep_core::collective::{Collective, Splits};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupError, GroupId, ProcessGroup};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{
    Action, Call, CallersId, Fill, Op, Plan, PlanBuilder, PlanError, Program, SourceLine, TensorId,
};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest name of a user's call that is kept.
const MAX_VIA: usize = 80;

/// The source of the time of the work between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkTime {
    /// As its operators take on the card that was asked for.
    OnCard,
    /// As long as it took where it was recorded.
    Measured,
}

/// A script's plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptPlan {
    /// The plan.
    pub plan: Plan,
    /// The recorder's assumptions and the losses of the plan, a clause each, ascending.
    pub assumed: Vec<String>,
}

/// The plan of what every rank noted, by rank from 0; `texts` are the script's files by the names that places use.
///
/// # Errors
/// When the notes make no plan that could be run.
pub fn plan_of_script(
    name: &str,
    ranks_per_node: u32,
    events: &[Vec<ScriptEvent>],
    texts: &BTreeMap<String, String>,
    time: WorkTime,
) -> Result<ScriptPlan, PlanError> {
    let world = events.len() as u32;
    let notes = Notes { world, groups: groups_of(events.iter().flatten(), world, None) };
    let own = |rank: GlobalRank| {
        Cow::Borrowed(events.get(rank.0 as usize).map_or(&[][..], Vec::as_slice))
    };
    plan_of(name, ranks_per_node, notes, own, texts, time)
}

/// The plan of a world of which only some ranks were recorded: each other rank does what the rank that stands for it
/// noted, carried over to its own groups.
///
/// # Errors
/// When the notes make no plan that could be run.
pub fn plan_of_roles(
    name: &str,
    ranks_per_node: u32,
    notes: &NotesByRank,
    roles: &Roles,
    texts: &BTreeMap<String, String>,
    time: WorkTime,
) -> Result<ScriptPlan, PlanError> {
    let world = roles.plays().len() as u32;
    let groups = groups_of(notes.values().flatten(), world, Some(roles));
    let own = |rank: GlobalRank| Cow::Owned(roles.events_of(rank.0, notes));
    plan_of(name, ranks_per_node, Notes { world, groups }, own, texts, time)
}

/// The size of a world and its groups.
struct Notes {
    world: u32,
    groups: Vec<NotedGroup>,
}

fn plan_of<'a>(
    name: &str,
    ranks_per_node: u32,
    notes: Notes,
    events_of: impl Fn(GlobalRank) -> Cow<'a, [ScriptEvent]>,
    texts: &BTreeMap<String, String>,
    time: WorkTime,
) -> Result<ScriptPlan, PlanError> {
    let Notes { world, groups } = notes;
    let all: Vec<u32> = (0..world).collect();
    let default = groups.iter().position(|group| group.ranks == all);
    let backend = default.and_then(|at| groups.get(at)).map_or(BackendName::Gloo, |it| it.backend);
    let mut plan = PlanBuilder::new(name, world, backend)?;
    plan.ranks_per_node(ranks_per_node);
    if let Some(timeout_ms) =
        default.and_then(|at| groups.get(at)).and_then(|group| group.timeout_ms)
    {
        plan.timeout_ms(timeout_ms);
    }
    let mut ids = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        let id = match default == Some(at) {
            true => GroupId::WORLD,
            false => plan.group(group.to_group()?),
        };
        ids.insert(group.id.clone(), (id, group.ranks.clone()));
    }
    let mut writer = Writer {
        plan,
        groups: ids,
        tensors: BTreeMap::new(),
        sources: BTreeMap::new(),
        texts,
        time,
        assumed: BTreeSet::new(),
    };
    let programs: Vec<Program> =
        (0..world).map(GlobalRank).map(|rank| writer.program(rank, &events_of(rank))).collect();
    let mut programs = programs.into_iter();
    let plan = writer.plan.with_programs(|_| programs.next().unwrap_or_default())?;
    Ok(ScriptPlan { plan, assumed: writer.assumed.into_iter().collect() })
}

/// A group as its members noted it.
#[derive(Clone, Debug)]
struct NotedGroup {
    id: String,
    name: String,
    ranks: Vec<u32>,
    backend: BackendName,
    desc: String,
    timeout_ms: Option<u64>,
}

impl NotedGroup {
    fn to_group(&self) -> Result<ProcessGroup, GroupError> {
        let ranks = self.ranks.iter().copied().map(GlobalRank).collect();
        let group = ProcessGroup::new(&self.name, self.backend, ranks)?.with_desc(&self.desc);
        Ok(match self.timeout_ms {
            Some(timeout_ms) => group.with_timeout_ms(timeout_ms),
            None => group,
        })
    }
}

/// The groups in which somebody calls, in the order in which they were first made. With `roles`, groups of ranks that
/// were not recorded are among them.
fn groups_of<'a>(
    events: impl Iterator<Item = &'a ScriptEvent> + Clone,
    world: u32,
    roles: Option<&Roles>,
) -> Vec<NotedGroup> {
    let mut called = BTreeSet::new();
    for event in events.clone() {
        if let ScriptEvent::Call { group, .. } = event {
            called.insert(group.as_str());
        }
    }
    let mut known = BTreeSet::new();
    let mut groups = Vec::new();
    for event in events {
        let (ScriptEvent::Group { id, name, ranks, backend, desc, timeout_ms }
        | ScriptEvent::GroupOfOthers { id, name, ranks, backend, desc, timeout_ms }) = event
        else {
            continue;
        };
        let is_called =
            called.contains(id.as_str()) || roles.is_some_and(|roles| roles.is_called(id));
        if (is_called || ranks.len() == world as usize) && known.insert(id.as_str()) {
            groups.push(NotedGroup {
                id: id.clone(),
                name: name.clone(),
                ranks: ranks.clone(),
                backend: if backend == "nccl" { BackendName::Nccl } else { BackendName::Gloo },
                desc: desc.clone(),
                timeout_ms: timeout_ms.filter(|timeout_ms| *timeout_ms > 0),
            });
        }
    }
    groups
}

/// Writes programs of one plan.
struct Writer<'a> {
    plan: PlanBuilder,
    /// By the recorder's id: the plan's group and its members by group rank.
    groups: BTreeMap<String, (GroupId, Vec<u32>)>,
    tensors: BTreeMap<(Dtype, u64), TensorId>,
    sources: BTreeMap<String, u32>,
    texts: &'a BTreeMap<String, String>,
    time: WorkTime,
    assumed: BTreeSet<String>,
}

/// A batch of calls that is being read.
#[derive(Default)]
struct Batch {
    calls: Vec<Call>,
    ids: Vec<u64>,
    /// That of its first call.
    origin: Option<Origin>,
}

/// The place of a call in the script.
#[derive(Default)]
struct Origin {
    at: Option<SourceLine>,
    via: Option<Arc<str>>,
    called_from: Option<CallersId>,
}

impl Origin {
    fn op(self, action: Action) -> Op {
        let Origin { at, via, called_from } = self;
        Op { action, at, via, called_from }
    }
}

/// A call of the plan, and its place in the script.
struct PlacedCall {
    call: Call,
    origin: Origin,
}

impl Writer<'_> {
    fn program(&mut self, rank: GlobalRank, events: &[ScriptEvent]) -> Program {
        let mut ops: Vec<Op> = Vec::new();
        // The operation that made the call, by the call's id.
        let mut made: BTreeMap<u64, u32> = BTreeMap::new();
        let mut batch: Option<Batch> = None;
        // Calls that may take no longer than this.
        let mut limits: BTreeMap<u32, u64> = BTreeMap::new();
        for event in events {
            match event {
                ScriptEvent::Call { id, timeout_ms, .. } => {
                    limits.extend(timeout_ms.map(|limit| (ops.len() as u32, limit)));
                    let Some(PlacedCall { call, origin }) = self.call(rank, event) else {
                        continue;
                    };
                    match &mut batch {
                        Some(batch) => {
                            batch.calls.push(call);
                            batch.ids.push(*id);
                            batch.origin.get_or_insert(origin);
                        }
                        None => {
                            made.insert(*id, ops.len() as u32);
                            ops.push(origin.op(Action::call(call, true)));
                        }
                    }
                }
                ScriptEvent::Batch => batch = Some(Batch::default()),
                ScriptEvent::BatchEnd => {
                    let Some(Batch { calls, ids, origin }) = batch.take() else { continue };
                    let action = match <[Call; 1]>::try_from(calls) {
                        Ok([call]) => Action::call(call, true),
                        Err(calls) if calls.is_empty() => continue,
                        Err(calls) => Action::Coalesced { calls, async_op: true },
                    };
                    made.extend(ids.into_iter().map(|id| (id, ops.len() as u32)));
                    ops.push(origin.unwrap_or_default().op(action));
                }
                ScriptEvent::Wait { id, at } => {
                    let Some(op) = made.get(id).copied() else { continue };
                    // Of the calls of a batch the first wait is for all.
                    made.retain(|_, known| *known != op);
                    let timeout_ms = limits.remove(&op);
                    let holds = ops.len() == op as usize + 1 && timeout_ms.is_none();
                    match ops.last_mut().filter(|_| holds) {
                        Some(last) => hold(last),
                        None => {
                            let at = self.line(at.as_ref());
                            ops.push(Op::new(Action::Wait { op, timeout_ms }, at));
                        }
                    }
                }
                ScriptEvent::Work { phase, card_ns, wall_ns, .. } => {
                    let worked = match self.time {
                        WorkTime::OnCard => *card_ns,
                        WorkTime::Measured => *wall_ns,
                    };
                    match ops.last_mut().map(|last| &mut last.action) {
                        Some(Action::Compute { name, duration_ns }) if **name == **phase => {
                            *duration_ns = duration_ns.saturating_add(worked);
                        }
                        _ => {
                            let (name, duration_ns) = (phase.as_str().into(), worked);
                            let action = Action::Compute { name, duration_ns };
                            ops.push(Op::new(action, None));
                        }
                    }
                }
                ScriptEvent::Sleep { ns, at } => {
                    let (name, duration_ns) = ("time.sleep".into(), *ns);
                    let at = self.line(at.as_ref());
                    ops.push(Op::new(Action::Sleep { name, duration_ns }, at));
                }
                ScriptEvent::Synchronize => {
                    ops.push(Op::new(Action::Synchronize, None));
                }
                ScriptEvent::Assumed { what, at } => {
                    self.assumed.insert(what.clone());
                    let at = self.line(at.as_ref());
                    ops.push(Remark::Assumed { what: what.clone() }.to_op(at));
                }
                ScriptEvent::End { how: Some(how), at, .. } => {
                    let (how, at) = (how.clone(), self.line(at.as_ref()));
                    ops.push(Op::new(Action::Die { how }, at));
                }
                ScriptEvent::End { .. }
                | ScriptEvent::Group { .. }
                | ScriptEvent::GroupOfOthers { .. }
                | ScriptEvent::DataParallel { .. }
                | ScriptEvent::Compared { .. }
                | ScriptEvent::Step => {}
            }
        }
        Program { ops }
    }

    /// The call of the plan; `None` in a group that nobody has noted, and of
    /// what a rank sends to itself.
    fn call(&mut self, rank: GlobalRank, event: &ScriptEvent) -> Option<PlacedCall> {
        let ScriptEvent::Call { op, group, dtype, inputs, outputs, peer, tag, .. } = event else {
            return None;
        };
        let (group, members) = self.groups.get(group)?;
        let (group, size) = (*group, members.len() as u64);
        if peer.is_some_and(|peer| members.get(peer as usize) == Some(&rank.0)) {
            self.assumed.insert("what a rank sends to itself is no message".to_owned());
            return None;
        }
        let dtype = self.dtype(dtype.as_deref());
        let (input, output) = (sum(inputs), sum(outputs));
        let call = match op.as_str() {
            "send" | "recv" => {
                let tensor = self.tensor(dtype, input.max(output));
                let tag = tag.unwrap_or(0);
                match (op.as_str(), peer.map(GroupRank)) {
                    ("send", peer) => Call::Send { group, peer: peer?, tensor, tag },
                    (_, peer) => Call::Recv { group, peer, tensor, tag },
                }
            }
            _ => {
                let collective = self.collective(event)?;
                self.collective_call((group, size), collective, event, dtype)
            }
        };
        Some(PlacedCall { call, origin: self.origin(event) })
    }

    fn origin(&mut self, event: &ScriptEvent) -> Origin {
        let ScriptEvent::Call { at, callers, via, .. } = event else { return Origin::default() };
        let at = self.line(at.as_ref());
        let callers: Vec<SourceLine> =
            callers.iter().filter_map(|place| self.line(Some(place))).collect();
        let via = via.as_ref().map(|via| via.chars().take(MAX_VIA).collect::<String>().into());
        Origin { at, via, called_from: self.plan.callers(callers) }
    }

    fn collective(&mut self, event: &ScriptEvent) -> Option<Collective> {
        let ScriptEvent::Call { op, reduce, root, .. } = event else { return None };
        let root = GroupRank(root.unwrap_or(0));
        let mut reduction = || match reduce.as_deref().unwrap_or("sum") {
            "premul_sum" => {
                self.assumed.insert("a premultiplied sum is a sum".to_owned());
                ReduceOp::Sum
            }
            name => name.to_uppercase().parse().unwrap_or(ReduceOp::Sum),
        };
        Some(match op.as_str() {
            "all_reduce" => Collective::AllReduce { op: reduction() },
            "reduce" => Collective::Reduce { op: reduction(), root },
            "reduce_scatter" => Collective::ReduceScatter { op: reduction() },
            "broadcast" => Collective::Broadcast { root },
            "all_gather" => Collective::AllGather,
            "gather" => Collective::Gather { root },
            "scatter" => Collective::Scatter { root },
            "all_to_all" => Collective::AllToAll,
            "barrier" => Collective::Barrier,
            "monitored_barrier" => Collective::MonitoredBarrier { wait_all_ranks: false },
            _ => return None,
        })
    }

    fn collective_call(
        &mut self,
        (group, size): (GroupId, u64),
        collective: Collective,
        event: &ScriptEvent,
        dtype: Dtype,
    ) -> Call {
        let ScriptEvent::Call { inputs, outputs, in_splits, out_splits, .. } = event else {
            return Call::collective_of(group, collective, 0, None, None);
        };
        let (input, output) = (sum(inputs), sum(outputs));
        let size = size.max(1);
        // Programs are shared between ranks: a rank that passes no tensor names one that nobody reads.
        let (count, passed, result) = match collective {
            Collective::Barrier | Collective::MonitoredBarrier { .. } => (0, None, None),
            Collective::AllGather | Collective::Gather { .. } => {
                (input, Some(input), Some(input.saturating_mul(size)))
            }
            Collective::Scatter { .. } | Collective::ReduceScatter { .. } => {
                (output, Some(output.saturating_mul(size)), Some(output))
            }
            Collective::AllToAll => {
                if let (Some(input), Some(output)) = (in_splits, out_splits) {
                    let splits = Splits { input: input.clone(), output: output.clone() };
                    let passed = self.tensor(dtype, sum(input));
                    let result = self.tensor(dtype, sum(output));
                    let (passed, result) = (Some(passed), Some(result));
                    let mut call = Call::collective_of(group, collective, 0, passed, result);
                    if let Call::Collective { splits: parts, .. } = &mut call {
                        *parts = Some(Box::new(splits));
                    }
                    return call;
                }
                let part = input.max(output) / size;
                (part, Some(part.saturating_mul(size)), Some(part.saturating_mul(size)))
            }
            _ => (input, None, Some(input)),
        };
        let passed = passed.map(|numel| self.tensor(dtype, numel));
        let result = result.map(|numel| self.tensor(dtype, numel));
        Call::collective_of(group, collective, count, passed, result)
    }

    fn dtype(&mut self, name: Option<&str>) -> Dtype {
        let dtype = name.map_or(Dtype::Float32, Dtype::from_torch_name);
        if Dtype::COMPUTABLE.contains(&dtype) {
            return dtype;
        }
        let name = name.unwrap_or("unknown");
        self.assumed.insert(format!("elements of type {name} are bytes"));
        Dtype::Uint8
    }

    fn tensor(&mut self, dtype: Dtype, numel: u64) -> TensorId {
        let plan = &mut self.plan;
        *self.tensors.entry((dtype, numel)).or_insert_with(|| {
            plan.tensor(format!("{}[{numel}]", dtype.name()), dtype, numel, Fill::Unknown)
        })
    }

    fn line(&mut self, place: Option<&Place>) -> Option<SourceLine> {
        let (file, line) = place?;
        let (plan, texts) = (&mut self.plan, self.texts);
        let source = *self.sources.entry(file.clone()).or_insert_with(|| {
            plan.source(file.clone(), texts.get(file).cloned().unwrap_or_default())
        });
        Some(SourceLine { source, line: *line })
    }
}

fn hold(op: &mut Op) {
    if let Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } = &mut op.action {
        *async_op = false;
    }
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum: u64, number| sum.saturating_add(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn events(noted: serde_json::Value) -> Vec<ScriptEvent> {
        let group =
            json!({"t": "group", "id": "w", "name": "0", "ranks": [0, 1], "backend": "nccl"});
        let group = serde_json::from_value(group).unwrap();
        let noted: Vec<ScriptEvent> = serde_json::from_value(noted).unwrap();
        [vec![group], noted].concat()
    }

    fn call(id: u64, op: &str) -> serde_json::Value {
        json!({"t": "call", "id": id, "op": op, "group": "w", "dtype": "float32", "in": [4], "out": [4],
               "at": ["train.py", 3], "peer": 1})
    }

    /// The operations of rank 0, beside a rank 1 that makes one barrier.
    fn first_rank(noted: serde_json::Value) -> (Vec<Op>, Vec<String>) {
        let ranks =
            [events(noted), events(json!([{"t": "call", "id": 0, "op": "barrier", "group": "w"}]))];
        let recorded = plan_of_script("t", 2, &ranks, &BTreeMap::new(), WorkTime::OnCard).unwrap();
        (recorded.plan.programs[0].ops.clone(), recorded.assumed)
    }

    #[test]
    fn a_call_that_is_waited_for_at_once_holds() {
        let work = json!({"t": "work", "phase": "forward", "flops": 1.0, "bytes": 1.0, "card_ns": 5, "wall_ns": 9});
        let (ops, _) = first_rank(json!([
            call(0, "all_reduce"), {"t": "wait", "id": 0},
            call(1, "all_reduce"), work, work, {"t": "wait", "id": 1}, {"t": "wait", "id": 1},
        ]));
        let shown: Vec<(&str, bool)> =
            ops.iter().map(|op| (op.action.name(), op.action.is_async())).collect();
        assert_eq!(
            shown,
            [("all_reduce", false), ("all_reduce", true), ("forward", false), ("wait", false)]
        );
        assert!(matches!(ops[2].action, Action::Compute { duration_ns: 10, .. }));
        assert!(matches!(ops[3].action, Action::Wait { op: 1, timeout_ms: None }));
    }

    #[test]
    fn calls_keep_the_callers_of_their_line() {
        let through = |id: u64, line: u32| {
            let mut call = call(id, "all_reduce");
            call["callers"] = json!([["train.py", line], ["train.py", 40]]);
            call
        };
        let noted = json!([through(0, 20), through(1, 21), through(2, 20)]);
        let ranks = [events(noted.clone()), events(noted)];
        let plan = plan_of_script("t", 2, &ranks, &BTreeMap::new(), WorkTime::OnCard).unwrap().plan;
        let lines = |op: &Op| plan.lines_of(op).map(|at| at.line).collect::<Vec<_>>();
        let ops = &plan.programs[0].ops;
        assert_eq!(
            ops.iter().map(lines).collect::<Vec<_>>(),
            [[3, 20, 40], [3, 21, 40], [3, 20, 40]]
        );
        assert_eq!(plan.callers.len(), 2);
    }

    #[test]
    fn a_batch_is_one_operation() {
        let (ops, _) = first_rank(json!([
            {"t": "batch"}, call(0, "send"), call(1, "recv"), {"t": "batch_end"},
            {"t": "wait", "id": 0}, {"t": "wait", "id": 1},
        ]));
        assert_eq!(ops.len(), 1);
        assert!(
            matches!(&ops[0].action, Action::Coalesced { calls, async_op: false } if calls.len() == 2)
        );
    }

    #[test]
    fn what_a_plan_cannot_carry_is_told() {
        let mut own = call(0, "send");
        own["peer"] = json!(0);
        let mut complex = call(1, "all_reduce");
        complex["dtype"] = json!("quint8");
        let (ops, assumed) = first_rank(json!([
            own, complex, {"t": "wait", "id": 1},
            {"t": "end", "how": "ValueError: no", "status": 1, "at": ["train.py", 9]},
        ]));
        assert_eq!(
            assumed,
            ["elements of type quint8 are bytes", "what a rank sends to itself is no message"]
        );
        assert_eq!(ops[1].at, Some(SourceLine { source: 0, line: 9 }));
        assert_eq!(ops[1].action.ends_by(), Some("ValueError: no"));
    }

    #[test]
    fn a_monitored_barrier_keeps_its_own_timeout() {
        let barrier = json!({"t": "call", "id": 0, "op": "monitored_barrier", "group": "w", "timeout_ms": 10});
        let (ops, _) = first_rank(json!([barrier, {"t": "wait", "id": 0}]));
        assert!(ops[0].action.is_async());
        assert!(matches!(ops[1].action, Action::Wait { op: 0, timeout_ms: Some(10) }));
    }
}
