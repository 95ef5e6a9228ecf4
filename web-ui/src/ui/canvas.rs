//! Canvases that are as sharp as the screen and as large as their place.

use crate::dom;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;
use web_sys::{CanvasRenderingContext2d, Element, HtmlCanvasElement, ResizeObserver};
use yew::prelude::*;

/// The size of an element's inside in CSS pixels, whenever it changes.
#[hook]
pub(crate) fn use_size(node: &NodeRef) -> (f64, f64) {
    let size = use_state(|| (0.0, 0.0));
    let (set, node) = (size.clone(), node.clone());
    use_effect_with((), move |()| {
        let element = node.cast::<Element>();
        let seen = {
            let element = element.clone();
            Closure::<dyn FnMut()>::new(move || {
                if let Some(element) = &element {
                    set.set((
                        f64::from(element.client_width()),
                        f64::from(element.client_height()),
                    ));
                }
            })
        };
        let observer = ResizeObserver::new(seen.as_ref().unchecked_ref()).ok();
        if let (Some(observer), Some(element)) = (&observer, &element) {
            observer.observe(element);
        }
        move || {
            if let Some(observer) = observer {
                observer.disconnect();
            }
            drop(seen);
        }
    });
    *size
}

/// A cleared canvas of so many CSS pixels, scaled so that one unit is one of them.
pub(crate) fn cleared(node: &NodeRef, width: f64, height: f64) -> Option<CanvasRenderingContext2d> {
    let canvas: HtmlCanvasElement = node.cast()?;
    let context = context_of(&canvas)?;
    let ratio = dom::pixel_ratio();
    let (wide, high) = ((width * ratio).round() as u32, (height * ratio).round() as u32);
    if canvas.width() != wide || canvas.height() != high {
        canvas.set_width(wide);
        canvas.set_height(high);
    }
    let _ = context.set_transform(ratio, 0.0, 0.0, ratio, 0.0, 0.0);
    context.clear_rect(0.0, 0.0, width, height);
    Some(context)
}

/// The start of a column's text: at its middle, as far as the canvas has room for its digits.
pub(crate) fn inside(text: &str, middle: f64, width: f64) -> f64 {
    /// The greatest width of a digit.
    const DIGIT: f64 = 7.0;
    (middle - 6.0).min(width - DIGIT * text.chars().count() as f64).max(0.0)
}

/// The drawing context of a canvas.
pub(crate) fn context_of(canvas: &HtmlCanvasElement) -> Option<CanvasRenderingContext2d> {
    canvas.get_context("2d").ok().flatten()?.dyn_into().ok()
}

/// The page's colours that canvases use (`assets/style.css` has the same).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ink {
    pub(crate) text: &'static str,
    pub(crate) muted: &'static str,
    pub(crate) line: &'static str,
    pub(crate) empty: &'static str,
    pub(crate) accent: &'static str,
    pub(crate) bad: &'static str,
    /// All of it is there.
    pub(crate) done: &'static str,
}

/// The colours for light or dark ground.
pub(crate) fn ink(dark: bool) -> Ink {
    match dark {
        true => Ink {
            text: "#e6ebf1",
            muted: "#93a1b0",
            line: "#2b3542",
            empty: "#1f2833",
            accent: "#6ea8fe",
            bad: "#ff7a5c",
            done: "#46c99d",
        },
        false => Ink {
            text: "#17212b",
            muted: "#5a6776",
            line: "#dbe1e8",
            empty: "#edf0f4",
            accent: "#1d4ed8",
            bad: "#c2361a",
            done: "#0b7a5b",
        },
    }
}

/// The font of canvas texts.
pub(crate) const FONT: &str = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
