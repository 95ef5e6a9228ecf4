//! `lockstep data`: the folder in which `lockstep serve` keeps runs and uploaded traces.

use super::serve::data_folder;
use crate::store::Store;
use crate::terminal;
use crate::token::Token;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look after the folder in which `lockstep serve` keeps its runs
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Take files into the list that are not in it, and say what cannot be read
    Check(Folder),
    /// Print the token that every request of the API has to send: `authorization: Bearer TOKEN`
    Token(Folder),
    /// Put the list aside, under another name, and make it anew from the files
    Rebuild(Folder),
}

#[derive(clap::Args)]
struct Folder {
    /// The folder [default: $LOCKSTEP_DATA_DIR, or lockstep in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let (folder, anew) = match arguments.what {
        What::Check(folder) => (folder, false),
        What::Rebuild(folder) => (folder, true),
        What::Token(folder) => {
            let token = Token::read_in(&data_folder(folder.data_dir)?)?;
            terminal::text(&format!("{}\n", token.text()))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let folder = data_folder(folder.data_dir)?;
    // As `lockstep serve`: the list is for its user alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    if anew {
        Store::forget_list(&folder)?;
    }
    let store = Store::open(&folder)?;
    let mut text = String::new();
    for note in store.notes() {
        text.push_str(note);
        text.push('\n');
    }
    let (runs, traces) = (store.runs()?.len(), store.traces()?.len());
    let plural = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    text.push_str(&format!(
        "{}: {} and {} are in the list\n",
        folder.display(),
        plural(runs, "run"),
        plural(traces, "uploaded trace")
    ));
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}
