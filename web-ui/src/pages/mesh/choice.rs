//! The state of the mesh view: the choice that its address carries, and the form that changes it.

use crate::explain;
use crate::pages::asked::{Asked, Unmet};
use crate::pages::collective_choice::{COLLECTIVES, collective};
use crate::pages::machine_choice;
use crate::pages::machine_fields::MachineFields;
use crate::route::{Route, View};
use crate::ui::{Choice, SelectField, SizeField, TextField};
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::{Link, Topology};
use lockstep_web_protocol::{Machine, MeshQuestion};
use yew::prelude::*;

/// Ranks that can be drawn; larger meshes are told in words.
const MAX_DRAWN: u32 = 256;
const MAX_NAME: usize = 12;
/// Elements a rank, as a power of two.
const MAX_COUNT_LOG2: u32 = 28;
/// The dimensions that are shown where the address does not say.
const DEFAULT_DIMS: &str = "pp=2, dp=2, tp=8";
const DEFAULT_NODE: u32 = 8;

/// Meshes that people use, and what they are called.
const KNOWN: [(&str, &str); 5] = [
    ("pp=2, dp=2, tp=8", "3D: pipeline, data, tensor"),
    ("dp=2, tp=8", "tensor parallel inside a node"),
    ("tp=8, dp=2", "the same, laid out the wrong way round"),
    ("replicate=2, shard=8", "HSDP: shard inside, replicate across"),
    ("dp=4, cp=2, tp=4", "data, context, tensor"),
];

/// A mesh and a collective along its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeshChoice {
    /// Names and sizes, or what is wrong with what was typed.
    pub(super) dims: Result<Vec<(String, u32)>, String>,
    /// As it was typed.
    pub(super) typed: String,
    /// The dimension that is coloured.
    pub(super) dim: usize,
    pub(super) rank: Option<u32>,
    pub(super) collective: Collective,
    pub(super) algorithm: Algorithm,
    pub(super) count: u64,
    pub(super) machine: Machine,
}

impl MeshChoice {
    /// The choice in an address, what it does not say being the default; and what it asks for that
    /// cannot be, in whose place the choice has the nearest that can. What is wrong with a mesh as
    /// it was typed is said beside it.
    pub(super) fn read(route: &Route) -> (MeshChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let typed = route.get("dims").unwrap_or(DEFAULT_DIMS).to_owned();
        let dims = parse(&typed);
        let names = dims.as_deref().unwrap_or_default();
        let every: Vec<usize> = (0..names.len()).collect();
        let known = !every.is_empty();
        let name_of = |dim: usize| names.get(dim).map_or(String::new(), |(name, _)| name.clone());
        let dim = match known {
            true => asked.one_of("dim", &every, name_of, "dimension of this mesh"),
            false => None,
        };
        let world: u32 = names.iter().map(|(_, size)| size).product();
        let last = u64::from(world.saturating_sub(1));
        let rank = asked.text("rank").filter(|_| known);
        let rank =
            rank.map(|_| asked.number("rank", (0, last), 0, "The mesh has no such rank.") as u32);
        let name = asked.one_of("collective", &COLLECTIVES, str::to_owned, "collective");
        let collective = collective(name.unwrap_or("all_reduce"), ReduceOp::Sum, GroupRank(0));
        let algorithms = Algorithm::of(collective);
        let what = format!("algorithm for {collective}");
        let named = |each: Algorithm| each.name().to_owned();
        let algorithm = asked.one_of("algorithm", algorithms, named, &what);
        let counts = (0, 1 << MAX_COUNT_LOG2);
        let count = asked.number("count", counts, 1 << 20, "Up to 2^28 elements a rank: 1 GiB.");
        let choice = MeshChoice {
            dim: dim.unwrap_or(names.len().saturating_sub(1)),
            rank,
            collective,
            algorithm: algorithm.unwrap_or(algorithms[0]),
            count,
            machine: nodes(machine_choice::asked(&mut asked)),
            typed,
            dims,
        };
        (choice, asked.unmet)
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let mut route = machine_choice::write(Route::to(View::Mesh), self.machine)
            .with("dims", &self.typed)
            .with("collective", self.collective.name())
            .with("algorithm", self.algorithm)
            .with("count", self.count);
        if let Some((name, _)) = self.dims.as_ref().ok().and_then(|dims| dims.get(self.dim)) {
            route = route.with("dim", name);
        }
        if let Some(rank) = self.rank {
            route = route.with("rank", rank);
        }
        route
    }

    /// The question to the worker.
    pub(super) fn question(&self) -> Result<MeshQuestion, String> {
        if !self.is_drawn() {
            return Err(format!("up to {MAX_DRAWN} ranks are drawn and simulated"));
        }
        Ok(MeshQuestion {
            dims: self.dims.clone()?,
            collective: self.collective,
            algorithm: self.algorithm,
            count: self.count,
            machine: self.machine,
        })
    }

    /// True if all of its ranks can be drawn.
    pub(super) fn is_drawn(&self) -> bool {
        self.world_size() <= MAX_DRAWN
    }

    /// The number of ranks; 0 for a mesh that is none.
    pub(super) fn world_size(&self) -> u32 {
        self.dims.as_ref().map_or(0, |dims| dims.iter().map(|(_, size)| size).product())
    }
}

/// A mesh always has nodes: without them every pair would be alike.
fn nodes(machine: Machine) -> Machine {
    match machine {
        Machine::Links(Topology::Uniform(across)) => {
            Topology::Nodes { ranks_per_node: DEFAULT_NODE, inside: Link::NVLINK, across }.into()
        }
        Machine::Links(Topology::SharedMemory(_)) => Topology::nodes(DEFAULT_NODE).into(),
        machine @ (Machine::Links(Topology::Nodes { .. }) | Machine::Cluster { .. }) => machine,
    }
}

/// `pp=2, dp=2, tp=4`, with `:` or `=`; or sizes alone, `2x4` or `2, 4`, which get names.
fn parse(typed: &str) -> Result<Vec<(String, u32)>, String> {
    let sizes: Result<Vec<u32>, _> =
        typed.split(['x', '×', ',', '*']).map(|size| size.trim().parse::<u32>()).collect();
    if let Some(sizes) = sizes.ok().filter(|sizes| sizes.len() <= 26) {
        let named: Vec<String> =
            ('a'..='z').zip(sizes).map(|(name, size)| format!("{name}={size}")).collect();
        return parse(&named.join(","));
    }
    let mut dims: Vec<(String, u32)> = Vec::new();
    for part in typed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || format!("“{part}” is no dimension; write them as dp=2, tp=4");
        let (name, size) = part.split_once(['=', ':']).ok_or_else(wrong)?;
        let (name, size) = (name.trim(), size.trim());
        let size: u32 = size.parse().map_err(|_| wrong())?;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(wrong());
        }
        if size == 0 {
            return Err(format!("{name} has no ranks; every dimension has one at least"));
        }
        if dims.iter().any(|(known, _)| known == name) {
            return Err(format!("Each mesh_dim_name must be unique; {name} is there twice"));
        }
        dims.push((name.to_owned(), size));
    }
    let world = dims.iter().try_fold(1u32, |world, (_, size)| world.checked_mul(*size));
    match (dims.len(), world) {
        (0, _) => Err("A mesh has one dimension at least: tp=4".to_owned()),
        (_, Some(_)) => Ok(dims),
        (_, None) => Err(format!("No job has more than {} ranks.", u32::MAX)),
    }
}

/// The form that changes the choice.
pub(super) fn mesh_form(choice: &MeshChoice, on_route: &Callback<Route>) -> Html {
    let route = choice.route();
    let set = |name: &'static str| {
        let route = route.clone();
        on_route.reform(move |value: String| route.clone().with(name, value))
    };
    let number = |name: &'static str| {
        let route = route.clone();
        on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let dims = {
        let route = route.clone();
        on_route.reform(move |value: String| {
            route.clone().without("dim").without("rank").with("dims", value)
        })
    };
    let collective = {
        let route = route.clone();
        on_route.reform(move |value: String| {
            route.clone().without("algorithm").with("collective", value)
        })
    };
    let mut known: Vec<Choice> =
        KNOWN.iter().map(|(dims, label)| Choice::new(dims, label)).collect();
    if !KNOWN.iter().any(|(dims, _)| *dims == choice.typed) {
        known.insert(0, Choice::new(&choice.typed, "as typed"));
    }
    let names = COLLECTIVES.iter().map(|word| Choice::word(word)).collect::<Vec<_>>();
    let algorithms: Vec<Choice> =
        Algorithm::of(choice.collective).iter().map(|each| Choice::word(each.name())).collect();
    let bytes = explain::bytes(choice.count.saturating_mul(4));
    html! {
        <form class="choice" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="Which mesh">
            <TextField name="dims" label="Mesh (outermost first)" value={choice.typed.clone()} wrong={choice.dims.as_ref().err().cloned()} on_choose={dims.clone()} />
            <SelectField name="known" label="Known meshes" value={choice.typed.clone()} choices={known} on_choose={dims} />
            <SelectField name="collective" label="Collective" value={choice.collective.name()} choices={names} on_choose={collective} />
            <SelectField name="algorithm" label="Algorithm" value={choice.algorithm.name()} choices={algorithms} on_choose={set("algorithm")} />
            if !choice.collective.is_barrier() {
                <SizeField name="count" label={format!("{} ({bytes})", explain::count_label(choice.collective))} value={choice.count} max_log2={MAX_COUNT_LOG2} on_choose={number("count")} />
            }
            <MachineFields machine={choice.machine} route={route} world_size={choice.world_size().max(1)} nodes_only={true} on_route={on_route.clone()} />
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_are_read_as_people_type_them() {
        let three = vec![("pp".to_owned(), 2), ("dp".to_owned(), 2), ("tp".to_owned(), 4)];
        assert_eq!(parse("pp=2, dp=2, tp=4"), Ok(three.clone()));
        assert_eq!(parse(" pp:2,dp : 2,tp=4,"), Ok(three));
        let two = Ok(vec![("a".to_owned(), 2), ("b".to_owned(), 4)]);
        for sizes in ["2x4", "2, 4", "2 × 4"] {
            assert_eq!(parse(sizes), two, "{sizes}");
        }
        let five = parse("pp=2, dp=2, tp=2, cp=2, ep=2").unwrap();
        assert_eq!((five.len(), parse("dp=128, pp=16, tp=8").unwrap().len()), (5, 3));
        for wrong in ["", "tp", "2x", "2x0", "tp=x", "tp=0", "a=2,a=2", "a=1000000,b=1000000", "=4"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_holds_the_whole_choice() {
        for (dims, _) in KNOWN {
            let route = Route::to(View::Mesh).with("dims", dims).with("rank", 3);
            let (choice, unmet) = MeshChoice::read(&route);
            assert_eq!(unmet, []);
            assert!(choice.question().is_ok(), "{dims}");
            assert_eq!(MeshChoice::read(&choice.route()), (choice, Vec::new()));
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (name, value) in [
            ("rank", "99"),
            ("dim", "xp"),
            ("collective", "all_redcue"),
            ("algorithm", "star"),
            ("count", "x"),
            ("node", "x"),
        ] {
            let (_, unmet) = MeshChoice::read(&Route::to(View::Mesh).with(name, value));
            assert_eq!(unmet.len(), 1, "{name}");
            let left = MeshChoice::read(&unmet[0].ways[0].route).1;
            assert_eq!(left, [], "{name}");
        }
    }
}
