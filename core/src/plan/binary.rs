//! The plan's binary form: a magic number with the version, then postcard.

use super::{MAX_OPS, Plan, PlanError};
use std::io::{self, BufWriter, Write};

/// The first bytes of a binary plan; the last one is the version.
pub(crate) const PLAN_MAGIC: [u8; 8] = *b"LKSPLAN\x03";

/// Keeps the error of a writer, of which postcard only says that there was one.
struct Told<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Told<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => {
                self.error = Some(error);
                kind.into()
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Plan {
    /// The plan as bytes, some ten times smaller than its JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        // postcard fails only on types of unknown length, which a plan has none of.
        postcard::to_extend(self, PLAN_MAGIC.to_vec()).unwrap_or_default()
    }

    /// Writes the bytes of [`Plan::to_bytes`], which need not be in memory together.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_bytes(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(&PLAN_MAGIC)?;
        let mut told = Told { out, error: None };
        let written = postcard::to_io(self, BufWriter::new(&mut told)).map(drop);
        match (written, told.error) {
            (Ok(()), None) => Ok(()),
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(io::Error::other(error)),
        }
    }

    /// Reads and checks a binary plan.
    ///
    /// # Errors
    /// When the bytes are no plan of this version, or a plan that cannot be run.
    pub fn from_bytes(bytes: &[u8]) -> Result<Plan, PlanError> {
        let Some((magic, body)) = bytes.split_first_chunk::<8>() else {
            return Err(PlanError::Unreadable("it is shorter than a plan's first 8 bytes".into()));
        };
        if magic[..7] != PLAN_MAGIC[..7] {
            return Err(PlanError::Unreadable("it does not begin with LKSPLAN".into()));
        }
        if magic[7] != PLAN_MAGIC[7] {
            return Err(PlanError::Unreadable(format!(
                "its binary version is {}, and this Lockstep reads {}: let the Lockstep that wrote it write JSON",
                magic[7], PLAN_MAGIC[7]
            )));
        }
        let plan: Plan = postcard::from_bytes(body).map_err(|error| {
            PlanError::Unreadable(match error {
                // postcard drops the text of an error that is not its own.
                postcard::Error::SerdeDeCustom => {
                    format!(
                        "a value or a list in it is over its limit (at most {MAX_OPS} operations)"
                    )
                }
                error => format!("its content ends or breaks: {error}"),
            })
        })?;
        plan.check()?;
        Ok(plan)
    }

    /// Reads either form: binary if it begins with the magic number, else JSON.
    ///
    /// # Errors
    /// Those of [`Plan::from_bytes`] and [`Plan::from_json`].
    pub fn read(bytes: &[u8]) -> Result<Plan, PlanError> {
        if bytes.starts_with(&PLAN_MAGIC[..7]) {
            return Plan::from_bytes(bytes);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Plan::from_json(text),
            Err(_) => Err(PlanError::Unreadable("it is neither a binary plan nor text".into())),
        }
    }
}
