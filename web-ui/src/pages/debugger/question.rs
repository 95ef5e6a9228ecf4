//! The question of a hang: the reader guesses which rank is to blame before the page shows the diagnosis.

use crate::explain;
use yew::prelude::*;

/// Properties of [`Question`].
#[derive(Properties, PartialEq)]
pub(super) struct QuestionProps {
    pub(super) world_size: u32,
    /// The ranks that the diagnosis blames.
    pub(super) culprits: Vec<u32>,
    /// Shows the answer.
    pub(super) on_answer: Callback<()>,
}

/// Asks for the rank that is to blame, judges each guess, and leads to the answer.
#[component(Question)]
pub(super) fn question(props: &QuestionProps) -> Html {
    let guess = use_state(|| None::<u32>);
    let culprits = &props.culprits;
    let verdict = guess.map(|guess| match (culprits.contains(&guess), culprits.len()) {
        (true, 1) => ("good", format!("Yes: rank {guess}.")),
        (true, _) => {
            let all = explain::ranks(culprits.iter().copied());
            ("good", format!("Yes, and not alone: ranks {all} are to blame together."))
        }
        (false, 0) => ("unsure", "No single rank is to blame here.".to_owned()),
        (false, _) => {
            let why = "compare its last calls with those of the others";
            ("bad", format!("Not rank {guess}: {why}."))
        }
    });
    let choice = |rank: u32| {
        let guess = guess.clone();
        let pressed = *guess == Some(rank);
        let choose = Callback::from(move |_: MouseEvent| guess.set(Some(rank)));
        html! { <button class="chip" onclick={choose} aria-pressed={pressed.to_string()} aria-label={format!("Rank {rank}")} data-test="guess">{ rank }</button> }
    };
    html! {
        <section class="question" aria-label="Question" data-test="question">
            <h2>{ "Which rank is to blame?" }</h2>
            <p class="muted">{ "Step through the program and see who waits for whom. What comes later is hidden until then." }</p>
            <p class="culprits">{ for (0..props.world_size).map(choice) }</p>
            <p aria-live="polite" class={classes!("verdict", verdict.as_ref().map(|(class, _)| *class))} data-test="guessed">{ verdict.map(|(_, words)| words).unwrap_or_default() }</p>
            <button class="primary" onclick={props.on_answer.reform(|_: MouseEvent| ())} data-test="show-answer">{ "Show what went wrong" }</button>
        </section>
    }
}
