//! The world sizes that views step through.

/// The world sizes that the page can show.
pub(super) const WORLD: (u64, u64) = (1, 64);

/// The reason that there are no others.
pub(super) const WORLD_WHY: &str = "The page steps through 1 to 64 ranks; on the command line, lockstep sim --world-size simulates more.";
