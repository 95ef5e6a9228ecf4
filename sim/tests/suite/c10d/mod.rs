//! torch.distributed's API held to PyTorch: every recorded case of `tests/data/pytorch/errors.json`
//! replayed, and what the calls do when their plans are simulated.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

mod cases;
mod recorded;
mod values;
