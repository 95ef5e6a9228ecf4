use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "p2p_tag_ignored",
    title: "Tag ignored by NCCL",
    what: "A receive was given another tag than the send that it gets. NCCL has no tags: it matches the sends and receives of two ranks by their order alone, so nothing hangs and the tensor holds another message than the program means.",
    in_dumps: "Nothing: a dump holds no tags. It is seen in programs that are simulated.",
    in_logs: "Nothing. Losses or activations are wrong.",
    in_stacks: "Nobody stands in it.",
    example: None,
    fix: "Make the sends and receives of two ranks in the same order on both sides.",
    prevent: "Do not rely on `tag=` in code that may run on NCCL; gloo and MPI match by it.",
};
