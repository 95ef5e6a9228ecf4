//! A real job that `lockstep watch` shows here while it runs: what its ranks do, and the newest trace of their calls.

use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::pages::workbench::{Next, Workbench};
use crate::route::{Route, View};
use crate::server::{self, Run};
use crate::turns::use_turns;
use crate::ui::prose;
use lockstep_web_protocol::{Client, Opened, Request, Response, Session};
use serde_json::Value;
use std::rc::Rc;
use yew::prelude::*;

/// The beginning of the address of a watched job: `watched-3`.
const PREFIX: &str = "watched-";

/// The time between two questions to the server, in milliseconds.
const PACE_MS: i32 = 1000;

/// A rank without a call for so long is said to stand, in milliseconds.
const STANDS_MS: u64 = 2000;

/// The diagnosis is shown once all have stood for so long, in milliseconds: what a moving job has not finished yet is
/// no hang.
const JUDGED_MS: u64 = 10_000;

/// A `lockstep watch` that says nothing for so long, in milliseconds, is told of.
const SILENT_MS: u64 = 5000;

/// The number of a watched job in an address.
pub(super) fn id_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// The address of a watched job.
pub(super) fn route_of(id: &str) -> Route {
    Route::below(View::Runs, &format!("{PREFIX}{id}"))
}

/// A number of what the server says of a job.
fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// The way in which a job ended; `None` while it runs.
pub(super) fn ended(job: &Run) -> Option<String> {
    Some(job.text("ended")).filter(|ended| !ended.is_empty())
}

/// The ranks of a job: each rank's number, its doing, and the time since its last call.
fn ranks(job: &Run) -> Vec<(u32, String, u64)> {
    let ranks = job.fields.get("ranks").and_then(Value::as_array);
    let rank = |of: &Value| {
        let doing = of.get("doing").and_then(Value::as_str).unwrap_or_default().to_owned();
        (number(of, "rank") as u32, doing, number(of, "still_ms"))
    };
    ranks.into_iter().flatten().map(rank).collect()
}

/// True if what is not finished is not going to be: no rank moves, or the job has ended.
fn stands(job: &Run) -> bool {
    let ranks = ranks(job);
    let still =
        |(_, doing, still_ms): &(u32, String, u64)| doing != "runs" || *still_ms >= JUDGED_MS;
    ended(job).is_some() || (!ranks.is_empty() && ranks.iter().all(still))
}

/// `ranks 0–2 make calls; rank 3 has made no call for 12 s`.
fn told(job: &Run) -> String {
    let ranks = ranks(job);
    if ranks.is_empty() {
        return "no rank has come to init_process_group yet".to_owned();
    }
    let those = |is: &dyn Fn(&str, u64) -> bool| -> Vec<(u32, u64)> {
        let found = ranks.iter().filter(|(_, doing, still_ms)| is(doing, *still_ms));
        found.map(|(rank, _, still_ms)| (*rank, *still_ms)).collect()
    };
    let part = |found: Vec<(u32, u64)>, one: &str, many: &str, clock: bool| {
        let longest = found.iter().map(|(_, still_ms)| *still_ms).max()?;
        let (noun, verb) = if found.len() == 1 { ("rank", one) } else { ("ranks", many) };
        let who = explain::ranks(found.iter().map(|(rank, _)| *rank));
        let since = if clock { format!(" for {} s", longest / 1000) } else { String::new() };
        Some(format!("{noun} {who} {verb}{since}"))
    };
    let runs = |doing: &str| doing == "runs";
    let parts = [
        part(those(&|doing, ms| runs(doing) && ms < STANDS_MS), "makes calls", "make calls", false),
        part(
            those(&|doing, ms| runs(doing) && ms >= STANDS_MS),
            "has made no call",
            "have made no call",
            true,
        ),
        part(those(&|doing, _| doing == "stopped"), "is stopped", "are stopped", false),
        part(those(&|doing, _| doing == "ended"), "came to its end", "came to their end", false),
        part(those(&|doing, _| doing == "gone"), "is gone", "are gone", false),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The newest news of a job, asked again and again until it has ended.
#[hook]
fn use_job(id: &str) -> Option<Result<Run, String>> {
    let job = use_state(|| None);
    let turns = use_turns();
    let setter = job.setter();
    use_effect_with(id.to_owned(), move |id| {
        let (id, turn) = (id.clone(), turns.next());
        wasm_bindgen_futures::spawn_local(async move {
            while turn.counts() {
                let asked = server::watched_job(&id).await;
                let over = asked.as_ref().is_ok_and(|job| ended(job).is_some());
                if turn.counts() {
                    setter.set(Some(asked));
                }
                if over {
                    return;
                }
                dom::sleep_ms(PACE_MS).await;
            }
        });
        move || turns.end()
    });
    (*job).clone()
}

/// A trace of the job, with its number among those that came.
#[derive(Clone, PartialEq)]
struct Newest {
    traces: u64,
    opened: Rc<Opened>,
    /// Held for as long as it is shown.
    _session: Session,
}

async fn opened(client: &Client, id: &str, traces: u64) -> Result<Newest, String> {
    let bytes = server::watched_trace(id).await?;
    let session = client.new_session();
    let open = Request::OpenTrace { session: session.id(), name: format!("watched job {id}") };
    let (_asked, answer) = client.ask_with(open, &[bytes.into()], None);
    match answer.await?.response {
        Response::Opened(opened) => {
            Ok(Newest { traces, opened: Rc::new(*opened), _session: session })
        }
        _ => Err("the worker answered something else".to_owned()),
    }
}

/// The newest trace of a job that has come to so many; while it is `held` the one before stays.
#[hook]
fn use_newest(id: &str, traces: u64, held: bool) -> Option<Result<Newest, String>> {
    let client = use_shared().client;
    let newest = use_state(|| None::<Result<Newest, String>>);
    let turns = use_turns();
    let shown = newest.as_ref().and_then(|newest| Some(newest.as_ref().ok()?.traces)).unwrap_or(0);
    let wanted = (!held && traces > shown).then_some(traces);
    let setter = newest.setter();
    use_effect_with((id.to_owned(), wanted), move |(id, wanted)| {
        let turn = turns.next();
        if let Some(traces) = *wanted {
            let id = id.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let found = opened(&client, &id, traces).await;
                if turn.counts() {
                    setter.set(Some(found));
                }
            });
        }
    });
    (*newest).clone()
}

/// Properties of [`WatchedJob`].
#[derive(Properties, PartialEq)]
pub(super) struct WatchedJobProps {
    pub(super) id: String,
}

/// A watched job, as it goes on.
#[component(WatchedJob)]
pub(super) fn watched_job(props: &WatchedJobProps) -> Html {
    let held = use_state(|| false);
    let job = use_job(&props.id);
    let traces = job
        .as_ref()
        .and_then(|job| job.as_ref().ok())
        .map_or(0, |job| number(&job.fields, "traces"));
    let newest = use_newest(&props.id, traces, *held);
    let hold = {
        let held = held.clone();
        Callback::from(move |_: Event| held.set(!*held))
    };
    let job = match job {
        None => return html! { <p class="muted">{ "Asking for the job…" }</p> },
        Some(Err(why)) => {
            return html! { <p class="verdict bad" role="alert" data-test="watched-error">{ prose(&why) }</p> };
        }
        Some(Ok(job)) => job,
    };
    let silent_ms = number(&job.fields, "silent_ms");
    let over = ended(&job);
    let report = job.text("report");
    html! {
        <div class="one-run" data-test="watched-job" data-traces={traces.to_string()} data-ended={over.is_some().to_string()}>
            <p class="crumbs"><a href={Route::to(View::Runs).to_hash()} data-test="back-to-runs">{ "← All runs" }</a></p>
            <h1>{ format!("Watched job {}", props.id) }</h1>
            <p><code>{ job.text("command") }</code></p>
            <p class="sentence" aria-live="polite" data-test="watched-told">{ match &over {
                Some(how) => format!("The job ended with {how}."),
                None => format!("It runs: {}.", told(&job)),
            } }
            if over.is_none() && silent_ms >= SILENT_MS { <b>{ format!(" Its lockstep watch has said nothing for {} s.", silent_ms / 1000) }</b> }</p>
            if over.is_none() {
                <label class="check"><input type="checkbox" checked={*held} onchange={hold} data-test="hold" />
                    <span>{ "Hold what is shown, to look at it; the job goes on" }</span></label>
            }
            if !report.is_empty() {
                <details open={true}><summary>{ "What lockstep watch says of it" }</summary><pre data-test="watched-report">{ report }</pre></details>
            }
            { match &newest {
                None => html! { <p class="muted">{ "No calls have been shown yet: each rank tells its last calls from time to time." }</p> },
                Some(Err(why)) => html! { <p class="verdict bad" role="alert">{ prose(why) }</p> },
                Some(Ok(newest)) => html! { <Workbench opened={newest.opened.clone()} judged={stands(&job)} next={Next::SameJob} /> },
            } }
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(fields: Value) -> Run {
        Run { id: "1".to_owned(), fields }
    }

    #[test]
    fn ranks_are_told_by_what_they_do() {
        let rank = |rank: u32, still_ms: u64, doing: &str| json!({ "rank": rank, "still_ms": still_ms, "doing": doing });
        let moving = job(
            json!({ "ranks": [rank(0, 100, "runs"), rank(1, 1999, "runs"), rank(2, 14_000, "runs")] }),
        );
        assert_eq!(told(&moving), "ranks 0, 1 make calls; rank 2 has made no call for 14 s");
        assert!(!stands(&moving));
        let stuck = job(json!({ "ranks": [rank(0, 12_000, "runs"), rank(1, 10, "gone")] }));
        assert_eq!(told(&stuck), "rank 0 has made no call for 12 s; rank 1 is gone");
        assert!(stands(&stuck));
        assert!(!stands(&job(json!({ "ranks": [] }))), "nobody is there yet");
        assert!(stands(&job(json!({ "ranks": [], "ended": "exit code 1" }))));
    }

    #[test]
    fn its_address_is_its_own() {
        assert_eq!(id_of("watched-12"), Some("12"));
        assert_eq!((id_of("12"), route_of("12").to_hash().as_str()), (None, "#/runs/watched-12"));
    }
}
