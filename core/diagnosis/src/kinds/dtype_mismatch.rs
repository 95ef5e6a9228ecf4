use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "dtype_mismatch",
    title: "Different element types",
    what: "The ranks made the same collective with different element types: the bytes of one are read as the other's.",
    in_dumps: "One row of the group with different types.",
    in_logs: "Under DETAIL `Detected mismatch between collectives`, with both types.",
    in_stacks: "All ranks stand in the same line.",
    example: Some("sim half-on-one-rank"),
    fix: "Cast to one dtype on every rank before the call: look for autocast, a default dtype or a checkpoint that differs between ranks.",
    prevent: "Set dtypes in one place, from the configuration that all ranks share.",
};
