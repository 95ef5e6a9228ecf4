//! The browser, as far as the page touches it: listeners, frames, downloads.

use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{AddEventListenerOptions, Document, Event, EventTarget, MessageChannel, Window};

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

/// Continues after `ms` milliseconds; works in the page and in the worker.
pub(crate) async fn sleep_ms(ms: i32) {
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        let set_timeout = js_sys::Reflect::get(&js_sys::global(), &"setTimeout".into());
        if let Ok(set_timeout) = set_timeout.and_then(JsCast::dyn_into::<js_sys::Function>) {
            let _ = set_timeout.call2(&JsValue::NULL, &resolve, &ms.into());
        }
    });
    let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
}

/// Lets whatever has happened meanwhile be heard, and goes on at once: a timer of zero milliseconds
/// takes four when it is set again and again.
pub(crate) async fn yield_now() {
    let Ok(channel) = MessageChannel::new() else { return sleep_ms(0).await };
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        channel.port2().set_onmessage(Some(&resolve));
        // `null` can always be cloned: this does not fail.
        let _ = channel.port1().post_message(&JsValue::NULL);
    });
    let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
    channel.port1().close();
}

/// Milliseconds since some fixed moment; works in the page and in the worker.
pub(crate) fn now_ms() -> f64 {
    js_sys::Date::now()
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
    let Ok(blob) = web_sys::Blob::new_with_u8_array_sequence(&parts) else { return };
    let Ok(url) = web_sys::Url::create_object_url_with_blob(&blob) else { return };
    if let Ok(link) = document().create_element("a") {
        let link: web_sys::HtmlAnchorElement = link.unchecked_into();
        link.set_href(&url);
        link.set_download(name);
        link.click();
    }
    let _ = web_sys::Url::revoke_object_url(&url);
}

/// A JavaScript error in words.
pub(crate) fn words_of(error: &JsValue) -> String {
    error
        .as_string()
        .unwrap_or_else(|| String::from(js_sys::Object::from(error.clone()).to_string()))
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
