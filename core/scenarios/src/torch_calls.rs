//! The table of [`torch_calls`]: each call's text, and the same in Rust.
//!
//! Texts and functions are two tables, so that a program that only names calls has no c10d in it.

use super::torch_call::TorchCall;
use entry::{Entry, Write};

macro_rules! call {
    ($name:literal, $about:literal, $backends:expr, $min:literal, $program:expr, $write:expr) => {
        Entry {
            call: crate::TorchCall {
                name: $name,
                about: $about,
                backends: $backends,
                min_world_size: $min,
                count: 16,
                program: $program,
            },
            write: $write,
        }
    };
}

mod backends;
mod collectives;
mod entry;
mod groups;
mod objects;
mod point_to_point;
mod together;
mod works;

const ENTRIES: [Entry; COUNT] = joined(&SECTIONS);

static CALLS: [TorchCall; COUNT] = {
    let (mut calls, mut at) = ([ENTRIES[0].call; COUNT], 0);
    while at < COUNT {
        calls[at] = ENTRIES[at].call;
        at += 1;
    }
    calls
};

static WRITES: [Write; COUNT] = {
    let (mut writes, mut at) = ([ENTRIES[0].write; COUNT], 0);
    while at < COUNT {
        writes[at] = ENTRIES[at].write;
        at += 1;
    }
    writes
};

/// Every call, in the order of torch.distributed's documents.
pub fn torch_calls() -> &'static [TorchCall] {
    &CALLS
}

/// The call of that name, if there is one.
pub fn torch_call(name: &str) -> Option<&'static TorchCall> {
    CALLS.iter().find(|call| call.name == name)
}

/// The text of the call of that name in Rust.
pub(super) fn write_of(name: &str) -> Option<Write> {
    let at = CALLS.iter().position(|call| call.name == name)?;
    WRITES.get(at).copied()
}

const SECTIONS: [&[Entry]; 6] = [
    &collectives::CALLS,
    &point_to_point::CALLS,
    &works::CALLS,
    &objects::CALLS,
    &together::CALLS,
    &groups::CALLS,
];

const COUNT: usize = collectives::CALLS.len()
    + point_to_point::CALLS.len()
    + works::CALLS.len()
    + objects::CALLS.len()
    + together::CALLS.len()
    + groups::CALLS.len();

/// One table of several, while compiling.
const fn joined<const N: usize>(sections: &[&[Entry]]) -> [Entry; N] {
    let mut all = [sections[0][0]; N];
    let (mut section, mut next) = (0, 0);
    while section < sections.len() {
        let mut one = 0;
        while one < sections[section].len() {
            all[next] = sections[section][one];
            (one, next) = (one + 1, next + 1);
        }
        section += 1;
    }
    all
}
