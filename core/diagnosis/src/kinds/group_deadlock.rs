use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "group_deadlock",
    title: "Deadlock across groups",
    what: "Ranks wait for each other in a circle through several groups: rank 1 waits in a call of one group for rank 2, which waits in a call of another group for rank 1. Each call alone is right; the order is not the same on all ranks.",
    in_dumps: "In one group some members have made a call that the others lack; in another group it is the other way round.",
    in_logs: "Timeouts of different groups at the same time, each with another operation.",
    in_stacks: "The ranks stand in collectives from different lines.",
    example: Some("sim opposite-group-order"),
    fix: "Call the groups in the same order on every rank that is in several of them. Create groups on every rank, in one order.",
    prevent: "Derive the order from a list that is the same everywhere, never from what happens to be ready first.",
};
