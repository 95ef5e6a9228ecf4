//! The stops of a debugger: conditions on the events of a trace, and the search for the next event
//! that meets one.
//!
//! A condition is a short text, so that an address and a scenario's explanation can hold it:
//!
//! | text | met when |
//! | --- | --- |
//! | `start`, `end` | before the first event, after the last |
//! | `line:9`, `line:9:2` | any rank, or rank 2, reaches an operation of line 9 of the program |
//! | `rank:2` | rank 2 reaches its next operation |
//! | `call:0:5` | any rank makes the call with sequence number 5 of group 0 |
//! | `differ` | for the first time, a rank calls something else than another under the same number of a group |

use crate::group::GroupId;
use crate::plan::{Plan, SourceLine};
use crate::rank::GlobalRank;
use crate::trace::{Call, Event, What, calls_differ};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A condition at which a debugger stops.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Stop {
    /// Before anything has happened.
    Start,
    /// A rank reaches an operation of a line.
    Line {
        /// The line of the plan's first source, counted from 1.
        line: u32,
        /// Only this rank.
        rank: Option<GlobalRank>,
    },
    /// A rank reaches its next operation.
    Rank(GlobalRank),
    /// A rank makes the collective with this number, as Lockstep shows numbers.
    Call {
        /// The collective's group.
        group: GroupId,
        /// The sequence number.
        seq: u64,
    },
    /// For the first time, two ranks have called different things under one number of a group.
    Differ,
    /// After everything.
    End,
}

/// A text that is no [`Stop`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no place to stop at: there are start, line:9, line:9:2 (rank 2), rank:2, \
     call:0:5 (group 0, sequence number 5), differ and end"
)]
pub struct NoStop {
    text: String,
}

impl FromStr for Stop {
    type Err = NoStop;

    fn from_str(text: &str) -> Result<Stop, NoStop> {
        let refused = || NoStop { text: text.chars().take(60).collect() };
        let mut parts = text.split(':');
        let word = parts.next().unwrap_or_default();
        let numbers: Vec<u64> =
            parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| refused())?;
        let small = |number: u64| u32::try_from(number).map_err(|_| refused());
        match (word, numbers.as_slice()) {
            ("start", []) => Ok(Stop::Start),
            ("end", []) => Ok(Stop::End),
            ("differ", []) => Ok(Stop::Differ),
            ("line", [line]) => Ok(Stop::Line { line: small(*line)?, rank: None }),
            ("line", [line, rank]) => {
                Ok(Stop::Line { line: small(*line)?, rank: Some(GlobalRank(small(*rank)?)) })
            }
            ("rank", [rank]) => Ok(Stop::Rank(GlobalRank(small(*rank)?))),
            ("call", [group, seq]) => Ok(Stop::Call { group: GroupId(small(*group)?), seq: *seq }),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Start => f.write_str("start"),
            Stop::End => f.write_str("end"),
            Stop::Differ => f.write_str("differ"),
            Stop::Line { line, rank: None } => write!(f, "line:{line}"),
            Stop::Line { line, rank: Some(rank) } => write!(f, "line:{line}:{rank}"),
            Stop::Rank(rank) => write!(f, "rank:{rank}"),
            Stop::Call { group, seq } => write!(f, "call:{}:{seq}", group.0),
        }
    }
}

/// The direction in which an event is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Direction {
    /// Among the events from here on.
    Forward,
    /// Among the events before here, the last one first.
    Back,
}

/// The nearest event that meets one of `stops`: its index in `events`, and which stop it meets.
/// `from` is how many events have happened. [`Stop::Start`] and [`Stop::End`] are met by no event.
/// Takes time in proportion to the events.
pub fn find(
    plan: &Plan,
    events: &[Event],
    stops: &[Stop],
    from: usize,
    direction: Direction,
) -> Option<(usize, usize)> {
    let differ = match stops.contains(&Stop::Differ) {
        true => first_difference(events),
        false => None,
    };
    let from = from.min(events.len());
    let met = |index: usize| {
        let event = events.get(index)?;
        let stop = stops.iter().position(|stop| match stop {
            Stop::Differ => differ == Some(index),
            stop => meets(plan, event, stop),
        })?;
        Some((index, stop))
    };
    match direction {
        Direction::Forward => (from..events.len()).find_map(met),
        Direction::Back => (0..from).rev().find_map(met),
    }
}

fn meets(plan: &Plan, event: &Event, stop: &Stop) -> bool {
    match (stop, &event.what) {
        (Stop::Line { line, rank }, What::OpBegan { op }) => {
            let at = line_of(plan, event.rank, *op);
            at == Some(SourceLine { source: 0, line: *line })
                && rank.is_none_or(|rank| rank == event.rank)
        }
        (
            Stop::Rank(rank),
            What::OpBegan { .. } | What::Finished | What::Died { .. } | What::Unresponsive { .. },
        ) => event.rank == *rank,
        (Stop::Call { group, seq }, What::Scheduled { call, .. }) => {
            !call.p2p && call.group == *group && call.seq == Some(*seq)
        }
        _ => false,
    }
}

fn line_of(plan: &Plan, rank: GlobalRank, op: u32) -> Option<SourceLine> {
    plan.program(rank)?.ops.get(op as usize)?.at
}

/// The first event that makes a call other than the one another rank has made under the same
/// number of the same group.
pub fn first_difference(events: &[Event]) -> Option<usize> {
    let mut made: BTreeMap<(GroupId, u64), &Call> = BTreeMap::new();
    events.iter().position(|event| {
        let What::Scheduled { call, .. } = &event.what else { return false };
        let (Some(seq), false) = (call.seq, call.p2p) else { return false };
        match made.get(&(call.group, seq)) {
            Some(known) => calls_differ(known, call),
            None => {
                made.insert((call.group, seq), call);
                false
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::dtype::Dtype;
    use crate::plan::CollectiveLab;
    use crate::trace::TensorShape;
    use proptest::prelude::*;

    fn call(op: &str, seq: u64) -> Call {
        Call {
            op: op.to_owned(),
            group: GroupId(0),
            seq: Some(seq),
            p2p: false,
            peer: None,
            tag: 0,
            inputs: Vec::new(),
            outputs: vec![TensorShape { shape: vec![4], dtype: Dtype::Float32 }],
            reduce_op: None,
            root: None,
            plan_op: None,
            stack: Vec::new(),
            record_id: None,
        }
    }

    fn event(time_ps: u64, rank: u32, what: What) -> Event {
        Event { time_ps, rank: GlobalRank(rank), what }
    }

    fn scheduled(time_ps: u64, rank: u32, op: &str, seq: u64) -> Event {
        let call = std::sync::Arc::new(call(op, seq));
        event(time_ps, rank, What::Scheduled { work: 0, call })
    }

    fn plan() -> Plan {
        CollectiveLab::new(Collective::Barrier, 2, 0).plan().unwrap()
    }

    #[test]
    fn the_first_difference_is_the_second_of_the_two_calls() {
        let events = [
            scheduled(1, 0, "all_reduce", 1),
            scheduled(2, 1, "all_reduce", 1),
            scheduled(3, 1, "barrier", 2),
            scheduled(4, 0, "all_reduce", 2),
            scheduled(5, 1, "broadcast", 3),
        ];
        assert_eq!(first_difference(&events), Some(3));
        assert_eq!(find(&plan(), &events, &[Stop::Differ], 0, Direction::Forward), Some((3, 0)));
        assert_eq!(find(&plan(), &events, &[Stop::Differ], 4, Direction::Forward), None);
        assert_eq!(find(&plan(), &events, &[Stop::Differ], 5, Direction::Back), Some((3, 0)));
        let second = Stop::Call { group: GroupId(0), seq: 2 };
        assert_eq!(
            find(&plan(), &events, &[Stop::Differ, second], 0, Direction::Forward),
            Some((2, 1))
        );
    }

    #[test]
    fn what_is_no_stop_is_refused_with_all_that_are() {
        for text in ["", "line", "line:x", "rank:2:3", "call:1", "rank:99999999999", "end:1"] {
            let error = text.parse::<Stop>().unwrap_err().to_string();
            assert!(error.contains("line:9"), "{error}");
        }
    }

    fn any_stop() -> impl Strategy<Value = Stop> {
        let rank = any::<u32>().prop_map(GlobalRank);
        prop_oneof![
            Just(Stop::Start),
            Just(Stop::End),
            Just(Stop::Differ),
            (any::<u32>(), proptest::option::of(rank.clone()))
                .prop_map(|(line, rank)| Stop::Line { line, rank }),
            rank.prop_map(Stop::Rank),
            (any::<u32>(), any::<u64>())
                .prop_map(|(group, seq)| Stop::Call { group: GroupId(group), seq }),
        ]
    }

    proptest! {
        #[test]
        fn a_stop_is_read_as_it_is_written(stop in any_stop()) {
            prop_assert_eq!(stop.to_string().parse::<Stop>().unwrap(), stop);
        }
    }
}
