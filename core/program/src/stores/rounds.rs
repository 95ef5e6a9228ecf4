//! Executing the ranks again and again until every one has its answers: a rank that asks for a key that
//! another one sets goes on when that one has come so far.

use super::agreed::{Agreed, Given, Signal};
use super::choice::{Chosen, choose, keep};
use super::log::{Answer, At, Log, Missing, Op, Place, What};
use super::settle::settle;
use super::times::Times;
use crate::stores::changed_keys::touched;
use crate::stores::found_value::Unordered;
use crate::stores::wait_result::Found;
use lockstep_core::plan::remark::Lost;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::ProgramError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Executions of ranks that are taken at most.
const MAX_EXECUTIONS: usize = 50_000;
/// Ranks of a job whose ranks are tried where they wait in vain: above, it would take too long.
const MAX_TRIED: usize = 64;

/// The answers and waits that have been found out so far.
#[derive(Debug)]
pub(crate) struct Rounds {
    answers: BTreeMap<At, Given>,
    waits: BTreeMap<At, Vec<At>>,
    found: BTreeMap<At, Found>,
    chosen: Chosen,
    /// The keys that ranks would set behind a wait in vain: the rank, and the line.
    would_set: BTreeMap<(Arc<Place>, String), (usize, u32)>,
    /// The waits that `would_set` was found for.
    tried: BTreeSet<At>,
    executions: usize,
}

/// The next thing to do.
#[derive(Debug)]
pub(crate) enum Look {
    /// These ranks are executed again.
    Again(Vec<GlobalRank>),
    /// These ranks are executed to see their further calls if they did not wait in vain.
    Try(Vec<GlobalRank>),
    /// Nothing is left to do.
    Settled,
}

impl Rounds {
    /// Begins with the answers that are known.
    pub(crate) fn new(agreed: &Agreed) -> Rounds {
        Rounds {
            answers: agreed.answers.clone(),
            waits: agreed.edges.clone(),
            found: BTreeMap::new(),
            chosen: agreed.chosen.clone(),
            would_set: BTreeMap::new(),
            tried: BTreeSet::new(),
            executions: 0,
        }
    }

    /// The operations that each operation waits for, and those that it only comes after.
    fn order(&self) -> (BTreeMap<At, Vec<At>>, BTreeMap<At, Vec<At>>) {
        let mut waits = self.waits.clone();
        for (later, earlier) in &self.chosen.sees {
            waits.entry(*later).or_default().extend(earlier);
        }
        let mut follows = self.chosen.sees.clone();
        for (later, earlier) in &self.chosen.after {
            follows.entry(*later).or_default().extend(earlier);
        }
        (waits, follows)
    }

    /// Looks at the operations of the ranks: decides which ranks have to be executed again, because an answer
    /// that they need is known now, or has changed.
    ///
    /// # Errors
    /// When it takes too long.
    pub(crate) fn look(&mut self, logs: &[Log]) -> Result<Look, ProgramError> {
        self.waits.retain(|(rank, at), _| {
            let op = logs.get(*rank).and_then(|log| log.ops.get(*at));
            op.is_some_and(|op| op.told.is_some())
        });
        let mut again = Vec::new();
        loop {
            let (waits, follows) = self.order();
            let times = Times::new(logs, &waits);
            let (found, mut order) =
                settle(logs, &self.waits, &follows, &times).map_err(|why| {
                    ProgramError::whole(why)
                        .with_help("Fewer ranks, or fewer keys that several change.")
                })?;
            self.found = found;
            if keep(&mut self.chosen, logs, &mut order) {
                continue;
            }
            for (rank, log) in logs.iter().enumerate() {
                if self.rank(rank, log) {
                    again.push(rank);
                }
            }
            let chosen = &mut self.chosen;
            if !again.is_empty() || !choose(chosen, &self.found, logs, &times, &mut order) {
                break;
            }
        }
        if again.is_empty() {
            let in_vain = self.in_vain(logs);
            let untried: Vec<At> =
                in_vain.iter().copied().filter(|at| self.tried.insert(*at)).collect();
            let waits = |at: &At| op_of(logs, *at).is_some_and(|op| !op.polls);
            if untried.iter().any(waits) && logs.len() <= MAX_TRIED {
                self.executions += untried.len();
                let ranks = untried.iter().filter(|at| waits(at));
                return Ok(Look::Try(ranks.map(|at| GlobalRank(at.0 as u32)).collect()));
            }
            again = self.times_out(logs, &in_vain);
        }
        self.executions += again.len();
        if self.executions > MAX_EXECUTIONS {
            let why = "the ranks wait for each other's keys in too long a chain";
            return Err(ProgramError::whole(why).with_help("Fewer ranks, or fewer steps."));
        }
        Ok(match again.is_empty() {
            true => Look::Settled,
            false => Look::Again(again.into_iter().map(|rank| GlobalRank(rank as u32)).collect()),
        })
    }

    /// The answers that ranks would have if the keys they wait for came.
    pub(crate) fn if_it_came(&self, logs: &[Log]) -> Agreed {
        let mut agreed = self.agreed(logs);
        for at in self.in_vain(logs) {
            let answer = match op_of(logs, at).map(|op| (&op.what, op.keys.len())) {
                Some((What::Wait, _)) => Answer::Done,
                Some((What::Get, _)) => Answer::Bytes(b"0".to_vec()),
                Some((What::MultiGet, keys)) => Answer::Many(vec![b"0".to_vec(); keys]),
                _ => continue,
            };
            agreed.answers.insert(at, Given { answer, instead: None });
        }
        agreed
    }

    /// Takes in the operations of a rank that was tried.
    pub(crate) fn tried(&mut self, rank: GlobalRank, logs: &[Log], tried: &Log) {
        let rank = rank.index();
        let known = logs.get(rank).and_then(|log| log.stuck).unwrap_or(usize::MAX);
        for op in tried.ops.iter().skip(known).filter(|op| makes(op)) {
            for key in &op.keys {
                let key = (op.store.clone(), key.clone());
                self.would_set.entry(key).or_insert((rank, op.line));
            }
        }
    }

    /// Takes a rank's answers over, up to the first that the rank did not get; true if there was one.
    fn rank(&mut self, rank: usize, log: &Log) -> bool {
        for (at, op) in log.ops.iter().enumerate() {
            let at = (rank, at);
            let (answer, waits) = match self.found.get(&at) {
                Some(Found::Ready { answer, waits }) => (answer, waits),
                // The key was there when this answer was given, and is not there any more.
                Some(Found::Blocked(_) | Found::Never { .. })
                    if !matches!(op.told, None | Some(Answer::TimesOut(_))) =>
                {
                    self.forget(at);
                    return true;
                }
                _ => continue,
            };
            match waits.is_empty() {
                true => self.waits.remove(&at),
                false => self.waits.insert(at, waits.clone()),
            };
            if op.told.as_ref() != Some(answer) {
                let given = Given { answer: answer.clone(), instead: instead(op) };
                self.give(at, given);
                return true;
            }
        }
        false
    }

    /// An answer.
    fn give(&mut self, at: At, given: Given) {
        self.forget(at);
        self.answers.insert(at, given);
    }

    /// Forgets an answer: the rank's calls after it are no longer valid.
    fn forget(&mut self, at: At) {
        self.answers.remove(&at);
        let later = |other: &At| other.0 == at.0 && other.1 > at.1;
        self.answers.retain(|other, _| !later(other));
        self.waits.retain(|other, _| !later(other));
        self.chosen.forget(later);
        for earlier in self.waits.values_mut() {
            earlier.retain(|other| !later(other));
        }
    }

    /// If nothing goes on: the operations that wait for a key that no rank will set.
    fn in_vain(&self, logs: &[Log]) -> Vec<At> {
        let stuck = |(rank, log): (usize, &Log)| log.stuck.map(|at| (rank, at));
        let stuck: Vec<At> = logs.iter().enumerate().filter_map(stuck).collect();
        if stuck.iter().any(|at| matches!(self.found.get(at), Some(Found::Race(_)))) {
            return Vec::new();
        }
        // A loop of the only rank is one that nobody could ever end.
        let may = |at: &At| logs.len() > 1 || op_of(logs, *at).is_some_and(|op| !op.polls);
        let in_vain = |at: &At| {
            matches!(self.found.get(at), Some(Found::Blocked(_) | Found::Never { .. })) && may(at)
        };
        stuck.into_iter().filter(in_vain).collect()
    }

    /// It waits until its time is up.
    fn times_out(&mut self, logs: &[Log], in_vain: &[At]) -> Vec<usize> {
        for at in in_vain {
            let Some(op) = op_of(logs, *at) else { continue };
            let missing = match (self.found.get(at), &op.what) {
                (Some(Found::Blocked(key)), what) => {
                    let missing = Missing::key(key, self.lost(logs, *at, op, key));
                    match what {
                        What::Until(value) => {
                            let value = String::from_utf8_lossy(value);
                            let awaited = format!("{key:?} to be {value:?}");
                            Missing { awaited, ..missing }
                        }
                        _ => missing,
                    }
                }
                // A counter, or a server that waits for its clients.
                (Some(Found::Never { reaches }), what) => {
                    let number = match what {
                        What::AtLeast { number, .. } => *number,
                        What::Until(value) => {
                            String::from_utf8_lossy(value).parse().unwrap_or_default()
                        }
                        _ => 0,
                    };
                    let key = op.keys.first().map(String::as_str).unwrap_or_default();
                    Missing {
                        key: reaches.to_string(),
                        awaited: format!("{key:?}"),
                        why: Lost::Counts { reaches: *reaches, number },
                    }
                }
                _ => continue,
            };
            self.give(*at, Given { answer: Answer::TimesOut(missing), instead: instead(op) });
        }
        in_vain.iter().map(|at| at.0).collect()
    }

    /// The reason that a key does not come.
    fn lost(&self, logs: &[Log], (rank, at): At, op: &Op, key: &str) -> Lost {
        let of_key = |(_, other): &(usize, &Op)| {
            other.store == op.store && makes(other) && other.keys.iter().any(|own| own == key)
        };
        let later = |of: usize, log: &'_ Log| -> Option<u32> {
            let from = if of == rank { at } else { 0 };
            let mut ops = log.ops.iter().enumerate().skip(from);
            ops.find(of_key).map(|(_, op)| op.line)
        };
        let deletes = |other: &Op| {
            let same = other.store == op.store && other.keys.iter().any(|own| own == key);
            same && other.what == What::Delete
        };
        if logs.iter().any(|log| log.ops.iter().any(deletes)) {
            return Lost::Nobody;
        }
        let found = logs.iter().enumerate().find_map(|(of, log)| Some((of, later(of, log)?)));
        let would = || self.would_set.get(&(op.store.clone(), key.to_owned())).copied();
        match found.or_else(would).filter(|_| !matches!(op.what, What::Until(_))) {
            Some((rank, line)) => Lost::Behind { rank: GlobalRank(rank as u32), line },
            None => Lost::Nobody,
        }
    }

    /// The answers that all ranks know, for their next execution.
    pub(crate) fn agreed(&self, logs: &[Log]) -> Agreed {
        let (waits, _) = self.order();
        let mut agreed = Agreed {
            answers: self.answers.clone(),
            edges: self.waits.clone(),
            touched: touched(logs, &Times::new(logs, &waits)),
            chosen: self.chosen.clone(),
            looked: true,
            ..Agreed::default()
        };
        let mut tags: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        // Whoever goes on without its answer waits for nobody, wherever in the order it comes.
        let waits_there = |(rank, at): &At| {
            let log = logs.get(*rank);
            let told = log.and_then(|log| log.ops.get(*at)).is_some_and(|op| op.told.is_some());
            told || log.is_some_and(|log| log.stuck == Some(*at))
        };
        for (later, earlier) in waits.iter().filter(|(later, _)| waits_there(later)) {
            for earlier in earlier {
                let op = logs.get(earlier.0).and_then(|log| log.ops.get(earlier.1));
                let bytes = match op.map(|op| &op.what) {
                    Some(What::Set(value) | What::Append(value)) => value.len().max(1),
                    _ => 8,
                };
                let next = tags.entry((earlier.0, later.0)).or_default();
                let tag = *next;
                *next += 1;
                let signal = |peer: usize| Signal { peer: GlobalRank(peer as u32), tag, bytes };
                agreed.signals.entry(*earlier).or_default().push(signal(later.0));
                agreed.waits.entry(*later).or_default().push(signal(earlier.0));
            }
        }
        agreed
    }

    /// The errors that are left when no rank has to be executed again.
    ///
    /// # Errors
    /// When a rank's answer depends on which rank is first, or never comes.
    pub(crate) fn settled(&self, logs: &[Log]) -> Result<(), ProgramError> {
        let mut wrong: Vec<(bool, ProgramError)> = Vec::new();
        for (at, found) in &self.found {
            let Some(op) = logs.get(at.0).and_then(|log| log.ops.get(at.1)) else { continue };
            let rank = at.0;
            let (race, message, help) = match found {
                Found::Ready { .. } => continue,
                Found::Blocked(_) | Found::Never { .. }
                    if matches!(op.told, Some(Answer::TimesOut(_))) =>
                {
                    continue;
                }
                Found::Race(unordered) => {
                    let help = match &op.what {
                        What::Add(_) => {
                            "To wait for all ranks, ask in a loop: `while store.add(key, 0) < \
                             world_size:`; for a number of one's own, use the rank; else put \
                             dist.barrier() between."
                        }
                        What::AtLeast { .. } => {
                            "Let the loop end at the counter's last value, by `<`."
                        }
                        What::Check => {
                            "Wait for the keys with store.wait(keys), or put dist.barrier() between."
                        }
                        _ => "Put dist.barrier() between, or let each rank set a key of its own.",
                    };
                    let who = self::unordered(*unordered, logs);
                    let why = format!(
                        "what {op} answers on rank {rank} depends on which rank is first: {who}"
                    );
                    (true, why, help)
                }
                Found::Blocked(key) if op.polls => {
                    let why = format!("the loop never ends on rank {rank}: nobody sets {key:?}");
                    (false, why, "Set the key on one rank, under the same name and prefix.")
                }
                Found::Never { reaches } => {
                    let key = op.keys.first().map(String::as_str).unwrap_or_default();
                    let why = format!(
                        "the loop never ends on rank {rank}: the counter {key:?} comes to \
                         {reaches} at most"
                    );
                    (false, why, "Count as many additions as all ranks make.")
                }
                Found::Blocked(key) => {
                    let why = format!(
                        "what {op} answers on rank {rank} does not settle: whether {key:?} is set \
                         depends on it"
                    );
                    (false, why, "Do not let what sets a key depend on that key.")
                }
            };
            let error = ProgramError {
                line: op.line,
                column: op.column,
                ..ProgramError::whole(message).with_help(help)
            };
            wrong.push((!race, error));
        }
        wrong.sort_by_key(|(later, error)| (*later, error.line, error.column));
        wrong.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

fn op_of(logs: &[Log], (rank, at): At) -> Option<&Op> {
    logs.get(rank)?.ops.get(at)
}

/// The operation that one turned out to be that asks in a loop.
fn instead(op: &Op) -> Option<What> {
    matches!(op.what, What::AtLeast { .. } | What::Until(_)).then(|| op.what.clone())
}

/// True if the operation's keys exist when it is done.
fn makes(op: &Op) -> bool {
    op.what.changes() && op.what != What::Delete
}

/// The operations that are at odds, in words.
fn unordered(Unordered { one, other }: Unordered, logs: &[Log]) -> String {
    let named = |at: At| {
        let line = logs.get(at.0).and_then(|log| log.ops.get(at.1)).map_or(0, |op| op.line);
        format!("rank {} changes the key in line {line}", at.0)
    };
    match other {
        Some(other) => format!("{}, {}, and nothing orders them", named(one), named(other)),
        None => format!("{}, and nothing orders that with this line", named(one)),
    }
}
