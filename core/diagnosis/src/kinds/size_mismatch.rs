use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "size_mismatch",
    title: "Different sizes",
    what: "The ranks made the same collective with different numbers of elements. NCCL does not check: the call hangs, or writes wrong data in silence; gloo may raise an error.",
    in_dumps: "One row of the group with different sizes.",
    in_logs: "Under DETAIL `Detected mismatch between collectives`, with both shapes; gloo: `op.preamble.length <= op.nbytes`.",
    in_stacks: "All ranks stand in the same line.",
    example: Some("sim uneven-last-batch"),
    fix: "Give the call a tensor of the same number of elements on every rank: look for a last batch that is smaller, a filter that keeps different counts, or a shape that depends on the rank.",
    prevent: "Use `drop_last=True`; pad before an all_gather, or use `all_gather_object` for what differs.",
};
