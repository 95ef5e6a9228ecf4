//! The debugger's part of the address: the rank that is looked at, the places to stop at, and the
//! order of what the program leaves open.

use super::{explore, stops};
use crate::nav::Nav;
use crate::route::Route;
use lockstep_core::stop::Stop;
use lockstep_sim::Order;
use yew::prelude::*;

/// An address, as the debugger reads it.
pub(super) struct Addressed {
    pub(super) stops: Vec<Stop>,
    pub(super) order: Option<Order>,
    pub(super) rank: u32,
    /// A sentence for each part of the address that cannot be.
    pub(super) wrong: Vec<String>,
}

impl Addressed {
    /// Reads an address.
    pub(super) fn read(route: &Route) -> Addressed {
        let (stops, wrong_stops) = stops::read(route.get("stop").unwrap_or_default());
        let (order, wrong_order) = explore::read(route.get("order").unwrap_or_default());
        let wrong = [wrong_stops, wrong_order].into_iter().flatten().collect();
        Addressed { stops, order, rank: route.number("rank").unwrap_or(0), wrong }
    }
}

/// The address of what is debugged, with rank, stops and order as they were written, so that what in them
/// is wrong stays where it can be read.
pub(super) fn base_of(debugged: &Route, route: &Route) -> Route {
    ["order", "stop", "rank"].into_iter().fold(debugged.clone(), |base, name| {
        match route.get(name) {
            Some(value) if !value.is_empty() => base.with(name, value),
            _ => base,
        }
    })
}

/// Looks at a rank.
pub(super) fn rank_setter(nav: &Nav) -> Callback<u32> {
    let nav = nav.clone();
    Callback::from(move |rank: u32| nav.replace(nav.route.clone().with("rank", rank)))
}

/// Sets the places to stop at.
pub(super) fn stops_setter(nav: &Nav) -> Callback<Vec<Stop>> {
    let nav = nav.clone();
    Callback::from(move |stops: Vec<Stop>| {
        let route = nav.route.clone();
        nav.replace(match stops.is_empty() {
            true => route.without("stop"),
            false => route.with("stop", stops::write(&stops)),
        });
    })
}

/// Sets the order; the moment belongs to the one before.
pub(super) fn order_setter(nav: &Nav) -> Callback<Option<Order>> {
    let nav = nav.clone();
    Callback::from(move |order: Option<Order>| {
        let route = nav.route.clone().without("moment");
        nav.replace(match order {
            None => route.without("order"),
            Some(order) => route.with("order", explore::write(&order)),
        });
    })
}
