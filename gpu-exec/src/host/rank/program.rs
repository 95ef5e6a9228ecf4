//! A rank's program: its operations in order, on the process's main thread.

use super::super::control::Setup;
use super::super::wiring::{ChannelKey, bell_offset};
use super::clerk::{Clerk, Note};
use super::collective::{CollectiveCall, GroupLink, Peer, fingerprint};
use super::memory::Memory;
use super::p2p::{End, P2pCall, P2pChannel, PointToPoint, With};
use super::stream::{Queued, Stream};
use super::works::Works;
use crate::clock;
use crate::shm::{Doorbell, Ring, Segment};
use lockstep_core::group::{GroupId, SequenceNumbers};
use lockstep_core::plan::{Action, Call, Fill, Plan, Tensor, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::combine;
use lockstep_core::trace::TensorValue;
use lockstep_core::value::initial_bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A program that is ready to run: tensors filled, channels connected.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) plan: Arc<Plan>,
    /// Per group, in nanoseconds.
    pub(super) timeouts_ns: Vec<u64>,
    rank: GlobalRank,
    tensors: BTreeMap<TensorId, Memory>,
    /// Per group that the rank is a member of and calls collectives on.
    streams: BTreeMap<GroupId, Stream>,
    p2p: PointToPoint,
}

impl Program {
    /// Makes the rank's tensors and connects its channels.
    pub(super) fn prepare(
        plan: Plan,
        setup: &Setup,
        segment: Arc<Segment>,
    ) -> Result<Program, String> {
        let rank = setup.rank;
        let program = plan.program(rank).ok_or("the plan has no program for this rank")?;
        let tensors = program
            .tensors()
            .into_iter()
            .filter_map(|id| Some((id, Memory::new(made(plan.tensor(id)?, rank)))))
            .collect();
        let timeout = |ms: u64| setup.timeout_ns.unwrap_or(ms.saturating_mul(1_000_000));
        let timeouts_ns = plan.groups.iter().map(|group| timeout(group.timeout_ms())).collect();
        let wires = Wires { plan: &plan, setup, segment };
        let streams = wires.streams();
        let p2p = wires.point_to_point();
        Ok(Program { plan: Arc::new(plan), timeouts_ns, rank, tensors, streams, p2p })
    }

    /// Runs all operations, and reports what the tensors hold at the end.
    pub(super) fn run(mut self, clerk: Arc<Clerk>) -> Result<(), String> {
        let plan = self.plan.clone();
        let ops = plan.program(self.rank).map_or(&[][..], |program| &program.ops);
        let works = Arc::new(Works::default());
        let mut numbers = Numbers::default();
        // The works of each operation: neighbours, since works are numbered in call order.
        let mut works_of: Vec<Range<u32>> = Vec::with_capacity(ops.len());
        for (index, operation) in ops.iter().enumerate() {
            let op = index as u32;
            clerk.note(Note::OpBegan { op });
            let first = numbers.works;
            let works_at = |op: u32| works_of.get(op as usize).cloned().unwrap_or_default();
            match &operation.action {
                action @ (Action::Call { .. } | Action::Coalesced { .. }) => {
                    self.make_calls(op, action, &mut numbers, &clerk, &works)?;
                }
                Action::Wait { op, timeout_ms } => {
                    if let Some(timeout_ms) = timeout_ms {
                        let timeout_ns = timeout_ms.saturating_mul(1_000_000);
                        works_at(*op).for_each(|work| clerk.limit(work, timeout_ns));
                    }
                    works_at(*op).for_each(|work| works.wait(work));
                }
                Action::Query { op: asked, what } => {
                    let completed = works_at(*asked).all(|work| works.is_completed(work));
                    clerk.note(Note::Answered { op, answer: what.answer(completed) });
                }
                action @ Action::Copy { .. } => self.copy(&plan, action),
                // There is no device: the streams that are left are those of communication.
                Action::Synchronize => (0..first).for_each(|work| works.wait(work)),
                Action::Compute { duration_ns, .. } => compute(*duration_ns),
                Action::Sleep { duration_ns, .. } => {
                    std::thread::sleep(Duration::from_nanos(*duration_ns));
                }
                Action::Die { how } => return Err(how.clone()),
            }
            works_of.push(first..numbers.works);
            clerk.note(Note::OpEnded { op });
        }
        // A program that does not wait for its calls still has them completed before it ends.
        (0..numbers.works).for_each(|work| works.wait(work));
        for (&tensor, memory) in &self.tensors {
            let value = TensorValue::of(&memory.lock());
            clerk.note(Note::Result { tensor, value });
        }
        clerk.note(Note::Finished);
        Ok(())
    }

    /// A step among the rank's own tensors.
    fn copy(&self, plan: &Plan, action: &Action) {
        let Action::Copy { from, from_offset, into, into_offset, count, reduce, .. } = action
        else {
            return;
        };
        let memories = (self.tensors.get(from), self.tensors.get(into), plan.tensor(*from));
        let (Some(source), Some(target), Some(tensor)) = memories else { return };
        let size = tensor.dtype.size_bytes();
        let part = |offset: u64| (offset * size) as usize..((offset + count) * size) as usize;
        let read = source.lock().get(part(*from_offset)).map(<[u8]>::to_vec);
        let mut target = target.lock();
        match (target.get_mut(part(*into_offset)), read, reduce) {
            (Some(into), Some(read), Some(op)) => combine(tensor.dtype, *op, into, &read),
            (Some(into), Some(read), None) => into.copy_from_slice(&read),
            _ => {}
        }
    }

    /// Makes an operation's calls: all are on their way before one is waited for.
    fn make_calls(
        &mut self,
        op: u32,
        action: &Action,
        numbers: &mut Numbers,
        clerk: &Arc<Clerk>,
        works: &Arc<Works>,
    ) -> Result<(), String> {
        let (plan, calls) = (self.plan.clone(), action.calls());
        let first = numbers.works;
        for (part, call) in (0..).zip(calls) {
            let work = numbers.works;
            numbers.works += 1;
            let group = call.group();
            let timeout_ns = self.timeouts_ns.get(group.index()).copied();
            let timeout_ns = timeout_ns.ok_or("a group that the plan has not")?;
            if call.is_p2p() {
                let seq = numbers.p2p.next(group);
                let call = self.p2p_call(call, work)?;
                clerk.scheduled(work, op, part, seq, timeout_ns);
                self.p2p.post(call, clerk, works)?;
                continue;
            }
            let seq = numbers.collectives.next(group);
            let memory = |id| self.tensors.get(&id).cloned();
            let call = CollectiveCall::of(&plan, self.rank, call, memory)?
                .ok_or("a collective that is none")?;
            clerk.scheduled(work, op, part, seq, timeout_ns);
            let stream = self.streams.get_mut(&group).ok_or("a group without a stream")?;
            let queued = Queued { call, work, seq };
            match action {
                // One that the program waits for needs no other thread.
                Action::Call { async_op: false, .. } => stream.run(queued, clerk, works)?,
                _ => stream.queue(queued, clerk, works)?,
            }
        }
        if !action.is_async() {
            (first..numbers.works).for_each(|work| works.wait(work));
        }
        Ok(())
    }

    fn p2p_call(&self, call: &Call, work: u32) -> Result<P2pCall, String> {
        let me = self.plan.group(call.group()).and_then(|members| members.group_rank(self.rank));
        let me = me.ok_or("a group that the rank is no member of")?;
        let (with, tensor) = match *call {
            Call::Send { group, peer, tensor, tag } => {
                let key = ChannelKey { group, from: me, to: peer, tag: Some(tag) };
                (With::One(key), tensor)
            }
            Call::Recv { group, peer: Some(peer), tensor, tag } => {
                let key = ChannelKey { group, from: peer, to: me, tag: Some(tag) };
                (With::One(key), tensor)
            }
            Call::Recv { group, peer: None, tensor, tag } => (With::Anyone { group, tag }, tensor),
            Call::Collective { .. } => return Err("neither a send nor a receive".to_owned()),
        };
        let shape = self.plan.tensor(tensor).ok_or("a tensor that the plan has not")?;
        let memory = self.tensors.get(&tensor).ok_or("a tensor that was not made")?;
        Ok(P2pCall {
            with,
            tensor: memory.slice(0, shape.bytes())?,
            fingerprint: fingerprint(&(shape.dtype, shape.numel)),
            work,
            posted_ns: clock::now_ns(),
        })
    }
}

/// What a program's calls are numbered with.
#[derive(Debug, Default)]
struct Numbers {
    /// Calls made so far.
    works: u32,
    collectives: SequenceNumbers,
    p2p: SequenceNumbers,
}

/// A tensor's bytes as the rank makes them. Zeros come from the kernel, page by page as they are
/// touched.
fn made(tensor: &Tensor, rank: GlobalRank) -> Vec<u8> {
    match tensor.fill {
        Fill::Zeros => vec![0; tensor.bytes() as usize],
        _ => initial_bytes(tensor, rank),
    }
}

/// Keeps the core busy with arithmetic until the time has passed.
fn compute(duration_ns: u64) {
    let started = clock::now_ns();
    let mut x = 1.0f64;
    while clock::now_ns().saturating_sub(started) < duration_ns {
        for _ in 0..512 {
            x = std::hint::black_box(x) * 0.999_999 + 0.000_001;
        }
    }
}

/// What is needed to connect a rank.
struct Wires<'a> {
    plan: &'a Plan,
    setup: &'a Setup,
    segment: Arc<Segment>,
}

impl Wires<'_> {
    fn bell(&self, first: usize, member: u32) -> Doorbell {
        Doorbell::at(self.segment.clone(), bell_offset(first, member))
    }

    fn ring(&self, offset: usize) -> Ring {
        Ring::at(self.segment.clone(), offset, self.setup.wiring.ring_bytes)
    }

    fn me(&self, group: GroupId) -> Option<GroupRank> {
        self.plan.group(group)?.group_rank(self.setup.rank)
    }

    fn streams(&self) -> BTreeMap<GroupId, Stream> {
        let wiring = &self.setup.wiring;
        let mut links = BTreeMap::new();
        for (index, group) in self.plan.groups.iter().enumerate() {
            let id = GroupId(index as u32);
            let Some(me) = group.group_rank(self.setup.rank) else { continue };
            let Some(&first) = wiring.bells.get(index) else { continue };
            let peers = (0u32..)
                .zip(group.ranks())
                .map(|(member, &rank)| {
                    let bell = self.bell(first, member);
                    Peer { rank, bell, to: None, from: None, last: [None; 2] }
                })
                .collect();
            let bell = self.bell(first, me.0);
            links.insert(id, GroupLink::new(me, bell, peers, self.setup.patience));
        }
        for channel in wiring.channels.iter().filter(|channel| channel.key.tag.is_none()) {
            let Some(link) = links.get_mut(&channel.key.group) else { continue };
            let ring = self.ring(channel.offset);
            let (from, to) = (channel.key.from, channel.key.to);
            if from == link.me {
                if let Some(peer) = link.peers.get_mut(to.index()) {
                    peer.to = Some(ring.sender());
                }
            } else if let Some(peer) = link.peers.get_mut(from.index()) {
                peer.from = Some(ring.receiver());
            }
        }
        links.into_iter().map(|(id, link)| (id, Stream::new(link))).collect()
    }

    fn point_to_point(&self) -> PointToPoint {
        let wiring = &self.setup.wiring;
        let connect = |channel: &super::super::wiring::Channel| {
            let key = channel.key;
            key.tag?;
            let sends = self.me(key.group)? == key.from;
            let other = if sends { key.to } else { key.from };
            let peer = self.plan.group(key.group)?.global_rank(other)?;
            let ring = self.ring(channel.offset);
            let end =
                if sends { End::Sends(ring.sender()) } else { End::Receives(ring.receiver()) };
            let bell = self.bell(wiring.p2p_bells, peer.0);
            let queue = VecDeque::new();
            Some((key, P2pChannel { peer, bell, end, calls: 0, queue, current: None }))
        };
        let channels = wiring.channels.iter().filter_map(connect).collect();
        let bell = self.bell(wiring.p2p_bells, self.setup.rank.0);
        PointToPoint::new(bell, channels, self.setup.patience)
    }
}
