//! Trace files: which form, and frames that never pass the format's limit.

use anyhow::{Context, Result};
use lockstep_core::trace::{Event, TensorValue, Trace, TraceWriter, What};
use std::path::Path;

/// A frame is closed once it is about this long.
const FRAME_BYTES: usize = 1 << 20;

/// Events as frames. Values count: a frame of as many events as a trace file usually has would pass
/// the format's limit if each held a whole tensor.
pub(crate) fn frames(events: Vec<Event>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut batch = Vec::new();
    let mut size = 0;
    for event in events {
        size += size_of_event(&event);
        batch.push(event);
        if size >= FRAME_BYTES {
            bytes.extend(TraceWriter::events(std::mem::take(&mut batch)));
            size = 0;
        }
    }
    if !batch.is_empty() {
        bytes.extend(TraceWriter::events(batch));
    }
    bytes
}

/// About how many bytes the event takes.
fn size_of_event(event: &Event) -> usize {
    match &event.what {
        What::Result { value: TensorValue::Bytes(bytes), .. } => bytes.len() + 32,
        What::Scheduled { call, .. } => {
            let stack = call.stack.iter().map(|frame| frame.function.len() + frame.file.len() + 16);
            256 + stack.sum::<usize>()
        }
        What::Died { how } => how.len() + 32,
        _ => 32,
    }
}

/// Writes a trace: as JSON if the file is called so, else binary.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, trace: &Trace) -> Result<()> {
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => trace.to_json().into_bytes(),
        _ => trace.to_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::plan::TensorId;
    use lockstep_core::rank::GlobalRank;
    use lockstep_core::trace::{MAX_FRAME_BYTES, TraceReader};
    use lockstep_sim::{SimConfig, simulate};

    #[test]
    fn frames_stay_far_below_the_limit_whatever_they_hold() {
        let plan = crate::plan_source::PlanOptions::default().named("all_reduce").unwrap();
        let header = simulate(&plan, &SimConfig::default()).unwrap().header;
        let event = Event {
            time_ps: 0,
            rank: GlobalRank(0),
            what: What::Result {
                tensor: TensorId(0),
                value: TensorValue::Bytes(vec![7; TensorValue::MAX_WHOLE_BYTES]),
            },
        };
        let bytes = frames(vec![event.clone(); 100]);
        let mut at = 0;
        while let Some(length) = bytes[at..].first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            assert!(length < MAX_FRAME_BYTES / 8);
            at += 4 + length;
        }
        let mut reader = TraceReader::new();
        reader.push(&TraceWriter::header(&header)).unwrap();
        assert_eq!(reader.push(&bytes).unwrap(), vec![event; 100]);
    }
}
