//! The stack of a call: the lines of the user's code, and what libraries do between them, folded.

use super::dropped::{Texts, excerpt, meant, place};
use lockstep_diagnosis::StackPart;
use yew::prelude::*;

/// The stack, innermost first. A line whose file was dropped on the page opens with those around it.
pub(crate) fn stack(parts: &[StackPart], texts: Option<&Texts>) -> Html {
    let part = |part: &StackPart| match part.frames.as_slice() {
        [frame] => html! { <li class={part.own.then_some("own")}>{ line(frame, texts) }</li> },
        frames => html! {
            <li><details><summary data-test="library-frames">{ format!("{} frames in libraries", frames.len()) }</summary>
                <ol>{ for frames.iter().map(|frame| html! { <li>{ frame }</li> }) }</ol></details></li>
        },
    };
    html! { if !parts.is_empty() { <ol class="stack mono">{ for parts.iter().map(part) }</ol> } }
}

fn line(frame: &str, texts: Option<&Texts>) -> Html {
    let dropped = place(frame).and_then(|(path, line)| Some((meant(texts?, path)?, line)));
    match dropped {
        None => frame.into(),
        Some(((name, source), line)) => html! {
            <details><summary data-test="frame-source">{ frame }</summary>
                { excerpt(name, source, 1, line) }</details>
        },
    }
}
