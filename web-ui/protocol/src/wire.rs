//! Messages as JavaScript values.

use js_sys::{Array, ArrayBuffer, Uint8Array};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::{JsCast, JsValue};

/// The array to post, and the list of its parts that change hands instead of being copied.
pub fn pack(message: &impl Serialize, attachments: &[JsValue]) -> (Array, Array) {
    // postcard fails only on types of unknown length, which the messages have none of.
    let head = postcard::to_stdvec(message).unwrap_or_default();
    let head = Uint8Array::from(head.as_slice()).buffer();
    let (packed, transfer) = (Array::of1(&head), Array::of1(&head));
    for attachment in attachments {
        packed.push(attachment);
        if attachment.is_instance_of::<ArrayBuffer>() {
            transfer.push(attachment);
        }
    }
    (packed, transfer)
}

/// The message in a posted array, and its attachments.
pub fn unpack<M: DeserializeOwned>(posted: &JsValue) -> Option<(M, Vec<JsValue>)> {
    let posted: &Array = posted.dyn_ref()?;
    let head: ArrayBuffer = posted.get(0).dyn_into().ok()?;
    let message = postcard::from_bytes(&Uint8Array::new(&head).to_vec()).ok()?;
    Some((message, posted.iter().skip(1).collect()))
}
