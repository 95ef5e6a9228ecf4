//! An MSCCL program as its file says it.

use super::At;
use lockstep_core::collective::Collective;
use std::fmt;

/// A whole program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    /// The collective that it claims, with a sum for a reduction: the file does not say which.
    pub(super) collective: Collective,
    /// Chunks of a rank's elements: of the tensor of an in-place call of ours, or of one part.
    pub(super) cut: u32,
    /// True if `i` and `o` are the same memory.
    pub(super) in_place: bool,
    /// By id.
    pub(super) gpus: Vec<Gpu>,
}

/// One GPU: our rank.
#[derive(Debug, Default)]
pub(super) struct Gpu {
    /// Its chunks of scratch memory.
    pub(super) scratch: u32,
    /// By id.
    pub(super) blocks: Vec<Block>,
}

/// A thread block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) send: Option<u32>,
    pub(super) recv: Option<u32>,
    pub(super) channel: u32,
    pub(super) steps: Vec<Step>,
}

/// A step of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) src: Place,
    pub(super) dst: Place,
    pub(super) count: u32,
    /// The block and step of the same GPU that must be done before.
    pub(super) after: Option<(u32, u32)>,
    /// True if other steps may wait for this one (`hasdep`).
    pub(super) flagged: bool,
    /// The position that the file states among all that its GPU does.
    pub(super) stated: Option<Stated>,
}

/// The attributes of a step that [`super::write()`] adds to MSCCL's own, so that a schedule comes back as it
/// was: the common step of all ranks that it is in (`at`), and its index among the GPU's actions in that step
/// (`nth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stated {
    pub(super) at: u32,
    pub(super) nth: u32,
}

/// The place where a step reads or writes; below 0 where it does neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) memory: Memory,
    pub(super) offset: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.memory.letter(), self.offset)
    }
}

/// The memories of a GPU, by their letters in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Input,
    Output,
    Scratch,
}

impl Memory {
    pub(super) const ALL: [Memory; 3] = [Memory::Input, Memory::Output, Memory::Scratch];

    pub(super) fn letter(self) -> &'static str {
        match self {
            Memory::Input => "i",
            Memory::Output => "o",
            Memory::Scratch => "s",
        }
    }
}

/// The operation of a step (`type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// `s`: sends src.
    Send,
    /// `r`: receives into dst.
    Receive,
    /// `rcs`: receives into dst and sends it on.
    ReceiveCopySend,
    /// `rrs`: reduces the received chunk with src and sends the result on; it is kept nowhere.
    ReceiveReduceSend,
    /// `rrc`: reduces the received chunk with src into dst.
    ReceiveReduceCopy,
    /// `rrcs`: reduces the received chunk with src into dst and sends the result on.
    ReceiveReduceCopySend,
    /// `cpy`: copies src to dst.
    Copy,
    /// `re`: reduces src into dst.
    Reduce,
    /// `nop`: waits only; for steps that wait for more than one other.
    Nop,
}

impl Op {
    pub(super) const ALL: [Op; 9] = [
        Op::Send,
        Op::Receive,
        Op::ReceiveCopySend,
        Op::ReceiveReduceSend,
        Op::ReceiveReduceCopy,
        Op::ReceiveReduceCopySend,
        Op::Copy,
        Op::Reduce,
        Op::Nop,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Send => "s",
            Op::Receive => "r",
            Op::ReceiveCopySend => "rcs",
            Op::ReceiveReduceSend => "rrs",
            Op::ReceiveReduceCopy => "rrc",
            Op::ReceiveReduceCopySend => "rrcs",
            Op::Copy => "cpy",
            Op::Reduce => "re",
            Op::Nop => "nop",
        }
    }
}

impl Program {
    /// The number of GPUs.
    pub(super) fn size(&self) -> u32 {
        self.gpus.len() as u32
    }

    /// Every step, in the file's order.
    pub(super) fn steps(&self) -> impl Iterator<Item = (At, &Block, &Step)> {
        let blocks = self.gpus.iter().zip(0..).flat_map(|(gpu, id)| {
            gpu.blocks.iter().zip(0..).map(move |(block, tb)| (id, tb, block))
        });
        blocks.flat_map(|(gpu, tb, block)| {
            block.steps.iter().zip(0..).map(move |(step, s)| (At { gpu, tb, step: s }, block, step))
        })
    }
}
