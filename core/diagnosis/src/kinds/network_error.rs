use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "network_error",
    title: "Network error",
    what: "NCCL's network layer reports that a transfer between two machines failed: a link, a switch or an adapter, a wrong configuration (GID, MTU, PFC), or the process at the other end is gone.",
    in_dumps: "Ranks of both machines stand in one call without a difference, or a rank left no dump.",
    in_logs: "`NCCL WARN NET/IB : Got completion from peer ADDRESS with status=12 … vendor err 129`, or `Call to recv from ADDRESS failed : Connection reset by peer`; then \"remote process exited or there was a network error\".",
    in_stacks: "All ranks stand in the same `wait` or `synchronize`.",
    example: None,
    fix: "Look at the end of the log of the machine with that address first: a process that ended closes its connections too. If all were there, test the link between the two machines (`ibstat`, `ibdiagnet`, `ib_write_bw`, nccl-tests) and look at its error counters.",
    prevent: "Test the links before long jobs and watch their error counters. `NCCL_IB_TIMEOUT` and `NCCL_IB_RETRY_CNT` bridge short failures.",
};
