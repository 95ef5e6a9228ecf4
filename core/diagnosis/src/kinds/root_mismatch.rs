use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "root_mismatch",
    title: "Different roots",
    what: "The ranks made the same rooted collective with different roots: two ranks send, or nobody does.",
    in_dumps: "Flight Recorder does not hold the root: traces do.",
    in_logs: "A timeout of BROADCAST on some ranks.",
    in_stacks: "All ranks stand in the same line.",
    example: Some("sim best-rank-broadcast"),
    fix: "Pass the same `src=` or `dst=` on every rank.",
    prevent: "Choose a root from a value that was all_reduced, never from one that each rank works out by itself.",
};
