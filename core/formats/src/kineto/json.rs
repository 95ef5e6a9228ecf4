//! The JSON of a profiler's trace, event by event: events of no interest are never kept.

use crate::small_json::Small;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::BufRead;

/// The head of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    pub(super) distributed: Option<DistributedInfo>,
    /// The origin of times, in nanoseconds since 1970; 0 if the file was not read that far.
    pub(super) base_ns: u64,
}

/// `distributedInfo`, as `torch.profiler` writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct DistributedInfo {
    pub(super) backend: String,
    pub(super) rank: Option<u64>,
    pub(super) world_size: Option<u64>,
    pub(super) pg_config: Vec<PgConfig>,
}

/// A process group of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct PgConfig {
    pub(super) pg_name: String,
    pub(super) pg_desc: String,
    pub(super) ranks: Vec<u32>,
}

/// The fields of an event that describe a call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    pub(super) ph: Small,
    pub(super) cat: Small,
    pub(super) name: Small,
    /// Microseconds.
    pub(super) ts: Small,
    pub(super) dur: Small,
    pub(super) args: Args,
}

/// The arguments beside an event: `torch/csrc/profiler/util.h` has the names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Args {
    #[serde(rename = "External id")]
    pub(super) external_id: Small,
    #[serde(rename = "Collective name")]
    pub(super) collective: Small,
    pub(super) dtype: Small,
    #[serde(rename = "In msg nelems")]
    pub(super) in_nelems: Small,
    #[serde(rename = "Out msg nelems")]
    pub(super) out_nelems: Small,
    #[serde(rename = "Group size")]
    pub(super) group_size: Small,
    #[serde(rename = "Process Group Name")]
    pub(super) group_name: Small,
    #[serde(rename = "Process Group Description")]
    pub(super) group_desc: Small,
    #[serde(rename = "Process Group Ranks")]
    pub(super) group_ranks: Small,
    #[serde(rename = "Global rank start")]
    pub(super) rank_start: Small,
    #[serde(rename = "Global rank stride")]
    pub(super) rank_stride: Small,
    #[serde(rename = "Seq")]
    pub(super) seq: Small,
    /// The root's place in the group; of send and recv the other side's.
    #[serde(rename = "Rank")]
    pub(super) rank: Small,
    /// Lockstep's own: how far a call got that had not ended.
    #[serde(rename = "State")]
    pub(super) state: Small,
    #[serde(rename = "Call stack")]
    pub(super) call_stack: Small,
    #[serde(rename = "Input Dims")]
    pub(super) input_dims: Small,
    #[serde(rename = "Input type")]
    pub(super) input_type: Small,
    #[serde(rename = "Concrete Inputs")]
    pub(super) concrete: Small,
}

/// Reads a trace into its head, handing every event on.
///
/// # Errors
/// The error says what is wrong with the JSON, and where. Everything before it was handed on.
pub(super) fn read(
    bytes: &[u8],
    head: &mut Head,
    take: impl FnMut(Event),
) -> Result<(), serde_json::Error> {
    document(serde_json::Deserializer::from_slice(bytes), head, take)
}

/// Reads a trace as it comes: less fast, and without the whole of it in memory.
///
/// # Errors
/// Those of [`read`], and when the reader cannot be read.
pub(super) fn read_stream(
    stream: impl BufRead,
    head: &mut Head,
    take: impl FnMut(Event),
) -> Result<(), serde_json::Error> {
    document(serde_json::Deserializer::from_reader(stream), head, take)
}

fn document<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
    head: &mut Head,
    mut take: impl FnMut(Event),
) -> Result<(), serde_json::Error> {
    reader.deserialize_map(Document { head, take: &mut take })?;
    reader.end()
}

struct Document<'a> {
    head: &'a mut Head,
    take: &'a mut dyn FnMut(Event),
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profiler's trace: an object with traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let head = self.head;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "distributedInfo" => head.distributed = map.next_value()?,
                "baseTimeNanoseconds" => {
                    head.base_ns = map.next_value::<BaseTime>()?.0;
                }
                "traceEvents" => map.next_value_seed(Events { take: &mut *self.take })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Nanoseconds since 1970 do not fit into the digits of a float.
#[derive(Deserialize)]
#[serde(transparent)]
struct BaseTime(u64);

struct Events<'a> {
    take: &'a mut dyn FnMut(Event),
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event>()? {
            (self.take)(event);
        }
        Ok(())
    }
}
