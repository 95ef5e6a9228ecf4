//! The end of a job that DDP itself ends: a run of its plan comes to the exception, and shows it.

use super::script::{BACKWARD, FORWARD};
use crate::ddp::error::DdpError;
use crate::ddp::notes::{Half, Role, TrainingRun};
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Action, Op, Plan, Program, SourceLine};
use std::collections::BTreeSet;

impl TrainingRun {
    /// The plan to simulate or to run: as `plan`, and where DDP raises, a rank ends there, with
    /// Python's last words. `plan` itself stops before that, for the times of the steps up to it.
    pub fn plan_with_end(&self) -> Plan {
        let mut plan = self.plan.clone();
        self.number_programs(&mut plan);
        let on_device = plan.groups.iter().any(|group| group.backend() == BackendName::Nccl);
        let mut ranks = vec![0u32; plan.programs.len()];
        for program in &plan.program_of {
            if let Some(ranks) = ranks.get_mut(*program as usize) {
                *ranks += 1;
            }
        }
        for (index, program) in plan.programs.iter_mut().enumerate() {
            // Ranks of one role may have several programs: one for each set of subgroups, or for each
            // rank that says its number.
            let of_rank = plan.program_of.iter().position(|of| *of as usize == index);
            let Some(rank) = of_rank.map(|rank| rank as u32) else { continue };
            let role = self.roles.get(self.role(rank));
            let several = ranks.get(index).is_some_and(|ranks| *ranks > 1);
            if let Some(role) = role {
                end(program, role, (!several).then_some(rank), on_device);
            }
        }
        plan
    }

    /// Gives ranks that say their number as they end a program each, up to [`MAX_NUMBERED`].
    fn number_programs(&self, plan: &mut Plan) {
        let says = |rank: usize| {
            let role = self.roles.get(self.role(rank as u32));
            matches!(role.and_then(|role| role.raised.as_ref()), Some(DdpError::Exhausted { .. }))
        };
        let ranks: Vec<usize> = (0..plan.program_of.len()).filter(|rank| says(*rank)).collect();
        if ranks.len() > MAX_NUMBERED {
            return;
        }
        let mut taken = BTreeSet::new();
        for rank in ranks {
            let Some(own) = plan.program_of.get(rank).copied() else { continue };
            let next = plan.programs.len() as u32;
            if taken.insert(own) {
                continue;
            }
            let Some(program) = plan.programs.get(own as usize).cloned() else { continue };
            plan.programs.push(program);
            if let Some(of) = plan.program_of.get_mut(rank) {
                *of = next;
            }
        }
    }
}

/// More ranks than this that end in the same words but for their number share a program, which names
/// none.
const MAX_NUMBERED: usize = 64;

/// `alone` is the program's rank, where it has no other.
fn end(program: &mut Program, role: &Role, alone: Option<u32>, on_device: bool) {
    let Some((_, half, error)) = role.raised() else { return };
    let (line, via) = match half {
        Half::Forward => (FORWARD, "DistributedDataParallel.forward"),
        Half::Backward => (BACKWARD, "DistributedDataParallel.backward"),
    };
    let at = Some(SourceLine { source: 0, line });
    let mut push = |action| program.ops.push(Op { via: Some(via.into()), ..Op::new(action, at) });
    if on_device {
        // A process comes to it ahead of its device, by what a plan does not know: the time that
        // Python takes. What its streams hold is carried out first.
        push(Action::Synchronize);
    }
    let said = match (error, alone) {
        (DdpError::Exhausted { .. }, Some(rank)) => DdpError::Exhausted { rank }.to_string(),
        _ => error.said_by(alone.is_none()),
    };
    push(Action::Die { how: format!("{}: {said}", error.class()) });
}

#[cfg(test)]
mod tests {
    use crate::ddp::model::{Device, named};
    use crate::ddp::plan::{Training, Uneven, training_run_as_far};
    use crate::ddp::{CommHook, HookAlgorithm};
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::Action;

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

    /// PyTorch 2.7.1 over gloo: each rank raises in its first backward pass, also one that shadows it.
    #[test]
    fn a_hook_that_raises_inside_join_ends_every_program() {
        let hook = CommHook::new(HookAlgorithm::QuantizationPerTensor);
        for inputs in [vec![3, 2], vec![2, 0]] {
            let uneven = Some(Uneven { inputs, options: Default::default() });
            let mut training = Training { uneven, ..training(2, BackendName::Gloo) };
            training.options.comm_hook = Some(hook);
            let found = ends(&training);
            assert_eq!(found.iter().map(|(_, line, _)| *line).collect::<Vec<_>>(), [Some(8); 2]);
            assert!(found.iter().all(|(_, _, how)| how.contains("IndexError")), "{found:?}");
            training.backend = BackendName::Nccl;
            assert_eq!(ends(&training), []);
        }
    }

    #[test]
    fn ranks_of_their_own_say_their_number() {
        let options = crate::ddp::join::JoinOptions {
            throw_on_early_termination: true,
            ..Default::default()
        };
        let uneven = Some(Uneven { inputs: vec![3, 1, 3], options });
        let of = |uneven| ends(&Training { uneven, ..training(3, BackendName::Gloo) });
        let both = of(Some(Uneven { inputs: vec![3, 1, 1], options }));
        let told: Vec<&str> = both.iter().skip(1).map(|(_, _, how)| how.as_str()).collect();
        assert_eq!(
            told,
            [1, 2].map(|rank| format!("RuntimeError: Rank {rank} exhausted all inputs."))
        );
        let found = of(uneven);
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
