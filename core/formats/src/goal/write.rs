//! A plan as a GOAL file: its collectives as the messages of their schedules.
//!
//! Each step of a schedule requires all of the step before, as a rank's steps do here. A step's local work
//! (copies, reductions) takes no time: GOAL has no words for it, and the simulators that read it charge it to
//! the message. Computing and sleeping are both `calc`.

use super::GoalWriteError;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Call, Plan, SignalKind, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{Action as Step, Layout, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The whole file. It grows with all messages of all ranks; a [`GoalWriter`] gives it rank by rank.
///
/// # Errors
/// The plan has something that GOAL cannot express.
pub fn write(plan: &Plan) -> Result<String, GoalWriteError> {
    let writer = GoalWriter::new(plan);
    let mut text = writer.header();
    for rank in (0..plan.world_size).map(GlobalRank) {
        text.push_str(&writer.rank(rank)?);
    }
    Ok(text)
}

/// Writes a plan piece by piece.
#[derive(Clone, Debug)]
pub struct GoalWriter<'a> {
    plan: &'a Plan,
    tags: Tags,
}

impl<'a> GoalWriter<'a> {
    /// A writer of that plan.
    pub fn new(plan: &'a Plan) -> GoalWriter<'a> {
        GoalWriter { plan, tags: Tags::of(plan) }
    }

    /// The lines before the ranks'.
    pub fn header(&self) -> String {
        // A name can hold what would end the comment.
        let name = self.plan.name.replace(['\n', '\r', '*', '/'], " ");
        format!("// {name}\nnum_ranks {}\n\n", self.plan.world_size)
    }

    /// One rank's block.
    ///
    /// # Errors
    /// The plan has no such rank, or something that GOAL cannot express.
    pub fn rank(&self, rank: GlobalRank) -> Result<String, GoalWriteError> {
        let program = self.plan.program(rank).ok_or(GoalWriteError::NoRank(rank))?;
        let mut writer = Writer::of(self.plan, &self.tags, rank);
        for (index, op) in program.ops.iter().enumerate() {
            writer.op(index, &op.action)?;
        }
        writer.text.push_str("}\n\n");
        Ok(writer.text)
    }
}

/// One rank's block, as it grows. Operations are known by their labels' numbers.
struct Writer<'a> {
    plan: &'a Plan,
    rank: GlobalRank,
    text: String,
    labels: u32,
    /// The operations that the program's next one requires.
    point: Vec<u32>,
    /// The operations that the next collective of a group requires.
    streams: BTreeMap<GroupId, Vec<u32>>,
    /// Per operation that goes on in the background: the labels whose end is its end.
    works: BTreeMap<usize, Vec<u32>>,
    tags: &'a Tags,
    /// Collective messages so far: by group, peer, and whether they were sent.
    sent: BTreeMap<(GroupId, GlobalRank, bool), u32>,
}

/// Tags that separate messages that are matched separately: the collectives of a group, and the messages of
/// each group and tag. A collective's messages are numbered, too.
#[derive(Clone, Debug)]
struct Tags {
    classes: BTreeMap<(GroupId, u32), u32>,
    count: u32,
}

impl Tags {
    fn of(plan: &Plan) -> Tags {
        let calls = plan.programs.iter().flat_map(|program| &program.ops);
        let calls = calls.flat_map(|op| op.action.calls());
        let classes: BTreeSet<(GroupId, u32)> = calls
            .filter_map(|call| match call {
                Call::Send { group, tag, .. } | Call::Recv { group, tag, .. } => {
                    Some((*group, *tag))
                }
                Call::Collective { .. } => None,
            })
            .collect();
        let groups = plan.groups.len() as u32;
        let classes: BTreeMap<_, _> = classes.into_iter().zip(groups..).collect();
        Tags { count: groups + classes.len() as u32, classes }
    }

    fn message(&self, group: GroupId, tag: u32) -> u32 {
        self.classes.get(&(group, tag)).copied().unwrap_or(0)
    }
}

impl<'a> Writer<'a> {
    fn of(plan: &'a Plan, tags: &'a Tags, rank: GlobalRank) -> Writer<'a> {
        Writer {
            plan,
            rank,
            text: format!("rank {rank} {{\n"),
            labels: 0,
            point: Vec::new(),
            streams: BTreeMap::new(),
            works: BTreeMap::new(),
            tags,
            sent: BTreeMap::new(),
        }
    }

    /// The tag of the next message of a group's collectives to or from a peer.
    fn next_tag(&mut self, group: GroupId, peer: GlobalRank, sends: bool) -> Option<u32> {
        let number = self.sent.entry((group, peer, sends)).or_default();
        let tag = number.checked_mul(self.tags.count)?.checked_add(group.0)?;
        *number += 1;
        Some(tag)
    }

    fn op(&mut self, index: usize, action: &Action) -> Result<(), GoalWriteError> {
        match action {
            Action::Call { call, async_op } => {
                let ended = self.call(index, call)?;
                self.ended(index, ended, *async_op);
            }
            Action::Coalesced { calls, async_op } => {
                let mut all = Vec::new();
                for call in calls {
                    all.extend(self.call(index, call)?);
                }
                let all = self.join(all);
                self.ended(index, all, *async_op);
            }
            Action::Wait { op, .. } => {
                let mut both = std::mem::take(&mut self.point);
                both.extend(self.works.get(&(*op as usize)).into_iter().flatten());
                both.sort_unstable();
                both.dedup();
                self.point = self.join(both);
            }
            Action::Signal(SignalKind::Stop { for_ms: None }) => {
                return Err(GoalWriteError::Stops { rank: self.rank, op: index });
            }
            Action::Compute { .. }
            | Action::Sleep { .. }
            | Action::Signal(SignalKind::Stop { .. }) => {
                let duration_ns = action.duration_ns().unwrap_or_default();
                let point = std::mem::take(&mut self.point);
                self.point = vec![self.line(&format!("calc {duration_ns}"), &point)];
            }
            // Operations that take no time, or that a rank without streams does not need.
            Action::Query { .. } | Action::Copy(_) | Action::Synchronize => {}
            Action::Die { .. } | Action::Signal(SignalKind::Kill | SignalKind::End(_)) => {
                return Err(GoalWriteError::Dies { rank: self.rank, op: index });
            }
        }
        Ok(())
    }

    fn ended(&mut self, index: usize, ended: Vec<u32>, async_op: bool) {
        if async_op {
            self.works.insert(index, ended);
        } else {
            self.point = ended;
        }
    }

    /// Writes a call; returns the labels whose end is its end.
    fn call(&mut self, index: usize, call: &Call) -> Result<Vec<u32>, GoalWriteError> {
        let bad =
            |why: &str| GoalWriteError::Call { rank: self.rank, op: index, why: why.to_owned() };
        let group = call.group();
        let members = self.plan.group(group).ok_or_else(|| bad("the plan has no such group"))?;
        let bytes = |id: TensorId| {
            let tensor = self.plan.tensor(id).ok_or_else(|| bad("the plan has no such tensor"))?;
            Ok::<u64, GoalWriteError>(tensor.bytes())
        };
        let global = |peer: GroupRank| {
            members.global_rank(peer).ok_or_else(|| bad("the group has no such peer"))
        };
        let (point, line) = (
            self.point.clone(),
            match call {
                Call::Collective { .. } => return self.collective(index, call),
                Call::Send { peer, tensor, tag, .. } => format!(
                    "send {}b to {} tag {}",
                    bytes(*tensor)?,
                    global(*peer)?,
                    self.tags.message(group, *tag)
                ),
                Call::Recv { peer, tensor, tag, .. } => {
                    let from = match peer {
                        Some(peer) => global(*peer)?.to_string(),
                        None => "-1".to_owned(),
                    };
                    let tag = self.tags.message(group, *tag);
                    format!("recv {}b from {from} tag {tag}", bytes(*tensor)?)
                }
            },
        );
        Ok(vec![self.line(&line, &point)])
    }

    fn collective(&mut self, index: usize, call: &Call) -> Result<Vec<u32>, GoalWriteError> {
        let (plan, rank) = (self.plan, self.rank);
        let bad = |why: String| GoalWriteError::Call { rank, op: index, why };
        let Call::Collective { group, count, splits, .. } = call else { return Ok(Vec::new()) };
        let (Some(signature), Some(members)) = (plan.signature(rank, call), plan.group(*group))
        else {
            return Err(bad(format!("{} cannot be carried out", call.name())));
        };
        let schedule = signature.schedule;
        if schedule.participants() > schedule.size() {
            let schedule = schedule.to_string();
            return Err(GoalWriteError::Switches { rank, op: index, schedule });
        }
        let me = members.group_rank(rank).unwrap_or(GroupRank(0));
        let size = signature.dtype.size_bytes();
        let layout = Layout::new(schedule.clone(), *count, size).with_splits(splits.clone());
        let bytes = |slice: Slice| layout.elements(me, slice).saturating_mul(size);
        let peer = |peer: GroupRank| {
            members.global_rank(peer).ok_or_else(|| bad("a peer outside the group".to_owned()))
        };
        let mut before = self.point.clone();
        before.extend(self.streams.get(group).into_iter().flatten());
        before.sort_unstable();
        before.dedup();
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            let mut ended = Vec::new();
            for action in &actions {
                let (verb, peer, slice, sends) = match *action {
                    Step::Send { peer: to, from } => ("send", peer(to)?, from, true),
                    Step::Receive { peer: from, into }
                    | Step::ReceiveReduce { peer: from, into, .. } => {
                        ("recv", peer(from)?, into, false)
                    }
                    Step::Copy { .. } | Step::Reduce { .. } => continue,
                };
                let tag = self.next_tag(*group, peer, sends);
                let tag = tag.ok_or(GoalWriteError::TooManyMessages { rank })?;
                let toward = if sends { "to" } else { "from" };
                let line = format!("{verb} {}b {toward} {peer} tag {tag}", bytes(slice));
                if before.len() > 1 {
                    before = self.join(before);
                }
                ended.push(self.line(&line, &before));
            }
            if !ended.is_empty() {
                before = ended;
            }
        }
        let ended = self.join(before);
        self.streams.insert(*group, ended.clone());
        Ok(ended)
    }

    /// One operation that ends when all of these have; the same if they are one or none.
    fn join(&mut self, operations: Vec<u32>) -> Vec<u32> {
        match operations.len() {
            0 | 1 => operations,
            _ => vec![self.line("calc 0", &operations)],
        }
    }

    /// Writes an operation and the labels that it requires; returns its own label's number.
    fn line(&mut self, operation: &str, requires: &[u32]) -> u32 {
        self.labels += 1;
        let label = self.labels;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "l{label}: {operation}");
        for before in requires {
            let _ = writeln!(self.text, "l{label} requires l{before}");
        }
        label
    }
}
