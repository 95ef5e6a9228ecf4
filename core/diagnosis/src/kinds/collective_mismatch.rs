use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "collective_mismatch",
    title: "Different collectives",
    what: "Under one sequence number of a group, some ranks called one collective and others another one. NCCL matches calls by order, not by name: the job hangs, or mixes up data in silence.",
    in_dumps: "One row of the group with two operations.",
    in_logs: "With `TORCH_DISTRIBUTED_DEBUG=DETAIL`: `Detected mismatch between collectives on ranks`. Without it a timeout on all ranks, each with its own operation.",
    in_stacks: "The ranks stand in collectives from different lines.",
    example: Some("sim mismatched-collectives"),
    fix: "Find the branch that sends ranks to different calls, and make every rank of the group call the same collective there.",
    prevent: "Run once with `TORCH_DISTRIBUTED_DEBUG=DETAIL` after changing control flow. Base branches around collectives on values that are the same on all ranks.",
};
