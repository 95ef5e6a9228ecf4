//! What is stepped through: the choice that the address carries, and the form that changes it.

use super::call_choice;
use super::collective_choice::collective;
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::scenario::CollectiveLab;
use lockstep_core::schedule::Algorithm;
use yew::prelude::*;

/// The world sizes that the page can show.
pub(super) const WORLD: (u64, u64) = (2, 64);

/// More elements than this have no use on a page.
const MAX_COUNT: u64 = 1 << 34;

/// The seed of seeded tensors.
const SEED: u64 = 1;

/// A collective on its own, as it is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepChoice {
    pub(super) lab: CollectiveLab,
}

impl StepChoice {
    /// The choice in an address; what it does not say, or says wrongly, is the default.
    pub(super) fn read(route: &Route) -> StepChoice {
        let world_size = route.number("world").unwrap_or(4u64).clamp(WORLD.0, WORLD.1) as u32;
        let count = route.number("count").unwrap_or(16u64).min(MAX_COUNT);
        let dtype = Dtype::COMPUTABLE
            .into_iter()
            .find(|dtype| Some(dtype.to_string().as_str()) == route.get("dtype"));
        let dtype = dtype.unwrap_or(Dtype::Float32);
        let op = ReduceOp::ALL.into_iter().find(|op| Some(op.name()) == route.get("op"));
        let op = op.filter(|op| op.supports(dtype)).unwrap_or(ReduceOp::Sum);
        let root = GroupRank(route.number("root").unwrap_or(0u32).min(world_size - 1));
        let collective = collective(route.get("collective").unwrap_or("all_reduce"), op, root);
        let algorithms = Algorithm::of(collective);
        let algorithm =
            algorithms.iter().find(|algorithm| Some(algorithm.name()) == route.get("algorithm"));
        let fill = match route.get("fill") {
            Some("rank") => Fill::Rank,
            Some("seeded") => Fill::Seeded { seed: SEED },
            _ => Fill::Iota,
        };
        let lab = CollectiveLab::new(collective, world_size, count);
        StepChoice {
            lab: CollectiveLab {
                algorithm: *algorithm.unwrap_or(&algorithms[0]),
                dtype,
                fill,
                ..lab
            },
        }
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let lab = &self.lab;
        let mut route = Route::to(View::Step)
            .with("collective", lab.collective.name())
            .with("world", lab.world_size)
            .with("count", lab.count)
            .with("algorithm", lab.algorithm)
            .with("dtype", lab.dtype)
            .with("fill", fill_word(lab.fill));
        if let Some(op) = lab.collective.reduce_op() {
            route = route.with("op", op);
        }
        if let Some(root) = lab.collective.root() {
            route = route.with("root", root);
        }
        route
    }

    /// What is chosen, in a few words.
    pub(super) fn words(&self) -> String {
        let CollectiveLab { collective, algorithm, world_size, count, dtype, .. } = self.lab;
        match collective.is_barrier() {
            true => format!("{collective} · {algorithm} · {world_size} ranks"),
            false => format!("{collective} · {algorithm} · {world_size} ranks · {count} × {dtype}"),
        }
    }

    /// The plan, or why there is none.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        self.lab.plan().map_err(|error| error.to_string())
    }
}

fn fill_word(fill: Fill) -> &'static str {
    match fill {
        Fill::Rank => "rank",
        Fill::Seeded { .. } => "seeded",
        Fill::Iota | Fill::Zeros | Fill::Data => "iota",
    }
}

/// Properties of [`StepForm`].
#[derive(Properties, PartialEq)]
pub(super) struct StepFormProps {
    pub(super) choice: StepChoice,
    pub(super) on_route: Callback<Route>,
}

/// The form that changes the choice.
#[component(StepForm)]
pub(super) fn step_form(props: &StepFormProps) -> Html {
    let lab = props.choice.lab;
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
        let (route, world_size) = (route.clone(), lab.world_size);
        props.on_route.reform(move |value: String| match value.starts_with("call ") {
            true => call_choice::route_of(&value, world_size),
            false => route.clone().with("collective", value),
        })
    };
    let words = |words: &[&str]| words.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    let algorithms: Vec<&str> =
        Algorithm::of(lab.collective).iter().map(|algorithm| algorithm.name()).collect();
    let dtypes: Vec<Choice> =
        Dtype::COMPUTABLE.iter().map(|dtype| Choice::word(&dtype.to_string())).collect();
    let ops: Vec<&str> =
        ReduceOp::ALL.iter().filter(|op| op.supports(lab.dtype)).map(|op| op.name()).collect();
    let fills =
        [("iota", "0, 1, 2, … (iota)"), ("rank", "the rank's number"), ("seeded", "seeded random")];
    let fills = fills.map(|(value, label)| Choice::new(value, label)).to_vec();
    let barrier = lab.collective.is_barrier();
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What to step through">
            <SelectField name="collective" label="Call" value={lab.collective.name()} choices={call_choice::choices()} on_choose={choose} />
            <NumberField name="world" label="World size" value={u64::from(lab.world_size)} min={WORLD.0} max={WORLD.1} slider={true} on_choose={number("world")} />
            <SelectField name="algorithm" label="Algorithm" value={lab.algorithm.name()} choices={words(&algorithms)} on_choose={set("algorithm")} />
            if !barrier {
                <NumberField name="count" label="Elements a rank" value={lab.count} min={0} max={MAX_COUNT} on_choose={number("count")} />
                <SelectField name="dtype" label="Dtype" value={lab.dtype.to_string()} choices={dtypes} on_choose={set("dtype")} />
                <SelectField name="fill" label="Values" value={fill_word(lab.fill)} choices={fills} on_choose={set("fill")} />
            }
            if let Some(op) = lab.collective.reduce_op() {
                <SelectField name="op" label="Reduce op" value={op.name()} choices={words(&ops)} on_choose={set("op")} />
            }
            if let Some(root) = lab.collective.root() {
                <NumberField name="root" label="Root" value={u64::from(root.0)} min={0} max={u64::from(lab.world_size) - 1} on_choose={number("root")} />
            }
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::collective_choice::COLLECTIVES;

    #[test]
    fn an_address_holds_the_whole_choice() {
        for name in COLLECTIVES {
            let route =
                Route::to(View::Step).with("collective", name).with("world", 7).with("root", 3);
            let choice = StepChoice::read(&route);
            assert_eq!(choice.lab.collective.name(), name);
            assert_eq!(StepChoice::read(&choice.route()), choice);
            assert!(choice.plan().is_ok(), "{name}");
        }
    }

    #[test]
    fn nonsense_in_an_address_becomes_something_that_runs() {
        let route = Route::to(View::Step)
            .with("world", 999)
            .with("root", 80)
            .with("dtype", "bool")
            .with("op", "AVG");
        let choice = StepChoice::read(&route);
        assert_eq!(choice.lab.world_size, 64);
        assert!(choice.plan().is_ok());
    }
}
