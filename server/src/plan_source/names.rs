//! The names of plans: collectives and calls of torch.distributed.

use lockstep_core::words::nearest;
use lockstep_scenarios::{torch_call, torch_calls};

/// The collectives by name.
pub(super) const COLLECTIVES: [&str; 9] = [
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
];

/// Every call that can be named: torch.distributed's, and the collectives by their own names.
pub(super) fn call_names() -> impl Iterator<Item = &'static str> {
    let calls = torch_calls().iter().map(|call| call.name);
    let only_here = COLLECTIVES.into_iter().filter(|name| torch_call(name).is_none());
    calls.chain(only_here)
}

/// The error for an unknown name, with the nearest ones.
pub(super) fn unknown(name: &str) -> String {
    let scenarios = lockstep_scenarios::all().iter().map(|scenario| scenario.id);
    let shown: String = name.chars().take(80).collect();
    let near = nearest(name, scenarios.chain(call_names()), 3);
    let meant = match &near[..] {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(", ")),
    };
    format!(
        "{shown:?} is neither a file, nor a scenario, nor a call of torch.distributed{meant} \
         (`lockstep plan --list` names all)"
    )
}
