//! Readers and writers of foreign files, and a job's files joined into one recording.
//!
//! Foreign bytes come from strangers: each reader is bounded in size, depth and time, and refuses with an
//! error that says what, where and how to fix it. Nothing here asks what is wrong with a job: that is
//! `lockstep-diagnosis`.
//!
//! A format of a job's files is a folder with a [`reader::Reader`] and a row of [`readers::READERS`]. Its
//! [`reader::Contribution`]s are joined by [`recording`], which knows no format.

pub mod archive;
mod call_words;
pub mod chakra;
mod debug_server;
mod file_names;
pub mod flight_recorder;
pub mod frames;
pub mod goal;
pub mod job_calls;
pub mod job_log;
pub mod kineto;
pub mod msccl;
pub mod nccl_log;
pub mod ncclras;
pub mod perfetto;
pub mod pickle;
pub mod place;
pub mod problem;
mod rank_calls;
pub mod reader;
pub mod readers;
pub mod recording;
mod small_json;
pub mod stacks;
pub mod text;
pub mod torchfrtrace;

#[cfg(test)]
mod tests;
