use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "split_mismatch",
    title: "Different splits",
    what: "In an all_to_all with uneven parts, what one rank sends to another is not what that one expects from it.",
    in_dumps: "One row of the group whose input and output sizes do not add up.",
    in_logs: "`Split sizes doesn't match total dim 0 size`, or a timeout of ALLTOALL.",
    in_stacks: "All ranks stand in the same line.",
    example: None,
    fix: "Exchange the sizes first (an all_to_all of counts), and make the output splits from what was received.",
    prevent: "Keep both calls in one helper, so that nobody passes counts of another step.",
};
