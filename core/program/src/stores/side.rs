//! A process's side of the stores: its handles, what it does with them, and what it is told.

use super::answer::{asked, change};
use super::found::Found;
use super::late::{Need, Needed, Stuck, Until};
use super::log::{Answer, At, Log, Missing, Op, Place, What};
use super::meeting::KEYS;
use super::settle::alone;
use crate::execute::process::{Process, Raised, refused};
use lockstep_core::plan::remark::{Lost, LostWait};
use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::store::{DEFAULT_STORE_TIMEOUT_MS, Store, StoreKind, join_key};
use lockstep_torch::c10d::{Clock, DistError, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Operations on stores of one rank.
const MAX_OPS: usize = 100_000;
/// Stores of one rank.
const MAX_STORES: usize = 10_000;
/// Bytes of a key and of a value.
const MAX_BYTES: usize = 1 << 20;

/// A store as a process holds it.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) of: Of,
    /// The time that `get` and `wait` may wait, in milliseconds.
    timeout_ms: AtomicU64,
    /// Whether `init_process_group` keeps keys of its own in it.
    pub(super) of_pytorch: AtomicBool,
    /// `store.host`, as the program wrote it.
    pub(super) host: Option<String>,
}

/// The owner of the store.
#[derive(Clone, Debug)]
pub(super) enum Of {
    /// The process's own: a `HashStore`, by its number.
    Process(usize),
    /// Whoever knows the place.
    Job(Arc<Place>),
}

/// A program's handle: a store, or a part of one.
#[derive(Debug)]
pub(super) enum Handle {
    Store { class: &'static str, base: Arc<Base> },
    Prefix { prefix: String, under: Arc<Handle> },
}

impl Handle {
    pub(super) fn new(class: &'static str, of: Of, timeout_ms: Option<u64>) -> Handle {
        let timeout_ms = AtomicU64::new(timeout_ms.unwrap_or(DEFAULT_STORE_TIMEOUT_MS));
        let of_pytorch = AtomicBool::new(false);
        Handle::Store { class, base: Arc::new(Base { of, timeout_ms, of_pytorch, host: None }) }
    }

    /// A `TCPStore`, with the host as the program wrote it.
    pub(super) fn tcp(host: &str, place: Place, timeout_ms: Option<u64>) -> Handle {
        let timeout_ms = AtomicU64::new(timeout_ms.unwrap_or(DEFAULT_STORE_TIMEOUT_MS));
        let (of, host) = (Of::Job(Arc::new(place)), Some(host.to_owned()));
        let base = Base { of, timeout_ms, of_pytorch: AtomicBool::new(false), host };
        Handle::Store { class: "TCPStore", base: Arc::new(base) }
    }

    pub(super) fn base(&self) -> &Arc<Base> {
        match self {
            Handle::Store { base, .. } => base,
            Handle::Prefix { under, .. } => under.base(),
        }
    }

    /// The class of the store below all prefixes.
    pub(super) fn base_class(&self) -> &'static str {
        match self {
            Handle::Store { class, .. } => class,
            Handle::Prefix { under, .. } => under.base_class(),
        }
    }

    /// The number of its prefixes.
    pub(super) fn depth(&self) -> usize {
        match self {
            Handle::Store { .. } => 0,
            Handle::Prefix { under, .. } => under.depth() + 1,
        }
    }

    pub(super) fn class(&self) -> &'static str {
        match self {
            Handle::Store { class, .. } => class,
            Handle::Prefix { .. } => "PrefixStore",
        }
    }

    /// The key as the store itself names it.
    pub(super) fn key(&self, key: &str) -> String {
        match self {
            Handle::Store { .. } => key.to_owned(),
            Handle::Prefix { prefix, under } => under.key(&join_key(prefix, key)),
        }
    }

    pub(super) fn timeout_ms(&self) -> u64 {
        self.base().timeout_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_timeout(&self, timeout_ms: u64) {
        self.base().timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }
}

/// The name of a `TCPStore`'s constructor, which raises words of its own.
pub(super) const CONSTRUCTOR: &str = "TCPStore";

/// The result of a call.
pub(super) enum Told {
    Now(Answer),
    /// Not known yet, and perhaps not asked for: by the operation's number.
    Later(usize),
}

/// A call.
pub(super) struct Call {
    pub(super) what: What,
    /// The user's call, as it stands beside the messages that it comes to.
    pub(super) via: &'static str,
    /// As the program names them, for errors.
    pub(super) keys: Vec<String>,
    /// The time that it may wait, in milliseconds; for as long as the store says if absent.
    pub(super) timeout_ms: Option<u64>,
    pub(super) column: u32,
    pub(super) asks: Asks,
}

/// Whether the program looks at the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Never: the call is a statement of its own.
    No,
    /// Never, but it gives the answer a name.
    Later,
    Now,
}

/// The stores of a process.
#[derive(Debug, Default)]
pub(crate) struct Side {
    log: Log,
    /// The values that the rank itself has put into shared stores.
    tables: BTreeMap<Arc<Place>, Store>,
    /// Its own stores.
    hashes: Vec<Store>,
    made: usize,
    /// The places where it listens.
    pub(super) serves: BTreeSet<Place>,
    pub(super) need: Need,
    /// Whether the condition of a `while` is looked at.
    pub(super) polling: bool,
    /// Whether it asks for one value only, by `==` or `!=`.
    pub(super) exact: bool,
    /// Whether that condition has waited for what it asks.
    pub(super) waited: bool,
    /// The result of `_get_default_store()`, if the program passed a store.
    pub(super) given: Option<Arc<Handle>>,
}

impl Side {
    /// The log of the rank, when it has ended; `clock` says when that was, if it was its own end.
    pub(crate) fn end(&mut self, failure: Option<&str>, clock: Option<Clock>) -> Log {
        let misused = failure.is_some_and(|text| text.contains(super::late::CLASS));
        if !self.log.stops() {
            let tells = |op: &Op| !matches!(op.what, What::Set(_) | What::Append(_));
            let last = self.log.ops.iter().rposition(|op| op.told.is_none() && tells(op));
            let last = last.filter(|_| misused).map(|op| Needed { op, until: None });
            self.log.stuck = self.need.get().or(last).map(|needed| {
                if let (Some(until), Some(op)) = (needed.until, self.log.ops.get_mut(needed.op)) {
                    op.what = match until {
                        Until::AtLeast(number) => What::AtLeast { number, exact: false },
                        Until::Is(value) => What::Until(value),
                    };
                }
                needed.op
            });
        }
        self.log.end = clock.filter(|_| !self.log.stops());
        std::mem::take(&mut self.log)
    }

    /// The process may go on only if it has all answers that it has asked for.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn go_on(&self) -> anyhow::Result<()> {
        match self.log.stops() || self.need.get().is_some() {
            true => Err(anyhow::Error::new(Stuck)),
            false => Ok(()),
        }
    }

    /// A new store that only the process has.
    pub(super) fn hash(&mut self) -> anyhow::Result<Of> {
        self.counted()?;
        self.hashes.push(Store::new(StoreKind::Hash));
        Ok(Of::Process(self.hashes.len() - 1))
    }

    /// The number of stores that were made before.
    pub(super) fn counted(&mut self) -> anyhow::Result<usize> {
        anyhow::ensure!(self.made < MAX_STORES, "a process has at most {MAX_STORES} stores");
        self.made += 1;
        Ok(self.made - 1)
    }
}

/// Makes a call.
pub(super) fn call(process: &mut Process<'_>, handle: &Handle, call: Call) -> anyhow::Result<Told> {
    let keys: Vec<String> = call.keys.iter().map(|key| handle.key(key)).collect();
    let bytes = match &call.what {
        What::Set(value) | What::Append(value) => value.len(),
        What::CompareSet { expected, desired } => expected.len().max(desired.len()),
        _ => 0,
    };
    anyhow::ensure!(
        bytes <= MAX_BYTES && keys.iter().all(|key| key.len() <= MAX_BYTES),
        "keys and values of a store have at most {MAX_BYTES} bytes here"
    );
    let _ = process.dist()?;
    match handle.base().of.clone() {
        Of::Process(nth) => own(process, handle, nth, &keys, &call).map(Told::Now),
        Of::Job(place) => shared(process, handle, place, keys, call),
    }
}

/// A call on a store that nobody else has.
fn own(
    process: &mut Process<'_>,
    handle: &Handle,
    nth: usize,
    keys: &[String],
    call: &Call,
) -> anyhow::Result<Answer> {
    let table = process.stores.hashes.get_mut(nth);
    let table = table.ok_or_else(|| anyhow::anyhow!("this process has no such store"))?;
    let answer = match (call.what.changes(), keys) {
        (true, [key]) => change(table, key, &call.what),
        (true, _) => Answer::Done,
        (false, keys) => match asked(table, keys, &call.what) {
            Ok(answer) => answer,
            Err(missing) => Answer::TimesOut(Missing::key(&missing, Lost::Nobody)),
        },
    };
    told(process, handle, StoreKind::Hash, call, answer)
}

/// Meets the other ranks in a store that `init_process_group` is given.
///
/// # Errors
/// What it raises where they are not in the same one.
pub(super) fn meet(process: &mut Process<'_>, handle: &Handle, column: u32) -> anyhow::Result<()> {
    let dist = process.dist()?;
    let timeout_ms = dist.default_timeout_ms();
    let rank = dist.process();
    let place = match handle.base().of.clone() {
        Of::Process(nth) => Arc::new(Place::Own { rank, nth }),
        Of::Job(place) => place,
    };
    let keys = vec![handle.key(KEYS)];
    let (via, asks) = ("init_process_group", Asks::Now);
    let met = Call { what: What::Meet, via, keys: keys.clone(), timeout_ms, column, asks };
    shared(process, handle, place, keys, met).map(|_| ())
}

/// A call on a store that other ranks may reach.
fn shared(
    process: &mut Process<'_>,
    handle: &Handle,
    place: Arc<Place>,
    keys: Vec<String>,
    call: Call,
) -> anyhow::Result<Told> {
    let kind = place.kind();
    let line = process.line;
    let polls = process.stores.polling;
    let dist = process.dist()?;
    let (rank, barriers, clock) = (dist.process().index(), dist.barriers(), dist.clock());
    let world_size = dist.world_size_of_job();
    let at: At = (rank, process.stores.log.ops.len());
    anyhow::ensure!(at.1 < MAX_OPS, "a rank does at most {MAX_OPS} operations on stores here");
    let what = match (&call.what, polls) {
        // A loop that asks whether keys are there waits for them.
        (What::Check, true) => What::Wait,
        (what, _) => what.clone(),
    };
    let exact = polls && process.stores.exact;
    let what = match what {
        What::Add(0) if exact => What::AtLeast { number: 0, exact: true },
        what => what,
    };
    let counts = polls && !exact && matches!(what, What::Add(0) | What::Get);
    let waits = matches!(what, What::AtLeast { .. }) || call.what == What::Check;
    let loops = polls && (counts || waits);
    let waits_ms = Some(call.timeout_ms.unwrap_or(handle.timeout_ms())).filter(|_| !loops);
    let mut op = Op {
        store: place.clone(),
        what,
        keys,
        barriers,
        clock,
        timeout_ms: waits_ms,
        line,
        column: call.column,
        polls: loops,
        told: None,
    };
    let known = process.known.stores.clone();
    let table = process.stores.tables.entry(place).or_insert_with(|| Store::new(kind));
    let found = alone(rank, &op, clock, table, &known.touched).filter(|_| known.looked);
    let given = known.answers.get(&at);
    let answer = match (given, found) {
        (Some(given), _) => {
            op.what = given.instead.clone().unwrap_or(op.what);
            Some(given.answer.clone())
        }
        // What is not there may come once the others have gone on; so may a counter's end.
        (None, Some(Found::Ready { answer, .. }))
            if (call.asks != Asks::No
                && !counts
                && !(polls && matches!(op.what, What::AtLeast { .. })))
                || matches!(answer, Answer::Raises(_)) =>
        {
            Some(answer)
        }
        _ => None,
    };
    let counted = matches!(op.what, What::AtLeast { .. } | What::Until(_));
    let nothing_to_tell = matches!(op.what, What::Set(_) | What::Append(_));
    let changes = op.what.changes();
    let polls_key = op.polls && op.what == What::Wait;
    let hangs = match &answer {
        Some(Answer::TimesOut(missing)) if loops => Some(LostWait {
            call: call.via.to_owned(),
            awaited: missing.awaited.clone(),
            why: missing.why.clone(),
        }),
        _ => None,
    };
    op.told.clone_from(&answer);
    process.stores.log.ops.push(op);
    // Who waits first tells the others then.
    let waits = known.waits.get(&at).filter(|_| answer.is_some() && hangs.is_none());
    for signal in waits.into_iter().flatten() {
        let dist = process.dist()?;
        dist.store_wait(signal.peer, signal.tag, signal.bytes, waits_ms, call.via);
    }
    for signal in known.signals.get(&at).into_iter().flatten() {
        process.dist()?.store_signal(signal.peer, signal.tag, signal.bytes, call.via);
    }
    let Some(answer) = answer else {
        return match (nothing_to_tell, counts || (changes && call.asks != Asks::Now)) {
            (true, _) => Ok(Told::Now(Answer::Done)),
            (false, true) => Ok(Told::Later(at.1)),
            (false, false) => {
                process.stores.log.stuck = Some(at.1);
                Err(anyhow::Error::new(Stuck))
            }
        };
    };
    if let Some(lost) = hangs {
        // Nobody answers: the next rank, if no other one is known.
        let peer = match lost.why {
            Lost::Late { rank, .. } | Lost::Behind { rank, .. } if rank.index() != at.0 => rank,
            _ => GlobalRank((at.0 as u32 + 1) % world_size.max(1)),
        };
        process.dist()?.store_wait(peer, u32::MAX, 1, None, &lost.to_string());
        process.stores.log.hangs = true;
        return Err(anyhow::Error::new(Stuck));
    }
    process.stores.waited |= loops && (counted || polls_key);
    let answer = match answer {
        Answer::Done if polls_key => Answer::Yes(true),
        Answer::Number(number) if call.what == What::Get => {
            Answer::Bytes(number.to_string().into_bytes())
        }
        Answer::Bytes(bytes) if matches!(call.what, What::Add(_)) => {
            let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
            number.map_or(Answer::Bytes(bytes), Answer::Number)
        }
        answer => answer,
    };
    told(process, handle, kind, &call, answer).map(Told::Now)
}

/// The program's result: an answer, or an exception.
fn told(
    process: &mut Process<'_>,
    handle: &Handle,
    kind: StoreKind,
    call: &Call,
    answer: Answer,
) -> anyhow::Result<Answer> {
    let missing = match answer {
        Answer::Raises(error) => return Err(refused(error)),
        Answer::TimesOut(missing) => missing,
        answer => return Ok(answer),
    };
    let timeout_ms = call.timeout_ms.unwrap_or(handle.timeout_ms());
    let dist = process.dist()?;
    // A server counts whole seconds, and one more.
    let waits_ms = match call.what {
        What::AtLeast { .. } => (timeout_ms / 1000 + 1) * 1000,
        _ => timeout_ms,
    };
    let ns = waits_ms.min(5_000_000_000).saturating_mul(1_000_000);
    if call.via == CONSTRUCTOR {
        let Missing { awaited, why, .. } = missing.clone();
        let name = match why {
            why @ Lost::Late { .. } if awaited == LostWait::CLIENTS => {
                LostWait { call: call.via.to_owned(), awaited, why }.to_string()
            }
            _ => "TCPStore: waits for the others, who do not come".to_owned(),
        };
        dist.sleep(name, ns);
        return Ok(Answer::TimesOut(missing));
    }
    let Missing { key, awaited, why } = missing;
    let lost = LostWait { call: call.via.to_owned(), awaited, why };
    dist.sleep(lost.to_string(), ns);
    let table = Store::new(kind);
    let keys: Vec<String> = call.keys.iter().map(|key| handle.key(key)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let error: DistError = match call.what {
        What::Meet if key.is_empty() => DistError::new(
            ErrorKind::RuntimeError,
            "Gloo connectFullMesh failed with \
             [/pytorch/third_party/gloo/gloo/transport/tcp/pair.h:301] Connect timeout [none]",
        ),
        What::Meet => table.timed_out(&[&key], timeout_ms),
        What::Get | What::MultiGet => table.timed_out_getting(&keys, &key, timeout_ms),
        _ => table.timed_out(&keys, timeout_ms),
    };
    let help = error.help.clone().unwrap_or_else(|| {
        let LostWait { awaited, why, .. } = &lost;
        match why {
            Lost::Nobody => format!(
                "{awaited} does not come: no rank sets it under this name and prefix, or only \
                 behind a barrier or a key that waits for this rank."
            ),
            Lost::Behind { .. } => {
                format!("{awaited} does not come: {why}, behind what waits for this rank.")
            }
            Lost::Elsewhere { here } => {
                format!("This rank is in {here}, and {awaited} is not: give all ranks one store.")
            }
            Lost::Late { .. } | Lost::Counts { .. } => format!("{awaited} does not come: {why}."),
        }
    });
    Err(anyhow::Error::new(Raised { text: error.to_string(), help: Some(help) }))
}
