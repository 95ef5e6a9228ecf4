//! Ranks that do not come: stuck, dead, late. The collectives are right.

use super::texts::{at, program, repaired};
use crate::scenario::{Log, Scenario};

pub(super) const STUCK_DATA_LOADER: Scenario = Scenario {
    id: "stuck-data-loader",
    title: "One rank never arrives",
    story: "The last rank is stuck in its data loader and never reaches its second all_reduce. All \
            the others are its victims: their stacks show an all_reduce, and nothing is wrong with \
            it. A dead loader worker, a lock, a file system that does not answer all look alike.",
    log: Log {
        lines: "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms",
        from: "torch.distributed.monitored_barrier, where somebody put one into the loop (recorded \
               with torch 2.15). Other calls say only that they timed out.",
    },
    repair: "The loader has a timeout and opens the file again; the collectives were right.",
    min_world_size: 2,
    program: program!("stuck_data_loader"),
    repaired_program: repaired!("stuck_data_loader"),
    chapters: &[
        at("line:16", "The first step: everybody has a batch, and reduces its gradients."),
        at("line:8", "The last rank asks its loader for the second batch. It does not come."),
        at(
            "call:0:2",
            "The others have theirs, and call all_reduce number 2. It cannot begin without the \
             last rank.",
        ),
        at(
            "end",
            "Every rank but one stands in the same all_reduce, which looks like the culprit. The \
             one that does not is the cause: it has no call under way, and its own stack \
             (py-spy dump) shows the loader.",
        ),
    ],
};

pub(super) const OUT_OF_MEMORY: Scenario = Scenario {
    id: "out-of-memory",
    title: "One rank dies",
    story: "One long document does not fit into rank 1's memory, and its process ends. Nobody tells \
            the others: NCCL's peers wait for data from a process that is gone. Unless the \
            launcher notices, they wait until the timeout, and their logs are full of it.",
    log: Log {
        lines: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "rank 1 (the first line, one among thousands), and ten minutes later the NCCL \
               watchdog of all others.",
    },
    repair: "Long documents are cut, so that the batch fits.",
    min_world_size: 2,
    program: program!("out_of_memory"),
    repaired_program: repaired!("out_of_memory"),
    chapters: &[
        at("line:16", "Three steps go well."),
        at(
            "call:0:4",
            "The others call all_reduce number 4. Rank 1 is busy for longer: its batch has twice as \
             many tokens.",
        ),
        at("line:7:1", "It does not fit. The exception is not caught, and the process ends."),
        at("end", "The others wait for it. The first error in time is the one that counts."),
    ],
};

pub(super) const CHECKPOINT_OUTLASTS_TIMEOUT: Scenario = Scenario {
    id: "checkpoint-outlasts-timeout",
    title: "A checkpoint that takes longer than the timeout",
    story: "All ranks wait in a barrier while rank 0 writes 100 GB. Everything is in order, and it \
            always worked; until the model grew, or the file system was busy, and writing took \
            longer than the ten minutes after which NCCL's watchdog ends a call.",
    log: Log {
        lines: "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.\n[Rank 1] To avoid data inconsistency, we are taking the entire process down.",
        from: "the NCCL watchdog in the words of torch 2.5 and later; a job that died so at its \
               first checkpoint: goodfire-ai/spd#536.",
    },
    repair: "Every rank writes its own part in the background (torch.distributed.checkpoint's \
             async_save); or the barrier's group gets a longer timeout.",
    min_world_size: 2,
    program: program!("checkpoint_outlasts_timeout"),
    repaired_program: repaired!("checkpoint_outlasts_timeout"),
    chapters: &[
        at("line:14", "Three steps of training."),
        at("line:6:0", "Rank 0 begins to write the checkpoint."),
        at("call:0:4", "The others wait for it in the barrier, as they should."),
        at(
            "end",
            "The timeout does not know that rank 0 is busy. It would have come: nothing was wrong \
             but the time.",
        ),
    ],
};

pub(super) const THROTTLED_GPU: Scenario = Scenario {
    id: "throttled-gpu",
    title: "One GPU is slow",
    story: "Rank 2's GPU is hot and has lowered its clock. Nothing hangs and nothing is wrong, but \
            every step takes as long as on the slowest rank. The others' profiles show all_reduce \
            as the bottleneck: it is where they wait.",
    log: Log {
        lines: "(nothing: the job is three times as slow)",
        from: "nvidia-smi -q -d PERFORMANCE on rank 2's node shows the reason: HW Thermal Slowdown.",
    },
    repair: "The node is drained, and another takes its place.",
    min_world_size: 3,
    program: program!("throttled_gpu"),
    repaired_program: repaired!("throttled_gpu"),
    chapters: &[
        at("line:9", "The first step: every rank's device computes for 20 ms, rank 2's for 60."),
        at(
            "call:0:6",
            "Step after step the others wait 40 ms for rank 2. Every call completes: there is no \
             hang to find.",
        ),
        at(
            "end",
            "Who comes last again and again is the slow one. The long all_reduces are on the \
             fast ranks; on the slow one they are short.",
        ),
    ],
};
