use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "ddp_gradients_not_reduced",
    title: "Optimizer step on gradients that were not reduced",
    what: "The last backward pass before `optimizer.step()` ran under `no_sync()`, or through `model.module` past DDP. Its gradients are the rank's own, so every rank steps in another direction and the replicas drift apart. Nothing hangs and nothing raises.",
    in_dumps: "Steps in which the gradients' all_reduce is missing on all ranks alike. That cannot be told from a step that accumulates.",
    in_logs: "Nothing. Ranks that print their losses show them drifting apart; the saved model is that of one rank.",
    in_stacks: "Nobody stands in it.",
    example: None,
    fix: "Leave `no_sync()` for the micro-batch before `optimizer.step()`: enter it only while `(step + 1) % accumulate != 0`. Call the wrapped model, not `model.module`, for passes that are trained on.",
    prevent: "Compare a checksum of the parameters of all ranks now and then, for example with one all_reduce of its minimum and maximum.",
};
