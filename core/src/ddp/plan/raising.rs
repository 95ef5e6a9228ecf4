//! The end of a job that DDP itself ends: what runs its plan comes to the exception, and says so.

use super::{BACKWARD, FORWARD};
use crate::ddp::notes::{Half, Role, TrainingRun};
use crate::group::BackendName;
use crate::plan::{Action, Op, Plan, Program, SourceLine};

impl TrainingRun {
    /// The plan to simulate or to run: as `plan`, and where DDP raises, a rank ends there, with
    /// Python's last words. `plan` itself stops before that, for the times of the steps up to it.
    pub fn plan_with_end(&self) -> Plan {
        let mut plan = self.plan.clone();
        let on_device = plan.groups.iter().any(|group| group.backend() == BackendName::Nccl);
        let mut ranks = vec![0u32; plan.programs.len()];
        for program in &plan.program_of {
            if let Some(ranks) = ranks.get_mut(*program as usize) {
                *ranks += 1;
            }
        }
        for (index, program) in plan.programs.iter_mut().enumerate() {
            // Ranks of one role may have several programs: one for each set of subgroups.
            let role = self.roles.get(if self.role_of.is_empty() { 0 } else { index });
            let several = ranks.get(index).is_some_and(|ranks| *ranks > 1);
            if let Some(role) = role {
                end(program, role, several, on_device);
            }
        }
        plan
    }
}

fn end(program: &mut Program, role: &Role, several: bool, on_device: bool) {
    let Some((_, half, error)) = role.raised() else { return };
    let (line, via) = match half {
        Half::Forward => (FORWARD, "DistributedDataParallel.forward"),
        Half::Backward => (BACKWARD, "DistributedDataParallel.backward"),
    };
    let at = Some(SourceLine { source: 0, line });
    let mut push = |action| program.ops.push(Op { action, at, via: Some(via.to_owned()) });
    if on_device {
        // A process comes to it ahead of its device, by what a plan does not know: the time that
        // Python takes. What its streams hold is carried out first.
        push(Action::Synchronize);
    }
    push(Action::Die { how: format!("{}: {}", error.class(), error.said_by(several)) });
}

#[cfg(test)]
mod tests {
    use crate::ddp::model::{Device, named};
    use crate::ddp::plan::{Training, Uneven, training_run_as_far};
    use crate::group::BackendName;
    use crate::plan::Action;

    fn training(world_size: u32, backend: BackendName) -> Training {
        Training { backend, ..Training::new(world_size, Device::named("A100").unwrap()) }
    }

    fn ends(training: &Training) -> Vec<(u32, Option<u32>, String)> {
        let run = training_run_as_far(&named("mlp:8,8,8,4").unwrap(), training).unwrap();
        let plan = run.plan_with_end();
        plan.check().unwrap();
        let deaths = plan.programs.iter().zip(0..).filter_map(|(program, index)| {
            let last = program.ops.last()?;
            let Action::Die { how } = &last.action else { return None };
            Some((index, last.at.map(|at| at.line), how.clone()))
        });
        deaths.collect()
    }

    #[test]
    fn a_job_that_ddp_ends_ends_in_its_plan_too() {
        for backend in [BackendName::Nccl, BackendName::Gloo] {
            let unused = vec!["layers.1".into()];
            let found = ends(&Training { unused, ..training(3, backend) });
            let [(0, Some(7), how)] = found.as_slice() else { panic!("{found:?}") };
            assert!(how.starts_with("RuntimeError: Expected to have finished reduction"), "{how}");
            // All ranks have that program: it tells no rank's number.
            assert!(how.contains("did not receive grad for this rank: 2 3"), "{how}");
            assert_eq!(ends(&training(3, backend)), []);
        }
    }

    #[test]
    fn ranks_of_their_own_say_their_number() {
        let options = crate::ddp::join::JoinOptions {
            throw_on_early_termination: true,
            ..Default::default()
        };
        let uneven = Some(Uneven { inputs: vec![3, 1, 3], options });
        let found = ends(&Training { uneven, ..training(3, BackendName::Gloo) });
        let told: Vec<&str> = found.iter().map(|(_, _, how)| how.as_str()).collect();
        assert_eq!(
            told,
            [
                "RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all \
                 ranks.",
                "RuntimeError: Rank 1 exhausted all inputs."
            ]
        );
    }
}
