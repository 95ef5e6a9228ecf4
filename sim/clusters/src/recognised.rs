//! The cluster that a table's header describes: by its kind, or by the words in it; with the NICs that its
//! free text names; and how all of that was understood.

use crate::card::Intra;
use crate::catalog::{Catalog, CatalogError, plain};
use crate::cluster::Cluster;
use crate::links::{Links, network_of, transport_title};
use crate::table::Table;

/// A cluster that a header describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognised {
    /// The cluster, with the header's NICs.
    pub cluster: Cluster,
    /// The reading of the header.
    pub understood: Understood,
}

/// The reading of a header, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Understood {
    /// NICs of a node and their transport: `8 x 200 Gb/s InfiniBand`; none on one node.
    pub links: Option<String>,
    /// The relative whose times are taken, in a sentence; none where the machine is known.
    pub taken_for: Option<String>,
    /// Other remarks, in sentences.
    pub notes: Vec<String>,
}

/// The form of a card, which decides over its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A PCIe card.
    Pcie,
    /// PCIe cards with NVLink bridges.
    Nvl,
    /// On a board with links between all: SXM, OAM.
    Board,
}

impl Form {
    /// The form that words name.
    fn said(words: &str) -> Option<Self> {
        let words = plain(words);
        let mut after_nvl = words.match_indices("nvl").map(|(at, _)| &words[at + 3..]);
        let is_bridged = |rest: &str| {
            !rest.starts_with("ink") && !rest.starts_with(|it: char| it.is_ascii_digit())
        };
        if after_nvl.any(is_bridged) {
            Some(Self::Nvl)
        } else if words.contains("pcie") {
            Some(Self::Pcie)
        } else if ["sxm", "nvswitch", "hgx", "dgx", "oam", "xgmi"]
            .iter()
            .any(|it| words.contains(it))
        {
            Some(Self::Board)
        } else {
            None
        }
    }

    fn of(catalog: &Catalog, cluster: &Cluster) -> Self {
        match catalog.card(&cluster.card).map(|card| card.intra) {
            _ if cluster.card.ends_with("-nvl") => Self::Nvl,
            Ok(Intra::Pcie) => Self::Pcie,
            _ => Self::Board,
        }
    }
}

impl Catalog {
    /// The cluster of this name; where only a relative of such a machine is known, that one, which no
    /// measurement backs, and the sentence that says so.
    ///
    /// # Errors
    /// If neither is known: with the nearest names.
    pub fn cluster_or_relative(
        &self,
        name: &str,
    ) -> Result<(Cluster, Option<String>), CatalogError> {
        let unknown = match self.cluster(name) {
            Ok(known) => return Ok((known.clone(), None)),
            Err(unknown) => unknown,
        };
        // A name with a known card in it is a misspelt one.
        let found = by_words(self, name, Form::said(name)).filter(|(_, is_relative)| *is_relative);
        let (mut cluster, _) = found.ok_or(unknown)?;
        let told = take_for(name, &mut cluster);
        Ok((cluster, Some(told)))
    }
}

/// Takes a machine for its relative: no measurement backs it, and the sentence says so.
fn take_for(described: &str, cluster: &mut Cluster) -> String {
    cluster.measured.clear();
    format!("{described} is not known, and taken for {} ({})", cluster.name, cluster.title)
}

/// The cluster whose words these are, and whether it is only a relative of the machine: another card, or the
/// card in another form.
fn by_words(catalog: &Catalog, words: &str, form: Option<Form>) -> Option<(Cluster, bool)> {
    let words = plain(words);
    let longest = |names: &[String]| {
        let held = names.iter().filter(|name| words.contains(&plain(name)));
        held.map(|name| name.len()).max().unwrap_or(0)
    };
    let mut best: Option<(&Cluster, bool, [usize; 3])> = None;
    for cluster in &catalog.clusters {
        let (own, other) = (longest(&cluster.words), longest(&cluster.relatives));
        if own.max(other) == 0 {
            continue;
        }
        let of_cluster = Form::of(catalog, cluster);
        // The form counts first, since it decides over the links; then the longest name, which says most.
        let fits = match form {
            Some(form) => of_cluster == form,
            None => of_cluster != Form::Nvl,
        };
        let is_board = form.is_none() && of_cluster == Form::Board;
        let rank = [usize::from(fits), own.max(other), usize::from(is_board)];
        let is_relative = other > own || form.is_some() && !fits;
        if best.is_none_or(|(_, _, known)| rank > known) {
            best = Some((cluster, is_relative, rank));
        }
    }
    best.map(|(cluster, is_relative, _)| (cluster.clone(), is_relative))
}

impl Table {
    /// The cluster of `catalog` that the header describes, with the NICs that it names.
    ///
    /// # Errors
    /// If neither the kind nor the card's name is known: with the nearest names.
    pub fn cluster(&self, catalog: &Catalog) -> Result<Cluster, CatalogError> {
        self.recognise(catalog).map(|it| it.cluster)
    }

    /// The same, and how the header was understood.
    ///
    /// # Errors
    /// If neither the kind nor the card's name is known: with the nearest names.
    pub fn recognise(&self, catalog: &Catalog) -> Result<Recognised, CatalogError> {
        let mut understood = Understood { notes: self.notes.clone(), ..Understood::default() };
        let mut cluster = self.named_cluster(catalog, &mut understood)?;
        let per_node = self.gpus.div_ceil(self.nodes);
        if self.nodes > 1 {
            self.set_nics(catalog, &mut cluster, per_node);
            let network = cluster.network.as_deref().unwrap_or_default();
            understood.links = Some(format!(
                "{} x {} Gb/s {}",
                cluster.nics_per_node,
                cluster.nic_gbps,
                transport_title(network)
            ));
        }
        // The table knows how many GPUs its nodes have at least.
        cluster.gpus_per_node = cluster.gpus_per_node.max(per_node);
        Ok(Recognised { cluster, understood })
    }

    /// The cluster that kind and card name, as it ships.
    fn named_cluster(
        &self,
        catalog: &Catalog,
        understood: &mut Understood,
    ) -> Result<Cluster, CatalogError> {
        let known = catalog.cluster(&self.kind);
        let said = Form::said(&self.kind);
        let of_model = Form::said(&self.gpu_model);
        if let Ok(known) = &known {
            let form = Form::of(catalog, known);
            let is_other = of_model.is_some_and(|of_model| of_model != form);
            if !is_other || said == Some(Form::Pcie) {
                return Ok((*known).clone());
            }
            if said.is_some() {
                understood.notes.push(format!(
                    "kind {} and gpu_model {} name different forms of a card: the kind is believed",
                    self.kind, self.gpu_model
                ));
                return Ok((*known).clone());
            }
        }
        let words = format!("{} {}", self.kind, self.gpu_model);
        let (mut cluster, is_relative) = by_words(catalog, &words, said.or(of_model))
            .ok_or_else(|| catalog.unknown(self.described_kind()))?;
        // The words name the card, not this very machine: only what was measured on one node of it counts.
        for measured in &mut cluster.measured {
            measured.nodes.retain(|nodes| *nodes == 1);
        }
        if is_relative {
            understood.taken_for = Some(take_for(self.described_kind(), &mut cluster));
        }
        Ok(cluster)
    }

    fn described_kind(&self) -> &str {
        if self.kind.is_empty() { &self.gpu_model } else { &self.kind }
    }

    /// Gives the cluster the transport and the NICs that the header names.
    fn set_nics(&self, catalog: &Catalog, cluster: &mut Cluster, per_node: u32) {
        let links = Links::read(&self.inter_link);
        let named = network_of(&self.inter_link, &self.kind);
        if let Some(network) = named {
            // The cluster's own variant of a transport says more than its plain name.
            let of_transport = |own: &str| own.split('-').next() == Some(network);
            if !cluster.network.as_deref().is_some_and(of_transport) {
                let like = catalog.clusters.iter().find(|like| {
                    like.card == cluster.card
                        && like.gpus_per_node == cluster.gpus_per_node
                        && like.network.as_deref().is_some_and(of_transport)
                });
                match like {
                    Some(like) => {
                        cluster.network.clone_from(&like.network);
                        cluster.nics_per_node = like.nics_per_node;
                        cluster.nic_gbps = like.nic_gbps;
                    }
                    None => cluster.network = Some(network.to_owned()),
                }
                // A measurement over the other transport backs nothing here.
                for measured in &mut cluster.measured {
                    measured.nodes.retain(|nodes| *nodes == 1);
                }
            }
        }
        cluster.network.get_or_insert_with(|| "ib".to_owned());
        let tcp = cluster.network.as_deref().is_some_and(|it| it == "tcp");
        let gpus = cluster.gpus_per_node.max(per_node);
        let nics = if cluster.nics_per_node == 0 { per_node } else { cluster.nics_per_node };
        let gbps = if cluster.nic_gbps > 0.0 { cluster.nic_gbps } else { 100.0 };
        let (nics, gbps) = links.of_node(gpus, (nics, gbps), tcp);
        (cluster.nics_per_node, cluster.nic_gbps) = (nics, gbps);
    }
}
