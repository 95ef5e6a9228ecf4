//! From bytes of unknown kind to one trace: a Lockstep trace, or the Flight Recorder dumps of one
//! job. The command line gives it paths, the service gives it uploads.

use anyhow::{Result, bail};
use lockstep_core::diagnosis::{Report, diagnose_trace};
use lockstep_core::flight_recorder::{self, Dump};
use lockstep_core::trace::{TRACE_MAGIC, Trace};

/// Files that are gathered one after the other, so that only one need be in memory as bytes.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    trace: Option<(String, Trace)>,
    dumps: Vec<Dump>,
    problems: Vec<String>,
}

/// What the files hold together.
#[derive(Debug)]
pub(crate) struct Read {
    /// The trace.
    pub(crate) trace: Trace,
    /// What is wrong in it; the files that were left out are its notes.
    pub(crate) report: Report,
}

impl Recording {
    /// Takes a file.
    ///
    /// # Errors
    /// When it is a Lockstep trace that cannot be read, or a second one. A dump that cannot be
    /// read is noted and left out.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        if !is_lockstep_trace(bytes) {
            match Dump::read(name, bytes) {
                Ok(dump) => self.dumps.push(dump),
                Err(error) => self.problems.push(error.to_string()),
            }
            return Ok(());
        }
        let trace = Trace::read(bytes).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        if let Some((first, _)) = &self.trace {
            bail!("{first} and {name} are both Lockstep traces; give them one at a time");
        }
        self.trace = Some((name.to_owned(), trace));
        Ok(())
    }

    /// Notes a file that could not be read at all.
    pub(crate) fn leave_out(&mut self, why: String) {
        self.problems.push(why);
    }

    /// Everything together, diagnosed.
    ///
    /// # Errors
    /// When there was nothing that could be read, or files that do not belong together.
    pub(crate) fn read(self) -> Result<Read> {
        let trace = match (self.trace, self.dumps.is_empty()) {
            (Some((_, trace)), true) => trace,
            (Some((name, _)), false) => {
                bail!(
                    "{name} is a Lockstep trace and the others are Flight Recorder dumps; give one or the other"
                )
            }
            (None, false) => flight_recorder::trace_of(self.dumps)?,
            (None, true) => match self.problems.first() {
                Some(first) => bail!("no file could be used; the first problem: {first}"),
                None => bail!("there are no files to diagnose"),
            },
        };
        let mut report = diagnose_trace(&trace);
        report.notes.extend(self.problems);
        Ok(Read { trace, report })
    }
}

/// True for what claims to be ours; whether it is a good trace is seen when it is read.
fn is_lockstep_trace(bytes: &[u8]) -> bool {
    // JSON keeps no order: another tool may have written the schema last.
    let claims = |text: &str| text.starts_with('{') && text.contains("\"lockstep.trace/");
    bytes.starts_with(&TRACE_MAGIC[..7])
        || std::str::from_utf8(bytes).is_ok_and(|text| claims(text.trim_start()))
}
