//! The lessons, and what of them is done.

use super::fetched::{Fetched, use_fetched, waiting};
use super::progress::{Kept, use_progress};
use crate::dom;
use crate::route::{Route, View};
use lockstep_core::words::counted;
use lockstep_lessons::Title;
use yew::prelude::*;

/// The lessons under the headings of their chapters.
#[component(LessonList)]
pub(super) fn lesson_list() -> Html {
    let fetched = use_fetched::<Vec<Title>>("index.json");
    let (progress, reset) = use_progress();
    let Fetched::Here(titles) = &fetched else { return waiting(&fetched) };
    let mut chapters: Vec<(&str, Vec<&Title>)> = Vec::new();
    for title in titles.iter() {
        match chapters.last_mut() {
            Some((chapter, titles)) if *chapter == title.chapter => titles.push(title),
            _ => chapters.push((&title.chapter, vec![title])),
        }
    }
    let done = titles.iter().filter(|title| progress.of(&title.id).done).count();
    let minutes: u32 = titles.iter().map(|title| title.minutes).sum();
    let begun = titles.iter().any(|title| progress.of(&title.id) != Kept::default());
    let forget = Callback::from(move |_: MouseEvent| {
        let sure = "Forget all answers and ticks of all lessons?";
        if dom::window().confirm_with_message(sure).unwrap_or(false) {
            reset.emit(());
        }
    });
    html! {
        <div class="learn-list" data-test="lessons" data-done={done.to_string()}>
            <header>
                <h1>{ "Learn distributed training by running it" }</h1>
                <p class="lead">
                    { format!("{}, {minutes} minutes in all. Each has a text and, beside it, a simulation that you can step and change. ", counted(titles.len(), "lesson")) }
                    { "A question comes before its answer: guess first, then look." }
                </p>
                <p class="row">
                    <a href={Route::below(View::Learn, "glossary").to_hash()} data-test="to-glossary">{ "Glossary: the words, and where to see them" }</a>
                    <span class="grow" />
                    if begun {
                        <span class="muted" data-test="lessons-done">{ format!("{done} of {} done; kept in this browser.", titles.len()) }</span>
                        <button class="quiet" onclick={forget} data-test="forget-lessons">{ "Forget" }</button>
                    }
                </p>
            </header>
            { for chapters.into_iter().map(|(chapter, titles)| html! {
                <section>
                    <h2>{ chapter }</h2>
                    <ol>{ for titles.into_iter().map(|title| entry(title, &progress.of(&title.id))) }</ol>
                </section>
            }) }
        </div>
    }
}

fn entry(title: &Title, kept: &Kept) -> Html {
    let mut route = Route::below(View::Learn, &title.id);
    // A lesson that was begun goes on where it was left.
    if !kept.done && kept.at > 0 {
        route = route.with("at", kept.at + 1);
    }
    let (class, words) = match kept {
        kept if kept.done => ("done", "done".to_owned()),
        kept if *kept == Kept::default() => ("new", format!("{} min", title.minutes)),
        kept if title.questions > 0 => {
            ("begun", format!("{} of {} answered", kept.solved(), title.questions))
        }
        _ => ("begun", "begun".to_owned()),
    };
    html! {
        <li>
            <a class={classes!("learn-card", class)} href={route.to_hash()} data-test={format!("lesson-{}", title.id)} data-state={class}>
                <span class="tick" aria-hidden="true">{ if kept.done { "✓" } else { "" } }</span>
                <h3>{ &title.title }</h3>
                <span class="muted">{ words }</span>
                <p>{ &title.after }</p>
            </a>
        </li>
    }
}
