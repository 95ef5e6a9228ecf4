//! `cargo xtask`: a file a verb.

fn main() {}
