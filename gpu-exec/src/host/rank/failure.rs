//! Texts of what ends a rank.

use std::fmt::Display;

/// `what: error`, for an error that ends the rank.
pub(super) fn cannot<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}
