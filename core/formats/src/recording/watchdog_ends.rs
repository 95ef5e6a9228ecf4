//! Ends that only a recorder's watchdog saw, beside a profile that has the device's times.
//!
//! NCCL's Flight Recorder notes the end of a call when the watchdog looks, which may be long after the call was over
//! (`ProcessGroupNCCL::watchdogHandler`). Beside a profile such an end would reach into steps of which the profile shows
//! all that the device did. Two rules bound it:
//!
//! - Collectives of one group follow each other on one stream: one was over when the next one with a device's time began.
//! - A call of a group that the profile has no later collective of was over when the profile began, if it was made before.

use lockstep_core::group::GroupId;
use lockstep_core::trace::{CallRecord, CallState};
use std::collections::BTreeMap;

/// Bounds the ends of a rank's calls that have no device's times. `is_timed` says which calls have, by their indexes,
/// and `is_nccl` which groups carry their calls out on a stream; the device's first recorded time is `profile_ps`.
pub(super) fn bound_by_profile(
    calls: &mut [CallRecord],
    is_timed: impl Fn(usize) -> bool,
    is_nccl: impl Fn(GroupId) -> bool,
    profile_ps: u64,
) {
    // By group, when the next collective with a device's times began.
    let mut next: BTreeMap<GroupId, u64> = BTreeMap::new();
    for (at, record) in calls.iter_mut().enumerate().rev() {
        let (group, p2p) = (record.call.group, record.call.p2p);
        if is_timed(at) {
            if let Some(started_ps) = record.started_ps.filter(|_| !p2p) {
                next.insert(group, started_ps);
            }
            continue;
        }
        if record.state != CallState::Completed {
            continue;
        }
        let next_ps = next.get(&group).copied().filter(|_| !p2p);
        let began_ps = Some(profile_ps).filter(|began_ps| record.scheduled_ps < *began_ps);
        let Some(over_ps) = next_ps.or(began_ps).filter(|_| is_nccl(group)) else { continue };
        let bounded = |seen_ps: u64| seen_ps.min(over_ps).max(record.scheduled_ps);
        let (started_ps, completed_ps) =
            (record.started_ps.map(bounded), record.completed_ps.map(bounded));
        (record.started_ps, record.completed_ps) = (started_ps, completed_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::trace::Called;
    use proptest::prelude::*;
    use std::sync::Arc;

    const PAIR: GroupId = GroupId(1);

    /// A call and whether a profile has timed it.
    fn call(group: GroupId, p2p: bool, [made_ps, ended_ps]: [u64; 2]) -> CallRecord {
        let called = Called {
            op: if p2p { "send" } else { "all_reduce" }.into(),
            group,
            p2p,
            peer: None,
            tag: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reduce_op: None,
            root: None,
            stack: [].into(),
        };
        CallRecord {
            work: 0,
            state: CallState::Completed,
            seq: Some(1),
            record_id: None,
            plan_op: None,
            scheduled_ps: made_ps,
            started_ps: Some(made_ps),
            completed_ps: Some(ended_ps),
            call: Arc::new(called),
        }
    }

    fn ends(calls: &[CallRecord]) -> Vec<u64> {
        calls.iter().map(|record| record.completed_ps.unwrap_or(0)).collect()
    }

    #[test]
    fn ends_that_a_watchdog_saw_stay_out_of_the_profile() {
        let mut calls = [
            call(GroupId::WORLD, false, [10, 500]),
            call(PAIR, false, [20, 500]),
            call(PAIR, true, [30, 500]),
            call(GroupId::WORLD, false, [40, 500]),
            // Timed by the profile.
            call(GroupId::WORLD, false, [120, 130]),
            call(GroupId::WORLD, false, [140, 500]),
            call(PAIR, false, [150, 500]),
        ];
        bound_by_profile(&mut calls, |at| at == 4, |_| true, 100);
        // Behind the profile's last call of a group, an end is as the watchdog saw it.
        assert_eq!(ends(&calls), [120, 100, 100, 120, 130, 500, 500]);
        let before = ends(&calls);
        bound_by_profile(&mut calls, |at| at == 4, |_| true, 100);
        assert_eq!(ends(&calls), before);
        // gloo carries calls out on threads, in no order.
        let mut of_gloo = [call(PAIR, false, [20, 500])];
        bound_by_profile(&mut of_gloo, |_| false, |_| false, 100);
        assert_eq!(ends(&of_gloo), [500]);
    }

    proptest! {
        /// No call ends before it was made, or later than it was seen to; timed calls stay as they are, and no untimed
        /// collective is under way when the next timed one of its group begins.
        #[test]
        fn bounds_hold(
            made in prop::collection::vec((0..1000u64, 0..1000u64, any::<bool>(), any::<bool>()), 1..30),
            profile_ps in 0..1000u64,
        ) {
            let mut made = made;
            made.sort_unstable();
            let of = |in_pair: bool| if in_pair { PAIR } else { GroupId::WORLD };
            let before: Vec<CallRecord> = made
                .iter()
                .map(|(made_ps, took_ps, in_pair, _)| call(of(*in_pair), false, [*made_ps, made_ps + took_ps]))
                .collect();
            let mut calls = before.clone();
            bound_by_profile(&mut calls, |at| made[at].3, |_| true, profile_ps);
            for (at, (one, was)) in calls.iter().zip(&before).enumerate() {
                prop_assert!(one.completed_ps >= Some(one.scheduled_ps) && one.completed_ps <= was.completed_ps);
                prop_assert!(one.started_ps <= one.completed_ps);
                if made[at].3 {
                    prop_assert_eq!(one, was);
                    continue;
                }
                let next = (at + 1..calls.len()).find(|next| made[*next].3 && made[*next].2 == made[at].2);
                if let Some(next) = next {
                    prop_assert!(one.completed_ps <= calls[next].started_ps.max(Some(one.scheduled_ps)));
                }
            }
        }
    }
}
