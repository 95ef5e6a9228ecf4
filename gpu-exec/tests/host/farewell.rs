//! Launchers end a job by its first process that fails, so rank 0's is to be the first: it gives the reason.

use crate::launched::{Job, RANK, codes, end_within, free_port, reduction};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Fault, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Outcome;
use lockstep_gpu_exec::host::{
    launched::{Farewell, Launch},
    lead,
};
use lockstep_gpu_exec::{RankLauncher, RunError, RunHandle, RunOptions};
use std::process::{Child, Command};
use std::time::Duration;

/// Rank 0 of three in this process.
fn lead_three(plan: &Plan, port: u16, farewell: &Farewell) -> Result<RunHandle, RunError> {
    let launch = Launch {
        by: "a test",
        rank: GlobalRank(0),
        world_size: 3,
        local_rank: None,
        master_addr: "127.0.0.1".to_owned(),
        master_port: port,
        store_is_served: false,
        file: None,
        attempt: 0,
    };
    let program = RANK.into();
    let options = RunOptions {
        timeout: Some(Duration::from_millis(300)),
        join_timeout: Duration::from_secs(2),
        ..RunOptions::default()
    };
    lead(&launch, RankLauncher { program, args: Vec::new() }, plan.clone(), options, farewell)
}

/// That the ranks are there until the farewell is dropped, and fail then.
fn stay_for(farewell: Farewell, mut ranks: Vec<Child>) {
    // Time enough to end, for one that would.
    std::thread::sleep(Duration::from_millis(300));
    for rank in &mut ranks {
        assert_eq!(rank.try_wait().unwrap(), None);
    }
    drop(farewell);
    let outputs = end_within(Duration::from_secs(10), ranks);
    assert!(codes(&outputs).iter().all(|code| *code == Some(1)), "{outputs:?}");
}

#[test]
fn ranks_of_a_run_that_fails_stay_until_rank_0_is_through() {
    let faults: Vec<Fault> = vec!["drop:rank=2,call=1".parse().unwrap()];
    let plan = reduction(3).with_faults(&faults).unwrap().plan;
    let (job, port, farewell) = (Job::of(&plan), free_port(), Farewell::default());
    let ranks = (1..3).map(|rank| job.rank(rank, 3, port, &[])).collect();
    let run = lead_three(&plan, port, &farewell).unwrap();
    assert_eq!(run.join().outcome, Outcome::TimedOut);
    stay_for(farewell, ranks);
}

#[test]
fn ranks_of_a_run_that_does_not_begin_stay_until_rank_0_is_through() {
    let plan = reduction(3);
    let (job, port, farewell) = (Job::of(&plan), free_port(), Farewell::default());
    let came = vec![job.rank(1, 3, port, &[])];
    let error = lead_three(&plan, port, &farewell).unwrap_err();
    assert!(error.to_string().contains("rank 2 did not join"), "{error}");
    stay_for(farewell, came);
}

/// A rank that fails by itself waits, too: rank 0 reports the run.
#[test]
fn a_rank_that_cannot_begin_stays_until_rank_0_is_through() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = CollectiveLab::new(sum, 3, 16 << 20).plan().unwrap();
    let (job, port, farewell) = (Job::of(&plan), free_port(), Farewell::default());
    let mut ranks = vec![job.rank(1, 3, port, &[])];
    // In kilobytes: enough for a process, and not for three tensors of 64 MB.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 150000; exec \"$0\" \"$@\"", RANK]);
    ranks.push(job.rank_by(limited, 2, 3, ("127.0.0.1", port), &[]));
    let error = lead_three(&plan, port, &farewell).unwrap_err().to_string();
    assert!(error.contains("rank 2 did not join") && error.contains("memory"), "{error}");
    stay_for(farewell, ranks);
}
