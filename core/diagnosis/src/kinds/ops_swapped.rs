use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "ops_swapped",
    title: "Calls in a different order",
    what: "A rank made the same calls as the others, in another order. Calls are matched by order: each meets the wrong partner.",
    in_dumps: "Rows with two operations or sizes each, whose counts agree again after them.",
    in_logs: "As of different collectives, or errors about sizes.",
    in_stacks: "The ranks stand in collectives from different lines.",
    example: None,
    fix: "Make the calls of a group in the same order on every rank.",
    prevent: "Never let the order depend on the rank, a set, or a dict that ranks build differently; sort keys first.",
};
