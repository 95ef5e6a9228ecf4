use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "run_failed",
    title: "Run that did not complete",
    what: "The run was ended, by a timeout of the launcher or from outside, and the calls of its ranks do not say why.",
    in_dumps: "Calls that ended well, and nothing behind them.",
    in_logs: "The launcher's own message.",
    in_stacks: "The processes are gone.",
    example: None,
    fix: "Look at the launcher's log for who ended the run and when.",
    prevent: "Give runs a longer limit than the groups' timeouts, so that the ranks can tell.",
};
