//! The text of a program from its lines and loops.

use super::fold::Node;
use super::groups::{Families, Family};
use super::merge::Line;
use super::ranks::condition;
use super::statement::{BETWEEN, Does, quoted};
use crate::between::SHORTEST_PS;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Action, Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// A program's function for groups of which every rank is in one at most.
const MEMBER_OF: &str = "\
def member_of(lists, **options):
    mine = None
    for ranks in lists:                  # PyTorch asks every rank to make all groups
        group = dist.new_group(ranks, **options)
        if dist.get_rank() in ranks:
            mine = group
    return mine

";

/// A rank whose time is further from the median gets its own, in parts of the median.
const FAR: f64 = 0.25;

/// So many ranks get their own time in one line, those furthest from the median first.
const MOST_TIMES: usize = 4;

/// An interpreter takes no longer pause (11 days).
const LONGEST_NS: u64 = 1_000_000_000_000_000;

/// The width at which a line's comment stands.
const COMMENT: usize = 72;

/// The program.
pub(super) fn program(
    plan: &Plan,
    families: &Families,
    tensors: &[(&str, TensorId)],
    lines: &[Line],
    nodes: &[Node],
) -> String {
    let mut text =
        format!("# {}, as a program: change it and run it again.\n", plan.name.replace('\n', " "));
    for assumption in assumed(plan) {
        text.push_str(&format!("# Assumed: {assumption}.\n"));
    }
    text.push_str("import torch\nimport torch.distributed as dist\n\n");
    if families.iter().next().is_some() {
        text.push_str(MEMBER_OF);
    }
    text.push_str("def main():\n");
    let world = plan.group(GroupId::WORLD);
    let backend = world.map_or("gloo", |group| group.backend().name());
    text.push_str(&format!(
        "    dist.init_process_group({}{})\n    rank = dist.get_rank()\n",
        quoted(backend),
        world.map(timeout).unwrap_or_default()
    ));
    for family in families.iter() {
        text.push_str(&format!("    {} = member_of({})\n", family.name, lists(plan, family)));
    }
    for (name, id) in tensors {
        let Some(tensor) = plan.tensor(*id) else { continue };
        text.push_str(&format!(
            "    {name} = torch.empty({}, dtype=torch.{})\n",
            tensor.numel,
            tensor.dtype.name()
        ));
    }
    let all: BTreeSet<GlobalRank> = (0..plan.world_size).map(GlobalRank).collect();
    let mut body = Body { plan, lines, text, depth: 1 };
    body.nodes(nodes, &all);
    let nodes = match plan.ranks_per_node {
        0 => String::new(),
        each => format!(", ranks_per_node={each}"),
    };
    body.text.push_str(&format!("\nrun(main, world_size={}{nodes})\n", plan.world_size));
    body.text
}

/// The assumptions that a plan was recovered with, as far as they are about its calls.
fn assumed(plan: &Plan) -> BTreeSet<String> {
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    let remarks = ops.filter_map(|op| match &op.action {
        Action::Sleep { name, .. } => Remark::parse(name),
        _ => None,
    });
    let assumed = remarks.filter_map(|remark| match remark {
        Remark::Assumed { what } => Some(what.replace('\n', " ")),
        _ => None,
    });
    assumed.collect()
}

/// `[[0, 1], [2, 3]], group_desc="tp"`.
fn lists(plan: &Plan, family: &Family) -> String {
    let groups: Vec<&ProcessGroup> =
        family.groups.iter().filter_map(|id| plan.group(*id)).collect();
    let ranks = |group: &&ProcessGroup| {
        let ranks: Vec<String> = group.ranks().iter().map(ToString::to_string).collect();
        format!("[{}]", ranks.join(", "))
    };
    let ranks: Vec<String> = groups.iter().map(ranks).collect();
    let mut text = format!("[{}]", ranks.join(", "));
    let Some(first) = groups.first() else { return text };
    if !first.desc().is_empty() {
        text.push_str(&format!(", group_desc={}", quoted(first.desc())));
    }
    text + &timeout(first)
}

/// `, timeout=minutes(5)`, where it is not the backend's own.
fn timeout(group: &ProcessGroup) -> String {
    match group.timeout_ms() {
        ms if ms == group.backend().default_timeout_ms() => String::new(),
        ms if ms.is_multiple_of(60_000) => format!(", timeout=minutes({})", ms / 60_000),
        ms if ms.is_multiple_of(1000) => format!(", timeout=seconds({})", ms / 1000),
        ms => format!(", timeout=milliseconds({ms})"),
    }
}

/// A function's body on its way.
struct Body<'a> {
    plan: &'a Plan,
    lines: &'a [Line],
    text: String,
    depth: usize,
}

impl Body<'_> {
    /// Nodes that some ranks come to.
    fn nodes(&mut self, nodes: &[Node], ranks: &BTreeSet<GlobalRank>) {
        let mut rest = nodes;
        // The ranks of the branch before, if an `else` may follow it.
        let mut branch: Option<BTreeSet<GlobalRank>> = None;
        while let Some(first) = rest.first() {
            let own = self.ranks_of(first);
            let own = own.filter(|own| own != ranks);
            let alike = rest.iter().take_while(|node| match &own {
                Some(own) => self.ranks_of(node).as_ref() == Some(own),
                None => self.ranks_of(node).is_none_or(|of| of == *ranks),
            });
            let (now, then) = rest.split_at_checked(alike.count().max(1)).unwrap_or((rest, &[]));
            rest = then;
            let Some(own) = own else {
                now.iter().for_each(|node| self.node(node, ranks));
                branch = None;
                continue;
            };
            let other = branch.take().is_some_and(|before| {
                before.is_disjoint(&own) && before.len() + own.len() == ranks.len()
            });
            match other {
                true => self.line("else:"),
                false => {
                    self.line(&format!("if {}:", condition(&own, ranks)));
                    branch = Some(own.clone());
                }
            }
            self.depth += 1;
            now.iter().for_each(|node| self.node(node, &own));
            self.depth -= 1;
        }
    }

    fn node(&mut self, node: &Node, ranks: &BTreeSet<GlobalRank>) {
        match node {
            Node::Line(of) => self.statement(of),
            Node::Loop { rounds, body } => {
                self.line(&format!("for _ in range({rounds}):"));
                self.depth += 1;
                self.nodes(body, ranks);
                self.depth -= 1;
            }
        }
    }

    /// The ranks that all lines of a node are of; `None` of a loop whose lines are of different ones.
    fn ranks_of(&self, node: &Node) -> Option<BTreeSet<GlobalRank>> {
        match node {
            Node::Line(of) => of.first().and_then(|at| self.lines.get(*at)).map(Line::set),
            Node::Loop { body, .. } => {
                let (first, others) = body.split_first()?;
                let ranks = self.ranks_of(first)?;
                let same = others.iter().all(|node| self.ranks_of(node).as_ref() == Some(&ranks));
                same.then_some(ranks)
            }
        }
    }

    /// A statement that stands for lines, one of each round.
    fn statement(&mut self, of: &[usize]) {
        let Some(line) = of.first().and_then(|at| self.lines.get(*at)) else { return };
        let times = self.times(of);
        match &line.does {
            Does::Compute(name) => self.timed("compute", name, &times),
            Does::Sleep(name) => self.timed("sleep", name, &times),
            Does::Line(text) => {
                if times.values().any(|ns| *ns * 1000 >= SHORTEST_PS) {
                    self.timed("compute", BETWEEN, &times);
                }
                let at = line.at.map(|at| self.plan.describe_line(at));
                let mut parts = text.lines();
                let first = parts.next().unwrap_or_default();
                let indent = "    ".repeat(self.depth);
                match at {
                    Some(at) => {
                        let width = COMMENT.saturating_sub(indent.len());
                        self.line(&format!("{first:width$}  # {at}"));
                    }
                    None => self.line(first),
                }
                parts.for_each(|part| self.line(part));
            }
        }
    }

    /// Per rank, the mean time over all rounds: together they take as long as was recorded. A rank that is not off the
    /// others in most rounds takes the time of all: one late round of a recording would be a slow rank in the program.
    fn times(&self, of: &[usize]) -> BTreeMap<GlobalRank, u64> {
        let mut all: BTreeMap<GlobalRank, Vec<u64>> = BTreeMap::new();
        let mut slower: BTreeMap<GlobalRank, [usize; 2]> = BTreeMap::new();
        for line in of.iter().filter_map(|at| self.lines.get(*at)) {
            let usual = median(&mut line.ranks.values().copied().collect::<Vec<u64>>());
            for (rank, ns) in &line.ranks {
                all.entry(*rank).or_default().push(*ns);
                let [above, below] = slower.entry(*rank).or_default();
                *above += usize::from(is_far(*ns, usual) && *ns > usual);
                *below += usize::from(is_far(*ns, usual) && *ns < usual);
            }
        }
        let mean = |times: &[u64]| {
            let sum: u128 = times.iter().map(|ns| u128::from(*ns)).sum();
            sum.checked_div(times.len() as u128).unwrap_or(0) as u64
        };
        let rounds: BTreeMap<GlobalRank, usize> =
            all.iter().map(|(rank, times)| (*rank, times.len())).collect();
        let mut times: BTreeMap<GlobalRank, u64> =
            all.into_iter().map(|(rank, times)| (rank, mean(&times))).collect();
        let usual = median(&mut times.values().copied().collect::<Vec<u64>>());
        for (rank, ns) in &mut times {
            let [above, below] = slower.get(rank).copied().unwrap_or_default();
            let often = if *ns > usual { above } else { below };
            if often * 4 < rounds.get(rank).copied().unwrap_or(0) * 3 {
                *ns = usual;
            }
        }
        times
    }

    /// `compute("forward", us=800)`, with another time for ranks that are far from the median.
    fn timed(&mut self, function: &str, name: &str, times: &BTreeMap<GlobalRank, u64>) {
        let usual = median(&mut times.values().copied().collect::<Vec<u64>>()).min(LONGEST_NS);
        let off = |ns: u64| ns.abs_diff(usual);
        let mut others: Vec<(GlobalRank, u64)> =
            times.iter().map(|(rank, ns)| (*rank, (*ns).min(LONGEST_NS))).collect();
        others.retain(|(_, ns)| is_far(*ns, usual));
        others.sort_by_key(|(rank, ns)| (std::cmp::Reverse(off(*ns)), *rank));
        others.truncate(MOST_TIMES);
        others.sort_unstable();
        let (unit, unit_ns) = if usual >= 1_000_000 { ("ms", 1_000_000) } else { ("us", 1000) };
        let usual = rounded(usual, unit_ns);
        let time = match others.is_empty() {
            true => usual,
            false => {
                let own =
                    others.iter().map(|(rank, ns)| format!("{rank}: {}", rounded(*ns, unit_ns)));
                format!("{{{}}}.get(rank, {usual})", own.collect::<Vec<_>>().join(", "))
            }
        };
        self.line(&format!("{function}({}, {unit}={time})", quoted(name)));
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(&"    ".repeat(self.depth));
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }
}

/// True of a time that is not the usual one, both in nanoseconds.
fn is_far(ns: u64, usual: u64) -> bool {
    let off = ns.abs_diff(usual);
    off.saturating_mul(1000) >= SHORTEST_PS && off as f64 > usual as f64 * FAR
}

/// The lower one of the two in the middle, so that it is one of them.
fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Three digits of a time, in units of so many nanoseconds.
fn rounded(ns: u64, unit_ns: u64) -> String {
    let digits = ns.checked_ilog10().unwrap_or(0);
    let grain = 10_u64.pow(digits.saturating_sub(2));
    let ns = (ns.saturating_add(grain / 2) / grain) * grain;
    match ns % unit_ns {
        0 => (ns / unit_ns).to_string(),
        rest => {
            let width = unit_ns.ilog10() as usize;
            format!("{}.{rest:0width$}", ns / unit_ns).trim_end_matches('0').to_owned()
        }
    }
}
