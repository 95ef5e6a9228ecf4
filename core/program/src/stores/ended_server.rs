//! A server that has ended: a `TCPStore` lives in the process that serves it.

use crate::stores::log::{Answer, At, Log, Op, Place, What};
use crate::stores::times::Times;
use lockstep_torch::c10d::{DistError, ErrorKind};

/// The error of an operation whose store's server has ended before it begins, by the times of the programs;
/// `None` if it has not ended, or that is unknown.
pub(super) fn gone(at: At, op: &Op, logs: &[Log], times: &Times) -> Option<Answer> {
    let Place::Tcp { host, port } = &*op.store else { return None };
    let serves = |op: &Op| {
        matches!(op.what, What::Set(_))
            && matches!(&*op.store, Place::Server { host: h, port: p } if (h, p) == (host, port))
    };
    let server = logs.iter().position(|log| log.ops.iter().any(serves)).filter(|of| *of != at.0)?;
    let log = logs.get(server)?;
    let mut end = log.end?;
    let last = log.ops.len().checked_sub(1)?;
    // A delay of its last operation delays its end as well.
    let (clock, done) = (log.ops.get(last)?.clock, times.done((server, last))?);
    if clock.meetings == end.meetings {
        end.ns = end.ns.saturating_add(done.ns.saturating_sub(clock.ns));
        end.loose |= done.loose;
    }
    let begins = times.begins(at)?;
    let over = begins.meetings == end.meetings && !begins.loose && !end.loose && end.ns < begins.ns;
    over.then(|| {
        let text = "failed to recv, got 0 bytes";
        Answer::Raises(DistError::new(ErrorKind::DistNetworkError, text).with_help(format!(
            "Rank {server}, whose process serves the store, has ended by then. Let it wait until \
             all are done with the store: by dist.barrier(), or for a key of every rank."
        )))
    })
}
