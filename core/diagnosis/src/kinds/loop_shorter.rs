use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "loop_shorter",
    title: "Loop ended early",
    what: "A rank left a loop before the others: it had fewer batches, or stopped early. It goes on with what stands behind the loop, or ends.",
    in_dumps: "The rank's calls are those of the others up to the end of a round, and then others or none.",
    in_logs: "A timeout on the other ranks near the end of an epoch.",
    in_stacks: "The rank stands behind the loop: in a barrier, a checkpoint, or the end of the program.",
    example: Some("sim one-batch-less"),
    fix: "Give every rank the same number of rounds: `DistributedSampler`, `drop_last=True`, or a number agreed on before the loop.",
    prevent: "All_reduce the flag that ends a loop; with DDP use `with model.join():` for uneven inputs.",
};
