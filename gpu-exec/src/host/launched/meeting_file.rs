//! The file that the ranks of a launched run meet in.

use super::Launch;
use crate::store::{FileStore, PrefixStore};
use lockstep_torch::c10d::store::join_key;

/// All that is ours in a store begins so.
pub(super) const OURS: &str = "lockstep/";

/// The key under which rank 0 publishes how it is reached, and on which machine that is.
pub(super) const MEETING_KEY: &str = "meeting";

pub(super) fn part(launch: &Launch) -> String {
    format!("{OURS}{}", launch.attempt)
}

/// A run's entry in the file that its ranks meet in. Dropping it removes the file, unless another process has
/// written into it since: all ranks have met, and the next run must not meet this one. (c10d counts the
/// processes that have the file open, and keeps it for ever if one of them was killed.)
#[derive(Debug)]
pub(crate) struct MeetingFile {
    pub(super) store: PrefixStore<FileStore>,
    pub(super) launch: Launch,
    pub(super) invitation: Vec<u8>,
}

impl Drop for MeetingFile {
    fn drop(&mut self) {
        let key = join_key(&part(&self.launch), MEETING_KEY);
        // One that cannot be removed is left, and the next run takes it for what it is.
        let _ = self.store.underlying_store().remove_while(&key, &self.invitation, OURS);
    }
}
