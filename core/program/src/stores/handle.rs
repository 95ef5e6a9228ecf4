//! A program's handle of a store: the store, or a part of one behind a prefix.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::stores::log::Place;
use allocative::Allocative;
use lockstep_torch::c10d::store::{DEFAULT_STORE_TIMEOUT_MS, join_key};
use starlark::starlark_simple_value;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagablePanic};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A store as a process holds it.
#[derive(Debug)]
pub(crate) struct Base {
    pub(super) of: Of,
    /// The time that `get` and `wait` may wait, in milliseconds.
    pub(crate) timeout_ms: AtomicU64,
    /// True if `init_process_group` keeps keys of its own in the store.
    pub(super) of_pytorch: AtomicBool,
    /// `store.host`, as the program wrote it.
    pub(super) host: Option<String>,
}

/// The owner of the store.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// The process's own: a `HashStore`, by its number.
    Process(usize),
    /// A server that knows the place.
    Job(Arc<Place>),
}

/// A program's handle: a store, or a part of one.
#[derive(Debug)]
pub(crate) enum Handle {
    Store { class: &'static str, base: Arc<Base> },
    Prefix { prefix: String, under: Arc<Handle> },
}

impl Handle {
    pub(super) fn new(class: &'static str, of: Of, timeout_ms: Option<u64>) -> Handle {
        let timeout_ms = AtomicU64::new(timeout_ms.unwrap_or(DEFAULT_STORE_TIMEOUT_MS));
        let of_pytorch = AtomicBool::new(false);
        Handle::Store { class, base: Arc::new(Base { of, timeout_ms, of_pytorch, host: None }) }
    }

    /// A `TCPStore`, with the host as the program wrote it.
    pub(super) fn tcp(host: &str, place: Place, timeout_ms: Option<u64>) -> Handle {
        let timeout_ms = AtomicU64::new(timeout_ms.unwrap_or(DEFAULT_STORE_TIMEOUT_MS));
        let (of, host) = (Of::Job(Arc::new(place)), Some(host.to_owned()));
        let base = Base { of, timeout_ms, of_pytorch: AtomicBool::new(false), host };
        Handle::Store { class: "TCPStore", base: Arc::new(base) }
    }

    pub(super) fn base(&self) -> &Arc<Base> {
        match self {
            Handle::Store { base, .. } => base,
            Handle::Prefix { under, .. } => under.base(),
        }
    }

    /// The class of the store below all prefixes.
    pub(super) fn base_class(&self) -> &'static str {
        match self {
            Handle::Store { class, .. } => class,
            Handle::Prefix { under, .. } => under.base_class(),
        }
    }

    /// The number of its prefixes.
    pub(super) fn depth(&self) -> usize {
        match self {
            Handle::Store { .. } => 0,
            Handle::Prefix { under, .. } => under.depth() + 1,
        }
    }

    pub(super) fn class(&self) -> &'static str {
        match self {
            Handle::Store { class, .. } => class,
            Handle::Prefix { .. } => "PrefixStore",
        }
    }

    /// The key as the store itself names it.
    pub(super) fn key(&self, key: &str) -> String {
        match self {
            Handle::Store { .. } => key.to_owned(),
            Handle::Prefix { prefix, under } => under.key(&join_key(prefix, key)),
        }
    }

    pub(super) fn timeout_ms(&self) -> u64 {
        self.base().timeout_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_timeout(&self, timeout_ms: u64) {
        self.base().timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }
}

/// A store of this rank.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct StoreValue(#[allocative(skip)] pub(super) Arc<Handle>);
starlark_simple_value!(StoreValue);

impl StoreValue {
    /// The whole name of its class, as Python shows it.
    pub(crate) fn class(&self) -> String {
        match self.0.class() {
            "PrefixStore" => "torch.distributed.distributed_c10d.PrefixStore".to_owned(),
            class => format!("torch._C._distributed_c10d.{class}"),
        }
    }
}

impl fmt::Display for StoreValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} object at 0xADDR>", self.class())
    }
}
