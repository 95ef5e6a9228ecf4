//! NCCL's choice on a named cluster by size, as two views show it: the engine's answer and its curves.

use crate::app::use_shared;
use crate::ui::{Band, Curve};
use lockstep_web_protocol::{
    CANCELLED, ChoiceBand, ClusterAccount, ClusterPoint, ClusterQuestion, Request, Response,
};
use std::rc::Rc;
use yew::prelude::*;

/// An answer about a cluster, as far as it is known.
#[derive(Clone, PartialEq)]
pub(super) struct KnownChoice {
    /// The last answer.
    pub(super) account: Option<Rc<ClusterAccount>>,
    /// The problem with the question.
    pub(super) wrong: Option<String>,
    /// True if it answers the current question.
    pub(super) ready: bool,
}

/// Asks about a cluster; nothing while no question is there.
#[hook]
pub(super) fn use_nccl_choice(question: Option<ClusterQuestion>) -> KnownChoice {
    let client = use_shared().client;
    type Found = Result<Rc<ClusterAccount>, String>;
    let known = use_state(|| None::<(ClusterQuestion, Found)>);
    {
        let known = known.setter();
        use_effect_with(question.clone(), move |question| {
            let asked = question.clone().map(|question| {
                let request = Request::Cluster(Box::new(question.clone()));
                let (asked, answer) = client.ask_with(request, &[], None);
                wasm_bindgen_futures::spawn_local(async move {
                    let found = match answer.await.map(|answered| answered.response) {
                        Ok(Response::Clustered(found)) => Ok(Rc::new(*found)),
                        Ok(_) => return,
                        Err(why) if why == CANCELLED => return,
                        Err(why) => Err(why),
                    };
                    known.set(Some((question, found)));
                });
                asked
            });
            move || drop(asked)
        });
    }
    let (account, wrong, ready) = match (&*known, &question) {
        (_, None) | (None, _) => (None, None, false),
        (Some((of, Ok(account))), Some(asked)) => (Some(account.clone()), None, of == asked),
        (Some((of, Err(why))), Some(asked)) => (None, Some(why.clone()), of == asked),
    };
    KnownChoice { account, wrong, ready }
}

/// The curves of a cluster: the time of NCCL's choice and of each algorithm, and the bus bandwidth of
/// NCCL's choice.
pub(super) fn curves(account: &ClusterAccount) -> (Vec<Curve>, Vec<Curve>) {
    let curve = |name: &str, index: u32, points: Vec<(u64, u64)>| Curve {
        name: name.to_owned(),
        points,
        dashed: index > 0,
        chosen: index == 0,
        extrapolated: if index == 0 { account.beyond.clone() } else { Vec::new() },
    };
    let chosen = |of: fn(&ClusterPoint) -> u64| {
        let points = account.points.iter().map(|point| (point.bytes, of(point)));
        curve("NCCL's choice", 0, points.collect())
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in account.points.iter().flat_map(|point| &point.others) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of_algorithm = |(index, name): (u32, &&str)| {
        let times = account.points.iter().filter_map(|point| {
            let (_, ps) = point.others.iter().find(|(other, _)| other == name)?;
            Some((point.bytes, *ps))
        });
        curve(name, index, times.collect())
    };
    let mut times: Vec<Curve> = (1..).zip(&names).map(of_algorithm).collect();
    // The last is drawn above the others.
    times.push(chosen(|point| point.ps));
    (times, vec![chosen(|point| point.bus_rate)])
}

/// NCCL's choices as bands of a chart.
pub(super) fn bands(account: &ClusterAccount) -> Vec<Band> {
    let band = |band: &ChoiceBand| Band {
        from: band.from,
        to: band.to,
        name: format!("{} {}", band.algorithm, band.protocol),
    };
    account.bands.iter().map(band).collect()
}
