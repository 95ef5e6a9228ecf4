//! The debugger's part of the address: the rank that is looked at, the places to stop at, and the
//! order of what the program leaves open.

use super::super::workbench::KEPT;
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

/// The parameters that keep their text, even if it cannot be read: order, stops and rank, and the reader's marks. Errors
/// in them stay visible in the address.
pub(super) const BESIDE: &[&str] = {
    let [call, query, pins, notes, together, shown] = KEPT;
    &["order", "stop", "rank", call, query, pins, notes, together, shown]
};

/// Looks at a rank.
pub(super) fn rank_setter(nav: &Nav) -> Callback<u32> {
    let nav = nav.clone();
    Callback::from(move |rank: u32| nav.change(|route| route.with("rank", rank)))
}

/// Sets the places to stop at.
pub(super) fn stops_setter(nav: &Nav) -> Callback<Vec<Stop>> {
    let nav = nav.clone();
    Callback::from(move |stops: Vec<Stop>| {
        nav.change(|route| match stops.is_empty() {
            true => route.without("stop"),
            false => route.with("stop", stops::write(&stops)),
        });
    })
}

/// Sets the order; the moment belongs to the one before.
pub(super) fn order_setter(nav: &Nav) -> Callback<Option<Order>> {
    let nav = nav.clone();
    Callback::from(move |order: Option<Order>| {
        nav.change(|route| {
            let route = route.without("moment");
            match order {
                None => route.without("order"),
                Some(order) => route.with("order", explore::write(&order)),
            }
        });
    })
}
