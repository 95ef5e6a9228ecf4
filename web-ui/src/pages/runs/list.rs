//! The list of runs: filtered, renamed, deleted, two of them chosen to be compared.

use super::compare;
use super::watched::{ended, route_of};
use super::words::{agreement, diagnosis, ended_by_user, ending};
use crate::app::use_shared;
use crate::explain;
use crate::route::{Route, View};
use crate::server::{self, Run};
use crate::sets::{set, sort_few};
use serde_json::Value;
use std::collections::BTreeSet;
use web_sys::{HtmlInputElement, KeyboardEvent, SubmitEvent};
use yew::prelude::*;

/// A row that is being changed.
#[derive(Clone, PartialEq)]
enum Change {
    Name(String),
    /// Deleting is asked about once more.
    Delete(String),
}

/// The list of runs.
#[component(List)]
pub(super) fn list() -> Html {
    let nav = use_shared().nav;
    let runs = use_state(|| None::<Result<Vec<Run>, String>>);
    let watched = use_state(Vec::<Run>::new);
    let again = use_state(|| 0u32);
    let chosen = use_state(BTreeSet::<String>::new);
    let change = use_state(|| None::<Change>);
    let refused = use_state(String::new);
    {
        let (runs, watched) = (runs.setter(), watched.setter());
        use_effect_with(*again, move |_| {
            wasm_bindgen_futures::spawn_local(async move {
                runs.set(Some(server::runs().await));
                // A server of before has none.
                watched.set(server::watched_jobs().await.unwrap_or_default());
            });
        });
    }
    let wanted = use_state(String::new);
    let filter = {
        let wanted = wanted.setter();
        Callback::from(move |event: InputEvent| {
            let input: HtmlInputElement = event.target_unchecked_into();
            wanted.set(input.value().to_lowercase());
        })
    };
    let refresh = {
        let again = again.clone();
        Callback::from(move |()| again.set(*again + 1))
    };
    let done = {
        let (change, refused, refresh) = (change.setter(), refused.setter(), refresh.clone());
        Callback::from(move |answer: Result<(), String>| {
            change.set(None);
            refused.set(answer.err().unwrap_or_default());
            refresh.emit(());
        })
    };
    let compare = {
        let chosen = chosen.clone();
        Callback::from(move |_: MouseEvent| {
            // The older one first: what changed since is the question.
            let mut two: Vec<&String> = chosen.iter().collect();
            sort_few(&mut two, |id| id.parse::<u64>().unwrap_or(0));
            if let [a, b] = two[..] {
                nav.replace(compare::address(a, b));
            }
        })
    };
    let actions = Actions::of(&change, &chosen, &done);
    let press = refresh.reform(|_: MouseEvent| ());
    html! {
        <section class="panel runs">
            <header><h1>{ "Runs" }</h1><span class="grow" />
                <button onclick={compare} disabled={chosen.len() != 2} title="Tick two runs to see them side by side" data-test="compare-runs">{ match chosen.len() {
                    2 => "Compare the two".to_owned(),
                    n => format!("Compare ({n} of 2 ticked)"),
                } }</button>
                <input type="text" class="filter" placeholder="Filter: hang, gloo, rank 2" aria-label="Filter the runs" oninput={filter} data-test="filter-runs" />
                <button onclick={press} data-test="refresh">{ "Refresh" }</button></header>
            if !refused.is_empty() { <p class="verdict bad" role="alert" data-test="runs-refused">{ (*refused).clone() }</p> }
            { watched_jobs(&watched) }
            { match &*runs {
                None => html! { <p class="muted">{ "Asking…" }</p> },
                Some(Err(why)) => html! { <p class="verdict bad" role="alert">{ why }</p> },
                Some(Ok(runs)) if runs.is_empty() => html! {
                    <p class="muted" data-test="no-runs">{ "Nothing was run yet. Choose " }<a href={Route::to(View::Step).to_hash()}>{ "a collective" }</a>{ " or " }<a href={Route::to(View::Hangs).to_hash()}>{ "a hang" }</a>{ " and run it for real, or watch a job of your own: " }<code>{ "lockstep watch --page ADDRESS -- torchrun … train.py" }</code></p>
                },
                Some(Ok(runs)) => html! {
                    <table class="plain" data-test="runs" data-count={runs.len().to_string()}>
                        <thead><tr><th class="tick"><span class="hidden">{ "compare" }</span></th><th>{ "run" }</th><th>{ "name" }</th><th>{ "ranks" }</th><th>{ "backend" }</th><th>{ "when" }</th><th>{ "took" }</th><th>{ "end" }</th><th>{ "diagnosis" }</th><th>{ "against the simulation" }</th><th><span class="hidden">{ "change" }</span></th></tr></thead>
                        <tbody>{ for runs.iter().filter(|run| is_wanted(run, &wanted)).map(|run| row(run, chosen.contains(&run.id), &actions)) }</tbody>
                    </table>
                },
            } }
        </section>
    }
}

/// The real jobs that a `lockstep watch` shows here.
fn watched_jobs(jobs: &[Run]) -> Html {
    if jobs.is_empty() {
        return html! {};
    }
    let job = |job: &Run| {
        let state = ended(job).map_or("it runs".to_owned(), |how| format!("ended with {how}"));
        html! {
            <li><a href={route_of(&job.id).to_hash()} data-test={format!("watched-{}", job.id)}>{ format!("Watched job {}", job.id) }</a>
                <code>{ job.text("command") }</code><span class="muted">{ state }</span></li>
        }
    };
    html! { <ul class="watched-jobs" data-test="watched-jobs">{ for jobs.iter().map(job) }</ul> }
}

/// The changes that a row offers.
struct Actions {
    change: Option<Change>,
    set: Callback<Option<Change>>,
    rename: Callback<(String, String)>,
    delete: Callback<String>,
    choose: Callback<String>,
}

impl Actions {
    /// The changes of a row, given the row that is being changed, the ticked ones, and what hears a
    /// change's end.
    fn of(
        change: &UseStateHandle<Option<Change>>,
        chosen: &UseStateHandle<BTreeSet<String>>,
        done: &Callback<Result<(), String>>,
    ) -> Actions {
        let rename = {
            let done = done.clone();
            Callback::from(move |(id, name): (String, String)| {
                let done = done.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    done.emit(server::rename(&id, &name).await)
                });
            })
        };
        let delete = {
            let (done, chosen) = (done.clone(), chosen.clone());
            Callback::from(move |id: String| {
                let done = done.clone();
                chosen.set(set(chosen.iter().filter(|other| **other != id).cloned()));
                wasm_bindgen_futures::spawn_local(
                    async move { done.emit(server::delete(&id).await) },
                );
            })
        };
        let choose = {
            let chosen = chosen.clone();
            Callback::from(move |id: String| {
                let mut now = (*chosen).clone();
                if !now.remove(&id) {
                    now.insert(id);
                }
                chosen.set(now);
            })
        };
        let set = {
            let change = change.setter();
            Callback::from(move |next: Option<Change>| change.set(next))
        };
        Actions { change: (**change).clone(), set, rename, delete, choose }
    }
}

/// True if a run has every word that was typed, in lower case, somewhere in its row.
fn is_wanted(run: &Run, words: &str) -> bool {
    let shown = ["name", "world_size", "backend"].map(|name| run.text(name)).join(" ");
    let row = format!(
        "{} {shown} {} {} {}",
        run.id,
        ending(run),
        diagnosis(&run.fields),
        agreement(&run.fields)
    );
    let row = row.to_lowercase();
    words.split_whitespace().all(|word| row.contains(word))
}

fn row(run: &Run, is_chosen: bool, actions: &Actions) -> Html {
    let href = Route::below(View::Runs, &run.id).to_hash();
    let ms = |name: &str| run.fields.get(name).and_then(Value::as_f64);
    let (created, ended) = (ms("created_ms"), ms("ended_ms"));
    let id = run.id.clone();
    let goes_on = run.text("state") == "running";
    let choose = actions.choose.reform(move |_: Event| id.clone());
    let name = match &actions.change {
        Some(Change::Name(id)) if *id == run.id => {
            html! { <Rename id={id.clone()} name={run.text("name")} on_name={actions.rename.clone()} on_leave={actions.set.reform(|()| None)} /> }
        }
        _ => html! { run.text("name") },
    };
    let judged = match (ended_by_user(run), diagnosis(&run.fields)) {
        // Nothing was found, and nothing could be: it did not come to its end.
        (true, said) if said == "inconclusive" => {
            "not judged: it did not come to its end".to_owned()
        }
        (_, said) => said,
    };
    html! {
        <tr data-test={format!("run-{}", run.id)}>
            <td class="tick"><input type="checkbox" checked={is_chosen} disabled={goes_on} onchange={choose} aria-label={format!("Compare run {}", run.id)} data-test={format!("tick-{}", run.id)} /></td>
            <td><a {href}>{ &run.id }</a></td>
            <td>{ name }</td>
            <td>{ run.text("world_size") }</td>
            <td>{ run.text("backend") }</td>
            <td>{ created.map(|ms| String::from(js_sys::Date::new(&ms.into()).to_locale_string("en-GB", &wasm_bindgen::JsValue::UNDEFINED))).unwrap_or_default() }</td>
            <td class="mono">{ created.zip(ended).map(|(from, to)| explain::time(((to - from).max(0.0) * 1e9) as u64)).unwrap_or_default() }</td>
            <td>{ ending(run) }</td>
            <td>{ judged }</td>
            <td>{ agreement(&run.fields) }</td>
            <td class="change">{ change(run, goes_on, actions) }</td>
        </tr>
    }
}

/// The buttons of a row, or the question whether it is to be deleted.
fn change(run: &Run, goes_on: bool, actions: &Actions) -> Html {
    let to = |next: Option<Change>| actions.set.reform(move |_: MouseEvent| next.clone());
    if actions.change == Some(Change::Delete(run.id.clone())) {
        let id = run.id.clone();
        let delete = actions.delete.reform(move |_: MouseEvent| id.clone());
        return html! {
            <span class="sure" role="alert">{ format!("Delete run {}, its trace and its dumps?", run.id) }
                <button class="danger" onclick={delete} data-test="delete-sure">{ "Delete" }</button>
                <button onclick={to(None)} data-test="delete-keep">{ "Keep" }</button></span>
        };
    }
    html! {
        <>
        <button class="quiet" onclick={to(Some(Change::Name(run.id.clone())))} aria-label={format!("Rename run {}", run.id)} data-test={format!("rename-{}", run.id)}>{ "Rename" }</button>
        <button class="quiet" disabled={goes_on} onclick={to(Some(Change::Delete(run.id.clone())))} aria-label={format!("Delete run {}", run.id)}
                title={if goes_on { "It is in progress: stop it first" } else { "" }} data-test={format!("delete-{}", run.id)}>{ "Delete" }</button>
        </>
    }
}

/// Properties of [`Rename`].
#[derive(Properties, PartialEq)]
struct RenameProps {
    id: String,
    name: String,
    on_name: Callback<(String, String)>,
    on_leave: Callback<()>,
}

/// A field for another name; Enter keeps it, Escape leaves it.
#[component(Rename)]
fn rename(props: &RenameProps) -> Html {
    let field = use_node_ref();
    {
        let field = field.clone();
        use_effect_with((), move |()| {
            if let Some(field) = field.cast::<HtmlInputElement>() {
                let _ = field.focus();
                field.select();
            }
        });
    }
    let submit = {
        let (field, id, on_name) = (field.clone(), props.id.clone(), props.on_name.clone());
        Callback::from(move |event: SubmitEvent| {
            event.prevent_default();
            if let Some(field) = field.cast::<HtmlInputElement>() {
                on_name.emit((id.clone(), field.value()));
            }
        })
    };
    let key = {
        let on_leave = props.on_leave.clone();
        Callback::from(move |event: KeyboardEvent| {
            if event.key() == "Escape" {
                on_leave.emit(());
            }
        })
    };
    html! {
        <form class="rename" onsubmit={submit}>
            <input ref={field} type="text" maxlength="200" value={props.name.clone()} aria-label="Name of the run" onkeydown={key} data-test="rename-field" />
            <button data-test="rename-keep">{ "Keep" }</button>
        </form>
    }
}
