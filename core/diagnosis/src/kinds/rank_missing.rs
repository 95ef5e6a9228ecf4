use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "rank_missing",
    title: "Rank missing",
    what: "Nothing was recorded of a rank, and the others wait for it. It died before it could dump, stands stopped, or only its dump was not copied.",
    in_dumps: "One file fewer than ranks.",
    in_logs: "Its own log may tell why it ended.",
    in_stacks: "Where the process still runs, its stack tells what it does.",
    example: None,
    fix: "Look at the end of the missing rank's log and at its machine. If its dump exists, add it.",
    prevent: "Write dumps to a shared disk, or let each node copy its own (`TORCH_FR_DUMP_TEMP_FILE`).",
};
