//! Calls that not every rank makes: branches and loops around a collective.

use super::texts::{at, program, repaired};
use crate::scenario::{Log, Scenario};

pub(super) const SKIPPED_ALL_REDUCE: Scenario = Scenario {
    id: "skipped-all-reduce",
    title: "One rank skips an all_reduce",
    story: "Rank 2 sees a NaN loss in its third step and skips the step, with its all_reduce. From \
            then on its calls are one behind: its next all_reduce joins the others' previous one, \
            and at the end it waits in a barrier while the others wait in an all_reduce. Any \
            decision that a rank makes from its own data can do this.",
    log: Log {
        lines: "RuntimeError: […/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete",
        from: "gloo, on the ranks that wait (recorded with torch 2.15). It names neither the call \
               nor the rank that is missing.",
    },
    repair: "Every rank reduces in every step; the bad gradient is zeroed instead.",
    min_world_size: 3,
    program: program!("skipped_all_reduce"),
    repaired_program: repaired!("skipped_all_reduce"),
    chapters: &[
        at(
            "line:10",
            "Every rank has computed its first step and calls all_reduce, its call number 1 of the \
             default group. A rank counts its own calls; nobody compares the numbers.",
        ),
        at(
            "call:0:3",
            "The third step. The others call all_reduce number 3. Rank 2's loss is NaN: it skips \
             the step and computes the next one, while they wait for it.",
        ),
        at(
            "line:10:2",
            "Rank 2 calls all_reduce too: for its fourth step, but it is its call number 3. It \
             completes, and its sum is of gradients of different steps. Nothing is noticed.",
        ),
        at(
            "differ",
            "Rank 2 is done with its loop and calls barrier, its call number 4. The others' call \
             number 4 is the all_reduce of the last step. Under one number two different calls: \
             neither can complete.",
        ),
        at(
            "end",
            "The timeout ends the job. The stacks of three ranks show the all_reduce, that of rank \
             2 the barrier, and none the line that is wrong: the skipped call was a step earlier.",
        ),
    ],
};

pub(super) const CHECKPOINT_ON_RANK_0: Scenario = Scenario {
    id: "checkpoint-on-rank-0",
    title: "A checkpoint that only rank 0 saves, with a barrier in it",
    story: "Only rank 0 writes checkpoints, so the call stands in an `if rank == 0`. But saving \
            ends in a barrier, or gathers sharded parameters: inside of that `if` rank 0 makes a \
            call that nobody else makes. Its barrier meets the others' next all_reduce. It works \
            until somebody puts a collective into save(), often inside of a library.",
    log: Log {
        lines: "[rank1]:[E205 14:27:18.083900057 ProcessGroupNCCL.cpp:621] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.\n[rank0]:[E205 14:27:18.083904965 ProcessGroupNCCL.cpp:621] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later (huggingface/accelerate#3380). \
               A barrier of NCCL's is an all_reduce of one element: that is rank 0. The same \
               mistake with Lightning: alan-turing-institute/autocast#386.",
    },
    repair: "Every rank calls save_checkpoint; inside of it only rank 0 writes, and all meet in \
             the barrier.",
    min_world_size: 3,
    program: program!("checkpoint_on_rank_0"),
    repaired_program: repaired!("checkpoint_on_rank_0"),
    chapters: &[
        at("line:14", "Three steps go well: every rank reduces, and waits for its device."),
        at(
            "line:5:0",
            "After the fourth step rank 0 alone enters save_checkpoint and writes a file. That \
             would be harmless. The others are in the next step already: to NCCL a call is only \
             handed over, and they have called all_reduce, their call number 5.",
        ),
        at(
            "differ",
            "Rank 0 has written and calls barrier: that is its call number 5. NCCL matches calls \
             by their order, not by their names, so the barrier meets the all_reduce.",
        ),
        at(
            "end",
            "All ranks time out in call number 5, the others in a line that is right. The line to \
             look for is the one that only rank 0 stands at.",
        ),
    ],
};

pub(super) const LOGGING_ON_RANK_0: Scenario = Scenario {
    id: "logging-on-rank-0",
    title: "A metric averaged over all ranks, on rank 0 only",
    story: "Rank 0 logs, so the logging code stands in an `if rank == 0`. One day a metric is to \
            be the mean over all ranks, and its all_reduce lands inside. It is the same \
            collective as the gradients', of another size. Metric libraries do this inside of \
            compute().",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later. NumelIn differs at one SeqNum.",
    },
    repair: "All ranks average the metric; only rank 0 prints it.",
    min_world_size: 3,
    program: program!("logging_on_rank_0"),
    repaired_program: repaired!("logging_on_rank_0"),
    chapters: &[
        at("line:14", "Every rank reduces its gradients: 4096 elements, step after step."),
        at(
            "line:5:0",
            "In the fourth step rank 0 logs, and averages the loss first. It calls all_reduce with \
             one element, and nobody else does.",
        ),
        at(
            "differ",
            "The others come to call number 5 with the gradients of the next step. The same \
             collective from two places: sizes 1 and 4096.",
        ),
        at(
            "end",
            "It looks like a wrong size. But the sizes are right where they are: rank 0 has made a \
             call too many, and is one ahead.",
        ),
    ],
};

pub(super) const EXPERT_WITHOUT_TOKENS: Scenario = Scenario {
    id: "expert-without-tokens",
    title: "A rank whose experts get no tokens skips the exchange",
    story: "In a mixture of experts a layer sends every token to the rank of its expert. Rank 1's \
            experts get none in one layer, and an early return skips the layer, with both of its \
            all_to_alls. Routing depends on the data, so this happens after hours.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLTOALL_BASE, NumelIn=256, NumelOut=256, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later. A decision of one rank's \
               own that skips a collective: NVIDIA-NeMo/Automodel#2468.",
    },
    repair: "A rank without tokens takes part in both exchanges all the same.",
    min_world_size: 3,
    program: program!("expert_without_tokens"),
    repaired_program: repaired!("expert_without_tokens"),
    chapters: &[
        at("line:8", "The first layer: every rank sends its tokens to the experts."),
        at("line:10", "And gets them back: two all_to_alls a layer."),
        at(
            "differ",
            "Rank 1 had no tokens in the third layer and went on to the fourth. There is nobody \
             to tell: its calls of the fourth layer have joined the others' of the third, and at \
             the end it stands in the barrier.",
        ),
        at(
            "end",
            "The values that were exchanged belonged to different layers. The hang is the lucky \
             part: it shows the mistake.",
        ),
    ],
};

pub(super) const ONE_BATCH_LESS: Scenario = Scenario {
    id: "one-batch-less",
    title: "The last rank's loop is one round shorter",
    story: "The samples do not divide evenly. The last rank has one fewer, so its last batch is \
            incomplete, and drop_last drops it. It leaves the loop while the others still reduce.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later, on every rank but the last, \
               whose log ends as if all were well.",
    },
    repair: "The sampler cuts every rank to the same number of samples.",
    min_world_size: 2,
    program: program!("one_batch_less"),
    repaired_program: repaired!("one_batch_less"),
    chapters: &[
        at("line:12", "Batch after batch, all ranks reduce."),
        at(
            "call:0:5",
            "The fifth batch: call number 5. The last rank has only 39 samples, four whole \
             batches: it is out of the loop.",
        ),
        at(
            "end",
            "The last rank has finished its program, and the others wait for it. Nothing in its \
             log is wrong; that it is done is what gives it away.",
        ),
    ],
};

pub(super) const EARLY_STOPPING: Scenario = Scenario {
    id: "early-stopping",
    title: "One rank stops early",
    story: "Every rank validates its own part of the data and stops when its score stops \
            improving. Rank 2's does first. A decision that ends a loop must be the same on all \
            ranks, and a score of a rank's own data is not.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later, on every rank but rank 2.",
    },
    repair: "The ranks agree by an all_reduce of the flag before any of them stops.",
    min_world_size: 3,
    program: program!("early_stopping"),
    repaired_program: repaired!("early_stopping"),
    chapters: &[
        at("line:15", "Epoch after epoch, all ranks train on three batches each."),
        at("line:5", "After an epoch each validates for itself, without a collective."),
        at(
            "call:0:10",
            "The fourth epoch begins, with call number 10. Rank 2 has left: its score did not \
             improve.",
        ),
        at("end", "Three whole rounds of the loop are missing on rank 2, not one call."),
    ],
};
