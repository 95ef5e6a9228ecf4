use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "rank_unresponsive",
    title: "Rank does not answer",
    what: "The process of a rank is there and does nothing: it was stopped (SIGSTOP, a debugger), is out of reach, or hangs in the kernel or a driver.",
    in_dumps: "Its recording ends without an error while the others wait for its next call.",
    in_logs: "Nothing from that rank after some moment, not even heartbeats of its watchdog.",
    in_stacks: "`ps` shows the process as `T` (stopped) or `D` (in the kernel); py-spy shows one frame that never changes.",
    example: None,
    fix: "Let the process go on (`kill -CONT`), or end it. In the kernel, look for a file system or a device that does not answer.",
    prevent: "Keep debuggers and job schedulers that suspend processes off training jobs.",
};
