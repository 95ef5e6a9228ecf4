//! CUDA streams as a rank has them: the works that each waits for.

use super::work::Work;

/// A stream of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub(super) u32);

impl Stream {
    /// The stream that everything is on unless it says otherwise.
    pub const DEFAULT: Stream = Stream(0);
}

/// A moment of a stream: the works that were on it when the event was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEvent(pub(super) Vec<Work>);

/// The streams of a rank.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) current: Stream,
    /// The works that each stream but the default one waits for.
    pub(super) works: Vec<Vec<Work>>,
}

impl Streams {
    pub(super) fn of(&self, stream: Stream) -> &[Work] {
        let works = self.works.get((stream.0 as usize).wrapping_sub(1));
        works.map(Vec::as_slice).unwrap_or_default()
    }
}
