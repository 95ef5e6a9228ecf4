use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "reduce_op_mismatch",
    title: "Different reductions",
    what: "The ranks made the same reduction with different operations, as SUM and AVG. Nothing hangs: the result is wrong on some ranks.",
    in_dumps: "Flight Recorder does not hold the operation: traces and DETAIL logs do.",
    in_logs: "Under DETAIL `Detected mismatch between collectives`, with both operations.",
    in_stacks: "All ranks stand in the same line, or nobody waits.",
    example: Some("sim sum-or-mean"),
    fix: "Pass the same `op=` on every rank.",
    prevent: "Wrap reductions in one helper that fixes the operation.",
};
