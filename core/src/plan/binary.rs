//! The plan's binary form: a magic number with the version, then postcard.

use super::{MAX_OPS, Plan, PlanError};

/// The first bytes of a binary plan; the last one is the version.
pub(crate) const PLAN_MAGIC: [u8; 8] = *b"LKSPLAN\x02";

impl Plan {
    /// The plan as bytes, some ten times smaller than its JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        // postcard fails only on types of unknown length, which a plan has none of.
        postcard::to_extend(self, PLAN_MAGIC.to_vec()).unwrap_or_default()
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
            return Err(PlanError::Unreadable(format!("its binary version is {}", magic[7])));
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
