//! A call of torch.distributed by its own name, as the address carries it, and its form.

use super::collective_choice::COLLECTIVES;
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::scenario::{TorchCall, TorchCallOptions, torch_call, torch_calls};
use yew::prelude::*;

/// The largest world that is stepped through.
const MAX_WORLD: u64 = 64;
const MAX_COUNT: u64 = 1 << 20;

/// A call with its options.
#[derive(Clone, Debug)]
pub(super) struct CallChoice {
    pub(super) call: &'static TorchCall,
    pub(super) options: TorchCallOptions,
}

impl PartialEq for CallChoice {
    fn eq(&self, other: &CallChoice) -> bool {
        self.call.name == other.call.name && self.options == other.options
    }
}

impl CallChoice {
    /// The call in an address; `None` if it names none. What it does not say is the default.
    pub(super) fn read(route: &Route) -> Option<CallChoice> {
        let call = torch_call(route.get("call")?)?;
        let known = call.options();
        let backend = call.backends.iter().find(|name| Some(**name) == route.get("backend"));
        let dtype = Dtype::COMPUTABLE
            .into_iter()
            .find(|dtype| Some(dtype.to_string().as_str()) == route.get("dtype"));
        let op = ReduceOp::ALL.into_iter().find(|op| Some(op.name()) == route.get("op"));
        let least = u64::from(call.min_world_size.max(1));
        let world = route.number("world").unwrap_or(u64::from(known.world_size));
        let world_size = world.clamp(least, MAX_WORLD) as u32;
        let options = TorchCallOptions {
            world_size,
            count: route.number("count").unwrap_or(known.count).min(MAX_COUNT),
            dtype: dtype.unwrap_or(known.dtype),
            backend: backend.map_or(known.backend.clone(), |name| (*name).to_owned()),
            op: op.unwrap_or(known.op),
            root: route.number("root").unwrap_or(known.root),
            fill: Fill::Iota,
            ..known
        };
        Some(CallChoice { call, options })
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let options = &self.options;
        Route::to(View::Step)
            .with("call", self.call.name)
            .with("backend", &options.backend)
            .with("world", options.world_size)
            .with("count", options.count)
            .with("dtype", options.dtype)
            .with("op", options.op)
            .with("root", options.root)
    }

    /// The plan, or PyTorch's refusal and ours beside it.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        self.call.plan(&self.options).map_err(|error| error.to_string())
    }

    /// What is chosen, in a few words.
    pub(super) fn words(&self) -> String {
        let TorchCallOptions { world_size, backend, .. } = &self.options;
        format!("{} · {backend} · {world_size} ranks", self.call.name)
    }
}

/// What can be stepped through: collectives by algorithm, and every call as PyTorch makes it.
pub(super) fn choices() -> Vec<Choice> {
    let collectives = COLLECTIVES.iter().map(|name| Choice::word(name).under("By algorithm"));
    let calls = torch_calls().iter().map(|call| {
        Choice::new(&format!("call {}", call.name), call.name).under("As PyTorch makes it")
    });
    collectives.chain(calls).collect()
}

/// The address of one of [`choices`].
pub(super) fn route_of(value: &str, world_size: u32) -> Route {
    let route = Route::to(View::Step).with("world", world_size);
    match value.strip_prefix("call ") {
        Some(call) => route.with("call", call),
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
    let CallChoice { call, options } = &props.choice;
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
        let world_size = options.world_size;
        props.on_route.reform(move |value: String| route_of(&value, world_size))
    };
    let words = |words: &[&str]| words.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    let dtypes: Vec<Choice> =
        Dtype::COMPUTABLE.iter().map(|dtype| Choice::word(&dtype.to_string())).collect();
    let ops: Vec<&str> = ReduceOp::ALL.iter().map(|op| op.name()).collect();
    // What the program's text has no place for changes nothing.
    let matters = |other: TorchCallOptions| call.source(&other) != call.source(options);
    let counts = matters(TorchCallOptions { count: options.count + 1, ..options.clone() });
    let other_op = if options.op == ReduceOp::Max { ReduceOp::Min } else { ReduceOp::Max };
    let reduces = matters(TorchCallOptions { op: other_op, ..options.clone() });
    let rooted = matters(TorchCallOptions { root: options.root + 1, ..options.clone() });
    let world = (u64::from(call.min_world_size.max(1)), MAX_WORLD);
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What to step through">
            <SelectField name="collective" label="Call" value={format!("call {}", call.name)} choices={choices()} on_choose={choose} />
            <SelectField name="backend" label="Backend" value={options.backend.clone()} choices={words(call.backends)} on_choose={set("backend")} />
            <NumberField name="world" label="World size" value={u64::from(options.world_size)} min={world.0} max={world.1} slider={true} on_choose={number("world")} />
            if counts {
                <NumberField name="count" label="Elements a rank" value={options.count} min={0} max={MAX_COUNT} on_choose={number("count")} />
                <SelectField name="dtype" label="Dtype" value={options.dtype.to_string()} choices={dtypes} on_choose={set("dtype")} />
            }
            if reduces {
                <SelectField name="op" label="Reduce op" value={options.op.name()} choices={words(&ops)} on_choose={set("op")} />
            }
            if rooted {
                // Past the last rank, too: the refusal is worth seeing.
                <NumberField name="root" label="Root" value={u64::from(options.root)} min={0} max={MAX_WORLD} on_choose={number("root")} />
            }
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_the_whole_choice_of_every_call() {
        for call in torch_calls() {
            for backend in call.backends {
                let route = Route::to(View::Step).with("call", call.name).with("backend", backend);
                let choice = CallChoice::read(&route).unwrap();
                assert_eq!(CallChoice::read(&choice.route()), Some(choice.clone()));
                assert!(choice.plan().is_ok(), "{} {backend}", call.name);
            }
        }
        let nonsense = Route::to(View::Step).with("call", "all_reduce_somehow");
        assert_eq!(CallChoice::read(&nonsense), None);
    }

    #[test]
    fn every_choice_leads_to_what_it_says() {
        for choice in choices() {
            let route = route_of(&choice.value, 4);
            let call = CallChoice::read(&route).map(|choice| choice.call.name);
            assert_eq!(call.is_some(), choice.value.starts_with("call "), "{}", choice.value);
            assert_eq!(call.or(route.get("collective")), Some(choice.label.as_str()));
        }
    }
}
