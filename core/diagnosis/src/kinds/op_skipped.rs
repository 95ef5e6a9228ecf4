use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "op_skipped",
    title: "Skipped call",
    what: "A rank left out a call that the other members of the group made. Its next call takes the number of the one left out, and meets that of the others.",
    in_dumps: "The rank's number of calls in the group falls behind, or its call at one number is the others' next one.",
    in_logs: "A timeout on the other ranks, while this one times out in a later line, or waits elsewhere.",
    in_stacks: "The rank stands in a later line of the program than the others.",
    example: Some("sim skipped-all-reduce"),
    fix: "Make the call on every rank of the group, or on none: look for a `continue`, an early return, an exception that is swallowed, or a condition that is not the same on all ranks.",
    prevent: "Decide on all ranks together: all_reduce the flag (a NaN, an early stop) before branching on it.",
};
