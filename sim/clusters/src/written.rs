//! A cluster as the text of its TOML file.

use crate::cluster::{Cluster, Given};
use std::fmt::Write;

/// The text of a cluster's file, which reads as the same cluster again.
#[must_use]
pub fn toml_text(cluster: &Cluster) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("name", quoted(&cluster.name));
    line("title", quoted(&cluster.title));
    let sources: Vec<String> =
        cluster.sources.iter().map(|source| format!("    {},\n", quoted(source))).collect();
    line("sources", format!("[\n{}]", sources.concat()));
    let names = [
        ("aliases", &cluster.aliases),
        ("words", &cluster.words),
        ("relatives", &cluster.relatives),
    ];
    for (key, names) in names.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        line(key, format!("[{}]", names.join(", ")));
    }
    line("card", quoted(&cluster.card));
    line("gpus_per_node", cluster.gpus_per_node.to_string());
    if let Some(domain) = cluster.domain_gpus {
        line("domain_gpus", domain.to_string());
    }
    if let Some(network) = &cluster.network {
        line("network", quoted(network));
    }
    line("nics_per_node", cluster.nics_per_node.to_string());
    line("nic_Gbps", number(cluster.nic_gbps));
    if let Some(nodes) = cluster.nodes_per_leaf {
        line("nodes_per_leaf", nodes.to_string());
    }
    if let Some(times) = cluster.oversubscription {
        line("oversubscription", number(times));
    }
    if let Some(planes) = cluster.planes {
        line("planes", planes.to_string());
    }
    if !cluster.measured.is_empty() {
        let each = cluster.measured.iter().map(|measured| {
            let nodes: Vec<String> = measured.nodes.iter().map(u32::to_string).collect();
            let collective = quoted(&measured.collective);
            let bytes = measured.bytes;
            let bytes =
                bytes.map_or(String::new(), |[least, most]| format!(", bytes = [{least}, {most}]"));
            format!("    {{ collective = {collective}, nodes = [{}]{bytes} }},\n", nodes.join(", "))
        });
        line("measured", format!("[\n{}]", each.collect::<String>()));
    }
    cluster.given.iter().fold(text, |text, given| text + &given_text(given))
}

fn given_text(given: &Given) -> String {
    let mut text = format!(
        "\n[[given]]\ncollective = {}\nnodes = {}\nranks_per_node = {}\npoints = [\n",
        quoted(&given.collective),
        given.nodes,
        given.ranks_per_node
    );
    for (bytes, us) in &given.points {
        let _ = writeln!(text, "    [{bytes}, {}],", number(*us));
    }
    text + "]\n"
}

/// A float as TOML has it: with a point.
fn number(value: f64) -> String {
    format!("{value:?}")
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
