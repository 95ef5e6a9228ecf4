//! The state of the lab: a model, a setting A, and perhaps a setting B that differs from it.

use super::knobs::{Knobs, UNSAID};
use crate::pages::asked::{Asked, Unmet, Way};
use crate::route::{Route, View};
use lockstep_torch::ddp::model::{known_models, named};

/// Marks the words of setting B in an address.
const PREFIX: &str = "b.";
/// The model whose file was dropped.
pub(super) const FILE: &str = "file";
/// The model that is shown first.
const DEFAULT_MODEL: &str = "resnet18";
/// The model that is built when an MLP is chosen.
pub(super) const DEFAULT_MLP: &str = "mlp:1024,4096,4096,1000";

/// The parts of the view below the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Buckets,
    Changes,
    Sweep,
    Log,
}

impl Tab {
    pub(super) const ALL: [Tab; 4] = [Tab::Buckets, Tab::Changes, Tab::Sweep, Tab::Log];

    pub(super) fn word(self) -> &'static str {
        match self {
            Tab::Buckets => "buckets",
            Tab::Changes => "changes",
            Tab::Sweep => "sweep",
            Tab::Log => "log",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Tab::Buckets => "Buckets",
            Tab::Changes => "What each option changed",
            Tab::Sweep => "Sweep",
            Tab::Log => "DDP's own log",
        }
    }
}

/// The two settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

/// The state of the lab.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LabChoice {
    /// Its name, [`FILE`] for one from a file.
    pub(super) model: String,
    pub(super) a: Knobs,
    pub(super) b: Option<Knobs>,
    /// The setting that the form changes.
    pub(super) edits: Side,
    /// From 0; the last if absent.
    pub(super) pass: Option<u32>,
    pub(super) rank: u32,
    /// A parameter that is looked at.
    pub(super) param: Option<u32>,
    pub(super) tab: Tab,
    /// The axis of a sweep, and the meaning of its lines.
    pub(super) sweep: (String, String),
}

/// The address of B alone, as if it was one of A.
fn of_b(route: &Route) -> Route {
    let mut plain = route.clone();
    plain.query.retain(|name, _| !name.starts_with(PREFIX));
    for (name, value) in &route.query {
        if let Some(name) = name.strip_prefix(PREFIX) {
            plain.query.insert(name.to_owned(), value.clone());
        }
    }
    // Nodes in A are nodes in B, unless B says that there are none.
    if plain.get("node") == Some("0") {
        plain.query.remove("node");
    }
    plain
}

/// A model by the name that the form has for it: `gpt2` is `gpt2-small`, as on the command line.
fn known(model: &str) -> Option<String> {
    let own = known_models().contains(&model) || model.starts_with("mlp:") || model == FILE;
    if own { Some(model.to_owned()) } else { named(model).map(|model| model.name) }
}

/// The problem with B, told of the whole address; nothing where A is wrong already.
fn in_b(route: &Route, unmet: Unmet) -> Option<Unmet> {
    let named = |text: &str| text.split_once('=').map(|(name, _)| format!("{PREFIX}{name}"));
    route.get(&named(&unmet.asked)?)?;
    let ways = unmet.ways.iter().filter_map(|way| {
        let value = way.words.split_once('=')?.1;
        let words = format!("{PREFIX}{}", way.words);
        Some(Way { route: route.clone().with(&named(&way.words)?, value), words })
    });
    Some(Unmet { asked: format!("{PREFIX}{}", unmet.asked), ways: ways.collect(), ..unmet })
}

impl LabChoice {
    /// The choice in an address; what it does not say, or says wrongly, is the default.
    pub(super) fn read(route: &Route) -> LabChoice {
        LabChoice::asked(route).0
    }

    /// The same, and what the address asks for that cannot be.
    pub(super) fn asked(route: &Route) -> (LabChoice, Vec<Unmet>) {
        let (a, mut unmet) = Knobs::asked(route);
        let compares = route.get("b").is_some();
        let b = compares.then(|| {
            let (b, wrong) = Knobs::asked(&of_b(route));
            unmet.extend(wrong.into_iter().filter_map(|unmet| in_b(route, unmet)));
            b
        });
        let mut asked = Asked::new(route);
        let model = route.get("model").unwrap_or(DEFAULT_MODEL);
        let known = known(model);
        if known.is_none() {
            let ways = asked.near("model", known_models().into_iter(), 3);
            let why = "There is no such model: choose one that ships, an MLP as mlp:64,128,10, or \
                       drop a file.";
            asked.refuse("model", why, ways);
        }
        let tab = asked.one_of("tab", &Tab::ALL, |tab| tab.word().to_owned(), "part of the view");
        let mut word = |name: &str, words: &[&'static str]| {
            asked
                .one_of(name, words, str::to_owned, "axis of a sweep")
                .unwrap_or(words[0])
                .to_owned()
        };
        let sweep = (
            word("sweep", &["caps", "worlds", "links"]),
            word("lines", &["links", "worlds", "caps", "none"]),
        );
        let ranks = u64::from(a.world.saturating_mul(a.devices));
        let rank = asked.number("rank", (0, ranks - 1), 0, "It is one of the ranks.") as u32;
        let passes = "Passes are counted from 1.";
        let pass = asked.number("pass", (1, u32::MAX.into()), 1, passes) as u32 - 1;
        unmet.extend(asked.unmet);
        let edits = if compares && route.get("b") == Some("edit") { Side::B } else { Side::A };
        let choice = LabChoice {
            model: known.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            rank,
            a,
            b,
            edits,
            pass: route.get("pass").map(|_| pass),
            param: route.number("param"),
            tab: tab.unwrap_or(Tab::Buckets),
            sweep,
        };
        (choice, unmet)
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let mut route = self.a.write().with("model", &self.model).with("tab", self.tab.word());
        if let Some(b) = &self.b {
            let (plain, base) = (b.write(), self.a.write());
            for (name, value) in &plain.query {
                if base.query.get(name) != Some(value) {
                    route = route.with(&format!("{PREFIX}{name}"), value);
                }
            }
            if base.get("node").is_some() && plain.get("node").is_none() {
                route = route.with(&format!("{PREFIX}node"), 0);
            }
            route = route.with("b", if self.edits == Side::B { "edit" } else { "on" });
        }
        for (name, value) in UNSAID {
            if route.get(name) == Some(*value) {
                route = route.without(name);
            }
        }
        if let Some(pass) = self.pass {
            route = route.with("pass", pass + 1);
        }
        if let Some(param) = self.param {
            route = route.with("param", param);
        }
        if self.rank > 0 {
            route = route.with("rank", self.rank);
        }
        if self.sweep.0 != "caps" {
            route = route.with("sweep", &self.sweep.0);
        }
        if self.sweep.1 != "links" {
            route = route.with("lines", &self.sweep.1);
        }
        route
    }

    /// The same below the view: `#/ddp/simulate`.
    pub(super) fn below(&self, name: &str) -> Route {
        Route { path: Route::below(View::Ddp, name).path, ..self.route() }
    }

    /// The setting that the form changes.
    pub(super) fn edited(&self) -> &Knobs {
        match (self.edits, &self.b) {
            (Side::B, Some(b)) => b,
            _ => &self.a,
        }
    }

    /// The choice with that setting changed.
    pub(super) fn with(&self, knobs: Knobs) -> LabChoice {
        let fresh = LabChoice { pass: None, ..self.clone() };
        match (self.edits, &self.b) {
            (Side::B, Some(_)) => LabChoice { b: Some(knobs), ..fresh },
            _ => {
                // What B has in common with A stays in common.
                let b = self.b.as_ref().map(|b| {
                    let (was, base) = (b.write(), self.a.write());
                    let mut new = knobs.write();
                    for (name, value) in &was.query {
                        if base.query.get(name) != Some(value) {
                            new = new.with(name, value);
                        }
                    }
                    if base.get("node").is_some() && was.get("node").is_none() {
                        new = new.without("node");
                    }
                    Knobs::read(&new)
                });
                LabChoice { a: knobs, b, ..fresh }
            }
        }
    }

    /// In a few words, for a folded form.
    pub(super) fn words(&self) -> String {
        let name = if self.model == FILE { "a model from a file" } else { self.model.as_str() };
        let plural = if self.a.world == 1 { "rank" } else { "ranks" };
        format!("{name}, {} {plural}, cap {}", self.a.world, self.a.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_torch::ddp::{CommHook, HookAlgorithm, PowerSgd};

    #[test]
    fn an_address_holds_both_settings() {
        let hash = "#/ddp?model=gpt2-xl&world=64&cap=10&b=edit&b.cap=25&b.hook=fp16&param=7&pass=2&node=8&b.node=0&tab=sweep&sweep=worlds&rank=3";
        let choice = LabChoice::read(&Route::parse(hash));
        let b = choice.b.clone().unwrap();
        assert_eq!((choice.a.world, b.world, b.hook), (64, 64, "fp16"));
        assert_eq!((choice.a.cap.as_str(), b.cap.as_str()), ("10", "25"));
        assert_eq!((choice.a.machine.ranks_per_node(), b.machine.ranks_per_node()), (8, 0));
        assert_eq!((choice.pass, choice.param, choice.rank), (Some(1), Some(7), 3));
        assert_eq!(LabChoice::read(&choice.route()), choice);
        assert_eq!(choice.route().get("b.world"), None, "only what differs");
        assert!(LabChoice::read(&Route::parse("#/ddp?b.cap=3")).b.is_none());
    }

    #[test]
    fn b_follows_a_where_it_does_not_differ() {
        let choice = LabChoice::read(&Route::parse("#/ddp?b=on&b.cap=1"));
        let changed = choice.with(Knobs { world: 32, ..choice.a.clone() });
        let b = changed.b.clone().unwrap();
        assert_eq!((changed.a.world, b.world, b.cap.as_str()), (32, 32, "1"));
    }

    #[test]
    fn everything_around_ddp_is_in_the_address() {
        let hash = "#/ddp?mixed=float16&reduce=bfloat16&zero=interleaved&shard=1&averager=periodic%3A4%3A0&join=5%2C3&throw=1&devices=4&version=1.x&nograd=fc.bias&subgroup=4&b=on&b.join=&b.mixed=no";
        let (choice, unmet) = LabChoice::asked(&Route::parse(hash));
        assert_eq!(unmet, []);
        assert_eq!(LabChoice::read(&choice.route()), choice);
        let (a, b) = (choice.a.clone(), choice.b.clone().unwrap());
        assert_eq!(a.uneven().unwrap().unwrap().inputs, [5, 3]);
        assert_eq!((b.join.as_str(), b.mixed[0], b.devices), ("", "no", 4));
        assert_eq!(a.averager().unwrap().unwrap().to_string(), "periodic:4:0");
        assert_eq!(LabChoice::read(&Route::parse("#/ddp?model=GPT2")).model, "gpt2-small");
        let plain = LabChoice::read(&Route::parse("#/ddp"));
        assert!(plain.route().to_hash().len() < 230, "{}", plain.route().to_hash());
        for wrong in ["join=x", "join=0,0", "averager=often"] {
            let choice = LabChoice::read(&Route::parse(&format!("#/ddp?{wrong}")));
            assert!(choice.a.setting().is_err(), "{wrong}");
        }
    }

    /// Hooks have PyTorch's defaults, and an address changes each of them.
    #[test]
    fn hooks_have_pytorchs_state_unless_the_address_says_otherwise() {
        let hook = |hash: &str| {
            let choice = LabChoice::read(&Route::parse(hash));
            assert_eq!(LabChoice::read(&choice.route()), choice, "{hash}");
            choice.a.setting().unwrap().training.options.comm_hook.unwrap()
        };
        let usual = PowerSgd::default();
        assert_eq!(
            (usual.start_iter, usual.use_error_feedback, usual.warm_start),
            (1000, true, true)
        );
        let plain = hook("#/ddp?hook=powersgd");
        assert_eq!(plain, CommHook::new(HookAlgorithm::PowerSgd(usual)));
        let own =
            hook("#/ddp?hook=powersgd&psgd_rank=4&psgd_start=2&feedback=0&warm=0&wrapper=float16");
        let state = PowerSgd {
            matrix_approximation_rank: 4,
            start_iter: 2,
            use_error_feedback: false,
            warm_start: false,
            ..usual
        };
        let algorithm = HookAlgorithm::PowerSgd(state);
        assert_eq!(own, CommHook::wrapping(Dtype::Float16, algorithm));
        let HookAlgorithm::PostLocalSgd(local) =
            hook("#/ddp?hook=localsgd&local_reduce=0").algorithm
        else {
            panic!("no post-localSGD")
        };
        assert_eq!((local.start_iter, local.post_local_gradient_allreduce), (100, false));
        for said in ["powersgd", "power-sgd", "powerSGD_hook"] {
            assert_eq!(
                LabChoice::read(&Route::parse(&format!("#/ddp?hook={said}"))).a.hook,
                "powersgd"
            );
        }
        let hash = "#/ddp?init=0&ignore=fc.bias&delay=fc.weight&delay_hook=conv1.weight&order=3-0";
        let choice = LabChoice::read(&Route::parse(hash));
        assert_eq!(LabChoice::read(&choice.route()), choice);
        let training = choice.a.setting().unwrap().training;
        assert_eq!(training.grad_ready_order, Some(vec![3, 2, 1, 0]));
        let options = training.options;
        assert_eq!((options.init_sync, options.ignored), (false, vec!["fc.bias".to_owned()]));
        assert_eq!(options.param_to_hook_all_reduce.as_deref(), Some("conv1.weight"));
        assert!(LabChoice::read(&Route::parse("#/ddp?order=x")).a.setting().is_err());
    }

    #[test]
    fn what_cannot_be_is_said_with_a_way_on() {
        let hash = "#/ddp?model=resnet19&hook=power-sgdd&world=0&device=A101&tab=bucket&static=2&rank=8&b=on&b.hook=fp17&b.world=4";
        let (choice, unmet) = LabChoice::asked(&Route::parse(hash));
        let asked: Vec<&str> = unmet.iter().map(|unmet| unmet.asked.as_str()).collect();
        let all = [
            "hook=power-sgdd",
            "device=A101",
            "static=2",
            "world=0",
            "b.hook=fp17",
            "model=resnet19",
            "tab=bucket",
            "rank=8",
        ];
        assert_eq!(asked, all);
        assert_eq!((choice.model.as_str(), choice.a.world), ("resnet18", 1));
        for unmet in &unmet {
            assert!(!unmet.ways.is_empty(), "{}", unmet.asked);
            for way in &unmet.ways {
                let left = LabChoice::asked(&way.route).1;
                assert!(left.len() < all.len(), "{}: {left:?}", way.words);
            }
        }
        assert_eq!(unmet[0].ways[0].words, "hook=powersgd");
        assert_eq!(unmet[4].ways[0].words, "b.hook=fp16");
    }

    #[test]
    fn nonsense_is_the_default_or_says_what_is_wrong() {
        for hash in ["#/ddp?model=nothing&world=x&device=TPU", "#/ddp?world=0&batch=0&accumulate=0"]
        {
            let choice = LabChoice::read(&Route::parse(hash));
            assert_eq!(choice.model, "resnet18");
            assert!(choice.a.setting().is_ok() && choice.a.world >= 1);
        }
        let cap = |cap: &str| Knobs::read(&Route::to(View::Ddp).with("cap", cap)).cap();
        for wrong in ["x", "1,2", "1e300", "nan", "inf"] {
            assert!(cap(wrong).is_err(), "{wrong}");
        }
        for right in ["default", "", "0", "-1", "0.001", "1e9"] {
            assert!(cap(right).is_ok(), "{right}");
        }
    }
}
