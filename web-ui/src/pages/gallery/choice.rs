//! What the gallery shows: the choice that its address carries, and the form that changes it.

use crate::explain;
use crate::pages::collective_choice::{COLLECTIVES, collective};
use crate::pages::topology_choice::{self, TopologyFields};
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField, SizeField};
use lockstep_core::collective::Collective;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::scenario::CollectiveLab;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::Topology;
use yew::prelude::*;

/// The world sizes that the gallery counts.
const WORLD: (u64, u64) = (2, 64);

/// Elements a rank, as a power of two: 1 GiB of float32.
const MAX_COUNT_LOG2: u32 = 28;

/// Long enough for whatever can be chosen here: a day.
const TIMEOUT_MS: u64 = 86_400_000;

/// A collective among so many ranks, and the two of its algorithms that are held side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GalleryChoice {
    pub(super) collective: Collective,
    pub(super) world_size: u32,
    /// Elements a rank, float32.
    pub(super) count: u64,
    pub(super) topology: Topology,
    pub(super) pair: [Algorithm; 2],
}

impl GalleryChoice {
    /// The choice in an address; what it does not say, or says wrongly, is the default.
    pub(super) fn read(route: &Route) -> GalleryChoice {
        let name = route.get("collective").unwrap_or("all_reduce");
        let collective = collective(name, ReduceOp::Sum, GroupRank(0));
        let algorithms = Algorithm::of(collective);
        let chosen = |name: &str, default: usize| {
            let named = algorithms.iter().find(|each| Some(each.name()) == route.get(name));
            *named.or(algorithms.get(default)).unwrap_or(&algorithms[0])
        };
        GalleryChoice {
            collective,
            world_size: route.number("world").unwrap_or(8u64).clamp(WORLD.0, WORLD.1) as u32,
            count: route.number("count").unwrap_or(1u64 << 16).min(1 << MAX_COUNT_LOG2),
            topology: topology_choice::read(route),
            pair: [chosen("a", 0), chosen("b", 1)],
        }
    }

    /// The address of the choice, in the gallery.
    pub(super) fn route(&self) -> Route {
        self.write(Route::to(View::Gallery))
    }

    /// The address of the two that are held side by side.
    pub(super) fn side_route(&self) -> Route {
        self.write(Route::below(View::Gallery, "side"))
    }

    fn write(&self, route: Route) -> Route {
        let route = topology_choice::write(route, self.topology);
        route
            .with("collective", self.collective.name())
            .with("world", self.world_size)
            .with("count", self.count)
            .with("a", self.pair[0])
            .with("b", self.pair[1])
    }

    /// The algorithms of the collective.
    pub(super) fn algorithms(&self) -> &'static [Algorithm] {
        Algorithm::of(self.collective)
    }

    /// The collective on its own, by one of them.
    pub(super) fn lab(&self, algorithm: Algorithm) -> CollectiveLab {
        let lab = CollectiveLab::new(self.collective, self.world_size, self.count);
        CollectiveLab { algorithm, timeout_ms: TIMEOUT_MS, ..lab }
    }

    /// The plan of one of them, or why there is none.
    pub(super) fn plan(&self, algorithm: Algorithm) -> Result<Plan, String> {
        let plan = self.lab(algorithm).plan().map_err(|error| error.to_string())?;
        Ok(Plan { ranks_per_node: self.topology.ranks_per_node(), ..plan })
    }

    /// What is chosen, in a few words.
    pub(super) fn words(&self) -> String {
        let (call, world) = (self.collective, self.world_size);
        match call.is_barrier() {
            true => format!("{call} · {world} ranks"),
            false => format!("{call} · {world} ranks · {}", explain::bytes(self.bytes())),
        }
    }

    /// The bytes of a tensor, or of one rank's part of one.
    pub(super) fn bytes(&self) -> u64 {
        match self.collective.is_barrier() {
            true => 0,
            false => self.count * self.element_bytes(),
        }
    }

    /// The size of an element.
    pub(super) fn element_bytes(&self) -> u64 {
        self.lab(self.pair[0]).dtype.size_bytes()
    }
}

/// Properties of [`GalleryForm`].
#[derive(Properties, PartialEq)]
pub(super) struct GalleryFormProps {
    pub(super) choice: GalleryChoice,
    /// The address of the choice, in the gallery or side by side.
    pub(super) route: Route,
    pub(super) on_route: Callback<Route>,
}

/// The form that changes the choice.
#[component(GalleryForm)]
pub(super) fn gallery_form(props: &GalleryFormProps) -> Html {
    let choice = props.choice;
    let route = props.route.clone();
    let number = |name: &'static str| {
        let route = route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let collective = {
        let route = route.clone();
        // The algorithms are another collective's.
        props.on_route.reform(move |value: String| {
            route.clone().without("a").without("b").with("collective", value)
        })
    };
    let names = COLLECTIVES.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    html! {
        <form class="choice wide" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What to compare">
            <SelectField name="collective" label="Collective" value={choice.collective.name()} choices={names} on_choose={collective} />
            <NumberField name="world" label="World size" value={u64::from(choice.world_size)} min={WORLD.0} max={WORLD.1} slider={true} on_choose={number("world")} />
            if !choice.collective.is_barrier() {
                <SizeField name="count" label={format!("Elements a rank ({})", explain::bytes(choice.bytes()))} value={choice.count}
                           max_log2={MAX_COUNT_LOG2} on_choose={number("count")} />
            }
            <TopologyFields topology={choice.topology} route={route.clone()} world_size={choice.world_size} on_route={props.on_route.clone()} />
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_the_whole_choice() {
        for name in COLLECTIVES {
            let route = Route::to(View::Gallery).with("collective", name).with("world", 9);
            let choice = GalleryChoice::read(&route);
            assert_eq!(choice.collective.name(), name);
            assert_eq!(GalleryChoice::read(&choice.route()), choice);
            assert_eq!(GalleryChoice::read(&choice.side_route()), choice);
            for algorithm in choice.algorithms() {
                assert!(choice.plan(*algorithm).is_ok(), "{algorithm} {name}");
            }
        }
    }

    #[test]
    fn an_algorithm_of_another_collective_is_not_chosen() {
        let route = Route::to(View::Gallery).with("collective", "gather").with("a", "ring");
        let choice = GalleryChoice::read(&route);
        assert!(choice.pair.iter().all(|each| choice.algorithms().contains(each)));
    }
}
