//! The plans of the scenarios that ship: each is its program, compiled.

use crate::compile;
use lockstep_core::plan::{Plan, PlanError};
use lockstep_scenarios::program::{Options, ProgramError};
use lockstep_scenarios::{PROGRAM_PATH, Scenario, ScenarioOptions};

/// The reason that a scenario has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The world is empty, or too small for it.
    #[error(transparent)]
    World(#[from] PlanError),
    /// Its program cannot be executed with these options.
    #[error("the scenario's program: {0}")]
    Program(#[from] ProgramError),
}

/// The plan of a scenario: its program, executed once for each rank.
///
/// # Errors
/// When the world is too small or too large for it.
pub fn scenario_plan(
    scenario: &Scenario,
    options: &ScenarioOptions,
) -> Result<Plan, ScenarioError> {
    scenario.fits(options.world_size)?;
    let limits = Options {
        world_size: Some(options.world_size),
        timeout_ms: Some(options.timeout_ms),
        ..Options::default()
    };
    let compiled = compile(PROGRAM_PATH, scenario.text(options.repaired), &limits)?;
    Ok(Plan { name: scenario.name(options.repaired), ..compiled.plan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_scenarios::{Chapter, all};

    /// The smallest world, and others.
    fn worlds(scenario: &Scenario) -> [u32; 3] {
        [scenario.min_world_size, 5.max(scenario.min_world_size), 8]
    }

    #[test]
    fn every_operation_has_its_line() {
        for scenario in all() {
            for repaired in [false, true] {
                for world_size in worlds(scenario) {
                    let options = ScenarioOptions { world_size, repaired, ..Default::default() };
                    let plan = scenario_plan(scenario, &options).unwrap();
                    let lines = plan.sources[0].text.lines().count() as u32;
                    let ops = plan.programs.iter().flat_map(|program| &program.ops);
                    for op in ops {
                        assert!(op.at.is_some_and(|at| (1..=lines).contains(&at.line)), "{op:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_world_too_small_for_the_scenario_is_refused() {
        for scenario in all() {
            for world_size in 0..scenario.min_world_size {
                let options = ScenarioOptions { world_size, ..Default::default() };
                assert!(scenario_plan(scenario, &options).is_err(), "{} {world_size}", scenario.id);
            }
        }
    }

    #[test]
    fn scenarios_are_told_in_full() {
        let mut ids: Vec<&str> = all().iter().map(|scenario| scenario.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().len(), "ids are unique");
        assert!(all().len() >= 18);
        for scenario in all() {
            let Scenario { id, story, log, repair, chapters, .. } = scenario;
            assert!(!story.is_empty() && !repair.is_empty(), "{id}");
            assert!(!log.lines.is_empty() && !log.from.is_empty(), "{id}");
            assert!((3..=6).contains(&chapters.len()), "{id}");
            assert_ne!(scenario.program, scenario.repaired_program, "{id}");
            assert!(scenario.program.lines().all(|line| line.len() <= 100), "{id}");
            // A line that a chapter stops at has an operation of the program.
            let plan = scenario_plan(
                scenario,
                &ScenarioOptions {
                    world_size: scenario.min_world_size.max(4),
                    ..ScenarioOptions::default()
                },
            );
            let plan = plan.unwrap();
            for Chapter { stop, says } in *chapters {
                assert!(!says.is_empty(), "{id}");
                assert!(stop.parse::<lockstep_core::stop::Stop>().is_ok(), "{id}: {stop}");
                let Some(at) = stop.strip_prefix("line:") else { continue };
                let mut numbers = at.split(':').map(|number| number.parse::<u32>().unwrap());
                let (line, rank) = (numbers.next().unwrap(), numbers.next());
                let reached = (0..plan.world_size).filter(|of| rank.is_none_or(|rank| rank == *of));
                let mut programs =
                    reached.filter_map(|rank| plan.program(lockstep_core::rank::GlobalRank(rank)));
                let there = programs.any(|program| {
                    program.ops.iter().any(|op| op.at.is_some_and(|at| at.line == line))
                });
                assert!(there, "{id}: nobody reaches {stop}");
            }
        }
    }
}
