//! The calls that DistributedDataParallel makes by itself, and that are easily forgotten.

use super::texts::{at, program, repaired};
use crate::scenario::{Log, Scenario};

pub(super) const UNEVEN_INPUTS: Scenario = Scenario {
    id: "ddp-uneven-inputs",
    title: "DDP with uneven inputs",
    story: "DDP reduces gradients inside of backward(), so a rank that has no batch left makes no \
            calls. Rank 1 has three batches, the others five: they wait for it in the fourth \
            backward pass while it stands in the barrier behind the loop.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=131584, NumelOut=131584, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later; the stack shows \
               loss.backward(). With join(throw_on_early_termination=True) there is a sentence \
               instead: \"Rank 1 exhausted all inputs.\" (recorded with torch 2.15).",
    },
    repair: "`with model.join():` around the loop: a rank without inputs shadows the others' calls.",
    min_world_size: 3,
    program: program!("ddp_uneven_inputs"),
    repaired_program: repaired!("ddp_uneven_inputs"),
    chapters: &[
        at("line:7", "DDP's constructor compares the models, and sends rank 0's to all."),
        at("line:12", "Every backward pass reduces the gradients, without a line that says so."),
        at(
            "line:15:1",
            "Rank 1 has had its three batches and goes on to the barrier behind the loop.",
        ),
        at(
            "differ",
            "The others' next backward pass calls all_reduce under the same number. A barrier \
             meets an all_reduce.",
        ),
        at("end", "Two of rank 1's rounds are missing. join() would have made its calls for it."),
    ],
};

pub(super) const VALIDATION_ON_RANK_0: Scenario = Scenario {
    id: "validation-on-rank-0",
    title: "Validation on rank 0, through DDP",
    story: "Only rank 0 validates, which is fine: a forward pass without gradients communicates \
            nothing. But DDP's forward() first sends rank 0's buffers, such as BatchNorm's running \
            mean, to all ranks, also for validation. Rank 0 makes broadcasts that nobody joins.",
    log: Log {
        lines: "  File \"…/torch/nn/parallel/distributed.py\", line …, in _sync_buffers\n  File \"…/torch/nn/parallel/distributed.py\", line …, in _distributed_broadcast_coalesced",
        from: "the stack of rank 0 (pytorch/pytorch#154116); the other ranks' show a backward pass.",
    },
    repair: "Validation calls model.module: the model itself, without DDP around it.",
    min_world_size: 3,
    program: program!("validation_on_rank_0"),
    repaired_program: repaired!("validation_on_rank_0"),
    chapters: &[
        at("line:14", "A training step: all ranks go through DDP's forward and backward."),
        at(
            "line:7:0",
            "Rank 0 validates. Its forward pass begins with a broadcast of the model's buffers.",
        ),
        at(
            "differ",
            "The others' next calls are of the next training step. Its forward pass also sends \
             buffers, so for a while the calls even match, of different steps.",
        ),
        at(
            "end",
            "Rank 0 stands in a broadcast, the others in an all_reduce. Neither line mentions \
             communication.",
        ),
    ],
};

pub(super) const UNUSED_ON_ONE_RANK: Scenario = Scenario {
    id: "unused-on-one-rank",
    title: "A parameter without a gradient, on one rank",
    story: "A bucket of gradients is reduced when all of them are there. Rank 1's third batch does \
            not use the last layer, so one bucket never fills, and its all_reduce is never \
            called. The others wait in it; rank 1 goes on to its next forward pass, which \
            notices, and raises.",
    log: Log {
        lines: "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, …\nParameter indices which did not receive grad for rank 1: 4 5",
        from: "rank 1, from reducer.cpp (recorded with torch 2.15). The other ranks only time out.",
    },
    repair: "find_unused_parameters=True: DDP marks what the pass did not use as ready.",
    min_world_size: 3,
    program: program!("unused_on_one_rank"),
    repaired_program: repaired!("unused_on_one_rank"),
    chapters: &[
        at("line:12", "A backward pass: buckets are reduced one after the other, as they fill."),
        at(
            "rank:1",
            "Every pass reduces the same buckets in the same order on every rank, as long as every \
             parameter gets a gradient.",
        ),
        at(
            "end",
            "In its third pass rank 1 left out the bucket of the last layer. It waited for its own \
             device only, came to its fourth forward pass, and raised there: a batch later than \
             the mistake, and only on one rank.",
        ),
    ],
};

pub(super) const CAUGHT_EXCEPTION: Scenario = Scenario {
    id: "caught-exception",
    title: "An exception that one rank catches",
    story: "A batch does not fit into rank 1's memory. The exception is caught, the batch skipped, \
            the job saved; but with the batch rank 1 has skipped its backward pass, and with that \
            DDP's all_reduce. It is one call behind for the rest of the job.",
    log: Log {
        lines: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. … (caught, as a warning)\n[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, …, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "rank 1's own handler, and much later the NCCL watchdog. The same mistake: \
               NVIDIA-NeMo/Automodel#2468.",
    },
    repair: "Rank 1 runs the same passes on a smaller batch.",
    min_world_size: 3,
    program: program!("caught_exception"),
    repaired_program: repaired!("caught_exception"),
    chapters: &[
        at("line:10", "A forward and a backward pass on every rank, which reduces."),
        at(
            "call:0:9",
            "The fourth step: the others reduce, call number 9. Rank 1 has caught its exception \
             and returned before the backward pass.",
        ),
        at(
            "line:18:1",
            "Rank 1's fifth step has joined the others' fourth. It is through and calls barrier.",
        ),
        at(
            "end",
            "The others wait in their fifth step. What rank 1's log warned of happened a step \
             before, and no longer looks related.",
        ),
    ],
};

pub(super) const DIFFERENT_ORDER: Scenario = Scenario {
    id: "ddp-different-order",
    title: "The same layers in another order",
    story: "The layers are made in a loop over a set of names. Python orders a set of strings \
            differently in every process, so rank 1's parameters come in another order. DDP \
            compares each rank's sizes with rank 0's; where only sizes differ it raises on that \
            rank alone, and the others wait for it. Where the sizes happen to agree it trains \
            nonsense.",
    log: Log {
        lines: "RuntimeError: [1]: params[2] in this process with sizes [9, 8] appears not to match sizes of the same param in process 0.",
        from: "rank 1, from DDP's constructor (recorded with torch 2.15).",
    },
    repair: "The loop goes over the sorted names.",
    min_world_size: 3,
    program: program!("ddp_different_order"),
    repaired_program: repaired!("ddp_different_order"),
    chapters: &[
        at("line:12", "The constructor first compares the numbers of parameters: they agree."),
        at(
            "call:0:2",
            "Then rank 0 sends the sizes of its parameters, and every rank compares them with its \
             own.",
        ),
        at(
            "call:0:3",
            "Rank 1's differ, and it raises. The others go on: rank 0 sends its parameters.",
        ),
        at("end", "The others wait in the constructor for a process that is gone."),
    ],
};

pub(super) const NO_SYNC_OUT_OF_STEP: Scenario = Scenario {
    id: "no-sync-out-of-step",
    title: "no_sync() around different steps",
    story: "Gradients are accumulated over two steps: every second step stands inside of no_sync() \
            and does not reduce. Rank 2 came back from a checkpoint with another step count, so \
            it reduces when the others do not. Three of their reductions meet two of its own.",
    log: Log {
        lines: "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=131584, NumelOut=131584, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later.",
    },
    repair: "Rank 0 reads the step count and sends it to all.",
    min_world_size: 3,
    program: program!("no_sync_out_of_step"),
    repaired_program: repaired!("no_sync_out_of_step"),
    chapters: &[
        at("line:14", "The others' first step reduces. Rank 2's does not: it counts from 1."),
        at(
            "line:14:2",
            "Rank 2's second step reduces, and meets the others' first: gradients of other steps \
             are added up, and nobody notices.",
        ),
        at(
            "differ",
            "After five steps the others have reduced three times and rank 2 twice. It goes to \
             the barrier, they to an all_reduce.",
        ),
        at("end", "With an even number of steps it would have ended without a trace."),
    ],
};
