//! `lockstep version`: this version, and the backends that this machine can run.

use crate::terminal;
use lockstep_core::group::BackendName;
use lockstep_core::plan::PLAN_SCHEMA;
use lockstep_core::trace::TRACE_SCHEMA;
use lockstep_diagnosis::FINDINGS_SCHEMA;
use serde::Serialize;
use std::process::ExitCode;

/// Print the version and what this machine can run
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// This version and what this machine can run; also `GET /api/version`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Version {
    version: &'static str,
    /// The formats that are read and written.
    schemas: [&'static str; 3],
    backends: Vec<BackendState>,
}

/// The state of a backend: whether plans can be run with it.
#[derive(Clone, Debug, Serialize)]
struct BackendState {
    name: BackendName,
    available: bool,
    /// The reason, with the names and folders that were searched.
    why: Option<String>,
}

impl Version {
    /// Looks at this machine.
    pub(crate) fn here() -> anyhow::Result<Version> {
        let launcher = super::rank_launcher()?;
        let state = |name| {
            let refused = lockstep_gpu_exec::backend(name, launcher.clone()).err();
            BackendState {
                name,
                available: refused.is_none(),
                why: refused.map(|error| error.to_string()),
            }
        };
        Ok(Version {
            version: env!("CARGO_PKG_VERSION"),
            schemas: [PLAN_SCHEMA, TRACE_SCHEMA, FINDINGS_SCHEMA],
            backends: vec![state(BackendName::Host), state(BackendName::Nccl)],
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let version = Version::here()?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&version)? + "\n"
    } else {
        let mut text = format!("lockstep {}\n", version.version);
        for backend in &version.backends {
            let why = backend.why.as_deref().unwrap_or("available");
            text.push_str(&format!("backend {}: {why}\n", backend.name));
        }
        text
    };
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}
