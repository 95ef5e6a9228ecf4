//! The state of the gallery: the choice that its address carries, and the form that changes it.

use crate::explain;
use crate::pages::asked::{Asked, Unmet};
use crate::pages::collective_choice::{COLLECTIVES, collective};
use crate::pages::machine_choice;
use crate::pages::machine_fields::MachineFields;
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField, SizeField};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_web_protocol::Machine;
use yew::prelude::*;

/// The world sizes that the gallery counts.
const WORLD: (u64, u64) = (2, 64);

/// The reason that there are no others.
const WORLD_WHY: &str = "The page compares algorithms among 2 to 64 ranks; on the command line, lockstep sim --world-size simulates more.";

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
    pub(super) machine: Machine,
    pub(super) pair: [Algorithm; 2],
}

impl GalleryChoice {
    /// The choice in an address, what it does not say being the default; and what it asks for that
    /// cannot be, in whose place the choice has the nearest that can.
    pub(super) fn read(route: &Route) -> (GalleryChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let world_size = asked.number("world", WORLD, 8, WORLD_WHY) as u32;
        let counts = (0, 1 << MAX_COUNT_LOG2);
        let count = asked.number("count", counts, 1 << 16, "Up to 2^28 elements a rank: 1 GiB.");
        let name = asked.one_of("collective", &COLLECTIVES, str::to_owned, "collective");
        let collective = collective(name.unwrap_or("all_reduce"), ReduceOp::Sum, GroupRank(0));
        let algorithms = Algorithm::of(collective);
        let what = format!("algorithm for {collective}");
        let pair = [("a", 0), ("b", 1)].map(|(side, default)| {
            let named = asked.one_of(side, algorithms, |each| each.name().to_owned(), &what);
            named.or(algorithms.get(default).copied()).unwrap_or(algorithms[0])
        });
        asked.one_of("by", &["time", "step"], str::to_owned, "way to hold two side by side");
        let machine = machine_choice::asked(&mut asked);
        (GalleryChoice { collective, world_size, count, machine, pair }, asked.unmet)
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
        let route = machine_choice::write(route, self.machine);
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
        Ok(Plan { ranks_per_node: self.machine.ranks_per_node(), ..plan })
    }

    /// The choice, in a few words.
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
                <SizeField name="count" label={format!("{} ({})", explain::count_label(choice.collective), explain::bytes(choice.bytes()))} value={choice.count}
                           max_log2={MAX_COUNT_LOG2} on_choose={number("count")} />
            }
            <MachineFields machine={choice.machine} route={route.clone()} world_size={choice.world_size} on_route={props.on_route.clone()} />
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
            let (choice, unmet) = GalleryChoice::read(&route);
            assert_eq!(unmet, [], "{name}");
            assert_eq!(choice.collective.name(), name);
            assert_eq!(GalleryChoice::read(&choice.route()), (choice, Vec::new()));
            assert_eq!(GalleryChoice::read(&choice.side_route()), (choice, Vec::new()));
            for algorithm in choice.algorithms() {
                assert!(choice.plan(*algorithm).is_ok(), "{algorithm} {name}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_said_and_every_way_on_leads_somewhere() {
        for (name, value, near) in [
            ("world", "0", "world=2"),
            ("world", "1", "world=2"),
            ("collective", "all_redcue", "collective=all_reduce"),
            ("count", "99999999999999999999999", "count=268435456"),
            ("a", "nosuch", "a=ring"),
            // Another collective's.
            ("b", "dissemination", "b=ring"),
            ("by", "stpe", "by=step"),
            ("node", "x", "node=0"),
            ("latency", "-1", "latency=5000"),
        ] {
            let route = Route::to(View::Gallery).with(name, value);
            let (choice, unmet) = GalleryChoice::read(&route);
            assert_eq!(unmet.len(), 1, "{name}={value}");
            assert_eq!(unmet[0].asked, format!("{name}={value}"));
            assert!(choice.pair.iter().all(|each| choice.algorithms().contains(each)));
            assert_eq!(unmet[0].ways[0].words, near);
            for way in &unmet[0].ways {
                assert_eq!(GalleryChoice::read(&way.route).1, [], "{}", way.words);
            }
        }
    }
}
