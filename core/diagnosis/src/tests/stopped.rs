//! Ranks whose processes stand stopped while their job was watched: their last dumps are older than the others'.

use super::fake::{Fake, done, pending};
use crate::{Kind, diagnose_job};
use lockstep_core::plan::STOPPED;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::recording::{Piece, Sources};

#[test]
fn those_that_wait_for_a_stopped_rank_are_named() {
    let calls = |count: usize| vec![done("all_reduce", 8).gloo(); count];
    for stale in [3, 9] {
        let mut others = calls(9);
        others.push(pending("all_reduce", 8).gloo());
        let fake = Fake::new(4, &others).rank(2, &calls(stale));
        let mut sources = Sources::default();
        for (name, bytes) in fake.files() {
            sources.take(Piece::read(&name, &bytes));
        }
        let mut job = sources.join().unwrap();
        let log = &mut job.calls.as_mut().unwrap().merged.log;
        log.ranks[2].as_mut().unwrap().unresponsive = Some(STOPPED.to_owned());
        let report = diagnose_job(job).report;
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!(finding.culprits, [GlobalRank(2)], "{finding:?}");
        assert!([Kind::RankUnresponsive, Kind::RankNeverJoined].contains(&finding.kind));
        assert!(finding.message.contains("stands stopped by a signal (SIGSTOP)"), "{finding:?}");
        assert!(!finding.message.contains("Nobody waits"), "{finding:?}");
        assert!(finding.message.contains("anks 0-1, 3 wait"), "{finding:?}");
    }
}
