//! The texts of a hang: its program and its repaired program, by the names of their files, and its
//! chapters.

use crate::scenario::Chapter;

/// The program of a scenario, by the name of its file.
macro_rules! program {
    ($name:literal) => {
        include_str!(concat!("../programs/", $name, ".py"))
    };
}
pub(super) use program;

/// The repaired one.
macro_rules! repaired {
    ($name:literal) => {
        include_str!(concat!("../programs/", $name, ".fixed.py"))
    };
}
pub(super) use repaired;

/// A chapter that begins where the simulation stops at `stop`.
pub(super) const fn at(stop: &'static str, says: &'static str) -> Chapter {
    Chapter { stop, says }
}
