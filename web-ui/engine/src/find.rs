//! Calls of a trace by what is asked: those that a query takes, the one that a finding names, and
//! all that is known of one.

use super::lanes::{OPEN, Row};
use super::session::Held;
use super::texts;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallSignature};
use lockstep_diagnosis::who_waits;
use lockstep_formats::frames::own_frames;
use lockstep_web_protocol::query::Query;
use lockstep_web_protocol::{CallDetails, CallId, CallMark, FoundCalls, Member, Which};

/// More calls than this are counted and not listed.
const MAX_LISTED: usize = 500;

impl Held {
    pub(super) fn calls_of(&self, rank: u32) -> &[CallRecord] {
        let log = self.log.as_ref().and_then(|log| log.ranks.get(rank as usize)?.as_ref());
        log.map_or(&[], |log| &log.calls)
    }

    pub(super) fn call(&self, id: CallId) -> Option<&CallRecord> {
        let calls = self.calls_of(id.rank);
        calls.get(calls.binary_search_by_key(&id.work, |call| call.work).ok()?)
    }

    pub(super) fn mark(&self, rank: u32, record: &CallRecord) -> CallMark {
        let group = self.log.as_ref().and_then(|log| log.groups.get(record.call.group.index()));
        CallMark {
            id: CallId { rank, work: record.work },
            title: texts::short_name(record),
            group: group.map(|group| group.label().to_owned()).unwrap_or_default(),
            from_ps: record.scheduled_ps,
            to_ps: record.completed_ps,
            lane: self.lane_of(rank, record.work),
        }
    }

    pub(super) fn lane_of(&self, rank: u32, work: u32) -> Option<u32> {
        let rows = self.lanes.rows();
        let holds = |row: &Row| {
            matches!(row, Row::Calls(_))
                && self.lanes.spans(rank, *row).iter().any(|span| span.what == work)
        };
        rows.iter().position(holds).map(|lane| lane as u32)
    }

    /// The calls that a query takes, by time.
    pub(super) fn find_calls(&self, query: &Query) -> FoundCalls {
        let Some(log) = &self.log else { return FoundCalls::default() };
        let mut found: Vec<(u64, u32, u32)> = Vec::new();
        let mut finder = query.finder(&log.groups);
        for (rank, calls) in log.logs().filter(|(rank, _)| query.takes_rank(rank.0)) {
            let taken = calls.calls.iter().filter(|call| finder.takes(call));
            found.extend(taken.map(|call| (call.scheduled_ps, rank.0, call.work)));
        }
        let total = found.len() as u64;
        if found.len() > MAX_LISTED {
            found.select_nth_unstable(MAX_LISTED);
            found.truncate(MAX_LISTED);
        }
        found.sort_unstable();
        let listed = found.iter();
        let calls = listed.filter_map(|(_, rank, work)| {
            let record = self.call(CallId { rank: *rank, work: *work })?;
            Some(self.mark(*rank, record))
        });
        FoundCalls { total, calls: calls.collect() }
    }

    /// True if a call is of the group of this name or label.
    fn is_of_group(&self, record: &CallRecord, group: &str) -> bool {
        let groups = self.log.as_ref().map_or(&[][..], |log| &log.groups);
        let of = groups.get(record.call.group.index());
        // Findings call a group that has only a number `group 6`.
        let number = group.strip_prefix("group ");
        of.is_some_and(|of| of.name() == number.unwrap_or(group) || of.label() == group)
    }

    /// A call of a rank.
    pub(super) fn locate(&self, rank: u32, which: &Which) -> Option<CallMark> {
        let calls = self.calls_of(rank);
        let unfinished = || calls.iter().find(|call| call.completed_ps.is_none());
        let found = match which {
            Which::Work(work) => calls.iter().find(|call| call.work == *work),
            Which::Entry(entry) => calls
                .iter()
                .find(|call| call.record_id == Some(*entry))
                .or_else(|| calls.iter().find(|call| u64::from(call.work) == *entry)),
            Which::Numbered { group, op, seq } => calls
                .iter()
                .find(|call| {
                    call.seq == *seq
                        && op.as_ref().is_none_or(|op| *op == call.call.op)
                        && group.as_ref().is_none_or(|group| self.is_of_group(call, group))
                })
                .or_else(unfinished),
            Which::Last => unfinished(),
            Which::At(time) => calls.iter().min_by_key(|call| {
                let end = call.completed_ps.unwrap_or(OPEN);
                // Zero while it goes on.
                call.scheduled_ps.saturating_sub(*time).max(time.saturating_sub(end))
            }),
        };
        found.or(calls.last()).map(|call| self.mark(rank, call))
    }

    /// All that is known of a call.
    pub(super) fn about_call(&self, id: CallId) -> Option<CallDetails> {
        let log = self.log.as_ref()?;
        let calls = self.calls_of(id.rank);
        let at = calls.binary_search_by_key(&id.work, |call| call.work).ok()?;
        let record = calls.get(at)?;
        let (facts, stack) = texts::about(log, record);
        let waits = match record.completed_ps {
            None => who_waits(log),
            Some(_) => Vec::new(),
        };
        let mine = waits.iter().find(|wait| wait.rank.0 == id.rank && wait.work == id.work);
        let neighbour = |at: Option<usize>| Some(self.mark(id.rank, calls.get(at?)?));
        Some(CallDetails {
            mark: self.mark(id.rank, record),
            facts,
            stack,
            knows_end: texts::knows_end(log, record),
            waits_for: mine
                .map(|wait| wait.waits_for.iter().map(|rank| rank.0).collect())
                .unwrap_or_default(),
            members: self.members(log, record),
            previous: neighbour(at.checked_sub(1)),
            next: neighbour(Some(at + 1)),
        })
    }

    /// The same call on the members of its group: a collective has its number in common.
    pub(super) fn members(&self, log: &CallLog, record: &CallRecord) -> Vec<Member> {
        let Some(group) = log.groups.get(record.call.group.index()) else { return Vec::new() };
        if record.call.p2p || record.seq.is_none() {
            return Vec::new();
        }
        let same = |call: &&CallRecord| {
            call.call.group == record.call.group && call.seq == record.seq && !call.call.p2p
        };
        let member = |rank: &GlobalRank| {
            let call = self.calls_of(rank.0).iter().find(same);
            // Uneven splits of an all_to_all are no disagreement: only what members must agree on counts.
            let signature = CallSignature::of(&record.call);
            let differs = call
                .is_some_and(|call| CallSignature::of(&call.call).difference(&signature).is_some());
            let own = own_frames(&record.call.stack);
            let elsewhere = call.is_some_and(|call| {
                let stack = &call.call.stack;
                !stack.is_empty() && !record.call.stack.is_empty() && !own_frames(stack).eq(own)
            });
            Member {
                rank: rank.0,
                call: call.map(|call| self.mark(rank.0, call)),
                recorded: log.ranks.get(rank.index()).is_some_and(Option::is_some),
                differs,
                elsewhere,
            }
        };
        group.ranks().iter().map(member).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lanes::Lanes;
    use lockstep_core::collective::Collective;
    use lockstep_core::plan::{CollectiveLab, Plan};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_sim::{SimConfig, simulate};

    /// An all_reduce of four ranks, simulated.
    pub(crate) fn held() -> Held {
        let lab = CollectiveLab::new(Collective::AllReduce { op: ReduceOp::Sum }, 4, 16);
        held_of(&lab.plan().unwrap())
    }

    /// A plan, simulated.
    pub(crate) fn held_of(plan: &Plan) -> Held {
        let trace = simulate(plan, &SimConfig::default()).unwrap();
        let log = CallLog::of(&trace);
        let mut lanes = Lanes::new(plan.world_size);
        for event in &trace.events {
            lanes.take(event, trace.header.plan.as_deref());
        }
        Held::whole(trace, lanes, log)
    }

    fn found(held: &Held, query: &str) -> Vec<u32> {
        let found = held.find_calls(&Query::parse(query).unwrap());
        assert_eq!(found.total, found.calls.len() as u64);
        found.calls.iter().map(|call| call.id.rank).collect()
    }

    #[test]
    fn calls_are_found_and_told_with_those_of_the_other_ranks() {
        let held = held();
        assert_eq!(found(&held, "op:all_reduce").len(), 4);
        assert_eq!(found(&held, "rank:2 all_reduce"), [2]);
        assert!(found(&held, "unfinished").is_empty());
        let mark = held.locate(2, &Which::Last).unwrap();
        assert!(mark.lane.is_some() && mark.to_ps.is_some());
        let told = held.about_call(mark.id).unwrap();
        assert_eq!(told.members.iter().map(|member| member.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(told.members.iter().all(|member| member.call.is_some() && !member.differs));
        assert!(told.waits_for.is_empty() && told.previous.is_none() && told.next.is_none());
        assert_eq!(held.locate(2, &Which::At(0)), Some(mark.clone()));
        let seq = held.call(mark.id).unwrap().seq;
        let op = Some("all_reduce".to_owned());
        let numbered = |group: &str, seq| {
            let (group, op) = (Some(group.to_owned()), op.clone());
            held.locate(2, &Which::Numbered { group, op, seq })
        };
        let groups = &held.log.as_ref().unwrap().groups;
        let group = groups[held.call(mark.id).unwrap().call.group.index()].name();
        assert_eq!(numbered(group, seq), Some(mark.clone()));
        // A rank that never made the call is shown where it is.
        assert_eq!(numbered("another group", seq), Some(mark.clone()));
        assert_eq!(numbered(group, seq.map(|seq| seq + 1)), Some(mark));
        assert_eq!(held.locate(9, &Which::Last), None);
        assert_eq!(held.about_call(CallId { rank: 2, work: 77 }), None);
    }
}
