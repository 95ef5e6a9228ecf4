//! Clusters from what machines say of themselves: the matrix of `nvidia-smi topo -m`, and the
//! topology that NCCL writes with `NCCL_TOPO_DUMP_FILE`.
//!
//! Both say how GPUs reach each other and which NICs are near them. What they do not say is filled in
//! from the shipped cluster with the same card, and every such guess is told.

mod machine;
mod matrix;
mod xml;

use crate::card::Intra;
use crate::catalog::Catalog;
use crate::cluster::Cluster;
use machine::{Fabric, Machine, Nic};

pub use machine::ImportError;

/// Facts about a machine that the user gives beside the file.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The cluster's name.
    pub name: String,
    /// The card's name (`data/cards`).
    pub card: Option<String>,
    /// The transport's name (`data/networks`).
    pub network: Option<String>,
    /// NICs of a node that NCCL uses.
    pub nics: Option<u32>,
    /// Line rate of a NIC, Gb/s.
    pub nic_gbps: Option<f64>,
}

/// A cluster, and what of it is a guess.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The cluster.
    pub cluster: Cluster,
    /// The facts that the file did not give, in sentences.
    pub notes: Vec<String>,
}

/// The cluster that a file describes.
///
/// # Errors
/// If the file is none of the two kinds, describes what cannot be, or does not tell the card.
pub fn read(catalog: &Catalog, text: &str, hints: &Hints) -> Result<Imported, ImportError> {
    let (machine, kind) = if text.contains("<system") {
        (xml::read(text)?, "NCCL's topology file")
    } else if text.lines().any(|line| line.contains("GPU0")) {
        (matrix::read(text)?, "nvidia-smi topo -m")
    } else {
        return Err(ImportError::Unknown);
    };
    let mut notes = Vec::new();
    let card = card_of(catalog, &machine, hints, &mut notes)?;
    check_links(catalog, &machine, &card, &mut notes)?;
    let relative = relative_of(catalog, &card);
    let domain_gpus = machine.domain_gpus.or_else(|| domain_of(&machine, relative, &mut notes));
    let network = Network::of(catalog, &machine, hints, relative, &mut notes);
    let cluster = Cluster {
        name: hints.name.clone(),
        title: format!("{} {card} a node", machine.gpus),
        sources: vec![kind.to_owned()],
        aliases: Vec::new(),
        words: Vec::new(),
        relatives: Vec::new(),
        card,
        gpus_per_node: machine.gpus,
        domain_gpus,
        network: network.name,
        nics_per_node: network.nics,
        nodes_per_leaf: None,
        oversubscription: None,
        planes: None,
        nic_gbps: network.gbps,
        measured: Vec::new(),
        given: Vec::new(),
    };
    catalog.check("the cluster", &cluster)?;
    Ok(Imported { cluster, notes })
}

fn card_of(
    catalog: &Catalog,
    machine: &Machine,
    hints: &Hints,
    notes: &mut Vec<String>,
) -> Result<String, ImportError> {
    if let Some(card) = &hints.card {
        return Ok(card.clone());
    }
    if let Some(card) = &machine.card {
        return Ok(card.clone());
    }
    let guess = match machine.fabric {
        Fabric::Switched(18) if machine.coherent => Some((
            "gb200",
            "GB300 has as many, and the processor sees the GPUs' memory as Grace does",
        )),
        Fabric::Switched(18) => Some(("h100", "H200, B200 and GB200 have as many links")),
        Fabric::Switched(12) if machine.gpus == 2 => {
            Some(("a100", "two A100 or H100 cards with bridges have as many"))
        }
        Fabric::Switched(12) => Some(("a100", "no other card has as many")),
        Fabric::Switched(8) => Some(("h800", "A800 has as many")),
        Fabric::Switched(6) => Some(("v100-dgx2", "no other card behind switches has as many")),
        Fabric::Direct(18) => Some(("gh200-mesh", "H100 without switches has as many")),
        Fabric::Direct(12) => Some(("a100-mesh", "no other card has as many")),
        Fabric::Direct(6) if machine.gpus == 2 && machine.coherent => {
            Some(("gh200-mesh", "two of four GH200 have as many"))
        }
        Fabric::Direct(6) if machine.gpus == 2 => {
            Some(("v100-dgx2", "no other two GPUs have as many"))
        }
        Fabric::Direct(6) => Some(("v100-mesh", "no other card has as many")),
        _ => None,
    };
    if let Some((card, others)) = guess {
        notes.push(format!(
            "the card is taken to be {card}, by its NVLinks ({others}); --card says another"
        ));
        return Ok(card.to_owned());
    }
    let wanted = match machine.fabric {
        Fabric::Switched(_) => Intra::Nvswitch,
        Fabric::Direct(_) => Intra::Mesh,
        Fabric::Xgmi => Intra::Xgmi,
        Fabric::Pairs | Fabric::Pcie => Intra::Pcie,
    };
    let like = catalog.cards.iter().filter(|card| card.intra == wanted);
    let like: Vec<&str> = like.map(|card| card.name.as_str()).collect();
    Err(ImportError::Card { seen: machine.seen.clone(), nearest: like.join(", ") })
}

/// The shipped cluster that goes by the card's name, or any with the card and NICs.
fn relative_of<'a>(catalog: &'a Catalog, card: &str) -> Option<&'a Cluster> {
    let with_card = |it: &&Cluster| it.card == card && it.nics_per_node > 0;
    let named = catalog.cluster(card).ok().filter(with_card);
    named.or_else(|| catalog.clusters.iter().find(with_card))
}

/// The GPUs that share NVLink over several machines, as the shipped cluster of the card has them: no file of one
/// machine tells.
fn domain_of(
    machine: &Machine,
    relative: Option<&Cluster>,
    notes: &mut Vec<String>,
) -> Option<u32> {
    let (relative, switched) = (relative?, matches!(machine.fabric, Fabric::Switched(_)));
    let domain = relative.domain_gpus.filter(|domain| switched && machine.gpus <= *domain)?;
    let domain = domain / machine.gpus.max(1) * machine.gpus;
    notes.push(format!(
        "the file does not tell how far NVLink reaches beyond the machine: {domain} GPUs are taken (as of {}); \
         domain_gpus in the cluster's file says another number",
        relative.name
    ));
    Some(domain)
}

/// Tells of GPUs with fewer NVLinks than their card has.
///
/// # Errors
/// If a GPU has none while others have some.
fn check_links(
    catalog: &Catalog,
    machine: &Machine,
    card: &str,
    notes: &mut Vec<String>,
) -> Result<(), ImportError> {
    let Ok(known) = catalog.card(card) else { return Ok(()) };
    let linked = machine.nvlinks.iter().find(|(_, links)| *links > 0);
    let without = machine.nvlinks.iter().find(|(_, links)| *links == 0);
    let is_linked = matches!(known.intra, Intra::Nvswitch | Intra::Mesh);
    let wanted = match known.mesh_gpus {
        // A mesh has links for all of its GPUs, and the file may have fewer of them.
        Some(all) => known.links / (all - 1).max(1) * machine.gpus.min(all).saturating_sub(1),
        None => known.links,
    };
    match (linked, without) {
        (Some((other, links)), Some((gpu, _))) if is_linked => Err(ImportError::Machine(format!(
            "{gpu} has no NVLink and {other} has {links}: is a link down, or the file cut? Every call of a node \
             with such a GPU goes over PCIe; say --card with a PCIe card if that is meant"
        ))),
        (None, Some(_)) if is_linked && machine.gpus > 1 => {
            notes.push(format!(
                "the file has no NVLink at all, and {card} has {wanted} a GPU here: they are taken at their full \
                 rate; if NVLink is off, say --card with a PCIe card"
            ));
            Ok(())
        }
        _ => {
            let fewer = machine.nvlinks.iter().filter(|(_, links)| *links > 0 && *links < wanted);
            let fewer: Vec<String> = fewer.map(|(gpu, links)| format!("{gpu} {links}")).collect();
            if is_linked && !fewer.is_empty() {
                notes.push(format!(
                    "NVLinks are missing: {card} has {wanted} a GPU here, and the file has fewer ({}); the full \
                     rate is taken, which these GPUs do not have",
                    fewer.join(", ")
                ));
            }
            let most = machine.nvlinks.iter().map(|(_, links)| *links).max().unwrap_or(0);
            if is_linked && most > wanted {
                notes.push(format!(
                    "the file has {most} NVLinks a GPU, and {card} has {wanted} here, which are taken; --card \
                     says another card"
                ));
            }
            Ok(())
        }
    }
}

/// The network of a machine.
struct Network {
    name: Option<String>,
    nics: u32,
    gbps: f64,
}

impl Network {
    fn of(
        catalog: &Catalog,
        machine: &Machine,
        hints: &Hints,
        relative: Option<&Cluster>,
        notes: &mut Vec<String>,
    ) -> Self {
        let used = used_nics(&machine.nics, notes);
        let nics = hints.nics.unwrap_or(used.len().try_into().unwrap_or(u32::MAX));
        if nics == 0 {
            notes.push("it has no NIC, so it is a single machine".into());
            return Self { name: None, nics, gbps: 0.0 };
        }
        let first = used.first().map_or("", |nic| nic.name.as_str());
        let name = hints.network.clone().unwrap_or_else(|| {
            let own = relative.and_then(|it| it.network.as_deref());
            // An mlx5 NIC speaks InfiniBand or RoCE: the card's cluster tells which is usual.
            let either = first.to_lowercase().contains("mlx");
            let usual = own.filter(|own| either && own.starts_with("roce"));
            let guess = usual.or_else(|| network_of(first)).or(own).unwrap_or("tcp");
            let by = match (usual, relative) {
                (Some(_), Some(relative)) => format!("as of {}", relative.name),
                _ => format!("by the name {first}"),
            };
            notes.push(format!(
                "the transport is taken to be {guess}, {by}; --network says another"
            ));
            guess.to_owned()
        });
        let said = used.iter().filter_map(|nic| nic.gbps).reduce(f64::max);
        let gbps = hints.nic_gbps.or(said).unwrap_or_else(|| {
            // NICs of another transport have other rates, but for Mellanox's.
            let with_card = |it: &&Cluster| {
                relative.is_some_and(|relative| it.card == relative.card) && it.nics_per_node > 0
            };
            let of_transport = |it: &&Cluster| {
                it.network.as_deref().is_some_and(|own| own.split('-').next() == name.split('-').next())
            };
            let like = relative
                .filter(of_transport)
                .or_else(|| catalog.clusters.iter().filter(with_card).find(of_transport))
                .or(relative.filter(|_| first.to_lowercase().contains("mlx")));
            let (gbps, of) = like.map_or((100.0, "no shipped cluster has this card and transport".to_owned()), |it| {
                (it.nic_gbps, format!("as of {}", it.name))
            });
            notes.push(format!(
                "the NICs' rate is not in the file: {gbps} Gb/s is taken ({of}); --nic-gbps says another"
            ));
            gbps
        });
        Self { name: Some(name), nics, gbps }
    }
}

/// NICs that NCCL uses: those that share a PCIe switch with a GPU, or all if none does; of these
/// the fastest.
fn used_nics<'a>(nics: &'a [Nic], notes: &mut Vec<String>) -> Vec<&'a Nic> {
    let near: Vec<&Nic> = nics.iter().filter(|nic| nic.near).collect();
    let near = if near.is_empty() { nics.iter().collect() } else { near };
    let fastest = near.iter().filter_map(|nic| nic.gbps).reduce(f64::max);
    let used: Vec<&Nic> = near.into_iter().filter(|nic| nic.gbps == fastest).collect();
    if used.len() < nics.len() {
        let names = |used: &[&Nic], keep: bool| {
            let is_used = |nic: &Nic| used.iter().any(|other| other.name == nic.name);
            let names = nics.iter().filter(|nic| is_used(nic) == keep);
            names.map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        notes.push(format!(
            "NICs counted: {}; left out, since they are slower or share no PCIe switch with a GPU: {}; \
             --nics says another number",
            names(&used, true),
            names(&used, false)
        ));
    }
    used
}

/// The transport that a NIC's name belongs to.
fn network_of(nic: &str) -> Option<&'static str> {
    let names = [
        ("rdmap", "efa"),
        ("efa", "efa"),
        ("cxi", "slingshot"),
        ("hsi", "slingshot"),
        ("bnxt", "roce"),
        ("irdma", "roce"),
        ("ionic", "roce"),
        ("roce", "roce"),
        ("mlx", "ib"),
        ("ib", "ib"),
        ("eth", "tcp"),
        ("ens", "tcp"),
        ("eno", "tcp"),
        ("enp", "tcp"),
    ];
    let nic = nic.to_lowercase();
    names.iter().find(|(word, _)| nic.contains(word)).map(|(_, network)| *network)
}
