//! Marks: whose data is in which chunk, for the page to show.

use lockstep_core::plan::Signature;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::Buffer;

/// Per buffer and chunk, which group ranks' data is in it, as a bit set; kept for groups of up to
/// 64 ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) input: Vec<u64>,
    pub(crate) output: Vec<u64>,
    pub(crate) scratch: Vec<u64>,
}

impl Marks {
    pub(crate) fn of(&self, buffer: Buffer) -> &[u64] {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Scratch => &self.scratch,
        }
    }

    pub(crate) fn of_mut(&mut self, buffer: Buffer) -> &mut [u64] {
        match buffer {
            Buffer::Input => &mut self.input,
            Buffer::Output => &mut self.output,
            Buffer::Scratch => &mut self.scratch,
        }
    }

    pub(crate) fn new(signature: &Signature, me: GroupRank) -> Option<Marks> {
        let schedule = &signature.schedule;
        let own = match schedule.size() {
            size if size > 64 => return None,
            size if me.0 < size => 1 << me.0,
            _ => 0,
        };
        let of = |buffer, mark| vec![mark; schedule.chunks(me, buffer) as usize];
        let in_place = if schedule.collective().in_place() { own } else { 0 };
        Some(Marks {
            input: of(Buffer::Input, own),
            output: of(Buffer::Output, in_place),
            scratch: of(Buffer::Scratch, 0),
        })
    }
}
