//! The gallery on a named cluster: NCCL's choice over size, and what its own algorithms take.

use super::choice::GalleryChoice;
use crate::pages::nccl_choice::{bands, curves};
use crate::ui::Chart;
use lockstep_core::collective::Collective;
use lockstep_core::schedule::Algorithm;
use lockstep_web_protocol::{AskedRanks, ClusterAccount, ClusterQuestion, Machine};
use std::rc::Rc;
use yew::prelude::*;

/// The name that nccl-tests give a collective; none for one that NCCL does not have.
fn nccl_tests_name(collective: Collective) -> Option<&'static str> {
    match collective {
        Collective::AllReduce { .. } => Some("all_reduce"),
        Collective::AllGather => Some("all_gather"),
        Collective::ReduceScatter { .. } => Some("reduce_scatter"),
        Collective::Broadcast { .. } => Some("broadcast"),
        Collective::Reduce { .. } => Some("reduce"),
        Collective::AllToAll => Some("alltoall"),
        Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::Barrier
        | Collective::MonitoredBarrier { .. } => None,
    }
}

/// NCCL's algorithms that a schedule is one of.
fn nccl_names(algorithm: Algorithm, collective: Collective) -> &'static [&'static str] {
    match (algorithm, collective) {
        (Algorithm::Direct, Collective::AllToAll) => &["P2P"],
        (Algorithm::Ring, _) => &["Ring"],
        (Algorithm::DoubleBinaryTree, _) => &["Tree"],
        (Algorithm::Nvls, _) => &["NVLS"],
        (Algorithm::Sharp, _) => &["CollNetDirect", "CollNetChain"],
        (Algorithm::Pat, _) => &["PAT"],
        _ => &[],
    }
}

/// The bytes of the call as nccl-tests count them: the larger of a rank's two buffers.
fn bytes(choice: &GalleryChoice) -> u64 {
    match choice.collective.in_place() {
        true => choice.bytes(),
        false => choice.bytes().saturating_mul(choice.world_size.into()),
    }
}

/// The question about NCCL's choice; none without a cluster, or where NCCL has no such collective.
pub(super) fn question(choice: &GalleryChoice) -> Option<ClusterQuestion> {
    let Machine::Cluster { name, ranks_per_node, fault } = choice.machine else { return None };
    Some(ClusterQuestion {
        cluster: name.to_string(),
        collective: nccl_tests_name(choice.collective)?.to_owned(),
        ranks: AskedRanks::InAll(choice.world_size),
        per_node: (ranks_per_node > 0).then_some(ranks_per_node),
        fault: fault.to_string(),
        bytes: bytes(choice).max(1),
    })
}

/// A schedule as NCCL carries it out on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnCluster {
    /// NCCL has no such algorithm there.
    Absent,
    /// It takes so long, in picoseconds.
    Takes {
        /// The time.
        ps: u64,
        /// True if NCCL picks it.
        picked: bool,
    },
}

/// The time of a schedule of the gallery on the cluster.
pub(super) fn on_cluster(
    account: &ClusterAccount,
    algorithm: Algorithm,
    collective: Collective,
) -> OnCluster {
    let names = nccl_names(algorithm, collective);
    let picked = names.contains(&account.at.algorithm.as_str());
    if picked {
        return OnCluster::Takes { ps: account.at.ps, picked };
    }
    // The protocol that NCCL would take with it: the weighed ways are sorted by what it expects.
    let mut weighed = account.weighed.iter();
    match weighed.find(|way| names.contains(&way.algorithm.as_str())) {
        Some(way) => OnCluster::Takes { ps: way.predicted_ps, picked },
        None => OnCluster::Absent,
    }
}

/// Properties of [`ChoiceBySize`].
#[derive(Properties, PartialEq)]
pub(super) struct ChoiceBySizeProps {
    pub(super) choice: GalleryChoice,
    pub(super) account: Rc<ClusterAccount>,
}

/// NCCL's choice over size, with its switching points.
#[component(ChoiceBySize)]
pub(super) fn choice_by_size(props: &ChoiceBySizeProps) -> Html {
    let account = &props.account;
    let drawn =
        use_memo(account.clone(), |account| (Rc::new(curves(account).0), Rc::new(bands(account))));
    let what =
        format!("{} of {} ranks on {}", props.choice.collective, account.ranks, account.title);
    html! {
        <section class="panel sweep" data-test="nccl-choice">
            <header><h2>{ "NCCL's choice by size" }</h2><span class="muted hint">{ format!("{what}; the dashed line is the size that is chosen, in bytes as nccl-tests counts them") }</span></header>
            if let Some(not_backed) = &account.not_backed {
                <p class="notice" data-test="extrapolated">{ not_backed }</p>
            }
            <Chart curves={drawn.0.clone()} bands={drawn.1.clone()} at={bytes(&props.choice)} words={format!("time of NCCL's choice and of each of its algorithms by size, {what}")} />
            <p data-test="switches">{ &account.switches }</p>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;
    use lockstep_web_protocol::Weighed;

    fn choice(hash: &str) -> GalleryChoice {
        let (choice, unmet) = GalleryChoice::read(&Route::parse(hash));
        assert_eq!(unmet, []);
        choice
    }

    /// Buffers are counted as the simulator's table of times counts them.
    #[test]
    fn bytes_are_those_of_the_simulated_call() {
        for name in ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"] {
            let choice = choice(&format!(
                "#/algorithms?collective={name}&world=16&count=1000&cluster=h100x8&node=8"
            ));
            let plan = choice.plan(choice.algorithms()[0]).unwrap();
            assert_eq!(question(&choice).unwrap().bytes, plan.timed_calls()[0].bytes, "{name}");
        }
        assert_eq!(question(&choice("#/algorithms?collective=barrier&cluster=h100x8")), None);
        assert_eq!(question(&choice("#/algorithms")), None);
    }

    #[test]
    fn a_card_has_the_time_of_its_namesake_in_nccl() {
        let point = |algorithm: &str| lockstep_web_protocol::ClusterPoint {
            bytes: 8,
            ps: 7,
            algorithm_rate: 1,
            bus_rate: 1,
            algorithm: algorithm.into(),
            protocol: "LL".into(),
            channels: 1,
            extrapolated: false,
            others: Vec::new(),
        };
        let way = |algorithm: &str, protocol: &str, expected_ps, predicted_ps| Weighed {
            algorithm: algorithm.into(),
            protocol: protocol.into(),
            expected_ps,
            predicted_ps,
        };
        let account = ClusterAccount {
            name: String::new(),
            title: String::new(),
            gpus_per_node: 8,
            per_node: 8,
            nodes: 1,
            ranks: 8,
            taken_for: None,
            sources: Vec::new(),
            extrapolated: false,
            not_backed: None,
            measured: Default::default(),
            csv: String::new(),
            points: Vec::new(),
            beyond: Vec::new(),
            switches: String::new(),
            bands: Vec::new(),
            at: point("NVLS"),
            weighed: vec![
                way("NVLS", "Simple", 5, 7),
                way("Ring", "LL", 6, 9),
                way("Ring", "Simple", 8, 8),
            ],
        };
        let sum = choice("#/algorithms").collective;
        let of = |algorithm| on_cluster(&account, algorithm, sum);
        assert_eq!(of(Algorithm::Nvls), OnCluster::Takes { ps: 7, picked: true });
        assert_eq!(of(Algorithm::Ring), OnCluster::Takes { ps: 9, picked: false });
        assert_eq!(of(Algorithm::Swing), OnCluster::Absent);
    }
}
