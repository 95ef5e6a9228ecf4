//! The statements of all ranks in one order: what several ranks do stands there once.

use super::error::{MOST_STATEMENTS, PythonError};
use super::statement::{Does, Statement};

use lockstep_core::plan::SourceLine;
use lockstep_core::rank::GlobalRank;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::{BTreeMap, BTreeSet};

/// A statement of some ranks.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) does: Does,
    pub(super) at: Option<SourceLine>,
    /// The ranks that do it, with the time that each computes (see [`Statement::ns`]).
    pub(super) ranks: BTreeMap<GlobalRank, u64>,
}

impl Line {
    pub(super) fn set(&self) -> BTreeSet<GlobalRank> {
        self.ranks.keys().copied().collect()
    }

    fn key(&self) -> (&Does, Option<SourceLine>) {
        (&self.does, self.at)
    }
}

/// Ranks with the same statements, but for their times.
struct Alike {
    ranks: Vec<(GlobalRank, Vec<u64>)>,
    keys: Vec<usize>,
}

/// The lines of all ranks.
///
/// # Errors
/// When they are too many to be read.
pub(super) fn merged(ranks: Vec<(GlobalRank, Vec<Statement>)>) -> Result<Vec<Line>, PythonError> {
    let mut known: BTreeMap<(Does, Option<SourceLine>), usize> = BTreeMap::new();
    let mut texts: Vec<(Does, Option<SourceLine>)> = Vec::new();
    let mut alike: BTreeMap<Vec<usize>, Vec<(GlobalRank, Vec<u64>)>> = BTreeMap::new();
    for (rank, statements) in ranks {
        let (mut keys, mut times) = (Vec::new(), Vec::new());
        for statement in statements {
            let key = (statement.does, statement.at);
            let id = *known.entry(key.clone()).or_insert_with(|| {
                texts.push(key);
                texts.len() - 1
            });
            keys.push(id);
            times.push(statement.ns);
        }
        alike.entry(keys).or_default().push((rank, times));
    }
    let statements: usize = alike.keys().map(Vec::len).sum();
    if statements > MOST_STATEMENTS {
        return Err(PythonError::TooLong { statements });
    }
    let mut alike: Vec<Alike> =
        alike.into_iter().map(|(keys, ranks)| Alike { ranks, keys }).collect();
    // The text shows the operations of most ranks; the others differ from it.
    alike.sort_by_key(|one| {
        (std::cmp::Reverse((one.ranks.len(), one.keys.len())), one.ranks.first().map(|it| it.0))
    });
    let mut order: Vec<(usize, BTreeMap<GlobalRank, u64>)> = Vec::new();
    for one in alike {
        let of = |at: usize| -> BTreeMap<GlobalRank, u64> {
            let time = |(rank, times): &(GlobalRank, Vec<u64>)| Some((*rank, *times.get(at)?));
            one.ranks.iter().filter_map(time).collect()
        };
        let known: Vec<usize> = order.iter().map(|(id, _)| *id).collect();
        let mut next = Vec::with_capacity(order.len().max(one.keys.len()));
        let mut old = std::mem::take(&mut order).into_iter();
        for diff in capture_diff_slices(Algorithm::Myers, &known, &one.keys) {
            let (kept, both, new) = match diff {
                DiffOp::Equal { new_index, len, .. } => {
                    (0, Some((new_index, len)), new_index..new_index)
                }
                DiffOp::Delete { old_len, new_index, .. } => (old_len, None, new_index..new_index),
                DiffOp::Insert { new_index, new_len, .. } => {
                    (0, None, new_index..new_index + new_len)
                }
                DiffOp::Replace { old_len, new_index, new_len, .. } => {
                    (old_len, None, new_index..new_index + new_len)
                }
            };
            next.extend(old.by_ref().take(kept));
            if let Some((from, len)) = both {
                for (at, (id, mut ranks)) in (from..from + len).zip(old.by_ref().take(len)) {
                    ranks.extend(of(at));
                    next.push((id, ranks));
                }
            }
            next.extend(new.filter_map(|at| Some((*one.keys.get(at)?, of(at)))));
        }
        next.extend(old);
        order = next;
    }
    let line = |(id, ranks): (usize, BTreeMap<GlobalRank, u64>)| {
        let (does, at) = texts.get(id)?.clone();
        Some(Line { does, at, ranks })
    };
    Ok(order.into_iter().filter_map(line).collect())
}

/// Lines that are the same statement of the same ranks have the same number.
pub(super) fn numbered(lines: &[Line]) -> Vec<usize> {
    let mut known = BTreeMap::new();
    let number = |line: &Line| {
        let next = known.len();
        let (does, at) = line.key();
        *known.entry((does.clone(), at, line.set())).or_insert(next)
    };
    lines.iter().map(number).collect()
}
