//! The explanations of what is seen that are still open besides the one that is told.

/// The weight of the open alternatives against an explanation. A rule says which are open; the
/// decision makes the certainty of its finding of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alternatives {
    /// None is open.
    #[default]
    None,
    /// Others are open and less likely.
    LessLikely,
    /// Others are open and as likely.
    AsLikely,
}
