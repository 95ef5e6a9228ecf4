//! A text that is no program: the place and the reason.

use lockstep_scenarios::program::ProgramError;
use yew::prelude::*;

/// The problem with a program.
pub(super) fn wrong_with(error: &ProgramError) -> Html {
    let place = match (error.line, error.column) {
        (0, _) => String::new(),
        (line, 0) => format!("Line {line}: "),
        (line, column) => format!("Line {line}, column {column}: "),
    };
    html! {
        <div class="wrong" role="alert" data-test="program-wrong" data-line={error.line.to_string()} data-column={error.column.to_string()}>
            <p><b>{ place }</b>{ &error.message }</p>
            if let Some(help) = &error.help { <p class="muted">{ help }</p> }
            <p class="muted">{ "This page runs small programs. Your own PyTorch runs any script: " }<code>{ "lockstep record -n 4 -- train.py" }</code></p>
        </div>
    }
}
