//! A rank's lowered program: memory, streams and links, and the steps put on them in order.

use super::backlog::Backlog;
use super::mailbox::Post;
use super::timeline::Timeline;
use super::times::{since, timeout_ns};
use crate::clock;
use crate::host::rank::clerk::Clerk;
use crate::host::rank::failure::RankFailure;
use crate::host::rank::gate::Gate;
use crate::host::rank::note::Note;
use crate::host::rank::start::Start;
use crate::host::rank::works::Works;
use crate::nccl::communicator::{Communicator, Transfers};
use crate::nccl::device::{Device, Event, Region, Stream};
use crate::nccl::error::DeviceError;
use crate::nccl::kernels;
use crate::nccl::lower::{CommunicatorId, Communicators, Lane, Lowered, Mark, Memory, Span, Step};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::TensorValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time that a device computes before it is measured, in nanoseconds.
const WARM_NS: u64 = 50_000_000;

/// The computing speed of a device, measured when a rank starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    /// Nanoseconds of a kernel that does nothing.
    least_ns: f64,
    /// Nanoseconds that a multiply-add of every thread takes.
    iteration_ns: f64,
}

impl Calibration {
    /// Measures with kernels on the stream: the shortest of several, once the device has been at work for
    /// long enough to have raised its clock.
    pub(super) fn of(device: &Device, stream: Stream) -> Result<Calibration, DeviceError> {
        let time = |iterations: u64| -> Result<f64, DeviceError> {
            let mut least = f64::INFINITY;
            for attempt in 0..4 {
                let began = device.record(stream)?;
                compute(device, stream, iterations)?;
                let ended = device.record(stream)?;
                device.synchronize(stream)?;
                let took = device.nanoseconds_between(&began, &ended)? as f64;
                if attempt > 0 {
                    least = least.min(took);
                }
            }
            Ok(least.max(0.0))
        };
        let began = clock::now_ns();
        while since(began) < WARM_NS {
            compute(device, stream, 1 << 12)?;
            device.synchronize(stream)?;
        }
        let least_ns = time(0)?;
        let mut iterations = 256;
        // Long enough to be measured: half a millisecond, or as long as iterations can be.
        loop {
            let took = time(iterations)? - least_ns;
            if took > 500_000.0 || iterations >= 1 << 24 {
                let iteration_ns = (took / iterations as f64).max(1e-6);
                return Ok(Calibration { least_ns, iteration_ns });
            }
            iterations *= 4;
        }
    }

    fn iterations(self, duration_ns: u64) -> u64 {
        let left = duration_ns as f64 - self.least_ns;
        if left <= 0.0 { 0 } else { (left / self.iteration_ns) as u64 }
    }
}

fn compute(device: &Device, stream: Stream, iterations: u64) -> Result<(), DeviceError> {
    let threads = device.full_width();
    device.launch(stream, kernels::COMPUTE, [0; 3], threads, iterations)
}

/// The stream that a step is put on, and how many commands it is there at the most; an event that is
/// marked counts by itself.
fn commands(step: &Step) -> Option<(Lane, u64)> {
    match step {
        Step::Follow { lane, .. } | Step::Await { lane, .. } => Some((*lane, 1)),
        Step::Mark { lane, .. } => Some((*lane, 0)),
        Step::Copy { lane, .. }
        | Step::Combine { lane, .. }
        | Step::Premultiply { lane, .. }
        | Step::Divide { lane, .. }
        | Step::Compute { lane, .. } => Some((*lane, 1)),
        // A letterbox takes a copy, a number and a wait on each side.
        Step::Exchange { communicator, sends, receives } => {
            Some((Lane::Of(*communicator), 3 * (sends.len() + receives.len()) as u64))
        }
        Step::Collective { communicator, .. } => Some((Lane::Of(*communicator), 1)),
        Step::Make { .. }
        | Step::HoldFor { .. }
        | Step::HoldForAll
        | Step::Sleep { .. }
        | Step::Answer { .. }
        | Step::Die { .. } => None,
    }
}

/// The links of a rank to the others.
pub(super) enum Links {
    /// By communicators, in the order of those that it is a member of.
    Nccl(Vec<Arc<Communicator>>),
    /// By boxes on the device that all ranks are on.
    Boxes(Post),
}

/// A rank's side of a communicator.
struct Side {
    stream: Stream,
    /// The rank's place in it.
    me: u32,
    /// Its place among [`Links::Nccl`].
    link: usize,
    /// For the timeline.
    lane: usize,
}

/// A program with its memory and links.
pub(super) struct Program {
    plan: Arc<Plan>,
    lowered: Lowered,
    device: Arc<Device>,
    links: Links,
    compute: Stream,
    sides: BTreeMap<CommunicatorId, Side>,
    memory: BTreeMap<Memory, Region>,
}

/// A program that can run.
pub(super) struct Ready {
    program: Program,
    clerk: Arc<Clerk>,
    works: Arc<Works>,
    timeline: Arc<Timeline>,
    calibration: Calibration,
    timeouts_ns: Vec<u64>,
    ends: BTreeMap<u32, Arc<Event>>,
    backlog: Backlog,
}

impl Program {
    /// Makes streams and memory, and fills the tensors.
    pub(super) fn prepare(
        plan: Arc<Plan>,
        rank: GlobalRank,
        lowered: Lowered,
        communicators: &Communicators,
        device: Arc<Device>,
        links: Links,
    ) -> Result<Program, RankFailure> {
        let program = plan.program(rank);
        let program = program.ok_or(RankFailure::Unchecked("a rank without a program"))?;
        let mut sides = BTreeMap::new();
        for (id, members) in communicators.all() {
            let Some(me) = members.iter().position(|member| *member == rank) else { continue };
            let link = sides.len();
            let stream = device.stream()?;
            sides.insert(id, Side { stream, me: me as u32, link, lane: link + 1 });
        }
        let compute = device.stream()?;
        let tensors: Vec<_> =
            program.tensors().into_iter().filter_map(|id| Some((id, plan.tensor(id)?))).collect();
        let sizes = tensors.iter().map(|(_, tensor)| tensor.bytes());
        let sizes = sizes.chain(lowered.extra.values().copied());
        let bytes = sizes.fold(0, u64::saturating_add);
        let free = device.free_bytes()?;
        if bytes > free {
            return Err(RankFailure::DeviceMemory { bytes, free });
        }
        let mut memory = BTreeMap::new();
        for (id, tensor) in tensors {
            let region = device.memory(tensor.bytes())?;
            match tensor.fill {
                Fill::Zeros => device.clear(compute, region)?,
                _ => device.fill(compute, region, &initial_bytes(tensor, rank))?,
            }
            memory.insert(Memory::Tensor(id), region);
        }
        for (&extra, &bytes) in &lowered.extra {
            let region = device.memory(bytes)?;
            device.clear(compute, region)?;
            memory.insert(extra, region);
        }
        device.synchronize(compute)?;
        Ok(Program { plan, lowered, device, links, compute, sides, memory })
    }

    /// Begins to watch: from here on the rank's time counts.
    pub(super) fn start(
        self,
        clerk: Arc<Clerk>,
        calibration: Calibration,
        communicators: Vec<Arc<Communicator>>,
        stream: Stream,
        start: &Start<'_>,
    ) -> Result<Ready, RankFailure> {
        let works = Arc::new(Works::default());
        let device = self.device.clone();
        let timeline =
            Timeline::start(device, clerk.clone(), works.clone(), communicators, stream)?;
        let groups = self.plan.groups.iter();
        let timeouts_ns = groups.map(|group| timeout_ns(start, group.timeout_ms())).collect();
        let (ends, backlog) = (BTreeMap::new(), Backlog::default());
        Ok(Ready { program: self, clerk, works, timeline, calibration, timeouts_ns, ends, backlog })
    }
}

impl Ready {
    /// The timeline that writes its events down.
    pub(super) fn timeline(&self) -> Arc<Timeline> {
        self.timeline.clone()
    }

    /// Runs all operations, and reports the tensors' values at the end. A gate that is shut holds the program
    /// before its next operation; operations that are on the streams already go on.
    pub(super) fn run(mut self, gate: &Gate) -> Result<(), RankFailure> {
        for (op, steps) in (0..).zip(std::mem::take(&mut self.program.lowered.ops)) {
            gate.pass(|| ());
            self.timeline.note(Note::OpBegan { op });
            for step in steps {
                self.step(op, step)?;
            }
            self.timeline.note(Note::OpEnded { op });
        }
        self.hold_for_all()?;
        let device = self.program.device.clone();
        let tensors: Vec<TensorId> = (self.program.memory.keys())
            .filter_map(|memory| match memory {
                Memory::Tensor(id) => Some(*id),
                _ => None,
            })
            .collect();
        for tensor in tensors {
            let Some(region) = self.program.memory.get(&Memory::Tensor(tensor)) else { continue };
            let value = TensorValue::of(&device.read(self.program.compute, *region)?);
            self.timeline.note(Note::Result { tensor, value });
        }
        self.timeline.note(Note::Finished);
        self.timeline.stop();
        Ok(())
    }

    /// The program waits until every stream is empty. A watchdog limits it: a call that does not
    /// complete is late.
    fn hold_for_all(&self) -> Result<(), RankFailure> {
        let lanes = self.program.sides.values().map(|side| (side.stream, side.lane));
        for (stream, lane) in lanes.chain([(self.program.compute, 0)]) {
            let event = Arc::new(self.program.device.record(stream)?);
            self.timeline.mark(lane, event, Vec::new());
        }
        (0..self.made()).for_each(|work| self.works.wait(work));
        self.timeline.drain();
        Ok(())
    }

    fn made(&self) -> u32 {
        self.ends.keys().next_back().map_or(0, |last| last + 1)
    }

    fn stream(&self, lane: Lane) -> Result<(Stream, usize), RankFailure> {
        match lane {
            Lane::Compute => Ok((self.program.compute, 0)),
            Lane::Of(id) => {
                let side = self.side(id)?;
                Ok((side.stream, side.lane))
            }
        }
    }

    fn side(&self, id: CommunicatorId) -> Result<&Side, RankFailure> {
        let side = self.program.sides.get(&id);
        side.ok_or(RankFailure::Unchecked("a communicator that the rank is not in"))
    }

    fn region(&self, span: Span) -> Result<Region, RankFailure> {
        let region = self.program.memory.get(&span.memory);
        let part = region.and_then(|region| region.part(span.offset, span.bytes));
        part.ok_or(RankFailure::Unchecked("memory that was not made"))
    }

    fn step(&mut self, op: u32, step: Step) -> Result<(), RankFailure> {
        let device = self.program.device.clone();
        if let Some((lane, commands)) = commands(&step) {
            let (stream, lane) = self.stream(lane)?;
            self.backlog.wait(&device, (stream, lane))?;
            self.backlog.put(lane, commands);
        }
        match step {
            Step::Make { work, part, seq, group } => {
                let timeout = self.timeouts_ns.get(group.index()).copied().unwrap_or(u64::MAX);
                self.timeline.note(Note::Scheduled { work, op, part, seq });
                self.clerk.watch(work, timeout);
            }
            Step::Follow { lane, on } => {
                let event = device.record(self.stream(on)?.0)?;
                device.wait(self.stream(lane)?.0, &event)?;
            }
            Step::Await { lane, work } => {
                if let Some(end) = self.ends.get(&work) {
                    device.wait(self.stream(lane)?.0, end)?;
                }
            }
            Step::Mark { lane, marks } => {
                let (stream, lane) = self.stream(lane)?;
                let event = Arc::new(device.record(stream)?);
                for mark in &marks {
                    if let Mark::Completed { work } = mark {
                        self.ends.insert(*work, event.clone());
                    }
                }
                self.backlog.mark(lane, event.clone());
                self.timeline.mark(lane, event, marks);
            }
            Step::Copy { lane, from, into } => {
                device.copy(self.stream(lane)?.0, self.region(from)?, self.region(into)?)?;
            }
            Step::Combine { lane, dtype, op, local, from, into } => {
                if let Some(kernel) = kernels::combine(dtype, op) {
                    let [into, local, from] =
                        [self.region(into)?, self.region(local)?, self.region(from)?];
                    self.launch(lane, &kernel, dtype.as_real(), [into, local, from], 0)?;
                }
            }
            Step::Premultiply { lane, dtype, factor, from, into } => {
                let kernel = kernels::premultiply(dtype);
                let [into, from] = [self.region(into)?, self.region(from)?];
                let parameter = factor.to_bits();
                self.launch(lane, &kernel, dtype.as_real(), [into, from, from], parameter)?;
            }
            Step::Divide { lane, dtype, by, span } => {
                let span = self.region(span)?;
                self.launch(lane, &kernels::divide(dtype), dtype, [span; 3], by.into())?;
            }
            Step::Exchange { communicator, sends, receives } => {
                self.exchange(communicator, &sends, &receives)?;
            }
            Step::Collective { communicator, operation, element, count, input, output } => {
                let side = self.side(communicator)?;
                let regions = [self.region(input)?, self.region(output)?];
                let Links::Nccl(links) = &self.program.links else {
                    return Err(RankFailure::Unchecked("a call of NCCL by logical ranks"));
                };
                if let Some(link) = links.get(side.link) {
                    link.collective(side.stream, operation, element, count, regions)?;
                }
            }
            Step::Compute { lane, duration_ns } => {
                let iterations = self.calibration.iterations(duration_ns);
                compute(&device, self.stream(lane)?.0, iterations)?;
            }
            Step::HoldFor { works, timeout_ms } => {
                if let Some(timeout_ms) = timeout_ms {
                    let timeout_ns = timeout_ms.saturating_mul(1_000_000);
                    works.clone().for_each(|work| self.clerk.limit(work, timeout_ns));
                }
                works.for_each(|work| self.works.wait(work));
            }
            Step::HoldForAll => self.hold_for_all()?,
            Step::Sleep { duration_ns } => {
                let began = clock::now_ns();
                while since(began) < duration_ns {
                    let left = duration_ns - since(began).min(duration_ns);
                    std::thread::sleep(Duration::from_nanos(left));
                }
            }
            Step::Answer { mut works, what, on_stream } => {
                let completed = works.all(|work| self.works.is_completed(work));
                let answer = match on_stream {
                    true => what.answer_on_stream(completed),
                    false => what.answer(completed),
                };
                self.timeline.note(Note::Answered { op, answer });
            }
            Step::Die { how } => return Err(RankFailure::Died { how }),
        }
        Ok(())
    }

    fn launch(
        &self,
        lane: Lane,
        kernel: &str,
        dtype: Dtype,
        [into, first, second]: [Region; 3],
        parameter: u64,
    ) -> Result<(), RankFailure> {
        let count = into.bytes() / dtype.size_bytes().max(1);
        let addresses = [into.address(), first.address(), second.address()];
        let stream = self.stream(lane)?.0;
        Ok(self.program.device.launch(stream, kernel, addresses, count, parameter)?)
    }

    fn exchange(
        &mut self,
        communicator: CommunicatorId,
        sends: &[(u32, Span)],
        receives: &[(u32, Span)],
    ) -> Result<(), RankFailure> {
        let regions = |spans: &[(u32, Span)]| -> Result<Vec<(u32, Region)>, RankFailure> {
            spans.iter().map(|(peer, span)| Ok((*peer, self.region(*span)?))).collect()
        };
        let (sends, receives) = (regions(sends)?, regions(receives)?);
        let side = self.side(communicator)?;
        let (stream, me, link) = (side.stream, side.me, side.link);
        match &mut self.program.links {
            Links::Nccl(links) => {
                if let Some(link) = links.get(link) {
                    link.exchange(stream, &Transfers { sends, receives })?;
                }
            }
            Links::Boxes(post) => {
                let device = &self.program.device;
                post.exchange(device, stream, (communicator, me), &sends, &receives)?;
            }
        }
        Ok(())
    }
}
