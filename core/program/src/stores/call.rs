//! Calls on stores, as a process makes them.

use crate::process::raised::{Raised, refused};
use crate::process::state::Process;
use crate::stores::answer::{asked, change};
use crate::stores::handle::{Handle, Of};
use crate::stores::log::{Answer, At, Missing, Op, Place, What};
use crate::stores::meeting::KEYS;
use crate::stores::settle::alone;
use crate::stores::unknown_answer::Stuck;
use crate::stores::wait_result::Found;
use lockstep_core::plan::remark::{Lost, LostWait};
use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::store::{Store, StoreKind};
use lockstep_torch::c10d::{DistError, ErrorKind};
use std::sync::Arc;

/// Operations on stores of one rank.
const MAX_OPS: usize = 100_000;

/// Bytes of a key and of a value.
const MAX_BYTES: usize = 1 << 20;

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
    /// The user's call, which is shown beside the messages that it makes.
    pub(super) via: &'static str,
    /// As the program names them, for errors.
    pub(super) keys: Vec<String>,
    /// The time that it may wait, in milliseconds; for as long as the store says if absent.
    pub(super) timeout_ms: Option<u64>,
    pub(super) column: u32,
    pub(super) asks: Asks,
}

/// The time at which the program looks at the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Never: the call is a statement of its own.
    No,
    /// Never, but it gives the answer a name.
    Later,
    Now,
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

/// A call on a store that only this process has.
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
/// The error that PyTorch raises if the ranks are not in the same store.
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
    let exact = polls && process.stores.exact;
    let what = as_waited(&call.what, polls, exact);
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
        // A missing key may come once the others have gone on; so may a counter's end.
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
    let what = op.what.clone();
    let polls_key = op.polls && what == What::Wait;
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
    // A rank that waits notifies the others afterwards.
    let waits = known.waits.get(&at).filter(|_| answer.is_some() && hangs.is_none());
    for signal in waits.into_iter().flatten() {
        let dist = process.dist()?;
        dist.store_wait(signal.peer, signal.tag, signal.bytes, waits_ms, call.via);
    }
    for signal in known.signals.get(&at).into_iter().flatten() {
        process.dist()?.store_signal(signal.peer, signal.tag, signal.bytes, call.via);
    }
    let Some(answer) = answer else {
        let nothing_to_tell = matches!(what, What::Set(_) | What::Append(_));
        return match (nothing_to_tell, counts || (what.changes() && call.asks != Asks::Now)) {
            (true, _) => Ok(Told::Now(Answer::Done)),
            (false, true) => Ok(Told::Later(at.1)),
            (false, false) => {
                process.stores.log.stuck = Some(at.1);
                Err(anyhow::Error::new(Stuck))
            }
        };
    };
    if let Some(lost) = hangs {
        return Err(hang(process, at.0, world_size, &lost)?);
    }
    let counted = matches!(what, What::AtLeast { .. } | What::Until(_));
    process.stores.waited |= loops && (counted || polls_key);
    let answer = as_asked(&call.what, answer, polls_key);
    told(process, handle, kind, &call, answer).map(Told::Now)
}

/// The operation that a call stands for: a loop that asks whether keys are there waits for them, and one that
/// compares a counter waits for its number.
fn as_waited(what: &What, polls: bool, exact: bool) -> What {
    match what {
        What::Check if polls => What::Wait,
        What::Add(0) if exact => What::AtLeast { number: 0, exact: true },
        what => what.clone(),
    }
}

/// Lets a rank wait for ever for an answer that nobody gives: for the next rank, if no other one is known.
fn hang(
    process: &mut Process<'_>,
    rank: usize,
    world_size: u32,
    lost: &LostWait,
) -> anyhow::Result<anyhow::Error> {
    let peer = match lost.why {
        Lost::Late { rank: other, .. } | Lost::Behind { rank: other, .. }
            if other.index() != rank =>
        {
            other
        }
        _ => GlobalRank((rank as u32 + 1) % world_size.max(1)),
    };
    process.dist()?.store_wait(peer, u32::MAX, 1, None, &lost.to_string());
    process.stores.log.hangs = true;
    Ok(anyhow::Error::new(Stuck))
}

/// An answer in the type of its question: counters are texts to `get`, and texts counters to `add`.
fn as_asked(what: &What, answer: Answer, polls_key: bool) -> Answer {
    match answer {
        Answer::Done if polls_key => Answer::Yes(true),
        Answer::Number(number) if *what == What::Get => {
            Answer::Bytes(number.to_string().into_bytes())
        }
        Answer::Bytes(bytes) if matches!(what, What::Add(_)) => {
            let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
            number.map_or(Answer::Bytes(bytes), Answer::Number)
        }
        answer => answer,
    }
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
