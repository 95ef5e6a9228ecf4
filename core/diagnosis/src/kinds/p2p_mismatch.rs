use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "p2p_mismatch",
    title: "Unmatched send or recv",
    what: "A send has no receive, or they disagree in size, type or tag.",
    in_dumps: "A pending send or receive whose partner made no call for it. gloo records neither; NCCL ignores tags.",
    in_logs: "A timeout of SEND or RECV on one side.",
    in_stacks: "One side stands in `send` or `recv`, the other elsewhere.",
    example: Some("sim wrong-tag"),
    fix: "Make as many receives as sends between two ranks, in one order, with equal sizes and tags.",
    prevent: "In pipelines, let a schedule work out both sides from one list of micro-batches.",
};
