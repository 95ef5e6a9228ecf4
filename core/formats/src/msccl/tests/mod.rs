//! MSCCL programs: those that Microsoft ships are correct, ours come back as they were written, and wrong
//! ones are refused at the wrong place.

mod hostile;
mod programs;
mod refusals;
mod round_trip;
mod standing;

use super::{MscclError, read};
use lockstep_core::schedule::{ProvedTable, Schedule, ScheduleError, Table};
use std::fmt::Write;

/// The schedule of a table, if it is proved.
pub(super) fn prove_table(table: Table) -> Result<Schedule, ScheduleError> {
    let (collective, size) = (table.collective(), table.size());
    Schedule::from_table(&ProvedTable::new(table)?, collective, size)
}

/// Writes the XML of small programs.
#[derive(Default)]
pub(super) struct Xml {
    text: String,
    in_block: bool,
    in_gpu: bool,
    step: u32,
}

impl Xml {
    /// A program for `gpus` of `coll` with `chunks` a loop.
    pub(super) fn new(coll: &str, gpus: u32, chunks: u32, in_place: bool) -> Xml {
        let mut xml = Xml::default();
        writeln!(
            xml.text,
            "<algo name=\"test\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{chunks}\" \
             ngpus=\"{gpus}\" coll=\"{coll}\" inplace=\"{}\" outofplace=\"{}\" minBytes=\"0\" \
             maxBytes=\"0\">",
            u8::from(in_place),
            u8::from(!in_place)
        )
        .unwrap();
        xml
    }

    /// The next GPU.
    pub(super) fn gpu(mut self, id: u32, scratch: u32) -> Xml {
        self = self.end_gpu();
        self.in_gpu = true;
        writeln!(
            self.text,
            "<gpu id=\"{id}\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"{scratch}\">"
        )
        .unwrap();
        self
    }

    /// The next thread block of the GPU, on channel 0.
    pub(super) fn tb(self, id: u32, send: i32, recv: i32) -> Xml {
        self.tb_on(id, send, recv, 0)
    }

    /// The next thread block of the GPU.
    pub(super) fn tb_on(mut self, id: u32, send: i32, recv: i32, chan: u32) -> Xml {
        self = self.end_block();
        (self.in_block, self.step) = (true, 0);
        writeln!(self.text, "<tb id=\"{id}\" send=\"{send}\" recv=\"{recv}\" chan=\"{chan}\">")
            .unwrap();
        self
    }

    /// A step without a dependency: `op("s", "i0", "i0")`.
    pub(super) fn op(self, kind: &str, src: &str, dst: &str) -> Xml {
        self.full(kind, src, dst, 1, None, false)
    }

    /// A step that others may wait for.
    pub(super) fn flagged(self, kind: &str, src: &str, dst: &str) -> Xml {
        self.full(kind, src, dst, 1, None, true)
    }

    /// A step that waits.
    pub(super) fn after(self, kind: &str, src: &str, dst: &str, after: (i32, i32)) -> Xml {
        self.full(kind, src, dst, 1, Some(after), false)
    }

    /// Any step.
    pub(super) fn full(
        mut self,
        kind: &str,
        src: &str,
        dst: &str,
        count: u32,
        after: Option<(i32, i32)>,
        flagged: bool,
    ) -> Xml {
        let (depid, deps) = after.unwrap_or((-1, -1));
        let (src, dst) = (src.split_at(1), dst.split_at(1));
        writeln!(
            self.text,
            "<step s=\"{}\" type=\"{kind}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" \
             dstoff=\"{}\" cnt=\"{count}\" depid=\"{depid}\" deps=\"{deps}\" hasdep=\"{}\"/>",
            self.step,
            src.0,
            src.1,
            dst.0,
            dst.1,
            u8::from(flagged)
        )
        .unwrap();
        self.step += 1;
        self
    }

    fn end_block(mut self) -> Xml {
        if std::mem::take(&mut self.in_block) {
            self.text.push_str("</tb>\n");
        }
        self
    }

    fn end_gpu(mut self) -> Xml {
        self = self.end_block();
        if std::mem::take(&mut self.in_gpu) {
            self.text.push_str("</gpu>\n");
        }
        self
    }

    /// The text.
    pub(super) fn end(self) -> String {
        self.end_gpu().text + "</algo>\n"
    }

    /// The reason that the program is refused.
    pub(super) fn refusal(self) -> MscclError {
        let text = self.end();
        read(&text).err().unwrap_or_else(|| panic!("not refused:\n{text}"))
    }
}
