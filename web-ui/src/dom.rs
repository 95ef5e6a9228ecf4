//! The browser, as far as the page touches it: listeners, frames, downloads.

pub(crate) use lockstep_web_protocol::browser::{now_ms, sleep_ms, words_of};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;
use web_sys::{
    AddEventListenerOptions, Document, Element, Event, EventTarget, ScrollIntoViewOptions,
    ScrollLogicalPosition, Window,
};

/// The page's window. Called on the page's side only, where there is one.
#[allow(clippy::expect_used, reason = "a page without a window is no page")]
pub(crate) fn window() -> Window {
    web_sys::window().expect("the page runs in a window")
}

/// The page's document.
#[allow(clippy::expect_used, reason = "a page without a document is no page")]
pub(crate) fn document() -> Document {
    window().document().expect("the page has a document")
}

/// Scrolls an element into view; does nothing if it is in view.
pub(crate) fn bring_into_sight(element: &Element) {
    let options = ScrollIntoViewOptions::new();
    options.set_block(ScrollLogicalPosition::Nearest);
    element.scroll_into_view_with_scroll_into_view_options(&options);
}

/// Listens until it is dropped.
pub(crate) struct Listener {
    target: EventTarget,
    name: &'static str,
    closure: Closure<dyn FnMut(Event)>,
}

impl Listener {
    /// Calls `heard` for every event `name` on `target`.
    pub(crate) fn on<E: JsCast>(
        target: &EventTarget,
        name: &'static str,
        mut heard: impl FnMut(E) + 'static,
    ) -> Listener {
        let closure = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            heard(event.unchecked_into::<E>());
        });
        let options = AddEventListenerOptions::new();
        // A wheel listener must be able to keep the page from scrolling.
        options.set_passive(false);
        let _ = target.add_event_listener_with_callback_and_add_event_listener_options(
            name,
            closure.as_ref().unchecked_ref(),
            &options,
        );
        Listener { target: target.clone(), name, closure }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let heard = self.closure.as_ref().unchecked_ref();
        let _ = self.target.remove_event_listener_with_callback(self.name, heard);
    }
}

type FrameClosure = Closure<dyn FnMut(f64)>;

/// Calls back once a frame until it is dropped.
pub(crate) struct Frames {
    id: Rc<RefCell<i32>>,
    closure: Rc<RefCell<Option<FrameClosure>>>,
}

impl Frames {
    /// `each` is given the frame's time in milliseconds.
    pub(crate) fn start(mut each: impl FnMut(f64) + 'static) -> Frames {
        let id = Rc::new(RefCell::new(0));
        let closure: Rc<RefCell<Option<FrameClosure>>> = Rc::default();
        let (again, next_id) = (Rc::downgrade(&closure), id.clone());
        *closure.borrow_mut() = Some(Closure::new(move |time: f64| {
            each(time);
            if let Some(closure) = again.upgrade()
                && let Some(closure) = closure.borrow().as_ref()
            {
                *next_id.borrow_mut() = request_frame(closure);
            }
        }));
        if let Some(closure) = closure.borrow().as_ref() {
            *id.borrow_mut() = request_frame(closure);
        }
        Frames { id, closure }
    }
}

fn request_frame(closure: &FrameClosure) -> i32 {
    window().request_animation_frame(closure.as_ref().unchecked_ref()).unwrap_or_default()
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _ = window().cancel_animation_frame(*self.id.borrow());
        // A frame may be what drops us: the closure that runs must outlive its own call.
        if let Ok(mut closure) = self.closure.try_borrow_mut()
            && let Some(closure) = closure.take()
        {
            let _ = Closure::once_into_js(move || drop(closure))
                .dyn_into::<js_sys::Function>()
                .map(|dropped| window().set_timeout_with_callback(&dropped));
        }
    }
}

/// Gives the first element that a CSS selector names the focus.
pub(crate) fn focus(selector: &str) {
    let found = document().query_selector(selector).ok().flatten();
    if let Some(element) = found.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok())
    {
        let _ = element.focus();
    }
}

/// True when the user's system asks for the media feature: `(prefers-reduced-motion: reduce)`.
pub(crate) fn media(query: &str) -> bool {
    window().match_media(query).ok().flatten().is_some_and(|list| list.matches())
}

/// Physical pixels a CSS pixel, within what a canvas should be asked for.
pub(crate) fn pixel_ratio() -> f64 {
    window().device_pixel_ratio().clamp(1.0, 3.0)
}

/// Puts a text on the clipboard; false if the browser does not let it.
pub(crate) async fn copy(text: &str) -> bool {
    // Absent where the page does not come over https or from this machine.
    let clipboard = js_sys::Reflect::get(&window().navigator(), &"clipboard".into()).ok();
    let Some(clipboard) = clipboard.and_then(|found| found.dyn_into::<web_sys::Clipboard>().ok())
    else {
        return false;
    };
    wasm_bindgen_futures::JsFuture::from(clipboard.write_text(text)).await.is_ok()
}

/// Hands `bytes` to the user as a file.
pub(crate) fn download(name: &str, bytes: &[u8]) {
    let parts = js_sys::Array::of1(&js_sys::Uint8Array::from(bytes));
    if let Ok(blob) = web_sys::Blob::new_with_u8_array_sequence(&parts) {
        download_blob(name, &blob);
    }
}

/// Hands what a blob holds to the user as a file.
pub(crate) fn download_blob(name: &str, blob: &web_sys::Blob) {
    let Ok(url) = web_sys::Url::create_object_url_with_blob(blob) else { return };
    if let Ok(link) = document().create_element("a") {
        let link: web_sys::HtmlAnchorElement = link.unchecked_into();
        link.set_href(&url);
        link.set_download(name);
        link.click();
    }
    let _ = web_sys::Url::revoke_object_url(&url);
}

/// A function that is called after a while, unless this is dropped before.
pub(crate) struct Later {
    id: i32,
    _call: Closure<dyn FnMut()>,
}

/// Calls a function after so many milliseconds.
pub(crate) fn later(ms: i32, call: impl FnMut() + 'static) -> Option<Later> {
    let call = Closure::<dyn FnMut()>::new(call);
    let timer = call.as_ref().unchecked_ref();
    let id = window().set_timeout_with_callback_and_timeout_and_arguments_0(timer, ms).ok()?;
    Some(Later { id, _call: call })
}

impl Drop for Later {
    fn drop(&mut self) {
        window().clear_timeout_with_handle(self.id);
    }
}

/// The address of Lockstep's picture, which holds the picture itself.
pub(crate) fn icon() -> String {
    let link = document().query_selector("link[rel=icon]").ok().flatten();
    link.and_then(|link| link.get_attribute("href")).unwrap_or_default()
}

/// A callback that passes on what `read` makes of an event, if it makes anything of it.
pub(crate) fn when<A, B: 'static>(
    callback: &yew::Callback<B>,
    read: impl Fn(A) -> Option<B> + 'static,
) -> yew::Callback<A> {
    let callback = callback.clone();
    yew::Callback::from(move |event: A| {
        if let Some(value) = read(event) {
            callback.emit(value);
        }
    })
}
