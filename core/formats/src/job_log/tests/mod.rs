use super::*;

fn read(text: &[u8]) -> JobLog {
    super::read("job.log", text)
}

pub(super) fn said(text: &str) -> Vec<(u32, Said)> {
    read(text.as_bytes()).statements.into_iter().map(|it| (it.rank.0, it.said)).collect()
}

/// As torch 2.15 printed them.
#[test]
fn messages_are_understood() {
    assert_eq!(
        said("x\nParameter indices which did not receive grad for rank 1: 2 3\n In addition"),
        [(1, Said::Unused { parameters: "2 3".into() })]
    );
    assert_eq!(
        said(
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 4 params, \
             while rank 1 has inconsistent 6 params."
        ),
        [(0, Said::Parameters { count: 4 }), (1, Said::Parameters { count: 6 })]
    );
    assert_eq!(
        said(
            "RuntimeError: [1]: params[2] in this process with sizes [9, 8] appears not to match \
             sizes of the same param in process 0."
        ),
        [(1, Said::Shape { parameter: "params[2] in this process with sizes [9, 8]".into() })]
    );
    assert_eq!(said("RuntimeError: Rank 1 exhausted all inputs."), [(1, Said::Exhausted)]);
    assert_eq!(
        said("RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 5000 ms"),
        [(1, Said::MissedBarrier), (2, Said::MissedBarrier)]
    );
    let runs =
        |op: &str| Said::Runs { seq: 1, op: op.into(), shape: "[4]".into(), dtype: "Float".into() };
    assert_eq!(
        said(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running \
             collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, \
             TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float \
             (default))), but Rank 1 is running collective: \
             CollectiveFingerPrint(SequenceNumber=1, OpType=BROADCAST, TensorShape=[4], \
             TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default)))."
        ),
        [(0, runs("ALLREDUCE")), (1, runs("BROADCAST"))]
    );
    assert_eq!(
        said(
            "[rank3]:[E] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, \
             Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
        ),
        [(
            3,
            Said::TimedOut {
                group: "0(default_pg)".into(),
                seq: 12,
                op: "ALLREDUCE".into(),
                numel_in: Some(4),
                numel_out: Some(4)
            }
        )]
    );
    assert_eq!(
        said(
            "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"a.py\", line 1\n\
             [rank2]: torch.OutOfMemoryError: CUDA out of memory.\n\
             [rank0]: torch.distributed.DistBackendError: NCCL error\n\
             [rank1]: RuntimeError: Connection closed by peer [::1]:3"
        ),
        [
            (0, gave_up("torch.distributed.DistBackendError: NCCL error")),
            (1, gave_up("RuntimeError: Connection closed by peer [::1]:3")),
            (
                2,
                Said::Raised {
                    error: "torch.OutOfMemoryError: CUDA out of memory.".into(),
                    frame: Some("a.py:1".into()),
                    source: None
                }
            )
        ]
    );
    assert_eq!(said("Rank 7 is fine\n[2]: params\nSeqNum="), []);
}

proptest::proptest! {
    #[test]
    fn any_text_ends_without_a_panic(text in ".*", cut: usize) {
        let all = format!("{text}Detected mismatch between collectives on ranks. Rank {text} is \
            running collective: CollectiveFingerPrint(SequenceNumber={text}]: params[ appears \
            not to match sizes of the same param in process");
        let cut = (0..=cut % (all.len() + 1)).rev().find(|at| all.is_char_boundary(*at));
        let _ = read(&all.as_bytes()[..cut.unwrap_or(0)]);
    }
}

fn gave_up(error: &str) -> Said {
    Said::GaveUp { error: error.into(), frame: None, source: None, call: None }
}

fn timed_out(group: &str, seq: u64, op: &str, numel: u64) -> Said {
    let (group, op, numel) = (group.into(), op.into(), Some(numel));
    Said::TimedOut { group, seq, op, numel_in: numel, numel_out: numel }
}

fn stood(group: &str, enqueued: u64, completed: Option<u64>) -> Said {
    Said::Stood { group: group.into(), enqueued, completed }
}

/// The messages of `ProcessGroupNCCL.cpp` of torch 2.3 to 2.13, in the words of real logs: the group is in
/// the line after the one that names the collective, if anywhere.
#[test]
fn watchdogs_of_every_release_are_understood() {
    let caught = |time: &str, file: u32| {
        format!(
            "[rank1]:[E{time}ProcessGroupNCCL.cpp:{file}] [Rank 1] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, \
             Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
        )
    };
    let again = |group: &str| {
        format!(
            "[rank1]:[E ProcessGroupNCCL.cpp:1] [{group} Rank 1] Process group watchdog thread \
             terminated with exception: [Rank 1] Watchdog caught collective operation timeout: \
             WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for \
             600029 milliseconds before timing out.\n"
        )
    };
    let clock = "1003 18:37:01.832146912 ";
    for (text, group, stands) in [
        (
            caught(" ", 577)
                + "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 1] Timeout at NCCL work: 7, last \
                   enqueued NCCL work: 9, last completed NCCL work: 76280750235782912.\n"
                + &again("PG 0"),
            "0",
            stood("0", 9, None),
        ),
        (
            caught(clock, 607)
                + "[rank1]:[E1003 18:37:01.833575187 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank \
                   1] Exception (either an error or timeout) detected by watchdog at work: 7, last \
                   enqueued NCCL work: 9, last completed NCCL work: 6.\n"
                + &again("PG 0 (default_pg)"),
            "0(default_pg)",
            stood("0(default_pg)", 9, Some(6)),
        ),
        (
            caught(clock, 616)
                + "[rank1]:[E219 08:58:32.606667496 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 3 Rank 1] \
                   Exception (either an error or timeout) detected by watchdog at work: 7, last enqueued \
                   NCCL work: 9, last completed NCCL work: 6.\n",
            "3",
            stood("3", 9, Some(6)),
        ),
        (
            caught(clock, 632)
                + "[rank1]:[E709 17:05:38.162814866 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID \
                   0(default_pg) Rank 1]  failure detected by watchdog at work sequence id: 7 PG status: \
                   last enqueued work: 9, last completed work: 6\n"
                + &again("PG ID 0 PG GUID 0(default_pg)"),
            "0(default_pg)",
            stood("0(default_pg)", 9, Some(6)),
        ),
        (
            caught(clock, 700)
                + "[rank1]:[E709 17:05:38.162814866 ProcessGroupNCCL.cpp:2500] [PG ID 1 PG GUID 5(tp) \
                   Rank 0]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued \
                   work: 9, last started work: -1, last completed work: 6\n",
            "5(tp)",
            stood("5(tp)", 9, Some(6)),
        ),
    ] {
        assert_eq!(said(&text), [(1, timed_out(group, 7, "ALLREDUCE", 64)), (1, stands)], "{text}");
    }
    // Another work's line names another group.
    let other = caught(clock, 632)
        + "[rank1]:[E709 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure \
           detected by watchdog at work sequence id: 8 PG status: last enqueued work: 9, last completed \
           work: 6\n";
    assert_eq!(said(&other)[0].1, timed_out("", 7, "ALLREDUCE", 64));
}

#[test]
fn what_a_rank_says_when_another_one_timed_out() {
    let signal = |rank: u32, from: &str, enqueued: i64, completed: i64| {
        format!(
            "Epoch 3: 12%|[rank{rank}]:[E709 17:05:38.482119928 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG \
             GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from \
             {from} and we will try our best to dump the debug info. Last enqueued NCCL work: \
             {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect \
             usages of collectives, e.g., wrong sizes used across ranks\n"
        )
    };
    assert_eq!(
        said(&(signal(3, " rank 7", 6, 6) + &signal(7, "this local rank", 7, 6))),
        [
            (7, Said::Signalled),
            (3, stood("0(default_pg)", 6, Some(6))),
            (7, stood("0(default_pg)", 7, Some(6)))
        ]
    );
    // Nothing enqueued yet, on a backend of another name.
    let none = signal(2, "this local rank", -1, -1).replace("NCCL", "XCCL");
    assert_eq!(said(&none), [(2, Said::Signalled), (2, stood("0(default_pg)", 0, Some(0)))]);
    let torch_2_3 = "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Received a timeout signal from \
                     this local rank and will start to dump the debug info. Last enqueued NCCL work: 3, \
                     last completed NCCL work: 2.\n";
    assert_eq!(said(torch_2_3), [(1, stood("0", 3, Some(2)))]);
}

/// `TraceUtils.h`, with `TORCH_NCCL_DESYNC_DEBUG=1`.
#[test]
fn reports_of_ranks_that_are_behind_are_understood() {
    let report = "[rank0]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:9] [PG ID 0 PG GUID 0(default_pg) Rank 0] \n\
                  \t - [0] Timeout at collective: ALLREDUCE, #7\n\
                  \t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync \
                  are:\n\
                  \t   - [2, 3] joined but didn't finish collective #5 (count from 1)\n\
                  \t     [1] finished collective #5, but didn't join collective #6 (count from 1)\n\
                  \t - Snapshot of ranks' latest states:\n\
                  \t   #7 started ranks:\n\
                  \t     [0] started ALLREDUCE\n";
    let world = "0(default_pg)";
    assert_eq!(
        said(report),
        [
            (2, stood(world, 5, Some(4))),
            (3, stood(world, 5, Some(4))),
            (1, stood(world, 5, Some(5))),
            (1, Said::Lagging { next: Some(6) }),
        ]
    );
    // Releases that name no group begin the report with the rank alone.
    let older =
        report.replace("[PG ID 0 PG GUID 0(default_pg) Rank 0]", "ProcessGroupNCCL.cpp:9] Rank 0");
    assert!(said(&older).contains(&(1, Said::Lagging { next: Some(6) })), "{:?}", said(&older));
    let never = "[rank0]:[E] [PG ID 0 PG GUID 0(default_pg) Rank 0] \n\t - To our best knowledge, ranks [1, \
                 2] are the lagging ranks that caused this timeout. They never joined any collectives\n";
    assert_eq!(said(never), [(1, stood(world, 0, Some(0))), (2, stood(world, 0, Some(0)))]);
    // Ranks of another group are not the job's.
    assert_eq!(said(&never.replace("0(default_pg)", "3(tp)")), []);
}

pub(super) const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"/home/u/job/train.py\", line 88, in \
                         main\n    loss = step(batch)\n           ^^^^^^^^^^^\n  File \
                         \"/usr/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1532, in \
                         _call\n    return self._call_impl(*args)\nValueError: bad batch\n";

pub(super) fn bad_batch() -> Said {
    Said::Raised {
        error: "ValueError: bad batch".into(),
        frame: Some("train.py:88".into()),
        source: Some("loss = step(batch)".into()),
    }
}

fn prefixed(prefix: &str, text: &str) -> String {
    text.lines().map(|line| format!("{prefix}{line}\n")).collect()
}

#[test]
fn tracebacks_are_told_with_the_line_of_the_job() {
    assert_eq!(said(&prefixed("[rank3]: ", TRACEBACK)), [(3, bad_batch())]);
    // Two ranks' lines among each other.
    let both = prefixed("[rank3]: ", TRACEBACK);
    let mixed: String = both
        .lines()
        .map(|line| format!("{line}\n{}\n", line.replace("[rank3]", "[rank1]")))
        .collect();
    assert_eq!(said(&mixed), [(1, bad_batch()), (3, bad_batch())]);
    // The name of the file gives the rank.
    let alone = read(TRACEBACK.as_bytes());
    assert_eq!((alone.statements.len(), alone.unnamed.as_slice()), (0, &[(bad_batch(), 7)][..]));
    assert_eq!(alone.last.text, "ValueError: bad batch");
    assert_eq!(alone.last.place, Some(Place::new("job.log", 7)));
    // An exception that a process went on from did not end it.
    let handled = TRACEBACK.to_owned() + &"step\n".repeat(60);
    assert!(read(handled.as_bytes()).is_empty());
    // An exception raised while another one is handled hides nothing, if other ranks caused it.
    let then = TRACEBACK.to_owned()
        + "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent \
           call last):\n  File \"train.py\", line 99, in <module>\n    dist.barrier()\n\
           torch.distributed.DistBackendError: NCCL error\n";
    assert_eq!(read(then.as_bytes()).unnamed, [(bad_batch(), 7)]);
    let loader = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    for b in \
                  loader:\nIndexError: Caught IndexError in DataLoader worker process 0.\nOriginal Traceback \
                  (most recent call last):\n  File \"/usr/lib/python3.11/site-packages/torch/a.py\", line 3, \
                  in f\n    x\n  File \"dataset.py\", line 12, in __getitem__\n    return self.rows[i]\n\
                  IndexError: list index out of range\n";
    let inner = Said::Raised {
        error: "IndexError: list index out of range".into(),
        frame: Some("dataset.py:12".into()),
        source: Some("return self.rows[i]".into()),
    };
    assert_eq!(said(&prefixed("[rank2]: ", loader)), [(2, inner)]);
    let stopped = TRACEBACK.replace("ValueError: bad batch", "KeyboardInterrupt");
    assert!(read(stopped.as_bytes()).is_empty());
}

/// The lines of a loop.
fn steps(from: u32, to: u32) -> String {
    (from..to).map(|step| format!("step {step} loss 2.{step:03}\n")).collect()
}

fn of_rank_1(text: &str) -> usize {
    Heard::of([("rank_1.log", &read(text.as_bytes()), Some(GlobalRank(1)))]).statements.len()
}

/// PyTorch need not be installed to be no part of the job.
#[test]
fn the_line_of_a_job_is_told_on_a_checkout_of_pytorch_too() {
    let raised = |own: &str| {
        let text = format!(
            "Traceback (most recent call last):\n  File \"{own}\", line 96, in train\n    \
             dist.all_reduce(x)\n  File \"/opt/pytorch/torch/distributed/c10d_logger.py\", line 81, in \
             wrapper\n    return func(*args, **kwargs)\n  File \
             \"/opt/pytorch/torch/distributed/distributed_c10d.py\", line 2942, in all_reduce\n    \
             work.wait()\nRuntimeError: \
             [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for \
             recv operation to complete\n"
        );
        match said(&prefixed("[rank1]: ", &text)).pop() {
            Some((1, Said::GaveUp { frame, source, call, .. })) => {
                assert_eq!(call.as_deref(), Some("all_reduce"));
                (frame, source)
            }
            other => panic!("{other:?}"),
        }
    };
    let source = Some("dist.all_reduce(x)".to_owned());
    for (own, line) in [
        ("/srv/train/train.py", "train.py:96"),
        ("/home/torch/train.py", "train.py:96"),
        ("/srv/torch/utils/data.py", "data.py:96"),
        ("<string>", "<string>:96"),
    ] {
        assert_eq!(raised(own), (Some(line.to_owned()), source.clone()), "{own}");
    }
}

#[test]
fn a_process_that_goes_on_handled_what_it_raised() {
    let logged = steps(0, 3) + "ERROR:root:retrying batch 3\n" + TRACEBACK;
    let went_on = logged.clone() + "retry ok\n" + &steps(3, 8) + "done\n";
    assert_eq!((of_rank_1(&logged), of_rank_1(&went_on)), (1, 0));
    for prefix in ["[default1]:", "[rank1]: ", "[1,1]<stdout>:"] {
        assert_eq!(said(&prefixed(prefix, &went_on)), [], "{prefix}");
        assert_eq!(said(&prefixed(prefix, &logged)), [(1, bad_batch())], "{prefix}");
    }
    // The same again, and that ends it.
    assert_eq!(of_rank_1(&(went_on.clone() + TRACEBACK)), 1);
    // It waits for another one then.
    let waits = went_on + "[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:629] [Rank 1] x\n";
    assert_eq!(of_rank_1(&waits), 0);
    let ignored =
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n";
    assert_eq!(of_rank_1(&(steps(0, 3) + ignored + TRACEBACK)), 0);
    assert_eq!(of_rank_1(&(TRACEBACK.to_owned() + ignored + TRACEBACK)), 1);
}

#[test]
fn what_stands_behind_an_end_is_no_going_on() {
    let before = steps(0, 9)
        + "[rank1]:[W1122 10:00:00.1 ProcessGroupNCCL.cpp:1] Warning: a\n"
        + "saved checkpoint 1\nhost:12:13 [1] NCCL INFO comm 0x1 rank 1\n";
    let atexit = "saved checkpoint 2\ncleaning up\nall workers were told\nexiting\nbye\n";
    let pytorch = "[W1122 10:00:09.1 ProcessGroupNCCL.cpp:1] Warning: destroy_process_group() was not \
                   called\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: \
                   resource_tracker: There appear to be 1 leaked\n"
        .repeat(4)
        + &"host:12:14 [1] NCCL INFO comm 0x2 rank 1\n".repeat(8)
        + "terminate called after throwing an instance of 'c10::Error'\nwandb: step 8\n";
    let long = "the batch is bad\nstep by step\n".repeat(8);
    for behind in [atexit, &pytorch, &long, "", &steps(9, 11)] {
        assert_eq!(of_rank_1(&(before.clone() + TRACEBACK + behind)), 1, "{behind}");
    }
    // The output of PyTorch's hook is the end, whatever other ranks write.
    let merged = before.clone() + &prefixed("[rank3]: ", TRACEBACK) + &steps(9, 30);
    assert_eq!(said(&merged), [(3, bad_batch())]);
    // A long text of an exception, and the same again, which ends it.
    let twice = before + &(TRACEBACK.to_owned() + &long).repeat(2);
    assert_eq!(of_rank_1(&twice), 1);
}

#[test]
fn several_processes_go_on_where_none_is_missing() {
    let all = |from: u32, to: u32, times: usize| -> String {
        (from..to).map(|step| steps(step, step + 1).repeat(times)).collect()
    };
    let before = all(0, 2, 3) + "step 2 loss 2.002\n" + TRACEBACK;
    let unnamed = |text: &str| read(text.as_bytes()).unnamed.len();
    assert_eq!(unnamed(&(before.clone() + &all(3, 7, 3))), 0);
    // Two of three, and one of which nobody knows how many there are.
    assert_eq!(unnamed(&(before + &all(3, 7, 2))), 1);
    assert_eq!(unnamed(&(all(0, 2, 1) + TRACEBACK + &all(2, 9, 1))), 1);
}

/// As `torchrun --log-dir` leaves them: printed lines are in one file, logged lines in another one.
#[test]
fn ranks_that_are_all_done_handled_what_they_logged() {
    let logged = "ERROR:root:retrying batch 2\n".to_owned() + TRACEBACK;
    let said = |complaint: &str, first: &str, second: &str| {
        let logs = [complaint, second, first].map(|text| read(text.as_bytes()));
        let ranks = [1, 1, 0].map(|rank| Some(GlobalRank(rank)));
        Heard::of(logs.iter().zip(ranks).map(|(log, rank)| ("a", log, rank))).statements.len()
    };
    let done = steps(0, 5) + "done\n";
    assert_eq!(said(&logged, &done, &done), 0);
    assert_eq!(said(TRACEBACK, &done, &done), 1, "nothing logged it");
    assert_eq!(said(&logged, &done, &steps(0, 5)), 1, "it is not done");
    assert_eq!(said(&logged, &steps(0, 5), &steps(0, 5)), 1, "nobody is done");
    let each = "step 1 done\nstep 2 done\nstep 3 done\n";
    assert_eq!(said(&logged, each, each), 1, "each step is");
}

#[test]
fn launchers_say_whose_line_it_is() {
    let torchrun = prefixed("[default3]:", TRACEBACK);
    assert_eq!(said(&torchrun), [(3, bad_batch())]);
    let second = prefixed("[default1]:", "[rank9]: x") + &torchrun;
    assert_eq!(said(&second), [(11, bad_batch())], "the second machine's");
    let srun = prefixed(" 3: ", TRACEBACK) + &prefixed(" 0: ", "epoch 1\nepoch 2");
    assert_eq!(said(&srun), [(3, bad_batch())]);
    let node = prefixed("1: ", "[rank8]: x\n[rank9]: y") + &prefixed("1: ", TRACEBACK);
    assert_eq!(said(&node), [], "a task for each machine");
    assert_eq!(read(node.as_bytes()).unnamed.len(), 1);
    let ray = prefixed("(Policy[rank=31] pid=32, ip=10.1.1.2) [rank31]: ", TRACEBACK);
    assert_eq!(said(&ray), [(31, bad_batch())]);
    let mpirun = prefixed("[1,2]<stderr>:", TRACEBACK);
    assert_eq!(said(&mpirun), [(2, bad_batch())]);
    let wrote = read(&[srun.as_bytes(), b"1: \n"].concat()).wrote;
    assert_eq!(wrote.into_keys().map(|rank| rank.0).collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn torchrun_sums_up() {
    let summary = |exitcode: &str, traceback: &str| {
        format!(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n\
             ============================================================\ntrain.py FAILED\n\
             ------------------------------------------------------------\nFailures:\n[1]:\n  time      : \
             2026-01-01_00:00:00\n  host      : a\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: \
             10)\n  error_file: <N/A>\n\
             ------------------------------------------------------------\nRoot Cause (first observed \
             failure):\n[0]:\n  time      : 2026-01-01_00:00:00\n  host      : a\n  rank      : 3 \
             (local_rank: 3)\n  exitcode  : {exitcode} (pid: 13)\n  error_file: <N/A>\n  traceback : \
             {traceback}\n============================================================\n"
        )
    };
    let see = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
    assert_eq!(
        said(&summary("1", see)),
        [(3, Said::Exited { status: 1, alone: false, by: By::Torchrun })]
    );
    assert_eq!(said(&summary("-9", see)), [(3, Said::Killed { signal: 9, by: By::Torchrun })]);
    // It ended that one itself.
    assert_eq!(said(&summary("-15", see)), [(3, Said::Terminated)]);
    let recorded = TRACEBACK.trim_end().replace('\n', "\n  ");
    let log = read(summary("1", &recorded).as_bytes());
    let heard = Heard::of([("a", &log, None)]).statements;
    assert_eq!(heard.into_iter().map(|it| it.said).collect::<Vec<_>>(), [bad_batch()]);
    // Another rank caused its exception.
    let victim = prefixed("[rank3]: ", &TRACEBACK.replace("ValueError: bad", "RuntimeError: NCCL"));
    let heard = Heard::of([("a", &read((victim + &summary("1", see)).as_bytes()), None)]);
    let said: Vec<&Said> = heard.statements.iter().map(|it| &it.said).collect();
    assert!(matches!(said[..], [Said::GaveUp { .. }]), "{said:?}");
}

#[test]
fn world_sizes_and_writers_are_heard() {
    let log = read(b"[rank0]: epoch 1\n[rank2]: epoch 1\rloss 2\r\nworld_size=4\n\n");
    assert_eq!(log.world_size, Some(4));
    assert_eq!(log.wrote.len(), 2);
    assert_eq!(log.last.text, "world_size=4");
    assert_eq!(log.last.place, Some(Place::new("job.log", 3)));
    assert!(log.is_empty());
}

/// torch 2.15's NCCL backend names the rank in its group, and only of the default group that is the job's rank.
#[test]
fn a_backend_that_aborts_its_process_says_why() {
    let line = |rank: u32, name: &str, why: &str| {
        format!(
            "[E1128 09:00:00.1 ProcessGroupNCCL.cpp:700] [TC][rank={rank}][name={name}] Aborting process on rank \
             {rank} due to {why}\n"
        )
    };
    let timeout = "timeout - timeout watchdog detected operation timeout";
    assert_eq!(said(&line(3, "0", timeout)), [(3, Said::Signalled)]);
    assert_eq!(said(&line(1, "tp", timeout)), []);
    let spoken = format!("[rank5]:{}", line(1, "tp", timeout));
    assert_eq!(said(&spoken), [(5, Said::Signalled)]);
    let error = "nccl hit async error: remote process exited or there was a network error";
    let gone = Said::GaveUp { error: error.to_owned(), frame: None, source: None, call: None };
    assert_eq!(said(&line(2, "default_pg", &format!("error - {error}"))), [(2, gone)]);
}
