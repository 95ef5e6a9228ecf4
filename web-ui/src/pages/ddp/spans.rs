//! The contents of a rank's two streams, as spans that are found by time.

use super::words::{commas, ending};
use crate::explain;
use crate::sets::sort_few;
use lockstep_torch::ddp::lab::CallSpan;
use lockstep_torch::ddp::{Purpose, StepKind};
use lockstep_web_protocol::DdpAccount;

/// The kind of a span, as far as its colour goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Forward,
    /// Of a layer whose gradients go into a bucket.
    Backward(Option<u32>),
    Optimizer,
    /// The compute stream waits, with nothing to hide behind.
    Exposed,
    /// The compute stream waits for a call that holds it up.
    Held,
    /// A reduction of a bucket.
    Bucket(u32),
    /// Another collective.
    Other,
}

/// A span, in picoseconds; `of` is a layer's or a call's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) kind: Kind,
    pub(super) of: u32,
}

/// The two streams, each by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lanes {
    pub(super) compute: Vec<Span>,
    pub(super) communication: Vec<Span>,
}

impl Lanes {
    /// The streams of a pass.
    pub(super) fn of(account: &DdpAccount) -> Lanes {
        let pass = &account.pass;
        let (mut compute, mut communication) = (Vec::new(), Vec::new());
        // Gradients by time tell which bucket a layer's backward pass feeds.
        let mut ready: Vec<(u64, u32)> =
            pass.params.iter().filter_map(|fate| Some((fate.ready_ps?, fate.bucket?))).collect();
        sort_few(&mut ready, |ready| *ready);
        for (of, layer) in (0u32..).zip(&pass.layers) {
            let kind = match layer.forward {
                true => Kind::Forward,
                false => {
                    let at = ready.partition_point(|(time, _)| *time < layer.end_ps);
                    let feeds = ready.get(at).filter(|(time, _)| *time == layer.end_ps);
                    Kind::Backward(feeds.map(|(_, bucket)| *bucket))
                }
            };
            compute.push(Span { from: layer.start_ps, to: layer.end_ps, kind, of });
        }
        if let Some((from, to)) = pass.optimizer {
            compute.push(Span { from, to, kind: Kind::Optimizer, of: 0 });
        }
        for (of, call) in (0u32..).zip(&pass.calls) {
            if let Some((from, to)) = call.waited_ps {
                let kind = if call.blocking { Kind::Held } else { Kind::Exposed };
                compute.push(Span { from, to, kind, of });
            }
            let kind = call.of_bucket().map_or(Kind::Other, Kind::Bucket);
            communication.push(Span { from: call.start_ps, to: call.end_ps, kind, of });
        }
        for lane in [&mut compute, &mut communication] {
            lane.retain(|span| span.to > span.from);
            sort_few(lane, |span| span.from);
        }
        Lanes { compute, communication }
    }
}

/// The span at a time, or one that begins before `until`.
pub(super) fn at(lane: &[Span], time: f64, until: f64) -> Option<&Span> {
    let after = lane.partition_point(|span| (span.from as f64) <= time);
    let found = after.checked_sub(1).and_then(|before| lane.get(before));
    let found = found.filter(|span| (span.to as f64) > time);
    found.or_else(|| lane.get(after).filter(|span| (span.from as f64) < until))
}

fn layer(account: &DdpAccount, span: &Span) -> String {
    let layer = account.pass.layers.get(span.of as usize);
    let name = layer.and_then(|layer| account.model.layers.get(layer.layer as usize));
    name.cloned().unwrap_or_default()
}

/// The text on a span, in so many letters at most.
pub(super) fn text(account: &DdpAccount, span: &Span, room: usize) -> Option<String> {
    let took = || explain::time(span.to - span.from);
    let call = || account.pass.calls.get(span.of as usize);
    let words = match span.kind {
        Kind::Forward | Kind::Backward(_) => {
            return (room >= 5).then(|| ending(&layer(account, span), room));
        }
        Kind::Optimizer => vec!["optimizer.step".to_owned(), "step".to_owned()],
        Kind::Exposed if account.pass.kind != StepKind::Training => {
            vec![format!("waits {}, without inputs", took()), format!("waits {}", took()), took()]
        }
        Kind::Exposed => vec![format!("exposed {}", took()), took()],
        Kind::Held => vec!["waits".to_owned()],
        Kind::Bucket(bucket) => {
            let size = call().map_or_else(String::new, |call| explain::bytes(call.bytes));
            vec![
                format!("bucket {bucket} · {size}"),
                format!("bucket {bucket}"),
                bucket.to_string(),
            ]
        }
        Kind::Other => {
            call().map(|call| vec![purpose(call), call.kind.name().to_owned()]).unwrap_or_default()
        }
    };
    words.into_iter().find(|words| words.chars().count() <= room)
}

fn purpose(call: &CallSpan) -> String {
    let what = match call.purpose {
        Purpose::Buffers => "buffers",
        Purpose::RebuiltIndices | Purpose::RebuiltSizes => "rebuilt buckets",
        Purpose::UsedMap => "used parameters",
        Purpose::BatchNorm => "BatchNorm",
        Purpose::Shard => "updated parameters",
        Purpose::Delayed => "delayed gradients",
        Purpose::Averaged => "parameters averaged",
        Purpose::Replicate => "copies to the other devices",
        Purpose::ModuleStates => "parameters and buffers",
        Purpose::JoinPresence => "who has inputs",
        Purpose::JoinThrow => "who has none",
        Purpose::JoinSync => "whether to reduce",
        Purpose::JoinRank => "whose states",
        _ => "",
    };
    format!("{} {what}", call.kind.name()).trim().to_owned()
}

/// The facts about a span, with a title.
pub(super) fn about(account: &DdpAccount, span: &Span) -> (String, Vec<(String, String)>) {
    let mut facts = vec![
        ("from".to_owned(), explain::time(span.from)),
        ("took".to_owned(), explain::time(span.to - span.from)),
    ];
    let call = || account.pass.calls.get(span.of as usize);
    let title = match span.kind {
        Kind::Forward => format!("forward of {}", layer(account, span)),
        Kind::Backward(bucket) => {
            if let Some(bucket) = bucket {
                facts.push(("feeds".to_owned(), format!("bucket {bucket}")));
            }
            format!("backward of {}", layer(account, span))
        }
        Kind::Optimizer => "optimizer.step".to_owned(),
        Kind::Exposed => {
            let bucket = call().and_then(|call| call.of_bucket());
            match bucket {
                Some(bucket) if account.pass.kind != StepKind::Training => {
                    format!("waits for bucket {bucket}, without inputs")
                }
                Some(bucket) => format!("waits for bucket {bucket}: exposed communication"),
                None => "waits for communication that nothing hides".to_owned(),
            }
        }
        Kind::Held => format!("waits for {}", call().map_or_else(String::new, purpose)),
        Kind::Bucket(_) | Kind::Other => {
            if let Some(call) = call() {
                facts.push(("bytes".to_owned(), commas(call.bytes)));
                facts.push(("latency".to_owned(), explain::time(call.latency_ps)));
                if call.peers_ps > 0 {
                    facts.push(("for other ranks".to_owned(), explain::time(call.peers_ps)));
                }
                if call.start_ps > call.ready_ps {
                    facts.push(("queued".to_owned(), explain::time(call.start_ps - call.ready_ps)));
                }
                facts.push((
                    "exposed".to_owned(),
                    match (call.blocking, call.waited_ps) {
                        (_, None) => "nothing".to_owned(),
                        (_, Some((from, to))) => explain::time(to - from),
                    },
                ));
            }
            match (span.kind, call()) {
                (Kind::Bucket(bucket), Some(call)) => {
                    format!("{} of bucket {bucket}", call.kind.name())
                }
                (_, Some(call)) => purpose(call),
                (_, None) => String::new(),
            }
        }
    };
    (title, facts)
}
