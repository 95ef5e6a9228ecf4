//! A setting of the lab whose streams are drawn.

use lockstep_web_protocol::DdpAccount;
use std::rc::Rc;

/// A setting whose streams are shown.
#[derive(Clone, PartialEq)]
pub(super) struct Shown {
    /// Empty where there is one only.
    pub(super) label: &'static str,
    pub(super) account: Rc<DdpAccount>,
}
