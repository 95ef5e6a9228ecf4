//! A rank's program on the host: its tensors in shared memory, its calls over channels, on the
//! process's main thread.

use super::call::{CollectiveCall, fingerprint};
use super::clerk::{Clerk, Job};
use super::collective::{GroupLink, Peer};
use super::failure::{RankFailure, cannot};
use super::gate::Gate;
use super::made::{Carried, Made};
use super::operations::{self, CarryOut, Context};
use super::p2p::{End, P2pCall, P2pChannel, PointToPoint, With};
use super::recent::Recent;
use super::recorder::Recording;
use super::stream::Stream;
use super::works::Works;
use crate::clock;
use crate::host::arena::{Arena, Memory};
use crate::host::control::Setup;
use crate::host::wiring::{ChannelKey, bell_offset};
use crate::shm::{Channel, Doorbell, Segment};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Call, Fill, Plan, SignalKind, TensorCopy, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::combine;
use lockstep_core::trace::TensorValue;
use signal_hook::low_level::emulate_default_handler;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// A program that is ready to run: tensors filled, channels connected.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) plan: Arc<Plan>,
    /// Per group, in nanoseconds.
    pub(super) timeouts_ns: Vec<u64>,
    rank: GlobalRank,
    segment: Arc<Segment>,
    arena: Arena,
    recent: Recent,
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
    ) -> Result<Program, RankFailure> {
        let rank = setup.rank;
        let program = plan
            .program(rank)
            .ok_or(RankFailure::Unchecked("the plan has no program for this rank"))?;
        let recent = Recent::of(program);
        let arena = Arena::of(&plan, rank).moved_to(setup.wiring.arena);
        for (id, memory) in &arena.tensors {
            // The kernel's memory is zero, page by page as it is touched.
            if let Some(tensor) = plan.tensor(*id).filter(|tensor| tensor.fill != Fill::Zeros) {
                segment.store(memory.offset, &initial_bytes(tensor, rank));
            }
        }
        let timeout = |ms: u64| setup.timeout_ns.unwrap_or(ms.saturating_mul(1_000_000));
        let timeouts_ns = plan.groups.iter().map(|group| timeout(group.timeout_ms())).collect();
        let wires = Wires { plan: &plan, setup, segment: segment.clone() };
        let streams = wires.streams();
        let p2p = wires.point_to_point();
        let plan = Arc::new(plan);
        Ok(Program { plan, timeouts_ns, rank, segment, arena, recent, streams, p2p })
    }

    /// The clerk of the rank, at work.
    pub(super) fn employ_clerk(
        &self,
        setup: &Setup,
        start_ns: u64,
        socket: &UnixStream,
    ) -> Result<Arc<Clerk>, RankFailure> {
        let socket = socket.try_clone().map_err(cannot("cannot report"))?;
        let job = Job {
            plan: self.plan.clone(),
            rank: setup.rank,
            start_ns,
            messages: setup.record_messages,
            shortest_timeout_ns: self.timeouts_ns.iter().copied().min().unwrap_or(u64::MAX),
            word_every_ns: setup.word_every_ns,
        };
        let recording = Recording { calls: setup.recorded_calls, at_end: setup.dump_at_end };
        Clerk::employ(job, recording, Arc::new(Mutex::new(socket)))
    }

    /// Runs all operations, and reports the tensors' values at the end.
    pub(super) fn run(self, clerk: &Arc<Clerk>, gate: &Gate) -> Result<(), RankFailure> {
        let (plan, timeouts_ns) = (self.plan.clone(), self.timeouts_ns.clone());
        let (rank, works) = (self.rank, Arc::new(Works::default()));
        let timeouts_ns = &timeouts_ns;
        operations::run(
            self,
            Context { plan: &plan, rank, timeouts_ns, works: &works, clerk, gate },
        )
    }

    fn p2p_call(&self, call: &Call, work: u32) -> Result<P2pCall, RankFailure> {
        let me = self.plan.group(call.group()).and_then(|members| members.group_rank(self.rank));
        let me = me.ok_or(RankFailure::Unchecked("a group that the rank is no member of"))?;
        let (with, tensor) = match *call {
            Call::Send { group, peer, tensor, tag } => {
                let key = ChannelKey { group, from: me, to: peer, tag: Some(tag) };
                (With::One(key), tensor)
            }
            Call::Recv { group, peer: Some(peer), tensor, tag } => {
                let key = ChannelKey { group, from: peer, to: me, tag: Some(tag) };
                (With::One(key), tensor)
            }
            Call::Recv { group, peer: None, tensor, tag } => {
                let of = self.plan.group(group);
                let holds = of.is_some_and(|group| group.backend() != BackendName::Gloo);
                (With::Anyone { group, tag, holds }, tensor)
            }
            Call::Collective { .. } => {
                return Err(RankFailure::Unchecked("neither a send nor a receive"));
            }
        };
        let shape = self
            .plan
            .tensor(tensor)
            .ok_or(RankFailure::Unchecked("a tensor that the plan has not"))?;
        let memory = self
            .arena
            .tensors
            .get(&tensor)
            .ok_or(RankFailure::Unchecked("a tensor that was not made"))?;
        Ok(P2pCall {
            with,
            tensor: memory.part(0, shape.bytes())?,
            fingerprint: fingerprint(&(shape.dtype, shape.numel)),
            work,
            posted_ns: clock::now_ns(),
        })
    }
}

impl CarryOut for Program {
    fn signal(&mut self, context: Context<'_>, signal: SignalKind) -> Result<(), RankFailure> {
        take_signal(signal, context.clerk, context.gate);
        Ok(())
    }

    fn call(
        &mut self,
        context: Context<'_>,
        call: &Call,
        mut made: Made,
    ) -> Result<Carried, RankFailure> {
        let Context { clerk, works, .. } = context;
        if call.is_p2p() {
            let call = self.p2p_call(call, made.work)?;
            made.scheduled(clerk);
            return self.p2p.post(call, clerk, works).map(|()| Carried::Made);
        }
        let group = call.group();
        let (call, made_ns) = self.recent.get(made.work, || {
            made.began.known(clerk);
            CollectiveCall::of(context.plan, self.rank, call, &self.arena)
        })?;
        let stream = self
            .streams
            .get_mut(&group)
            .ok_or(RankFailure::Unchecked("a group without a stream"))?;
        stream.take(call, made, made_ns, clerk, works)
    }

    fn copy(&mut self, context: Context<'_>, copy: &TensorCopy) -> Result<(), RankFailure> {
        let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } = copy;
        let tensors = &self.arena.tensors;
        let memories = (tensors.get(from), tensors.get(into), context.plan.tensor(*from));
        let (Some(source), Some(target), Some(tensor)) = memories else { return Ok(()) };
        let size = tensor.dtype.size_bytes();
        let part =
            |memory: &Memory, offset: u64| memory.part(offset * size, (offset + count) * size);
        let parts = (part(source, *from_offset), part(target, *into_offset));
        let (source, target) = (parts.0?, parts.1?);
        match reduce {
            Some(op) => {
                // Whole, since the parts may overlap.
                let held =
                    |part: Memory| self.segment.look(part.offset, part.bytes, <[u8]>::to_vec);
                let mut sum = held(target);
                combine(tensor.dtype, *op, &mut sum, &held(source));
                self.segment.store(target.offset, &sum);
            }
            None => self.segment.copy(source.offset, target.offset, source.bytes),
        }
        Ok(())
    }

    fn results(&self) -> impl Iterator<Item = (TensorId, TensorValue)> {
        self.arena.tensors.iter().map(|(&tensor, memory)| {
            (tensor, self.segment.look(memory.offset, memory.bytes, TensorValue::of))
        })
    }
}

/// Does a fault of the run to this process, once everything before it is reported.
fn take_signal(signal: SignalKind, clerk: &Clerk, gate: &Gate) {
    match signal.deadly() {
        Some(deadly) => {
            clerk.at_signal(signal);
            // Whatever handles it otherwise, such as one that looks for overflown stacks.
            let _ = emulate_default_handler(deadly.number());
        }
        // The coordinator stops it, and later continues it: a stopped process cannot.
        None => {
            gate.hold_for_signal(true);
            clerk.at_signal(signal);
            gate.pass(|| ());
        }
    }
}

/// The inputs for connecting a rank.
struct Wires<'a> {
    plan: &'a Plan,
    setup: &'a Setup,
    segment: Arc<Segment>,
}

impl Wires<'_> {
    fn bell(&self, first: usize, member: u32) -> Doorbell {
        Doorbell::at(self.segment.clone(), bell_offset(first, member))
    }

    fn channel(&self, offset: usize) -> Channel {
        Channel::at(self.segment.clone(), offset, self.setup.wiring.bounce_bytes)
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
            links.insert(
                id,
                GroupLink::new(me, self.segment.clone(), bell, peers, self.setup.patience),
            );
        }
        for channel in wiring.channels.iter().filter(|channel| channel.key.tag.is_none()) {
            let Some(link) = links.get_mut(&channel.key.group) else { continue };
            let wire = self.channel(channel.offset);
            let (from, to) = (channel.key.from, channel.key.to);
            if from == link.me {
                if let Some(peer) = link.peers.get_mut(to.index()) {
                    peer.to = Some(wire.sender());
                }
            } else if let Some(peer) = link.peers.get_mut(from.index()) {
                peer.from = Some(wire.receiver());
            }
        }
        links.into_iter().map(|(id, link)| (id, Stream::Here(link))).collect()
    }

    fn point_to_point(&self) -> PointToPoint {
        let wiring = &self.setup.wiring;
        let connect = |channel: &super::super::wiring::Channel| {
            let key = channel.key;
            key.tag?;
            let sends = self.me(key.group)? == key.from;
            let other = if sends { key.to } else { key.from };
            let peer = self.plan.group(key.group)?.global_rank(other)?;
            let wire = self.channel(channel.offset);
            let end =
                if sends { End::Sends(wire.sender()) } else { End::Receives(wire.receiver()) };
            let bell = self.bell(wiring.p2p_bells, peer.0);
            let queue = VecDeque::new();
            Some((key, P2pChannel { peer, bell, end, calls: 0, queue, current: None }))
        };
        let channels = wiring.channels.iter().filter_map(connect).collect();
        let bell = self.bell(wiring.p2p_bells, self.setup.rank.0);
        PointToPoint::new(bell, channels, self.setup.patience)
    }
}
