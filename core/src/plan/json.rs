//! The plan's JSON form: the fields of [`Plan`] with `"schema": "lockstep.plan/2"` in front.
//! `docs/formats.md` describes it.

use super::{PLAN_SCHEMA, Plan, PlanError};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Seek, SeekFrom, Write};

#[derive(Serialize)]
struct Written<'a> {
    schema: &'a str,
    #[serde(flatten)]
    plan: &'a Plan,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a \"schema\" field")]
struct SchemaOnly {
    schema: Option<String>,
}

impl Plan {
    /// Writes the plan's JSON text, one line, as it is made: of a large plan the text is several times its size.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: impl Write) -> std::io::Result<()> {
        serde_json::to_writer(out, &Written { schema: PLAN_SCHEMA, plan: self })?;
        Ok(())
    }

    /// The plan as JSON text, one line.
    pub fn to_json(&self) -> String {
        // Strings, integers and enums only: there is nothing that JSON cannot hold.
        serde_json::to_string(&Written { schema: PLAN_SCHEMA, plan: self }).unwrap_or_default()
    }

    /// Reads and checks a plan's JSON text.
    ///
    /// # Errors
    /// When the text is no JSON, of another schema, or a plan that cannot be run.
    pub fn from_json(text: &str) -> Result<Plan, PlanError> {
        check_schema(serde_json::from_str(text))?;
        checked(serde_json::from_str(text))
    }

    /// Reads and checks a plan's JSON text as it comes, so that text and plan are never in memory together. The
    /// text is gone through twice: the first time, only the schema is looked for.
    ///
    /// # Errors
    /// Those of [`Plan::from_json`], and when the reader cannot be read.
    pub fn from_json_stream(mut text: impl BufRead + Seek) -> Result<Plan, PlanError> {
        let unreadable = |error: std::io::Error| PlanError::Unreadable(error.to_string());
        let start = text.stream_position().map_err(unreadable)?;
        check_schema(serde_json::from_reader(&mut text))?;
        text.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        checked(serde_json::from_reader(text))
    }
}

fn unreadable(error: serde_json::Error) -> PlanError {
    PlanError::Unreadable(error.to_string())
}

fn check_schema(found: serde_json::Result<SchemaOnly>) -> Result<(), PlanError> {
    match found.map_err(unreadable)?.schema.as_deref() {
        Some(PLAN_SCHEMA) => Ok(()),
        Some(other) => {
            let shown: String = other.chars().take(80).collect();
            Err(PlanError::Unreadable(format!("its schema is {shown:?}")))
        }
        None => Err(PlanError::Unreadable("it has no \"schema\" field".into())),
    }
}

fn checked(plan: serde_json::Result<Plan>) -> Result<Plan, PlanError> {
    let plan = plan.map_err(unreadable)?;
    plan.check()?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::BackendName;
    use crate::plan::PlanBuilder;
    use std::io::{BufReader, Cursor};

    #[test]
    fn a_stream_reads_as_its_text_does() {
        let plan = PlanBuilder::new("x", 3, BackendName::Host).unwrap();
        let plan = plan.every_rank(|_, _| {}).unwrap();
        let text = plan.to_json();
        let stream = |text: &str| {
            Plan::from_json_stream(BufReader::with_capacity(7, Cursor::new(text.to_owned())))
        };
        assert_eq!(stream(&text), Ok(plan));
        for wrong in ["", "{", "[]", "{}", "{\"schema\":\"lockstep.plan/9\"}", &text[..40]] {
            assert_eq!(stream(wrong), Plan::from_json(wrong), "{wrong}");
        }
    }
}
