//! A training script that PyTorch itself ran, rank by rank and without its peers, as a plan.
//!
//! `lockstep record` has the user's PyTorch run the script and note what each rank does ([`ScriptEvent`]). Here the
//! notes become operations: calls keep their group, sizes, element type, reduction, root, peer and line; a call that
//! the script waits for at once holds the program, any other is asynchronous; the work between calls is computing.

mod event;
mod programs;
mod roles;

pub use event::{Place, ScriptEvent};
pub use programs::{ScriptPlan, WorkTime, plan_of_roles, plan_of_script};
pub use roles::{NotesByRank, Roles};
