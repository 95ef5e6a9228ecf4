//! A schedule as an MSCCL program, for other tools to run, draw or compare.
//!
//! Every peer has a thread block to send to it and one to receive from it, on channel 0, and what
//! happens inside a rank has a block of its own. Blocks run on as far as the memory lets them:
//! dependencies are those that it needs, so a program may be quicker than the steps it was.

use super::names;
use super::program::{Memory, Op};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::{Action, Buffer, MAX_TABLE_ACTIONS, Schedule, Slice};
use quick_xml::escape::escape;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why a schedule is no MSCCL program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A collective that MSCCL has no name for.
    #[error("MSCCL has no {0}")]
    Collective(Collective),
    /// In-network reductions have no thread blocks.
    #[error("{0} has switches that take part, which an MSCCL program cannot say")]
    Switches(String),
    /// More than a program holds.
    #[error("{0} has more than {MAX_TABLE_ACTIONS} actions: choose a smaller world")]
    TooLarge(String),
}

/// The program's text.
///
/// # Errors
/// When MSCCL has no words for the schedule.
pub fn write(schedule: &Schedule) -> Result<String, WriteError> {
    let (collective, size) = (schedule.collective(), schedule.size());
    let root = collective.root();
    let named = names(root.map_or(0, |root| root.0));
    let named = named.into_iter().find(|(_, named)| named.name() == collective.name());
    let Some((name, _)) = named else { return Err(WriteError::Collective(collective)) };
    if schedule.participants() > size {
        return Err(WriteError::Switches(schedule.to_string()));
    }
    let in_place = collective.in_place();
    let parts = if in_place { 1 } else { size };
    let mut text = String::new();
    let head = format!(
        "<algo name=\"{}\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{}\" ngpus=\"{size}\" \
         coll=\"{name}\" inplace=\"{}\" outofplace=\"{}\" minBytes=\"0\" maxBytes=\"0\"",
        escape(schedule.to_string()),
        u64::from(schedule.chunks_per_part()) * u64::from(parts),
        u8::from(in_place),
        u8::from(!in_place),
    );
    text.push_str(&head);
    if let Some(root) = root {
        // MSCCL's programs do not say; ours do.
        let _ = write!(text, " root=\"{root}\"");
    }
    text.push_str(">\n");
    let mut actions = Vec::new();
    let mut written = 0;
    for rank in (0..size).map(GroupRank) {
        let mut gpu = Gpu::default();
        for step in 0..schedule.steps() {
            schedule.actions(rank, step, &mut actions);
            written += actions.len();
            if written > MAX_TABLE_ACTIONS {
                return Err(WriteError::TooLarge(schedule.to_string()));
            }
            actions.iter().for_each(|action| gpu.add(*action));
        }
        gpu.write(schedule, rank, &mut text);
    }
    text.push_str("</algo>\n");
    Ok(text)
}

/// Whom a block talks to: with the first two, sending and receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    To(u32),
    From(u32),
    Inside,
}

/// A step as it is written.
struct Step {
    op: Op,
    src: Option<Slice>,
    dst: Option<Slice>,
    after: Option<(usize, usize)>,
    flagged: bool,
}

/// A GPU's blocks, as they grow.
#[derive(Default)]
struct Gpu {
    numbers: BTreeMap<Line, usize>,
    blocks: Vec<(Line, Vec<Step>)>,
    /// Per block, of which step of which other it knows that it is done.
    known: Vec<BTreeMap<usize, usize>>,
    used: BTreeMap<(Buffer, u32), Used>,
}

/// The steps that used a chunk: block and step.
#[derive(Default)]
struct Used {
    written: Option<(usize, usize)>,
    read: Vec<(usize, usize)>,
}

impl Gpu {
    fn add(&mut self, action: Action) {
        let line = match action {
            Action::Send { peer, .. } => Line::To(peer.0),
            Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => Line::From(peer.0),
            Action::Copy { .. } | Action::Reduce { .. } => Line::Inside,
        };
        match action {
            Action::Send { from, .. } => self.step(line, Op::Send, Some(from), None),
            Action::Receive { into, .. } => self.step(line, Op::Receive, None, Some(into)),
            Action::ReceiveReduce { local, into, .. } => {
                self.step(line, Op::ReceiveReduceCopy, Some(local), Some(into));
            }
            Action::Copy { from, into } => self.step(line, Op::Copy, Some(from), Some(into)),
            // MSCCL reduces into one of the operands; which one makes no difference to the sum.
            Action::Reduce { local, from, into } if into == from => {
                self.step(line, Op::Reduce, Some(local), Some(into));
            }
            Action::Reduce { local, from, into } => {
                if local != into {
                    self.step(line, Op::Copy, Some(local), Some(into));
                }
                self.step(line, Op::Reduce, Some(from), Some(into));
            }
        }
    }

    fn step(&mut self, line: Line, op: Op, src: Option<Slice>, dst: Option<Slice>) {
        let next = self.blocks.len();
        let block = *self.numbers.entry(line).or_insert(next);
        if block == next {
            self.blocks.push((line, Vec::new()));
            self.known.push(BTreeMap::new());
        }
        let mut waits = self.waits(block, op, src, dst);
        let last = waits.pop();
        let steps = &mut self.blocks[block].1;
        let nop = |after| Step { op: Op::Nop, src: None, dst: None, after, flagged: false };
        steps.extend(waits.iter().map(|wait| nop(Some(*wait))));
        steps.push(Step { op, src, dst, after: last, flagged: false });
        let me = (block, steps.len() - 1);
        for (block, step) in waits.into_iter().chain(last) {
            self.blocks[block].1[step].flagged = true;
        }
        self.use_memory(me, op, src, dst);
    }

    /// What a step of `block` must wait for: the latest step of each other block that it does not
    /// know of yet.
    fn waits(
        &mut self,
        block: usize,
        op: Op,
        src: Option<Slice>,
        dst: Option<Slice>,
    ) -> Vec<(usize, usize)> {
        let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
        let mut before = |(other, step): (usize, usize)| {
            if other != block {
                let latest = latest.entry(other).or_default();
                *latest = step.max(*latest);
            }
        };
        let operands = src.into_iter().chain(dst.filter(|_| op == Op::Reduce));
        for chunk in operands.flat_map(chunks_of) {
            self.used.get(&chunk).and_then(|used| used.written).into_iter().for_each(&mut before);
        }
        for chunk in dst.into_iter().flat_map(chunks_of) {
            if let Some(used) = self.used.get(&chunk) {
                used.written.iter().chain(&used.read).copied().for_each(&mut before);
            }
        }
        let known = &mut self.known[block];
        let new =
            |(other, step): &(usize, usize)| known.get(other).is_none_or(|known| known < step);
        let waits: Vec<_> = latest.into_iter().filter(new).collect();
        known.extend(waits.iter().copied());
        waits
    }

    fn use_memory(&mut self, me: (usize, usize), op: Op, src: Option<Slice>, dst: Option<Slice>) {
        let reads = src.into_iter().chain(dst.filter(|_| op == Op::Reduce));
        for chunk in reads.flat_map(chunks_of) {
            self.used.entry(chunk).or_default().read.push(me);
        }
        for chunk in dst.into_iter().flat_map(chunks_of) {
            self.used.insert(chunk, Used { written: Some(me), read: Vec::new() });
        }
    }

    fn write(&self, schedule: &Schedule, rank: GroupRank, text: &mut String) {
        let in_place = schedule.collective().in_place();
        let chunks = |buffer| schedule.chunks(rank, buffer);
        let (input, output) = match in_place {
            true => (chunks(Buffer::Output), 0),
            false => (chunks(Buffer::Input), chunks(Buffer::Output)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  <gpu id=\"{rank}\" i_chunks=\"{input}\" o_chunks=\"{output}\" s_chunks=\"{}\">",
            chunks(Buffer::Scratch)
        );
        for (id, (line, steps)) in self.blocks.iter().enumerate() {
            let (send, recv) = match *line {
                Line::To(peer) => (i64::from(peer), -1),
                Line::From(peer) => (-1, i64::from(peer)),
                Line::Inside => (-1, -1),
            };
            let _ =
                writeln!(text, "    <tb id=\"{id}\" send=\"{send}\" recv=\"{recv}\" chan=\"0\">");
            for (number, step) in steps.iter().enumerate() {
                step.write(number, in_place, text);
            }
            text.push_str("    </tb>\n");
        }
        text.push_str("  </gpu>\n");
    }
}

impl Step {
    fn write(&self, number: usize, in_place: bool, text: &mut String) {
        let place = |slice: Option<Slice>, other: Option<Slice>| match slice.or(other) {
            None => (Memory::Input.letter(), -1),
            Some(slice) => (letter(slice.buffer, in_place), i64::from(slice.chunk)),
        };
        // What a step does not use is said like what it does, as msccl-tools writes it.
        let (src, dst) = (place(self.src, self.dst), place(self.dst, self.src));
        let chunks = self.src.or(self.dst).map_or(0, |slice| slice.chunks);
        let after = self.after.map(|(block, step)| (block as i64, step as i64)).unwrap_or((-1, -1));
        let _ = writeln!(
            text,
            "      <step s=\"{number}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" \
             dstoff=\"{}\" cnt=\"{chunks}\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>",
            self.op.name(),
            src.0,
            src.1,
            dst.0,
            dst.1,
            after.0,
            after.1,
            u8::from(self.flagged)
        );
    }
}

/// In-place programs name their one tensor `i`, as msccl-tools' do.
fn letter(buffer: Buffer, in_place: bool) -> &'static str {
    let memory = match buffer {
        Buffer::Output if in_place => Memory::Input,
        Buffer::Input => Memory::Input,
        Buffer::Output => Memory::Output,
        Buffer::Scratch => Memory::Scratch,
    };
    memory.letter()
}

fn chunks_of(slice: Slice) -> impl Iterator<Item = (Buffer, u32)> {
    (slice.chunk..slice.chunk.saturating_add(slice.chunks)).map(move |chunk| (slice.buffer, chunk))
}
