//! `lockstep explain`: the meaning of a kind of finding, its symptoms, and its remedy.

use crate::terminal;
use anyhow::{Context, Result};
use lockstep_core::words::nearest;
use lockstep_diagnosis::{Kind, findings_page};
use std::fmt::Write;
use std::process::ExitCode;

/// Explain a kind of finding: what it means, how it looks, how to mend and to prevent it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The kind as findings name it: op_skipped, rank_died, …; without it all are listed
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// Print all of them as Markdown
    #[arg(long, conflicts_with = "kind")]
    markdown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let text = match &arguments.kind {
        Some(name) => {
            let kind = Kind::of_name(name).with_context(|| unknown(name))?;
            kind.explanation().to_text()
        }
        None if arguments.markdown => findings_page(),
        None => Kind::ALL.iter().fold(String::new(), |mut list, kind| {
            let _ = writeln!(list, "{:<24}{}", kind.name(), kind.title());
            list
        }),
    };
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &str) -> String {
    let meant = nearest(name, Kind::ALL.iter().map(|kind| kind.name()), 1);
    let meant = meant.first().map(|meant| format!(" did you mean {meant}?")).unwrap_or_default();
    format!("no kind of finding is called {name}:{meant} `lockstep explain` lists them")
}
