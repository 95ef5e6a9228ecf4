//! A call of torch.distributed by its own name, as the address carries it, and its form.

use super::asked::{Asked, Unmet, Way};
use super::collective_choice::COLLECTIVES;
use super::machine_choice;
use super::machine_fields::{Links, MachineFields};
use super::reading;
use super::reduce_choice::ReduceOpFields;
use super::world_sizes::{WORLD, WORLD_WHY};
use crate::app::use_shared;
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::patience_ms;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::words::counted;
use lockstep_core::words::nearest;
use lockstep_scenarios::{TorchCall, TorchCallOptions, torch_call, torch_calls};
use lockstep_web_protocol::{CANCELLED, Machine, PlannedCall, Request, Response};
use std::iter::repeat;
use std::rc::Rc;
use yew::prelude::*;

const MAX_COUNT: u64 = 1 << 20;

/// The backends that a form offers; a call that one of them refuses is worth seeing.
const BACKENDS: [&str; 5] = ["gloo", "nccl", "mpi", "cpu:gloo,cuda:nccl", "host"];

/// A longer backend string is none.
const MAX_BACKEND: usize = 100;

/// As many ways on are offered from a choice that is refused.
const MOST_WAYS: usize = 4;

/// A call with its options.
#[derive(Clone, Debug)]
pub(super) struct CallChoice {
    pub(super) call: &'static TorchCall,
    pub(super) options: TorchCallOptions,
    pub(super) machine: Machine,
}

impl PartialEq for CallChoice {
    fn eq(&self, other: &CallChoice) -> bool {
        self.call.name == other.call.name
            && self.options == other.options
            && self.machine == other.machine
    }
}

/// The address's request of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallRead {
    /// It names none.
    None,
    /// It names one that is not there.
    Unknown(Unmet),
    /// A call, and what is asked of it that cannot be. What PyTorch refuses is part of the choice:
    /// it is for PyTorch to say.
    Call(Box<CallChoice>, Vec<Unmet>),
}

impl CallChoice {
    /// The call in an address; what it does not say is the default.
    pub(super) fn read(route: &Route) -> CallRead {
        let mut asked = Asked::new(route);
        let Some(name) = asked.text("call") else { return CallRead::None };
        let Some(call) = torch_call(name) else {
            let near = nearest(name, torch_calls().iter().map(|call| call.name), 3);
            let near = if near.is_empty() { vec!["all_reduce"] } else { near };
            let ways = near.into_iter().map(|name| Way {
                words: name.to_owned(),
                route: route.clone().with("call", name),
            });
            let ways = ways.collect();
            asked.refuse(
                "call",
                "torch.distributed has no such call, or it is not here yet.",
                ways,
            );
            return match asked.unmet.pop() {
                Some(unmet) => CallRead::Unknown(unmet),
                None => CallRead::None,
            };
        };
        let known = call.options();
        let machine = machine_choice::asked(&mut asked);
        let default = u64::from(known.world_size);
        let world_size = asked.number("world", WORLD, default, WORLD_WHY) as u32;
        let count = asked.number(
            "count",
            (0, MAX_COUNT),
            known.count,
            "The page takes up to 1 Mi elements a rank.",
        );
        // Any number that could be a rank is PyTorch's to refuse, in its own words.
        let root = match asked.text("root").map(str::parse::<u32>) {
            None => known.root,
            Some(Ok(root)) => root,
            Some(Err(_)) => {
                let last = world_size.saturating_sub(1);
                let ways = [0, last].map(|root| asked.with("root", &root.to_string())).to_vec();
                asked.refuse("root", &format!("The root is one of the ranks, 0 to {last}."), ways);
                known.root
            }
        };
        let backend = match asked.text("backend") {
            Some(text) if text.is_empty() || text.len() > MAX_BACKEND => {
                let ways = asked.near("backend", BACKENDS.into_iter(), 3);
                asked.refuse("backend", "That is no name of a backend.", ways);
                None
            }
            named => named,
        };
        let options = TorchCallOptions {
            world_size,
            ranks_per_node: machine.ranks_per_node(),
            count,
            dtype: reading::dtype(&mut asked).unwrap_or(known.dtype),
            backend: backend.map_or(known.backend.clone(), str::to_owned),
            op: reading::op(&mut asked).unwrap_or(known.op),
            root,
            fill: Fill::Iota,
            timeout_ms: patience_ms(world_size, count),
        };
        CallRead::Call(Box::new(CallChoice { call, options, machine }), asked.unmet)
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let options = &self.options;
        machine_choice::write(Route::to(View::Step), self.machine)
            .with("call", self.call.name)
            .with("backend", &options.backend)
            .with("world", options.world_size)
            .with("count", options.count)
            .with("dtype", options.dtype)
            .with("op", options.op.text())
            .with("root", options.root)
    }

    /// The plan, or PyTorch's refusal and ours beside it.
    #[cfg(test)]
    pub(super) fn plan(&self) -> Result<Plan, String> {
        self.call.plan(&self.options).map_err(|error| error.to_string())
    }

    /// The question for its plan.
    fn request(&self) -> Request {
        Request::PlanCall {
            call: self.call.name.to_owned(),
            options: Box::new(self.options.clone()),
            instead: self.instead().into_iter().map(|(_, other)| other.options).collect(),
        }
    }

    /// Choices with one thing changed, each in words: some of them may be refused, too.
    fn instead(&self) -> Vec<(String, CallChoice)> {
        let with = |change: &dyn Fn(&mut TorchCallOptions)| {
            let mut other = self.clone();
            change(&mut other.options);
            other
        };
        let known = self.call.options();
        let mut changed: Vec<(String, CallChoice)> = Vec::new();
        for backend in self.call.backends {
            let other = with(&|options| (*backend).clone_into(&mut options.backend));
            changed.push((format!("on {backend}"), other));
        }
        let least = self.call.min_world_size;
        changed.push((counted(least, "rank"), with(&|options| options.world_size = least)));
        changed.push(("root 0".to_owned(), with(&|options| options.root = 0)));
        let last = self.options.world_size.saturating_sub(1);
        changed.push((format!("root {last}, the last rank"), with(&|options| options.root = last)));
        changed.push(("SUM".to_owned(), with(&|options| options.op = ReduceOp::Sum)));
        changed.push((known.dtype.to_string(), with(&|options| options.dtype = known.dtype)));
        changed.retain(|(_, other)| other != self);
        changed
    }

    /// The alternatives to a choice that is refused: one thing changed, as far as that is not
    /// refused, or the call as it is shown at first.
    fn ways_on(&self, possible: &[bool]) -> Vec<Way> {
        let instead = self.instead().into_iter().zip(possible.iter().chain(repeat(&false)));
        let possible = instead.filter(|(_, possible)| **possible).map(|(other, _)| other);
        let mut ways: Vec<(String, CallChoice)> = possible.take(MOST_WAYS).collect();
        if ways.is_empty() {
            let first = CallChoice { options: self.call.options(), ..self.clone() };
            ways.push((format!("{} as it is shown at first", self.call.name), first));
        }
        ways.into_iter().map(|(words, other)| Way { words, route: other.route() }).collect()
    }

    /// The choice, in a few words.
    pub(super) fn words(&self) -> String {
        let TorchCallOptions { world_size, backend, .. } = &self.options;
        format!("{} · {backend} · {}", self.call.name, counted(*world_size, "rank"))
    }
}

/// A choice's plan, or its refusal with the ways on from it.
#[derive(Clone, PartialEq)]
pub(super) struct Planned {
    /// Of what.
    pub(super) choice: CallChoice,
    pub(super) plan: Result<Rc<Plan>, String>,
    pub(super) ways: Vec<Way>,
}

/// The plan of a choice, made by the worker. The one before stays until it is there; `None` before
/// the first.
#[hook]
pub(super) fn use_planned(choice: &CallChoice) -> Option<Planned> {
    let client = use_shared().client;
    let known = use_state(|| None::<Planned>);
    let set = known.setter();
    use_effect_with(choice.clone(), move |choice| {
        let (asked, answer) = client.ask_with(choice.request(), &[], None);
        let choice = choice.clone();
        wasm_bindgen_futures::spawn_local(async move {
            let planned = match answer.await.map(|answered| answered.response) {
                Ok(Response::CallPlanned(planned)) => planned,
                Err(why) if why != CANCELLED => PlannedCall { plan: Err(why), instead: Vec::new() },
                Ok(_) | Err(_) => return,
            };
            let PlannedCall { plan, instead } = planned;
            let ways = choice.ways_on(&instead);
            set.set(Some(Planned { choice, plan: plan.map(Rc::from), ways }));
        });
        move || drop(asked)
    });
    (*known).clone()
}

/// The label for a call's number of elements.
fn parts_label(name: &str) -> &'static str {
    match ["all_to_all", "scatter"].iter().any(|word| name.contains(word)) {
        true => "Elements of a part",
        false => "Elements of a tensor",
    }
}

/// The choices that can be stepped through: collectives by algorithm, and every call as PyTorch makes it.
pub(super) fn choices() -> Vec<Choice> {
    let collectives = COLLECTIVES.iter().map(|name| Choice::word(name).under("By algorithm"));
    let calls = torch_calls().iter().map(|call| {
        Choice::new(&format!("call {}", call.name), call.name).under("As PyTorch makes it")
    });
    collectives.chain(calls).collect()
}

/// The address of one of [`choices`].
pub(super) fn route_of(value: &str, world_size: u32, machine: Machine) -> Route {
    let route = machine_choice::write(Route::to(View::Step), machine).with("world", world_size);
    match value.strip_prefix("call ") {
        Some(call) => {
            let least = torch_call(call).map_or(1, |call| call.min_world_size);
            route.with("world", world_size.max(least)).with("call", call)
        }
        None => route.with("collective", value),
    }
}

/// Properties of [`CallForm`].
#[derive(Properties, PartialEq)]
pub(super) struct CallFormProps {
    pub(super) choice: CallChoice,
    pub(super) on_route: Callback<Route>,
}

/// The form that changes the choice.
#[component(CallForm)]
pub(super) fn call_form(props: &CallFormProps) -> Html {
    let CallChoice { call, options, machine } = &props.choice;
    let route = props.choice.route();
    let set = |name: &'static str| {
        let route = route.clone();
        props.on_route.reform(move |value: String| route.clone().with(name, value))
    };
    let number = |name: &'static str| {
        let route = route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let choose = {
        let (world_size, machine) = (options.world_size, *machine);
        props.on_route.reform(move |value: String| route_of(&value, world_size, machine))
    };
    // One that the call does not work on is offered, too: its refusal is worth seeing.
    let mut backends: Vec<Choice> = BACKENDS
        .iter()
        .map(|name| match call.backends.contains(name) || name.contains([',']) || *name == "mpi" {
            true => Choice::word(name),
            false => Choice::new(name, &format!("{name} (refuses it)")),
        })
        .collect();
    if !BACKENDS.contains(&options.backend.as_str()) {
        backends.insert(0, Choice::word(&options.backend));
    }
    let dtypes: Vec<Choice> =
        Dtype::COMPUTABLE.iter().map(|dtype| Choice::word(&dtype.to_string())).collect();
    // What the program's text has no place for changes nothing.
    let heeds = call.heeds();
    // PyTorch refuses a world that is too small for what the call needs, and so do we.
    let world = (u64::from(call.min_world_size.max(1)), WORLD.1);
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What to step through">
            <SelectField name="collective" label="Call" value={format!("call {}", call.name)} choices={choices()} on_choose={choose} />
            <SelectField name="backend" label="Backend" value={options.backend.clone()} choices={backends} on_choose={set("backend")} />
            <NumberField name="world" label="World size" value={u64::from(options.world_size)} min={world.0} max={world.1} slider={true} on_choose={number("world")} />
            if heeds.count {
                <NumberField name="count" label={parts_label(call.name)} value={options.count} min={0} max={MAX_COUNT} on_choose={number("count")} />
                <SelectField name="dtype" label="Dtype" value={options.dtype.to_string()} choices={dtypes} on_choose={set("dtype")} />
            }
            if heeds.op {
                <ReduceOpFields op={options.op} on_choose={set("op")} />
            }
            if heeds.root {
                // Past the last rank, too: the refusal is worth seeing.
                <NumberField name="root" label="Root" value={u64::from(options.root)} min={0} max={WORLD.1} on_choose={number("root")} />
            }
            <MachineFields machine={*machine} route={route.clone()} world_size={options.world_size} links={Links::Folded} on_route={props.on_route.clone()} />
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(route: &Route) -> CallChoice {
        match CallChoice::read(route) {
            CallRead::Call(choice, unmet) if unmet.is_empty() => *choice,
            other => panic!("{other:?}"),
        }
    }

    /// As the worker answers.
    fn possible(choice: &CallChoice) -> Vec<bool> {
        choice.instead().iter().map(|(_, other)| other.plan().is_ok()).collect()
    }

    #[test]
    fn an_address_holds_the_whole_choice_of_every_call() {
        for call in torch_calls() {
            for backend in call.backends {
                let route = Route::to(View::Step)
                    .with("call", call.name)
                    .with("backend", backend)
                    .with("node", 2);
                let choice = read(&route);
                assert_eq!(read(&choice.route()), choice);
                let plan = choice.plan().unwrap_or_else(|why| panic!("{}: {why}", call.name));
                assert_eq!(plan.ranks_per_node, 2, "{}", call.name);
            }
        }
    }

    #[test]
    fn every_choice_leads_to_what_it_says() {
        for choice in choices() {
            let route = route_of(&choice.value, 1, lockstep_sim::Topology::nodes(2).into());
            assert_eq!(route.number("node"), Some(2));
            match choice.value.starts_with("call ") {
                true => assert_eq!(read(&route).call.name, choice.label),
                false => assert_eq!(route.get("collective"), Some(choice.label.as_str())),
            }
        }
    }

    #[test]
    fn a_call_that_is_none_leads_to_those_that_are_like_it() {
        let route = Route::to(View::Step).with("call", "allreduce").with("world", 6);
        let CallRead::Unknown(unmet) = CallChoice::read(&route) else { panic!("it is no call") };
        let first = &unmet.ways[0];
        assert_eq!((first.words.as_str(), first.route.get("world")), ("all_reduce", Some("6")));
    }

    #[test]
    fn what_a_backend_refuses_is_shown_as_refused_with_ways_on() {
        for (call, backend, says) in [
            ("recv_any_source", "nccl", "does not support recvAnysource"),
            ("all_reduce", "ucc", "Unknown c10d backend type UCC"),
            ("all_to_all", "gloo", "does not support alltoall"),
        ] {
            let route = Route::to(View::Step).with("call", call).with("backend", backend);
            let choice = read(&route);
            assert_eq!(choice.options.backend, backend);
            let why = choice.plan().unwrap_err();
            assert!(why.contains(says), "{why}");
            let ways = choice.ways_on(&possible(&choice));
            assert!(!ways.is_empty());
            for way in ways {
                assert!(read(&way.route).plan().is_ok(), "{}", way.words);
            }
        }
    }

    #[test]
    fn a_world_that_cannot_be_is_refused() {
        let route = Route::to(View::Step).with("call", "send").with("world", 100_000);
        let CallRead::Call(_, unmet) = CallChoice::read(&route) else { panic!("it is a call") };
        assert_eq!(unmet[0].asked, "world=100000");
        // PyTorch has no word for a send in a world of one: the plan's own refusal says it.
        let alone = read(&Route::to(View::Step).with("call", "send").with("world", 1));
        assert!(alone.plan().unwrap_err().contains('2'));
        assert_eq!(alone.ways_on(&possible(&alone))[0].words, "2 ranks");
    }
}
