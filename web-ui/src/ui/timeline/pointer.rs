//! Wheel, drag, pinch and click on the timeline.

use super::geometry::{Geometry, Stretch};
use super::hover::{Hovered, Point};
use crate::dom::Listener;
use lockstep_web_protocol::Area;
use std::collections::BTreeMap;
use std::rc::Rc;
use web_sys::{Element, PointerEvent, WheelEvent};
use yew::prelude::*;

/// The handlers of a timeline's stage.
pub(super) struct Pointer {
    pub(super) down: Callback<PointerEvent>,
    pub(super) moved: Callback<PointerEvent>,
    pub(super) up: Callback<PointerEvent>,
    pub(super) leave: Callback<PointerEvent>,
    pub(super) dragging: bool,
}

/// Fingers and buttons that are down.
#[derive(Default)]
struct Held {
    at: BTreeMap<i32, (f64, f64)>,
    travelled: f64,
    /// The corner at which the area begins that is being marked.
    area: Option<(f64, f64)>,
}

/// The handlers of clicks and drags; with none of them the pointer moves the timeline.
pub(super) struct Clicks {
    /// A click goes to a time.
    pub(super) on_seek: Option<Callback<u64>>,
    /// A click on a point, or beside everything.
    pub(super) on_click: Option<Callback<Option<Point>>>,
    /// An area, as it grows and when it is let go.
    pub(super) on_area: Option<Callback<(Area, bool)>>,
}

fn place(frame: &NodeRef, x: i32, y: i32) -> (f64, f64) {
    let corner = frame.cast::<Element>().map(|element| element.get_bounding_client_rect());
    let (left, top) = corner.map_or((0.0, 0.0), |corner| (corner.left(), corner.top()));
    (f64::from(x) - left, f64::from(y) - top)
}

/// Makes the handlers.
#[hook]
pub(super) fn use_pointer(
    frame: &NodeRef,
    now: Rc<Geometry>,
    set: UseStateSetter<Stretch>,
    hover: Rc<Hovered>,
    clicks: Clicks,
) -> Pointer {
    let Clicks { on_seek, on_click, on_area } = clicks;
    let held = use_mut_ref(Held::default);
    let dragging = use_state(|| false);
    let latest = use_mut_ref(|| now.clone());
    *latest.borrow_mut() = now.clone();
    {
        let (frame, latest, set) = (frame.clone(), latest.clone(), set.clone());
        use_effect_with((), move |()| {
            let heard = frame.cast::<Element>().map(|element| {
                Listener::on(&element, "wheel", move |event: WheelEvent| {
                    event.prevent_default();
                    let now = latest.borrow().clone();
                    let (x, _) = place(&frame, event.client_x(), event.client_y());
                    let span = now.stretch.to - now.stretch.from;
                    let unit = if event.delta_mode() == 0 { 1.0 } else { 24.0 };
                    let (dx, dy) = (event.delta_x() * unit, event.delta_y() * unit);
                    set.set(if event.shift_key() {
                        now.stretch.scrolled((dy + dx) / 24.0, now.rows.count, now.visible())
                    } else if dx.abs() > dy.abs() {
                        now.stretch.moved(dx / now.width.max(1.0) * span, now.end)
                    } else {
                        let factor = 1.0022f64.powf(dy.clamp(-300.0, 300.0));
                        now.stretch.zoomed(factor, now.time_at(x), now.end)
                    });
                })
            });
            move || drop(heard)
        });
    }
    let marks_area = on_area.is_some();
    let down = {
        let (frame, held) = (frame.clone(), held.clone());
        Callback::from(move |event: PointerEvent| {
            let mut held = held.borrow_mut();
            held.at.insert(event.pointer_id(), place(&frame, event.client_x(), event.client_y()));
            held.travelled = 0.0;
            let here = held.at.get(&event.pointer_id()).copied();
            held.area = here.filter(|_| marks_area && event.shift_key());
        })
    };
    let moved = {
        let (frame, held, dragging, hover) =
            (frame.clone(), held.clone(), dragging.clone(), hover.clone());
        let (now, set, on_area) = (now.clone(), set.clone(), on_area.clone());
        Callback::from(move |event: PointerEvent| {
            let here = place(&frame, event.client_x(), event.client_y());
            let mut held = held.borrow_mut();
            let span = now.stretch.to - now.stretch.from;
            let wide = now.width.max(1.0);
            let Some(before) = held.at.insert(event.pointer_id(), here) else {
                // Nothing is held: the pointer only looks.
                held.at.remove(&event.pointer_id());
                if !hover.pinned {
                    hover.set.emit((point(&now, here), false));
                }
                return;
            };
            let (dx, dy) = (here.0 - before.0, here.1 - before.1);
            held.travelled += dx.abs() + dy.abs();
            if held.travelled < 4.0 {
                return;
            }
            if !*dragging {
                dragging.set(true);
                if let Some(element) = frame.cast::<Element>() {
                    let _ = element.set_pointer_capture(event.pointer_id());
                }
            }
            if let (Some(begin), Some(on_area)) = (held.area, &on_area) {
                on_area.emit((now.area(begin, here), false));
                return;
            }
            let other =
                held.at.iter().find(|(id, _)| **id != event.pointer_id()).map(|(_, at)| *at);
            set.set(match other {
                Some(other) => {
                    let (old, new) =
                        ((before.0 - other.0).abs().max(8.0), (here.0 - other.0).abs().max(8.0));
                    now.stretch.zoomed(old / new, now.time_at(other.0), now.end)
                }
                None => now.stretch.moved(-dx / wide * span, now.end).scrolled(
                    -dy / now.rank_height(),
                    now.rows.count,
                    now.visible(),
                ),
            });
        })
    };
    let up = {
        let (frame, held, dragging, hover) =
            (frame.clone(), held.clone(), dragging.clone(), hover.clone());
        let now = now.clone();
        Callback::from(move |event: PointerEvent| {
            let mut held = held.borrow_mut();
            let was_down = held.at.remove(&event.pointer_id()).is_some();
            dragging.set(false);
            if let (Some(begin), Some(on_area)) = (held.area.take(), &on_area)
                && held.travelled >= 4.0
            {
                let here = place(&frame, event.client_x(), event.client_y());
                on_area.emit((now.area(begin, here), true));
                return;
            }
            if !was_down || held.travelled >= 4.0 {
                return;
            }
            let here = place(&frame, event.client_x(), event.client_y());
            match (&on_seek, &on_click) {
                (Some(seek), _) => seek.emit(now.time_at(here.0).max(0.0) as u64),
                (None, Some(click)) if !hover.pinned => click.emit(point(&now, here)),
                // A click keeps what was found; the next one lets go of it.
                _ if hover.pinned => hover.set.emit((None, false)),
                _ => hover.set.emit((point(&now, here), true)),
            }
        })
    };
    let leave = {
        let hover = hover.clone();
        Callback::from(move |_: PointerEvent| {
            if !hover.pinned {
                hover.set.emit((None, false));
            }
        })
    };
    Pointer { down, moved, up, leave, dragging: *dragging }
}

fn point(now: &Geometry, (x, y): (f64, f64)) -> Option<Point> {
    let (rank, lane) = now.row_at(y)?;
    let time = now.time_at(x);
    let slack = (now.stretch.to - now.stretch.from) / now.width.max(1.0) * 3.0;
    (time >= 0.0 && x >= now.gutter()).then_some(Point {
        x,
        y,
        rank,
        lane,
        time_ps: time as u64,
        slack_ps: slack as u64,
    })
}
