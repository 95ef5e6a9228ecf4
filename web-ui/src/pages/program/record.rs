//! The script of the view, recorded by the server's PyTorch: what `lockstep record` does at a terminal.

use crate::app::{Server, use_shared};
use crate::dom;
use crate::handed::Handed;
use crate::server::{self, Record, RecordAsked};
use crate::turns::use_turns;
use crate::ui::{NumberField, TextField, prose};
use std::rc::Rc;
use web_sys::File;
use yew::prelude::*;

/// The most ranks that a server records for a page.
const MAX_WORLD: u64 = 64;

/// The time between two questions to the server, in milliseconds.
const PACE_MS: i32 = 500;

/// The page gives up after so many unanswered questions in a row.
const TRIES: u32 = 20;

/// The progress of a recording.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    /// With its number on the server, once that is known, and what it has printed.
    Running(Option<u64>, String),
    /// It was cut off or ended by an error: its number if there is a plan, the reason, and what it printed.
    Cut(Option<u64>, String, String),
}

/// Properties of [`RecordIt`].
#[derive(Properties, PartialEq)]
pub(super) struct RecordItProps {
    /// The script's name.
    pub(super) name: String,
    pub(super) text: Rc<str>,
    /// The files that were dropped beside it.
    pub(super) files: Vec<(String, String)>,
    /// The world size that the view is asked for; 0 if it is the program's own.
    pub(super) world_size: u32,
}

/// Records the script, and opens what was recorded.
#[component(RecordIt)]
pub(super) fn record_it(props: &RecordItProps) -> Html {
    let shared = use_shared();
    let torch = use_state(|| None::<Result<String, String>>);
    let stage = use_state(|| Stage::Idle);
    let ranks = use_state(|| match props.world_size {
        // Two ranks are enough to show a difference.
        0 => 2,
        ranks => u64::from(ranks).min(MAX_WORLD),
    });
    let (steps, arguments) = (use_state(|| 2u64), use_state(String::new));
    let turns = use_turns();
    {
        let turns = turns.clone();
        use_effect_with((), move |()| move || turns.end());
    }
    let follow = {
        let (stage, handed) = (stage.setter(), shared.handed.clone());
        let turns = turns.clone();
        Callback::from(move |begun: Begun| {
            let (stage, handed, turn) = (stage.clone(), handed.clone(), turns.next());
            wasm_bindgen_futures::spawn_local(async move {
                let told = |now: Stage| {
                    if turn.counts() {
                        stage.set(now);
                    }
                };
                if matches!(begun, Begun::Now(_)) {
                    told(Stage::Running(None, String::new()));
                }
                let still = || turn.counts();
                let running = |id, output| told(Stage::Running(Some(id), output));
                match ended(begun, still, running).await {
                    Err(why) => told(Stage::Cut(None, why, String::new())),
                    Ok(None) => told(Stage::Idle),
                    Ok(Some(record)) => match record.cut {
                        None if record.has_plan => {
                            told(match open(record.id, &handed, still).await {
                                Ok(()) => Stage::Idle,
                                Err(why) => Stage::Cut(None, why, record.output),
                            });
                        }
                        cut => {
                            let plan = record.has_plan.then_some(record.id);
                            let cut = cut.unwrap_or_else(|| "it wrote no plan".to_owned());
                            told(Stage::Cut(plan, cut, record.output));
                        }
                    },
                }
            });
        })
    };
    let look = {
        let (torch, follow) = (torch.clone(), follow.clone());
        let idle = *stage == Stage::Idle;
        Callback::from(move |_: MouseEvent| {
            if idle {
                // Resumes a recording that was started before the page was loaded or left.
                follow.emit(Begun::Before);
            }
            if !matches!(&*torch, Some(Ok(_))) {
                let torch = torch.setter();
                torch.set(None);
                wasm_bindgen_futures::spawn_local(async move {
                    torch.set(Some(server::torch().await));
                });
            }
        })
    };
    let start = {
        let script = vec![(props.name.clone(), props.text.to_string())];
        let asked = RecordAsked {
            files: [script, props.files.clone()].concat(),
            world_size: *ranks as u32,
            steps: *steps as u32,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        };
        follow.reform(move |_: MouseEvent| Begun::Now(asked.clone()))
    };
    let open_cut = |id: u64| {
        let (handed, stage) = (shared.handed.clone(), stage.setter());
        Callback::from(move |_: MouseEvent| {
            let (handed, stage) = (handed.clone(), stage.clone());
            wasm_bindgen_futures::spawn_local(async move {
                if let Err(why) = open(id, &handed, || true).await {
                    stage.set(Stage::Cut(None, why, String::new()));
                }
            });
        })
    };
    let cancel = |id: u64| {
        Callback::from(move |_: MouseEvent| {
            wasm_bindgen_futures::spawn_local(async move {
                let _ = server::cancel_record(id).await;
            });
        })
    };
    // A lesson cannot open a recording.
    if !matches!(shared.server, Server::Here { .. }) || shared.nav.is_inside() {
        return html! {};
    }
    let set = |state: &UseStateHandle<u64>| {
        let state = state.setter();
        Callback::from(move |value: u64| state.set(value))
    };
    let set_arguments = {
        let arguments = arguments.setter();
        Callback::from(move |text: String| arguments.set(text))
    };
    let running = matches!(*stage, Stage::Running(..));
    html! {
        <details class="record-it" data-test="record-it">
            <summary onclick={look}>{ "Record it with this machine's PyTorch" }</summary>
            { match &*torch {
                None => html! { <p class="muted" role="status">{ "Asking Python for its torch…" }</p> },
                Some(Err(why)) => html! { <p class="muted" data-test="no-torch">{ prose(why) }</p> },
                Some(Ok(version)) => html! {
                    <>
                    <p>{ format!("torch {version} runs the script once per rank; it needs no GPU and no network, and its calls become a plan. The script runs as you on this machine and can do whatever you can.") }</p>
                    <div class="row">
                        <NumberField name="record-ranks" label="Ranks" value={*ranks} min={1} max={MAX_WORLD} on_choose={set(&ranks)} />
                        <NumberField name="record-steps" label="Optimizer steps (0: all)" value={*steps} min={0} max={100_000} on_choose={set(&steps)} />
                        <TextField name="record-arguments" label="Arguments, split at spaces" value={(*arguments).clone()} on_choose={set_arguments} />
                        <button class="primary" onclick={start} disabled={running} data-test="record">{ if running { "Recording…" } else { "Record" } }</button>
                    </div>
                    </>
                },
            } }
            { match &*stage {
                Stage::Idle => html! {},
                Stage::Running(id, output) => html! {
                    <><button onclick={id.map(cancel)} disabled={id.is_none()} data-test="record-cancel">{ "Stop it" }</button>
                    <pre class="mono output" data-test="record-output">{ output }</pre></>
                },
                Stage::Cut(plan, why, output) => html! {
                    <div role="alert" data-test="record-cut">
                        <p class="bad">{ format!("Not recorded whole: {why}.") }</p>
                        if let Some(id) = plan { <button onclick={open_cut(*id)} data-test="open-cut">{ "Open what was recorded" }</button> }
                        if !output.is_empty() { <pre class="mono output">{ output }</pre> }
                    </div>
                },
            } }
        </details>
    }
}

/// The beginning of a recording.
enum Begun {
    /// It is asked for now.
    Now(RecordAsked),
    /// The server may be recording one already.
    Before,
}

/// Waits for the end of a recording, and tells how far it has come; `None` if there is none, or while nobody waits.
///
/// # Errors
/// The error of the server, or of the connection to it.
async fn ended(
    begun: Begun,
    still: impl Fn() -> bool,
    told: impl Fn(u64, String),
) -> Result<Option<Record>, String> {
    let begun = match begun {
        Begun::Now(asked) => Some(server::record(&asked).await?),
        Begun::Before => server::current_record().await?,
    };
    let Some(mut record) = begun else { return Ok(None) };
    let mut tries = 0;
    while !record.ended {
        if !still() {
            return Ok(None);
        }
        told(record.id, record.output.clone());
        dom::sleep_ms(PACE_MS).await;
        match server::record_now(record.id).await {
            Ok(now) => (record, tries) = (now, 0),
            Err(why) if tries >= TRIES => return Err(why),
            Err(_) => tries += 1,
        }
    }
    Ok(Some(record))
}

/// Opens the plan of a recording, if somebody still waits for it.
///
/// # Errors
/// The error of the server, or of the connection to it.
async fn open(id: u64, handed: &Handed, still: impl Fn() -> bool) -> Result<(), String> {
    let plan = server::recorded_plan(id).await?;
    let file = File::new_with_buffer_source_sequence(&js_sys::Array::of1(&plan), "recorded.plan");
    let file = file.map_err(|error| dom::words_of(&error))?;
    if still() {
        handed.bring(vec![file]);
    }
    Ok(())
}
