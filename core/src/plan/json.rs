//! The plan's JSON form: the fields of [`Plan`] with `"schema": "lockstep.plan/2"` in front.
//! `docs/formats.md` describes it.

use super::{PLAN_SCHEMA, Plan, PlanError};
use serde::{Deserialize, Serialize};

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
        let unreadable = |error: serde_json::Error| PlanError::Unreadable(error.to_string());
        let found = serde_json::from_str::<SchemaOnly>(text).map_err(unreadable)?.schema;
        match found.as_deref() {
            Some(PLAN_SCHEMA) => {}
            Some(other) => {
                return Err(PlanError::Unreadable(format!("its schema is {other:?}")));
            }
            None => return Err(PlanError::Unreadable("it has no \"schema\" field".into())),
        }
        let plan: Plan = serde_json::from_str(text).map_err(unreadable)?;
        plan.check()?;
        Ok(plan)
    }
}
