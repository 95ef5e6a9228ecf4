//! The simulator's tests, one program: a file a use. What each is held against stands in its own text.

mod c10d;
mod calibrate;
mod ddp;
mod ddp_values;
mod findings_v2;
mod gloo_order;
mod goal;
mod lending;
mod msccl;
mod plan_v2;
mod pytorch;
mod semantics;
mod stopped;
mod timed;
mod whole;
