//! The fields of a form that choose what is slow or down of a cluster's fabric. The text is that of the command line's
//! `--cluster-fault`, which the engine reads.

use crate::route::Route;
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::words::counted;
use yew::prelude::*;

/// The name of a fault in an address.
pub(super) const FABRIC: &str = "fabric";

/// The faults that can be chosen, as they begin.
const FAULTS: [(&str, &str); 6] = [
    ("", "nothing"),
    ("link:rank=0,rate=0.5", "a GPU's links"),
    ("link:node=0,rate=0.5", "a node's links"),
    ("nic:node=0,down=1", "a NIC"),
    ("gpu:rank=0,rate=0.7", "a GPU"),
    ("spine:rate=0.25", "the network between nodes"),
];

/// The numbers that a fault may have, and their fields.
const NUMBERS: [(&str, &str, u64, u64); 4] = [
    ("rank", "Rank", 0, 524_287),
    ("node", "Node", 0, 65_535),
    ("down", "NICs down", 1, 64),
    ("rate", "Rate that is left (%)", 1, 100),
];

/// The fields that choose a fault.
pub(super) fn fabric_fault_fields(fault: &str, on_choose: &Callback<String>) -> Html {
    let alike = |(text, _): &&(&str, &str)| kind(text) == kind(fault);
    let value = FAULTS.iter().find(alike).map_or("", |(text, _)| text);
    let choices = FAULTS.map(|(text, words)| Choice::new(text, words)).to_vec();
    html! {
        <>
        <SelectField name={FABRIC} label="Slow or down" {value} {choices} on_choose={on_choose.clone()} />
        { for NUMBERS.iter().filter_map(|&(name, label, min, max)| {
            let value = number(fault, name)?;
            let fault = fault.to_owned();
            let on_choose = on_choose.reform(move |value: u64| with(&fault, name, value));
            Some(html! { <NumberField {name} {label} {value} {min} {max} {on_choose} /> })
        }) }
        if kind(fault) == "gpu:rank" {
            <p class="muted small-print" data-test="gpu-fault">{ "A slow GPU computes more slowly. A collective by itself takes as long as before." }</p>
        }
        </>
    }
}

/// A fault in words: `1 NIC of node 0 down`.
pub(super) fn fabric_fault_words(fault: &str) -> String {
    let of = |name: &str| number(fault, name).unwrap_or(0);
    let (rank, node, rate, down) = (of("rank"), of("node"), of("rate"), of("down"));
    match kind(fault) {
        "link:rank" => format!("the links of rank {rank} at {rate}%"),
        "link:node" => format!("the links of node {node} at {rate}%"),
        "nic:node" => format!("{} of node {node} down", counted(down, "NIC")),
        "gpu:rank" => format!("the GPU of rank {rank} at {rate}%"),
        "spine:rate" => format!("the network between nodes at {rate}%"),
        _ => fault.to_owned(),
    }
}

/// An address with a fault in it, or with none.
pub(super) fn with_fault(route: Route, fault: &str) -> Route {
    match fault.is_empty() {
        true => route.without(FABRIC),
        false => route.with(FABRIC, fault),
    }
}

/// The kind of a fault: its first word and the name of its first number, `link:rank`.
fn kind(fault: &str) -> &str {
    fault.split('=').next().unwrap_or_default()
}

/// A number of a fault; a rate as a percentage.
fn number(fault: &str, name: &str) -> Option<u64> {
    let mut parts = fault.split([':', ',']);
    let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?;
    match name {
        "rate" => value.parse::<f64>().ok().map(|rate| (rate * 100.0).round() as u64),
        _ => value.parse().ok(),
    }
}

/// The fault with another number.
fn with(fault: &str, name: &str, value: u64) -> String {
    let (kind, numbers) = fault.split_once(':').unwrap_or((fault, ""));
    let numbers = numbers.split(',').map(|part| match part.split_once('=') {
        Some((own, _)) if own == name && name == "rate" => {
            format!("{name}={}", value as f64 / 100.0)
        }
        Some((own, _)) if own == name => format!("{name}={value}"),
        _ => part.to_owned(),
    });
    format!("{kind}:{}", numbers.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_clusters::FabricFault;

    /// Every fault that the form makes is one that the command line reads, in the same words.
    #[test]
    fn the_form_speaks_the_command_lines_words() {
        for (text, _) in FAULTS.iter().filter(|(text, _)| !text.is_empty()) {
            let fault: FabricFault = text.parse().unwrap();
            assert_eq!(fault.to_string(), *text);
            for (name, _, min, max) in NUMBERS {
                let Some(_) = number(text, name) else { continue };
                for value in [min.max(1), 37.min(max), max] {
                    let changed = with(text, name, value);
                    assert_eq!(number(&changed, name), Some(value), "{changed}");
                    assert_eq!(changed.parse::<FabricFault>().unwrap().to_string(), changed);
                    assert_eq!(kind(&changed), kind(text));
                }
            }
        }
        assert_eq!(number("", "rank"), None);
    }
}
