use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "work_dropped",
    title: "Work that nobody waits for",
    what: "The handle of an asynchronous call was let go of before it was waited for, or the call failed and nobody asked. Its result may be used too early, and its error is lost.",
    in_dumps: "A call that failed or is pending although the rank went on behind it and ended.",
    in_logs: "Nothing, or an error at the end of the process.",
    in_stacks: "Nobody stands in it.",
    example: None,
    fix: "Keep the work of `async_op=True` and call `wait()` on it before the tensor is used.",
    prevent: "Collect works in a list, and wait for all at the end of the step.",
};
