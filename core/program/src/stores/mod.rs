//! Stores in programs: `HashStore`, `FileStore`, `TCPStore` and `PrefixStore`.
//!
//! A `HashStore` belongs to one process and answers at once. The others are shared, and a program is recorded
//! rank by rank, before anything runs: an answer must not depend on any rank's speed. So each rank writes
//! down its operations on them ([`log`]). A rank that cannot go on without an answer stops there, and is
//! executed again when the others have gone as far as they could ([`rounds`]). The order of operations
//! follows from each rank's own order, from barriers of all ranks, and from waits that were answered
//! ([`order`]). An answer is given if every order that is still possible leads to the same one
//! ([`found_value`], [`settle`]), and refused otherwise. A rank that waits for a key that another rank sets
//! gets a message from it in the plan.
//!
//! If ranks draw numbers from a counter, or compete for a key, every order can happen: one is chosen and
//! reported ([`choice`]). A loop that asks until a counter has reached a value, or a key is there, is
//! recorded as one wait. A key that nobody sets, or that comes too late by the times of the program
//! ([`times`]), is waited for until the store's timeout, and then raises.

mod agreed;
mod answer;
pub(crate) mod bytes;
pub(crate) mod bytes_methods;
pub(crate) mod call;
mod changed_keys;
mod choice;
mod constructors;
mod ended_server;
mod found_value;
pub(crate) mod handle;
mod log;
mod meeting;
mod order;
mod process_stores;
mod rounds;
mod settle;
mod signatures;
mod store_methods;
mod times;
pub(crate) mod unknown_answer;
mod wait_result;

#[cfg(test)]
mod tests;

pub(super) use agreed::Agreed;
pub(super) use bytes::{BytesValue, bytes_of};
pub(super) use constructors::{functions, given, of_c10d};
pub(super) use log::Log;
pub(super) use process_stores::Side;
pub(super) use rounds::{Look, Rounds};
pub(super) use store_methods::python;
