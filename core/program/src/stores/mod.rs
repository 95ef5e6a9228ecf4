//! Stores in programs: `HashStore`, `FileStore`, `TCPStore` and `PrefixStore`.
//!
//! A `HashStore` is a process's own, and answers at once. The others are shared, and a program is
//! recorded rank by rank, before anything runs: an answer must not depend on any rank's speed. So
//! each rank writes down what it does with them ([`log`]); a rank that cannot go on without an
//! answer stops there, and is executed again when the others have gone as far as they could
//! ([`rounds`]). What comes before what is known from each rank's own order, from barriers of all
//! ranks, and from waits that were answered ([`order`]); an answer is given where everything that
//! the order leaves open leads to the same one ([`found_value`], [`settle`]), and refused where it does
//! not. A rank that waits for what another one sets gets a message from it in the plan.
//!
//! Where ranks draw numbers from a counter, or compete for a key, every order can happen: one is
//! taken, and told ([`choice`]). A loop that asks until a counter has come so far, or a key is
//! there, is the wait that it stands for. A key that nobody sets, or that comes too late by the times
//! of the program ([`times`]), is waited for as long as the store says, and then raises.

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
