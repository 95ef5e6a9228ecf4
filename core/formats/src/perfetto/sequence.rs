//! One rank's sequence of packets: its interned strings, and its packets as bytes.

use super::schema::{
    DebugAnnotation, InternedData, InternedName, SEQ_INCREMENTAL_STATE_CLEARED,
    SEQ_NEEDS_INCREMENTAL_STATE, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

const PS_PER_NS: u64 = 1000;

/// Strings and their numbers, and those that no packet has defined yet.
#[derive(Debug, Default)]
struct Interned {
    known: BTreeMap<String, u64>,
    untold: Vec<InternedName>,
}

impl Interned {
    fn iid(&mut self, name: &str) -> u64 {
        if let Some(iid) = self.known.get(name) {
            return *iid;
        }
        // 0 is no number of a string.
        let iid = self.known.len() as u64 + 1;
        self.known.insert(name.to_owned(), iid);
        self.untold.push(InternedName { iid: Some(iid), name: Some(name.to_owned()) });
        iid
    }
}

/// A sequence of packets that share interned strings.
#[derive(Debug)]
pub(super) struct Sequence {
    id: u32,
    begun: bool,
    categories: Interned,
    names: Interned,
    argument_names: Interned,
    strings: Interned,
}

/// The value of an argument.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

/// An event, before its strings have numbers.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: i32,
    pub(super) track: u64,
    pub(super) name: &'a str,
    pub(super) categories: &'a [&'a str],
    pub(super) arguments: Vec<(&'static str, Value)>,
    /// The flow that goes on from here.
    pub(super) flow: Option<u64>,
    /// The flow that ends here.
    pub(super) ends_flow: Option<u64>,
    pub(super) counter: Option<i64>,
}

impl Sequence {
    /// The sequence of a number, from 1.
    pub(super) fn new(id: u32) -> Sequence {
        let (categories, names) = Default::default();
        let (argument_names, strings) = Default::default();
        Sequence { id, begun: false, categories, names, argument_names, strings }
    }

    /// Writes a track's description.
    pub(super) fn describe(
        &mut self,
        track: TrackDescriptor,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let packet = TracePacket { track_descriptor: Some(track), ..TracePacket::default() };
        self.write(packet, out)
    }

    /// Writes an event at a time in picoseconds.
    pub(super) fn event(
        &mut self,
        time_ps: u64,
        event: Event<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut arguments = Vec::with_capacity(event.arguments.len());
        for (name, value) in event.arguments {
            let name_iid = Some(self.argument_names.iid(name));
            let named = DebugAnnotation { name_iid, ..DebugAnnotation::default() };
            arguments.push(match value {
                Value::Text(text) => {
                    DebugAnnotation { string_value_iid: Some(self.strings.iid(&text)), ..named }
                }
                Value::Number(number) => DebugAnnotation { uint_value: Some(number), ..named },
                Value::Flag(flag) => DebugAnnotation { bool_value: Some(flag), ..named },
            });
        }
        let categories = event.categories.iter().map(|name| self.categories.iid(name)).collect();
        let track_event = TrackEvent {
            category_iids: categories,
            debug_annotations: arguments,
            r#type: Some(event.kind),
            name_iid: (!event.name.is_empty()).then(|| self.names.iid(event.name)),
            track_uuid: Some(event.track),
            counter_value: event.counter,
            flow_ids: event.flow.into_iter().collect(),
            terminating_flow_ids: event.ends_flow.into_iter().collect(),
        };
        let packet = TracePacket {
            timestamp: Some(time_ps / PS_PER_NS),
            track_event: Some(track_event),
            ..TracePacket::default()
        };
        self.write(packet, out)
    }

    /// Writes a packet with the strings that it is the first to need.
    pub(super) fn write(&mut self, packet: TracePacket, out: &mut impl Write) -> io::Result<()> {
        let interned = InternedData {
            event_categories: std::mem::take(&mut self.categories.untold),
            event_names: std::mem::take(&mut self.names.untold),
            debug_annotation_names: std::mem::take(&mut self.argument_names.untold),
            debug_annotation_string_values: std::mem::take(&mut self.strings.untold),
        };
        let flags = match self.begun {
            true => SEQ_NEEDS_INCREMENTAL_STATE,
            false => SEQ_INCREMENTAL_STATE_CLEARED,
        };
        self.begun = true;
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(self.id),
            sequence_flags: Some(flags),
            interned_data: (interned != InternedData::default()).then_some(interned),
            ..packet
        };
        out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
    }
}
