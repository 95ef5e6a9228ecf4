//! Every bucket in a line: what it holds, when it is full, launched, reduced, and what it costs.

use super::words::commas;
use crate::explain;
use crate::palette::{bucket_piece, piece_fill};
use lockstep_web_protocol::DdpAccount;
use yew::prelude::*;

/// More buckets than this are told, not listed.
const MOST: usize = 300;

/// Every bucket in a line, of one setting or of two.
pub(super) fn bucket_table(a: &DdpAccount, b: Option<&DdpAccount>) -> Html {
    html! {
        <div class="tables">
            { table(a, b.is_some().then_some("A")) }
            if let Some(b) = b { { table(b, Some("B")) } }
        </div>
    }
}

fn table(account: &DdpAccount, label: Option<&str>) -> Html {
    let pass = &account.pass;
    let more = pass.buckets.len().saturating_sub(MOST);
    let time = |ps: Option<u64>| ps.map_or("–".to_owned(), explain::time);
    let name = |param: Option<&u32>| {
        let param = param.and_then(|param| account.model.params.get(*param as usize));
        param.map_or_else(String::new, |param| param.name.clone())
    };
    let rows = pass.buckets.iter().take(MOST).enumerate().map(|(number, bucket)| {
        let held = match bucket.held_by {
            Some(earlier) => format!("bucket {earlier}"),
            None => "–".to_owned(),
        };
        let (first, last) = (name(bucket.params.first()), name(bucket.params.last()));
        let names = if bucket.params.len() > 1 { format!("{first} … {last}") } else { first };
        html! {
            <tr>
                <th scope="row"><i class="swatch" style={format!("background:{}", piece_fill(bucket_piece(number as u32)))} />{ number }</th>
                <td class="n" data-name="bytes">{ commas(bucket.bytes) }</td>
                <td class="n" data-name="gradients">{ bucket.params.len() }</td>
                <td class="mono names">{ names }</td>
                <td class="mono" data-name="waits for">{ bucket.last.map_or("–".to_owned(), |last| name(Some(&last))) }</td>
                <td class="n" data-name="full">{ time(bucket.full_ps) }</td>
                <td data-name="held back by">{ held }</td>
                <td class="n" data-name="launched">{ time(bucket.launch_ps) }</td>
                <td class="n" data-name="starts">{ time(bucket.span_ps.map(|(start, _)| start)) }</td>
                <td class="n" data-name="done">{ time(bucket.span_ps.map(|(_, end)| end)) }</td>
                <td class={classes!("n", (bucket.exposed_ps > 0).then_some("across"))} data-name="exposed">{ explain::time(bucket.exposed_ps) }</td>
            </tr>
        }
    });
    html! {
        <div class="scroll tall" tabindex="0" role="group" aria-label="The buckets">
        <table class="plain figures-table cards" data-test={format!("bucket-table-{}", label.unwrap_or("A"))}>
            <caption class="muted">{ match label {
                Some(label) => format!("{label}: the buckets of pass {}, in the order of their launch", pass.number + 1),
                None => format!("The buckets of pass {}, in the order of their launch; times from its beginning", pass.number + 1),
            } }</caption>
            <thead><tr><th>{ "bucket" }</th><th class="n">{ "bytes" }</th><th class="n">{ "gradients" }</th><th>{ "which" }</th><th>{ "waits for" }</th>
                <th class="n">{ "full" }</th><th>{ "held back by" }</th><th class="n">{ "launched" }</th><th class="n">{ "starts" }</th><th class="n">{ "done" }</th><th class="n">{ "exposed" }</th></tr></thead>
            <tbody>{ for rows }</tbody>
        </table>
        if more > 0 { <p class="muted small-print">{ format!("and {more} more") }</p> }
        </div>
    }
}
