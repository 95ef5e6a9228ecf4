//! A call that a channel carries out: its memory, cut into chunks, and how far it is.

use crate::call_time::Timed;
use crate::laid::Laid;
use crate::marks::Marks;
use crate::memory::Memory;
use crate::message::{Cargo, Message};
use lockstep_core::plan::{Signature, TensorId};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::{self, ReduceOp};
use lockstep_core::schedule::{Action, Buffer, Grid, Slice};
use std::ops::Range;
use std::sync::Arc;

/// A call being carried out on one rank.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) work: u32,
    pub(crate) seq: u64,
    pub(crate) signature: Arc<Signature>,
    /// The signature's number: equal numbers are equal signatures.
    pub(crate) signature_number: u32,
    /// The cuts of the input, output and scratch buffers.
    pub(crate) grids: Arc<[Grid; 3]>,
    /// True if ranks can disagree on the length of a message although their signatures agree.
    pub(crate) uneven: bool,
    pub(crate) input: Option<TensorId>,
    pub(crate) output: Option<TensorId>,
    pub(crate) step: u32,
    /// Steps of its schedule.
    pub(crate) steps: u32,
    /// The schedule is a rotation, and its chunks are equal: see [`super::step_sends`].
    pub(crate) is_rotation: bool,
    /// The step's receives that have not arrived.
    pub(crate) waiting: Vec<Action>,
    /// When the step's last send has left.
    pub(crate) left: u64,
    pub(crate) done: bool,
    /// It is carried out as a whole (`whole`), not message by message.
    pub(crate) whole: bool,
    /// Its time as a whole, if that is known: then its messages take no time.
    pub(crate) timed: Option<Timed>,
    /// Nothing where a plan is simulated for its times: tens of thousands of ranks begin a call together.
    pub(crate) extras: Option<Box<Extras>>,
}

/// The parts of a call that few simulations need: values and marks, steps laid over a known time, and the work of a
/// machine's own cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Bytes that the rank stores and adds in the call; 0 where that takes no time of its own.
    pub(crate) touched: u64,
    /// The number of first steps whose sends all leave with the first of them.
    pub(crate) lending_steps: u32,
    /// Messages that are lent and have not been read.
    pub(crate) unread: u32,
    /// The buffer that the call reads in place of its input: the input, premultiplied.
    pub(crate) scaled_input: Option<Arc<Vec<u8>>>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) marks: Option<Arc<Marks>>,
    /// Its steps laid over its known time, where somebody looks at them.
    pub(crate) laid: Option<Laid>,
}

impl Extras {
    /// `None` if there are none of them.
    pub(crate) fn boxed(self) -> Option<Box<Extras>> {
        let Extras { touched, lending_steps, unread: _, scaled_input, scratch, marks, laid } =
            &self;
        let is_plain = *touched == 0
            && *lending_steps == 0
            && scaled_input.is_none()
            && scratch.is_empty()
            && marks.is_none()
            && laid.is_none();
        (!is_plain).then(|| Box::new(self))
    }
}

impl Active {
    /// The bytes that the rank stores and adds in the call; 0 where that takes no time of its own.
    pub(crate) fn touched(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.touched)
    }

    /// True if messages that the rank has lent have not been read.
    pub(crate) fn has_unread(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.unread > 0)
    }

    /// The marks of a buffer's chunks; none where none are kept.
    pub(crate) fn marks_of(&self, buffer: Buffer) -> &[u64] {
        let marks = self.extras.as_ref().and_then(|extras| extras.marks.as_ref());
        marks.map(|marks| marks.of(buffer)).unwrap_or_default()
    }

    /// Its steps laid over its known time.
    pub(crate) fn laid(&self) -> Option<&Laid> {
        self.extras.as_ref()?.laid.as_ref()
    }

    /// The same, to be moved on.
    pub(crate) fn laid_mut(&mut self) -> Option<&mut Laid> {
        self.extras.as_mut()?.laid.as_mut()
    }

    pub(crate) fn grid(&self, buffer: Buffer) -> &Grid {
        &self.grids[buffer as usize]
    }

    /// The bytes that a slice names in its buffer. Of a plan without values they may be more than
    /// the browser's 32-bit memory could hold: they are counted, never indexed.
    pub(crate) fn byte_range(&self, slice: Slice) -> Range<u64> {
        let range = self.grid(slice.buffer).range(slice.chunk, slice.chunks);
        let size = self.signature.dtype.size_bytes();
        range.start.saturating_mul(size)..range.end.saturating_mul(size)
    }

    /// The same as indices of a buffer that is in memory.
    fn indices(&self, slice: Slice) -> Option<Range<usize>> {
        let range = self.byte_range(slice);
        Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    pub(crate) fn read<'a>(&'a self, memory: &'a Memory, slice: Slice) -> Option<&'a [u8]> {
        let buffer = match slice.buffer {
            Buffer::Input => match self.extras.as_ref().and_then(|it| it.scaled_input.as_ref()) {
                Some(scaled) => scaled.as_slice(),
                None => memory.get(self.input?)?,
            },
            Buffer::Output => memory.get(self.output?)?,
            Buffer::Scratch => {
                self.extras.as_ref().map(|it| it.scratch.as_slice()).unwrap_or_default()
            }
        };
        buffer.get(self.indices(slice)?)
    }

    pub(crate) fn write<'a>(
        &'a mut self,
        memory: &'a mut Memory,
        slice: Slice,
    ) -> Option<&'a mut [u8]> {
        let range = self.indices(slice)?;
        let buffer = match slice.buffer {
            Buffer::Input => return None,
            Buffer::Output => memory.get_mut(self.output?)?,
            Buffer::Scratch => self.extras.as_mut()?.scratch.as_mut_slice(),
        };
        buffer.get_mut(range)
    }

    /// Copies values and marks within the rank.
    pub(crate) fn copy(&mut self, memory: &mut Memory, from: Slice, into: Slice) {
        if let Some(copied) = self.read(memory, from).map(<[u8]>::to_vec)
            && let Some(place) = self.write(memory, into)
        {
            place.copy_from_slice(&copied);
        }
        if let Some(marks) = self.read_marks(from) {
            self.write_marks(into, &marks);
        }
    }

    /// Reduces two slices of the rank, values and marks, into one.
    pub(crate) fn reduce(&mut self, memory: &mut Memory, from: [Slice; 2], into: Slice) {
        let [first, second] = from;
        if let (Some(own), Some(other)) = (self.read(memory, first), self.read(memory, second)) {
            let (mut own, other) = (own.to_vec(), other.to_vec());
            reduce::combine(self.signature.dtype, self.reduce_op(), &mut own, &other);
            if let Some(place) = self.write(memory, into) {
                place.copy_from_slice(&own);
            }
        }
        if let (Some(mut own), Some(marks)) = (self.read_marks(first), self.read_marks(second)) {
            own.iter_mut().zip(marks).for_each(|(own, mark)| *own |= mark);
            self.write_marks(into, &own);
        }
    }

    /// A message of the present step that leaves at `departs`, without contents.
    pub(crate) fn message(
        &self,
        (from, to): (GroupRank, u32),
        slice: Slice,
        bytes: u64,
        departs: u64,
    ) -> Message {
        Message {
            to,
            from,
            seq: self.seq,
            step: self.step,
            signature: self.signature_number,
            slice,
            bytes,
            departs,
            lent: false,
            cargo: None,
        }
    }

    pub(crate) fn cargo(&self, memory: &Memory, from: Slice) -> Option<Box<Cargo>> {
        let elements = self.read(memory, from).map(Box::from);
        let marks = self.read_marks(from);
        let laid = self.laid();
        let reached = laid.map_or(0, |laid| laid.reached);
        let is_there = elements.is_some() || marks.is_some() || laid.is_some();
        is_there.then(|| Box::new(Cargo { elements, marks, reached }))
    }

    pub(crate) fn read_marks(&self, slice: Slice) -> Option<Box<[u64]>> {
        let marks = self.extras.as_ref()?.marks.as_ref()?.of(slice.buffer);
        Some(marks.get(slice.chunk as usize..(slice.chunk + slice.chunks) as usize)?.into())
    }

    pub(crate) fn write_marks(&mut self, slice: Slice, marks: &[u64]) {
        let known = self.extras.as_mut().and_then(|extras| extras.marks.as_mut());
        let Some(own) = known.map(Arc::make_mut) else {
            return;
        };
        let own = own.of_mut(slice.buffer);
        let range = slice.chunk as usize..(slice.chunk + slice.chunks) as usize;
        if let Some(own) = own.get_mut(range) {
            own.copy_from_slice(marks);
        }
    }

    /// The bytes that a participant copies, receives and adds in the whole call.
    pub(crate) fn touched_by(&self, me: GroupRank) -> u64 {
        let schedule = &self.signature.schedule;
        let (mut actions, mut touched) = (Vec::new(), 0u64);
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            for slice in actions.iter().filter_map(touched_by) {
                let range = self.byte_range(slice);
                touched = touched.saturating_add(range.end - range.start);
            }
        }
        touched
    }

    /// The reduction that the call asks for.
    pub(crate) fn reduce_op(&self) -> ReduceOp {
        self.signature.schedule.collective().reduce_op().unwrap_or(ReduceOp::Sum)
    }
}

/// The slice that a receive writes; `None` for other actions.
pub(crate) fn received_into(action: &Action) -> Option<Slice> {
    match action {
        Action::Receive { into, .. } | Action::ReceiveReduce { into, .. } => Some(*into),
        _ => None,
    }
}

/// The slice that an action stores or adds.
fn touched_by(action: &Action) -> Option<Slice> {
    match action {
        Action::Copy { from, .. } | Action::Reduce { from, .. } => Some(*from),
        _ => received_into(action),
    }
}

/// Premultiplies what the rank contributes, if the reduction asks for it: an in-place call's tensor
/// where it is, another call's input in a copy, which is returned.
pub(crate) fn premultiplied(
    signature: &Signature,
    memory: &mut Memory,
    input: Option<TensorId>,
    output: Option<TensorId>,
) -> Option<Arc<Vec<u8>>> {
    let (schedule, dtype) = (&signature.schedule, signature.dtype);
    let op = schedule.collective().reduce_op()?;
    let factor = reduce::premultiplier(op, dtype, schedule.size())?;
    if schedule.collective().in_place() {
        reduce::premultiply(dtype, factor, memory.get_mut(output?)?);
        return None;
    }
    let mut scaled = memory.get(input?)?.to_vec();
    reduce::premultiply(dtype, factor, &mut scaled);
    Some(Arc::new(scaled))
}
