//! `lockstep serve`: the page and the API on this machine.

use super::version::Version;
use super::{rank_launcher, signals};
use crate::admission::{Admission, Pace};
use crate::api::guard::Guard;
use crate::connections::{self, Limits};
use crate::findings::Findings;
use crate::router::router;
use crate::runs::Runs;
use crate::script_records::ScriptRecords;
use crate::service::Service;
use crate::store::Store;
use crate::terminal;
use crate::token::Token;
use crate::watched_jobs::WatchedJobs;
use anyhow::{Context, Result, anyhow, bail};
use lockstep_gpu_exec::MemoryGroup;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Requests in progress get this long once the service is stopping.
const GRACE: Duration = Duration::from_secs(3);

/// Bodies of all requests together: an upload of the largest size, and some plans.
const MAX_BODIES_BYTES: u64 = 640 << 20;

/// The bytes that all bodies may take: at most a quarter of a cgroup's remaining memory.
fn bodies_bytes(limit_bytes: Option<u64>) -> u64 {
    MAX_BODIES_BYTES.min(limit_bytes.map_or(u64::MAX, |limit| limit / 4))
}

/// Serve the page and the API on this machine (the default)
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The address to listen on; anything but loopback lets others start runs on this machine
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 7077)]
    port: u16,
    /// Where runs and uploads are kept [default: $LOCKSTEP_DATA_DIR, else the user's data folder]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Another name that this machine may be asked by
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Answer everybody who reaches the port, other users of this machine too; only on loopback
    #[arg(long)]
    no_token: bool,
    /// Open the page in a browser, if there is one
    #[arg(long, overrides_with = "no_open")]
    open: bool,
    /// Do not open the page (the default)
    #[arg(long)]
    no_open: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the service's threads")?;
    runtime.block_on(serve(arguments))?;
    // Requests that are still being worked on have had their time.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: Arguments) -> Result<()> {
    // Before anything is started, so that no signal finds us unprepared.
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hung_up = signals::hangup()?;
    let listener = listen(&arguments.host, arguments.port).await?;
    if arguments.no_token && !listener.local_addr()?.ip().to_canonical().is_loopback() {
        bail!(
            "--no-token is for loopback alone: on {} everybody who reaches this machine could start processes \
             on it; leave --no-token out, or --host",
            arguments.host
        );
    }
    let folder = data_folder(arguments.data_dir)?;
    // Other users of a login node have no business with somebody's runs.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let store = Arc::new(Store::open(&folder)?);
    for note in store.notes() {
        terminal::note(&format!("lockstep: {note}"));
    }
    let records = ScriptRecords::new(!arguments.no_token);
    let runs = Runs::new(store.clone(), rank_launcher()?);
    let service = Service {
        store,
        runs: runs.clone(),
        findings: Findings::default(),
        watched: WatchedJobs::default(),
        records: records.clone(),
        version: Arc::new(Version::here()?),
        admission: Admission::new(bodies_bytes(MemoryGroup::now().limit_bytes), Pace::default()),
    };
    let token = match arguments.no_token {
        true => None,
        false => Some(Token::of_folder(&folder)?),
    };
    let address = listener.local_addr()?;
    let mut url = url_of(&arguments.host, address);
    if let Some(token) = &token {
        // A fragment is never sent, and so stands in no log of a proxy.
        url.push_str(&format!("#token={}", token.text()));
    }
    if !address.ip().to_canonical().is_loopback() {
        terminal::note(&open_to_others(address));
    }
    let app = router(service, Guard::new(&arguments.host, arguments.allow_host, token));
    terminal::print(format!("Lockstep is at {url}\n").as_bytes())?;
    if arguments.open && !arguments.no_open {
        open_in_browser(url);
    }
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = stop.clone();
    let serving = connections::serve(listener, app, Limits::default(), stopped);
    let mut serving = tokio::spawn(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = signals::received(&mut hung_up) => {}
    }
    stop.notify_one();
    // Runs first: their watchers' connections end with them.
    runs.shut_down().await;
    let _ = tokio::task::spawn_blocking(move || records.shut_down()).await;
    if tokio::time::timeout(GRACE, &mut serving).await.is_err() {
        serving.abort();
    }
    Ok(())
}

async fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((bare, port)).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow!(
            "port {port} of {host} is in use; stop what listens there, or pass --port with another \
             (0 picks a free one)"
        ),
        ErrorKind::PermissionDenied => {
            anyhow!("port {port} is not allowed to this user; pass --port with one above 1023")
        }
        _ => anyhow!(
            "cannot listen on {host}, port {port}: {error}; pass --host with an address \
                      of this machine"
        ),
    })
}

/// The data folder: as given, or where the environment says.
///
/// # Errors
/// When neither says one.
pub(super) fn data_folder(given: Option<PathBuf>) -> Result<PathBuf> {
    let from = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given
        .or_else(|| from("LOCKSTEP_DATA_DIR"))
        .or_else(|| Some(from("XDG_DATA_HOME")?.join("lockstep")))
        .or_else(|| Some(from("HOME")?.join(".local").join("share").join("lockstep")))
        .context("no folder to keep runs in: HOME is not set; pass --data-dir")
}

/// The address to type into a browser on this machine.
fn url_of(host: &str, address: SocketAddr) -> String {
    let port = address.port();
    match address.ip() {
        ip if ip.is_unspecified() => format!("http://127.0.0.1:{port}/"),
        std::net::IpAddr::V6(ip) => format!("http://[{ip}]:{port}/"),
        _ => format!("http://{host}:{port}/"),
    }
}

/// The warning for a service that listens on more than loopback.
fn open_to_others(address: SocketAddr) -> String {
    format!(
        "lockstep: port {} of {} can be reached from other machines: whoever has the token can start processes \
         here as you, and read runs and uploads. What is sent is not encrypted, the token included; on a network \
         that is not yours, listen on loopback and use an SSH tunnel",
        address.port(),
        address.ip()
    )
}

/// Opens the page where there is a screen. Without one, the system's opener would start a browser
/// in the terminal.
fn open_in_browser(url: String) {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"];
    if has_screen.iter().all(|name| std::env::var_os(name).is_none()) && cfg!(target_os = "linux") {
        return;
    }
    std::thread::spawn(move || {
        if let Err(error) = opener::open_browser(&url) {
            terminal::note(&format!("no browser could be opened ({error}); open {url} yourself"));
        }
    });
}
