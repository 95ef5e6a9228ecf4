//! An error of the interpreter as the last line of Python's traceback.

use crate::dialect::rewritten::Rewritten;
use crate::process::raised::Raised;

/// The text of an error, and the exception where it was raised as one.
pub(crate) fn said(error: &starlark::Error) -> (String, Option<&Raised>) {
    match error.kind() {
        starlark::ErrorKind::Native(inner) => (inner.to_string(), inner.downcast_ref::<Raised>()),
        starlark::ErrorKind::Fail(inner) => (inner.to_string(), None),
        kind => (kind.to_string(), None),
    }
}

/// The last line of Python's traceback, where an error is an exception of Python's or PyTorch's.
pub(crate) fn raised_by(error: &starlark::Error, rewritten: &Rewritten) -> Option<String> {
    let (text, raised) = said(error);
    if raised.is_some() || matches!(error.kind(), starlark::ErrorKind::Fail(_)) {
        return Some(text);
    }
    let line = error.span().map(|span| span.resolve_span().begin.line);
    crate::dist::signatures::exception(&text, line, rewritten)
}
