//! Looking for an order of what a program leaves open in which it hangs, and stepping through it.

use crate::app::use_shared;
use crate::explain;
use crate::ui::{prose, use_in_sight};
use lockstep_core::plan::Plan;
use lockstep_core::plan::remark::STORE_GROUP;
use lockstep_diagnosis::not_followed;
use lockstep_sim::explore::Verdict;
use lockstep_sim::{Bounds, Choice, Devices, Explored, Order};
use lockstep_web_protocol::{Asked, Machine, Progress};
use lockstep_web_protocol::{CANCELLED, Reached, Request, Response};
use std::rc::Rc;
use yew::prelude::*;

/// Choices that are told one by one.
const MAX_TOLD: usize = 12;

/// The order in an address, and what in it is none.
pub(super) fn read(text: &str) -> (Option<Order>, Option<String>) {
    let (devices, choices) = match text.split_once('/') {
        _ if text.is_empty() => return (None, None),
        Some(("aside", choices)) => (Devices::SideBySide, choices),
        Some(("one", choices)) => (Devices::OneAtATime, choices),
        _ => {
            let shown: String = text.chars().take(60).collect();
            let why = format!("{shown:?} is no order: it begins with aside/ or one/.");
            return (None, Some(why));
        }
    };
    let parts = choices.split(',').filter(|part| !part.is_empty());
    match parts.map(str::parse::<Choice>).collect::<Result<Vec<_>, _>>() {
        Ok(choices) => (Some(Order { devices, choices }), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// An order as an address has it.
pub(super) fn write(order: &Order) -> String {
    let choices: Vec<String> = order.choices.iter().map(ToString::to_string).collect();
    let devices = match order.devices {
        Devices::SideBySide => "aside",
        Devices::OneAtATime => "one",
    };
    format!("{devices}/{}", choices.join(","))
}

/// Properties of [`Explore`].
#[derive(Properties, PartialEq)]
pub(super) struct ExploreProps {
    pub(super) plan: Rc<Plan>,
    pub(super) machine: Machine,
    /// The order that is shown, if it is not the simulator's own.
    pub(super) order: Option<Order>,
    /// Shows another one, or the simulator's own.
    pub(super) on_order: Callback<Option<Order>>,
}

/// The progress of a search.
#[derive(Clone, PartialEq)]
enum Stage {
    Idle,
    Searching(String),
    Over(Vec<Explored>),
    Failed(String),
}

/// The search, what it found, and the way there.
#[component(Explore)]
pub(super) fn explore(props: &ExploreProps) -> Html {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Idle);
    let over = use_in_sight(matches!(*stage, Stage::Over(_) | Stage::Failed(_)).then_some(()));
    let asked = use_mut_ref(Asked::default);
    {
        // Another plan has other orders.
        let (stage, asked) = (stage.setter(), asked.clone());
        use_effect_with((props.plan.clone(), props.machine), move |_| {
            stage.set(Stage::Idle);
            move || *asked.borrow_mut() = Asked::default()
        });
    }
    let search = {
        let (stage, plan, machine) = (stage.setter(), props.plan.clone(), props.machine);
        Callback::from(move |_: MouseEvent| {
            let (stage, plan, client, asked) =
                (stage.clone(), plan.clone(), client.clone(), asked.clone());
            stage.set(Stage::Searching("Searching…".to_owned()));
            wasm_bindgen_futures::spawn_local(async move {
                let mut over = Vec::new();
                for devices in Devices::worth_exploring(&plan) {
                    let bounds = Bounds { devices, ..Bounds::default() };
                    let request =
                        Request::Explore { plan: Box::new((*plan).clone()), machine, bounds };
                    let progress: Progress = {
                        let stage = stage.clone();
                        Rc::new(move |Reached { done, total, .. }| {
                            let words = format!("Searching: {done} of at most {total} states…");
                            stage.set(Stage::Searching(words));
                        })
                    };
                    let (held, answer) = client.ask_with(request, &[], Some(progress));
                    *asked.borrow_mut() = held;
                    match answer.await.map(|answered| answered.response) {
                        Ok(Response::Explored(explored)) => {
                            let fails = matches!(explored.verdict, Verdict::Fails { .. });
                            over.push(*explored);
                            if fails {
                                break;
                            }
                        }
                        Ok(_) => {}
                        Err(why) if why == CANCELLED => return stage.set(Stage::Idle),
                        Err(why) => return stage.set(Stage::Failed(why)),
                    }
                }
                stage.set(Stage::Over(over));
            });
        })
    };
    let own = props.on_order.reform(|_: MouseEvent| None);
    html! {
        <section ref={over} class="explore" data-test="explore">
            <h3>{ "Other orders" }</h3>
            if let Some(order) = &props.order {
                <p class="notice" data-test="shown-order">{ format!("What is shown is one order of many: {}.", devices(order.devices, &props.plan)) }
                    { " " }<button onclick={own} data-test="own-order">{ "Show the simulator's own" }</button></p>
                { told(order, &props.plan) }
            } else {
                { match &*stage {
                    Stage::Idle => html! {
                        <p class="muted"><button onclick={search} data-test="explore-start">{ "Explore" }</button>
                            { " Is there an order of what the program leaves open in which it hangs: which send a receive from any source takes, which group's call a GPU begins first?" }</p>
                    },
                    Stage::Searching(words) => html! { <p class="muted" aria-live="polite">{ words }</p> },
                    Stage::Failed(why) => html! { <p class="bad" role="alert">{ prose(why) }</p> },
                    Stage::Over(searches) => searches.iter().map(|explored| found(explored, props)).collect(),
                } }
            }
        </section>
    }
}

fn devices(devices: Devices, plan: &Plan) -> &'static str {
    match devices {
        Devices::SideBySide if Devices::worth_exploring(plan).len() < 2 => {
            "only receives have a choice: from any source, and whether a send is there before it is asked for"
        }
        Devices::SideBySide => "GPUs carry out calls of several groups side by side",
        Devices::OneAtATime => "each GPU carries out one collective at a time",
    }
}

/// Programs are executed before: what a store has told one stays so.
fn stores(plan: &Plan) -> &'static str {
    let asked = plan.groups.iter().any(|group| group.desc() == STORE_GROUP);
    if asked { " of its calls; who is first at a store was not varied" } else { "" }
}

fn found(explored: &Explored, props: &ExploreProps) -> Html {
    let bounds = explored.bounds;
    let within =
        format!("{} of at most {} states, seed {}", explored.states, bounds.states, bounds.seed);
    let where_ = devices(bounds.devices, &props.plan);
    let (verdict, body) = match &explored.verdict {
        Verdict::Completes if !not_followed(&props.plan).is_empty() => (
            "unknown",
            html! {
                <>
                    <p>{ format!("Where {where_}, every order of what was followed completes{}. Not all of the program was followed:", stores(&props.plan)) }</p>
                    <ul class="unseen">{ for not_followed(&props.plan).into_iter().map(|why| html! { <li>{ prose(&why) }</li> }) }</ul>
                </>
            },
        ),
        Verdict::Completes => (
            "completes",
            html! { <p class="good">{ format!("Where {where_}, it completes in every order{}.", stores(&props.plan)) }</p> },
        ),
        Verdict::Unknown => (
            "unknown",
            html! { <p>{ prose(&format!("Where {where_}, no order was found in which it hangs; not all were looked at. `lockstep explore --states` looks at more.")) }</p> },
        ),
        Verdict::Fails { order, outcome, common } => {
            let show = {
                let order = order.clone();
                props.on_order.reform(move |_: MouseEvent| Some(order.clone()))
            };
            let body = html! {
                <>
                    <p class="bad">{ format!("Where {where_}, there is an order in which it does not complete: {}", explain::ending(outcome)) }</p>
                    { told(order, &props.plan) }
                    if !order.choices.is_empty() { <p>{ common.words() }</p> }
                    <button class="primary" onclick={show} data-test="show-order">{ "Step through it" }</button>
                </>
            };
            ("fails", body)
        }
    };
    html! { <div data-test="explored" data-verdict={verdict}>{ body }<p class="muted small-print">{ within }</p></div> }
}

fn told(order: &Order, plan: &Plan) -> Html {
    if order.choices.is_empty() {
        return html! { <p class="muted">{ "Nothing is left open: every run of it goes like this." }</p> };
    }
    html! {
        <ol class="choices">
            { for order.choices.iter().take(MAX_TOLD).map(|choice| html! { <li>{ choice.words(plan) }</li> }) }
            if order.choices.len() > MAX_TOLD {
                <li class="muted">{ format!("and {} more", order.choices.len() - MAX_TOLD) }</li>
            }
        </ol>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_way_through_an_address() {
        let text = "one/start:1:2,take:0:1:7:3";
        let (order, wrong) = read(text);
        assert_eq!(wrong, None);
        assert_eq!(write(&order.unwrap()), text);
        assert_eq!(read("aside/").0, Some(Order::default()));
        assert_eq!(read(""), (None, None));
        for wrong in ["two/start:1:2", "one/begin:1", "start:1:2"] {
            assert!(read(wrong).1.is_some(), "{wrong}");
        }
    }
}
