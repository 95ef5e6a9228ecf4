//! Sends and receives that cannot meet: their tags, sizes or element types differ.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::Made;
use crate::rules::on_gloo;
use crate::words;
use lockstep_core::dtype::Dtype;
use lockstep_core::trace::Called;

/// Sends and receives that met with different sizes or element types.
pub(crate) fn p2p_sizes(facts: &Facts<'_, '_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for pending in facts.p2p.iter().filter(|pending| pending.made.record.call.op.contains("recv")) {
        let Some(send) = pending.partner else { continue };
        let (got, sent) = (&pending.made.record.call, &send.record.call);
        let sizes = (got.payload(), sent.payload());
        let dtype = |call: &Called| {
            let mut tensors = call.inputs.iter().chain(&call.outputs);
            tensors.next().map(|tensor| tensor.dtype).filter(|dtype| *dtype != Dtype::Unknown)
        };
        let (expects, sends) = match (dtype(got), dtype(sent)) {
            (Some(got), Some(sent)) if got != sent => (format!("{got}"), format!("{sent}")),
            _ if sizes.0 == sizes.1 || sizes.0 == 0 || sizes.1 == 0 => continue,
            _ => ("elements".to_owned(), "elements".to_owned()),
        };
        let log = facts.job.log;
        let mut pair = vec![pending.made.rank, send.rank];
        pair.sort_unstable();
        claims.push(Claim {
            kind: Kind::P2pMismatch,
            culprits: pair,
            also_victims: Vec::new(),
            group: Some(got.group),
            seq: pending.made.record.seq,
            op: Some(got.op.clone()),
            alternatives: Alternatives::None,
            message: format!(
                "Rank {} sends {} {sends} to rank {}, which expects {}{}: {} meets {}.{}",
                send.rank,
                sizes.1,
                pending.made.rank,
                sizes.0,
                if expects == sends { String::new() } else { format!(" {expects}") },
                words::call(log, send),
                words::call(log, pending.made),
                on_gloo::of_message(facts, got, sent),
            )
            .into(),
            fix:
                "Give both sides a tensor of the same shape and dtype; if the size varies, send it \
                  first."
                    .to_owned(),
            evidence: vec![
                evidence(facts, send, "sends"),
                evidence(facts, pending.made, "receives"),
            ],
        });
    }
    claims
}

/// A send and a receive that would meet if they had one tag.
pub(crate) fn tags(facts: &Facts<'_, '_>, send: Made<'_>, receive: Made<'_>) -> Claim {
    let log = facts.job.log;
    let mut pair = vec![send.rank, receive.rank];
    pair.sort_unstable();
    let (sends, receives) = (&send.record.call, &receive.record.call);
    Claim {
        kind: Kind::P2pMismatch,
        culprits: pair,
        also_victims: Vec::new(),
        group: Some(sends.group),
        seq: send.record.seq,
        op: Some(sends.op.clone()),
        alternatives: Alternatives::None,
        message: format!(
            "Rank {} sends to rank {} with tag {} in {}, and rank {} receives from it with tag {} \
             in {}: they never meet.",
            send.rank,
            receive.rank,
            sends.tag,
            words::short_call(log, send),
            receive.rank,
            receives.tag,
            words::short_call(log, receive),
        )
        .into(),
        fix: "Give both sides the same tag, and make the calls of one tag in the same order."
            .to_owned(),
        evidence: vec![evidence(facts, send, "sends"), evidence(facts, receive, "receives")],
    }
}
