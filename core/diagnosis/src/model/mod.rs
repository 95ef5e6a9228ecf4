//! The model of a job: its calls sorted into rows, what its groups stand for, which messages meet, and who
//! waits for whom.

pub(crate) mod calls;
pub(crate) mod ddp_frames;
pub(crate) mod graph;
pub(crate) mod index;
pub(crate) mod messages;
pub(crate) mod roles;
