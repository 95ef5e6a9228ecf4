//! A question: its answers, and what is said to each that was chosen.

use super::text::line;
use crate::dom::{self, Listener};
use crate::ui::keys;
use lockstep_lessons::Ask;
use std::rc::Rc;
use web_sys::KeyboardEvent;
use yew::prelude::*;

/// Properties of [`Question`].
#[derive(Properties, PartialEq)]
pub(super) struct QuestionProps {
    pub(super) ask: Rc<Ask>,
    /// The answers that were chosen, in order.
    pub(super) chosen: Vec<usize>,
    /// True if the right one is among them.
    pub(super) solved: bool,
    pub(super) on_choose: Callback<usize>,
}

/// A question; the keys 1, 2, 3 … choose.
#[component(Question)]
pub(super) fn question(props: &QuestionProps) -> Html {
    let QuestionProps { ask, chosen, solved, on_choose } = props;
    {
        let count = ask.answers.len();
        use_effect_with((on_choose.clone(), *solved), move |(on_choose, solved)| {
            let (on_choose, solved) = (on_choose.clone(), *solved);
            let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
                if solved || keys::typing(&event) || event.default_prevented() {
                    return;
                }
                let pressed = event.key().parse::<usize>().ok();
                if let Some(number) = pressed.filter(|number| (1..=count).contains(number)) {
                    event.prevent_default();
                    on_choose.emit(number - 1);
                }
            });
            move || drop(heard)
        });
    }
    let state = match (solved, chosen.is_empty()) {
        (true, _) => "right",
        (false, true) => "open",
        (false, false) => "wrong",
    };
    html! {
        <section class="learn-ask" aria-label="Question" data-test="question" data-state={state}>
            <p class="asked">{ line(&ask.question) }</p>
            <ol>
                { for ask.answers.iter().enumerate().map(|(index, answer)| {
                    let was_chosen = chosen.contains(&index);
                    let class = match (was_chosen, answer.right) {
                        (true, true) => "right",
                        (true, false) => "wrong",
                        (false, _) => "",
                    };
                    let choose = on_choose.reform(move |_: MouseEvent| index);
                    let mark = match class {
                        "right" => "✓".to_owned(),
                        "wrong" => "✗".to_owned(),
                        _ => (index + 1).to_string(),
                    };
                    html! {
                        <li class={class}>
                            <button onclick={choose} disabled={*solved || was_chosen} data-test={format!("answer-{}", index + 1)}>
                                <b aria-hidden="true">{ mark }</b><span>{ line(&answer.text) }</span>
                            </button>
                            if was_chosen {
                                <p role="status" data-test={format!("why-{}", index + 1)}>
                                    <strong>{ if answer.right { "Right. " } else { "Not this one. " } }</strong>{ line(&answer.why) }
                                </p>
                            }
                        </li>
                    }
                }) }
            </ol>
        </section>
    }
}
