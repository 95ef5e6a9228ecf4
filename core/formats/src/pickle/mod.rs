//! A data-only reader of Python pickles.
//!
//! It constructs dicts, lists, tuples, strings, bytes, numbers, booleans and `None`, and refuses,
//! by name and byte, every opcode that would import, call or build anything. Nothing in a file is
//! ever executed.
//!
//! Why our own: `serde-pickle` fails on integers above 2^63 - 1, which PyTorch's time stamps and
//! thread ids may be, copies a value at every use of the memo (so that a small file can grow
//! without bound), and recurses. Here containers lie in one flat table and are named by index
//! ([`SeqId`], [`DictId`]): a value that is referenced a million times is there once, nothing
//! recurses, neither reading nor dropping, and memory stays proportionate to the file. A container
//! may contain itself, as in Python; who walks values must bound the depth, as typed readers do.
//!
//! The opcodes are those of CPython's `Lib/pickletools.py`, protocols 0 to 5.

mod opcode;
mod reader;
mod text;

use std::fmt;

/// Containers and marks may not nest, nor values pile up, beyond this; Python itself stops near
/// 1,000 levels.
pub(crate) const MAX_STACK: usize = 1 << 20;

/// A pickle that was read; values borrow their strings from the file's bytes.
#[derive(Clone, Debug)]
pub struct Pickle<'a> {
    root: Value<'a>,
    /// The elements of containers, one after the other: a dump has a dozen small containers an
    /// entry, and an allocation for each would cost more than reading it.
    elements: Vec<Value<'a>>,
    sequences: Vec<Span>,
    dicts: Vec<Span>,
    /// Strings that could not be borrowed because the file writes them with escapes.
    texts: Vec<String>,
}

/// The range of a container's elements; a dict's are its keys and values in turn.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: usize,
    length: usize,
    /// Room that is kept for it from `start` on.
    room: usize,
}

/// A value, cheap to copy: containers are indices into their [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above 2^63 - 1.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// A string that lies in the file as it is.
    Str(&'a str),
    /// A string that was unescaped; see [`Pickle::str`].
    Text(TextId),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list.
    List(SeqId),
    /// A tuple.
    Tuple(SeqId),
    /// A dict.
    Dict(DictId),
}

/// The index of an unescaped string in its pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextId(u32);

/// The index of a list's or tuple's elements in their pickle: the same index is the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(u32);

/// The index of a dict's items in their pickle: the same index is the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DictId(u32);

impl Value<'_> {
    /// Equality that does not read a string which both are at the same place of the file.
    pub(crate) fn is(self, other: Value<'_>) -> bool {
        match (self, other) {
            (Value::Str(a), Value::Str(b)) => std::ptr::eq(a, b) || a == b,
            (a, b) => a == b,
        }
    }
}

impl<'a> Pickle<'a> {
    /// The outermost value.
    pub fn root(&self) -> Value<'a> {
        self.root
    }

    /// The elements of a list or tuple; `None` for anything else.
    pub fn seq(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::List(id) | Value::Tuple(id) => self.span(self.sequences.get(id.0 as usize)?),
            _ => None,
        }
    }

    fn span(&self, span: &Span) -> Option<&[Value<'a>]> {
        self.elements.get(span.start..)?.get(..span.length)
    }

    /// The items of a dict in the file's order; `None` for anything else. A key that is there
    /// twice counts with its last value, as in Python.
    pub fn dict(&self, value: Value<'a>) -> Option<&[[Value<'a>; 2]]> {
        match value {
            Value::Dict(id) => Some(self.span(self.dicts.get(id.0 as usize)?)?.as_chunks().0),
            _ => None,
        }
    }

    /// The identity of a dict among the pickle's dicts; `None` for anything else.
    pub(crate) fn dict_number(&self, value: Value<'a>) -> Option<u32> {
        match value {
            Value::Dict(id) => Some(id.0),
            _ => None,
        }
    }

    /// A string; `None` for anything else.
    pub fn str(&self, value: Value<'a>) -> Option<&str> {
        match value {
            Value::Str(text) => Some(text),
            Value::Text(id) => self.texts.get(id.0 as usize).map(String::as_str),
            _ => None,
        }
    }
}

/// The reason that bytes are not a pickle that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// The bytes end in the middle.
    #[error("the pickle is cut off at byte {at}: copy the whole file again")]
    Truncated {
        /// The offset at which the next byte should be.
        at: usize,
    },
    /// The opcode would run code or refer to something outside the file.
    #[error(
        "the pickle asks for {opcode} at byte {at}, which would run code: Lockstep only reads \
         data, so this is no recording that it can open"
    )]
    Refused {
        /// The opcode's name in `pickletools`.
        opcode: &'static str,
        /// Its offset in bytes.
        at: usize,
    },
    /// The opcode builds something that recordings do not hold.
    #[error(
        "the pickle uses {opcode} at byte {at}, which recordings do not hold; is it another kind of file?"
    )]
    Unsupported {
        /// The opcode's name in `pickletools`.
        opcode: &'static str,
        /// Its offset in bytes.
        at: usize,
    },
    /// No such opcode exists.
    #[error("byte {at} ({byte:#04x}) is no pickle opcode: the file is damaged or no pickle")]
    UnknownOpcode {
        /// The byte.
        byte: u8,
        /// Its offset in bytes.
        at: usize,
    },
    /// A newer protocol than any that exists.
    #[error(
        "the pickle says protocol {protocol} at byte {at}; protocols go up to 5: the file is damaged or no pickle"
    )]
    Protocol {
        /// The protocol.
        protocol: u8,
        /// The offset at which it says so.
        at: usize,
    },
    /// The opcode needs values that are not there.
    #[error("{opcode} at byte {at} has nothing to work on: the file is damaged")]
    StackUnderflow {
        /// The opcode's name in `pickletools`.
        opcode: &'static str,
        /// Its offset in bytes.
        at: usize,
    },
    /// The opcode adds to something that is no list or dict.
    #[error("{opcode} at byte {at} adds to something that is no {wanted}: the file is damaged")]
    WrongKind {
        /// The opcode's name in `pickletools`.
        opcode: &'static str,
        /// The kind that it needs.
        wanted: &'static str,
        /// Its offset in bytes.
        at: usize,
    },
    /// The memo has no such value.
    #[error(
        "byte {at} refers to remembered value {index}, which was never stored: the file is damaged"
    )]
    NotInMemo {
        /// Its index.
        index: u32,
        /// The offset at which it is asked for.
        at: usize,
    },
    /// A text form of a number or string is malformed.
    #[error("the argument of {opcode} at byte {at} is malformed: the file is damaged")]
    BadArgument {
        /// The opcode's name in `pickletools`.
        opcode: &'static str,
        /// Its offset in bytes.
        at: usize,
    },
    /// An integer below -2^63 or above 2^64 - 1.
    #[error(
        "the integer at byte {at} has more than 64 bits; recordings hold none, so the file is damaged or of another kind"
    )]
    IntegerTooLarge {
        /// Its offset in bytes.
        at: usize,
    },
    /// Values pile up or nest beyond [`MAX_STACK`].
    #[error("values nest or pile up beyond {limit} at byte {at}: this is no recording")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The offset at which it is passed.
        at: usize,
    },
}

impl fmt::Display for Value<'_> {
    /// The kind of the value, for messages: `a list`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Value::None => "None",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Unsigned(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Str(_) | Value::Text(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) => "a dict",
        })
    }
}

#[cfg(test)]
mod tests;
