//! PyTorch's behaviour as pure functions: `torch.distributed`'s functions with their checks and
//! words ([`c10d`]), and DistributedDataParallel bucket for bucket ([`ddp`]).
//!
//! No I/O, clocks, threads or unseeded randomness, and no panics on input.

pub mod autograd;
pub mod c10d;
pub mod ddp;
