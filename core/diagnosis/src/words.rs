//! The wording of findings: `Ranks 0-1, 3`, `all_reduce #7 of dp (train.py:88)`.

use crate::model::index::{Made, Row};
use crate::report::GroupRef;
use lockstep_core::group::GroupId;
use lockstep_core::plan::remark::STORE_GROUP;
use lockstep_core::plan::{Op, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, Frame};
use lockstep_core::words::rank_list;
use lockstep_formats::frames::{own_frames, short_frame, user_frame};

/// `rank 2` or `ranks 0-1, 3`.
pub(crate) fn ranks(list: &[GlobalRank]) -> String {
    let noun = if list.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", rank_list(list))
}

/// The same at the start of a sentence.
pub(crate) fn cap_ranks(list: &[GlobalRank]) -> String {
    capital(&ranks(list))
}

/// The text with its first letter large.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The text with its first letter small.
pub(crate) fn uncapital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// `s` for one rank's verbs: `waits`, `wait`.
pub(crate) fn s(list: &[GlobalRank]) -> &'static str {
    if list.len() == 1 { "s" } else { "" }
}

/// `, and all wait`, where calls under one number differ and somebody waits: of some calls, as of a
/// gather, ranks are through that have sent.
pub(crate) fn and_who_waits(row: &Row<'_>) -> String {
    let waiting = row.waiting();
    match waiting.len() {
        0 => String::new(),
        all if all == row.made.len() => ", and all wait".to_owned(),
        _ => format!(", and {} wait{} there", ranks(&waiting), s(&waiting)),
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A duration in picoseconds, in the unit that people would choose.
pub(crate) fn duration(ps: u64) -> String {
    // To the nearest: what was 5 ms late is not 4 ms late for a nanosecond.
    let whole = |unit: u64| ps.saturating_add(unit / 2) / unit;
    match ps {
        0..1_000_000 => format!("{} ns", whole(1000)),
        1_000_000..1_000_000_000 => format!("{} µs", whole(1_000_000)),
        1_000_000_000..10_000_000_000_000 => format!("{} ms", whole(1_000_000_000)),
        _ => format!("{} s", whole(1_000_000_000_000)),
    }
}

/// A group as findings name it.
pub(crate) fn group_ref(log: &CallLog, id: GroupId) -> GroupRef {
    match log.groups.get(id.index()) {
        Some(group) => GroupRef {
            name: group.name().to_owned(),
            desc: group.desc().to_owned(),
            ranks: group.ranks().to_vec(),
        },
        None => GroupRef { name: id.0.to_string(), desc: String::new(), ranks: Vec::new() },
    }
}

/// The name of a group for people. PyTorch calls one `undefined` that nobody described.
pub(crate) fn group_label(log: &CallLog, id: GroupId) -> String {
    let Some(group) = log.groups.get(id.index()) else { return id.0.to_string() };
    let label = match group.label() {
        "undefined" => group.name(),
        label => label,
    };
    match label.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("group {label}"),
        false => label.to_owned(),
    }
}

/// `train.py:88` of a call, if its stack or its plan tells.
pub(crate) fn line_of(log: &CallLog, rank: GlobalRank, record: &CallRecord) -> Option<String> {
    if let Some(frame) = user_frame(&record.call.stack) {
        return Some(short_frame(frame));
    }
    plan_line(log.plan.as_deref()?, rank, record.plan_op?)
}

/// [`line_of`], and the lines that called it, innermost first: `utils.py:33 train.py:88`.
pub(crate) fn lines_of(log: &CallLog, rank: GlobalRank, record: &CallRecord) -> Option<String> {
    let own: Vec<String> = own_frames(&record.call.stack).map(short_frame).collect();
    if own.is_empty() { line_of(log, rank, record) } else { Some(own.join(" ")) }
}

/// [`line_of`], and whence that line was called where it is a helper's: `utils.py:33, called from
/// train.py:88`. A helper is a function of another file than its caller's; what calls all that a rank calls,
/// as a launcher does, is left out.
pub(crate) fn place_of(log: &CallLog, rank: GlobalRank, record: &CallRecord) -> Option<String> {
    /// So many of a rank's calls are asked whether all come from one caller.
    const ASKED: usize = 256;
    let line = line_of(log, rank, record)?;
    let mut own = own_frames(&record.call.stack);
    let Some(innermost) = own.next() else { return Some(line) };
    let calls = log.ranks.get(rank.index()).and_then(Option::as_ref).map(|own| &own.calls);
    let elsewhere = |frame: &Frame| {
        let mut asked = calls.into_iter().flatten().rev().take(ASKED);
        asked.any(|other| !other.call.stack.is_empty() && !other.call.stack.contains(frame))
    };
    let caller = own.find(|frame| frame.file != innermost.file);
    Some(match caller.filter(|caller| elsewhere(caller)) {
        Some(caller) => format!("{line}, called from {}", short_frame(caller)),
        None => line,
    })
}

/// The lines of two calls; of calls that come through one line of a helper, with whence it was called.
pub(crate) fn lines_of_both(log: &CallLog, own: Made<'_>, theirs: Made<'_>) -> [Option<String>; 2] {
    let of = |made: Made<'_>| line_of(log, made.rank, made.record);
    let (line, other) = (of(own), of(theirs));
    let (stack, callers) = (&own.record.call.stack, &theirs.record.call.stack);
    let outside = |stack| {
        let user = user_frame(stack);
        stack.iter().skip_while(move |frame| Some(*frame) != user)
    };
    let apart = outside(stack).zip(outside(callers)).find(|(a, b)| a != b);
    match (line, other) {
        (Some(line), Some(other)) if line == other && apart.is_some() => {
            let from = |frame: &Frame| format!("{line}, called from {}", short_frame(frame));
            [apart.map(|(own, _)| from(own)), apart.map(|(_, theirs)| from(theirs))]
        }
        both => both.into(),
    }
}

fn plan_line(plan: &Plan, rank: GlobalRank, op: u32) -> Option<String> {
    let at = plan.program(rank)?.ops.get(op as usize)?.at?;
    Some(plan.describe_line(at))
}

/// ` (train.py:88)`, or nothing.
pub(crate) fn at_line(line: Option<String>) -> String {
    line.map(|line| format!(" ({line})")).unwrap_or_default()
}

/// `all_reduce #7 of dp (train.py:88)`.
pub(crate) fn call(log: &CallLog, made: Made<'_>) -> String {
    let line = at_line(line_of(log, made.rank, made.record));
    format!("{}{line}", numbered(log, made, &op(log, made)))
}

/// `all_reduce #7 of dp`.
pub(crate) fn call_without_line(log: &CallLog, made: Made<'_>) -> String {
    let recorded = made.record.call.op.as_str();
    let carried_out = planned_whole(log, made).filter(|whole| *whole == CARRIED_OUT);
    numbered(log, made, carried_out.unwrap_or(recorded))
}

fn numbered(log: &CallLog, made: Made<'_>, op: &str) -> String {
    if let Some(asked) = of_store(log, made) {
        return asked.to_owned();
    }
    let number = made.record.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    format!("{op}{number} of {}", group_label(log, made.record.call.group))
}

/// `all_gather`, or, where a plan says that it is a part of a whole call, `all_gather_object's all_gather`.
pub(crate) fn op(log: &CallLog, made: Made<'_>) -> String {
    within(planned_whole(log, made), &made.record.call.op)
}

/// The whole call that a call is a part of, where a plan tells.
fn planned_whole<'a>(log: &'a CallLog, made: Made<'_>) -> Option<&'a str> {
    let ops = &log.plan.as_deref()?.program(made.rank)?.ops;
    whole_call(ops.get(made.record.plan_op? as usize)?)
}

/// The program's call of a store, `store.get`, whose wait is a message in the plan.
pub(crate) fn of_store<'a>(log: &'a CallLog, made: Made<'_>) -> Option<&'a str> {
    let group = log.groups.get(made.record.call.group.index())?;
    if group.desc() != STORE_GROUP {
        return None;
    }
    let ops = &log.plan.as_deref()?.program(made.rank)?.ops;
    ops.get(made.record.plan_op? as usize)?.via.as_deref()
}

/// The call of the program that an operation of a plan is only a part of: a call on objects, or one that gloo
/// carries out by another.
pub(crate) fn whole_call(op: &Op) -> Option<&str> {
    const WHOLE_CALLS: [&str; 7] = [
        "all_gather_object",
        "gather_object",
        "broadcast_object_list",
        "scatter_object_list",
        "send_object_list",
        "recv_object_list",
        CARRIED_OUT,
    ];
    // NCCL's `reduce_scatter` is the whole of `reduce_scatter_tensor`.
    let whole = |via: &&str| *via == CARRIED_OUT && op.action.name() == "reduce_scatter";
    op.via.as_deref().filter(|via| WHOLE_CALLS.contains(via) && !whole(via))
}

/// The call that gloo carries out by one other: to its user it has its own name alone.
const CARRIED_OUT: &str = "reduce_scatter_tensor";

/// A call as a part of another one, if it is one.
pub(crate) fn within(of: Option<&str>, op: &str) -> String {
    match of {
        None => op.to_owned(),
        Some(CARRIED_OUT) => CARRIED_OUT.to_owned(),
        Some(of) => format!("{of}'s {op}"),
    }
}

/// `broadcast of 30, all_reduce of 10 where the others made all_reduce of 10, broadcast of 30`: the same calls
/// in two orders, by their elements.
pub(crate) fn in_order(own: Option<&[&CallRecord]>, theirs: Option<&[&CallRecord]>) -> String {
    /// More are no help.
    const SHOWN: usize = 6;
    let named = |records: Option<&[&CallRecord]>| {
        let records = records.unwrap_or_default();
        let some = records.iter().take(SHOWN).map(|record| match record.call.payload() {
            0 => record.call.op.clone(),
            elements => format!("{} of {elements}", record.call.op),
        });
        let some = some.collect::<Vec<_>>().join(", ");
        if records.len() > SHOWN { format!("{some}, …") } else { some }
    };
    format!("{} where the others made {}", named(own), named(theirs))
}

/// `all_reduce (train.py:88)`.
pub(crate) fn short_call(log: &CallLog, made: Made<'_>) -> String {
    format!("{}{}", op(log, made), at_line(line_of(log, made.rank, made.record)))
}

/// `Rank 2 waits` or `Ranks 0-1 wait`.
pub(crate) fn waits(list: &[GlobalRank]) -> String {
    format!("{} wait{}", ranks(list), s(list))
}

/// The text of a deed, and of the circle that it ended in.
pub(crate) fn since(said: &str, circle: &str) -> String {
    format!("{said} Since then {}", uncapital(circle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_compactly() {
        let list =
            |list: &[u32]| rank_list(&list.iter().copied().map(GlobalRank).collect::<Vec<_>>());
        assert_eq!(list(&[2]), "2");
        assert_eq!(list(&[0, 1, 3]), "0-1, 3");
        assert_eq!(list(&[0, 1, 2, 4, 5, 6, 9]), "0-2, 4-6, 9");
        let odd: Vec<u32> = (0..40).map(|n| 2 * n + 1).collect();
        assert_eq!(list(&odd), "1, 3, 5, 7, 9, 11, 13, 15 and 32 more");
        assert_eq!(list(&[u32::MAX]), "4294967295");
    }
}
