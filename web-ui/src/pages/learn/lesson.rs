//! One lesson: the text of a step, its question, and the simulation beside it.

use super::fetched::{Fetched, use_fetched, waiting};
use super::live::Live;
use super::progress::{Kept, use_kept};
use super::question::Question;
use super::text::blocks;
use crate::app::use_shared;
use crate::dom::{self, Listener};
use crate::route::{Route, View};
use crate::ui::keys;
use lockstep_lessons::{Lesson, Show, Step, Title};
use std::rc::Rc;
use web_sys::KeyboardEvent;
use yew::prelude::*;

/// Properties of [`OneLesson`].
#[derive(Properties, PartialEq)]
pub(super) struct OneLessonProps {
    /// The lesson's name in the address.
    pub(super) id: String,
}

/// A lesson at the step that the address names.
#[component(OneLesson)]
pub(super) fn one_lesson(props: &OneLessonProps) -> Html {
    let fetched = use_fetched::<Lesson>(&format!("{}.json", props.id));
    let titles = use_fetched::<Vec<Title>>("index.json");
    match (&fetched, &titles) {
        (Fetched::Here(lesson), _) => {
            let titles = match &titles {
                Fetched::Here(titles) => titles.clone(),
                Fetched::Loading | Fetched::Failed(_) => Rc::default(),
            };
            html! { <Steps lesson={lesson.clone()} {titles} /> }
        }
        // A name that is none is told from a file that does not come.
        (_, Fetched::Here(titles)) if titles.iter().all(|title| title.id != props.id) => html! {
            <p class="banner bad" role="alert" data-test="lesson-missing">
                { format!("There is no lesson {:?}. ", props.id.chars().take(60).collect::<String>()) }
                <a href={Route::to(View::Learn).to_hash()}>{ "These are all." }</a>
            </p>
        },
        _ => waiting(&fetched),
    }
}

#[derive(Properties, PartialEq)]
struct StepsProps {
    lesson: Rc<Lesson>,
    /// All lessons.
    titles: Rc<Vec<Title>>,
}

#[component(Steps)]
fn steps(props: &StepsProps) -> Html {
    let nav = use_shared().nav;
    let Title { id, title, .. } = &props.lesson.title;
    let steps = &props.lesson.steps;
    let asked = nav.route.number::<usize>("at").unwrap_or(1);
    let at = asked.clamp(1, steps.len().max(1)) - 1;
    let (kept, set) = use_kept(id);
    {
        let (kept, set) = (kept.clone(), set.clone());
        let (count, questions) = (steps.len(), props.lesson.title.questions);
        use_effect_with((at, kept.solved()), move |(at, _)| {
            let read = kept.clone().read(*at, count, questions);
            if read != kept {
                set.emit(read);
            }
        });
    }
    let text = use_node_ref();
    {
        let text = text.clone();
        use_effect_with(at, move |_| {
            if let Some(text) = text.cast::<web_sys::HtmlElement>() {
                text.set_scroll_top(0);
            }
            dom::window().scroll_to_with_x_and_y(0.0, 0.0);
        });
    }
    let address = |step: usize| Route::below(View::Learn, id).with("at", step + 1);
    let go = {
        let (nav, id) = (nav.clone(), id.clone());
        Callback::from(move |step: usize| {
            nav.replace(Route::below(View::Learn, &id).with("at", step + 1));
        })
    };
    use_step_keys(at, steps.len(), go.clone());
    let Some(step) = steps.get(at) else { return html! {} };
    let solved = kept.is_solved(at);
    let show = shown(step, solved);
    let choose = {
        let (kept, set, step) = (kept.clone(), set.clone(), step.clone());
        Callback::from(move |answer: usize| {
            let right = step.ask.as_ref().and_then(|ask| ask.answers.get(answer));
            if let Some(right) = right.map(|answer| answer.right) {
                set.emit(kept.clone().answered(at, answer, right));
            }
        })
    };
    let reset = {
        let (go, set) = (go.clone(), set.clone());
        Callback::from(move |_: MouseEvent| {
            set.emit(Kept::default());
            go.emit(0);
        })
    };
    let open = step.ask.is_some() && !solved;
    // What the diagnosis says would answer the questions that follow, too.
    let mut following = (at..).zip(steps.iter().skip(at));
    let asking = following.any(|(index, step)| step.ask.is_some() && !kept.is_solved(index));
    let last = at + 1 == steps.len();
    html! {
        <div class="learn-grid" data-test="lesson" data-lesson={id.clone()} data-at={(at + 1).to_string()} data-steps={steps.len().to_string()}>
            <article class="panel learn-text">
                <header>
                    <p class="crumbs"><a href={Route::to(View::Learn).to_hash()} data-test="all-lessons">{ "← All lessons" }</a>
                        <span class="grow" />
                        <button class="quiet" onclick={reset} title="Forget the answers of this lesson and begin again" data-test="reset-lesson">{ "Start over" }</button></p>
                    <p class="muted">{ title }</p>
                    <ol class="dots" aria-label="Steps">
                        { for steps.iter().enumerate().map(|(index, each)| dot(index, each, at, &kept, address(index))) }
                    </ol>
                </header>
                <div class="prose" ref={text} data-test="lesson-text">
                    if asked != at + 1 { <p class="bad">{ format!("This lesson has {} steps.", steps.len()) }</p> }
                    <h1>{ &step.title }</h1>
                    { blocks(&step.blocks) }
                    if let Some(ask) = &step.ask {
                        <Question key={at} ask={Rc::new(ask.clone())} chosen={kept.chosen(at).to_vec()} {solved} on_choose={choose} />
                    }
                    if !open && !step.then.is_empty() {
                        <div class="then" data-test="then">{ blocks(&step.then) }</div>
                    }
                    if last && !open { { ending(&props.titles, id, kept.done) } }
                </div>
                <footer>
                    { turn(at.checked_sub(1), "← Back", "quiet", "previous-step", &go) }
                    <span class="muted">{ format!("{} of {}", at + 1, steps.len()) }</span>
                    { turn((!last).then_some(at + 1), if open { "Skip →" } else { "Next →" }, if open { "" } else { "primary" }, "next-step", &go) }
                </footer>
            </article>
            <Live {show} step={at} {asking} />
        </div>
    }
}

/// The view at a step; the one that answers its question, once it is answered.
fn shown(step: &Step, solved: bool) -> Show {
    let reveal = step.ask.as_ref().and_then(|ask| ask.reveal.as_ref()).filter(|_| solved);
    match reveal {
        Some(address) => Show { address: address.clone(), ..step.show.clone() },
        None => step.show.clone(),
    }
}

/// A step among the steps.
fn dot(index: usize, step: &Step, at: usize, kept: &Kept, to: Route) -> Html {
    let class = match (step.ask.is_some(), kept.is_solved(index)) {
        (true, true) => "solved",
        (true, false) => "question",
        (false, _) => "",
    };
    let here = (index == at).then_some("step");
    let words = format!("Step {}: {}", index + 1, step.title);
    html! {
        <li><a {class} href={to.to_hash()} aria-current={here} aria-label={words.clone()} title={words}
               data-test={format!("dot-{}", index + 1)} data-solved={kept.is_solved(index).to_string()}>
            { match class { "solved" => "✓", "question" => "?", _ => "" } }</a></li>
    }
}

fn turn(
    to: Option<usize>,
    words: &str,
    class: &'static str,
    test: &'static str,
    go: &Callback<usize>,
) -> Html {
    let step = to.unwrap_or_default();
    let onclick = go.reform(move |_: MouseEvent| step);
    html! { <button {class} {onclick} disabled={to.is_none()} data-test={test}>{ words }</button> }
}

/// The end of a lesson, and the way to the next.
fn ending(titles: &[Title], id: &str, done: bool) -> Html {
    let place = titles.iter().position(|title| title.id == id);
    let next = place.and_then(|place| titles.get(place + 1));
    html! {
        <div class="ending" data-test="lesson-end" data-done={done.to_string()}>
            <p>
                if done {
                    <strong>{ "✓ Done." }</strong>
                } else {
                    { "That was the last step. The lesson counts as done when every question is answered." }
                }
            </p>
            <p>
                if let Some(next) = next {
                    <a class="button primary" href={Route::below(View::Learn, &next.id).to_hash()} data-test="next-lesson">{ format!("Next: {} →", next.title) }</a>
                } else {
                    <a class="button primary" href={Route::to(View::Learn).to_hash()}>{ "All lessons" }</a>
                }
            </p>
        </div>
    }
}

/// J and K: to the next step, to the one before.
#[hook]
fn use_step_keys(at: usize, steps: usize, go: Callback<usize>) {
    use_effect_with((at, steps, go), |(at, steps, go)| {
        let (at, steps, go) = (*at, *steps, go.clone());
        let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
            if keys::typing(&event) || event.default_prevented() {
                return;
            }
            let to = match event.key().as_str() {
                "j" if at + 1 < steps => at + 1,
                "k" if at > 0 => at - 1,
                _ => return,
            };
            event.prevent_default();
            go.emit(to);
        });
        move || drop(heard)
    });
}
