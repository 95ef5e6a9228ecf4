//! A schedule as an MSCCL program, for other tools to run, draw or compare.
//!
//! On each channel every peer has a thread block to send to it and one to receive from it, and local actions
//! of a rank have a block of their own. Blocks run on as far as the memory lets them: dependencies are those
//! that the memory needs. The common step of each block's step, and its place in it, are stated beside it
//! ([`Stated`]): other tools ignore that, and our reader reads the same schedule back, step by step.

use super::names::names;
use super::program::{Memory, Op, Stated};
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Buffer, MAX_TABLE_ACTIONS, Schedule, Slice};
use quick_xml::escape::escape;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The reason that a schedule is no MSCCL program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A collective that MSCCL has no name for.
    #[error("MSCCL has no {0}")]
    Collective(Collective),
    /// In-network reductions have no thread blocks.
    #[error("{0} has switches that take part, which an MSCCL program cannot say")]
    Switches(String),
    /// Chunks whose lengths depend on the call's bytes.
    #[error(
        "{0} cuts its chunks by bytes, and all chunks of an MSCCL program are alike: export ring, \
         which moves as much, or GOAL, which names the bytes of each message"
    )]
    UnevenChunks(String),
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
    if schedule.cuts_by_bytes() {
        return Err(WriteError::UnevenChunks(schedule.to_string()));
    }
    let in_place = collective.in_place();
    let parts = if in_place { 1 } else { size };
    let mut text = String::new();
    let head = format!(
        "<algo name=\"{}\" proto=\"Simple\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{size}\" \
         coll=\"{name}\" inplace=\"{}\" outofplace=\"{}\" minBytes=\"0\" maxBytes=\"0\"",
        escape(schedule.to_string()),
        schedule.channels(),
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
            for (action, nth) in actions.iter().zip(0..) {
                gpu.add(*action, schedule.channel_of(*action), Stated { at: step, nth });
            }
        }
        gpu.write(schedule, rank, &mut text);
    }
    text.push_str("</algo>\n");
    Ok(text)
}

/// The purpose of a block: its channel, and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    channel: u32,
    with: With,
}

/// The peer that a block sends to or receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum With {
    To(u32),
    From(u32),
    Inside,
}

/// A step as it is written.
struct Step {
    does: Does,
    after: Option<(usize, usize)>,
    flagged: bool,
}

/// The operation of a step, its memory, and its time.
#[derive(Clone, Copy)]
struct Does {
    op: Op,
    src: Option<Slice>,
    dst: Option<Slice>,
    stated: Stated,
}

impl Does {
    /// The slices that it reads.
    fn reads(self) -> impl Iterator<Item = Slice> {
        self.src.into_iter().chain(self.dst.filter(|_| self.op == Op::Reduce))
    }
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
    fn add(&mut self, action: Action, channel: u32, stated: Stated) {
        let with = match action {
            Action::Send { peer, .. } => With::To(peer.0),
            Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => With::From(peer.0),
            Action::Copy { .. } | Action::Reduce { .. } => With::Inside,
        };
        let line = Line { channel, with };
        let mut step = |op, src, dst| self.step(line, Does { op, src, dst, stated });
        match action {
            Action::Send { from, .. } => step(Op::Send, Some(from), None),
            Action::Receive { into, .. } => step(Op::Receive, None, Some(into)),
            Action::ReceiveReduce { local, into, .. } => {
                step(Op::ReceiveReduceCopy, Some(local), Some(into));
            }
            Action::Copy { from, into } => step(Op::Copy, Some(from), Some(into)),
            // MSCCL reduces into one of the operands; which one makes no difference to the sum.
            Action::Reduce { local, from, into } if into == from => {
                step(Op::Reduce, Some(local), Some(into));
            }
            Action::Reduce { local, from, into } => {
                if local != into {
                    step(Op::Copy, Some(local), Some(into));
                }
                step(Op::Reduce, Some(from), Some(into));
            }
        }
    }

    fn step(&mut self, line: Line, does: Does) {
        let next = self.blocks.len();
        let block = *self.numbers.entry(line).or_insert(next);
        if block == next {
            self.blocks.push((line, Vec::new()));
            self.known.push(BTreeMap::new());
        }
        let mut waits = self.waits(block, does);
        let last = waits.pop();
        let steps = &mut self.blocks[block].1;
        let nothing = Does { op: Op::Nop, src: None, dst: None, ..does };
        steps.extend(waits.iter().map(|wait| Step {
            does: nothing,
            after: Some(*wait),
            flagged: false,
        }));
        steps.push(Step { does, after: last, flagged: false });
        let me = (block, steps.len() - 1);
        for (block, step) in waits.into_iter().chain(last) {
            self.blocks[block].1[step].flagged = true;
        }
        self.use_memory(me, does);
    }

    /// The steps that a step of `block` must wait for: the latest step of each other block that it
    /// does not know of yet.
    fn waits(&mut self, block: usize, does: Does) -> Vec<(usize, usize)> {
        let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
        let mut before = |(other, step): (usize, usize)| {
            if other != block {
                let latest = latest.entry(other).or_default();
                *latest = step.max(*latest);
            }
        };
        for chunk in does.reads().flat_map(chunks_of) {
            self.used.get(&chunk).and_then(|used| used.written).into_iter().for_each(&mut before);
        }
        for chunk in does.dst.into_iter().flat_map(chunks_of) {
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

    fn use_memory(&mut self, me: (usize, usize), does: Does) {
        for chunk in does.reads().flat_map(chunks_of) {
            self.used.entry(chunk).or_default().read.push(me);
        }
        for chunk in does.dst.into_iter().flat_map(chunks_of) {
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
            let (send, recv) = match line.with {
                With::To(peer) => (i64::from(peer), -1),
                With::From(peer) => (-1, i64::from(peer)),
                With::Inside => (-1, -1),
            };
            let channel = line.channel;
            let _ = writeln!(
                text,
                "    <tb id=\"{id}\" send=\"{send}\" recv=\"{recv}\" chan=\"{channel}\">"
            );
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
        // Unused operands repeat the used one, as msccl-tools writes them.
        let Does { op, src, dst, stated } = self.does;
        let (from, into) = (place(src, dst), place(dst, src));
        let chunks = src.or(dst).map_or(0, |slice| slice.chunks);
        let after = self.after.map(|(block, step)| (block as i64, step as i64)).unwrap_or((-1, -1));
        let _ = writeln!(
            text,
            "      <step s=\"{number}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" \
             dstoff=\"{}\" cnt=\"{chunks}\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\" at=\"{}\" \
             nth=\"{}\"/>",
            op.name(),
            from.0,
            from.1,
            into.0,
            into.1,
            after.0,
            after.1,
            u8::from(self.flagged),
            stated.at,
            stated.nth
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
