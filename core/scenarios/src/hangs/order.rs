//! Calls in an order that no schedule can satisfy: across groups, and between two ranks.

use super::texts::{at, program, repaired};
use crate::scenario::{Log, Scenario};

pub(super) const OPPOSITE_GROUP_ORDER: Scenario = Scenario {
    id: "opposite-group-order",
    title: "Two groups used in opposite order",
    story: "All ranks but one reduce in group tp and then in pp; one rank that is in both does it \
            the other way round. Each of the two groups waits for a rank that waits in the other \
            one. Within either group every rank makes the same calls in the same order.",
    log: Log {
        lines: "[rank1]:[E… ProcessGroupNCCL.cpp:…] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog of each group, in the words of torch 2.5 and later. Two groups \
               time out, and neither log mentions the other.",
    },
    repair: "Every rank uses the groups in the same order.",
    min_world_size: 4,
    program: program!("opposite_group_order"),
    repaired_program: repaired!("opposite_group_order"),
    chapters: &[
        at("line:7", "Both groups are made, and everybody meets in a barrier."),
        at(
            "line:13",
            "Behind it rank 0 begins with tp, as every rank does that is in tp, but one. They wait \
             there for that one.",
        ),
        at(
            "line:9",
            "It is the last rank but one: in both groups, and begins with pp. It waits there for \
             the other members of pp.",
        ),
        at(
            "end",
            "Those in tp wait for a rank that waits in pp, for ranks that wait in tp: a circle. In \
             either group by itself nothing is wrong, only its last member has not come yet.",
        ),
    ],
};

pub(super) const FACING_SENDS: Scenario = Scenario {
    id: "facing-sends",
    title: "Two ranks send to each other first",
    story: "Both ranks of a pair send before they receive. A send of any size may wait for its \
            receive, so both wait for ever. With small tensors and a backend that buffers it can \
            go well for months.",
    log: Log {
        lines: "RuntimeError: […/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 20000ms for send operation to complete",
        from: "gloo, on every rank of a pair (recorded with torch 2.15).",
    },
    repair: "Even ranks send first and odd ranks receive first.",
    min_world_size: 2,
    program: program!("facing_sends"),
    repaired_program: repaired!("facing_sends"),
    chapters: &[
        at("start", "Ranks 0 and 1 are a pair, 2 and 3 the next. Each has a tensor for the other."),
        at(
            "line:5",
            "A rank calls send. It returns when the other one has received, or has at least room \
             for it: nothing promises that.",
        ),
        at("line:5:1", "Its peer does the same. Neither has called recv, which is the next line."),
        at("end", "Each waits for a line that the other reaches only when its own wait is over."),
    ],
};

pub(super) const TP_DP_OPPOSITE_ORDER: Scenario = Scenario {
    id: "tp-dp-opposite-order",
    title: "Tensor-parallel and data-parallel groups in opposite order",
    story: "On a mesh every rank is in a tensor-parallel and in a data-parallel group. On two ranks \
            the gradients were ready before the activations, and they reduce over dp first. Each \
            group by itself is in order; together the four form a circle.",
    log: Log {
        lines: "[PG ID 2 PG GUID 3(mesh_tp) Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=128, NumelOut=128, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.\n[PG ID 1 PG GUID 1(mesh_dp) Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later: two groups, and no hint that \
               they have to do with each other.",
    },
    repair: "Every rank reduces over tp first, whatever is ready.",
    min_world_size: 4,
    program: program!("tp_dp_opposite_order"),
    repaired_program: repaired!("tp_dp_opposite_order"),
    chapters: &[
        at(
            "start",
            "Four ranks and more, in two dimensions: neighbours share tp, every second rank dp.",
        ),
        at("line:8:0", "Rank 0 reduces its activations over tp, with rank 1."),
        at("line:11:1", "Rank 1 begins with its gradients over dp, with rank 3."),
        at(
            "end",
            "Rank 0 waits for 1, which waits for 3, which waits for 2, which waits for 0. On NCCL \
             all calls are made, and wait on the device: the order on each stream is what counts.",
        ),
    ],
};

pub(super) const NEW_GROUP_ON_MEMBERS_ONLY: Scenario = Scenario {
    id: "new-group-on-members-only",
    title: "new_group called by its members only",
    story: "Two ranks make a group for themselves; the others do not call new_group, since they \
            are not in it. But every process numbers the groups that it makes, and the number is \
            the name under which ranks find each other. From then on the numbers are out of step, \
            and the next group, of all ranks, is two groups.",
    log: Log {
        lines: "[2] is setting up NCCL communicators and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: …",
        from: "ProcessGroupNCCL.cpp, where ranks look for each other under different names. The \
               documentation of new_group: \"requires that all processes in the main group enter \
               this function, even if they are not going to be members of the group\".",
    },
    repair: "Every rank calls new_group for every group, in the same order.",
    min_world_size: 5,
    program: program!("new_group_on_members_only"),
    repaired_program: repaired!("new_group_on_members_only"),
    chapters: &[
        at("line:10", "Ranks 0 and 1 have made their group and use it. That works."),
        at(
            "line:12",
            "Now all ranks have made a group of all. On ranks 0 and 1 it is their second, on the \
             others their first: two names for what was meant as one.",
        ),
        at(
            "end",
            "Each side waits under its own name for the other one. A group's name is a count: \
             every process must count the same groups.",
        ),
    ],
};

pub(super) const RING_OF_ISENDS: Scenario = Scenario {
    id: "ring-of-isends",
    title: "A ring of isend and irecv that never starts",
    story: "Every rank sends to the next and receives from the one before, with isend and irecv, \
            which return at once. On gloo it works. On NCCL the first call between two ranks makes \
            a communicator for the pair, and holds the process until the other one has come; and \
            every rank begins with another pair.",
    log: Log {
        lines: "(nothing until the timeout; py-spy shows every rank inside of isend)",
        from: "pytorch/pytorch#108378, where NCCL's isend turns out not to be asynchronous; newer \
               versions warn of an \"unbatched P2P op\".",
    },
    repair: "batch_isend_irecv makes both calls at once, with the communicator of the group.",
    min_world_size: 3,
    program: program!("ring_of_isends"),
    repaired_program: repaired!("ring_of_isends"),
    chapters: &[
        at("start", "Every rank holds a block, and wants the one of the rank before it."),
        at(
            "line:5:0",
            "Rank 0 calls isend to rank 1. For the pair (0, 1) there is no communicator yet, and \
             both have to come to make it.",
        ),
        at("line:5:1", "Rank 1 calls isend as well: to rank 2. It comes to the pair (1, 2) first."),
        at(
            "end",
            "Every rank stands in its first isend, and nothing was sent. Even ranks sending first \
             and odd ones receiving first would do; a batch is simpler.",
        ),
    ],
};

pub(super) const WRONG_TAG: Scenario = Scenario {
    id: "wrong-tag",
    title: "A send and a receive with different tags",
    story: "Rank 0 sends weights to every worker, with a tag that says so. Rank 2 receives with \
            the tag of statistics. Both sides have called what belongs together, and never meet. \
            (NCCL has no tags: there the tensors would be mixed up instead.)",
    log: Log {
        lines: "RuntimeError: […/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 20000ms for send operation to complete\nRuntimeError: […/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete",
        from: "gloo, on rank 0 and on rank 2 (recorded with torch 2.15).",
    },
    repair: "Both sides use the same tag.",
    min_world_size: 3,
    program: program!("wrong_tag"),
    repaired_program: repaired!("wrong_tag"),
    chapters: &[
        at("line:12:0", "Rank 0 sends to one worker after the other, with tag 1."),
        at("line:15:2", "Rank 2 waits for something from rank 0, with tag 2."),
        at(
            "end",
            "The send to rank 2 never ends, so nobody behind rank 2 gets weights, and those before \
             it wait in the barrier. Two ranks are wrong about one thing; all others are victims.",
        ),
    ],
};

pub(super) const MICROBATCH_LESS: Scenario = Scenario {
    id: "microbatch-less",
    title: "A pipeline stage that does one microbatch less",
    story: "A batch goes through the stages of a pipeline in microbatches. Stage 1 rounds their \
            number down, the others up. It is done while the stage before it still sends and the \
            one behind it still expects.",
    log: Log {
        lines: "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=RECV, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        from: "the NCCL watchdog in the words of torch 2.5 and later, on the stages around it.",
    },
    repair: "All stages round in the same way: the number is worked out once.",
    min_world_size: 3,
    program: program!("microbatch_less"),
    repaired_program: repaired!("microbatch_less"),
    chapters: &[
        at("line:11:0", "The first microbatch leaves stage 0."),
        at(
            "line:19:1",
            "Stage 1's process is through with its three microbatches and goes to the barrier: to \
             NCCL a call is only handed over, and the device will carry them out. Stage 0 has a \
             fourth.",
        ),
        at("line:8:2", "Stage 2 asks for its first of four. For the last one nobody will send."),
        at(
            "end",
            "Two waits lead to stage 1 and none away from it: its program has no further call that \
             could meet them.",
        ),
    ],
};
