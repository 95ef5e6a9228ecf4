//! The server, if there is one: its JSON over HTTP, and a run's events over a WebSocket.
//!
//! Addresses are relative to the page, so that both may live under any prefix.

use crate::dom;
use lockstep_core::plan::{Fault, FaultError, Plan};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{BinaryType, CloseEvent, MessageEvent, RequestInit, Response, WebSocket};

/// The key under which the server's token is kept: for this tab, and gone with it.
const TOKEN: &str = "lockstep.token";

/// The beginning of an address that `lockstep serve` has printed. What stands behind a `&` is the page's own.
const TOKEN_HASH: &str = "#token=";

/// Takes the token out of the address, so that it stands neither there nor in the history.
pub(crate) fn take_token() {
    let hash = dom::window().location().hash().unwrap_or_default();
    let Some(said) = hash.strip_prefix(TOKEN_HASH) else { return };
    let (token, rest) = said.split_once('&').unwrap_or((said, ""));
    if let Ok(Some(storage)) = dom::window().session_storage() {
        let _ = storage.set_item(TOKEN, token);
    }
    let rest = if rest.is_empty() { "./".to_owned() } else { format!("#{rest}") };
    if let Ok(history) = dom::window().history() {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&rest));
    }
}

/// The token, if this tab was opened with one.
fn token() -> Option<String> {
    dom::window().session_storage().ok()??.get_item(TOKEN).ok()?
}

/// The server's version.
///
/// # Errors
/// When there is no Lockstep server behind the page.
pub(crate) async fn version() -> Result<String, String> {
    let found = json("GET", "api/version", None).await?;
    let version = found.get("version").and_then(Value::as_str);
    version.map(str::to_owned).ok_or_else(|| "the server does not say its version".to_owned())
}

/// A run as the server lists it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// The whole of what the server says of it.
    pub(crate) fields: Value,
}

impl Run {
    fn of(fields: Value) -> Option<Run> {
        let id = match fields.get("id")? {
            Value::String(id) => id.clone(),
            Value::Number(id) => id.to_string(),
            _ => return None,
        };
        Some(Run { id, fields })
    }

    /// A field as text; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        match self.fields.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // An enum with fields is an object of one name.
            Some(Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
            Some(other) => other.to_string(),
        }
    }
}

/// The runs, as the server orders them.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn runs() -> Result<Vec<Run>, String> {
    let found = json("GET", "api/runs", None).await?;
    let list = found.get("runs").unwrap_or(&found).as_array().cloned().unwrap_or_default();
    Ok(list.into_iter().filter_map(Run::of).collect())
}

/// The executor of a real run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Executor {
    /// Processes on the server's machine.
    #[default]
    Host,
    /// GPUs, by NCCL's own collectives.
    NcclLibrary,
    /// GPUs, by the plan's schedules.
    NcclSchedules,
}

impl Executor {
    /// All of them.
    pub(crate) const ALL: [Executor; 3] =
        [Executor::Host, Executor::NcclLibrary, Executor::NcclSchedules];

    /// The name in a form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Executor::Host => "host",
            Executor::NcclLibrary => "nccl",
            Executor::NcclSchedules => "nccl-schedules",
        }
    }

    /// The same for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Executor::Host => "host: processes, shared memory",
            Executor::NcclLibrary => "nccl: NCCL's own collectives",
            Executor::NcclSchedules => "nccl: this schedule, on GPUs",
        }
    }

    /// The fields of a request that name it.
    fn fields(self) -> &'static str {
        match self {
            Executor::Host => "\"backend\":\"host\"",
            Executor::NcclLibrary => "\"backend\":\"nccl\",\"collectives\":\"library\"",
            Executor::NcclSchedules => "\"backend\":\"nccl\",\"collectives\":\"schedules\"",
        }
    }
}

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunAsked {
    pub(crate) executor: Executor,
    /// The faults that are injected into ranks.
    pub(crate) faults: Vec<Fault>,
}

/// Starts a run of `plan` on real processes.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn start(plan: &Plan, asked: &RunAsked) -> Result<Run, String> {
    let faults: Vec<String> = asked.faults.iter().map(|fault| format!("\"{fault}\"")).collect();
    let faults = faults.join(",");
    let (plan, executor) = (plan.to_json(), asked.executor.fields());
    let body = format!("{{{executor},\"faults\":[{faults}],\"plan\":{plan}}}");
    let started = json("POST", "api/runs", Some(&body)).await?;
    Run::of(started).ok_or_else(|| "the server did not say which run it started".to_owned())
}

/// One run.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn run(id: &str) -> Result<Run, String> {
    let found = json("GET", &format!("api/runs/{id}"), None).await?;
    Run::of(found).ok_or_else(|| format!("the server knows nothing of run {id}"))
}

/// Ends a run.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn cancel(id: &str) -> Result<(), String> {
    request("POST", &format!("api/runs/{id}/cancel"), None).await.map(drop)
}

/// Gives a run another name.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn rename(id: &str, name: &str) -> Result<(), String> {
    let body = format!("{{\"name\":{}}}", Value::from(name));
    request("PATCH", &format!("api/runs/{id}"), Some(&body)).await.map(drop)
}

/// Removes a run, its trace and its dumps from the server.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn delete(id: &str) -> Result<(), String> {
    request("DELETE", &format!("api/runs/{id}"), None).await.map(drop)
}

/// Tells a run in progress something: `pause`, `resume` or `dump`.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn tell(id: &str, what: &str) -> Result<(), String> {
    request("POST", &format!("api/runs/{id}/{what}"), None).await.map(drop)
}

/// The jobs that a `lockstep watch` shows on this server, newest first.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn watched_jobs() -> Result<Vec<Run>, String> {
    let found = json("GET", "api/watched", None).await?;
    let list = found.as_array().cloned().unwrap_or_default();
    Ok(list.into_iter().filter_map(Run::of).collect())
}

/// One of them.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn watched_job(id: &str) -> Result<Run, String> {
    let found = json("GET", &format!("api/watched/{id}"), None).await?;
    Run::of(found).ok_or_else(|| format!("the server knows nothing of watched job {id}"))
}

/// The newest trace of one.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn watched_trace(id: &str) -> Result<js_sys::ArrayBuffer, String> {
    bytes(&format!("api/watched/{id}/trace")).await
}

/// A script that a server is to record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordAsked {
    /// Names and texts, the script first.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) world_size: u32,
    /// Optimizer steps; 0 for all of them.
    pub(crate) steps: u32,
    pub(crate) arguments: Vec<String>,
}

/// A script that is being recorded.
pub(crate) struct Record {
    /// Its number on the server.
    pub(crate) id: u64,
    /// The end of what was printed.
    pub(crate) output: String,
    pub(crate) ended: bool,
    /// The reason that it was cut off, or ended by an error.
    pub(crate) cut: Option<String>,
    pub(crate) has_plan: bool,
}

impl Record {
    fn of(said: &Value) -> Record {
        let is = |name: &str| said.get(name).and_then(Value::as_bool).unwrap_or(false);
        let output = said.get("output").and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = said.get("id").and_then(Value::as_u64).unwrap_or(0);
        let cut = said.get("cut").and_then(Value::as_str).map(str::to_owned);
        Record { id, output, ended: is("ended"), cut, has_plan: is("has_plan") }
    }
}

/// The version of torch that the server's Python has.
///
/// # Errors
/// Why it has none, or the error of the server.
pub(crate) async fn torch() -> Result<String, String> {
    let said = json("GET", "api/records/python", None).await?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    word("torch").ok_or_else(|| word("why").unwrap_or_default())
}

/// Has a script recorded.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn record(asked: &RecordAsked) -> Result<Record, String> {
    let files = asked.files.iter();
    let files: Vec<Value> = files
        .map(|(name, text)| {
            object([("name", name.as_str().into()), ("text", text.as_str().into())])
        })
        .collect();
    let steps = Some(asked.steps).filter(|steps| *steps > 0);
    let body = object([
        ("files", files.into()),
        ("world_size", asked.world_size.into()),
        ("steps", steps.into()),
        ("arguments", asked.arguments.clone().into()),
    ]);
    let said = json("POST", "api/records", Some(&body.to_string())).await?;
    Ok(Record::of(&said))
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut object = serde_json::Map::new();
    for (name, value) in fields {
        object.insert(name.to_owned(), value);
    }
    Value::Object(object)
}

/// The script that is being recorded, if there is one.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn current_record() -> Result<Option<Record>, String> {
    let said = json("GET", "api/records", None).await?;
    let records = said.as_array().into_iter().flatten().map(Record::of);
    Ok(records.into_iter().find(|record| !record.ended))
}

/// A script that is being recorded, as far as it has come.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn record_now(id: u64) -> Result<Record, String> {
    Ok(Record::of(&json("GET", &format!("api/records/{id}"), None).await?))
}

/// Ends the recording of a script.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn cancel_record(id: u64) -> Result<(), String> {
    request("POST", &format!("api/records/{id}/cancel"), None).await.map(|_| ())
}

/// The plan that was recorded.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn recorded_plan(id: u64) -> Result<js_sys::ArrayBuffer, String> {
    bytes(&format!("api/records/{id}/plan")).await
}

/// The ranks of a run of which there is a Flight Recorder dump.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn dumps(id: &str) -> Result<Vec<u64>, String> {
    let found = json("GET", &format!("api/runs/{id}/dumps"), None).await?;
    Ok(found.as_array().into_iter().flatten().filter_map(Value::as_u64).collect())
}

/// The Flight Recorder dump of a rank, a pickle.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn dump(id: &str, rank: u64) -> Result<Vec<u8>, String> {
    let buffer = bytes(&format!("api/runs/{id}/dumps/{rank}")).await?;
    Ok(js_sys::Uint8Array::new(&buffer).to_vec())
}

/// The faults that a run was asked for, and its plan without them, as JSON; `None` if there were none.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn asked(id: &str) -> Result<Option<(Vec<Fault>, String)>, String> {
    let asked = json("GET", &format!("api/runs/{id}/asked"), None).await?;
    let Some(plan) = asked.get("plan").map(Value::to_string) else { return Ok(None) };
    let faults = asked.get("faults").and_then(Value::as_array).into_iter().flatten();
    let read = |fault: &Value| {
        let text = fault.as_str().unwrap_or_default();
        text.parse().map_err(|error: FaultError| format!("{text:?}: {error}"))
    };
    Ok(Some((faults.map(read).collect::<Result<_, String>>()?, plan)))
}

/// The binary trace of a run.
///
/// # Errors
/// The error of the server, or of the connection to it.
pub(crate) async fn trace(id: &str) -> Result<js_sys::ArrayBuffer, String> {
    bytes(&format!("api/runs/{id}/trace")).await
}

async fn bytes(path: &str) -> Result<js_sys::ArrayBuffer, String> {
    let response = request("GET", path, None).await?;
    let buffer = response.array_buffer().map_err(|error| dom::words_of(&error))?;
    let buffer = JsFuture::from(buffer).await.map_err(|error| dom::words_of(&error))?;
    buffer.dyn_into().map_err(|_| "the file did not arrive".to_owned())
}

async fn json(method: &str, path: &str, body: Option<&str>) -> Result<Value, String> {
    let response = request(method, path, body).await?;
    let text = text_of(&response).await;
    serde_json::from_str(&text)
        .map_err(|_| "there is no Lockstep server behind this page".to_owned())
}

async fn text_of(response: &Response) -> String {
    let Ok(text) = response.text() else { return String::new() };
    JsFuture::from(text).await.ok().and_then(|text| text.as_string()).unwrap_or_default()
}

async fn request(method: &str, path: &str, body: Option<&str>) -> Result<Response, String> {
    let options = RequestInit::new();
    options.set_method(method);
    let headers = web_sys::Headers::new().map_err(|error| dom::words_of(&error))?;
    if let Some(body) = body {
        options.set_body(&JsValue::from_str(body));
        let _ = headers.set("content-type", "application/json");
    }
    if let Some(token) = token() {
        let _ = headers.set("authorization", &format!("Bearer {token}"));
    }
    options.set_headers(&headers);
    let fetched = JsFuture::from(dom::window().fetch_with_str_and_init(path, &options)).await;
    let response: Response = fetched
        .and_then(JsCast::dyn_into)
        .map_err(|_| "the server does not answer; is lockstep serve still running?".to_owned())?;
    if response.ok() {
        return Ok(response);
    }
    let (status, text) = (response.status(), text_of(&response).await);
    let said = serde_json::from_str::<Value>(&text).ok();
    let why = said.as_ref().and_then(|said| said.get("error")).and_then(Value::as_str);
    Err(why.map_or_else(|| format!("the server answered {path} with {status}"), str::to_owned))
}

type Heard<E> = Closure<dyn FnMut(E)>;

/// The server closed the stream because there is no more of it (RFC 6455, 7.4.1).
const NORMAL: u16 = 1000;

/// Times until the next try when a connection was lost, in milliseconds; after the last of them it
/// is given up.
const RETRIES_MS: [i32; 6] = [250, 500, 1000, 2000, 4000, 8000];

/// A run's events as they happen, until it is dropped. A connection that is lost is made again:
/// the server begins at the first byte each time, and what has come already is skipped.
pub(crate) struct Events {
    /// Its connections and their listeners go with it.
    _stream: Rc<Stream>,
}

/// The listeners to a run's events.
pub(crate) struct Listeners {
    /// The next bytes of the run's trace.
    pub(crate) bytes: Box<dyn Fn(js_sys::ArrayBuffer)>,
    /// The connection was lost, and is being made again.
    pub(crate) lost: Box<dyn Fn()>,
    /// There are no more bytes to come.
    pub(crate) closed: Box<dyn Fn()>,
}

struct Stream {
    url: String,
    listeners: Listeners,
    /// Bytes of the trace that have been passed on.
    received: Cell<u32>,
    /// Connections lost since bytes last came.
    losses: Cell<usize>,
    connection: RefCell<Option<Connection>>,
}

struct Connection {
    socket: WebSocket,
    _open: Heard<web_sys::Event>,
    _message: Heard<MessageEvent>,
    _close: Heard<CloseEvent>,
}

impl Events {
    /// The events of run `id`.
    ///
    /// # Errors
    /// When the browser refuses the connection outright.
    pub(crate) fn of(id: &str, listeners: Listeners) -> Result<Events, String> {
        let words = |error: JsValue| dom::words_of(&error);
        let page = dom::window().location().href().map_err(words)?;
        let url =
            web_sys::Url::new_with_base(&format!("api/runs/{id}/events"), &page).map_err(words)?;
        url.set_protocol(if url.protocol() == "https:" { "wss:" } else { "ws:" });
        url.set_hash("");
        let stream = Rc::new(Stream {
            url: url.href(),
            listeners,
            received: Cell::new(0),
            losses: Cell::new(0),
            connection: RefCell::new(None),
        });
        stream.connect()?;
        Ok(Events { _stream: stream })
    }
}

impl Stream {
    fn connect(self: &Rc<Stream>) -> Result<(), String> {
        let socket = WebSocket::new(&self.url).map_err(|error| dom::words_of(&error))?;
        socket.set_binary_type(BinaryType::Arraybuffer);
        // A browser's WebSocket sends no headers of ours.
        let opened = socket.clone();
        let open = Heard::<web_sys::Event>::new(move |_: web_sys::Event| {
            if let Some(token) = token() {
                let _ = opened.send_with_str(&token);
            }
        });
        let (weak, seen) = (Rc::downgrade(self), Cell::new(0u32));
        let message = Heard::<MessageEvent>::new(move |event: MessageEvent| {
            let Some(stream) = weak.upgrade() else { return };
            let Ok(buffer) = event.data().dyn_into::<js_sys::ArrayBuffer>() else { return };
            let (before, known) = (seen.get(), stream.received.get());
            seen.set(before.saturating_add(buffer.byte_length()));
            stream.losses.set(0);
            if seen.get() > known {
                stream.received.set(seen.get());
                (stream.listeners.bytes)(buffer.slice(known.saturating_sub(before)));
            }
        });
        let weak = Rc::downgrade(self);
        let close = Heard::<CloseEvent>::new(move |event: CloseEvent| {
            let Some(stream) = weak.upgrade() else { return };
            match event.code() {
                NORMAL => (stream.listeners.closed)(),
                _ => stream.lose(),
            }
        });
        socket.set_onopen(Some(open.as_ref().unchecked_ref()));
        socket.set_onmessage(Some(message.as_ref().unchecked_ref()));
        socket.set_onclose(Some(close.as_ref().unchecked_ref()));
        let connection = Connection { socket, _open: open, _message: message, _close: close };
        *self.connection.borrow_mut() = Some(connection);
        Ok(())
    }

    fn lose(self: &Rc<Stream>) {
        let losses = self.losses.get();
        self.losses.set(losses + 1);
        let Some(pause) = RETRIES_MS.get(losses).copied() else {
            (self.listeners.closed)();
            return;
        };
        (self.listeners.lost)();
        let weak = Rc::downgrade(self);
        wasm_bindgen_futures::spawn_local(async move {
            dom::sleep_ms(pause).await;
            // Nobody listens any more when the run was closed meanwhile.
            if let Some(stream) = weak.upgrade()
                && stream.connect().is_err()
            {
                (stream.listeners.closed)();
            }
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.set_onopen(None);
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        let _ = self.socket.close();
    }
}
