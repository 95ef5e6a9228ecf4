//! Schedules from files: read, proved, and followed to the step where they go wrong.

use super::file;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{
    Buffer, ProofError, ProvedTable, Rounds, Schedule, ScheduleError, Table, prove,
};
use lockstep_formats::goal;
use lockstep_formats::msccl;
use lockstep_web_protocol::{Proved, Refused, Response, ScheduleFile};
use std::sync::Arc;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::File;

/// More chunks than this, over all ranks and buffers, are no picture any more.
const MAX_SHOWN: u64 = 8192;

/// Elements a chunk in the plan that runs a schedule once: enough to see values.
const ELEMENTS_A_CHUNK: u64 = 2;

/// Reads and proves the schedule in the first of `files`, and follows it to before `step`: where it
/// goes wrong if absent, or the end.
pub(super) async fn check(files: Vec<JsValue>, step: Option<u32>) -> Result<Response, String> {
    let file = files.into_iter().find_map(|file| file.dyn_into::<File>().ok());
    let file = file.ok_or("There is no file in what you dropped.")?;
    let name = file.name();
    if file.size() > msccl::MAX_XML_BYTES as f64 {
        return Err(format!(
            "{name} is longer than any MSCCL program: it has {} bytes",
            file.size()
        ));
    }
    let bytes = file::read(&file).await?;
    // What is GOAL is told so by the reader.
    if !msccl::looks_like_msccl(&bytes) && !goal::looks_like_goal(&bytes) {
        return Err(format!("{name} is no MSCCL program: those are XML with an element <algo>"));
    }
    let text = String::from_utf8(bytes).map_err(|error| format!("{name}: {error}"))?;
    let table = msccl::read(&text).map_err(|error| format!("{name}: {error}"))?;
    let table = Arc::new(table);
    let verdict = match ProvedTable::new((*table).clone()) {
        Ok(proved) => Ok(Box::new(proved_of(&proved)?)),
        Err(ScheduleError::Refused { error, .. }) => Err(refused(&table, &error)),
        Err(other) => return Err(format!("{name}: {other}")),
    };
    let step = step.or(verdict.as_ref().err().and_then(Refused::shown_before));
    let standing = (chunks_of(&table) <= MAX_SHOWN)
        .then(|| ProvedTable::standing(&table, step.unwrap_or(table.steps())));
    Ok(Response::ScheduleChecked(Box::new(ScheduleFile {
        name: table.name().to_owned(),
        claims: table.collective().name().to_owned(),
        ranks: table.size(),
        steps: table.steps(),
        verdict,
        standing,
    })))
}

fn proved_of(table: &ProvedTable) -> Result<Proved, String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let (claims, size) = (table.table().collective(), table.table().size());
    let schedule = Schedule::from_table(table, claims, size).map_err(|error| words(&error))?;
    let proof = prove(&schedule).map_err(|error| words(&error))?;
    let count = u64::from(schedule.granularity()).saturating_mul(ELEMENTS_A_CHUNK);
    let lab = CollectiveLab::new(claims, size, count);
    let plan = lab.plan_with(table).map_err(|error| words(&error))?;
    let (messages, chunks_moved) = (proof.messages, proof.chunks_moved);
    Ok(Proved { rounds: Rounds::of(&schedule).count(), messages, chunks_moved, plan })
}

fn refused(table: &Arc<Table>, error: &ProofError) -> Refused {
    let followed = chunks_of(table) <= MAX_SHOWN;
    Refused {
        sentence: error.to_string(),
        rank: error.rank().0,
        step: error.step().map(|step| step.min(table.steps())),
        slice: error.slice(),
        at_the_end: matches!(error, ProofError::WrongResult { .. }),
        loss: followed.then(|| ProvedTable::loss(table, error)).flatten(),
    }
}

fn chunks_of(table: &Table) -> u64 {
    let ranks = (0..table.size()).map(GroupRank);
    let buffers = [Buffer::Input, Buffer::Output, Buffer::Scratch];
    let chunks = ranks.flat_map(|rank| buffers.map(|buffer| u64::from(table.chunks(rank, buffer))));
    chunks.sum()
}
