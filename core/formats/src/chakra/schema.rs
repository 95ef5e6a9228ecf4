//! The messages of MLCommons Chakra's `schema/protobuf/et_def.proto`, with the numbers of their fields there,
//! as far as they describe calls and computations.

/// `GlobalMetadata`: the first message of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) attr: Vec<Attribute>,
}

/// `AttributeProto`; of its kinds of value those that any attribute of ours has.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(oneof = "AttributeValue", tags = "7, 9, 11, 13, 27, 29")]
    pub(crate) value: Option<AttributeValue>,
}

/// The `oneof` of [`Attribute`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum AttributeValue {
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    Text(String),
}

/// `Node`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Node {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(enumeration = "NodeType", tag = "3")]
    pub(crate) r#type: i32,
    #[prost(uint64, repeated, tag = "4")]
    pub(crate) ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) data_deps: Vec<u64>,
    #[prost(uint64, tag = "6")]
    pub(crate) start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    pub(crate) inputs: Option<IoInfo>,
    #[prost(message, optional, tag = "9")]
    pub(crate) outputs: Option<IoInfo>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) attr: Vec<Attribute>,
}

/// `IOInfo`: lists, as Python prints them.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct IoInfo {
    #[prost(string, tag = "1")]
    pub(crate) values: String,
    #[prost(string, tag = "2")]
    pub(crate) shapes: String,
    #[prost(string, tag = "3")]
    pub(crate) types: String,
}

/// `NodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum NodeType {
    Invalid = 0,
    Metadata = 1,
    MemLoad = 2,
    MemStore = 3,
    Comp = 4,
    CommSend = 5,
    CommRecv = 6,
    CommColl = 7,
}

/// `CollectiveCommType`, and PyTorch's name of each.
pub(crate) const COMM_TYPES: [&str; 10] = [
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
];

impl Attribute {
    pub(crate) fn new(name: &str, value: AttributeValue) -> Attribute {
        Attribute { name: name.to_owned(), value: Some(value) }
    }
}

impl Node {
    fn value(&self, name: &str) -> Option<&AttributeValue> {
        self.attr.iter().find(|attribute| attribute.name == name)?.value.as_ref()
    }

    /// An attribute that is a whole number from 0, whatever kind of integer it was written as.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            AttributeValue::Int32(number) => u64::try_from(*number).ok(),
            AttributeValue::Int64(number) => u64::try_from(*number).ok(),
            AttributeValue::Uint32(number) => Some(u64::from(*number)),
            AttributeValue::Uint64(number) => Some(*number),
            AttributeValue::Bool(_) | AttributeValue::Text(_) => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            AttributeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            AttributeValue::Bool(flag) => Some(*flag),
            _ => None,
        }
    }
}
