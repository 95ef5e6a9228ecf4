//! The answer of every operation on a shared store, as far as it does not depend on which rank is
//! first, and the waits of its rank.

use super::answer::{asked, change};
use super::log::{Answer, At, Log, Missing, Op, Place, What};
use super::meeting::meetings;
use super::order::Order;
use super::times::{Times, in_time};
use crate::stores::changed_keys::{Touched, touched};
use crate::stores::ended_server::gone;
use crate::stores::found_value::{Changes, Seen, There, Unordered};
use crate::stores::wait_result::Found;
use lockstep_core::plan::remark::{Lost, LostWait};
use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::Clock;
use lockstep_torch::c10d::store::{Store, StoreKind};
use std::collections::{BTreeMap, BTreeSet};

/// Steps along the order of all operations that are taken at most: some seconds.
const BUDGET: u64 = 200_000_000;

/// The key by which a `TCPStore` counts its clients.
pub(super) const CLIENTS: &str = "init/";

fn ready(answer: Answer) -> Found {
    Found::Ready { answer, waits: Vec::new() }
}

fn raises(found: &Found) -> bool {
    matches!(found, Found::Ready { answer: Answer::Raises(_), .. })
}

/// The results of all operations whose answer is used, and their order. `kept` are waits that were answered
/// before, `follows` are the operations that were put in order.
///
/// # Errors
/// When the search exceeds its budget.
pub(super) fn settle<'l>(
    logs: &'l [Log],
    kept: &BTreeMap<At, Vec<At>>,
    follows: &BTreeMap<At, Vec<At>>,
    times: &Times,
) -> Result<(BTreeMap<At, Found>, Order<'l>), &'static str> {
    let mut order = Order::new(logs, BUDGET);
    for (later, earlier) in kept {
        earlier.iter().for_each(|earlier| order.wait(*later, *earlier));
    }
    for (later, earlier) in follows {
        earlier.iter().for_each(|earlier| order.follow(*later, *earlier));
    }
    let mut found = meetings(logs);
    let mut open = Vec::new();
    let touched = touched(logs, times);
    for (rank, log) in logs.iter().enumerate() {
        let mut own: BTreeMap<&Place, Store> = BTreeMap::new();
        for (at, op) in log.ops.iter().enumerate() {
            let kind = op.store.kind();
            let table = own.entry(&op.store).or_insert_with(|| Store::new(kind));
            if op.what == What::Meet {
                continue;
            }
            let needed = op.told.is_some() || log.stuck == Some(at);
            let begins = times.begins((rank, at)).unwrap_or(op.clock);
            if let Some(raised) = gone((rank, at), op, logs, times).filter(|_| needed) {
                found.insert((rank, at), ready(raised));
                continue;
            }
            match alone(rank, op, begins, table, &touched) {
                Some(answer) if needed || raises(&answer) => {
                    if let Found::Ready { waits, .. } = &answer {
                        waits.iter().for_each(|earlier| order.wait((rank, at), *earlier));
                    }
                    found.insert((rank, at), answer);
                }
                // An operation whose answer is not used may raise all the same.
                None if needed || matches!(op.what, What::Add(_)) => open.push((rank, at)),
                _ => {}
            }
        }
    }
    let changes = Changes::new(logs);
    for at in open {
        let Some(op) = changes.op(at) else { continue };
        let needed = op.told.is_some() || logs.get(at.0).is_some_and(|log| log.stuck == Some(at.1));
        if !needed && op.keys.iter().all(|key| changes.only_adds(&op.store, key)) {
            continue;
        }
        let answer = among_ranks(at, op, &changes, &order);
        let answer = too_late(at, op, &answer, logs, times).unwrap_or(answer);
        if !needed && !raises(&answer) {
            continue;
        }
        if let Found::Ready { waits, .. } = &answer {
            waits.iter().for_each(|earlier| order.wait(at, *earlier));
        }
        if order.exhausted() {
            return Err("the ranks' stores depend on each other in too many ways");
        }
        found.insert(at, answer);
    }
    Ok((found, order))
}

/// The timeout of an operation whose key is set too late.
fn too_late(at: At, op: &Op, found: &Found, logs: &[Log], times: &Times) -> Option<Found> {
    let Found::Ready { waits, .. } = found else { return None };
    let timeout_ms = op.timeout_ms?;
    if let (What::AtLeast { number, .. }, Some(key)) = (&op.what, op.keys.first()) {
        // A server that waits for its clients: for whole seconds, and one more.
        let timeout_ms = (timeout_ms / 1000 + 1) * 1000;
        let late = waits.iter().filter_map(|client| {
            let by_ms = times.too_late(at, *client, timeout_ms)?;
            let line = logs.get(client.0)?.ops.get(client.1)?.line;
            Some(Lost::Late { rank: GlobalRank(client.0 as u32), line, by_ms })
        });
        let late: Vec<Lost> = late.collect();
        let reaches = number - late.len() as i64;
        let missing = |why| Missing {
            key: reaches.to_string(),
            awaited: match key == CLIENTS {
                true => LostWait::CLIENTS.to_owned(),
                false => format!("{key:?}"),
            },
            why,
        };
        return late.into_iter().next().map(|why| ready(Answer::TimesOut(missing(why))));
    }
    waits.iter().find_map(|setter| {
        let by_ms = times.too_late(at, *setter, timeout_ms)?;
        let set = logs.get(setter.0)?.ops.get(setter.1)?;
        let rank = GlobalRank(setter.0 as u32);
        let why = Lost::Late { rank, line: set.line, by_ms };
        Some(ready(Answer::TimesOut(Missing::key(set.keys.first()?, why))))
    })
}

/// The answer if only the rank's own changes and keys that are set once matter, and the effect on the table
/// of its own changes. The operation begins at `begins` or later.
pub(super) fn alone(
    rank: usize,
    op: &Op,
    begins: Clock,
    table: &mut Store,
    touched: &BTreeMap<(std::sync::Arc<Place>, String), Touched>,
) -> Option<Found> {
    let of_key = |key: &String| touched.get(&(op.store.clone(), key.clone()));
    let own = |key: &String| Touched::only_by(of_key(key), rank);
    if op.what.changes() {
        let answers: Vec<Answer> = op.keys.iter().map(|key| change(table, key, &op.what)).collect();
        let owned = op.keys.iter().all(own);
        return answers.into_iter().next().filter(|_| owned).map(ready);
    }
    if matches!(op.what, What::NumKeys | What::Meet) {
        return None;
    }
    if op.keys.iter().all(own) {
        if let What::AtLeast { number, exact } = op.what {
            let key = op.keys.first()?;
            let reaches = number_in(table.get(key).ok()?.ready().as_deref())?;
            let number = if exact { reaches } else { number };
            return Some(match reaches >= number {
                true => ready(Answer::Number(number)),
                false => Found::Never { reaches },
            });
        }
        if let What::Until(value) = &op.what {
            let key = op.keys.first()?;
            let held = table.get(key).ok()?.ready();
            return Some(match held.as_ref() == Some(value) {
                true => ready(Answer::Bytes(value.clone())),
                false => Found::Blocked(key.clone()),
            });
        }
        return Some(match asked(table, &op.keys, &op.what) {
            Ok(answer) => ready(answer),
            Err(missing) => Found::Blocked(missing),
        });
    }
    if !matches!(op.what, What::Get | What::MultiGet | What::Wait) {
        return None;
    }
    let mut values = Vec::new();
    let mut waits = Vec::new();
    for key in &op.keys {
        match of_key(key) {
            Some(Touched::SetOnce(setter, barriers, value, done)) if setter.0 != rank => {
                if *barriers > op.barriers {
                    return Some(Found::Blocked(key.clone()));
                }
                // Perhaps too late: that takes a closer look.
                let waits_ms = op.timeout_ms.unwrap_or(u64::MAX);
                if done.is_some_and(|done| !in_time(begins, done, waits_ms)) {
                    return None;
                }
                if *barriers == op.barriers {
                    waits.push(*setter);
                }
                values.push(value.clone());
            }
            known if Touched::only_by(known, rank) => match table.get(key).ok()?.ready() {
                Some(value) => values.push(value),
                None => return Some(Found::Blocked(key.clone())),
            },
            _ => return None,
        }
    }
    Some(Found::Ready { answer: answer_of(&op.what, values), waits: last_of_each(&waits) })
}

/// The answer of a wait, or a get, with these values.
fn answer_of(what: &What, values: Vec<Vec<u8>>) -> Answer {
    match what {
        What::Wait => Answer::Done,
        What::Get => Answer::Bytes(values.into_iter().next().unwrap_or_default()),
        _ => Answer::Many(values),
    }
}

/// The last operation of each rank: those before it are done with it.
fn last_of_each(waits: &[At]) -> Vec<At> {
    let last: BTreeMap<usize, usize> =
        waits.iter().copied().collect::<BTreeSet<At>>().into_iter().collect();
    last.into_iter().collect()
}

/// The number in a key's value; 0 if the key does not exist.
fn number_in(value: Option<&[u8]>) -> Option<i64> {
    let Some(value) = value else { return Some(0) };
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The answer where other ranks change the same keys.
fn among_ranks(at: At, op: &Op, changes: &Changes<'_>, order: &Order<'_>) -> Found {
    let seen = |key: &String| changes.seen(at, &op.store, key, order);
    match &op.what {
        What::Set(_) | What::Append(_) => ready(Answer::Done),
        What::Get | What::MultiGet | What::Wait => waited(op, op.keys.iter().map(seen)),
        What::Check => {
            let mut unsure = None;
            for seen in op.keys.iter().map(seen) {
                match seen.there {
                    There::Yes => {}
                    There::No => return ready(Answer::Yes(false)),
                    There::Comes(one) => unsure = Some(Unordered { one, other: None }),
                    There::Unsure(unordered) => unsure = Some(unordered),
                }
            }
            unsure.map_or(ready(Answer::Yes(true)), Found::Race)
        }
        What::NumKeys => {
            let mut count = u64::from(op.store.kind() == StoreKind::File);
            for key in changes.keys(&op.store) {
                match changes.seen(at, &op.store, key, order).there {
                    There::Yes => count += 1,
                    There::No => {}
                    There::Comes(one) => return Found::Race(Unordered { one, other: None }),
                    There::Unsure(unordered) => return Found::Race(unordered),
                }
            }
            ready(Answer::Number(count as i64))
        }
        What::Delete if op.store.kind() == StoreKind::File => ready(Answer::Yes(true)),
        What::Delete => match op.keys.first().map(seen).map(|seen| seen.there) {
            Some(There::Comes(one)) => Found::Race(Unordered { one, other: None }),
            Some(There::Unsure(unordered)) => Found::Race(unordered),
            there => ready(Answer::Yes(there == Some(There::Yes))),
        },
        What::Add(_) | What::CompareSet { .. } => {
            let Some(key) = op.keys.first() else { return ready(Answer::Done) };
            let value = match seen(key) {
                Seen { there: There::Comes(one), .. } => Err(Unordered { one, other: None }),
                Seen { there: There::Unsure(unordered), .. } => Err(unordered),
                Seen { value, .. } => value,
            };
            match value {
                Err(unordered) => Found::Race(unordered),
                Ok(held) => {
                    let mut table = Store::new(op.store.kind());
                    if let Some(held) = held {
                        let _ = table.set(key, &held);
                    }
                    ready(change(&mut table, key, &op.what))
                }
            }
        }
        What::AtLeast { number, exact } => match op.keys.first() {
            Some(key) => counted(at, &op.store, key, (*number, *exact), changes, order),
            None => ready(Answer::Done),
        },
        What::Until(value) => match op.keys.first() {
            Some(key) => becomes(at, &op.store, key, value, changes, order),
            None => ready(Answer::Done),
        },
        What::Meet => ready(Answer::Done),
    }
}

/// A loop that asks until the key has a value: a counter's last one, or one that a single rank sets and
/// leaves.
fn becomes(
    at: At,
    store: &Place,
    key: &str,
    value: &[u8],
    changes: &Changes<'_>,
    order: &Order<'_>,
) -> Found {
    let there = || ready(Answer::Bytes(value.to_vec()));
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
    if let Some(number) = number.filter(|_| changes.only_adds(store, key)) {
        return match counted(at, store, key, (0, true), changes, order) {
            Found::Ready { answer: Answer::Number(total), .. } if total < number => {
                Found::Never { reaches: total }
            }
            Found::Ready { answer: Answer::Number(total), waits } if total == number => {
                Found::Ready { answer: Answer::Bytes(value.to_vec()), waits }
            }
            Found::Ready { waits, .. } => {
                let one = waits.first().copied().unwrap_or(at);
                Found::Race(Unordered { one, other: None })
            }
            found => found,
        };
    }
    let split = changes.split(at, store, key, order);
    let held = match changes.held(store, key, &split.before, order).value {
        Ok(held) => held,
        Err(unordered) => return Found::Race(unordered),
    };
    let Some(first) = split.beside.first() else {
        return match held.as_deref() == Some(value) {
            true => there(),
            false => Found::Blocked(key.to_owned()),
        };
    };
    if let Some(other) = split.beside.iter().find(|other| other.0 != first.0) {
        return Found::Race(Unordered { one: *first, other: Some(*other) });
    }
    // The last change after which it holds something else, and the one that follows.
    let holds = |count: usize| {
        let done = split.beside.get(..count).unwrap_or_default();
        changes.applied(store, key, held.as_deref(), done).as_deref() == Some(value)
    };
    let count = split.beside.len();
    if !holds(count) {
        return match (0..count).any(holds) {
            true => Found::Race(Unordered { one: *first, other: None }),
            false => Found::Blocked(key.to_owned()),
        };
    }
    let from = (0..count).rev().find(|count| !holds(*count)).map_or(0, |count| count + 1);
    if (0..from).any(holds) {
        return Found::Race(Unordered { one: *first, other: None });
    }
    let last = from.checked_sub(1).and_then(|last| split.beside.get(last));
    Found::Ready {
        answer: Answer::Bytes(value.to_vec()),
        waits: last.copied().into_iter().collect(),
    }
}

/// The result of an operation that waits for all its keys.
fn waited(op: &Op, seen: impl Iterator<Item = Seen>) -> Found {
    let mut values = Vec::new();
    let mut waits = Vec::new();
    let mut race = None;
    for (key, seen) in op.keys.iter().zip(seen) {
        match seen.there {
            There::Yes => {}
            There::No => return Found::Blocked(key.clone()),
            There::Comes(at) => waits.push(at),
            There::Unsure(unordered) => race = Some(unordered),
        }
        match seen.value {
            Ok(value) => values.push(value.unwrap_or_default()),
            Err(unordered) if op.what != What::Wait => race = Some(unordered),
            Err(_) => {}
        }
    }
    match race {
        Some(unordered) => Found::Race(unordered),
        None => Found::Ready { answer: answer_of(&op.what, values), waits: last_of_each(&waits) },
    }
}

/// A loop that asks until a counter has come so far: it waits for every addition without which
/// the counter cannot.
fn counted(
    at: At,
    store: &Place,
    key: &str,
    (number, exact): (i64, bool),
    changes: &Changes<'_>,
    order: &Order<'_>,
) -> Found {
    let split = changes.split(at, store, key, order);
    let held = match changes.held(store, key, &split.before, order).value {
        Ok(value) => number_in(value.as_deref()),
        Err(unordered) => return Found::Race(unordered),
    };
    let Some(base) = held else { return Found::Race(Unordered { one: at, other: None }) };
    let mut additions = Vec::new();
    for &beside in &split.beside {
        match changes.op(beside).map(|op| &op.what) {
            Some(What::Add(amount)) if *amount >= 0 => additions.push((beside, *amount)),
            _ => return Found::Race(Unordered { one: beside, other: None }),
        }
    }
    let sum = |of: &mut dyn Iterator<Item = i64>| of.fold(base, i64::saturating_add);
    let total = sum(&mut additions.iter().map(|(_, amount)| *amount));
    let number = if exact { total } else { number };
    if total < number {
        return Found::Never { reaches: total };
    }
    let last = additions.last().map_or(at, |(at, _)| *at);
    let mut waits = Vec::new();
    if base < number {
        for (one, amount) in additions.iter().filter(|(_, amount)| *amount > 0) {
            let required = total - amount < number || {
                let later = order.after(*one);
                let without = additions.iter().filter(|(other, _)| {
                    other != one && later.get(other.0).is_some_and(|first| other.1 < *first)
                });
                sum(&mut without.map(|(_, amount)| *amount)) < number
            };
            if required {
                waits.push(*one);
            }
        }
        let of_waits = additions.iter().filter(|(at, _)| waits.contains(at));
        if sum(&mut of_waits.map(|(_, amount)| *amount)) < number {
            let free = additions.iter().find(|(at, _)| !waits.contains(at));
            let one = free.map_or(last, |(at, _)| *at);
            return Found::Race(Unordered { one, other: None });
        }
    }
    Found::Ready { answer: Answer::Number(number), waits: last_of_each(&waits) }
}
