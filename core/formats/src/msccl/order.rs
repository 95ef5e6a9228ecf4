//! The order of a program's actions: which send meets which receive, and which step waits for
//! which; shared use of memory is [`super::races`]' matter.
//!
//! A step that receives and sends is two actions here.

use super::memory::{Memory, words};
use super::program::{Op, Program, Step};
use super::{At, MscclError};
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Slice};
use std::collections::{BTreeMap, VecDeque};

/// Chunks that all actions together touch.
const MAX_TOUCHED: u64 = 1 << 23;

/// An action of the program, or a copy before or after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) gpu: u32,
    pub(super) action: Action,
    /// The place in the file; `None` for our copies.
    pub(super) at: Option<At>,
    /// The message that it sends or receives.
    pub(super) message: Option<u32>,
    /// Its block, counted over all GPUs, and its place among the block's actions, counted from 1.
    pub(super) block: u32,
    pub(super) place: u32,
}

/// The reason that one action comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The block runs its steps in order, or a dependency says so.
    Said,
    /// The block's order where it hardly matters: a send need not have come to its receiver before
    /// the block receives, and copies inside a rank may go together.
    Hinted,
    /// They use the same memory.
    Memory,
}

/// `to` comes after `from`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) why: Why,
}

/// The actions of a program and their order.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// The sending and the receiving action of every message.
    pub(super) messages: Vec<(u32, u32)>,
    pub(super) memory: Memory,
}

impl Order {
    /// Orders the actions of a program.
    pub(super) fn of(program: &Program, memory: Memory) -> Result<Order, MscclError> {
        let mut order =
            Order { nodes: Vec::new(), edges: Vec::new(), messages: Vec::new(), memory };
        let ends = order.add_steps(program)?;
        order.join_messages(program)?;
        let waits = order.add_dependencies(program, &ends)?;
        let sequence = order.sequence(&waits)?;
        order.add_memory(program, &waits, &sequence)?;
        Ok(order)
    }

    /// Adds every step's actions; returns per GPU and block, for every step, the last action up to
    /// it.
    fn add_steps(&mut self, program: &Program) -> Result<Vec<Vec<Vec<Option<u32>>>>, MscclError> {
        let mut ends = Vec::with_capacity(program.gpus.len());
        let (mut blocks, mut touched) = (0, 0u64);
        for (gpu, id) in program.gpus.iter().zip(0..) {
            let mut of_gpu = Vec::with_capacity(gpu.blocks.len());
            for (block, tb) in gpu.blocks.iter().zip(0..) {
                let mut place = 0;
                let mut of_block = Vec::with_capacity(block.steps.len());
                // Scratch for sums that are kept nowhere; two, since one is received while the other is sent.
                let mut between: [Option<Slice>; 2] = [None, None];
                let kept_nowhere = block.steps.iter().filter(|s| s.op == Op::ReceiveReduceSend);
                let longest = kept_nowhere.map(|step| step.count).max();
                for (step, number) in block.steps.iter().zip(0..) {
                    let at = At { gpu: id, tb, step: number };
                    touched += 3 * u64::from(step.count);
                    if touched > MAX_TOUCHED {
                        return Err(MscclError::step(at, "the steps up to here move too much"));
                    }
                    if step.op == Op::ReceiveReduceSend {
                        between.swap(0, 1);
                        if between[0].is_none() {
                            between[0] = longest.map(|chunks| self.memory.take(chunks));
                        }
                    }
                    let peers = (block.send.map(GroupRank), block.recv.map(GroupRank));
                    let actions = self.actions(at, step, peers, between[0])?;
                    for action in actions.into_iter().flatten() {
                        place += 1;
                        self.nodes.push(Node {
                            gpu: id,
                            action,
                            at: Some(at),
                            message: None,
                            block: blocks,
                            place,
                        });
                        if place > 1 {
                            self.follow();
                        }
                    }
                    of_block.push((place > 0).then(|| self.nodes.len() as u32 - 1));
                }
                blocks += 1;
                of_gpu.push(of_block);
            }
            ends.push(of_gpu);
        }
        Ok(ends)
    }

    /// The newest action comes after the one before it.
    fn follow(&mut self) {
        let to = self.nodes.len() as u32 - 1;
        let (from, next) = (self.nodes[to as usize - 1].action, self.nodes[to as usize].action);
        let receives = matches!(next, Action::Receive { .. } | Action::ReceiveReduce { .. });
        let inside = |action| matches!(action, Action::Copy { .. } | Action::Reduce { .. });
        let why = match from {
            Action::Send { .. } if receives => Why::Hinted,
            _ if inside(from) && inside(next) => Why::Hinted,
            _ => Why::Said,
        };
        self.edges.push(Edge { from: to - 1, to, why });
    }

    /// The one or two actions of a step.
    fn actions(
        &self,
        at: At,
        step: &Step,
        (to, from): (Option<GroupRank>, Option<GroupRank>),
        between: Option<Slice>,
    ) -> Result<[Option<Action>; 2], MscclError> {
        let src = || self.memory.slice(at, step.src, step.count);
        let dst = || self.memory.slice(at, step.dst, step.count);
        let kind = step.op.name();
        let both = !matches!(step.op, Op::Nop | Op::Send | Op::Receive | Op::ReceiveCopySend)
            && step.op != Op::ReceiveReduceSend;
        if both && src()? != dst()? && src()?.overlaps(dst()?) {
            return Err(MscclError::step(at, "src and dst overlap in part"));
        }
        let to = || {
            to.ok_or_else(|| {
                MscclError::step(at, format!("{kind} sends, but the tb has no send peer"))
            })
        };
        let from = || {
            let why = || format!("{kind} receives, but the tb has no recv peer");
            from.ok_or_else(|| MscclError::step(at, why()))
        };
        let send = |from| Ok::<_, MscclError>(Some(Action::Send { peer: to()?, from }));
        let reduce = |into| {
            let (peer, local) = (from()?, src()?);
            Ok::<_, MscclError>(Some(Action::ReceiveReduce { peer, local, into }))
        };
        Ok(match step.op {
            Op::Nop => [None, None],
            Op::Send => [send(src()?)?, None],
            Op::Receive => [Some(Action::Receive { peer: from()?, into: dst()? }), None],
            Op::ReceiveCopySend => {
                [Some(Action::Receive { peer: from()?, into: dst()? }), send(dst()?)?]
            }
            Op::ReceiveReduceSend => {
                let between = between.map(|slice| Slice { chunks: step.count, ..slice });
                let Some(between) = between else { return Ok([None, None]) };
                [reduce(between)?, send(between)?]
            }
            Op::ReceiveReduceCopy => [reduce(dst()?)?, None],
            Op::ReceiveReduceCopySend => [reduce(dst()?)?, send(dst()?)?],
            Op::Copy => {
                let (from, into) = (src()?, dst()?);
                // A copy onto itself moves nothing: in-place programs of tools have them.
                [(from != into).then_some(Action::Copy { from, into }), None]
            }
            Op::Reduce => {
                let (from, into) = (src()?, dst()?);
                [Some(Action::Reduce { local: into, from, into }), None]
            }
        })
    }

    /// The n-th send of a connection meets its n-th receive.
    fn join_messages(&mut self, program: &Program) -> Result<(), MscclError> {
        // By sender, receiver and channel: the block at each end, and its actions.
        type End = (Option<(u32, At)>, Vec<u32>);
        let mut connections: BTreeMap<(u32, u32, u32), [End; 2]> = BTreeMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(at) = node.at else { continue };
            let block = &program.gpus[at.gpu as usize].blocks[at.tb as usize];
            let (side, key) = match node.action {
                Action::Send { peer, .. } => (0, (at.gpu, peer.0, block.channel)),
                Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => {
                    (1, (peer.0, at.gpu, block.channel))
                }
                Action::Copy { .. } | Action::Reduce { .. } => continue,
            };
            let (user, actions) = &mut connections.entry(key).or_default()[side];
            match *user {
                Some((tb, other)) if tb != at.tb => {
                    let does = ["sends to", "receives from"][side];
                    let peer = [key.1, key.0][side];
                    return Err(MscclError::step(
                        at,
                        format!(
                            "{does} gpu {peer} on channel {}, as tb {}, step {} does already: a \
                             channel to a peer belongs to one thread block",
                            key.2, other.tb, other.step
                        ),
                    ));
                }
                _ => *user = Some((at.tb, at)),
            }
            actions.push(number as u32);
        }
        for ((from, to, channel), [(_, sends), (_, receives)]) in &connections {
            for pair in 0..sends.len().max(receives.len()) {
                self.join(sends.get(pair), receives.get(pair), (*from, *to, *channel))?;
            }
        }
        Ok(())
    }

    fn join(
        &mut self,
        send: Option<&u32>,
        receive: Option<&u32>,
        (from, to, channel): (u32, u32, u32),
    ) -> Result<(), MscclError> {
        let at = |node: u32| self.nodes[node as usize].at.unwrap_or(At { gpu: 0, tb: 0, step: 0 });
        let chunks = |node: u32| {
            let action = self.nodes[node as usize].action;
            action.slices().next().map_or(0, |slice| slice.chunks)
        };
        let (send, receive) = match (send, receive) {
            (Some(send), Some(receive)) => (*send, *receive),
            (Some(send), None) => {
                let why =
                    format!("gpu {to} never receives what is sent to it on channel {channel}");
                return Err(MscclError::step(at(*send), why));
            }
            (_, receive) => {
                let why = format!("gpu {from} never sends what is awaited on channel {channel}");
                return Err(MscclError::step(
                    receive.map_or(At { gpu: to, tb: 0, step: 0 }, |r| at(*r)),
                    why,
                ));
            }
        };
        if chunks(send) != chunks(receive) {
            return Err(MscclError::step(
                at(send),
                format!(
                    "sends {}, but {}, which gets it, receives {}",
                    words(chunks(send)),
                    at(receive),
                    words(chunks(receive))
                ),
            ));
        }
        let message = self.messages.len() as u32;
        self.messages.push((send, receive));
        self.nodes[send as usize].message = Some(message);
        self.nodes[receive as usize].message = Some(message);
        Ok(())
    }

    /// Adds `depid` and `deps`; returns for every action those of other blocks that it waits for.
    fn add_dependencies(
        &mut self,
        program: &Program,
        ends: &[Vec<Vec<Option<u32>>>],
    ) -> Result<Vec<Vec<u32>>, MscclError> {
        let mut waits = vec![Vec::new(); self.nodes.len()];
        let mut next = 0;
        for (gpu, id) in program.gpus.iter().zip(0..) {
            for (block, tb) in gpu.blocks.iter().zip(0..) {
                let mut awaited: Vec<u32> = Vec::new();
                for (step, number) in block.steps.iter().zip(0..) {
                    let at = At { gpu: id, tb, step: number };
                    if let Some(after) = step.after
                        && after.0 != tb
                    {
                        awaited.extend(awaited_action(program, ends, at, after)?);
                    } else if let Some((_, after)) = step.after
                        && after >= number
                    {
                        let circle = format!("it waits for step {after} of its own tb");
                        return Err(MscclError::Cycle { at, circle });
                    }
                    // The next step waits for everything that a nop waits for.
                    while self.nodes.get(next).is_some_and(|node| node.at == Some(at)) {
                        waits[next].append(&mut awaited);
                        next += 1;
                    }
                }
            }
        }
        for (to, from) in waits.iter().enumerate() {
            let to = to as u32;
            self.edges.extend(from.iter().map(|from| Edge { from: *from, to, why: Why::Said }));
        }
        for (send, receive) in &self.messages {
            waits[*receive as usize].push(*send);
        }
        Ok(waits)
    }

    /// An order of all actions in which each comes after those that it waits for.
    fn sequence(&self, waits: &[Vec<u32>]) -> Result<Vec<u32>, MscclError> {
        let mut left: Vec<u32> = waits.iter().map(|waits| waits.len() as u32).collect();
        let mut awaited_by: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (node, waits) in waits.iter().enumerate() {
            for from in waits {
                awaited_by[*from as usize].push(node as u32);
            }
        }
        let follows = |node: usize| self.nodes[node].place > 1;
        for (node, left) in left.iter_mut().enumerate() {
            *left += u32::from(follows(node));
        }
        let ready = left.iter().enumerate().filter(|(_, left)| **left == 0);
        let mut ready: VecDeque<u32> = ready.map(|(node, _)| node as u32).collect();
        let mut sequence = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_front() {
            sequence.push(node);
            let next = node as usize + 1;
            let next = (next < self.nodes.len() && follows(next)).then_some(next as u32);
            for after in awaited_by[node as usize].iter().copied().chain(next) {
                left[after as usize] -= 1;
                if left[after as usize] == 0 {
                    ready.push_back(after);
                }
            }
        }
        match left.iter().position(|left| *left > 0) {
            None => Ok(sequence),
            Some(stuck) => Err(self.circle(stuck as u32, waits, &left)),
        }
    }

    /// The circle of actions that one which never gets ready is in or behind.
    fn circle(&self, stuck: u32, waits: &[Vec<u32>], left: &[u32]) -> MscclError {
        let before = |node: u32| {
            let previous = (self.nodes[node as usize].place > 1).then(|| node - 1);
            let mut waits = waits[node as usize].iter().copied().chain(previous);
            waits.find(|from| left[*from as usize] > 0)
        };
        let (mut path, mut seen, mut node) = (Vec::new(), BTreeMap::new(), stuck);
        while let std::collections::btree_map::Entry::Vacant(place) = seen.entry(node) {
            place.insert(path.len());
            path.push(node);
            node = before(node).unwrap_or(node);
        }
        let circle = path.split_off(seen.get(&node).copied().unwrap_or(0));
        // It begins at the first step of the file that is on it.
        let mut steps: Vec<At> = circle.iter().filter_map(|n| self.nodes[*n as usize].at).collect();
        steps.dedup();
        let first =
            steps.iter().enumerate().min_by_key(|(_, at)| **at).map_or(0, |(first, _)| first);
        steps.rotate_left(first);
        let at = steps.first().copied().unwrap_or(At { gpu: 0, tb: 0, step: 0 });
        let mut words: Vec<String> = steps.iter().take(6).map(At::to_string).collect();
        if steps.len() > 6 {
            words.push("…".to_owned());
        }
        words.push("the first again".to_owned());
        MscclError::Cycle { at, circle: words.join(", which waits for ") }
    }
}

/// The action that a dependency names: a waiting block looks at the last flag that the other has
/// raised, so a step that raises none is waited for through the next that does, and a nop never
/// raises one. `None` when there is nothing to wait for.
fn awaited_action(
    program: &Program,
    ends: &[Vec<Vec<Option<u32>>>],
    at: At,
    (tb, step): (u32, u32),
) -> Result<Option<u32>, MscclError> {
    let Some(block) = program.gpus[at.gpu as usize].blocks.get(tb as usize) else {
        return Err(MscclError::step(
            at,
            format!("waits for tb {tb}, which this gpu does not have"),
        ));
    };
    if step as usize >= block.steps.len() {
        let why = format!("waits for step {step} of tb {tb}, which has {}", block.steps.len());
        return Err(MscclError::step(at, why));
    }
    let ends = &ends[at.gpu as usize][tb as usize];
    let later = block.steps.iter().zip(ends).skip(step as usize);
    let raised = later.into_iter().find(|(step, _)| step.flagged && step.op != Op::Nop);
    raised.map(|(_, end)| *end).ok_or_else(|| {
        let why = format!(
            "waits for ever for step {step} of tb {tb}: neither it nor a later step of that tb has \
             hasdep=\"1\""
        );
        MscclError::step(at, why)
    })
}
