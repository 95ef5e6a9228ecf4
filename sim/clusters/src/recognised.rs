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
        if counted_gpus(name) {
            return Err(unknown);
        }
        let (mut cluster, is_relative) = by_words(self, name, Form::said(name)).ok_or(unknown)?;
        let enlarged = with_domain(self, name, &mut cluster);
        let taken = is_relative.then(|| take_for(name, &mut cluster)).or(enlarged);
        // The name is the card's, not this very machine's.
        keep_one_node(&mut cluster);
        Ok((cluster, taken))
    }
}

/// True if a name ends in a number of GPUs, as those of clusters do: `h100x9` is a misspelt cluster, no card.
fn counted_gpus(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    let before = name.trim_end_matches(|it: char| it.is_ascii_digit());
    let card = before.strip_suffix('x').unwrap_or_default();
    before.len() < name.len() && card.ends_with(|it: char| it.is_ascii_digit())
}

/// Drops the measurements over several nodes: they are not known to be of this machine.
fn keep_one_node(cluster: &mut Cluster) {
    for measured in &mut cluster.measured {
        measured.nodes.retain(|nodes| *nodes == 1);
    }
}

/// Gives the cluster the domain of NVLink that a name says, as `NVL36` does, where that is not its own: a larger
/// or smaller rack of the same card. Tells it in a sentence.
fn with_domain(catalog: &Catalog, described: &str, cluster: &mut Cluster) -> Option<String> {
    let words = plain(described);
    let digits = words.match_indices("nvl").find_map(|(at, _)| {
        let rest = &words[at + 3..];
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().ok()
    })?;
    let own = cluster.domain_gpus.unwrap_or(cluster.gpus_per_node);
    let gpus = cluster.gpus_per_node.max(1);
    if digits == own || digits < gpus || digits > 1024 {
        return None;
    }
    let mut rates = String::new();
    let card = catalog.card(&cluster.card).ok()?;
    if card.intra == Intra::Mesh {
        // Switches give every GPU all of its links, as they do the same generation's boards.
        let switched = catalog.cards.iter().find(|other| {
            other.intra == Intra::Nvswitch
                && other.generation == card.generation
                && other.links == card.links
                && (other.link_gbps - card.link_gbps).abs() < 1e-9
        })?;
        cluster.card.clone_from(&switched.name);
        rates = format!(", at the rates of {} behind its switches", switched.name);
    } else if card.intra != Intra::Nvswitch {
        return None;
    }
    cluster.domain_gpus = (digits > gpus).then_some(digits / gpus * gpus);
    let told = take_for(described, cluster);
    Some(format!("{told} with {digits} GPUs in one domain of NVLink{rates}"))
}

/// The most PCIe cards of a host.
const MOST_PCIE_CARDS: u32 = 16;

/// Takes a machine for its relative: no measurement backs it, and the sentence says so.
fn take_for(described: &str, cluster: &mut Cluster) -> String {
    cluster.measured.clear();
    format!("{described} is not known, and taken for {} ({})", cluster.name, cluster.title)
}

/// The cluster whose words these are, and whether it is only a relative of the machine: another card, or the
/// card in another form.
fn by_words(catalog: &Catalog, words: &str, form: Option<Form>) -> Option<(Cluster, bool)> {
    let words = Words::new(words);
    let longest = |names: &[String]| {
        let held = names.iter().filter(|name| words.hold(&plain(name)));
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

/// A name without case, blanks and punctuation, and where its words began.
struct Words {
    letters: Vec<char>,
    begins: Vec<bool>,
}

impl Words {
    fn new(name: &str) -> Self {
        let (mut letters, mut begins) = (Vec::new(), Vec::new());
        let mut is_begin = true;
        for letter in name.to_lowercase().chars() {
            if letter.is_alphanumeric() {
                letters.push(letter);
                begins.push(std::mem::take(&mut is_begin));
            } else {
                is_begin = true;
            }
        }
        Self { letters, begins }
    }

    /// True if a card's plain name is in the words: not as a part of another number or name, as H100 is in
    /// H1000 and H200 in GH200.
    fn hold(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let Some((first, last)) = name.first().zip(name.last()) else { return false };
        let places = self.letters.windows(name.len()).enumerate();
        places.filter(|(_, window)| *window == name).any(|(at, _)| {
            let end = at + name.len();
            let goes_on = end < self.letters.len()
                && !self.begins[end]
                && last.is_ascii_digit()
                && self.letters[end].is_ascii_digit();
            !goes_on && (self.begins[at] || self.ends_before(at, *first))
        })
    }

    /// True if the name that begins at `at` with `first`, within a word, is none that began earlier: behind a
    /// letter if it is a number, else behind a number or a maker.
    fn ends_before(&self, at: usize, first: char) -> bool {
        if first.is_ascii_digit() {
            return at > 0 && !self.letters[at - 1].is_ascii_digit();
        }
        let from = (0..at).rev().find(|from| self.begins[*from]).unwrap_or(0);
        let before: String = self.letters[from..at].iter().collect();
        let makers = ["dgx", "hgx", "nvidia", "tesla", "geforce", "amd", "instinct", "rtx", "gtx"];
        let count = before.strip_suffix('x').unwrap_or(&before);
        makers.contains(&before.as_str()) || count.ends_with(|it: char| it.is_ascii_digit())
    }
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
        let per_node = self.ranks_per_node();
        self.fit_node(catalog, &mut cluster, &mut understood)?;
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
        Ok(Recognised { cluster, understood })
    }

    /// Makes room for the table's GPUs where its node may hold more than the cluster's: a rack of NVLink, or a
    /// host of PCIe cards.
    fn fit_node(
        &self,
        catalog: &Catalog,
        cluster: &mut Cluster,
        understood: &mut Understood,
    ) -> Result<(), CatalogError> {
        let (asked, gpus) = (self.ranks_per_node(), cluster.gpus_per_node.max(1));
        if asked <= gpus {
            return Ok(());
        }
        let (name, title) = (&cluster.name, &cluster.title);
        let is_pcie = Form::of(catalog, cluster) != Form::Board;
        let told = match cluster.domain_gpus {
            Some(domain) if asked <= domain => {
                cluster.nics_per_node = cluster.nics_per_node.saturating_mul(asked) / gpus;
                format!(
                    "a node of {asked} GPUs is taken for {} of {name} in one domain of NVLink, {gpus} GPUs each",
                    asked.div_ceil(gpus)
                )
            }
            None if is_pcie && asked <= MOST_PCIE_CARDS => {
                let told = format!(
                    "a node of {asked} GPUs is taken for {name} ({title}) with more cards (extrapolated)"
                );
                cluster.measured.clear();
                told
            }
            _ => {
                return Err(CatalogError::TooManyGpus {
                    asked,
                    kind: self.described_kind().to_owned(),
                    cluster: name.clone(),
                    gpus,
                });
            }
        };
        understood.notes.push(told);
        cluster.gpus_per_node = asked;
        Ok(())
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
        keep_one_node(&mut cluster);
        let described = self.described_kind();
        let enlarged = with_domain(catalog, described, &mut cluster);
        understood.taken_for = is_relative.then(|| take_for(described, &mut cluster)).or(enlarged);
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
                keep_one_node(cluster);
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
