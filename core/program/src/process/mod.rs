//! One process of the job, as the functions of a program see it: its state, the answers that only a run gives
//! (`undecided`), and its exceptions. Nothing here knows a function of a program: `execute` passes in the
//! work to do before each call.

pub(crate) mod grad_mode;
pub(crate) mod known_by_all;
pub(crate) mod prints;
pub(crate) mod raised;
pub(crate) mod state;
pub(crate) mod undecided;
