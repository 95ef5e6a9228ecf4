//! Calls that every rank makes, each with something else: another collective, size, type, root.

use super::texts::{at, program, repaired};
use crate::scenario::{Log, Scenario};

pub(super) const MISMATCHED_COLLECTIVES: Scenario = Scenario {
    id: "mismatched-collectives",
    title: "Ranks call different collectives at the same sequence number",
    story: "A branch on the rank lets rank 1 broadcast the loss where the others all_reduce it. \
            Each waits for messages that the other will never send. Such branches grow where \
            several people write the code of one step.",
    log: Log {
        lines: "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, …), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=BROADCAST, …).Collectives differ in the following aspects:   Op type: ALLREDUCEvs BROADCAST",
        from: "PyTorch with TORCH_DISTRIBUTED_DEBUG=DETAIL (recorded with torch 2.15). Without it \
               there is only the timeout.",
    },
    repair: "All ranks make the same call, outside the branch.",
    min_world_size: 3,
    program: program!("mismatched_collectives"),
    repaired_program: repaired!("mismatched_collectives"),
    chapters: &[
        at(
            "line:5",
            "All ranks reduce their gradients, the first call of the default group. Same call, \
             same number: it completes.",
        ),
        at(
            "call:0:2",
            "Now the loss, call number 2. Every rank calls something, so nobody is missing.",
        ),
        at(
            "differ",
            "Rank 1 has called broadcast in line 7, the others all_reduce in line 9. A broadcast's \
             messages go from rank 0 outwards, an all_reduce's around a ring: what one side sends \
             the other does not expect.",
        ),
        at(
            "end",
            "Nobody reaches the barrier. A recording of every rank shows the two calls side by \
             side, and the majority says which one is the odd one out.",
        ),
    ],
};

pub(super) const UNEVEN_LAST_BATCH: Scenario = Scenario {
    id: "uneven-last-batch",
    title: "One rank reduces a tensor of another size",
    story: "The data set does not divide evenly, so rank 1's last batch is shorter, and so are the \
            scores that it reduces. It goes well for a whole epoch and hangs, or reads past the \
            end of a buffer, in its last call.",
    log: Log {
        lines: "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4], …), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[5], …).Collectives differ in the following aspects:   Tensor Tensor shapes: 4vs 5",
        from: "PyTorch with TORCH_DISTRIBUTED_DEBUG=DETAIL (recorded with torch 2.15). Without it \
               NCCL waits until the timeout.",
    },
    repair: "The last batch is padded to the size of the others.",
    min_world_size: 3,
    program: program!("uneven_last_batch"),
    repaired_program: repaired!("uneven_last_batch"),
    chapters: &[
        at("line:8", "Batch after batch, every rank reduces 64 scores."),
        at(
            "call:0:3",
            "The last batch. Everybody calls all_reduce, with the same number and from the same \
             line: the stacks of all ranks are alike.",
        ),
        at(
            "differ",
            "But rank 1's batch has only 33 samples. An all_reduce cuts its tensor into a chunk \
             for each rank, so the ranks disagree on the size of every message.",
        ),
        at("end", "No rank is late and none called something else: only the sizes tell."),
    ],
};

pub(super) const ALL_GATHER_SIZES: Scenario = Scenario {
    id: "all-gather-sizes",
    title: "An all_gather of tensors of different sizes",
    story: "Every rank gathers the objects that all have found, and makes room for as many from \
            each as it has found itself. Rank 2 has found fewer. all_gather wants the same size \
            from every rank, and does not check it.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLGATHER, NumelIn=20, NumelOut=80, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later. gloo ends with a message of \
               another length than it expects instead.",
    },
    repair: "The sizes are gathered first, and every rank pads to the largest.",
    min_world_size: 3,
    program: program!("all_gather_sizes"),
    repaired_program: repaired!("all_gather_sizes"),
    chapters: &[
        at("line:12", "Every rank looks for objects in its own images."),
        at("line:6", "It gathers what all have found: 20 from everybody, as it thinks."),
        at("line:6:2", "Rank 2 has found 17, and offers 17 and expects 17."),
        at("end", "All stand in the same line, in the same call. Only the sizes differ."),
    ],
};

pub(super) const HALF_ON_ONE_RANK: Scenario = Scenario {
    id: "half-on-one-rank",
    title: "One rank reduces in half precision",
    story: "Rank 1's environment has another default, and its model is float16. The gradients \
            have the same number of elements as the others' and half of their bytes. PyTorch \
            compares neither; DDP's constructor does not look at types either.",
    log: Log {
        lines: "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, …), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Double, …).Collectives differ in the following aspects:   Tensor Tensor dtypes: Floatvs Double",
        from: "PyTorch with TORCH_DISTRIBUTED_DEBUG=DETAIL (recorded with torch 2.15, of float64). \
               Without it NCCL waits, or takes the bytes for what they are not.",
    },
    repair: "The type comes from the configuration that all ranks read.",
    min_world_size: 3,
    program: program!("half_on_one_rank"),
    repaired_program: repaired!("half_on_one_rank"),
    chapters: &[
        at("line:11", "Every rank computes its gradients, 1024 of them."),
        at("line:12", "And reduces them: the first call of the job."),
        at(
            "differ",
            "Rank 1's tensor has 1024 elements as well, of 2 bytes. The others send twice as many \
             bytes as it expects.",
        ),
        at("end", "The very first call hangs, which says: look at what ranks were started with."),
    ],
};

pub(super) const BEST_RANK_BROADCAST: Scenario = Scenario {
    id: "best-rank-broadcast",
    title: "Ranks disagree on who broadcasts",
    story: "The best model is to go to all ranks, from the rank that has it. Each works out who \
            that is from what it has heard of the scores, and rank 2 has heard less. It waits \
            for weights from rank 0 while the others expect them from rank 1.",
    log: Log {
        lines: "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=2048, NumelOut=2048, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later. Neither it nor the Flight \
               Recorder writes the root down.",
    },
    repair: "The scores are reduced first, so that all work with the same ones.",
    min_world_size: 3,
    program: program!("best_rank_broadcast"),
    repaired_program: repaired!("best_rank_broadcast"),
    chapters: &[
        at("line:12", "Every rank evaluates its own model."),
        at("line:13", "And calls broadcast: the same collective, of the same size."),
        at(
            "differ",
            "But with another root. The others listen to rank 1; rank 2 listens to rank 0, which \
             has nothing to send.",
        ),
        at("end", "The root is not in any recording: here the plan tells it."),
    ],
};

pub(super) const SUM_OR_MEAN: Scenario = Scenario {
    id: "sum-or-mean",
    title: "One rank sums where the others average",
    story: "Rank 2's node runs an older image, in which gradients were summed. PyTorch compares \
            the operation nowhere: a real job of this kind does not even hang, and trains on \
            wrong numbers. Lockstep's simulator and host backend hold it up, so that it shows.",
    log: Log {
        lines: "(nothing)",
        from: "gloo accepts it silently (recorded with torch 2.7.1), and so does NCCL; \
               TORCH_DISTRIBUTED_DEBUG=DETAIL does not compare the operation either.",
    },
    repair: "All ranks run the same image, with the same operation.",
    min_world_size: 3,
    program: program!("sum_or_mean"),
    repaired_program: repaired!("sum_or_mean"),
    chapters: &[
        at("line:10", "Every rank computes its gradients."),
        at("line:11", "And reduces them, from the same line, with the same size."),
        at(
            "differ",
            "Three ranks average, rank 2 sums. Each applies its own operation to what passes \
             through it: in a real job every rank would now hold other numbers.",
        ),
        at("end", "Compare the operations of a call before looking for bugs in the model."),
    ],
};
