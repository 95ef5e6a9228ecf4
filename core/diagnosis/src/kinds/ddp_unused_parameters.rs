use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "ddp_unused_parameters",
    title: "Unused parameters",
    what: "On some rank a parameter of a DDP model got no gradient. Its bucket never becomes ready there, and is never reduced: the others wait for it, or the next forward pass raises an error.",
    in_dumps: "The rank makes fewer gradient all_reduces in a pass than the others.",
    in_logs: "`Expected to have finished reduction in the prior iteration before starting a new one`, with the parameters under `TORCH_DISTRIBUTED_DEBUG=INFO`.",
    in_stacks: "The waiting ranks stand in `backward()`.",
    example: Some("sim unused-on-one-rank"),
    fix: "Pass `find_unused_parameters=True`, or let every parameter take part in the loss on every rank (add `0 * output.sum()` of the branch not taken).",
    prevent: "Keep branches that depend on data out of `forward`, or make them the same on all ranks.",
};
