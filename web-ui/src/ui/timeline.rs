//! The timeline: a lane per rank, drawn from pixels that the worker picks.
//!
//! The page never sees spans. It asks for one byte per pixel column and row, paints those in one
//! go, and asks anew when the stretch that is shown changes; until the answer comes the old pixels
//! are stretched to fit.

mod hover;
mod paint;
mod pointer;
mod rows;

use super::canvas::use_size;
use crate::app::use_shared;
use crate::explain;
use crate::palette;
use crate::protocol::{Request, Response, SessionId, Window};
use hover::{Hover, use_hover};
use lockstep_core::words::counted;
use paint::{Raster, image_of, paint};
use pointer::use_pointer;
use rows::Rows;
use std::rc::Rc;
use yew::prelude::*;

/// The stretch that is shown: picoseconds across, ranks down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    from: f64,
    to: f64,
    first_rank: f64,
}

impl Stretch {
    fn whole(fit: (u64, u64)) -> Stretch {
        let (from, to) = (fit.0 as f64, fit.1 as f64);
        Stretch { from, to: to.max(from + least_span(from)), first_rank: 0.0 }
    }

    /// Scaled by `factor` around a time, within what there is to see.
    fn zoomed(self, factor: f64, around: f64, end: f64) -> Stretch {
        let least = least_span(end.max(self.to));
        let span = ((self.to - self.from) * factor).clamp(least, least.max(end * 1.05));
        let share = (around - self.from) / (self.to - self.from);
        let from = around - share * span;
        Stretch { from, to: from + span, ..self }.moved(0.0, end)
    }

    /// Moved by so many picoseconds.
    fn moved(self, by: f64, end: f64) -> Stretch {
        let span = self.to - self.from;
        let most = (end * 1.05 - span).max(0.0);
        let from = (self.from + by).clamp(0.0, most);
        Stretch { from, to: from + span, ..self }
    }

    fn scrolled(self, by: f64, world_size: u32, visible: u32) -> Stretch {
        let most = f64::from(world_size.saturating_sub(visible));
        Stretch { first_rank: (self.first_rank + by).clamp(0.0, most), ..self }
    }
}

/// The shortest stretch at a time that can be shown, in picoseconds: a nanosecond, or where times
/// are so late that an f64 has no room for what lies between, some thousand of its steps.
fn least_span(time: f64) -> f64 {
    (time.abs() * f64::EPSILON * 8192.0).max(1000.0)
}

/// Properties of [`Timeline`].
#[derive(Properties, PartialEq)]
pub(crate) struct TimelineProps {
    pub(crate) session: SessionId,
    pub(crate) world_size: u32,
    pub(crate) lanes: u32,
    pub(crate) end_ps: u64,
    /// What is shown at first; everything if absent.
    #[prop_or_default]
    pub(crate) fit: Option<(u64, u64)>,
    #[prop_or_default]
    pub(crate) playhead_ps: Option<u64>,
    /// A click goes to a time.
    #[prop_or_default]
    pub(crate) on_seek: Option<Callback<u64>>,
    /// Ranks that the findings blame.
    #[prop_or_default]
    pub(crate) culprits: Vec<u32>,
    /// Changes whenever there is more to draw.
    #[prop_or_default]
    pub(crate) tick: u64,
    /// Rows are at least this high, in pixels, even if not all ranks are in sight then.
    #[prop_or_default]
    pub(crate) least_row: f64,
    /// Whether the end stays in sight as it moves.
    #[prop_or_default]
    pub(crate) follow: bool,
}

/// A lane per rank over time.
#[component(Timeline)]
pub(crate) fn timeline(props: &TimelineProps) -> Html {
    let shared = use_shared();
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let fit = props.fit.unwrap_or((0, props.end_ps.saturating_add(props.end_ps / 50).max(1)));
    let stretch = use_state(|| Stretch::whole(fit));
    {
        // Another trace, or a live one that has grown: everything is shown again.
        let stretch = stretch.setter();
        let again = (props.session, if props.follow { props.end_ps } else { fit.1 });
        use_effect_with(again, move |_| stretch.set(Stretch::whole(fit)));
    }
    let raster = use_raster(props, *stretch, width, height);
    let hover = use_hover(props.session);
    let now = Rc::new(Geometry {
        stretch: *stretch,
        width,
        height,
        rows: rows_of(props),
        end: props.end_ps as f64,
    });
    {
        // The playhead moves every frame, the pixels beneath it seldom: they are kept as an image.
        let image = use_memo((raster.clone(), shared.dark), |(raster, dark)| {
            raster.as_ref().and_then(|raster| image_of(raster, *dark))
        });
        let (canvas, raster, now) = (canvas.clone(), raster.clone(), now.clone());
        let (culprits, playhead) = (props.culprits.clone(), props.playhead_ps);
        let deps = (now.clone(), raster.clone(), playhead, culprits.clone(), shared.dark);
        use_effect_with(deps, move |(_, _, _, _, dark)| {
            let drawn = raster.as_deref().zip((*image).as_ref());
            paint(&canvas, &now, drawn, playhead, &culprits, *dark);
        });
    }
    let pointer =
        use_pointer(&frame, now.clone(), stretch.setter(), hover.clone(), props.on_seek.clone());
    let keys = {
        let (stretch, now) = (stretch.clone(), now.clone());
        Callback::from(move |event: KeyboardEvent| {
            if event.ctrl_key() || event.meta_key() || event.alt_key() {
                return;
            }
            let (middle, span) = ((stretch.from + stretch.to) / 2.0, stretch.to - stretch.from);
            let changed = match event.key().as_str() {
                "w" | "W" => stretch.zoomed(0.7, middle, now.end),
                "s" | "S" => stretch.zoomed(1.4, middle, now.end),
                "a" | "A" => stretch.moved(-0.15 * span, now.end),
                "d" | "D" => stretch.moved(0.15 * span, now.end),
                "0" => Stretch::whole((0, (now.end * 1.02) as u64)),
                "ArrowUp" => stretch.scrolled(-4.0, now.rows.world_size, now.visible()),
                "ArrowDown" => stretch.scrolled(4.0, now.rows.world_size, now.visible()),
                _ => return,
            };
            event.prevent_default();
            stretch.set(changed);
        })
    };
    let whole = {
        let (stretch, end) = (stretch.setter(), props.end_ps);
        Callback::from(move |_: MouseEvent| {
            stretch.set(Stretch::whole((0, end.saturating_add(end / 50).max(1))))
        })
    };
    let zoom = |factor: f64| {
        let (stretch, now) = (stretch.clone(), now.clone());
        Callback::from(move |_: MouseEvent| {
            let middle = (stretch.from + stretch.to) / 2.0;
            stretch.set(stretch.zoomed(factor, middle, now.end));
        })
    };
    let first_rank = stretch.first_rank as u32;
    let scroll = |pages: f64| {
        let (stretch, now) = (stretch.clone(), now.clone());
        let by = pages * f64::from((now.visible() / 2).max(1));
        Callback::from(move |_: MouseEvent| {
            stretch.set(stretch.scrolled(by, now.rows.world_size, now.visible()));
        })
    };
    let words = format!(
        "Timeline of {} over {}",
        counted(props.world_size, "rank"),
        explain::time(props.end_ps)
    );
    let busy = if pointer.dragging { "dragging" } else { "" };
    html! {
        <div class="timeline" data-test="timeline" data-from={format!("{:.0}", stretch.from)} data-to={format!("{:.0}", stretch.to)}
             data-drawn={raster.is_some().to_string()}>
            <div class={classes!("stage", busy)} ref={frame} tabindex="0" role="application" aria-label={words} onkeydown={keys}
                 onpointerdown={pointer.down} onpointermove={pointer.moved} onpointerup={pointer.up.clone()}
                 onpointercancel={pointer.up} onpointerleave={pointer.leave}>
                <canvas ref={canvas} style={format!("width:{width}px;height:{height}px")} />
                <Hover hover={(*hover).clone()} {width} {height} />
            </div>
            <div class="tools">
                if now.visible() < props.world_size {
                    <span class="muted mono" data-test="visible-ranks">{ format!("r{}–{} of {}", first_rank, first_rank + now.visible() - 1, props.world_size) }</span>
                    <button class="quiet" onclick={scroll(-1.0)} aria-label="Ranks before" title="Ranks before (↑, shift and wheel)" data-test="ranks-up">{ "↑" }</button>
                    <button class="quiet" onclick={scroll(1.0)} aria-label="Ranks after" title="Ranks after (↓, shift and wheel)" data-test="ranks-down">{ "↓" }</button>
                }
                <button class="quiet" onclick={zoom(0.6)} aria-label="Zoom in" title="Zoom in (W, wheel)" data-test="zoom-in">{ "+" }</button>
                <button class="quiet" onclick={zoom(1.7)} aria-label="Zoom out" title="Zoom out (S, wheel)" data-test="zoom-out">{ "−" }</button>
                <button class="quiet" onclick={whole} aria-label="Show all" title="Show all (0)" data-test="zoom-all">{ "all" }</button>
            </div>
        </div>
    }
}

/// What the canvas shows and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Geometry {
    stretch: Stretch,
    width: f64,
    height: f64,
    rows: Rows,
    end: f64,
}

fn rows_of(props: &TimelineProps) -> Rows {
    let TimelineProps { world_size, lanes, least_row: least, .. } = *props;
    Rows { world_size, lanes, least }
}

impl Geometry {
    fn visible(&self) -> u32 {
        self.rows.visible(self.height)
    }

    /// The room that the buttons take in the axis, in pixels.
    fn tools(&self) -> f64 {
        if self.visible() < self.rows.world_size { 230.0 } else { 108.0 }
    }

    fn time_at(&self, x: f64) -> f64 {
        let share = (x - self.gutter()) / (self.width - self.gutter()).max(1.0);
        self.stretch.from + share * (self.stretch.to - self.stretch.from)
    }

    fn x_of(&self, time: f64) -> f64 {
        let share = (time - self.stretch.from) / (self.stretch.to - self.stretch.from);
        self.gutter() + share * (self.width - self.gutter())
    }

    fn rank_height(&self) -> f64 {
        self.rows.rank_height(self.height)
    }

    /// The width of what stands left of the rows.
    fn gutter(&self) -> f64 {
        self.rows.gutter(self.width, self.height)
    }

    /// Rank and lane under a point.
    fn row_at(&self, y: f64) -> Option<(u32, u32)> {
        let down = (y - rows::AXIS) / self.rank_height();
        if down < 0.0 {
            return None;
        }
        let rank = self.stretch.first_rank.floor() + down.floor();
        let lane = (down.fract() * f64::from(self.rows.lanes)) as u32;
        (rank < f64::from(self.rows.world_size))
            .then_some((rank as u32, lane.min(self.rows.lanes.saturating_sub(1))))
    }
}

/// The newest pixels. One question is under way at a time; when it is answered and the stretch has
/// changed meanwhile, the next one follows.
#[hook]
fn use_raster(
    props: &TimelineProps,
    stretch: Stretch,
    width: f64,
    height: f64,
) -> Option<Rc<Raster>> {
    let client = use_shared().client;
    let raster = use_state(|| None::<Rc<Raster>>);
    let asking = use_state(|| false);
    let rows = rows_of(props);
    let gutter = rows.gutter(width, height);
    let wanted = (width > gutter).then(|| {
        let columns = ((width - gutter) * crate::dom::pixel_ratio()) as u32;
        let ranks = rows.visible(height);
        let window = Window {
            from_ps: stretch.from.max(0.0) as u64,
            to_ps: stretch.to.max(1.0) as u64,
            columns,
            first_rank: stretch.first_rank as u32,
            ranks,
            label_columns: if rows.readable(height) {
                (34.0 * crate::dom::pixel_ratio()) as u32
            } else {
                0
            },
        };
        (props.session, window, props.tick)
    });
    let drawn = raster.as_ref().map(|raster| (raster.session, raster.window, raster.tick));
    {
        let (raster, asking) = (raster.clone(), asking.clone());
        use_effect_with((wanted, drawn, *asking), move |&(wanted, drawn, busy)| {
            let Some((session, window, tick)) = wanted.filter(|_| wanted != drawn && !busy) else {
                return;
            };
            asking.set(true);
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client.ask(Request::Draw { session, window }).await;
                if let Ok(answered) = answered {
                    let bytes = answered.bytes();
                    if let Response::Drawn { rows, texts } = answered.response {
                        raster.set(Some(Rc::new(Raster {
                            session,
                            window,
                            tick,
                            rows,
                            classes: bytes,
                            texts,
                        })));
                    }
                } else {
                    // The session is gone: nothing will come of asking again.
                    let nothing = Raster {
                        session,
                        window,
                        tick,
                        rows: Vec::new(),
                        classes: Vec::new(),
                        texts: Vec::new(),
                    };
                    raster.set(Some(Rc::new(nothing)));
                }
                asking.set(false);
            });
        });
    }
    raster.as_ref().filter(|raster| raster.session == props.session).cloned()
}

/// The kinds of calls and their colours.
#[component(Legend)]
pub(crate) fn legend() -> Html {
    html! {
        <ul class="legend">
            { for (0..palette::OP_KINDS).map(|kind| html! {
                <li><i style={format!("background:{}", palette::kind_css(kind))} />{ palette::op_kind_name(kind) }</li>
            }) }
            <li><i class="stuck" />{ "never completed" }</li>
        </ul>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stretch_stays_one_however_far_it_is_zoomed(
            end in 1u64.., at in 0.0..1.0f64, factors in prop::collection::vec(0.01..3.0f64, 1..60),
        ) {
            let end = end as f64;
            let mut stretch = Stretch::whole((0, end as u64));
            for factor in factors {
                stretch = stretch.zoomed(factor, stretch.from + at * (stretch.to - stretch.from), end);
                // A pixel of the widest screen is still a step of the time.
                prop_assert!(stretch.from + (stretch.to - stretch.from) / 8000.0 > stretch.from);
                prop_assert!(stretch.from >= 0.0 && stretch.from.is_finite() && stretch.to.is_finite());
            }
        }

        #[test]
        fn whatever_is_worth_showing_first_is_a_stretch(from in any::<u64>(), more in 0u64..5) {
            let stretch = Stretch::whole((from, from.saturating_add(more)));
            prop_assert!(stretch.to - stretch.from >= 1000.0);
        }
    }
}
