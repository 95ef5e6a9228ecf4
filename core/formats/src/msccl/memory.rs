//! The places of a program's memories in ours.
//!
//! Ours has an input that is never written, an output, and scratch; the call's in-place forms have
//! the output alone, which holds the input at first. A program has `i`, `o` and `s`, and with
//! `inplace="1"` the first two are one memory, or `i` a part of `o`, or `o` a part of `i`
//! (`get_buffer_index` in msccl-tools' `language/collectives.py`). Where the two do not fit, a copy
//! before the program or after it makes them fit, as NCCL copies for a call that is not in place.

use super::program::{Memory as Letter, Op, Place, Program};
use super::{At, MscclError};
use lockstep_core::collective::Collective;
use lockstep_core::schedule::{Action, Buffer, Slice};

/// The place of one of the program's memories: its chunk `c` of rank `r` is our `first + c + r * a_rank`.
#[derive(Clone, Copy, Debug)]
struct Home {
    buffer: Buffer,
    first: u32,
    a_rank: u32,
    /// Chunks that it has.
    chunks: u32,
    /// True if the chunks have values before the program starts.
    filled: bool,
}

/// The places of a program's memories in ours.
#[derive(Debug)]
pub(super) struct Memory {
    input: Home,
    output: Home,
    /// Chunks of each rank's `s`.
    scratch: Vec<u32>,
    /// Copies before the program, and after it, for every rank.
    before: Option<Between>,
    after: Option<Between>,
    /// Scratch chunks that are taken.
    taken: u32,
    collective: Collective,
}

/// A copy between two of our memories, the same on every rank but for where its part is.
#[derive(Clone, Copy, Debug)]
struct Between {
    from: Home,
    into: Home,
    chunks: u32,
}

impl Memory {
    /// Lays out the memories of a program.
    pub(super) fn of(program: &Program) -> Result<Memory, MscclError> {
        let (collective, size, cut) = (program.collective, program.size(), program.cut);
        let whole = cut * if collective.in_place() { 1 } else { size };
        let scratch: Vec<u32> = program.gpus.iter().map(|gpu| gpu.scratch).collect();
        // A copy of a tensor begins where a tensor could: its chunks keep their sizes.
        let own = scratch.iter().max().map_or(0, |most| most.next_multiple_of(cut));
        let home = |buffer, chunks| Home { buffer, first: 0, a_rank: 0, chunks, filled: true };
        let part = |home: Home| Home { a_rank: cut, chunks: cut, ..home };
        let all_output = home(Buffer::Output, whole);
        let (input_parts, output_parts) = match collective {
            Collective::AllGather | Collective::Gather { .. } => (cut, whole),
            Collective::ReduceScatter { .. } | Collective::Scatter { .. } => (whole, cut),
            _ => (whole, whole),
        };
        let copied = Home { first: own, ..home(Buffer::Scratch, input_parts) };
        let tensor = home(Buffer::Input, input_parts);
        let mut memory = Memory {
            input: tensor,
            output: Home { filled: false, ..home(Buffer::Output, output_parts) },
            scratch,
            before: None,
            after: None,
            taken: own,
            collective,
        };
        let before = |from, into| Some(Between { from, into, chunks: input_parts });
        match (collective, program.in_place) {
            (_, true) if collective.in_place() => {
                (memory.input, memory.output) = (all_output, all_output);
            }
            (_, false) if collective.in_place() => {
                (memory.input, memory.before) = (copied, before(all_output, copied));
                memory.taken += input_parts;
            }
            (Collective::AllGather, true) => {
                (memory.input, memory.output) = (part(all_output), all_output);
                memory.before = before(tensor, memory.input);
            }
            (Collective::AllToAll, true) => {
                (memory.input, memory.output) = (all_output, all_output);
                memory.before = before(tensor, all_output);
            }
            (Collective::ReduceScatter { .. }, true) => {
                (memory.input, memory.output) = (copied, part(copied));
                memory.before = before(tensor, copied);
                memory.after = Some(Between {
                    from: memory.output,
                    into: home(Buffer::Output, cut),
                    chunks: cut,
                });
                memory.taken += input_parts;
            }
            (Collective::Gather { .. } | Collective::Scatter { .. }, true) => {
                return Err(MscclError::InPlace(collective));
            }
            (_, _) if writes(program, Letter::Input) => {
                (memory.input, memory.before) = (copied, before(tensor, copied));
                memory.taken += input_parts;
            }
            (_, _) => {}
        }
        Ok(memory)
    }

    /// Our slice of `count` chunks at a place of the program.
    pub(super) fn slice(&self, at: At, place: Place, count: u32) -> Result<Slice, MscclError> {
        let home = self.home(at.gpu, place.memory);
        let end = place.offset + i64::from(count);
        if place.offset < 0 || end > i64::from(home.chunks) {
            return Err(MscclError::step(
                at,
                format!(
                    "{place}, cnt {count}, is outside {}, of which this gpu has {}",
                    place.memory.letter(),
                    words(home.chunks)
                ),
            ));
        }
        let first = home.first + at.gpu * home.a_rank + place.offset as u32;
        Ok(Slice { buffer: home.buffer, chunk: first, chunks: count })
    }

    fn home(&self, gpu: u32, letter: Letter) -> Home {
        match letter {
            Letter::Input => Home { chunks: self.has(gpu, self.input, true), ..self.input },
            Letter::Output => Home { chunks: self.has(gpu, self.output, false), ..self.output },
            Letter::Scratch => Home {
                buffer: Buffer::Scratch,
                first: 0,
                a_rank: 0,
                chunks: self.scratch.get(gpu as usize).copied().unwrap_or(0),
                filled: false,
            },
        }
    }

    /// The chunks of a memory that only the root has in a scatter or gather.
    fn has(&self, gpu: u32, home: Home, input: bool) -> u32 {
        let absent = match self.collective {
            Collective::Scatter { root } => input && gpu != root.0,
            Collective::Gather { root } => !input && gpu != root.0,
            _ => false,
        };
        if absent { 0 } else { home.chunks }
    }

    /// The program's name for a chunk of ours: `i[3]`.
    pub(super) fn name(&self, gpu: u32, slice: Slice) -> String {
        let named =
            [Letter::Input, Letter::Output, Letter::Scratch].into_iter().find_map(|letter| {
                let home = self.home(gpu, letter);
                let offset = slice.chunk.checked_sub(home.first + gpu * home.a_rank)?;
                let inside = home.buffer == slice.buffer && offset < home.chunks;
                inside.then(|| format!("{}[{offset}]", letter.letter()))
            });
        named.unwrap_or_else(|| slice.to_string())
    }

    /// Takes scratch that the program does not know of.
    pub(super) fn take(&mut self, chunks: u32) -> Slice {
        let chunk = self.taken;
        self.taken = self.taken.saturating_add(chunks);
        Slice { buffer: Buffer::Scratch, chunk, chunks }
    }

    /// Scratch chunks of a rank, all together.
    pub(super) fn scratch(&self) -> u32 {
        self.taken
    }

    /// The copy that a rank makes before the program.
    pub(super) fn before(&self, gpu: u32) -> Option<Action> {
        // Scatter's input and gather's output are the root's alone.
        self.before.filter(|_| self.has(gpu, self.input, true) > 0).map(|copy| copy.of(gpu))
    }

    /// The copy that a rank makes after it.
    pub(super) fn after(&self, gpu: u32) -> Option<Action> {
        self.after.map(|copy| copy.of(gpu))
    }

    /// True when a chunk of ours holds something before the program and the copies start.
    pub(super) fn filled(&self, buffer: Buffer) -> bool {
        match buffer {
            Buffer::Input => true,
            Buffer::Output => {
                let homes = [self.input, self.output];
                self.collective.in_place()
                    && homes.iter().any(|home| home.buffer == buffer && home.filled)
            }
            Buffer::Scratch => false,
        }
    }

    /// True for a memory of ours that holds something at first where the program's does not.
    pub(super) fn hides(&self, buffer: Buffer) -> bool {
        buffer == Buffer::Output && self.collective.in_place()
    }
}

impl Between {
    fn of(self, gpu: u32) -> Action {
        let slice = |home: Home| Slice {
            buffer: home.buffer,
            chunk: home.first + gpu * home.a_rank,
            chunks: self.chunks,
        };
        Action::Copy { from: slice(self.from), into: slice(self.into) }
    }
}

/// `1 chunk`, `2 chunks`.
pub(super) fn words(chunks: u32) -> String {
    match chunks {
        1 => "1 chunk".to_owned(),
        _ => format!("{chunks} chunks"),
    }
}

/// True when some step writes to a memory.
fn writes(program: &Program, letter: Letter) -> bool {
    program.steps().any(|(_, _, step)| {
        let writes = !matches!(step.op, Op::Send | Op::ReceiveReduceSend | Op::Nop);
        writes && step.dst.memory == letter
    })
}
