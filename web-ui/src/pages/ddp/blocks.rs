//! The gradients of a pass as blocks in their buckets, at a moment; a card tells of the one that
//! is pointed at why it waits.

use super::shelf::{Block, Shelves};
use super::words::{commas, ending, tint};
use crate::app::use_shared;
use crate::explain;
use crate::ui::canvas::{FONT, Ink, cleared, ink, use_size};
use crate::ui::facts_list;
use lockstep_torch::ddp::lab::{BucketFate, Pass};
use lockstep_web_protocol::DdpAccount;
use std::rc::Rc;
use web_sys::{CanvasRenderingContext2d, Element};
use yew::prelude::*;

/// Properties of [`Blocks`].
#[derive(Properties, PartialEq)]
pub(super) struct BlocksProps {
    pub(super) account: Rc<DdpAccount>,
    pub(super) moment: usize,
    /// The name of the setting where there are two.
    pub(super) label: Option<&'static str>,
    pub(super) selected: Option<u32>,
    pub(super) on_select: Callback<Option<u32>>,
    #[prop_or_default]
    pub(super) children: Children,
}

/// The state of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Awaited,
    /// Ready, in a bucket that is not launched.
    Ready,
    /// In a bucket that waits for the communication stream.
    Queued,
    Reducing,
    Reduced,
}

impl State {
    pub(super) fn of_bucket(bucket: &BucketFate, moment: u32) -> State {
        let [launched, starts, done] = bucket.moments;
        match () {
            () if done <= moment => State::Reduced,
            () if starts <= moment => State::Reducing,
            () if launched <= moment => State::Queued,
            () => State::Awaited,
        }
    }

    fn of(pass: &Pass, param: u32, moment: u32) -> State {
        let Some(fate) = pass.params.get(param as usize) else { return State::Awaited };
        let bucket = fate.bucket.and_then(|bucket| pass.buckets.get(bucket as usize));
        match bucket.map(|bucket| State::of_bucket(bucket, moment)) {
            Some(State::Awaited) | None if fate.ready_moment <= moment => State::Ready,
            Some(state) => state,
            None => State::Awaited,
        }
    }

    fn words(self) -> &'static str {
        match self {
            State::Awaited => "not ready yet",
            State::Ready => "ready, waits for its bucket",
            State::Queued => "launched, queued",
            State::Reducing => "being reduced",
            State::Reduced => "reduced",
        }
    }

    /// The strength of the bucket's colour, of 255.
    fn weight(self) -> u16 {
        match self {
            State::Awaited => 34,
            State::Ready => 105,
            State::Queued => 165,
            State::Reducing => 215,
            State::Reduced => 255,
        }
    }
}

/// The place of the pointer inside `frame`; outside of it where there is no frame.
fn place(frame: &NodeRef, event: &PointerEvent) -> (f64, f64) {
    let area = frame.cast::<Element>().map(|element| element.get_bounding_client_rect());
    area.map_or((-1.0, -1.0), |area| {
        (f64::from(event.client_x()) - area.left(), f64::from(event.client_y()) - area.top())
    })
}

/// Up and down select the gradient before and after; Escape lets go of it.
fn keys(shelves: &Rc<Shelves>, props: &BlocksProps) -> Callback<KeyboardEvent> {
    let (shelves, on_select) = (shelves.clone(), props.on_select.clone());
    let selected = props.selected;
    Callback::from(move |event: KeyboardEvent| {
        let at = selected.and_then(|param| shelves.blocks.iter().position(|b| b.param == param));
        let next = match event.key().as_str() {
            "ArrowDown" => at.map_or(0, |at| at + 1),
            "ArrowUp" => at.map_or(0, |at| at.saturating_sub(1)),
            "Escape" => {
                on_select.emit(None);
                return;
            }
            _ => return,
        };
        event.prevent_default();
        let found = shelves.blocks.get(next.min(shelves.blocks.len().saturating_sub(1)));
        on_select.emit(found.map(|block| block.param));
    })
}

/// Gradients in their buckets.
#[component(Blocks)]
pub(super) fn blocks(props: &BlocksProps) -> Html {
    let dark = use_shared().dark;
    let (frame, canvas) = (use_node_ref(), use_node_ref());
    let (width, height) = use_size(&frame);
    let pointed = use_state(|| None::<u32>);
    let shelves = use_memo((props.account.clone(), width, height), |(account, width, height)| {
        let bytes: Vec<u64> = account.model.params.iter().map(|param| param.bytes).collect();
        Shelves::new(&account.pass.buckets, &bytes, width.max(1.0), height.max(1.0))
    });
    let about = (*pointed).or(props.selected);
    {
        let (canvas, account, shelves) = (canvas.clone(), props.account.clone(), shelves.clone());
        let deps = (shelves, account, props.moment as u32, about, dark, (width, height));
        use_effect_with(deps, move |(shelves, account, moment, about, dark, size)| {
            if size.0 > 1.0
                && let Some(context) = cleared(&canvas, size.0, size.1)
            {
                Paint { context, shelves, account, moment: *moment, ink: ink(*dark), dark: *dark }
                    .all(*about);
            }
        });
    }
    let moved = {
        let (frame, shelves, pointed) = (frame.clone(), shelves.clone(), pointed.clone());
        Callback::from(move |event: PointerEvent| {
            let (x, y) = place(&frame, &event);
            let found = shelves.at(x, y).map(|block| block.param);
            if found != *pointed {
                pointed.set(found);
            }
        })
    };
    let leave = {
        let pointed = pointed.setter();
        Callback::from(move |_: PointerEvent| pointed.set(None))
    };
    let tapped = {
        let (frame, shelves) = (frame.clone(), shelves.clone());
        let (on_select, selected) = (props.on_select.clone(), props.selected);
        Callback::from(move |event: PointerEvent| {
            let (x, y) = place(&frame, &event);
            let found = shelves.at(x, y).map(|block| block.param);
            on_select.emit(found.filter(|found| Some(*found) != selected));
        })
    };
    let keys = keys(&shelves, props);
    let close = props.on_select.reform(|_: MouseEvent| None);
    let account = &props.account;
    let shown = shelves.blocks.len();
    // Those that DDP leaves alone or delays are in no bucket.
    let all: usize = account.pass.buckets.iter().map(|bucket| bucket.params.len()).sum();
    html! {
        <div class="blocks" data-test={format!("blocks-{}", props.label.unwrap_or("A"))} data-moment={props.moment.to_string()}
             data-shown={shown.to_string()}>
            <header>
                if let Some(label) = props.label { <span class="badge side-badge">{ label }</span> }
                { props.children.clone() }
                <p class="muted small-print" data-test={format!("bytes-{}", props.label.unwrap_or("A"))}>{ words(account) }</p>
            </header>
            <div class="shelf" ref={frame} tabindex="0" role="application" onkeydown={keys}
                 aria-label={format!("{all} gradients in {} buckets; up and down go from one to the next", account.pass.buckets.len())}
                 onpointermove={moved} onpointerleave={leave} onpointerup={tapped}>
                <canvas ref={canvas} style={format!("width:{width}px;height:{height}px")} />
                // Of the two settings the first tells; the other does when it is pointed at.
                if let Some(block) = about.filter(|_| props.label != Some("B") || pointed.is_some()).and_then(|param| shelves.of(param)) {
                    { card(account, block, &shelves, props.moment as u32, (width, height), pointed.is_none().then(|| close.clone())) }
                }
            </div>
            if props.label != Some("B") {
                <p class="muted small-print">{ "Pale: awaited. Tinted: ready, waits for its bucket. Underlined: on its way. Solid: reduced. In front of a bucket stand its number and how many of its gradients are ready (⇄ on its way, ✓ reduced). A block is as wide as the square root of its bytes; point at one to read why it waits." }</p>
            }
            if shown < all { <p class="muted small-print">{ format!("{shown} of {all} gradients have room here; the table below names every bucket.") }</p> }
        </div>
    }
}

/// The buckets in bytes, and the step in time.
fn words(account: &DdpAccount) -> String {
    let list = |bytes: &[u64]| {
        let shown: Vec<String> = bytes.iter().take(6).map(|bytes| commas(*bytes)).collect();
        match (shown.join(" / "), bytes.len()) {
            (shown, 0..=6) => format!("{shown} bytes"),
            (shown, count) => format!("{count} buckets of {shown} / … bytes"),
        }
    };
    let buckets = match &account.rebuilt {
        Some(rebuilt) => format!("{} at first; rebuilt: {}", list(&account.initial), list(rebuilt)),
        None if account.raised.is_some() => {
            format!("{}, not rebuilt before DDP raises", list(&account.initial))
        }
        None => format!("{}, never rebuilt", list(&account.initial)),
    };
    format!("{buckets} · {}", figures(account))
}

/// The figures of a step.
fn figures(account: &DdpAccount) -> String {
    let summary = &account.summary;
    let waiting = u128::from(summary.waiting_ps()) * 1000;
    let permille = (waiting + u128::from(summary.step_ps) / 2) / u128::from(summary.step_ps.max(1));
    let step = if account.cut_short { "a step, up to where DDP raises," } else { "a step" };
    format!(
        "{step} takes {}, {} of it ({}.{} %) waiting for communication",
        explain::time(summary.step_ps),
        explain::time(summary.waiting_ps()),
        permille / 10,
        permille % 10
    )
}

/// The facts about a gradient, beside its block; `close` takes away what was chosen, and stays.
fn card(
    account: &DdpAccount,
    block: &Block,
    shelves: &Shelves,
    moment: u32,
    (width, height): (f64, f64),
    close: Option<Callback<MouseEvent>>,
) -> Html {
    let Some(param) = account.model.params.get(block.param as usize) else { return html! {} };
    let sizes: Vec<String> = param.shape.iter().map(u64::to_string).collect();
    let state = State::of(&account.pass, block.param, moment);
    let facts = vec![
        ("shape".to_owned(), format!("{} [{}]", param.dtype, sizes.join(", "))),
        (
            "size".to_owned(),
            format!("{} bytes ({})", commas(param.bytes), explain::bytes(param.bytes)),
        ),
        ("now".to_owned(), state.words().to_owned()),
    ];
    let across = match block.x > width / 2.0 {
        // On a phone it takes all there is.
        _ if width < 480.0 => "left:0;right:0;width:auto".to_owned(),
        true => format!("right:{:.0}px", (width - block.x - block.width).max(0.0)),
        false => format!("left:{:.0}px", block.x),
    };
    let (top, foot) = (shelves.top(block.row), shelves.top(block.row) + shelves.high);
    let down = match top > height / 2.0 {
        true => format!("bottom:{:.0}px", height - top + 6.0),
        false => format!("top:{:.0}px", foot + 6.0),
    };
    // What is pressed on the card is not meant for the blocks under it.
    let own = Callback::from(|event: PointerEvent| event.stop_propagation());
    html! {
        <div class={classes!("hover", close.is_some().then_some("pinned"))} style={format!("{across};{down}")} role="status"
             onpointermove={own.clone()} onpointerup={own} data-test="param-card" data-param={block.param.to_string()} data-bucket={block.bucket.to_string()}>
            <h4 class="mono">{ &param.name }</h4>
            if let Some(onclick) = close {
                <button class="quiet close" {onclick} aria-label="Close" data-test="param-close">{ "×" }</button>
            }
            { facts_list(&facts) }
            <ol class="why">{ for account.pass.why(&account.model, &account.setting, block.param).into_iter().map(|line| html! { <li>{ line }</li> }) }</ol>
        </div>
    }
}

/// Painting the shelves.
struct Paint<'a> {
    context: CanvasRenderingContext2d,
    shelves: &'a Shelves,
    account: &'a DdpAccount,
    moment: u32,
    ink: Ink,
    dark: bool,
}

impl Paint<'_> {
    fn all(&self, about: Option<u32>) {
        let pass = &self.account.pass;
        let high = self.shelves.high;
        self.context.set_font(FONT);
        self.context.set_text_baseline("middle");
        for tag in &self.shelves.tags {
            let Some(bucket) = pass.buckets.get(tag.bucket as usize) else { continue };
            self.tag(tag.bucket, bucket, tag.x, self.shelves.top(tag.row), tag.width);
        }
        // Hairlines of one state and bucket are one stroke.
        let blocks = &self.shelves.blocks;
        let mut from = 0;
        while let Some(first) = blocks.get(from) {
            let state = State::of(pass, first.param, self.moment);
            let mut to = from + 1;
            if first.width < 3.0 {
                while blocks.get(to).is_some_and(|next| {
                    next.width < 3.0
                        && (next.row, next.bucket) == (first.row, first.bucket)
                        && State::of(pass, next.param, self.moment) == state
                }) {
                    to += 1;
                }
            }
            let last = blocks.get(to - 1).unwrap_or(first);
            self.block(first, last.x + last.width - first.x, state, high);
            from = to;
        }
        if let Some(block) = about.and_then(|param| self.shelves.of(param)) {
            self.context.set_stroke_style_str(self.ink.text);
            self.context.set_line_width(2.0);
            let top = self.shelves.top(block.row);
            self.context.stroke_rect(
                block.x + 0.5,
                top + 1.0,
                (block.width - 1.5).max(2.0),
                high - 2.0,
            );
        }
    }

    fn block(&self, block: &Block, width: f64, state: State, high: f64) {
        let (context, top) = (&self.context, self.shelves.top(block.row));
        let inside = if width >= 3.0 { width - 1.0 } else { width };
        context.set_fill_style_str(&tint(block.bucket, state.weight(), self.dark));
        context.fill_rect(block.x, top, inside, high);
        if width < 5.0 || high < 8.0 {
            return;
        }
        match state {
            State::Awaited => {
                context.set_stroke_style_str(&tint(block.bucket, 90, self.dark));
                context.set_line_width(1.0);
                context.stroke_rect(block.x + 0.5, top + 0.5, inside - 1.0, high - 1.0);
            }
            // Not by colour alone: what is on its way has a stripe along its foot.
            State::Queued | State::Reducing => {
                context.set_fill_style_str(self.ink.text);
                let part = if state == State::Queued { 2.0 } else { 4.0 };
                context.fill_rect(block.x, top + high - part, inside, part);
            }
            State::Ready | State::Reduced => {}
        }
        if width >= 52.0 && high >= 13.0 {
            self.name(block, inside, state, top, high);
        }
    }

    fn name(&self, block: &Block, width: f64, state: State, top: f64, high: f64) {
        let Some(param) = self.account.model.params.get(block.param as usize) else { return };
        let name = ending(&param.name, ((width - 8.0) / 6.7) as usize);
        let solid = matches!(state, State::Reducing | State::Reduced);
        self.context.set_fill_style_str(match solid {
            true => crate::palette::piece_ink(crate::palette::bucket_piece(block.bucket)),
            false => self.ink.text,
        });
        let two = high >= 34.0;
        let middle = top + high / 2.0 - if two { 7.0 } else { 0.0 };
        let _ = self.context.fill_text(&name, block.x + 4.0, middle);
        if two {
            let _ =
                self.context.fill_text(&explain::bytes(param.bytes), block.x + 4.0, middle + 14.0);
        }
    }

    /// A bucket's number, and what it is at.
    fn tag(&self, number: u32, bucket: &BucketFate, x: f64, top: f64, width: f64) {
        let (context, high) = (&self.context, self.shelves.high);
        context.set_fill_style_str(&tint(number, 255, self.dark));
        context.fill_rect(x, top, width.min(4.0), high);
        if width < 20.0 {
            return;
        }
        let state = State::of_bucket(bucket, self.moment);
        context.set_fill_style_str(self.ink.text);
        let two = high >= 30.0;
        let middle = top + high / 2.0 - if two { 7.0 } else { 0.0 };
        let _ = context.fill_text(&number.to_string(), x + 7.0, middle);
        if two {
            let sign = match state {
                State::Reduced => "✓".to_owned(),
                State::Reducing => "⇄".to_owned(),
                State::Queued => "…".to_owned(),
                State::Awaited | State::Ready => {
                    let there = bucket.params.iter().filter(|param| {
                        self.account
                            .pass
                            .params
                            .get(**param as usize)
                            .is_some_and(|fate| fate.ready_moment <= self.moment)
                    });
                    there.count().to_string()
                }
            };
            context.set_fill_style_str(self.ink.muted);
            let _ = context.fill_text(&sign, x + 7.0, middle + 14.0);
        }
    }
}
