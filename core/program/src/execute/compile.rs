//! A program executed: once, and again where what is true is counted between names.

use crate::execute::ranks::executed;
use lockstep_scenarios::program::ProgramError;
use lockstep_scenarios::program::{Compiled, Options};

/// Executes a program for each of its ranks, and writes down what they do. `path` is the name that
/// its lines are shown with.
///
/// # Errors
/// When the text is no program, does not call `run`, or takes more than it may.
pub fn compile(path: &str, text: &str, options: &Options) -> Result<Compiled, ProgramError> {
    let once = executed(path, text, options, false);
    let ended = match once {
        Err(error) if counts(&error.message) => executed(path, text, options, true),
        ended => ended,
    };
    ended.map_err(|error| error.in_column(text))
}

/// True if the interpreter refused an operator on a bool, which Python takes for a number. `ok + n` of names
/// is not rewritten as a call everywhere, because the calls would take time.
fn counts(message: &str) -> bool {
    let types =
        message.strip_prefix("Operation `").and_then(|rest| rest.split_once("` not supported"));
    types.is_some_and(|(_, types)| types.contains("`bool`"))
}
