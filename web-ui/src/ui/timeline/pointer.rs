//! Wheel, drag, pinch and click on the timeline.

use super::geometry::{Geometry, Stretch};
use super::hover::{Hovered, Point};
use crate::dom::Listener;
use lockstep_web_protocol::Area;
use std::cell::RefCell;
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
    /// The row of a rank whose name the pointer is on.
    pub(super) named_lane: Option<u32>,
}

/// A pointer that travels less while it is down, in CSS pixels, clicks.
const CLICK_PX: f64 = 4.0;

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
    /// Every drag marks an area, not only one with Shift.
    pub(super) measures: bool,
}

fn place(frame: &NodeRef, x: i32, y: i32) -> (f64, f64) {
    let corner = frame.cast::<Element>().map(|element| element.get_bounding_client_rect());
    let (left, top) = corner.map_or((0.0, 0.0), |corner| (corner.left(), corner.top()));
    (f64::from(x) - left, f64::from(y) - top)
}

/// The wheel zooms at the pointer, moves along, and with Shift goes from rank to rank.
#[hook]
fn use_wheel(frame: &NodeRef, latest: Rc<RefCell<Rc<Geometry>>>, set: UseStateSetter<Stretch>) {
    let frame = frame.clone();
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

/// The state that the pointer's handlers have in common.
#[derive(Clone)]
struct Stage {
    frame: NodeRef,
    now: Rc<Geometry>,
    set: UseStateSetter<Stretch>,
    held: Rc<RefCell<Held>>,
    dragging: UseStateHandle<bool>,
    named_lane: UseStateHandle<Option<u32>>,
    hover: Rc<Hovered>,
    clicks: Rc<Clicks>,
}

impl Stage {
    fn place(&self, event: &PointerEvent) -> (f64, f64) {
        place(&self.frame, event.client_x(), event.client_y())
    }

    fn down(&self, event: &PointerEvent) {
        let mut held = self.held.borrow_mut();
        let here = self.place(event);
        held.at.insert(event.pointer_id(), here);
        held.travelled = 0.0;
        let asked = event.shift_key() || self.clicks.measures;
        let marks_area = self.clicks.on_area.is_some() && asked;
        held.area = marks_area.then_some(here);
    }

    fn moved(&self, event: &PointerEvent) {
        let here = self.place(event);
        let mut held = self.held.borrow_mut();
        let Some(before) = held.at.insert(event.pointer_id(), here) else {
            // Nothing is held: the pointer only looks.
            held.at.remove(&event.pointer_id());
            if !self.hover.pinned {
                self.hover.set.emit((point(&self.now, here), false));
            }
            let on_name = self.now.rows.named(self.now.width, self.now.height).is_some()
                && here.0 < self.now.gutter();
            let row = self.now.row_at(here.1).filter(|_| on_name);
            self.named_lane.set(row.map(|(_, lane)| lane));
            return;
        };
        held.travelled += (here.0 - before.0).abs() + (here.1 - before.1).abs();
        if held.travelled < CLICK_PX {
            return;
        }
        if !*self.dragging {
            self.dragging.set(true);
            if let Some(element) = self.frame.cast::<Element>() {
                let _ = element.set_pointer_capture(event.pointer_id());
            }
        }
        if let (Some(begin), Some(on_area)) = (held.area, &self.clicks.on_area) {
            on_area.emit((self.now.area(begin, here), false));
            return;
        }
        let other = held.at.iter().find(|(id, _)| **id != event.pointer_id()).map(|(_, at)| *at);
        self.set.set(self.dragged(before, here, other));
    }

    /// The stretch after a drag from one place to another: with a second finger it zooms.
    fn dragged(&self, before: (f64, f64), here: (f64, f64), other: Option<(f64, f64)>) -> Stretch {
        let now = &self.now;
        if let Some(other) = other {
            let apart = |at: (f64, f64)| (at.0 - other.0).abs().max(8.0);
            let factor = apart(before) / apart(here);
            return now.stretch.zoomed(factor, now.time_at(other.0), now.end);
        }
        let span = now.stretch.to - now.stretch.from;
        let along = (before.0 - here.0) / now.width.max(1.0) * span;
        let down = (before.1 - here.1) / now.rank_height();
        now.stretch.moved(along, now.end).scrolled(down, now.rows.count, now.visible())
    }

    fn up(&self, event: &PointerEvent) {
        let mut held = self.held.borrow_mut();
        let was_down = held.at.remove(&event.pointer_id()).is_some();
        self.dragging.set(false);
        let here = self.place(event);
        let Clicks { on_seek, on_click, on_area, .. } = &*self.clicks;
        if let (Some(begin), Some(on_area)) = (held.area.take(), on_area)
            && held.travelled >= CLICK_PX
        {
            on_area.emit((self.now.area(begin, here), true));
            return;
        }
        if !was_down || held.travelled >= CLICK_PX {
            return;
        }
        let hover = &self.hover;
        if let Some(seek) = on_seek {
            seek.emit(self.now.time_at(here.0).max(0.0) as u64);
        }
        match on_click {
            Some(click) if !hover.pinned => click.emit(point(&self.now, here)),
            // A click keeps what was found; the next one lets go of it.
            _ if hover.pinned => hover.set.emit((None, false)),
            None if on_seek.is_none() => hover.set.emit((point(&self.now, here), true)),
            _ => {}
        }
    }

    fn left(&self) {
        if !self.hover.pinned {
            self.hover.set.emit((None, false));
        }
    }
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
    let held = use_mut_ref(Held::default);
    let dragging = use_state(|| false);
    let latest = use_mut_ref(|| now.clone());
    *latest.borrow_mut() = now.clone();
    use_wheel(frame, latest, set.clone());
    let is_dragging = *dragging;
    let named_lane = use_state_eq(|| None::<u32>);
    let is_named = *named_lane;
    let (frame, clicks) = (frame.clone(), Rc::new(clicks));
    let stage = Stage { frame, now, set, held, dragging, named_lane, hover, clicks };
    let heard = |hear: fn(&Stage, &PointerEvent)| {
        let stage = stage.clone();
        Callback::from(move |event: PointerEvent| hear(&stage, &event))
    };
    Pointer {
        down: heard(Stage::down),
        moved: heard(Stage::moved),
        up: heard(Stage::up),
        leave: heard(|stage, _| stage.left()),
        dragging: is_dragging,
        named_lane: is_named,
    }
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
