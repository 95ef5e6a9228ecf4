//! The hang scenarios, drawn from what happens in real jobs. Their lines are found in the texts
//! under `programs/` by what stands on them, so text and plan cannot drift apart unnoticed.

use super::{Scenario, ScenarioOptions};
use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::plan::{Fill, Plan, PlanBuilder, PlanError, ProgramBuilder, TensorId};
use crate::rank::{GlobalRank, GroupRank};
use crate::reduce::ReduceOp;

pub(super) type Write = fn(&Scenario, &ScenarioOptions) -> Result<Plan, PlanError>;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };
const WORLD: GroupId = GroupId::WORLD;
/// Elements of the scenarios' tensors: small enough to show.
const NUMEL: u64 = 64;
/// Nanoseconds of forward and backward in the scenarios.
const STEP_NS: u64 = 2_000_000;
/// A sleep that no timeout outlasts: an hour, in nanoseconds.
const STUCK_NS: u64 = 3_600_000_000_000;

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        id: "skipped-all-reduce",
        title: "One rank skips an all_reduce",
        story: "Rank 2 sees a NaN loss in its third step and skips the step, with its all_reduce. \
                From then on its calls are one behind: its next all_reduce joins the others' \
                previous one, and at the end it waits in a barrier while the others wait in an \
                all_reduce.",
        repair: "Every rank reduces in every step; the bad gradient is zeroed instead.",
        min_world_size: 3,
        program: include_str!("programs/skipped_all_reduce.py"),
        repaired_program: include_str!("programs/skipped_all_reduce.fixed.py"),
        write: skipped_all_reduce,
    },
    Scenario {
        id: "mismatched-collectives",
        title: "Ranks call different collectives at the same sequence number",
        story: "A branch on the rank lets rank 1 broadcast the loss where the others all_reduce \
                it. Each waits for messages that the other will never send.",
        repair: "All ranks make the same call, outside the branch.",
        min_world_size: 2,
        program: include_str!("programs/mismatched_collectives.py"),
        repaired_program: include_str!("programs/mismatched_collectives.fixed.py"),
        write: mismatched_collectives,
    },
    Scenario {
        id: "opposite-group-order",
        title: "Two groups used in opposite order",
        story: "All ranks but one reduce in group tp and then in pp; one rank that is in both does \
                it the other way round. Each of the two groups waits for a rank that waits in the \
                other one.",
        repair: "Every rank uses the groups in the same order.",
        min_world_size: 4,
        program: include_str!("programs/opposite_group_order.py"),
        repaired_program: include_str!("programs/opposite_group_order.fixed.py"),
        write: opposite_group_order,
    },
    Scenario {
        id: "stuck-data-loader",
        title: "One rank never arrives",
        story: "The last rank is stuck in its data loader and never reaches its second all_reduce. \
                All the others are its victims: their stacks show an all_reduce, and nothing is \
                wrong with it.",
        repair: "Find out why that rank's loader hangs; the collectives are right.",
        min_world_size: 2,
        program: include_str!("programs/stuck_data_loader.py"),
        repaired_program: include_str!("programs/stuck_data_loader.py"),
        write: stuck_data_loader,
    },
    Scenario {
        id: "uneven-last-batch",
        title: "One rank reduces a tensor of another size",
        story: "The data set does not divide evenly, so rank 1's last batch is shorter, and so are \
                the scores that it reduces.",
        repair: "The last batch is padded to the size of the others.",
        min_world_size: 2,
        program: include_str!("programs/uneven_last_batch.py"),
        repaired_program: include_str!("programs/uneven_last_batch.fixed.py"),
        write: uneven_last_batch,
    },
    Scenario {
        id: "facing-sends",
        title: "Two ranks send to each other first",
        story: "Both ranks of a pair send before they receive. A send of any size may wait for its \
                receive, so both wait for ever. With small tensors and a backend that buffers it \
                can go well for months.",
        repair: "Even ranks send first and odd ranks receive first.",
        min_world_size: 2,
        program: include_str!("programs/facing_sends.py"),
        repaired_program: include_str!("programs/facing_sends.fixed.py"),
        write: facing_sends,
    },
];

/// A plan under construction, and the lines of its program's text.
struct Script {
    plan: PlanBuilder,
    source: u32,
    text: &'static str,
}

impl Script {
    fn new(scenario: &Scenario, options: &ScenarioOptions) -> Result<Script, PlanError> {
        let name = match options.repaired {
            true => format!("{} (repaired)", scenario.title),
            false => scenario.title.to_owned(),
        };
        let mut plan = PlanBuilder::new(name, options.world_size, BackendName::Host)?;
        plan.timeout_ms(options.timeout_ms);
        let text = scenario.text(options.repaired);
        let source = plan.source("train.py", text);
        Ok(Script { plan, source, text })
    }

    fn tensor(&mut self, name: &str, fill: Fill) -> TensorId {
        self.plan.tensor(name, Dtype::Float32, NUMEL, fill)
    }

    /// A function that points a program at the `nth` line (from 0) that holds some words.
    fn lines(&self) -> impl Fn(&mut ProgramBuilder, &str, usize) + use<> {
        let (text, source) = (self.text, self.source);
        move |program, words, nth| {
            let mut lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(words));
            if let Some((line, _)) = lines.nth(nth) {
                program.line(source, line);
            }
        }
    }
}

fn skipped_all_reduce(scenario: &Scenario, options: &ScenarioOptions) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let grad = script.tensor("grad", Fill::Rank);
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        for step in 0..4 {
            at(program, "forward_backward", 0);
            program.compute("forward_backward", STEP_NS);
            if !options.repaired && rank.0 == 2 && step == 2 {
                continue;
            }
            at(program, "all_reduce", 0);
            program.collective(WORLD, SUM, NUMEL, None, Some(grad));
        }
        at(program, "barrier", 0);
        program.barrier(WORLD);
    })
}

fn mismatched_collectives(
    scenario: &Scenario,
    options: &ScenarioOptions,
) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let grad = script.tensor("grad", Fill::Iota);
    let loss = script.tensor("loss", Fill::Rank);
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        at(program, "all_reduce(grad)", 0);
        program.collective(WORLD, SUM, NUMEL, None, Some(grad));
        if !options.repaired && rank.0 == 1 {
            at(program, "broadcast", 0);
            let broadcast = Collective::Broadcast { root: GroupRank(0) };
            program.collective(WORLD, broadcast, NUMEL, None, Some(loss));
        } else {
            at(program, "all_reduce(loss)", 0);
            program.collective(WORLD, SUM, NUMEL, None, Some(loss));
        }
        at(program, "barrier", 0);
        program.barrier(WORLD);
    })
}

fn opposite_group_order(scenario: &Scenario, options: &ScenarioOptions) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let activation = script.tensor("activation", Fill::Rank);
    let weight = script.tensor("weight", Fill::Iota);
    let world = options.world_size;
    let mut group = |name: &str, desc: &str, ranks: std::ops::Range<u32>| {
        let ranks = ranks.map(GlobalRank).collect();
        let group = ProcessGroup::new(name, BackendName::Host, ranks)?;
        let group = group.with_desc(desc).with_timeout_ms(options.timeout_ms);
        Ok::<_, PlanError>(script.plan.group(group))
    };
    let tp = group("1", "tp", 0..world - 1)?;
    let pp = group("2", "pp", 1..world)?;
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        at(program, "barrier", 0);
        program.barrier(WORLD);
        let odd_one = !options.repaired && rank.0 == world - 2;
        // In the faulty text the odd one's branch stands first.
        let nth = usize::from(!options.repaired && !odd_one);
        let reduce = |program: &mut ProgramBuilder, group, tensor, words: &str| {
            at(program, words, nth);
            program.collective(group, SUM, NUMEL, None, Some(tensor));
        };
        let in_tp = rank.0 < world - 1;
        let in_pp = rank.0 > 0;
        if odd_one {
            reduce(program, pp, weight, "group=pp");
        }
        if in_tp {
            reduce(program, tp, activation, "group=tp");
        }
        if in_pp && !odd_one {
            reduce(program, pp, weight, "group=pp");
        }
    })
}

fn stuck_data_loader(scenario: &Scenario, options: &ScenarioOptions) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let grad = script.tensor("grad", Fill::Rank);
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        for step in 0..3 {
            at(program, "next(loader)", 0);
            let stuck = !options.repaired && rank.0 == options.world_size - 1 && step == 1;
            program.sleep("next(loader)", if stuck { STUCK_NS } else { STEP_NS / 4 });
            at(program, "forward_backward", 0);
            program.compute("forward_backward", STEP_NS);
            at(program, "all_reduce", 0);
            program.collective(WORLD, SUM, NUMEL, None, Some(grad));
        }
        at(program, "barrier", 0);
        program.barrier(WORLD);
    })
}

fn uneven_last_batch(scenario: &Scenario, options: &ScenarioOptions) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let scores = script.tensor("scores", Fill::Rank);
    let short = script.plan.tensor("last scores", Dtype::Float32, NUMEL / 2 + 1, Fill::Rank);
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        for batch in 0..3 {
            at(program, "model(", 0);
            program.compute("model", STEP_NS);
            at(program, "all_reduce", 0);
            if !options.repaired && rank.0 == 1 && batch == 2 {
                program.collective(WORLD, SUM, NUMEL / 2 + 1, None, Some(short));
            } else {
                program.collective(WORLD, SUM, NUMEL, None, Some(scores));
            }
        }
        at(program, "barrier", 0);
        program.barrier(WORLD);
    })
}

fn facing_sends(scenario: &Scenario, options: &ScenarioOptions) -> Result<Plan, PlanError> {
    let mut script = Script::new(scenario, options)?;
    let mine = script.tensor("mine", Fill::Rank);
    let theirs = script.tensor("theirs", Fill::Zeros);
    let at = script.lines();
    script.plan.every_rank(|rank, program| {
        let peer = GroupRank(rank.0 ^ 1);
        if peer.0 >= options.world_size {
            return;
        }
        let odd = options.repaired && rank.0 % 2 == 1;
        let send = |program: &mut ProgramBuilder| {
            at(program, "dist.send", usize::from(odd));
            program.send(WORLD, peer, mine);
        };
        if !odd {
            send(program);
        }
        at(program, "dist.recv", usize::from(odd));
        program.recv(WORLD, peer, theirs);
        if odd {
            send(program);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    /// Every operation points at a line whose text names what the operation does.
    #[test]
    fn every_operation_points_at_its_own_line() {
        for scenario in scenario::all() {
            for repaired in [false, true] {
                for world_size in [scenario.min_world_size, 5, 8] {
                    let options = ScenarioOptions { world_size, repaired, ..Default::default() };
                    let plan = scenario.plan(&options).unwrap();
                    let lines: Vec<_> = plan.sources[0].text.lines().collect();
                    for op in plan.programs.iter().flat_map(|program| &program.ops) {
                        let line = lines[op.at.unwrap().line as usize - 1];
                        let name = op.action.name();
                        assert!(line.contains(name), "{}: {name} at {line:?}", scenario.id);
                    }
                }
            }
        }
    }

    #[test]
    fn a_world_too_small_for_the_scenario_is_refused() {
        for scenario in scenario::all() {
            for world_size in 0..scenario.min_world_size {
                let options = ScenarioOptions { world_size, ..Default::default() };
                assert!(scenario.plan(&options).is_err(), "{} {world_size}", scenario.id);
            }
        }
    }
}
