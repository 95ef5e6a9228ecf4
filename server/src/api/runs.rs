//! `/api/runs`: real runs, in progress and done.

use super::guard::{NO_TOKEN, Unproven};
use super::{ApiError, blocking, file, not_found, parse_id};
use crate::admission::Held;
use crate::commands::nccl::NcclArguments;
use crate::commands::run::{SharingChoice, strategy};
use crate::findings::Unanswered;
use crate::plan_source::{PlanOptions, with_timeout};
use crate::runs::{Progress, StartError};
use crate::service::Service;
use crate::store::error::StoreError;
use crate::store::{RunRecord, RunState};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use clap::Args;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Fault, FaultError, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Trace;
use lockstep_core::words::nearest;
use lockstep_diagnosis::{Report, diagnose_trace, diagnose_whole_trace};
use lockstep_gpu_exec::{Command, RankDump, RunOptions};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

/// The most that one message of a live trace carries.
const MESSAGE_BYTES: usize = 256 << 10;

/// The token has to come within this.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

/// A longer message of a watcher is not one of ours.
const MAX_WORD_BYTES: usize = 4 << 10;

/// The reason of a WebSocket's end has at most 123 bytes.
const MAX_REASON: usize = 40;

/// A watcher that takes nothing for this long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The request for a run. The body also has a `plan`, or one of `scenario` and `collective` with
/// their options.
#[derive(Deserialize)]
struct Create {
    /// The id of a scenario.
    scenario: Option<String>,
    /// The name of a collective.
    collective: Option<String>,
    #[serde(flatten)]
    options: PlanOptions,
    #[serde(default = "host")]
    backend: BackendName,
    /// True to record single messages.
    #[serde(default = "yes")]
    record_messages: bool,
    /// The faults that are injected into ranks: `kill:rank=1,call=3`.
    #[serde(default)]
    faults: Vec<String>,
    /// host: how ranks get hold of the shared memory.
    sharing: Option<SharingChoice>,
    /// nccl: how it carries the plan out. Where its libraries are is not for a request to say.
    #[serde(flatten)]
    nccl: NcclArguments,
}

fn host() -> BackendName {
    BackendName::Host
}

fn yes() -> bool {
    true
}

/// Everything but the plan together: names and numbers.
const MAX_OPTIONS_BYTES: usize = 1 << 20;

impl Create {
    /// Reads the body of a request: itself and its plan. The plan is read in place, and never held in another
    /// form.
    fn read(body: &[u8]) -> Result<(Create, Plan), ApiError> {
        let wrong = |error: anyhow::Error| ApiError::bad_request(format!("{error:#}"));
        let mut sent: BTreeMap<String, &RawValue> =
            serde_json::from_slice(body).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => ApiError::bad_request(
                    "the body of a run is a JSON object: {\"plan\": …, \"backend\": \"host\"}",
                ),
                _ => ApiError::bad_request(format!("the body of a run is no JSON: {error}")),
            })?;
        known_only(sent.keys())?;
        let plan = sent.remove("plan").filter(|plan| plan.get() != "null");
        let create = Create::of_fields(&sent)?;
        create.options.check().map_err(wrong)?;
        let plan = match (plan, &create.scenario, &create.collective) {
            (Some(plan), None, None) => {
                create.options.only_for_names("plan").map_err(wrong)?;
                let plan = Plan::from_json(plan.get())
                    .map_err(|error| ApiError::bad_request(format!("plan: {error}")))?;
                let plan = create.options.on_nodes(plan);
                match create.options.timeout_ms {
                    Some(timeout_ms) => with_timeout(plan, timeout_ms),
                    None => plan,
                }
            }
            (None, Some(name), None) | (None, None, Some(name)) => {
                create.options.named(name).map_err(wrong)?
            }
            _ => return Err(ApiError::bad_request("name one of plan, scenario and collective")),
        };
        Ok((create, plan))
    }

    /// Reads the fields other than the plan; an error names the field.
    fn of_fields(sent: &BTreeMap<String, &RawValue>) -> Result<Create, ApiError> {
        let bytes: usize = sent.values().map(|value| value.get().len()).sum();
        if bytes > MAX_OPTIONS_BYTES {
            return Err(ApiError::bad_request(format!(
                "the fields of a run besides its plan have {bytes} bytes; they may have {MAX_OPTIONS_BYTES}"
            )));
        }
        let unreadable = |name: &str, value: &RawValue, error: serde_json::Error| {
            let shown: String = value.get().chars().take(40).collect();
            ApiError::bad_request(format!("{name} cannot be {shown}: {error}"))
        };
        let mut fields = serde_json::Map::new();
        for (name, value) in sent {
            let read = serde_json::from_str(value.get());
            fields.insert(name.clone(), read.map_err(|error| unreadable(name, value, error))?);
        }
        let all = match Create::deserialize(&fields) {
            Ok(create) => return Ok(create),
            Err(error) => error,
        };
        // Each field is optional: the one that is wrong is wrong alone.
        for (name, value) in sent {
            let alone = fields.get(name).map(|field| (name.clone(), field.clone()));
            let alone: serde_json::Map<_, _> = alone.into_iter().collect();
            if let Err(error) = Create::deserialize(&alone) {
                return Err(unreadable(name, value, error));
            }
        }
        Err(ApiError::bad_request(all.to_string()))
    }
}

/// Refuses unknown fields: a misspelled name would otherwise run something that nobody asked for.
fn known_only<'a>(mut sent: impl Iterator<Item = &'a String>) -> Result<(), ApiError> {
    let options = PlanOptions::augment_args(clap::Command::new("run"));
    let options = options.get_arguments().map(|option| option.get_id().as_str().to_owned());
    let own = ["plan", "scenario", "collective", "backend", "record_messages", "faults", "sharing"];
    let own = own.into_iter().chain(NcclArguments::IN_A_REQUEST);
    let known: Vec<String> = own.map(str::to_owned).chain(options).collect();
    let Some(other) = sent.find(|name| !known.contains(name)) else { return Ok(()) };
    let meant = match nearest(other, known.iter().map(String::as_str), 1).first() {
        Some(name) => format!("; did you mean {name}?"),
        None => format!("; it may have {}", known.join(", ")),
    };
    let shown: String = other.chars().take(40).collect();
    Err(ApiError::bad_request(format!("a run has no {shown:?}{meant}")))
}

/// Every run, newest first.
pub(crate) async fn list(State(service): State<Service>) -> Result<Json<Vec<RunRecord>>, ApiError> {
    let all = move || {
        let mut runs = service.store.runs()?;
        for run in runs.iter_mut().filter(|run| run.state == RunState::Running) {
            run.paused = service.runs.is_paused(run.id);
        }
        Ok::<_, StoreError>(runs)
    };
    blocking(all).await.map(Json)
}

/// Starts a run; answers once its ranks have joined.
pub(crate) async fn create(
    State(service): State<Service>,
    Extension(held): Extension<Held>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.trim_start().starts_with("application/json")) {
        return Err(ApiError::unsupported("a run is sent with content-type: application/json"));
    }
    let body = body?;
    let turn = service.admission.turn(body.len()).await?;
    let start = move || {
        // Also when the client has hung up.
        let _until_started = (held, turn);
        // Before a large plan is read for nothing.
        service.runs.check_room()?;
        let (create, plan) = Create::read(&body)?;
        drop(body);
        let faults = create.faults.iter().map(|text| text.parse());
        let faults = faults.collect::<Result<Vec<Fault>, FaultError>>();
        let faults = faults.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let wrong = |error: anyhow::Error| ApiError::bad_request(format!("{error:#}"));
        let sharing = strategy(create.sharing, create.backend).map_err(wrong)?;
        let launcher = service.runs.launcher();
        let executor = match create.nccl.check_for(create.backend) {
            Ok(()) => create.nccl.backend(create.backend, launcher).map_err(StartError::from),
            Err(error) => return Err(wrong(error)),
        }?;
        let options = RunOptions {
            record_messages: create.record_messages,
            faults,
            dump_at_end: true,
            sharing,
            ..RunOptions::default()
        };
        service.runs.start(plan, &*executor, options).map_err(ApiError::from)
    };
    Ok((StatusCode::CREATED, Json(blocking(start).await?)))
}

/// One run.
pub(crate) async fn get(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<RunRecord>, ApiError> {
    find(&service, &id).await.map(Json)
}

/// The body of a change of a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    name: String,
}

/// A longer name fits into no list.
const MAX_NAME: usize = 200;

/// Gives a run another name.
pub(crate) async fn rename(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<RunRecord>, ApiError> {
    let Rename { name } = serde_json::from_slice(&body?).map_err(|error| {
        ApiError::bad_request(format!("a run is renamed by {{\"name\": \"…\"}}: {error}"))
    })?;
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::bad_request(format!(
            "the name of a run has 1 to {MAX_NAME} characters, in one line"
        )));
    }
    let run = find(&service, &id).await?;
    let store = service.store.clone();
    match blocking(move || store.rename_run(run.id, &name)).await? {
        true => find(&service, &id).await.map(Json),
        false => Err(not_found("run", id)),
    }
}

/// Removes a run from the list, with its trace and its dumps. One in progress is cancelled first, by
/// whoever asks.
pub(crate) async fn delete(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let run = find(&service, &id).await?;
    if run.state == RunState::Running || service.runs.progress(run.id).is_some() {
        return Err(ApiError::conflict(format!(
            "run {id} is in progress; cancel it before you delete it"
        )));
    }
    let store = service.store.clone();
    match blocking(move || store.delete_run(run.id)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_found("run", id)),
    }
}

/// Asks a run to end; its end comes with its events.
pub(crate) async fn cancel(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    tell(&service, &id, Command::Cancel).await
}

/// Holds a run's ranks before their next operations.
pub(crate) async fn pause(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    tell(&service, &id, Command::Pause).await
}

/// Lets a paused run go on.
pub(crate) async fn resume(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    tell(&service, &id, Command::Resume).await
}

/// Asks every rank of a run for its Flight Recorder dump; they come as files.
pub(crate) async fn dump(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    tell(&service, &id, Command::Dump).await
}

async fn tell(
    service: &Service,
    id: &str,
    command: Command,
) -> Result<(StatusCode, Json<RunRecord>), ApiError> {
    let mut run = find(service, id).await?;
    // One that the list shows as ended is told nothing, also while its thread still tidies up.
    let running = run.state == RunState::Running;
    match running && service.runs.tell(run.id, command) {
        true => {
            run.paused = service.runs.is_paused(run.id);
            Ok((StatusCode::ACCEPTED, Json(run)))
        }
        false => Err(ApiError::conflict(format!("run {id} is not in progress"))),
    }
}

/// The ranks of which there is a Flight Recorder dump.
pub(crate) async fn dumps(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<Vec<GlobalRank>>, ApiError> {
    let run = find(&service, &id).await?;
    Ok(Json(service.store.dumped_ranks(run.id)))
}

/// One rank's Flight Recorder dump, a pickle.
pub(crate) async fn rank_dump(
    State(service): State<Service>,
    Path((id, rank)): Path<(String, u32)>,
) -> Result<Response, ApiError> {
    let run = find(&service, &id).await?;
    let name = RankDump { rank: GlobalRank(rank), pickle: Vec::new() }.file_name();
    let path = service.store.dump_folder(run.id).join(&name);
    if !path.is_file() {
        return Err(not_found("dump of rank", rank));
    }
    file::send(&path, None, &name).await
}

/// The plan and the faults that a run was asked for, as JSON; `null` if it was asked for no faults: then its plan is
/// that of its trace.
pub(crate) async fn asked(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let run = find(&service, &id).await?;
    let path = service.store.asked_file(run.id);
    match path.is_file() {
        true => file::send(&path, None, &format!("run-{}.asked.json", run.id)).await,
        false => Ok(Json(serde_json::Value::Null).into_response()),
    }
}

/// The trace in binary form, as far as it has come.
pub(crate) async fn trace(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let run = find(&service, &id).await?;
    let bytes = service.runs.progress(run.id).map(|progress| progress.borrow().bytes);
    let name = format!("run-{}.lks", run.id);
    file::send(&service.store.run_file(run.id), bytes, &name).await
}

/// The findings in a run, as far as it has come.
pub(crate) async fn findings(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<Report>, ApiError> {
    let run = find(&service, &id).await?;
    if let Some(report) = run.report {
        return Ok(Json(report));
    }
    let path = service.store.run_file(run.id);
    let going_on = service.runs.progress(run.id).map(|progress| progress.borrow().bytes);
    let bytes = match going_on {
        Some(bytes) => bytes,
        None => file::open(&path).await?.metadata().await?.len(),
    };
    let so_far = move || {
        let unreadable = |error| file::unreadable(&path, &error);
        let file = std::fs::File::open(&path).map_err(unreadable)?;
        let mut read = Vec::new();
        file.take(bytes).read_to_end(&mut read).map_err(unreadable)?;
        match Trace::from_bytes(&read) {
            Ok(trace) if going_on.is_some() => Ok(diagnose_trace(&trace)),
            Ok(trace) => Ok(diagnose_whole_trace(&trace)),
            Err(error) => Err(ApiError::internal(format!("run {}: {error}", run.id))),
        }
    };
    match service.findings.of(run.id, bytes, so_far).await {
        Ok(report) => Ok(Json(Report::clone(&report))),
        Err(Unanswered::Failed(error)) => Err(error),
        Err(Unanswered::Panicked) => Err(super::panicked()),
    }
}

/// The trace as it grows: every message carries the next bytes of its binary form, from the
/// first byte on; the connection is closed after the last.
pub(crate) async fn events(
    State(service): State<Service>,
    Path(id): Path<String>,
    unproven: Option<Extension<Unproven>>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let Some(Extension(unproven)) = unproven else {
        let (file, progress) = trace_so_far(&service, &id).await?;
        return Ok(upgrade.on_upgrade(move |socket| follow(socket, file, progress)));
    };
    // Before it is proved, nobody hears even whether there is such a run.
    Ok(upgrade.max_message_size(MAX_WORD_BYTES).on_upgrade(async move |mut socket| {
        let first = tokio::time::timeout(FIRST_MESSAGE, socket.recv()).await;
        let proved =
            matches!(first, Ok(Some(Ok(Message::Text(word)))) if unproven.is(word.as_bytes()));
        let refused = match proved {
            true => match trace_so_far(&service, &id).await {
                Ok((file, progress)) => return follow(socket, file, progress).await,
                Err(error) => error.to_string(),
            },
            false => NO_TOKEN.to_owned(),
        };
        let reason: String = refused.chars().take(MAX_REASON).collect();
        let close = CloseFrame { code: close_code::POLICY, reason: reason.into() };
        let _ = socket.send(Message::Close(Some(close))).await;
    }))
}

/// A run's trace file, and how far it has come.
async fn trace_so_far(
    service: &Service,
    id: &str,
) -> Result<(tokio::fs::File, watch::Receiver<Progress>), ApiError> {
    let run = find(service, id).await?;
    let path = service.store.run_file(run.id);
    let progress = match service.runs.progress(run.id) {
        Some(progress) => progress,
        None => {
            let bytes = file::open(&path).await?.metadata().await?.len();
            watch::channel(Progress { bytes, done: true }).1
        }
    };
    Ok((file::open(&path).await?, progress))
}

async fn follow(
    mut socket: WebSocket,
    mut file: tokio::fs::File,
    mut progress: watch::Receiver<Progress>,
) {
    let mut sent = 0;
    let mut buffer = vec![0; MESSAGE_BYTES];
    loop {
        let Progress { bytes, done } = *progress.borrow_and_update();
        while sent < bytes {
            let next = MESSAGE_BYTES.min(usize::try_from(bytes - sent).unwrap_or(MESSAGE_BYTES));
            let Ok(read @ 1..) = file.read(&mut buffer[..next]).await else { return };
            let message = Message::binary(buffer[..read].to_vec());
            match tokio::time::timeout(SEND_TIMEOUT, socket.send(message)).await {
                Ok(Ok(())) => sent += read as u64,
                _ => return,
            }
        }
        if done {
            let close = CloseFrame { code: close_code::NORMAL, reason: "the run ended".into() };
            let _ = socket.send(Message::Close(Some(close))).await;
            return;
        }
        tokio::select! {
            changed = progress.changed() => {
                // The keeper is gone without a last word only if it panicked.
                if changed.is_err() {
                    return;
                }
            }
            received = socket.recv() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
}

async fn find(service: &Service, id: &str) -> Result<RunRecord, ApiError> {
    let id = parse_id("run", id)?;
    let store = service.store.clone();
    let run = blocking(move || store.run(id)).await?;
    let run = run.ok_or_else(|| not_found("run", id))?;
    Ok(RunRecord { paused: service.runs.is_paused(id), ..run })
}
