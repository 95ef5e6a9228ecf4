//! Every claim of every lesson, asked of the simulator: the right answer of a question, and the
//! numbers in sentences. A claim is a question about what the step shows, through the same code that
//! shows it: `sends_chunk rank=2 moment=1`. `@name=value` changes the address first: `end @algorithm=tree`.
//!
//! ARCHITECTURE.md, "How to add a lesson", lists the claims.

use super::super::call_choice::{CallChoice, CallRead};
use super::super::step_choice::StepChoice;
use super::super::{ddp, hangs, mesh};
use super::live::address_of;
use crate::explain;
use crate::route::{Route, View};
use lockstep_core::group::GroupId;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, Trace, What};
use lockstep_diagnosis::{Report, diagnose_files, diagnose_whole_trace, who_waits};
use lockstep_formats::flight_recorder::dumps_of;
use lockstep_formats::recording::{Piece, Sources};
use lockstep_lessons::{Ask, Inline, Lesson, Shelf, Show};
use lockstep_sim::{Session, Topology};
use lockstep_web_protocol::Machine;
use lockstep_web_protocol::{DdpAccount, MeshAccount};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lessons")
}

fn shelf() -> Shelf {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder().join("text")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        files.push((name, std::fs::read_to_string(&path).unwrap()));
    }
    let files = files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    Shelf::read(files).unwrap_or_else(|error| panic!("{error}"))
}

/// A claim in its parts.
struct Claim<'a> {
    verb: &'a str,
    arguments: BTreeMap<&'a str, &'a str>,
    /// The changes to the address that come first.
    changes: Vec<(&'a str, &'a str)>,
}

impl<'a> Claim<'a> {
    fn parse(text: &'a str) -> Result<Claim<'a>, String> {
        let mut words = text.split_whitespace();
        let verb = words.next().ok_or("an empty claim")?;
        let (mut arguments, mut changes) = (BTreeMap::new(), Vec::new());
        for word in words {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("{word:?} is no name=value"))?;
            match name.strip_prefix('@') {
                Some(name) => changes.push((name, value)),
                None => drop(arguments.insert(name, value)),
            }
        }
        Ok(Claim { verb, arguments, changes })
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let found = self.arguments.get(name).copied();
        found.ok_or_else(|| format!("{} needs {name}=", self.verb))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name}={text} is no number"))
    }

    fn rank(&self) -> Result<GlobalRank, String> {
        self.number("rank").map(GlobalRank)
    }

    fn number_or(&self, name: &str, usual: usize) -> Result<usize, String> {
        if self.arguments.contains_key(name) { self.number(name) } else { Ok(usual) }
    }
}

/// An answer of the simulator: words, or a number that can be compared.
enum Measured {
    Words(String),
    Count(u64),
    Time(u64),
    Bytes(u64),
}

impl Measured {
    fn words(&self) -> String {
        match self {
            Measured::Words(words) => words.clone(),
            Measured::Count(count) => count.to_string(),
            Measured::Time(ps) => explain::time(*ps),
            Measured::Bytes(bytes) => explain::bytes(*bytes),
        }
    }

    fn number(&self) -> Result<u64, String> {
        match self {
            Measured::Words(words) => Err(format!("{words:?} is no number")),
            Measured::Count(number) | Measured::Time(number) | Measured::Bytes(number) => {
                Ok(*number)
            }
        }
    }
}

/// The shown view, simulated.
enum Shown {
    Job(Box<Job>),
    Ddp(Box<DdpAccount>),
    Mesh(Box<MeshAccount>, usize),
    Recording(Box<Recorded>),
}

struct Job {
    trace: Trace,
    log: CallLog,
    report: Report,
    session: Session,
}

struct Recorded {
    log: CallLog,
    report: Report,
}

fn job(plan: &Plan, machine: Machine) -> Result<Shown, String> {
    let words = |error: lockstep_sim::SimError| error.to_string();
    let machine = match machine == Machine::default() {
        true => Topology::of_ranks_per_node(plan.ranks_per_node).into(),
        false => machine,
    };
    let config = lockstep_web_engine::machine_config(plan, machine)?;
    let mut session = Session::new(plan, config).map_err(words)?;
    session.run_to_end().map_err(words)?;
    let trace = session.trace();
    let (log, report) = (CallLog::of(&trace), diagnose_whole_trace(&trace));
    Ok(Shown::Job(Box::new(Job { trace, log, report, session })))
}

fn opened(show: &Show, changes: &[(&str, &str)]) -> Result<Shown, String> {
    let route = changes.iter().fold(address_of(show), |route, (name, to)| route.with(name, *to));
    if let Some(unknown) = route.unknown_view() {
        return Err(format!("{}: there is no view {unknown:?}", show.address));
    }
    match route.view() {
        View::Step => {
            let (plan, machine) = step_plan(&route)?;
            job(&plan, machine)
        }
        View::Hangs => {
            let (plan, machine) = hangs::plan_at(&route)?;
            job(&plan, machine)
        }
        View::Program => {
            let text = show.program.as_deref().ok_or("the program is missing")?;
            let options = lockstep_scenarios::program::Options::default();
            let compiled = lockstep_program::compile("train.py", text, &options);
            job(&compiled.map_err(|error| error.to_string())?.plan, Machine::default())
        }
        View::Ddp => Ok(Shown::Ddp(Box::new(ddp::account_at(&route)?))),
        View::Mesh => {
            let (account, dim) = mesh::account_at(&route)?;
            Ok(Shown::Mesh(Box::new(account), dim))
        }
        View::Recording => recorded(&show.files),
        // One of the algorithms that are compared there, stepped through.
        View::Gallery => {
            let same =
                ["collective", "world", "count", "algorithm", "node", "latency", "bandwidth"];
            let to = Route::to(View::Step);
            let to = same.into_iter().fold(to, |to, name| match route.get(name) {
                Some(value) => to.with(name, value),
                None => to,
            });
            let (plan, machine) = step_plan(&to)?;
            job(&plan, machine)
        }
        _ => Err("claims know nothing of this view".to_owned()),
    }
}

fn step_plan(route: &Route) -> Result<(Plan, Machine), String> {
    let unmet = |unmet: &[super::super::asked::Unmet]| match unmet.first() {
        Some(unmet) => Err(format!("{}: {}", unmet.asked, unmet.why)),
        None => Ok(()),
    };
    match CallChoice::read(route) {
        CallRead::Call(choice, wrong) => {
            unmet(&wrong)?;
            Ok((choice.plan()?, Machine::default()))
        }
        CallRead::Unknown(wrong) => Err(format!("{}: {}", wrong.asked, wrong.why)),
        CallRead::None => {
            let (choice, wrong) = StepChoice::read(route);
            unmet(&wrong)?;
            Ok((choice.plan()?, choice.machine))
        }
    }
}

fn recorded(files: &[String]) -> Result<Shown, String> {
    let mut sources = Sources::default();
    for name in files {
        let path = folder().join("files").join(name);
        let bytes = std::fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
        sources.take(Piece::read(name, &bytes));
    }
    let job = diagnose_files(sources).map_err(|error| error.to_string())?;
    let log = job.calls.ok_or("the files hold no calls")?.log;
    Ok(Shown::Recording(Box::new(Recorded { log, report: job.report })))
}

/// The simulator's answer to a claim about the view of a step.
fn measured(show: &Show, text: &str) -> Result<String, String> {
    let claim = Claim::parse(text)?;
    // Which of several values makes something least: `least of=end algorithm=ring|tree`.
    if claim.verb == "least" || claim.verb == "ratio" {
        let verb = claim.text("of")?;
        let name = claim.arguments.keys().find(|name| **name != "of").copied();
        let name = name.ok_or("what is varied?")?;
        let mut found = Vec::new();
        for value in claim.text(name)?.split('|') {
            let mut changes = claim.changes.clone();
            changes.push((name, value));
            let one = Claim { verb, arguments: BTreeMap::new(), changes };
            found.push((answer(show, &one)?.number()?, value));
        }
        if claim.verb == "least" {
            let least = found.iter().min().ok_or("nothing is compared")?;
            let ties = found.iter().filter(|(number, _)| *number == least.0).count();
            return if ties == 1 { Ok(least.1.to_owned()) } else { Err("a tie".to_owned()) };
        }
        let [(a, _), (b, _)] = found[..] else { return Err("a ratio is of two".to_owned()) };
        return Ok(format!("{:.1}", a as f64 / b.max(1) as f64));
    }
    Ok(answer(show, &claim)?.words())
}

fn answer(show: &Show, claim: &Claim<'_>) -> Result<Measured, String> {
    match opened(show, &claim.changes)? {
        Shown::Job(mut job) => of_job(&mut job, claim),
        Shown::Ddp(account) => of_ddp(&account, claim),
        Shown::Mesh(account, dim) => of_mesh(&account, dim, claim),
        Shown::Recording(recorded) => of_calls(&recorded.log, &recorded.report, claim),
    }
}

fn ranks(ranks: impl IntoIterator<Item = GlobalRank>) -> Measured {
    Measured::Words(explain::ranks(ranks.into_iter().map(|rank| rank.0)))
}

fn of_job(job: &mut Job, claim: &Claim<'_>) -> Result<Measured, String> {
    let last = job.session.moments().len() - 1;
    let moment = claim.number_or("moment", last)?;
    job.session.seek(moment).map_err(|error| error.to_string())?;
    let view = job.session.view();
    let sent = |rank: Option<u32>| {
        job.trace.events.iter().filter_map(move |event| match event.what {
            What::Sent { bytes, .. } if rank.is_none_or(|rank| rank == event.rank.0) => Some(bytes),
            _ => None,
        })
    };
    let one = || match claim.arguments.contains_key("rank") {
        true => claim.number("rank").map(Some),
        false => Ok(None),
    };
    Ok(match claim.verb {
        "moments" => Measured::Count(last as u64),
        "end" => Measured::Time(job.trace.end.as_ref().ok_or("no end")?.time_ps),
        "time" => Measured::Time(view.time_ps),
        "messages" => Measured::Count(sent(one()?).count() as u64),
        "bytes" => Measured::Bytes(sent(one()?).sum()),
        "message_bytes" => {
            let message = view.messages.first().ok_or("nothing is on its way")?;
            Measured::Bytes(message.bytes)
        }
        "in_flight" => Measured::Count(view.messages.len() as u64),
        "sends_chunk" | "to" => {
            let rank = claim.rank()?;
            let mut from = view.messages.iter().filter(|message| message.from == rank);
            let message = from.next().ok_or("the rank has nothing on its way")?;
            match claim.verb {
                "to" => ranks([message.to]),
                _ => Measured::Words(format!("c{}", message.slice.ok_or("no slice")?.chunk)),
            }
        }
        "receives_chunk" => {
            let rank = claim.rank()?;
            let mut to = view.messages.iter().filter(|message| message.to == rank);
            let message = to.next().ok_or("nothing is on its way to the rank")?;
            Measured::Words(format!("c{}", message.slice.ok_or("no slice")?.chunk))
        }
        // The ranks whose data is in a chunk.
        "holds" => {
            let rank = view.ranks.get(claim.rank()?.index()).ok_or("no such rank")?;
            let call = rank.calls.last().ok_or("the rank has made no call")?;
            let chunk: usize = claim.number("chunk")?;
            let chunk = call.output.chunks.get(chunk).ok_or("no such chunk")?;
            let bits = chunk.contributors;
            ranks((0..64).filter(|bit| bits >> bit & 1 == 1).map(GlobalRank))
        }
        // How many chunks of a rank's buffer hold the data of so many ranks.
        "chunks_of" => {
            let rank = view.ranks.get(claim.rank()?.index()).ok_or("no such rank")?;
            let call = rank.calls.last().ok_or("the rank has made no call")?;
            let many: u32 = claim.number("ranks")?;
            let chunks = call.output.chunks.iter();
            let whole = chunks.filter(|chunk| chunk.contributors.count_ones() == many);
            Measured::Count(whole.count() as u64)
        }
        "chunks" => {
            let call = view.ranks.first().and_then(|rank| rank.calls.last());
            Measured::Count(call.ok_or("no call")?.output.chunks.len() as u64)
        }
        "rounds" => {
            let call = view.ranks.first().and_then(|rank| rank.calls.last());
            Measured::Count(call.ok_or("no call")?.rounds.into())
        }
        "value" => {
            let (rank, index) = (claim.rank()?, claim.number::<usize>("index")?);
            let call = view.ranks.get(rank.index()).and_then(|rank| rank.calls.last());
            let tensor = call.and_then(|call| call.output.tensor).ok_or("no tensor")?;
            let bytes = job.session.tensor(rank, tensor).ok_or("no values")?;
            let element = bytes.as_chunks::<4>().0.get(index).ok_or("no such element")?;
            Measured::Words(f32::from_le_bytes(*element).to_string())
        }
        // The line of the program that a rank stands at.
        "line" => {
            let rank = view.ranks.get(claim.rank()?.index()).ok_or("no such rank")?;
            Measured::Count(rank.line.ok_or("the rank is at no line")?.line.into())
        }
        _ => return of_calls(&job.log, &job.report, claim),
    })
}

/// Answers from calls and their diagnosis: of a simulation, and of a recording.
fn of_calls(log: &CallLog, report: &Report, claim: &Claim<'_>) -> Result<Measured, String> {
    let group = GroupId(claim.number_or("group", 0)? as u32);
    let calls = |rank: GlobalRank| -> Result<Vec<&CallRecord>, String> {
        let own = log.ranks.get(rank.index()).and_then(Option::as_ref).ok_or("no such rank")?;
        Ok(own.calls.iter().filter(|call| call.call.group == group && !call.call.p2p).collect())
    };
    Ok(match claim.verb {
        "culprits" => ranks(report.culprits()),
        "kind" => {
            let finding = report.findings.first().ok_or("nothing is found")?;
            Measured::Words(finding.kind.name().to_owned())
        }
        "certainty" => {
            let finding = report.findings.first().ok_or("nothing is found")?;
            Measured::Words(format!("{:?}", finding.certainty).to_lowercase())
        }
        "verdict" => Measured::Words(format!("{:?}", report.verdict).to_lowercase()),
        // For whom a rank waits at the end.
        "waits" => {
            let rank = claim.rank()?;
            let waits = who_waits(log);
            let wait = waits.iter().find(|wait| wait.rank == rank);
            ranks(wait.ok_or("the rank waits for nobody")?.waits_for.iter().copied())
        }
        "calls" => Measured::Count(calls(claim.rank()?)?.len() as u64),
        "completed" => {
            let calls = calls(claim.rank()?)?;
            Measured::Count(calls.iter().filter(|call| call.completed_ps.is_some()).count() as u64)
        }
        // The rank whose calls take the least time, from where its stream begins them.
        "shortest_calls" => {
            let mut least = None;
            for (rank, _) in log.logs() {
                let own = calls(rank)?;
                let times = own
                    .iter()
                    .filter_map(|call| Some(call.completed_ps?.saturating_sub(call.started_ps?)));
                let sum: u64 = times.sum();
                least = least.into_iter().chain([(sum, rank)]).min();
            }
            ranks(least.map(|(_, rank)| rank))
        }
        "call" | "numel" => {
            let seq: u64 = claim.number("seq")?;
            let calls = calls(claim.rank()?)?;
            let call = calls.iter().find(|call| call.seq == Some(seq)).ok_or("no such call")?;
            match claim.verb {
                "call" => Measured::Words(call.call.op.clone()),
                _ => Measured::Count(call.call.inputs.iter().map(|input| input.numel()).sum()),
            }
        }
        "groups" => Measured::Count(log.groups.len() as u64),
        "members" => {
            let group = log.groups.get(group.index()).ok_or("no such group")?;
            ranks(group.ranks().iter().copied())
        }
        "group_rank" => {
            let group = log.groups.get(group.index()).ok_or("no such group")?;
            let rank = group.group_rank(claim.rank()?).ok_or("the rank is not in it")?;
            Measured::Count(rank.0.into())
        }
        verb => return Err(format!("there is no claim {verb:?} of calls")),
    })
}

fn of_ddp(account: &DdpAccount, claim: &Claim<'_>) -> Result<Measured, String> {
    let pass = &account.pass;
    let bucket = || {
        let index: usize = claim.number("bucket")?;
        pass.buckets.get(index).ok_or_else(|| "no such bucket".to_owned())
    };
    Ok(match claim.verb {
        "buckets" => Measured::Count(pass.buckets.len() as u64),
        "collectives" => Measured::Count(account.summary.collectives.into()),
        "params" => Measured::Count(account.model.params.len() as u64),
        "gradient_bytes" => Measured::Bytes(account.model.gradient_bytes()),
        "bucket_bytes" => Measured::Bytes(bucket()?.bytes),
        "bucket_params" => Measured::Count(bucket()?.params.len() as u64),
        "bucket_of" => {
            let name = claim.text("param")?;
            let index = account.model.params.iter().position(|param| param.name == name);
            let fate = index.and_then(|index| pass.params.get(index)).ok_or("no such parameter")?;
            Measured::Count(fate.bucket.ok_or("it is in no bucket")?.into())
        }
        // The parameter whose gradient is ready first.
        "first_ready" => {
            let ready = pass.params.iter().enumerate();
            let ready = ready.filter_map(|(index, fate)| Some((fate.ready_ps?, index)));
            let (_, index) = ready.min().ok_or("none is ready")?;
            Measured::Words(account.model.params.get(index).ok_or("no name")?.name.clone())
        }
        "launched_in_backward" => {
            let launched = pass.buckets.iter().filter_map(|bucket| bucket.span_ps);
            let early = launched.filter(|(start, _)| *start < pass.backward_end_ps);
            Measured::Count(early.count() as u64)
        }
        // The bucket that backward waits longest for.
        "most_exposed" => {
            let exposed = pass.buckets.iter().map(|bucket| bucket.exposed_ps).zip(0u64..);
            Measured::Count(exposed.max().ok_or("no bucket")?.1)
        }
        "step" => Measured::Time(account.summary.step_ps),
        "exposed" => Measured::Time(account.summary.exposed_ps),
        "communication" => Measured::Time(account.summary.communication_ps),
        "waiting" => Measured::Time(account.summary.waiting_ps()),
        "backward_end" => Measured::Time(pass.backward_end_ps),
        "reduced_passes" => {
            let (from, to) = account.steady;
            let steady = account.passes.iter().skip(from as usize).take((to - from) as usize);
            Measured::Count(steady.filter(|pass| pass.sync).count() as u64)
        }
        "reduces" => Measured::Words(pass.buckets.iter().any(|b| b.span_ps.is_some()).to_string()),
        "raises" => Measured::Words(account.raised.is_some().to_string()),
        "marked" => Measured::Count(pass.params.iter().filter(|fate| fate.marked).count() as u64),
        verb => return Err(format!("there is no claim {verb:?} of DDP")),
    })
}

fn of_mesh(account: &MeshAccount, dim: usize, claim: &Claim<'_>) -> Result<Measured, String> {
    let dim = match claim.arguments.get("dim") {
        Some(name) => account.dims.iter().position(|dim| dim.name == *name).ok_or("no such dim")?,
        None => dim,
    };
    let along = account.dims.get(dim).ok_or("no such dim")?;
    Ok(match claim.verb {
        "world" => Measured::Count(account.coordinates.len() as u64),
        "groups" => Measured::Count(along.groups.len() as u64),
        "size" => Measured::Count(along.groups.first().map_or(0, Vec::len) as u64),
        "group" => {
            let group = account.group_of(dim, claim.number("rank")?).ok_or("no such rank")?;
            Measured::Words(explain::ranks(group.1.iter().copied()))
        }
        "coordinate" => {
            let place = account.coordinates.get(claim.number::<usize>("rank")?);
            let at = place.and_then(|place| place.get(dim)).ok_or("no such rank")?;
            Measured::Count((*at).into())
        }
        "across" => Measured::Bytes(along.across.bytes),
        "inside" => Measured::Bytes(along.inside.bytes),
        "end" => Measured::Time(along.time_ps),
        verb => return Err(format!("there is no claim {verb:?} of a mesh")),
    })
}

#[test]
fn every_claim_holds_in_the_simulator() {
    let mut wrong = Vec::new();
    let mut held = 0;
    for lesson in shelf().lessons {
        for (number, step) in (1..).zip(&lesson.steps) {
            let place = format!("{} step {number}", lesson.title.id);
            if let Some(ask) = &step.ask {
                held += 1;
                wrong.extend(wrong_answer(&step.show, ask).map(|why| format!("{place}: {why}")));
            }
            for fact in &step.facts {
                held += 1;
                match measured(&step.show, &fact.claim) {
                    Ok(said) if said == fact.says => {}
                    Ok(said) => wrong.push(format!(
                        "{place}: the text says {:?}, but {:?} is {said:?}",
                        fact.says, fact.claim
                    )),
                    Err(why) => wrong.push(format!("{place}: {:?}: {why}", fact.claim)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(held > 0, "nothing is claimed");
}

/// The recordings that lessons open are what the simulator's hangs leave.
/// `LOCKSTEP_WRITE_LESSON_FILES=1` writes them.
#[test]
fn the_recordings_of_lessons_are_written_by_the_simulator() {
    let names: BTreeSet<String> = shelf()
        .lessons
        .iter()
        .flat_map(|lesson| &lesson.steps)
        .flat_map(|step| step.show.files.iter().cloned())
        .collect();
    let write = std::env::var_os("LOCKSTEP_WRITE_LESSON_FILES").is_some();
    let mut entries = String::new();
    for name in names {
        let (hang, file) = name.split_once('/').unwrap();
        let show = Show { address: format!("#/hangs/{hang}?world=4"), ..Show::default() };
        let Shown::Job(job) = opened(&show, &[]).unwrap() else { panic!("{name}") };
        let dumps = dumps_of(&job.log, job.trace.header.epoch_ns);
        let dump = dumps.iter().find(|dump| dump.file_name == file);
        let dump = dump.unwrap_or_else(|| panic!("{name} is not among {:?}", dumps.len()));
        let path = folder().join("files").join(&name);
        if write {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, dump.to_pickle()).unwrap();
        }
        entries.push_str(&dump.to_json());
        assert!(std::fs::read(&path).is_ok_and(|there| there == dump.to_pickle()), "{name}");
    }
    // What a text shows of a file is in it.
    for step in shelf().lessons.iter().flat_map(|lesson| &lesson.steps) {
        for block in step.blocks.iter().chain(&step.then).filter(|_| !step.show.files.is_empty()) {
            let lockstep_lessons::Block::Code(code) = block else { continue };
            for line in code.lines() {
                let line = line.replace(' ', "");
                assert!(entries.contains(line.trim_end_matches(',')), "{line} is in no dump");
            }
        }
    }
}

fn wrong_answer(show: &Show, ask: &Ask) -> Option<String> {
    let said = match measured(show, &ask.claim) {
        Ok(said) => said,
        Err(why) => return Some(format!("{:?}: {why}", ask.claim)),
    };
    let values: Vec<&str> = ask.answers.iter().map(|answer| answer.value.as_str()).collect();
    let right = ask.answers.iter().find(|answer| answer.right)?;
    let same = values.iter().filter(|value| **value == said).count();
    (right.value != said || same != 1).then(|| {
        format!(
            "{:?} is {said:?}; the right answer says {:?} of {values:?}",
            ask.claim, right.value
        )
    })
}

/// A view that is known, and an address that it takes as it is.
fn leads_somewhere(address: &str, lessons: &[Lesson], words: &[String]) -> Result<(), String> {
    let route = Route::parse(address);
    if route.path.is_empty() || route.unknown_view().is_some() {
        return Err(format!("{address} leads to no view"));
    }
    if route.to_hash() != address && !address.contains(['=', ',']) {
        return Err(format!("{address} is not as the page writes it"));
    }
    match (route.view(), route.name()) {
        (View::Learn, None) => Ok(()),
        (View::Learn, Some("glossary")) => match route.get("word") {
            Some(word) if !words.iter().any(|known| known == word) => {
                Err(format!("the glossary has no word {word:?}"))
            }
            _ => Ok(()),
        },
        (View::Learn, Some(name)) => match lessons.iter().find(|each| each.title.id == name) {
            Some(_) => Ok(()),
            None => Err(format!("there is no lesson {name:?}")),
        },
        (View::Hangs | View::Gallery | View::Program | View::Recording, None) => Ok(()),
        (View::Runs, _) | (View::Gallery, Some("side")) => Ok(()),
        _ => opened(&Show { address: address.to_owned(), ..Show::default() }, &[]).map(drop),
    }
}

#[test]
fn every_link_and_everything_shown_leads_to_a_view() {
    let shelf = shelf();
    let words: Vec<String> = shelf.words.iter().map(|word| word.id.clone()).collect();
    let mut wrong = Vec::new();
    let mut check = |place: &str, address: &str| {
        if !address.starts_with('#') && !address.starts_with("https://") {
            wrong.push(format!("{place}: {address} is neither of the page nor https"));
        } else if address.starts_with('#')
            && let Err(why) = leads_somewhere(address, &shelf.lessons, &words)
        {
            wrong.push(format!("{place}: {why}"));
        }
    };
    for lesson in &shelf.lessons {
        for step in &lesson.steps {
            let place = format!("{}, {:?}", lesson.title.id, step.title);
            if step.show.program.is_none() {
                check(&place, &step.show.address);
            }
            if let Some(reveal) = step.ask.as_ref().and_then(|ask| ask.reveal.as_ref()) {
                check(&place, reveal);
            }
            links(step.inlines()).for_each(|to| check(&place, to));
        }
    }
    let mut unseen = Vec::new();
    for word in &shelf.words {
        let inlines = word.blocks.iter().flat_map(lockstep_lessons::Block::inlines);
        let found: Vec<&str> = links(inlines).collect();
        found.iter().for_each(|to| check(&format!("glossary, {:?}", word.word), to));
        // Where it can be seen: in a view, not in another text.
        if !found.iter().any(|to| to.starts_with('#') && Route::parse(to).view() != View::Learn) {
            unseen.push(word.word.clone());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(unseen, Vec::<String>::new(), "words that lead to no view");
}

fn links<'a>(pieces: impl Iterator<Item = &'a Inline>) -> impl Iterator<Item = &'a str> {
    pieces.filter_map(|piece| match piece {
        Inline::Link { to, .. } => Some(to.as_str()),
        _ => None,
    })
}
