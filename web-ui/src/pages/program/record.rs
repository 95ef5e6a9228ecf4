//! The script of the view, recorded by the server's PyTorch: what `lockstep record` does at a terminal.

use crate::app::{Server, use_shared};
use crate::dom;
use crate::server::{self, RecordAsked};
use crate::turns::use_turns;
use crate::ui::{NumberField, TextField, prose};
use std::rc::Rc;
use web_sys::File;
use yew::prelude::*;

/// The most ranks that a server records for a page.
const MAX_WORLD: u64 = 64;

/// The time between two questions to the server, in milliseconds.
const PACE_MS: i32 = 500;

/// The name that the script has on the server.
const SCRIPT: &str = "train.py";

/// The progress of a recording.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    /// With its number on the server, and what it has printed.
    Running(u64, String),
    /// It ended without a plan.
    Failed(String),
}

/// Properties of [`RecordIt`].
#[derive(Properties, PartialEq)]
pub(super) struct RecordItProps {
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
    let ranks = use_state(|| u64::from(props.world_size).clamp(1, MAX_WORLD));
    let (steps, arguments) = (use_state(|| 2u64), use_state(String::new));
    let turns = use_turns();
    let look = {
        let torch = torch.clone();
        Callback::from(move |_: MouseEvent| {
            if torch.is_none() {
                let torch = torch.setter();
                wasm_bindgen_futures::spawn_local(async move {
                    torch.set(Some(server::torch().await));
                });
            }
        })
    };
    let start = {
        let (stage, handed) = (stage.setter(), shared.handed.clone());
        let script = vec![(SCRIPT.to_owned(), props.text.to_string())];
        let asked = RecordAsked {
            files: [script, props.files.clone()].concat(),
            world_size: *ranks as u32,
            steps: *steps as u32,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        };
        Callback::from(move |_: MouseEvent| {
            let (stage, handed, asked, turn) =
                (stage.clone(), handed.clone(), asked.clone(), turns.next());
            stage.set(Stage::Running(0, String::new()));
            wasm_bindgen_futures::spawn_local(async move {
                let told = |now: Stage| {
                    if turn.counts() {
                        stage.set(now);
                    }
                };
                let plan = recorded(&asked, |id, output| told(Stage::Running(id, output))).await;
                match plan {
                    Ok(plan) if turn.counts() => {
                        stage.set(Stage::Idle);
                        handed.bring(vec![plan]);
                    }
                    Ok(_) => {}
                    Err(why) => told(Stage::Failed(why)),
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
    if !matches!(shared.server, Server::Here { .. }) {
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
                    <p>{ format!("torch {version} runs the script as every rank, without GPUs and without a network, and its calls become a plan. The script runs on this machine, with all that it does.") }</p>
                    <div class="row">
                        <NumberField name="record-ranks" label="Ranks" value={*ranks} min={1} max={MAX_WORLD} on_choose={set(&ranks)} />
                        <NumberField name="record-steps" label="Optimizer steps (0: all)" value={*steps} min={0} max={100_000} on_choose={set(&steps)} />
                        <TextField name="record-arguments" label="Arguments" value={(*arguments).clone()} on_choose={set_arguments} />
                        <button class="primary" onclick={start} disabled={running} data-test="record">{ if running { "Recording…" } else { "Record" } }</button>
                    </div>
                    </>
                },
            } }
            { match &*stage {
                Stage::Idle => html! {},
                Stage::Running(id, output) => html! {
                    <><button onclick={cancel(*id)} data-test="record-cancel">{ "Stop it" }</button>
                    <pre class="mono output" data-test="record-output">{ output }</pre></>
                },
                Stage::Failed(why) => html! { <pre class="mono output bad" role="alert" data-test="record-failed">{ why }</pre> },
            } }
        </details>
    }
}

/// Has a script recorded, and tells how far it has come.
///
/// # Errors
/// What the script and the recorder printed, if no plan came of it.
async fn recorded(asked: &RecordAsked, told: impl Fn(u64, String)) -> Result<File, String> {
    let mut record = server::record(asked).await?;
    while !record.ended {
        told(record.id, record.output);
        dom::sleep_ms(PACE_MS).await;
        record = server::record_now(record.id).await?;
    }
    if !record.has_plan {
        return Err(record.output);
    }
    let plan = server::recorded_plan(record.id).await?;
    File::new_with_buffer_source_sequence(&js_sys::Array::of1(&plan), "recorded.plan")
        .map_err(|error| dom::words_of(&error))
}
