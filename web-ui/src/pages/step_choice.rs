//! The state of the step view: the choice that the address carries, and the form that changes it.

use super::asked::{Asked, Unmet};
use super::collective_choice::{COLLECTIVES, collective};
use super::machine_choice;
use super::machine_fields::{Links, MachineFields};
use super::reduce_choice::ReduceOpFields;
use super::world_sizes::{WORLD, WORLD_WHY};
use super::{call_choice, reading};
use crate::explain;
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule};
use lockstep_core::words::counted;
use lockstep_web_protocol::Machine;
use yew::prelude::*;

/// More elements than this have no use on a page.
const MAX_COUNT: u64 = 1 << 34;

/// Channels and segments that the page can show.
const LANES: (u64, u64) = (1, 16);

/// The seed of seeded tensors.
const SEED: u64 = 1;

const FILLS: [(&str, Fill); 3] =
    [("iota", Fill::Iota), ("rank", Fill::Rank), ("seeded", Fill::Seeded { seed: SEED })];

/// A collective on its own, as it is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepChoice {
    pub(super) lab: CollectiveLab,
    pub(super) machine: Machine,
}

impl StepChoice {
    /// The choice in an address, what it does not say being the default; and what it asks for that
    /// cannot be, in whose place the choice has the nearest that can.
    pub(super) fn read(route: &Route) -> (StepChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let world_size = asked.number("world", WORLD, 4, WORLD_WHY) as u32;
        let count = asked.number(
            "count",
            (0, MAX_COUNT),
            16,
            "The page takes up to 16 Gi elements a rank.",
        );
        let dtype = reading::dtype(&mut asked).unwrap_or(Dtype::Float32);
        let op = reading::op(&mut asked).unwrap_or(ReduceOp::Sum);
        let last = u64::from(world_size) - 1;
        let root = asked.number(
            "root",
            (0, last),
            0,
            &format!("The root is one of the ranks, 0 to {last}."),
        );
        let root = GroupRank(root as u32);
        let name = asked.one_of(
            "collective",
            &COLLECTIVES,
            str::to_owned,
            "collective to carry out by an algorithm",
        );
        let collective = collective(name.unwrap_or("all_reduce"), op, root);
        if collective.reduce_op().is_some_and(|op| !op.supports(dtype)) {
            let ways = ReduceOp::ALL.into_iter().filter(|op| op.supports(dtype)).take(3);
            let ways = ways.map(|op| asked.with("op", op.name())).collect();
            asked.refuse("op", &format!("{op} of {dtype} means nothing."), ways);
        }
        let algorithms = Algorithm::of(collective);
        let algorithm = asked.one_of(
            "algorithm",
            algorithms,
            |each| each.name().to_owned(),
            &format!("algorithm for {collective}"),
        );
        let why = format!("The page shows {} to {} of them.", LANES.0, LANES.1);
        let mut lanes = |name: &str| {
            let given = asked.text(name).is_some();
            given.then(|| asked.number(name, LANES, LANES.0, &why) as u32)
        };
        let (channels, segments) = (lanes("channels"), lanes("segments"));
        let machine = machine_choice::asked(&mut asked);
        let fill = asked.one_of("fill", &FILLS, |(word, _)| word.to_owned(), "fill");
        let lab = CollectiveLab {
            algorithm: algorithm.unwrap_or(algorithms[0]),
            channels,
            segments,
            dtype,
            fill: fill.map_or(Fill::Iota, |(_, fill)| fill),
            ..CollectiveLab::new(collective, world_size, count)
        };
        (StepChoice { lab, machine }, asked.unmet)
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let lab = &self.lab;
        let mut route = machine_choice::write(Route::to(View::Step), self.machine)
            .with("collective", lab.collective.name())
            .with("world", lab.world_size)
            .with("count", lab.count)
            .with("algorithm", lab.algorithm)
            .with("dtype", lab.dtype)
            .with("fill", fill_word(lab.fill));
        if let Some(op) = lab.collective.reduce_op() {
            route = route.with("op", op.text());
        }
        if let Some(root) = lab.collective.root() {
            route = route.with("root", root);
        }
        for (name, lanes) in [("channels", lab.channels), ("segments", lab.segments)] {
            if let Some(lanes) = lanes {
                route = route.with(name, lanes);
            }
        }
        route
    }

    /// The choice, in a few words.
    pub(super) fn words(&self) -> String {
        let CollectiveLab { collective, algorithm, world_size, count, dtype, .. } = self.lab;
        match collective.is_barrier() {
            true => format!("{collective} · {algorithm} · {}", counted(world_size, "rank")),
            false => format!(
                "{collective} · {algorithm} · {} · {count} × {dtype}",
                counted(world_size, "rank")
            ),
        }
    }

    /// The plan, or why there is none.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let plan = self.lab.plan().map_err(|error| error.to_string())?;
        Ok(Plan { ranks_per_node: self.machine.ranks_per_node(), ..plan })
    }

    /// The schedule, laid out on the nodes.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        self.lab.schedule(self.machine.ranks_per_node()).ok()
    }
}

fn fill_word(fill: Fill) -> &'static str {
    FILLS.iter().find(|(_, each)| *each == fill).map_or("iota", |(word, _)| word)
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
        let machine = props.choice.machine;
        props.on_route.reform(move |value: String| match value.starts_with("call ") {
            true => call_choice::route_of(&value, world_size, machine),
            // The algorithm is another collective's.
            false => {
                let route = route.clone().without("algorithm").without("channels");
                route.without("segments").with("collective", value)
            }
        })
    };
    let words = |words: &[&str]| words.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    let algorithms: Vec<&str> =
        Algorithm::of(lab.collective).iter().map(|algorithm| algorithm.name()).collect();
    let dtypes: Vec<Choice> =
        Dtype::COMPUTABLE.iter().map(|dtype| Choice::word(&dtype.to_string())).collect();
    let fills =
        [("iota", "0, 1, 2, … (iota)"), ("rank", "the rank's number"), ("seeded", "seeded random")];
    let fills = fills.map(|(value, label)| Choice::new(value, label)).to_vec();
    let barrier = lab.collective.is_barrier();
    let segments = lab.segments.or_else(|| Some(props.choice.schedule()?.segments())).unwrap_or(1);
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What to step through">
            <SelectField name="collective" label="Call" value={lab.collective.name()} choices={call_choice::choices()} on_choose={choose} />
            <NumberField name="world" label="World size" value={u64::from(lab.world_size)} min={WORLD.0} max={WORLD.1} slider={true} on_choose={number("world")} />
            <SelectField name="algorithm" label="Algorithm" value={lab.algorithm.name()} choices={words(&algorithms)} on_choose={set("algorithm")} />
            if !barrier {
                <NumberField name="channels" label="Channels" value={u64::from(lab.channels.unwrap_or(1))} min={LANES.0} max={LANES.1} on_choose={number("channels")} />
                <NumberField name="segments" label="Segments" value={u64::from(segments)} min={LANES.0} max={LANES.1} on_choose={number("segments")} />
            }
            if !barrier {
                <NumberField name="count" label={explain::count_label(lab.collective)} value={lab.count} min={0} max={MAX_COUNT} on_choose={number("count")} />
                <SelectField name="dtype" label="Dtype" value={lab.dtype.to_string()} choices={dtypes} on_choose={set("dtype")} />
                <SelectField name="fill" label="Values" value={fill_word(lab.fill)} choices={fills} on_choose={set("fill")} />
            }
            if let Some(op) = lab.collective.reduce_op() {
                <ReduceOpFields {op} dtype={Some(lab.dtype)} on_choose={set("op")} />
            }
            if let Some(root) = lab.collective.root() {
                <NumberField name="root" label="Root" value={u64::from(root.0)} min={0} max={u64::from(lab.world_size) - 1} on_choose={number("root")} />
            }
            <MachineFields machine={props.choice.machine} route={route} world_size={lab.world_size} links={Links::Folded} on_route={props.on_route.clone()} />
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_the_whole_choice() {
        for name in COLLECTIVES {
            for (world, node) in [(7, 0), (8, 4), (1, 0)] {
                let route = Route::to(View::Step)
                    .with("collective", name)
                    .with("world", world)
                    .with("root", world / 2)
                    .with("op", "PREMUL_SUM:0.5")
                    .with("node", node);
                let lanes = !["barrier", "monitored_barrier"].contains(&name);
                let route = match lanes {
                    true => route.with("channels", 2).with("segments", 3),
                    false => route,
                };
                let (choice, unmet) = StepChoice::read(&route);
                assert_eq!(unmet, [], "{name}");
                assert_eq!(choice.lab.collective.name(), name);
                assert_eq!(choice.machine.ranks_per_node(), node);
                let laid = choice.schedule().map(|it| (it.channels(), it.segments()));
                assert!(!lanes || laid == Some((2, 3)), "{name} {laid:?}");
                assert_eq!(StepChoice::read(&choice.route()), (choice, Vec::new()));
                let plan = choice.plan().unwrap();
                assert_eq!(plan.ranks_per_node, node, "{name}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_said_and_every_way_on_leads_to_something_that_runs() {
        let route = Route::to(View::Step)
            .with("world", 999)
            .with("root", 80)
            .with("dtype", "bool")
            .with("op", "AVG")
            .with("algorithm", "star")
            .with("fill", "full");
        let (choice, unmet) = StepChoice::read(&route);
        assert_eq!(choice.lab.world_size, 64);
        let asked: Vec<&str> = unmet.iter().map(|unmet| unmet.asked.as_str()).collect();
        let all = ["world=999", "root=80", "op=AVG", "algorithm=star", "fill=full"];
        assert_eq!(asked, all);
        for unmet in &unmet {
            assert!(!unmet.ways.is_empty(), "{}", unmet.asked);
            for way in &unmet.ways {
                let left = StepChoice::read(&way.route).1;
                assert!(left.len() < all.len(), "{}", way.words);
            }
        }
    }
}
