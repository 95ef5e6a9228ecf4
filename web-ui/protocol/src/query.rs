//! The query that finds calls: `rank:10 op:all_to_all unfinished`. All words must hold.

use lockstep_core::group::ProcessGroup;
use lockstep_core::trace::{CallRecord, Frame};
use std::collections::BTreeMap;

/// The words that a query may have, with an example each.
pub const WORDS: [(&str, &str); 9] = [
    ("#153", "calls with this number in their group"),
    ("entry:196", "calls with this number in the recorder, on every rank"),
    ("rank:10, rank:2,8-15", "calls of these ranks"),
    ("op:all_to_all", "calls whose name has this in it"),
    ("group:mesh_data", "calls of groups whose name has this in it"),
    ("line:train.py:88", "calls whose stack has this line"),
    ("unfinished", "calls that never ended"),
    ("slower:10ms", "calls that took at least this long, or never ended"),
    ("anything else", "calls whose name, group or stack has it"),
];

/// A condition on calls.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Number(u64),
    Entry(u64),
    /// From a first to a last rank, each.
    Ranks(Vec<(u32, u32)>),
    Op(String),
    Group(String),
    Line(String),
    Unfinished,
    /// Picoseconds.
    Slower(u64),
    Text(String),
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<Term>);

impl Query {
    /// Reads a typed query; capitals do not matter.
    ///
    /// # Errors
    /// When a word cannot be read, a sentence with its expected form.
    pub fn parse(text: &str) -> Result<Query, String> {
        text.split_whitespace().map(term).collect::<Result<_, _>>().map(Query)
    }

    /// True if it has no condition.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if calls of a rank can meet the conditions.
    pub fn takes_rank(&self, rank: u32) -> bool {
        self.0.iter().all(|term| match term {
            Term::Ranks(all) => all.iter().any(|(first, last)| (*first..=*last).contains(&rank)),
            _ => true,
        })
    }

    /// Finds the calls that meet all conditions but those on their ranks.
    pub fn finder<'q>(&'q self, groups: &[ProcessGroup]) -> Finder<'q> {
        let terms = self.0.iter().filter(|term| !matches!(term, Term::Ranks(_)));
        let mut terms: Vec<Finding<'q>> = terms.map(|term| Finding::of(term, groups)).collect();
        // What needs no text goes first.
        terms.sort_by_key(|finding| finding.reads_texts());
        Finder(terms)
    }
}

/// Finds the calls that meet a query. A job's calls have few names, groups and stacks in common: what a condition
/// says of one is found once, and texts are not looked at again for each of a million calls.
#[derive(Debug)]
pub struct Finder<'q>(Vec<Finding<'q>>);

impl Finder<'_> {
    /// True if a call meets all conditions. All calls must live as long as this.
    pub fn takes(&mut self, record: &CallRecord) -> bool {
        self.0.iter_mut().all(|finding| finding.takes(record))
    }
}

/// A condition with what it says of the groups, names and stacks that were seen.
#[derive(Debug)]
struct Finding<'q> {
    term: &'q Term,
    /// By the group's number.
    groups: Vec<bool>,
    /// By name: few, in the order in which they were seen.
    ops: Vec<(String, bool)>,
    /// By the stack's address: calls from one line share their stack.
    stacks: BTreeMap<usize, bool>,
}

impl<'q> Finding<'q> {
    fn of(term: &'q Term, groups: &[ProcessGroup]) -> Finding<'q> {
        let takes = |group: &ProcessGroup| match term {
            Term::Group(part) | Term::Text(part) => {
                has(group.label(), part) || has(group.name(), part)
            }
            _ => false,
        };
        let groups = groups.iter().map(takes).collect();
        Finding { term, groups, ops: Vec::new(), stacks: BTreeMap::new() }
    }

    fn reads_texts(&self) -> bool {
        matches!(self.term, Term::Op(_) | Term::Line(_) | Term::Text(_))
    }

    fn takes(&mut self, record: &CallRecord) -> bool {
        match self.term {
            Term::Number(number) => record.seq == Some(*number),
            Term::Entry(number) => record.record_id == Some(*number),
            Term::Ranks(_) => true,
            Term::Op(part) => self.op_has(&record.call.op, part),
            Term::Group(_) => self.is_of_group(record),
            Term::Line(_) => self.stack_has(record),
            Term::Unfinished => record.completed_ps.is_none(),
            Term::Slower(least) => {
                let took = record.completed_ps.map(|end| end.saturating_sub(record.scheduled_ps));
                took.is_none_or(|took| took >= *least)
            }
            Term::Text(part) => {
                self.op_has(&record.call.op, part)
                    || self.is_of_group(record)
                    || self.stack_has(record)
            }
        }
    }

    fn is_of_group(&self, record: &CallRecord) -> bool {
        self.groups.get(record.call.group.index()).copied().unwrap_or(false)
    }

    fn op_has(&mut self, op: &str, part: &str) -> bool {
        if let Some((_, takes)) = self.ops.iter().find(|(known, _)| known == op) {
            return *takes;
        }
        let takes = has(op, part);
        if self.ops.len() < MOST_OPS {
            self.ops.push((op.to_owned(), takes));
        }
        takes
    }

    fn stack_has(&mut self, record: &CallRecord) -> bool {
        let stack = &record.call.stack;
        if stack.is_empty() {
            return false;
        }
        let term = self.term;
        let at = stack.as_ptr() as usize;
        if let Some(takes) = self.stacks.get(&at) {
            return *takes;
        }
        let takes = stack.iter().any(|frame| frame_has(term, frame));
        if self.stacks.len() < MOST_STACKS {
            self.stacks.insert(at, takes);
        }
        takes
    }
}

/// Names past this many are looked at each time, and so are stacks.
const MOST_OPS: usize = 64;
const MOST_STACKS: usize = 1 << 17;

/// True if a text has a part that is written in small letters.
fn has(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(part)
}

/// True if a condition on stacks takes a frame.
fn frame_has(term: &Term, frame: &Frame) -> bool {
    let place = format!("{}:{}", frame.file, frame.line).to_lowercase();
    match term {
        // Whole numbers: line 8 is not line 88.
        Term::Line(line) => {
            place.ends_with(line.as_str()) || (!line.contains(':') && place.contains(line.as_str()))
        }
        Term::Text(part) => place.contains(part) || has(&frame.function, part),
        _ => false,
    }
}

fn term(word: &str) -> Result<Term, String> {
    if let Some(number) = word.strip_prefix('#') {
        let number =
            number.parse().map_err(|_| format!("{word:?} is no number of a call: #153"))?;
        return Ok(Term::Number(number));
    }
    let lower = word.to_lowercase();
    if lower == "unfinished" {
        return Ok(Term::Unfinished);
    }
    let Some((name, value)) = lower.split_once([':', '>']).filter(|(_, value)| !value.is_empty())
    else {
        return Ok(Term::Text(lower));
    };
    match name {
        "rank" | "ranks" => {
            ranks(value).ok_or_else(|| format!("{word:?} names no rank: rank:10, or rank:2,8-15"))
        }
        "entry" => value
            .parse()
            .map(Term::Entry)
            .map_err(|_| format!("{word:?} is no number of the recorder's: entry:196")),
        "op" => Ok(Term::Op(value.to_owned())),
        "group" => Ok(Term::Group(value.to_owned())),
        "line" => Ok(Term::Line(value.to_owned())),
        "slower" => picoseconds(value).map(Term::Slower).ok_or_else(|| {
            format!("{word:?} is no time: slower:10ms; the units are s, ms, us and ns")
        }),
        // `train.py:88` and `c10d::all_reduce` have colons, too.
        _ if !name.bytes().all(|byte| byte.is_ascii_lowercase()) || value.starts_with(':') => {
            Ok(Term::Text(lower))
        }
        _ => {
            let known = WORDS.iter().take(WORDS.len() - 1).map(|(word, _)| {
                word.find([':', '#']).and_then(|sign| word.get(..=sign)).unwrap_or(word)
            });
            let known: Vec<&str> = known.collect();
            Err(format!("{word:?} is no condition; there are {}", known.join(", ")))
        }
    }
}

fn ranks(value: &str) -> Option<Term> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        (first <= last).then_some((first, last))
    };
    value.split(',').map(range).collect::<Option<_>>().map(Term::Ranks)
}

fn picoseconds(value: &str) -> Option<u64> {
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = value.split_at(digits);
    let scale = match unit {
        "s" => 1e12,
        "ms" => 1e9,
        "us" | "µs" => 1e6,
        "ns" => 1e3,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| (number * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::trace::{CallState, Called};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn call() -> (CallRecord, ProcessGroup) {
        let frame = |line| Frame { file: "/job/train.py".into(), line, function: "average".into() };
        let called = Called {
            op: "all_reduce".to_owned(),
            group: GroupId(0),
            p2p: false,
            peer: None,
            tag: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reduce_op: None,
            root: None,
            stack: Arc::from(vec![frame(88), frame(52)]),
        };
        let record = CallRecord {
            work: 3,
            state: CallState::Completed,
            seq: Some(153),
            record_id: Some(196),
            plan_op: None,
            scheduled_ps: 1_000,
            started_ps: None,
            completed_ps: Some(5_000_001_000),
            call: Arc::new(called),
        };
        let group = ProcessGroup::world(4, BackendName::Gloo).unwrap().with_desc("mesh_data");
        (record, group)
    }

    /// Asks twice: the second answer is the one that was kept.
    fn takes(query: &Query, record: &CallRecord, group: &ProcessGroup) -> bool {
        let mut finder = query.finder(std::slice::from_ref(group));
        let (first, again) = (finder.takes(record), finder.takes(record));
        assert_eq!(first, again, "{query:?}");
        again
    }

    /// Names and stacks of other calls do not change what is found.
    #[test]
    fn what_is_known_of_one_call_is_not_taken_for_another() {
        let (record, group) = call();
        let mut other = (*record.call).clone();
        (other.op, other.stack) = ("broadcast".to_owned(), Arc::from(vec![]));
        let other = CallRecord { call: Arc::new(other), ..record.clone() };
        for (text, wanted) in [
            ("op:broadcast", [false, true]),
            ("line:train.py:88", [true, false]),
            ("average", [true, false]),
            ("mesh_data", [true, true]),
        ] {
            let query = Query::parse(text).unwrap();
            let mut finder = query.finder(std::slice::from_ref(&group));
            for _ in 0..2 {
                assert_eq!([&record, &other].map(|call| finder.takes(call)), wanted, "{text}");
            }
        }
    }

    #[test]
    fn every_word_asks_for_what_it_says() {
        let (record, group) = call();
        let taken = |text: &str| {
            let query = Query::parse(text).unwrap();
            query.takes_rank(10) && takes(&query, &record, &group)
        };
        for yes in [
            "",
            "#153",
            "entry:196",
            "rank:10",
            "rank:8-15",
            "rank:2,8-15",
            "op:reduce",
            "op:ALL_REDUCE",
            "group:mesh",
            "line:train.py:88",
            "line:train.py",
            "slower:5ms",
            "slower:4999us",
            "slower>5ms",
            "train.py:52",
            "average",
            "rank:10 op:all_reduce #153",
        ] {
            assert!(taken(yes), "{yes}");
        }
        for no in [
            "#7",
            "#196",
            "entry:153",
            "rank:9",
            "rank:11-15",
            "rank:2,9",
            "op:gather",
            "group:tp",
            "line:train.py:8",
            "unfinished",
            "slower:6ms",
            "slower:1s",
            "broadcast",
            "rank:10 op:gather",
        ] {
            assert!(!taken(no), "{no}");
        }
        let open = CallRecord { completed_ps: None, ..record };
        let unfinished = Query::parse("unfinished slower:100s").unwrap();
        assert!(unfinished.finder(&[]).takes(&open));
    }

    #[test]
    fn a_word_that_cannot_be_read_is_refused_with_an_example() {
        for (word, example) in [
            ("#x", "#153"),
            ("entry:x", "entry:196"),
            ("foo:3", "#, entry:, rank:, op:, group:, line:, unfinished, slower:"),
            ("rank:first", "rank:10"),
            ("rank:9-3", "8-15"),
            ("blah:3", "op:"),
            ("slower:10", "10ms"),
            ("rnk:10x", "rank:"),
            ("foo:bar", "op:"),
        ] {
            let why = Query::parse(word).unwrap_err();
            assert!(why.contains(word) && why.contains(example), "{why}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_read_or_refused(text in any::<String>()) {
            let (record, group) = call();
            if let Ok(query) = Query::parse(&text) {
                let _ = takes(&query, &record, &group) && query.takes_rank(0);
            }
        }
    }
}
