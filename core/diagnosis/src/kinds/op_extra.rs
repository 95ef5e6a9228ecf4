use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "op_extra",
    title: "Extra call",
    what: "A rank made a call that the other members of the group do not make, as with `if rank == 0:` around logging, a validation or a checkpoint that holds a collective.",
    in_dumps: "The rank's number of calls in the group runs ahead, or its call stands at a number at which the others make another one.",
    in_logs: "A timeout of one rank in an operation that the others never name.",
    in_stacks: "The rank alone stands in that line.",
    example: Some("sim logging-on-rank-0"),
    fix: "Make the call on every rank of the group, or on none.",
    prevent: "Keep collectives out of `if rank == 0:`; know which helpers hold one (`state_dict` of sharded models, metrics, `barrier`).",
};
