//! The blocks of a text as HTML.

use lockstep_lessons::{Block, Inline};
use yew::prelude::*;

/// Paragraphs, lists and code.
pub(super) fn blocks(blocks: &[Block]) -> Html {
    html! { { for blocks.iter().map(block) } }
}

fn block(block: &Block) -> Html {
    match block {
        Block::Text(text) => html! { <p>{ line(text) }</p> },
        Block::List(items) => html! {
            <ul>{ for items.iter().map(|item| html! { <li>{ line(item) }</li> }) }</ul>
        },
        Block::Code(code) => html! { <pre class="mono">{ code }</pre> },
    }
}

/// The pieces of a line.
pub(super) fn line(pieces: &[Inline]) -> Html {
    html! { { for pieces.iter().map(piece) } }
}

fn piece(piece: &Inline) -> Html {
    match piece {
        Inline::Text(text) => html! { { text } },
        Inline::Code(text) => html! { <code>{ text }</code> },
        Inline::Strong(text) => html! { <strong>{ text }</strong> },
        Inline::Link { text, to } => {
            let elsewhere = !to.starts_with('#');
            let target = elsewhere.then_some("_blank");
            let rel = elsewhere.then_some("noreferrer");
            html! { <a href={to.clone()} {target} {rel}>{ text }</a> }
        }
    }
}
