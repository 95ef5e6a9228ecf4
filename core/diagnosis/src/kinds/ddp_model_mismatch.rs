use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "ddp_model_mismatch",
    title: "Different models",
    what: "The ranks gave DistributedDataParallel models with other parameters: their number, shapes or order differ. DDP's constructor compares them before anything else.",
    in_dumps: "The constructor's first calls differ in size, or some ranks make none.",
    in_logs: "`DDP expects same model across all ranks, but Rank 0 has … params, while rank 1 has inconsistent … params`.",
    in_stacks: "The ranks stand in DDP's constructor.",
    example: Some("sim ddp-different-order"),
    fix: "Build the model from one configuration on all ranks.",
    prevent: "Broadcast the configuration from rank 0; do not build layers from sets, or from what a rank finds on its disk.",
};
