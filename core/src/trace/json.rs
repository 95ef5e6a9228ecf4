//! The trace's JSON form: the fields of [`Trace`] with `"schema": "lockstep.trace/1"` in front.
//! `docs/formats.md` describes it.

use super::Trace;
use super::format::{TRACE_SCHEMA, TraceError};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Written<'a> {
    schema: &'a str,
    #[serde(flatten)]
    trace: &'a Trace,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a \"schema\" field")]
struct SchemaOnly {
    schema: Option<String>,
}

impl Trace {
    /// The trace as JSON text, one line.
    pub fn to_json(&self) -> String {
        // Strings, integers and enums only: there is nothing that JSON cannot hold.
        serde_json::to_string(&Written { schema: TRACE_SCHEMA, trace: self }).unwrap_or_default()
    }

    /// Reads a trace's JSON text.
    ///
    /// # Errors
    /// When the text is no JSON or of another schema.
    pub fn from_json(text: &str) -> Result<Trace, TraceError> {
        let broken = |error: serde_json::Error| TraceError::NotATrace { why: error.to_string() };
        let found = serde_json::from_str::<SchemaOnly>(text).map_err(broken)?.schema;
        match found.as_deref() {
            Some(TRACE_SCHEMA) => {
                let trace: Trace = serde_json::from_str(text).map_err(broken)?;
                trace.header.check()?;
                Ok(trace)
            }
            Some(other) => Err(TraceError::NotATrace { why: format!("its schema is {other:?}") }),
            None => Err(TraceError::NotATrace { why: "it has no \"schema\" field".into() }),
        }
    }
}
