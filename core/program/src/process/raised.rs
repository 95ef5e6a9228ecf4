//! Exceptions as the interpreter carries them.

use lockstep_torch::c10d::{DistError, ErrorKind};
use std::fmt;

/// An exception that ends its rank, and not the program: torch.distributed's, or one of `raise`.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) text: String,
    pub(crate) help: Option<String>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

impl From<DistError> for Raised {
    fn from(error: DistError) -> Raised {
        Raised { text: error.to_string(), help: error.help }
    }
}

/// torch.distributed's refusal as the interpreter carries it. An error that is not PyTorch's ends no rank:
/// the program cannot be followed.
pub(crate) fn refused(error: DistError) -> anyhow::Error {
    match error.kind {
        ErrorKind::Unsupported => {
            let help = error.help.map(|help| format!(". {help}")).unwrap_or_default();
            anyhow::anyhow!("{}{help}", error.text)
        }
        _ => anyhow::Error::new(Raised::from(error)),
    }
}

/// A process that has ended normally.
#[derive(Debug)]
pub(crate) struct Left;

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process has ended")
    }
}

impl std::error::Error for Left {}

/// An exception in Python's words.
pub(crate) fn raised(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Raised { text: text.into(), help: None })
}

pub(crate) fn runtime_error(text: impl Into<String>) -> anyhow::Error {
    refused(DistError::new(ErrorKind::RuntimeError, text))
}
