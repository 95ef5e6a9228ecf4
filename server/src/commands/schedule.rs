//! `lockstep schedule check`: whether a schedule from a file does what it claims.

use crate::plan_source::proved_schedule;
use crate::terminal;
use anyhow::Result;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Buffer, Proof, Schedule, Table, prove};
use serde::Serialize;
use std::path::PathBuf;
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

/// What `--json` prints.
#[derive(Serialize)]
struct Checked<'a> {
    schema: &'static str,
    name: &'a str,
    collective: &'static str,
    world_size: u32,
    steps: u32,
    chunks: u32,
    scratch_chunks: u32,
    count_multiple_of: u32,
    messages: u64,
    chunks_moved: u64,
    chunks_reduced: u64,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Verb::Check { file, json } = arguments.verb;
    let proved = proved_schedule(&file)?;
    let table = proved.table();
    let schedule = Schedule::from_table(&proved, table.collective(), table.size())?;
    let proof = prove(&schedule)?;
    let text = match json {
        true => as_json(table, &proof)?,
        false => as_text(table, &proof),
    };
    terminal::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn scratch(table: &Table) -> u32 {
    table.chunks(GroupRank(0), Buffer::Scratch)
}

fn as_json(table: &Table, proof: &Proof) -> Result<String> {
    let checked = Checked {
        schema: "lockstep.schedule-check/1",
        name: table.name(),
        collective: table.collective().name(),
        world_size: table.size(),
        steps: table.steps(),
        chunks: table.cut(),
        scratch_chunks: scratch(table),
        count_multiple_of: table.granularity(),
        messages: proof.messages,
        chunks_moved: proof.chunks_moved,
        chunks_reduced: proof.chunks_reduced,
    };
    Ok(serde_json::to_string_pretty(&checked)? + "\n")
}

fn as_text(table: &Table, proof: &Proof) -> String {
    let part = if table.collective().in_place() { "tensor" } else { "rank's part" };
    let counts = match table.granularity() {
        1 => "any number of elements".to_owned(),
        multiple => format!("multiples of {multiple} elements"),
    };
    format!(
        "{}: {} of {} ranks, proved\n\
         {} steps, {} messages of {} chunks, {} chunks reduced\n\
         {} chunks a {part}, {} scratch chunks a rank; for {counts}\n",
        table.name(),
        table.collective(),
        table.size(),
        table.steps(),
        proof.messages,
        proof.chunks_moved,
        proof.chunks_reduced,
        table.cut(),
        scratch(table),
    )
}
