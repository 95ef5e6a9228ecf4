//! One rank's operations as statements.

use super::error::PythonError;
use super::groups::{Families, is_of_pair};
use crate::between::is_between;
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Action, Call, Plan, SourceLine, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use std::collections::BTreeMap;

/// The name of the time between two recorded calls.
pub(super) const BETWEEN: &str = "between";

/// A statement's meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Does {
    /// `compute`, by that name.
    Compute(String),
    /// `sleep`, by that name.
    Sleep(String),
    /// Anything else, as its text.
    Line(String),
}

/// A statement of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) does: Does,
    /// The line that it was recorded at.
    pub(super) at: Option<SourceLine>,
    /// The time that it takes, if it computes or sleeps; else the computing time before it.
    pub(super) ns: u64,
}

/// The computing time since a rank's last statement, and the waits in it that stand where habit says.
#[derive(Debug, Default)]
struct Gap {
    ns: u64,
    /// The computing time before each wait of the plan, by the operation that it waits for.
    waits: Vec<(u32, u64)>,
    /// Works that the plan has waited for in an earlier gap.
    over: Vec<u32>,
}

impl Gap {
    /// The computing time that was done beside an operation, before the rank waited for it: all of it, if the rank has
    /// not waited yet.
    fn beside(&self, op: u32) -> u64 {
        let waited = self.waits.iter().find(|(of, _)| *of == op).map(|(_, ns)| *ns);
        waited.unwrap_or(if self.over.contains(&op) { 0 } else { self.ns })
    }

    /// Takes out the time that a statement stands behind.
    fn take(&mut self, ns: u64) -> u64 {
        let ns = ns.min(self.ns);
        self.ns -= ns;
        self.waits.iter_mut().for_each(|(_, before)| *before = before.saturating_sub(ns));
        ns
    }

    /// Takes out all of the time: what comes next is another gap.
    fn end(&mut self) -> u64 {
        self.over.extend(self.waits.drain(..).map(|(op, _)| op));
        std::mem::take(&mut self.ns)
    }
}

/// The waits of recorded programs behind a call at one line.
#[derive(Debug, Default)]
struct Habit {
    /// The number of times they waited at once.
    held: usize,
    /// The number of calls that came before each wait that was not at once, ascending.
    calls_later: Vec<u32>,
}

impl Habit {
    /// The number of calls that come before the wait; `None` if it comes at once.
    fn calls_later(&self) -> Option<u32> {
        let usual = self.calls_later.get(self.calls_later.len() / 2).copied();
        usual.filter(|_| self.calls_later.len() > self.held)
    }
}

/// Writes operations as statements.
pub(super) struct Writer<'a> {
    plan: &'a Plan,
    families: &'a Families,
    /// Of a recorded plan, what programs do behind a call at a line.
    habits: BTreeMap<(Option<SourceLine>, String), Habit>,
    /// The tensors in use, by their names.
    tensors: BTreeMap<String, TensorId>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan, families: &'a Families) -> Writer<'a> {
        let mut writer =
            Writer { plan, families, habits: BTreeMap::new(), tensors: BTreeMap::new() };
        if plan.programs.iter().flat_map(|program| &program.ops).any(is_between) {
            writer.learn_habits();
        }
        writer
    }

    /// Learns where recorded programs go on behind a call. When one waited is seen by its next calls only, so what
    /// most of the ranks and rounds did is taken for all.
    fn learn_habits(&mut self) {
        for rank in (0..self.plan.world_size).map(GlobalRank) {
            let ops = self.plan.program(rank).map(|own| own.ops.as_slice()).unwrap_or_default();
            let mut open: Vec<(u32, (Option<SourceLine>, String), u32)> = Vec::new();
            for (index, op) in ops.iter().enumerate() {
                match &op.action {
                    Action::Call { call, async_op } => {
                        let Ok(text) = self.call(rank, call, false) else { continue };
                        open.iter_mut().for_each(|(.., calls)| *calls += 1);
                        let site = (op.at, text);
                        let habit = self.habits.entry(site.clone()).or_default();
                        match async_op {
                            true => open.push((index as u32, site, 0)),
                            false => habit.held += 1,
                        }
                    }
                    Action::Wait { op, .. } => {
                        let Some(at) = open.iter().position(|(of, ..)| of == op) else { continue };
                        let (_, site, calls) = open.remove(at);
                        self.habits.entry(site).or_default().calls_later.push(calls);
                    }
                    _ => {}
                }
            }
        }
        self.habits.values_mut().for_each(|habit| habit.calls_later.sort_unstable());
    }

    /// The tensors that statements name, in the order of their names.
    pub(super) fn tensors(&self) -> Vec<(&str, TensorId)> {
        self.tensors.iter().map(|(name, id)| (name.as_str(), *id)).collect()
    }

    /// The statements of a rank.
    pub(super) fn statements(&mut self, rank: GlobalRank) -> Result<Vec<Statement>, PythonError> {
        let plan = self.plan;
        let ops = plan.program(rank).map(|own| own.ops.as_slice()).unwrap_or_default();
        let mut statements = Vec::with_capacity(ops.len());
        // The names of works in flight, with the operations that they are of.
        let mut works: Vec<Option<(u32, bool)>> = Vec::new();
        // Works that are waited for by habit, and before which of the next calls.
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut gap = Gap::default();
        for (index, op) in ops.iter().enumerate() {
            let no_word = |what| PythonError::NoWord { rank, op: index, what };
            let (does, ns) = match &op.action {
                Action::Compute { duration_ns, .. } if is_between(op) => {
                    gap.ns = gap.ns.saturating_add(*duration_ns);
                    continue;
                }
                Action::Compute { name, duration_ns } => {
                    (Does::Compute(name.to_string()), *duration_ns)
                }
                Action::Sleep { name, .. } if Remark::parse(name).is_some() => {
                    if let Some(Remark::NewGroup { .. }) = Remark::parse(name) {
                        return Err(no_word("a new_group that not every rank calls alike"));
                    }
                    continue;
                }
                Action::Sleep { name, duration_ns } => {
                    (Does::Sleep(name.to_string()), *duration_ns)
                }
                Action::Call { call, .. } if plan.group(call.group()).is_some_and(is_of_pair) => {
                    continue;
                }
                Action::Call { call, async_op } => {
                    let held = self.call(rank, call, false).map_err(no_word)?;
                    let habit = self.habits.get(&(op.at, held.clone()));
                    let later = habit.map(Habit::calls_later);
                    statements.extend(waits(due(&mut open), &mut works, &mut gap));
                    if !later.map_or(*async_op, |later| later.is_some()) {
                        (Does::Line(held), 0)
                    } else {
                        let text = self.call(rank, call, true).map_err(no_word)?;
                        let name = take(&mut works, (index as u32, false));
                        open.extend(later.flatten().map(|later| (index as u32, later)));
                        (Does::Line(format!("{name} = {text}")), 0)
                    }
                }
                Action::Coalesced { calls, async_op } => {
                    let ops: Vec<String> = calls
                        .iter()
                        .map(|call| self.p2p_op(rank, call))
                        .collect::<Result<_, _>>()
                        .map_err(no_word)?;
                    let batch = format!("dist.batch_isend_irecv([{}])", ops.join(", "));
                    let text = match async_op {
                        true => format!("{} = {batch}", take(&mut works, (index as u32, true))),
                        false => format!("for work in {batch}:\n    work.wait()"),
                    };
                    (Does::Line(text), 0)
                }
                // Habits say when.
                Action::Wait { op, .. } if open.iter().any(|(of, _)| of == op) => {
                    gap.waits.push((*op, gap.ns));
                    continue;
                }
                Action::Wait { op, timeout_ms: None } => {
                    // A second wait for a work is none.
                    let work = free(&mut works, *op);
                    statements.extend(work.map(|work| waited(work, gap.end())));
                    continue;
                }
                Action::Synchronize => (Does::Line("torch.cuda.synchronize()".to_owned()), 0),
                Action::Die { how } => {
                    (Does::Line(format!("raise RuntimeError({})", quoted(how))), 0)
                }
                Action::Wait { .. } => return Err(no_word("a wait with a timeout")),
                Action::Query { .. } => return Err(no_word("a question about a call's state")),
                Action::Copy(_) => return Err(no_word("a copy among its own tensors")),
                Action::Signal(_) => return Err(no_word("a fault")),
            };
            let ns = match does {
                Does::Line(_) => gap.end(),
                _ => ns,
            };
            statements.push(Statement { does, at: op.at, ns });
        }
        let open = open.into_iter().map(|(op, _)| op).collect();
        statements.extend(waits(open, &mut works, &mut gap));
        if gap.ns > 0 {
            let does = Does::Compute(BETWEEN.to_owned());
            statements.push(Statement { does, at: None, ns: gap.ns });
        }
        Ok(statements)
    }

    fn call(
        &mut self,
        rank: GlobalRank,
        call: &Call,
        async_op: bool,
    ) -> Result<String, &'static str> {
        let group = self.group(call.group());
        let asynchronous = if async_op { ", async_op=True" } else { "" };
        let Call::Collective { collective, input, output, schedule, splits, .. } = call else {
            let (name, peer, tensor, tag) = self.message(rank, call)?;
            let name = if async_op { format!("i{name}") } else { name.to_owned() };
            return Ok(format!("dist.{name}({tensor}{peer}{group}{tag})"));
        };
        if schedule.is_some() {
            return Err("a call that is carried out as a file says");
        }
        if splits.is_some() {
            return Err("an all_to_all of uneven parts");
        }
        let size = self.plan.group(call.group()).map_or(0, |group| group.size());
        let output = output.map(|id| self.tensor(id)).unwrap_or_default();
        let input = input.map(|id| self.tensor(id)).unwrap_or_default();
        let me = self.own_rank(call.group());
        let (name, arguments) = match collective {
            Collective::Broadcast { root } => ("broadcast", format!("{output}{}", src(*root))),
            Collective::AllReduce { op } => ("all_reduce", format!("{output}{}", reduction(op)?)),
            Collective::Reduce { op, root } => {
                ("reduce", format!("{output}{}{}", dst(*root), reduction(op)?))
            }
            Collective::AllGather => ("all_gather_into_tensor", format!("{output}, {input}")),
            Collective::ReduceScatter { op } => {
                ("reduce_scatter_tensor", format!("{output}, {input}{}", reduction(op)?))
            }
            Collective::AllToAll => ("all_to_all_single", format!("{output}, {input}")),
            Collective::Gather { root } => {
                let parts = on_root(&input, size, &me, *root);
                ("gather", format!("{input}, {parts}{}", dst(*root)))
            }
            Collective::Scatter { root } => {
                let parts = on_root(&output, size, &me, *root);
                ("scatter", format!("{output}, {parts}{}", src(*root)))
            }
            Collective::Barrier => ("barrier", String::new()),
            Collective::MonitoredBarrier { wait_all_ranks } => {
                let all = if *wait_all_ranks { "wait_all_ranks=True" } else { "" };
                ("monitored_barrier", all.to_owned())
            }
        };
        let more = format!("{group}{asynchronous}");
        let arguments = match arguments.is_empty() {
            true => more.trim_start_matches(", ").to_owned(),
            false => format!("{arguments}{more}"),
        };
        Ok(format!("dist.{name}({arguments})"))
    }

    /// `dist.P2POp(dist.isend, x, group_peer=1)`.
    fn p2p_op(&mut self, rank: GlobalRank, call: &Call) -> Result<String, &'static str> {
        let (name, peer, tensor, tag) = self.message(rank, call)?;
        let group = self.group(call.group());
        let peer = peer.replace("group_dst", "group_peer").replace("group_src", "group_peer");
        Ok(format!("dist.P2POp(dist.i{name}, {tensor}{peer}{group}{tag})"))
    }

    /// The name of a message's function, and its arguments: peer, tensor and tag.
    fn message(
        &mut self,
        rank: GlobalRank,
        call: &Call,
    ) -> Result<(&'static str, String, String, String), &'static str> {
        let group = self.plan.group(call.group());
        let size = group.map_or(0, |group| group.size());
        let own = group.and_then(|group| group.group_rank(rank)).unwrap_or(GroupRank(0));
        let (name, peer, tensor, tag) = match call {
            Call::Send { peer, tensor, tag, .. } => ("send", Some(*peer), *tensor, *tag),
            Call::Recv { peer, tensor, tag, .. } => ("recv", *peer, *tensor, *tag),
            Call::Collective { .. } => return Err("collectives that are made together"),
        };
        let side = if name == "send" { "group_dst" } else { "group_src" };
        let me = self.own_rank(call.group());
        // Neighbours are written as such: all ranks of a ring or a pipeline say the same then.
        let peer = match peer {
            None => String::new(),
            Some(peer) if peer.0 == own.0 + 1 => format!(", {side}={me} + 1"),
            Some(peer) if peer.0 + 1 == own.0 => format!(", {side}={me} - 1"),
            Some(peer) if size > 2 && own.0 + 1 == size && peer.0 == 0 => {
                format!(", {side}=0")
            }
            Some(peer) => format!(", {side}={}", peer.0),
        };
        let tag = if tag == 0 { String::new() } else { format!(", tag={tag}") };
        let tensor = self.tensor(tensor);
        Ok((name, peer, tensor, tag))
    }

    /// A rank's place in a group.
    fn own_rank(&self, group: GroupId) -> String {
        match self.families.name(group) {
            None => "rank".to_owned(),
            Some(name) => format!("dist.get_rank({name})"),
        }
    }

    /// `, group=tp`; nothing for the default group.
    fn group(&self, group: GroupId) -> String {
        self.families.name(group).map(|name| format!(", group={name}")).unwrap_or_default()
    }

    fn tensor(&mut self, id: TensorId) -> String {
        let Some(tensor) = self.plan.tensor(id) else { return "None".to_owned() };
        let name = format!("{}_{}", tensor.dtype.name(), tensor.numel);
        self.tensors.entry(name.clone()).or_insert(id);
        name
    }
}

/// Takes out the works that are waited for before the call that comes now.
fn due(open: &mut Vec<(u32, u32)>) -> Vec<u32> {
    let now = open.iter().filter(|(_, calls)| *calls == 0).map(|(op, _)| *op).collect();
    open.retain_mut(|(_, calls)| {
        let later = *calls > 0;
        *calls = calls.saturating_sub(1);
        later
    });
    now
}

/// The statements that wait for operations, each behind what was computed beside it.
fn waits(mut ops: Vec<u32>, works: &mut [Option<(u32, bool)>], gap: &mut Gap) -> Vec<Statement> {
    ops.sort_by_key(|op| gap.beside(*op));
    let wait = |op: u32| {
        let work = free(works, op)?;
        let beside_ns = gap.beside(op);
        gap.over.retain(|of| *of != op);
        Some(waited(work, gap.take(beside_ns)))
    };
    ops.into_iter().filter_map(wait).collect()
}

/// The statement that waits for a work, or for all of a list, behind `ns` nanoseconds of computing.
fn waited((name, list): (String, bool), ns: u64) -> Statement {
    let text = match list {
        true => format!("for work in {name}:\n    work.wait()"),
        false => format!("{name}.wait()"),
    };
    Statement { does: Does::Line(text), at: None, ns }
}

/// Gives a work the first free name.
fn take(works: &mut Vec<Option<(u32, bool)>>, work: (u32, bool)) -> String {
    let at = works.iter().position(Option::is_none).unwrap_or(works.len());
    match works.get_mut(at) {
        Some(slot) => *slot = Some(work),
        None => works.push(Some(work)),
    }
    format!("w{at}")
}

/// The name of the work of an operation, which is free from now on, and whether it is a list of works.
fn free(works: &mut [Option<(u32, bool)>], op: u32) -> Option<(String, bool)> {
    let at = works.iter().position(|work| work.is_some_and(|(of, _)| of == op))?;
    let (_, list) = works.get_mut(at)?.take()?;
    Some((format!("w{at}"), list))
}

/// The list of a root, which the others do not pass.
fn on_root(tensor: &str, size: u32, me: &str, root: GroupRank) -> String {
    format!("[{tensor}] * {size} if {me} == {} else None", root.0)
}

fn src(root: GroupRank) -> String {
    format!(", group_src={}", root.0)
}

fn dst(root: GroupRank) -> String {
    format!(", group_dst={}", root.0)
}

fn reduction(op: &ReduceOp) -> Result<String, &'static str> {
    Ok(match op {
        ReduceOp::Sum => String::new(),
        ReduceOp::PremulSum(_) => return Err("a sum of multiples"),
        op => format!(", op=dist.ReduceOp.{}", op.to_string().to_uppercase()),
    })
}

/// A text as a literal of Python's.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
