//! Faults by time that did not come: the rank they were for had ended before.

use lockstep_core::plan::{Fault, Moment};
use lockstep_core::trace::{Trace, What};

/// A note for each of them, so that a run that they did not reach is not taken for one that survived them.
pub(crate) fn notes(faults: &[Fault], trace: &Trace) -> Vec<String> {
    let Some(end) = &trace.end else { return Vec::new() };
    let note = |fault: &Fault| {
        let Moment::AfterMs(ms) = fault.when else { return None };
        let ends = |what: &What| matches!(what, What::Finished | What::Died { .. });
        let mut events = trace.events.iter().filter(|event| event.rank == fault.rank);
        let ended = events.find(|event| ends(&event.what)).map(|event| event.time_ps);
        // A kill by the clock is followed by its rank's death.
        let late = ended.unwrap_or(end.time_ps) < ms.saturating_mul(1_000_000_000);
        let who = match ended {
            Some(_) => format!("rank {}", fault.rank),
            None => "the run".to_owned(),
        };
        late.then(|| format!("{fault} did not come: {who} had ended before its time."))
    };
    faults.iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::rank::GlobalRank;
    use lockstep_core::trace::{Event, Origin, Outcome, TraceEnd, TraceHeader};

    #[test]
    fn only_what_came_after_the_ranks_end_did_not_come() {
        let faults: Vec<Fault> =
            ["kill:rank=0,after_ms=5", "stop:rank=1,after_ms=5", "drop:rank=1,call=1"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let trace = |ends_ps: &[u64]| Trace {
            header: TraceHeader {
                origin: Origin::Run { backend: "host".into(), device: "a test".into() },
                world_size: 2,
                groups: Vec::new(),
                plan: None,
                epoch_ns: 0,
            },
            events: (0..)
                .zip(ends_ps.iter().copied())
                .map(|(rank, time_ps)| Event {
                    time_ps,
                    rank: GlobalRank(rank),
                    what: What::Finished,
                })
                .collect(),
            end: Some(TraceEnd { time_ps: 9_000_000_000, outcome: Outcome::Completed }),
        };
        assert_eq!(notes(&faults, &trace(&[6_000_000_000, 7_000_000_000])), Vec::<String>::new());
        assert_eq!(
            notes(&faults, &trace(&[6_000_000_000, 1_000_000_000])),
            ["stop:rank=1,after_ms=5 did not come: rank 1 had ended before its time."]
        );
        // One that nobody waited for stood in a call when the run ended.
        let later = ["stop:rank=1,after_ms=50".parse().unwrap()];
        assert_eq!(
            notes(&later, &trace(&[6_000_000_000])),
            ["stop:rank=1,after_ms=50 did not come: the run had ended before its time."]
        );
    }
}
