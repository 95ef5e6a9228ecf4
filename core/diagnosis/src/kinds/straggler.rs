use super::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    name: "straggler",
    title: "Slow rank",
    what: "Nothing hangs: one rank comes last to the collectives again and again, and all others wait for it. The job runs at its speed.",
    in_dumps: "The rank makes most calls later than the others, by about as much each time.",
    in_logs: "Nothing, or timeouts far apart.",
    in_stacks: "The others stand in a collective whenever one looks, this one elsewhere.",
    example: Some("sim throttled-gpu"),
    fix: "Compare this rank's time between the calls with the others': its data loader, its machine's load, its device's clocks and temperature.",
    prevent: "Watch the time between collectives per rank; balance data by cost, not by count.",
};
