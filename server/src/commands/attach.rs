//! `lockstep attach`: asks a running or hung PyTorch job for its state, from outside: through its debug
//! server, or as processes of this machine.
//!
//! Nothing is asked except what the command line names: the job's store or page, the ranks on the hosts that
//! are named, processes and what they started. Every answer is bounded in time and size.

mod answers;
mod moved;
mod processes;
mod workers;

use super::gathered_folder::Folder;
use super::signals;
use crate::exit_rule::ExitRule;
use crate::http::{AskError, Place};
use crate::terminal;
use answers::{Answer, Asked};
use anyhow::{Context, Result, bail};
use hyper::Method;
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};
use lockstep_core::trace::{RankLog, RankState, Trace};
use lockstep_core::watch::Unwatched;
use lockstep_core::words::rank_list;
use lockstep_diagnosis::{Kind, Report, Verdict, diagnose_job};
use lockstep_formats::stacks::ProcessStacks;
use lockstep_replay::with_tried_repairs;
use moved::Look;
use processes::Named;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workers::{Hosts, Workers};

/// Ask a running or hung PyTorch job for its state, and say what is wrong with it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to ask: the job's store (MASTER_ADDR:MASTER_PORT), the page of its debug server (rank 0's host, port
    /// 25999), the Unix sockets of workers, or processes of this machine: pid:4711 for a rank or the launcher that
    /// started ranks, pid:4711:3 for rank 3
    #[arg(value_name = "HOST:PORT|SOCKET|pid:PID", required = true)]
    targets: Vec<Target>,
    /// Another host whose ranks may be asked; those of the host in HOST:PORT always are
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Ask every host that the job's store names
    #[arg(long)]
    any_host: bool,
    /// A backend of your own whose recorder is asked for too, beside gloo's and NCCL's
    #[arg(long = "backend", value_name = "NAME")]
    backends: Vec<String>,
    /// Look again and again with so long in between, and say what moved, until Ctrl-C: 10s, 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    watch: Option<Duration>,
    /// The time between the two looks that tell a job that hangs from one that runs: 2s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    apart: Duration,
    /// The longest time for one answer: 10s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    timeout: Duration,
    /// A new folder for dumps, stacks and report; without it `attached`, `attached-2`, … is made
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Print JSON: the schema lockstep.findings/1
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exit: ExitRule,
}

/// The file of the trace in the folder.
const TRACE: &str = "attached.lks";

/// The longest pause between two looks, and the longest time for an answer: an hour.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// `10s`, `2m`, `500ms`, or seconds without a unit.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let milliseconds = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        _ => return Err(format!("{unit} is no unit of time here: 500ms, 10s, 2m")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text} is no time: 500ms, 10s, 2m"))?;
    let time = Duration::from_millis(number.saturating_mul(milliseconds));
    match time <= MAX_TIME && !time.is_zero() {
        true => Ok(time),
        false => Err(format!("{text} is not between a millisecond and an hour")),
    }
}

/// Somewhere to ask, as the command line names it.
#[derive(Clone, Debug)]
enum Target {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
    Process(Named),
}

/// `4711` or `4711:3`.
fn process(text: &str) -> Option<Named> {
    let (pid, rank) = match text.split_once(':') {
        Some((pid, rank)) => (pid, Some(rank.parse().ok().filter(|it| *it < MAX_WORLD_SIZE)?)),
        None => (text, None),
    };
    Some(Named { pid: pid.parse().ok()?, rank: rank.map(GlobalRank) })
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if let Some(pid) = text.strip_prefix("pid:") {
            let named = process(pid).map(Target::Process);
            return named
                .ok_or_else(|| format!("{text} is no process: pid:4711, or pid:4711:RANK"));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Target::Socket(path.into()));
        }
        if text.contains('/') && !text.contains("://") {
            return Ok(Target::Socket(text.into()));
        }
        let address = text.strip_prefix("http://").or(text.strip_prefix("tcp://")).unwrap_or(text);
        let parsed = address.trim_end_matches('/').rsplit_once(':').and_then(|(host, port)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Some((host.to_owned(), port.parse().ok()?)).filter(|_| !host.is_empty())
        });
        let (host, port) = parsed.ok_or_else(|| {
            format!("{text} is neither HOST:PORT nor the path of a socket: localhost:25999")
        })?;
        Ok(Target::Tcp { host, port })
    }
}

/// The part of a job that answers questions.
enum Job {
    /// The workers of a job, by rank.
    Workers(BTreeMap<GlobalRank, Place>),
    /// The page on rank 0, which asks the others.
    Page(Place),
    /// Workers whose ranks are not known.
    Sockets(Vec<PathBuf>),
    /// Processes of this machine, by rank.
    Processes(BTreeMap<GlobalRank, u32>),
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start what asks the ranks")?;
    let job = runtime.block_on(find(&arguments))?;
    let folder = Folder::make(arguments.output.as_deref(), "attached")?;
    let cancelled = signals::cancelled()?;
    let mut asking = Asking {
        arguments: &arguments,
        runtime,
        job,
        folder,
        written: BTreeSet::new(),
        main_threads: BTreeMap::new(),
    };
    let first = asking.look().and_then(|seen| seen.context("no process of the job is there"));
    if first.is_err() {
        asking.folder.remove_if_unasked();
    }
    let verdict = asking.watch(first?.look, &cancelled)?;
    Ok(ExitCode::from(arguments.exit.code(verdict)))
}

/// Looks up the ranks to ask.
async fn find(arguments: &Arguments) -> Result<Job> {
    let (mut sockets, mut tcp, mut named) = (Vec::new(), Vec::new(), Vec::new());
    for target in &arguments.targets {
        match target {
            Target::Process(process) => named.push(*process),
            Target::Socket(path) => sockets.push(path.clone()),
            Target::Tcp { host, port } => tcp.push((host.clone(), *port)),
        }
    }
    let (host, port) = match (sockets.is_empty(), named.is_empty(), &tcp[..]) {
        (false, true, []) => return Ok(Job::Sockets(sockets)),
        (true, false, []) => return Ok(Job::Processes(processes::ranks(&named)?)),
        (true, true, [one]) => one.clone(),
        _ => bail!(
            "name one HOST:PORT, which knows all ranks, or the sockets of workers, or processes of this machine"
        ),
    };
    let ips = workers::resolved(&host).await;
    let ip = *ips.first().with_context(|| format!("{host} is not known here"))?;
    let place = Place::Tcp { host: host.clone(), address: SocketAddr::new(ip, port) };
    // A store hangs up on whoever does not greet it as one, and goes on.
    match place.ask(Method::GET, "/", arguments.timeout).await {
        Ok(body) if body_contains(&body, "torch.distributed.WorkerServer") => {
            bail!(
                "{place} is the debug server of one rank: name the job's store (MASTER_ADDR:MASTER_PORT) or the page on \
                 rank 0, which know all of them"
            )
        }
        Ok(body) if body_contains(&body, "Torch Distributed Debug Server") => {
            return Ok(Job::Page(place));
        }
        Ok(_) => bail!("{place} is an HTTP server, and not PyTorch's debug server"),
        Err(error @ AskError::Refused(_)) => bail!("{error}: does the job run there?"),
        Err(AskError::Status { .. }) => {
            bail!("{place} is an HTTP server, and not PyTorch's debug server")
        }
        Err(AskError::Silent { .. } | AskError::NotHttp { .. }) => {}
    }
    let (address, within) = (SocketAddr::new(ip, port), arguments.timeout);
    let addresses = tokio::task::spawn_blocking(move || workers::in_store(address, within));
    let addresses = addresses.await.context("the store was not read")??;
    let named = [host].into_iter().chain(arguments.hosts.iter().cloned()).collect();
    let hosts = Hosts::of(named, arguments.any_host).await;
    let Workers { asked, unnamed } = Workers::of(&addresses, &hosts).await;
    for (host, ranks) in &unnamed {
        terminal::note(&format!(
            "lockstep: not asked, since nobody named their host: ranks {} on {host} (--host {host}, or --any-host)",
            rank_list(ranks)
        ));
    }
    if asked.is_empty() {
        bail!("no rank of the job is on a host that was named");
    }
    Ok(Job::Workers(asked))
}

fn body_contains(body: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(body).contains(text)
}

/// A job that is asked.
struct Asking<'a> {
    arguments: &'a Arguments,
    runtime: tokio::runtime::Runtime,
    job: Job,
    folder: Folder,
    /// The files of the last look.
    written: BTreeSet<String>,
    /// The frames of ranks' main threads at the last look.
    main_threads: BTreeMap<GlobalRank, String>,
}

/// The state of a process that does not go on, in words.
#[derive(Clone, Copy, Debug)]
enum ProcessState {
    Gone(&'static str),
    Stands(&'static str),
}

impl ProcessState {
    fn how(self) -> &'static str {
        let (ProcessState::Gone(how) | ProcessState::Stands(how)) = self;
        how
    }

    fn write(self, rank: &mut RankLog) {
        match self {
            ProcessState::Gone(how) => rank.state = RankState::Died { how: how.to_owned() },
            ProcessState::Stands(how) => rank.unresponsive = Some(how.to_owned()),
        }
    }
}

/// One look at the job.
struct Seen {
    report: Report,
    trace: Option<Trace>,
    look: Look,
}

impl Asking<'_> {
    /// Looks until the job is known to hang or to run, or, if that is asked for, until it ends or Ctrl-C comes. The
    /// verdict of the last look at which the job was there.
    fn watch(&mut self, mut before: Look, cancelled: &AtomicBool) -> Result<Verdict> {
        let mut pause = self.arguments.apart;
        let mut told: Option<Report> = None;
        let began = Instant::now();
        loop {
            wait(pause, cancelled);
            let Some(Seen { report, trace, look }) = self.look()? else {
                terminal::note("lockstep: no process of the job is there any more");
                self.tell_where();
                return Ok(told.map_or(Verdict::Inconclusive, |told| told.verdict));
            };
            let since = look.since(&before);
            let report = match look.stands_still(&before) {
                true => standing(report, &since),
                false => running(report, &since),
            };
            before = look;
            let is_last = self.arguments.watch.is_none() || cancelled.load(Ordering::Relaxed);
            if self.arguments.watch.is_some() {
                terminal::note(&format!(
                    "lockstep: after {} s: {since}",
                    began.elapsed().as_secs()
                ));
            }
            let is_news = told.as_ref().is_none_or(|told| told.findings != report.findings);
            if is_news || (is_last && self.arguments.watch.is_none()) {
                self.tell(&report, trace.as_ref())?;
            }
            let verdict = report.verdict;
            told = Some(report);
            if is_last {
                self.tell_where();
                return Ok(verdict);
            }
            pause = self.arguments.watch.unwrap_or(pause);
        }
    }

    fn tell_where(&self) {
        let folder = self.folder.path().display();
        terminal::note(&format!("lockstep: what was gathered is in {folder}"));
    }

    /// Asks every rank once, keeps the answers as files, and diagnoses them; `None` if no rank's process is
    /// there. Earlier answers are kept if no rank answers.
    fn look(&mut self) -> Result<Option<Seen>> {
        let (within, more_backends) = (self.arguments.timeout, &self.arguments.backends[..]);
        let recording = self.folder.recording();
        let asked = Asked { more_backends, within, folder: &recording };
        let answers: Vec<(Option<GlobalRank>, Answer)> = match &self.job {
            Job::Workers(workers) => {
                let answers = answers::of_ranks(workers, asked);
                let answers = self.runtime.block_on(answers).into_iter();
                answers.map(|(rank, answer)| (Some(rank), answer)).collect()
            }
            Job::Processes(ranks) => self.runtime.block_on(processes::of_processes(ranks, asked)),
            Job::Page(place) => {
                let page = answers::of_pages(place, asked);
                vec![(None, self.runtime.block_on(page))]
            }
            Job::Sockets(paths) => self.runtime.block_on(async {
                let mut answers = Vec::new();
                for (at, path) in paths.iter().enumerate() {
                    // The rank is what its user put into the socket's name.
                    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
                    let name = name.unwrap_or_else(|| at.to_string());
                    let digits = name.trim_start_matches(|it: char| !it.is_ascii_digit());
                    let name = if digits.is_empty() { at.to_string() } else { digits.to_owned() };
                    let place = Place::Unix(path.clone());
                    answers.push((None, answers::of_worker(&place, &name, asked).await));
                }
                answers
            }),
        };
        let problems = || answers.iter().flat_map(|(_, answer)| answer.problems.iter());
        if answers.iter().all(|(_, answer)| answer.files.is_empty()) {
            if answers.iter().all(|(_, answer)| answer.is_gone) {
                return Ok(None);
            }
            let why = problems().next().map_or("it knows nothing", String::as_str);
            bail!("nobody of the job answers: {why}");
        }
        self.forget_what_is_over(&answers);
        let main_threads: BTreeMap<GlobalRank, String> = answers
            .iter()
            .filter_map(|(rank, it)| Some(((*rank)?, it.main_thread.clone()?)))
            .collect();
        let before = std::mem::replace(&mut self.main_threads, main_threads.clone());
        let stayed = main_threads.iter().filter(|(rank, stack)| before.get(rank) == Some(stack));
        let stayed: BTreeSet<GlobalRank> = stayed.map(|(rank, _)| *rank).collect();
        let mut seen = self.diagnose(&answers, &stayed)?;
        seen.look.main_threads = main_threads;
        seen.report.notes.extend(problems().cloned());
        Ok(Some(seen))
    }

    /// Removes files of the look before that this one did not write again: they are of a moment that is over.
    fn forget_what_is_over(&mut self, answers: &[(Option<GlobalRank>, Answer)]) {
        let recording = self.folder.recording();
        let written = answers.iter().flat_map(|(_, answer)| answer.files.iter().cloned());
        let before = std::mem::replace(&mut self.written, written.collect());
        for name in before.difference(&self.written) {
            // It was written by this process, and may be gone already.
            let _ = std::fs::remove_file(recording.join(name));
        }
    }

    /// The diagnosis of one look. `stayed` are the ranks whose main threads are where the look before found them.
    fn diagnose(
        &self,
        answers: &[(Option<GlobalRank>, Answer)],
        stayed: &BTreeSet<GlobalRank>,
    ) -> Result<Seen> {
        let none = |report| Seen { report, trace: None, look: Look::default() };
        let mut job = match self.folder.gathered()? {
            Ok(job) => job,
            Err(report) => return Ok(none(report)),
        };
        let states: Vec<(GlobalRank, ProcessState)> = answers
            .iter()
            .filter_map(|(rank, answer)| Some(((*rank)?, self.state_of(answer)?)))
            .collect();
        // Two looks that find a thread in one place are two stacks of it.
        let seen_before = |it: &&ProcessStacks| it.rank.is_some_and(|rank| stayed.contains(&rank));
        let again: Vec<ProcessStacks> = job.stacks.iter().filter(seen_before).cloned().collect();
        job.stacks.extend(again);
        if let Some(calls) = &mut job.calls {
            for (rank, state) in &states {
                if let Some(own) = calls.merged.log.ranks.get_mut(rank.index()) {
                    state.write(own.get_or_insert_default());
                }
            }
        }
        let mut gathered = diagnose_job(job);
        let Some(merged) = gathered.calls else {
            // Stacks alone have no place for it.
            let told = states.iter().map(|(rank, state)| format!("Rank {rank}: {}.", state.how()));
            gathered.report.notes.extend(told);
            return Ok(none(gathered.report));
        };
        let report = with_tried_repairs(gathered.report, &merged.log, &mut Unwatched);
        let (look, trace) = (Look::at(&merged.log), Some(merged.trace()));
        Ok(Seen { report, trace, look })
    }

    /// The state of a rank's process, where its answer or silence shows one.
    fn state_of(&self, answer: &Answer) -> Option<ProcessState> {
        Some(match answer {
            Answer { is_gone: true, .. } => ProcessState::Gone(match self.job {
                Job::Processes(_) => "its process is gone",
                _ => "its process is gone: nothing listens where its debug server was",
            }),
            Answer { is_silent: true, .. } => ProcessState::Stands(
                "its process takes connections and answers nothing: it is stopped, or something holds Python's lock",
            ),
            Answer { is_stopped: true, .. } => {
                ProcessState::Stands("its process is stopped, by a signal (SIGSTOP) or a debugger")
            }
            _ => return None,
        })
    }

    /// Prints a report, and keeps it in the folder.
    fn tell(&self, report: &Report, trace: Option<&Trace>) -> Result<()> {
        self.folder.keep(report, trace, TRACE);
        let text = match self.arguments.json {
            true => serde_json::to_string_pretty(report)? + "\n",
            false => report.to_text(),
        };
        Ok(terminal::text(&text)?)
    }
}

/// The report of a job that makes no progress, which a single look cannot show.
fn standing(mut report: Report, since: &str) -> Report {
    report.notes.push(format!("Between two looks at the job, {since}."));
    report
}

/// The report of a job that is making calls: ranks in different calls are normal at a single moment, and no
/// hang. A slow rank is still reported.
fn running(mut report: Report, since: &str) -> Report {
    report.findings.retain(|finding| finding.kind == Kind::Straggler);
    report.notes.push(format!("The job runs: between two looks {since}."));
    report.judged()
}

/// Waits, but not beyond Ctrl-C.
fn wait(pause: Duration, cancelled: &AtomicBool) {
    const LOOKS: Duration = Duration::from_millis(50);
    let until = Instant::now() + pause;
    while Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
        std::thread::sleep(LOOKS.min(until.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_times_are_read() {
        let shown = |text: &str| match text.parse::<Target>() {
            Ok(Target::Tcp { host, port }) => format!("{host} {port}"),
            Ok(Target::Socket(path)) => path.display().to_string(),
            Ok(Target::Process(named)) => format!("{named:?}"),
            Err(error) => error,
        };
        assert_eq!(shown("node-1:29500"), "node-1 29500");
        assert_eq!(shown("http://node-1:25999/"), "node-1 25999");
        assert_eq!(shown("[::1]:25999"), "::1 25999");
        assert_eq!(shown("unix:w0.sock"), "w0.sock");
        assert_eq!(shown("/tmp/w0.sock"), "/tmp/w0.sock");
        assert!(shown("node-1").contains("neither"));
        assert_eq!(shown("pid:47"), format!("{:?}", Named { pid: 47, rank: None }));
        let third = Named { pid: 47, rank: Some(GlobalRank(3)) };
        assert_eq!(shown("pid:47:3"), format!("{third:?}"));
        for wrong in ["pid:", "pid:x", "pid:47:", "pid:47:x", "pid:-1"] {
            assert!(shown(wrong).contains("is no process"), "{wrong}");
        }
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("3"), Ok(Duration::from_secs(3)));
        for wrong in ["", "s", "0s", "2h", "5000s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
