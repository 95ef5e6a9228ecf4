use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "p2p_deadlock",
    title: "Deadlock in send and recv",
    what: "Ranks wait for each other in sends and receives, in a circle: each sends (or receives) first, and nobody takes the other end. Small messages may pass, since a backend can buffer them; large ones hang.",
    in_dumps: "Pending sends and receives whose partners stand in other ones. gloo records neither.",
    in_logs: "A timeout of SEND or RECV on every rank of the circle.",
    in_stacks: "All stand in `send`, `recv` or `wait`, from the same line.",
    example: Some("sim facing-sends"),
    fix: "Let one side receive first (even ranks send, odd ranks receive), or post both with `isend`/`irecv` or `batch_isend_irecv` and wait afterwards.",
    prevent: "In pipelines use `batch_isend_irecv` or `torch.distributed.pipelining`'s schedules.",
};
