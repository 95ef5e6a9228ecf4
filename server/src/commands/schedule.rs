//! `lockstep schedule check`: proves that a schedule from a file carries out its collective.

use crate::plan_source::proved_schedule;
use crate::terminal;
use anyhow::Result;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Buffer, Proof, Rounds, Schedule, Table, prove};
use lockstep_core::words::counted;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check a schedule from a file
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Prove that an MSCCL XML file does what it claims; exit code 2 and the first rank, step and
    /// chunk that is wrong if it does not
    Check {
        /// The file
        #[arg(value_name = "FILE.xml")]
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const SCHEMA: &str = "lockstep.schedule-check/1";

/// The JSON that `--json` prints for a schedule that is refused.
#[derive(Serialize)]
struct Refused {
    schema: &'static str,
    proved: bool,
    /// Why, in a sentence.
    error: String,
}

/// The JSON that `--json` prints for a schedule that is proved.
#[derive(Serialize)]
struct Checked<'a> {
    schema: &'static str,
    proved: bool,
    name: &'a str,
    collective: &'static str,
    world_size: u32,
    /// The steps in which messages move, as the page's cards count them.
    steps: u32,
    /// Steps of the file in which ranks only copy or add inside themselves.
    steps_inside: u32,
    chunks: u32,
    scratch_chunks: u32,
    count_multiple_of: u32,
    messages: u64,
    chunks_moved: u64,
    chunks_reduced: u64,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Verb::Check { file, json } = arguments.verb;
    let text = match checked(&file, json) {
        // Scripts get a document whether or not the schedule is right.
        Err(error) if json => {
            let error = format!("{error:#}");
            let refused = Refused { schema: SCHEMA, proved: false, error };
            terminal::text(&(serde_json::to_string_pretty(&refused)? + "\n"))?;
            return Ok(ExitCode::from(2));
        }
        checked => checked?,
    };
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The text about a schedule that is proved.
fn checked(file: &Path, json: bool) -> Result<String> {
    let proved = proved_schedule(file)?;
    let table = proved.table();
    let schedule = Schedule::from_table(&proved, table.collective(), table.size())?;
    let proof = prove(&schedule)?;
    let rounds = Rounds::of(&schedule);
    match json {
        true => as_json(table, &proof, &rounds),
        false => Ok(as_text(table, &proof, &rounds)),
    }
}

fn scratch(table: &Table) -> u32 {
    table.chunks(GroupRank(0), Buffer::Scratch)
}

fn as_json(table: &Table, proof: &Proof, rounds: &Rounds) -> Result<String> {
    let checked = Checked {
        schema: SCHEMA,
        proved: true,
        name: table.name(),
        collective: table.collective().name(),
        world_size: table.size(),
        steps: rounds.count(),
        steps_inside: rounds.inside(),
        chunks: table.cut(),
        scratch_chunks: scratch(table),
        count_multiple_of: table.granularity(),
        messages: proof.messages,
        chunks_moved: proof.chunks_moved,
        chunks_reduced: proof.chunks_reduced,
    };
    Ok(serde_json::to_string_pretty(&checked)? + "\n")
}

fn as_text(table: &Table, proof: &Proof, rounds: &Rounds) -> String {
    let part = if table.collective().in_place() { "tensor" } else { "rank's part" };
    let counts = match table.granularity() {
        1 => "any number of elements".to_owned(),
        multiple => format!("multiples of {multiple} elements"),
    };
    let claim = format!("{} of {}", table.collective(), counted(table.size(), "rank"));
    // A file of ours says in its name what it carries out.
    let what = match table.name().contains(&claim) {
        true => table.name().to_owned(),
        false => format!("{}: {claim}", table.name()),
    };
    format!(
        "{what}, proved\n\
         {}, {} of {}, {} reduced\n\
         {} a {part}, {} a rank; for {counts}\n",
        counted(rounds.count(), "step"),
        counted(proof.messages, "message"),
        counted(proof.chunks_moved, "chunk"),
        counted(proof.chunks_reduced, "chunk"),
        counted(table.cut(), "chunk"),
        counted(scratch(table), "scratch chunk"),
    )
}
