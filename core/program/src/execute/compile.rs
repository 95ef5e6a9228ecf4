//! Executes a program: once, and again with rewritten operators if it computes with bools.

use crate::bundle::Bundle;
use crate::execute::ranks::executed;
use lockstep_scenarios::program::ProgramError;
use lockstep_scenarios::program::{Compiled, Options};

/// Executes a program for each of its ranks, and records their calls. `path` is the name that its lines are
/// shown with.
///
/// # Errors
/// The text is not a program, does not call `run`, or exceeds the limits.
pub fn compile(path: &str, text: &str, options: &Options) -> Result<Compiled, ProgramError> {
    let bundle = Bundle::of(path, text, &options.files)?;
    let once = executed(path, text, bundle.as_ref(), options, false);
    let ended = match once {
        Err(error) if counts(&error.message) => {
            executed(path, text, bundle.as_ref(), options, true)
        }
        ended => ended,
    };
    match &bundle {
        None => ended.map_err(|error| error.in_column(text)),
        Some(bundle) => {
            let ended = ended.map_err(|error| error.in_column(&bundle.shown));
            ended
                .map(|compiled| bundle.placed(compiled))
                .map_err(|error| bundle.placed_error(error))
        }
    }
}

/// True if the interpreter refused an operator on a bool, which Python takes for a number. `ok + n` of names
/// is not rewritten as a call everywhere, because the calls would take time.
fn counts(message: &str) -> bool {
    let types =
        message.strip_prefix("Operation `").and_then(|rest| rest.split_once("` not supported"));
    types.is_some_and(|(_, types)| types.contains("`bool`"))
}
