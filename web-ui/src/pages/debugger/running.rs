//! The program that is debugged: executed, placed on its machine, and its state in words.

use super::super::simulation::Simulated;
use super::super::stepping::Stepping;
use crate::explain;
use crate::programs::{Compiling, use_compiled};
use lockstep_core::plan::Plan;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};
use lockstep_sim::Topology;
use lockstep_web_protocol::Machine;
use std::rc::Rc;
use yew::prelude::*;

/// A program that is executed, and what of it is known.
pub(super) struct Running {
    /// The execution of the present text.
    pub(super) compiling: Compiling,
    /// The last text that was a program: what runs stays in sight while the next text is executed.
    pub(super) compiled: Option<Rc<Compiled>>,
    pub(super) machine: Machine,
    /// Its plan on that machine.
    pub(super) plan: Rc<Result<Rc<Plan>, String>>,
}

impl Running {
    /// The error of the present text, if it is no program.
    pub(super) fn wrong(&self) -> Option<&Rc<ProgramError>> {
        match &self.compiling {
            Compiling::Wrong(error) => Some(error),
            _ => None,
        }
    }

    /// The number of its ranks; one while there is no plan.
    pub(super) fn world_size(&self) -> u32 {
        self.plan.as_ref().as_ref().map_or(1, |plan| plan.world_size)
    }

    /// Its state, as tests and styles read it.
    pub(super) fn state(&self, stepping: &Stepping) -> &'static str {
        match (&self.compiling, stepping.session()) {
            (Compiling::Wrong(_) | Compiling::Failed(_), _) => "wrong",
            (Compiling::Done(_), Some(_)) => "ready",
            _ => "busy",
        }
    }

    /// Its state in a sentence.
    pub(super) fn sentence(&self, stepping: &Stepping) -> String {
        match (&self.compiling, &stepping.simulated, &stepping.view) {
            (Compiling::Running, _, None) => {
                "Executing the program… (the first time, what executes it is fetched: 2 MB)"
                    .to_owned()
            }
            (Compiling::Wrong(_), ..) => {
                "The program is not a plan yet: see what is wrong with it.".to_owned()
            }
            (Compiling::Failed(why), ..) => why.to_string(),
            (_, Simulated::Failed { why }, _) => why.clone(),
            (_, _, Some(view)) => explain::job(view),
            (_, Simulated::Loading { progress }, None) => format!("Simulating… {progress}"),
            (_, Simulated::Ready(_), None) => "Simulating…".to_owned(),
        }
    }
}

/// Executes a program, and places its plan on a machine.
#[hook]
pub(super) fn use_running(
    path: &'static str,
    text: &Rc<str>,
    options: &Options,
    asked: Machine,
) -> Running {
    let compiling = use_compiled(path, text.clone(), options.clone());
    let known = use_state(|| None::<Rc<Compiled>>);
    {
        let known = known.setter();
        use_effect_with(compiling.clone(), move |compiling| match compiling {
            Compiling::Done(compiled) => known.set(Some(compiled.clone())),
            Compiling::Wrong(_) | Compiling::Failed(_) => known.set(None),
            Compiling::Running => {}
        });
    }
    let compiled = (*known).clone();
    // If the address names no links, the program may.
    let machine = match &compiled {
        Some(compiled) if asked == Machine::default() => {
            Topology::of_ranks_per_node(compiled.plan.ranks_per_node).into()
        }
        _ => asked,
    };
    let plan = use_memo((compiled.clone(), machine), |(compiled, machine)| match compiled {
        Some(compiled) => Ok(Rc::new(placed(&compiled.plan, *machine))),
        None => Err(String::new()),
    });
    Running { compiling, compiled, machine, plan }
}

/// The plan on nodes, if the address has any.
fn placed(plan: &Plan, machine: Machine) -> Plan {
    match machine.ranks_per_node() {
        0 => plan.clone(),
        ranks_per_node => Plan { ranks_per_node, ..plan.clone() },
    }
}
