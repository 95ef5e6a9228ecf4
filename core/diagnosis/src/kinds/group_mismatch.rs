use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "group_mismatch",
    title: "Groups made differently",
    what: "Not every rank called `new_group`, or not for the same ranks in the same order. PyTorch names groups by how many a rank has made: the ranks then mean different groups by one name.",
    in_dumps: "Groups of one name with different members, or of the same members with different names.",
    in_logs: "A wait in the store that never ends, or timeouts in groups whose numbers differ by rank.",
    in_stacks: "Some ranks stand in `new_group`.",
    example: None,
    fix: "Call `new_group` on every rank of the job, members or not, in the same order.",
    prevent: "Make all groups once at the start, or use `init_device_mesh`.",
};
