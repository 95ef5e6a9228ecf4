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

/// A debug server that answers nothing leaves no calls: nobody may say that its rank made none.
#[test]
fn a_rank_of_which_only_its_silence_is_known_is_not_said_to_have_called_nothing() {
    const SILENT: &str = "its process takes connections and answers nothing";
    let mut others = vec![done("all_reduce", 8).gloo(); 9];
    others.push(pending("all_reduce", 8).gloo());
    let fake = Fake::new(4, &others).no_dump(2);
    let mut sources = Sources::default();
    for (name, bytes) in fake.files() {
        sources.take(Piece::read(&name, &bytes));
    }
    let mut job = sources.join().unwrap();
    let log = &mut job.calls.as_mut().unwrap().merged.log;
    log.ranks[2].get_or_insert_default().unresponsive = Some(SILENT.to_owned());
    let report = diagnose_job(job).report;
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    assert_eq!(
        (finding.kind, &finding.culprits[..]),
        (Kind::RankUnresponsive, &[GlobalRank(2)][..])
    );
    assert!(finding.message.contains("What it called is not known."), "{finding:?}");
    assert!(finding.message.contains("anks 0-1, 3 wait in all_reduce #"), "{finding:?}");
    assert!(!finding.message.contains("never called"), "{finding:?}");
}
