use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "ddp_uneven_inputs",
    title: "Uneven inputs",
    what: "The ranks of a DDP model had different numbers of batches. Whoever has one more waits in the all_reduce of its gradients for ranks that make no backward pass any more.",
    in_dumps: "One rank's gradient all_reduces end a pass before the others'.",
    in_logs: "A timeout of ALLREDUCE on the ranks with more data, at the end of an epoch.",
    in_stacks: "The waiting ranks stand in `backward()`, the others behind the loop.",
    example: Some("sim ddp-uneven-inputs"),
    fix: "Use `DistributedSampler` (it pads), `drop_last=True`, or `with model.join():` around the loop.",
    prevent: "Check `len(loader)` on all ranks once at the start.",
};
