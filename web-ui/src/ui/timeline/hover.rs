//! The item under the pointer.

use crate::app::use_shared;
use crate::explain;
use crate::ui::dropped::Texts;
use crate::ui::{facts_list, stack};
use lockstep_web_protocol::{Client, Link, Picked, Request, Response, SessionId, SessionQuestion};
use std::rc::Rc;
use yew::prelude::*;

/// A point of the timeline that is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) rank: u32,
    pub(super) lane: u32,
    pub(super) time_ps: u64,
    pub(super) slack_ps: u64,
}

/// The item under the pointer, or the clicked one, which stays.
#[derive(Clone, PartialEq)]
pub(super) struct Hovered {
    pub(super) point: Option<Point>,
    pub(super) pinned: bool,
    found: Option<(Point, Rc<Picked>)>,
    pub(super) set: Callback<(Option<Point>, bool)>,
}

/// The question for what is at a point.
fn pick(session: SessionId, point: Point, in_sight: Vec<u32>) -> Request {
    let Point { rank, lane, time_ps, slack_ps, .. } = point;
    SessionQuestion::Pick { rank, lane, time_ps, slack_ps, in_sight }.about(session)
}

impl Hovered {
    /// The arrows from and to what is under the pointer.
    pub(super) fn links(&self) -> Vec<Link> {
        let found = self.found.as_ref().filter(|_| self.point.is_some());
        found.map(|(_, picked)| picked.links.clone()).unwrap_or_default()
    }
}

/// Asks the worker for the span at a point.
pub(super) async fn picked(client: &Client, session: SessionId, point: Point) -> Option<Picked> {
    match client.ask(pick(session, point, Vec::new())).await.ok()?.response {
        Response::Picked(picked) => picked,
        _ => None,
    }
}

/// Asks the worker what is under the pointer, and for its links to the ranks in sight.
#[hook]
pub(super) fn use_hover(session: SessionId, in_sight: Vec<u32>) -> Rc<Hovered> {
    let client = use_shared().client;
    let point = use_state(|| (None::<Point>, false));
    let found = use_state(|| None::<(Point, Rc<Picked>)>);
    {
        let found = found.setter();
        use_effect_with((session, *point, in_sight), move |(session, (point, _), in_sight)| {
            let (session, point) = (*session, *point);
            let asked = point.map(|point| {
                let request = pick(session, point, in_sight.clone());
                let (asked, answer) = client.ask_with(request, &[], None);
                let found = found.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    if let Ok(answered) = answer.await
                        && let Response::Picked(picked) = answered.response
                    {
                        found.set(picked.map(|picked| (point, Rc::new(picked))));
                    }
                });
                asked
            });
            if point.is_none() {
                found.set(None);
            }
            move || drop(asked)
        });
    }
    let set = {
        let point = point.setter();
        Callback::from(move |next| point.set(next))
    };
    Rc::new(Hovered { point: point.0, pinned: point.1, found: (*found).clone(), set })
}

/// Properties of [`Hover`].
#[derive(Properties, PartialEq)]
pub(super) struct HoverProps {
    pub(super) hover: Hovered,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A call's details beside the pointer.
#[component(Hover)]
pub(super) fn hover_card(props: &HoverProps) -> Html {
    let texts = use_context::<Texts>();
    let Some((point, picked)) = &props.hover.found else { return html! {} };
    if props.hover.point.is_none() {
        return html! {};
    }
    // On the side with more room.
    let across = match point.x > props.width / 2.0 {
        true => format!("right:{:.0}px", props.width - point.x + 14.0),
        false => format!("left:{:.0}px", point.x + 14.0),
    };
    let down = match point.y > props.height / 2.0 {
        true => format!("bottom:{:.0}px", props.height - point.y + 10.0),
        false => format!("top:{:.0}px", point.y + 10.0),
    };
    let mut facts = picked.facts.clone();
    facts.push(("from".to_owned(), explain::time(picked.from_ps)));
    facts.push(("took".to_owned(), explain::took(picked.from_ps, picked.to_ps)));
    html! {
        <div class={classes!("hover", props.hover.pinned.then_some("pinned"))} style={format!("{across};{down}")}
             role="status" data-test="hover">
            <h4>{ &picked.title }</h4>
            { facts_list(&facts) }
            { stack(&picked.stack, texts.as_ref()) }
        </div>
    }
}
