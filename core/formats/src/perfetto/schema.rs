//! The messages of Perfetto's `protos/perfetto/trace/perfetto_trace.proto` that a trace of ours needs, with the
//! numbers of their fields there.

/// `Trace`: a file is any number of these, one behind the other.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// `TracePacket.SequenceFlags`: the first packet of a sequence clears the interned strings, all others need
/// it.
pub(crate) const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
pub(crate) const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

/// `ClockSnapshot`: the same moment on several clocks.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
}

/// `ClockSnapshot.Clock`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) clock_id: Option<u32>,
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timestamp: Option<u64>,
}

/// `BuiltinClock`: nanoseconds since 1970, and the clock of events that name none.
pub(crate) const CLOCK_REALTIME: u32 = 1;
pub(crate) const CLOCK_BOOTTIME: u32 = 6;

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(crate) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub(crate) sibling_order_rank: Option<i32>,
}

/// `TrackDescriptor.ChildTracksOrdering`: by `sibling_order_rank`.
pub(crate) const CHILDREN_EXPLICIT: i32 = 3;

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) legacy_sort_index: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(crate) tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(crate) thread_name: Option<String>,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
}

/// `CounterDescriptor.Unit`.
pub(crate) const UNIT_SIZE_BYTES: i32 = 3;

/// `TrackEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(crate) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(crate) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(crate) terminating_flow_ids: Vec<u64>,
}

/// `TrackEvent.Type`.
pub(crate) const TYPE_SLICE_BEGIN: i32 = 1;
pub(crate) const TYPE_SLICE_END: i32 = 2;
pub(crate) const TYPE_INSTANT: i32 = 3;
pub(crate) const TYPE_COUNTER: i32 = 4;

/// `DebugAnnotation`: an argument of an event.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub(crate) bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(uint64, optional, tag = "17")]
    pub(crate) string_value_iid: Option<u64>,
}

/// `InternedData`: strings that later packets of the sequence name by their numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<InternedName>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) debug_annotation_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "29")]
    pub(crate) debug_annotation_string_values: Vec<InternedName>,
}

/// `EventCategory`, `EventName`, `DebugAnnotationName` and `InternedString`, which are the same on the wire.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
}
