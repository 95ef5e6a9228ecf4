//! The browser, as far as the page and its workers both touch it.

use wasm_bindgen::{JsCast, JsValue};
use web_sys::MessageChannel;

/// Continues after `ms` milliseconds; works in the page and in the worker.
pub async fn sleep_ms(ms: i32) {
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
pub async fn yield_now() {
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
pub fn now_ms() -> f64 {
    js_sys::Date::now()
}

/// A JavaScript error in words.
pub fn words_of(error: &JsValue) -> String {
    error
        .as_string()
        .unwrap_or_else(|| String::from(js_sys::Object::from(error.clone()).to_string()))
}

/// Sends panics to the console. A panic is our bug; without this the browser says "unreachable
/// executed" and no more.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        web_sys::console::error_1(&format!("Lockstep: {panic}").into());
    }));
}
