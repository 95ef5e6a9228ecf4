use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "rank_never_joined",
    title: "Rank never joined",
    what: "A rank never made the call in which the others wait. It is busy or stuck in something that no recorder sees: a data loader, a file system, a long checkpoint, a lock.",
    in_dumps: "The rank's calls have all ended, and the next one of the others is not among them.",
    in_logs: "A timeout on all ranks but this one. `monitored_barrier` names it.",
    in_stacks: "That rank's stack names the line: py-spy or faulthandler on it first.",
    example: Some("sim stuck-data-loader"),
    fix: "Look at the rank's stack, and mend what holds it up. Where it only takes long, raise the timeout of that group.",
    prevent: "Set a timeout for data loader workers; put `monitored_barrier` before phases that may take long.",
};
