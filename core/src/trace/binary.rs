//! The trace's binary form, made to be streamed: a magic number with the version, then frames.
//!
//! A frame is a little-endian `u32` length and that many bytes of postcard: first one
//! [`TraceHeader`], then batches of events, then at most one end. A reader that meets a cut-off
//! frame keeps everything before it.

use super::format::TraceError;
use super::{Event, TensorValue, Trace, TraceEnd, TraceHeader, What};
use serde::{Deserialize, Serialize};

/// The first bytes of a binary trace; the last one is the version.
pub const TRACE_MAGIC: [u8; 8] = *b"LKSTRCE\x03";

/// No frame is longer: a reader never has to hold more.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// Events a frame when a whole trace is written: some 100 KB …
const EVENTS_PER_FRAME: usize = 4096;

/// … unless they carry results or stacks, of which a frame holds about this much.
const CARRIED_BYTES_PER_FRAME: usize = 4 << 20;

#[derive(Serialize, Deserialize)]
enum FrameBody {
    Header(Box<TraceHeader>),
    Events(Vec<Event>),
    End(TraceEnd),
}

/// Writes a trace frame by frame; the bytes go wherever the caller puts them.
#[derive(Debug, Default)]
pub struct TraceWriter;

impl TraceWriter {
    /// The magic number and the header's frame.
    pub fn header(header: &TraceHeader) -> Vec<u8> {
        let mut bytes = TRACE_MAGIC.to_vec();
        push_frame(&mut bytes, &FrameBody::Header(Box::new(header.clone())));
        bytes
    }

    /// The events as frames, none of them near [`MAX_FRAME_BYTES`]; empty without events.
    pub fn events(mut events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !events.is_empty() {
            let (frame, rest) = events.split_at(frame_length(events));
            push_frame(&mut bytes, &FrameBody::Events(frame.to_vec()));
            events = rest;
        }
        bytes
    }

    /// The last frame.
    pub fn end(end: &TraceEnd) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, &FrameBody::End(end.clone()));
        bytes
    }
}

fn push_frame(bytes: &mut Vec<u8>, body: &FrameBody) {
    let at = bytes.len();
    bytes.extend([0; 4]);
    // postcard fails only on types of unknown length, which frames have none of.
    let mut written = postcard::to_extend(body, std::mem::take(bytes)).unwrap_or_default();
    let length = (written.len() - at - 4) as u32;
    written[at..at + 4].copy_from_slice(&length.to_le_bytes());
    *bytes = written;
}

/// Reads a trace from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct TraceReader {
    pending: Vec<u8>,
    /// Bytes consumed before `pending`.
    consumed: u64,
    header: Option<TraceHeader>,
    end: Option<TraceEnd>,
}

impl TraceReader {
    /// A reader at the start of a trace.
    pub fn new() -> TraceReader {
        TraceReader::default()
    }

    /// Takes the next bytes and returns the events that they complete.
    ///
    /// # Errors
    /// When the bytes are no trace or a frame is damaged; the reader is then of no further use.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
        self.pending.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut at = 0;
        if self.consumed == 0 {
            if self.pending.len() < TRACE_MAGIC.len() {
                return Ok(events);
            }
            check_magic(&self.pending)?;
            at = TRACE_MAGIC.len();
        }
        while let Some(length) = self.pending[at..].first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let damaged = |why: String| TraceError::Damaged { at: self.consumed + at as u64, why };
            if length > MAX_FRAME_BYTES {
                return Err(damaged(format!("a frame of {length} bytes is over the limit")));
            }
            let Some(frame) = self.pending.get(at + 4..at + 4 + length) else {
                break;
            };
            let body = postcard::from_bytes(frame).map_err(|error| damaged(error.to_string()))?;
            match (body, &self.header) {
                (FrameBody::Header(header), None) => {
                    header.check()?;
                    self.header = Some(*header);
                }
                (FrameBody::Header(_), Some(_)) => return Err(damaged("a second header".into())),
                (_, None) => return Err(damaged("events before the header".into())),
                (FrameBody::Events(mut batch), Some(_)) => events.append(&mut batch),
                (FrameBody::End(end), Some(_)) => self.end = Some(end),
            }
            at += 4 + length;
        }
        self.pending.drain(..at);
        self.consumed += at as u64;
        Ok(events)
    }

    /// The header, once it has arrived.
    pub fn header(&self) -> Option<&TraceHeader> {
        self.header.as_ref()
    }

    /// The end, once it has arrived.
    pub fn end(&self) -> Option<&TraceEnd> {
        self.end.as_ref()
    }
}

/// The number of events, at least one, that make up the next frame. Counted by their size: a frame with the
/// usual number of events would pass the limit if each held a whole tensor.
fn frame_length(events: &[Event]) -> usize {
    let mut carried = 0;
    let within = events.iter().take(EVENTS_PER_FRAME).take_while(|event| {
        carried += match &event.what {
            What::Result { value: TensorValue::Bytes(bytes), .. } => bytes.len(),
            What::Scheduled { call, .. } => {
                call.stack.iter().map(|frame| frame.function.len() + frame.file.len()).sum()
            }
            What::Died { how } | What::Unresponsive { how } => how.len(),
            What::Kernel { name, .. } => name.len(),
            _ => 0,
        };
        carried <= CARRIED_BYTES_PER_FRAME
    });
    within.count().max(1)
}

fn check_magic(bytes: &[u8]) -> Result<(), TraceError> {
    if bytes[..7] != TRACE_MAGIC[..7] {
        return Err(TraceError::NotATrace { why: "it does not begin with LKSTRCE".into() });
    }
    if bytes[7] != TRACE_MAGIC[7] {
        let why = format!(
            "its binary version is {}, and this Lockstep reads {}: let the Lockstep that wrote it write JSON",
            bytes[7], TRACE_MAGIC[7]
        );
        return Err(TraceError::NotATrace { why });
    }
    Ok(())
}

impl Trace {
    /// The whole trace as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = TraceWriter::header(&self.header);
        bytes.extend(TraceWriter::events(&self.events));
        if let Some(end) = &self.end {
            push_frame(&mut bytes, &FrameBody::End(end.clone()));
        }
        bytes
    }

    /// Reads a whole trace; one that was cut off has no `end`.
    ///
    /// # Errors
    /// When the bytes are no trace, or end before the header does.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, TraceError> {
        let mut reader = TraceReader::new();
        let events = reader.push(bytes)?;
        match reader.header {
            Some(header) => Ok(Trace { header, events, end: reader.end }),
            None => Err(TraceError::NotATrace { why: "it ends before its header does".into() }),
        }
    }

    /// Reads either form: binary if it begins with the magic number, else JSON.
    ///
    /// # Errors
    /// Those of [`Trace::from_bytes`] and [`Trace::from_json`].
    pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
        if bytes.starts_with(&TRACE_MAGIC[..7]) {
            return Trace::from_bytes(bytes);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Trace::from_json(text),
            Err(_) => Err(TraceError::NotATrace { why: "it is neither binary nor text".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{BackendName, ProcessGroup};
    use crate::rank::GlobalRank;
    use crate::trace::{Origin, Outcome};
    use proptest::prelude::*;

    fn trace(events: u64) -> Trace {
        let origin = Origin::Run { backend: "host".into(), device: "4 processes".into() };
        let groups = vec![ProcessGroup::world(4, BackendName::Host).unwrap()];
        let header = TraceHeader { origin, world_size: 4, groups, plan: None, epoch_ns: 7 };
        let event = |n| Event {
            time_ps: n * 1000,
            rank: GlobalRank(n as u32 % 4),
            what: What::Sent { work: 1, step: 2, peer: GlobalRank(3), slice: None, bytes: n },
        };
        let end = TraceEnd { time_ps: events * 1000, outcome: Outcome::Completed };
        Trace { header, events: (0..events).map(event).collect(), end: Some(end) }
    }

    #[test]
    fn both_forms_read_back() {
        let trace = trace(10_000);
        assert_eq!(Trace::read(&trace.to_bytes()).unwrap(), trace);
        assert_eq!(Trace::read(trace.to_json().as_bytes()).unwrap(), trace);
    }

    /// Results of the largest size that is kept whole: as one frame they would pass the limit.
    #[test]
    fn large_results_are_spread_over_frames() {
        let mut trace = trace(0);
        let value = TensorValue::of(&[7; TensorValue::MAX_WHOLE_BYTES]);
        trace.events = (0..1500)
            .map(|tensor| Event {
                time_ps: 0,
                rank: GlobalRank(0),
                what: What::Result { tensor: crate::plan::TensorId(tensor), value: value.clone() },
            })
            .collect();
        assert!(trace.events.len() * TensorValue::MAX_WHOLE_BYTES > MAX_FRAME_BYTES);
        assert_eq!(Trace::read(&trace.to_bytes()).unwrap(), trace);
    }

    #[test]
    fn a_world_past_the_limit_is_refused_before_anything_is_sized_by_it() {
        let mut trace = trace(1);
        trace.header.world_size = u32::MAX;
        for bytes in [trace.to_bytes(), trace.to_json().into_bytes()] {
            let error = Trace::read(&bytes).unwrap_err().to_string();
            assert!(error.contains("world_size 4294967295"), "{error}");
        }
    }

    proptest! {
        /// However the bytes are cut into pieces, and wherever they end, the reader gives every
        /// event of every whole frame.
        #[test]
        fn a_stream_reads_the_same_in_any_pieces(
            pieces in prop::collection::vec(1usize..5000, 1..100), events in 0u64..9000,
        ) {
            let trace = trace(events);
            let bytes = trace.to_bytes();
            let mut reader = TraceReader::new();
            let (mut read, mut at) = (Vec::new(), 0);
            for piece in pieces.iter().cycle() {
                let end = (at + piece).min(bytes.len());
                read.extend(reader.push(&bytes[at..end]).unwrap());
                prop_assert_eq!(&read[..], &trace.events[..read.len()]);
                at = end;
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!(read, trace.events);
            prop_assert_eq!(reader.end(), trace.end.as_ref());
        }

        #[test]
        fn damage_never_panics(at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = trace(50).to_bytes();
            let at = at.index(bytes.len());
            let cut = Trace::read(&bytes[..at]);
            prop_assert!(cut.is_err() || cut.unwrap().end.is_none());
            bytes[at] = byte;
            let _ = Trace::read(&bytes);
        }
    }
}
