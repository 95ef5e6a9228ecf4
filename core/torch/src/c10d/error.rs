//! The errors of PyTorch: the exception's class, its text word for word, and our sentence beside it
//! where ours helps more.

use std::fmt;

/// The class of a Python exception that torch.distributed raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the variants are Python's names")]
pub enum ErrorKind {
    ValueError,
    RuntimeError,
    TypeError,
    AssertionError,
    IndexError,
    KeyError,
    AttributeError,
    UnboundLocalError,
    NotImplementedError,
    /// `torch.distributed.DistError`'s child for stores: a wait that timed out.
    DistStoreError,
    /// `torch.distributed.DistNetworkError`: no connection.
    DistNetworkError,
    /// `torch.distributed.DistBackendError`: the backend's library refused.
    DistBackendError,
    /// No exception: the process aborts (`SIGABRT`) inside C++.
    Aborted,
    /// No exception of PyTorch's: something that Lockstep cannot follow.
    Unsupported,
}

impl ErrorKind {
    /// The name of the class, as a traceback ends with it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ValueError => "ValueError",
            ErrorKind::RuntimeError => "RuntimeError",
            ErrorKind::TypeError => "TypeError",
            ErrorKind::AssertionError => "AssertionError",
            ErrorKind::IndexError => "IndexError",
            ErrorKind::KeyError => "KeyError",
            ErrorKind::AttributeError => "AttributeError",
            ErrorKind::UnboundLocalError => "UnboundLocalError",
            ErrorKind::NotImplementedError => "NotImplementedError",
            ErrorKind::DistStoreError => "DistStoreError",
            ErrorKind::DistNetworkError => "DistNetworkError",
            ErrorKind::DistBackendError => "DistBackendError",
            ErrorKind::Aborted => "Aborted",
            ErrorKind::Unsupported => "Unsupported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A refusal of torch.distributed, as PyTorch 2.7.1 words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}{text}", if text.is_empty() { "" } else { ": " })]
pub struct DistError {
    /// The exception's class.
    pub kind: ErrorKind,
    /// PyTorch's text, word for word; ours where `help` says that PyTorch has none.
    pub text: String,
    /// Advice to the reader, where PyTorch gives none.
    pub help: Option<String>,
}

impl DistError {
    /// An error of PyTorch's.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> DistError {
        DistError { kind, text: text.into(), help: None }
    }

    /// The same error with our sentence beside it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> DistError {
        self.help = Some(help.into());
        self
    }
}

macro_rules! constructors {
    ($($name:ident $kind:ident)*) => { $(
        pub(super) fn $name(text: impl Into<String>) -> DistError {
            DistError::new(ErrorKind::$kind, text)
        }
    )* };
}

constructors! {
    value_error ValueError
    runtime_error RuntimeError
    type_error TypeError
    assertion_error AssertionError
    index_error IndexError
    not_implemented NotImplementedError
    store_error DistStoreError
    network_error DistNetworkError
    unsupported Unsupported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_the_last_line_of_a_traceback() {
        assert_eq!(value_error("no").to_string(), "ValueError: no");
        assert_eq!(assertion_error("").to_string(), "AssertionError");
        assert_eq!(value_error("no").with_help("do this").help.as_deref(), Some("do this"));
    }
}
