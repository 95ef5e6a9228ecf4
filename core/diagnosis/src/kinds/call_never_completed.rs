use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "call_never_completed",
    title: "Call never completed",
    what: "Every rank made the call, alike, and it still did not complete: the network, a device, or a kernel before it on the stream holds it up. Or the job was still running.",
    in_dumps: "A full row without a difference, started or not, that ends nowhere.",
    in_logs: "A timeout on all ranks with one number; NCCL WARN lines about IB or sockets.",
    in_stacks: "All ranks stand in the same `wait` or `synchronize`.",
    example: None,
    fix: "Look for NCCL WARN lines, link errors and Xid messages. Run with `NCCL_DEBUG=INFO`, and test the network with nccl-tests.",
    prevent: "Test each node before long jobs; watch retransmissions and ECC errors.",
};
