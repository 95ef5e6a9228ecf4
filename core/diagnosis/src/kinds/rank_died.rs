use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "rank_died",
    title: "Rank died",
    what: "A process of the job ended: an exception, a signal such as SIGKILL of the kernel's out-of-memory killer, or a crash. The others wait in the next collective for it until their timeout, or until the connection to it breaks.",
    in_dumps: "Its dump is missing, or ends before the others' last call. The others wait in a call that it never made.",
    in_logs: "A traceback, `exitcode: -9` in torchrun's report, `Connection closed by peer` on the others. The first error counts; those behind it follow from it.",
    in_stacks: "The process is gone: py-spy finds nothing to look at.",
    example: Some("sim out-of-memory"),
    fix: "Mend what ended that rank; the errors of the other ranks go with it. Read the end of its own log, and the kernel's log (`dmesg`) for a signal 9.",
    prevent: "Run under torchrun, so that one death ends the job at once, and decorate main with `torch.distributed.elastic.multiprocessing.errors.record`, so that the first traceback is kept.",
};
