//! Readers and writers of the files of others, and a job's files joined into one recording.
//!
//! Foreign bytes come from strangers: each reader is bounded in size, depth and time, and refuses
//! with an error that says what, where and how to fix it. Nothing here asks what is wrong with a
//! job: that is `lockstep-diagnosis`.

pub mod archive;
pub mod flight_recorder;
pub mod goal;
pub mod job_log;
pub mod kineto;
pub mod msccl;
pub mod nccl_log;
pub mod pickle;
pub mod recording;
