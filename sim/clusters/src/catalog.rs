//! The shipped cards, transports and clusters, found by name, by alias, or by what a table's header
//! says.

use crate::card::Card;
use crate::cluster::Cluster;
use crate::collective::Collective;
use crate::given::{Point, check_point};
use crate::network::Network;
use crate::placement::{Placement, PlacementError};
use crate::planes::MOST_PLANES;
use lockstep_core::words::nearest;
use serde::de::DeserializeOwned;

/// A file of the catalogue that does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Not TOML, or not these fields.
    #[error("{file}: {why}")]
    Parse {
        /// The file's name.
        file: String,
        /// The parser's message.
        why: String,
    },
    /// A number that no machine has, or a name that leads nowhere.
    #[error("{file}: {why}")]
    Nonsense {
        /// The file's name.
        file: String,
        /// The problem, in words.
        why: String,
    },
    /// No cluster of this name.
    #[error("no cluster is called {name}:{meant} `lockstep time --list` lists them")]
    Unknown {
        /// The name as it was given.
        name: String,
        /// `did you mean …?` with a space before it, or nothing.
        meant: String,
    },
    /// A table's node with more GPUs than the machine that it names.
    #[error(
        "{asked} GPUs on a node are more than {kind} has: a node of {cluster} has {gpus}; is `gpus`, `nodes` or \
         `kind` wrong?"
    )]
    TooManyGpus {
        /// GPUs of the table's node.
        asked: u32,
        /// The machine that its header names.
        kind: String,
        /// The cluster that it is taken for.
        cluster: String,
        /// The cluster's GPUs a node.
        gpus: u32,
    },
    /// No card of this name in the table of what cards compute.
    #[error("no card is called {name}:{meant} known are {known}")]
    UnknownCard {
        /// The name as it was given.
        name: String,
        /// `did you mean …?` with a space before it, or nothing.
        meant: String,
        /// The names of all cards.
        known: String,
    },
}

/// All cards, transports and clusters.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Kinds of GPUs in their nodes.
    pub cards: Vec<Card>,
    /// Transports between nodes.
    pub networks: Vec<Network>,
    /// Named systems.
    pub clusters: Vec<Cluster>,
}

use crate::shipped::{CARDS, CLUSTERS, NETWORKS};

impl Catalog {
    /// The catalogue that ships.
    ///
    /// # Errors
    /// If a shipped file is wrong; the tests read them all.
    pub fn shipped() -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for (file, text) in CARDS {
            catalog.cards.push(parse(file, text)?);
        }
        for (file, text) in NETWORKS {
            catalog.networks.push(parse(file, text)?);
        }
        for (file, text) in CLUSTERS {
            let cluster = parse(file, text)?;
            catalog.add(file, cluster)?;
        }
        Ok(catalog)
    }

    /// Takes a cluster from the text of a TOML file and gives it back.
    ///
    /// # Errors
    /// If the text is not a cluster, or a number or a name in it makes no sense.
    pub fn add_text(&mut self, file: &str, text: &str) -> Result<Cluster, CatalogError> {
        let cluster: Cluster = parse(file, text)?;
        self.add(file, cluster.clone())?;
        Ok(cluster)
    }

    fn add(&mut self, file: &str, cluster: Cluster) -> Result<(), CatalogError> {
        self.check(file, &cluster)?;
        self.clusters.push(cluster);
        Ok(())
    }

    /// True if a cluster from a file can be one.
    ///
    /// # Errors
    /// If a number or a name in it makes no sense.
    pub(crate) fn check(&self, file: &str, cluster: &Cluster) -> Result<(), CatalogError> {
        let nonsense = |why: String| CatalogError::Nonsense { file: file.to_owned(), why };
        if !self.cards.iter().any(|card| card.name == cluster.card) {
            let known = near(&cluster.card, self.cards.iter().map(|card| card.name.as_str()));
            return Err(nonsense(format!("no card is called {}; {known}", cluster.card)));
        }
        if let Some(network) = &cluster.network {
            if !self.networks.iter().any(|known| known.name == *network) {
                let known = near(network, self.networks.iter().map(|it| it.name.as_str()));
                return Err(nonsense(format!("no network is called {network}; {known}")));
            }
            if cluster.nics_per_node == 0 {
                return Err(nonsense(format!("its network {network} needs nics_per_node above 0")));
            }
            if !(0.001..=10_000.0).contains(&cluster.nic_gbps) {
                return Err(nonsense(format!(
                    "nic_Gbps = {}: a NIC sends between 0.001 and 10,000 Gb/s",
                    cluster.nic_gbps
                )));
            }
        }
        if cluster.name.trim().is_empty() {
            return Err(nonsense(
                "name is empty: say what `--cluster` and the page call it".into(),
            ));
        }
        if cluster.sources.iter().all(|source| source.trim().is_empty()) {
            let why = "sources is empty: say where its numbers come from, as in sources = [\"data sheet\"]";
            return Err(nonsense(why.into()));
        }
        if cluster.nodes_per_leaf == Some(0) {
            return Err(nonsense("nodes_per_leaf is at least 1".into()));
        }
        if cluster.oversubscription.is_some() && cluster.nodes_per_leaf.is_none() {
            let why =
                "oversubscription is of leaf switches: say nodes_per_leaf too, or leave it out";
            return Err(nonsense(why.into()));
        }
        if cluster.oversubscription.is_some_and(|times| !(1.0..=1000.0).contains(&times)) {
            return Err(nonsense("oversubscription is a number from 1 to 1,000".into()));
        }
        if cluster.planes.is_some_and(|planes| !(1..=MOST_PLANES).contains(&planes)) {
            return Err(nonsense(format!("planes is a number from 1 to {MOST_PLANES}")));
        }
        if cluster.nics_per_node > 1024 {
            return Err(nonsense("nics_per_node is at most 1,024".into()));
        }
        if !(1..=1024).contains(&cluster.gpus_per_node) {
            return Err(nonsense("gpus_per_node is between 1 and 1,024".into()));
        }
        let domain = cluster.domain_gpus.unwrap_or(cluster.gpus_per_node);
        if !(cluster.gpus_per_node..=1024).contains(&domain) {
            return Err(nonsense("domain_gpus is between gpus_per_node and 1,024".into()));
        }
        check_given(cluster).map_err(nonsense)
    }

    /// The cluster of this name or alias; case, blanks, `-` and `_` do not count.
    ///
    /// # Errors
    /// If there is none: with the nearest names.
    pub fn cluster(&self, name: &str) -> Result<&Cluster, CatalogError> {
        let wanted = plain(name);
        let mut named = self.clusters.iter();
        if let Some(found) = named.find(|cluster| plain(&cluster.name) == wanted) {
            return Ok(found);
        }
        let mut aliased = self.clusters.iter();
        aliased
            .find(|cluster| cluster.aliases.iter().any(|alias| plain(alias) == wanted))
            .ok_or_else(|| self.unknown(name))
    }

    pub(crate) fn unknown(&self, name: &str) -> CatalogError {
        let names = self
            .clusters
            .iter()
            .flat_map(|it| std::iter::once(&it.name).chain(&it.aliases))
            .map(String::as_str);
        // A cluster once, by its nearest name.
        let mut near: Vec<(&str, &str)> = Vec::new();
        for named in nearest(name, names, 12) {
            let Ok(cluster) = self.cluster(named) else { continue };
            if near.len() < 3 && near.iter().all(|(_, known)| *known != cluster.name) {
                near.push((named, &cluster.name));
            }
        }
        let near: Vec<&str> = near.into_iter().map(|(named, _)| named).collect();
        let meant = match near.as_slice() {
            [] => " known are for example h100x8, dgx-a100, mi300x, 4090x8-pcie;".to_owned(),
            near => format!(" nearest are {};", near.join(", ")),
        };
        let name = if name.trim().is_empty() { "\"\"" } else { name };
        CatalogError::Unknown { name: name.to_owned(), meant }
    }

    /// The card of a cluster.
    ///
    /// # Errors
    /// If the catalogue has none of that name.
    pub fn card(&self, name: &str) -> Result<&Card, CatalogError> {
        self.cards.iter().find(|card| card.name == name).ok_or_else(|| CatalogError::Nonsense {
            file: "catalogue".into(),
            why: format!("no card is called {name}"),
        })
    }

    /// The sources of a cluster's numbers: its own, and the rates and latencies of its card and
    /// transport.
    #[must_use]
    pub fn sources(&self, cluster: &Cluster) -> Vec<String> {
        let card = self.cards.iter().find(|card| card.name == cluster.card);
        let card = card.map(|card| ("card", &card.name, &card.source));
        let network = cluster.network.as_deref().and_then(|name| self.network(name));
        let network = network.map(|network| ("network", &network.name, &network.source));
        let fitted = card.into_iter().chain(network);
        let fitted =
            fitted.map(|(what, name, source)| format!("rates of the {what} {name}: {source}"));
        cluster.sources.iter().cloned().chain(fitted).collect()
    }

    /// The transport of this name.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name == name)
    }

    /// The points that were measured on this very machine.
    ///
    /// # Errors
    /// If the machine does not hold ranks that its file says were measured, or a time is faster than its links.
    pub fn given_points(&self, cluster: &Cluster) -> Result<Vec<Point>, PlaceError> {
        let mut all = Vec::new();
        for given in &cluster.given {
            let placement = self.place(cluster, given.nodes.into(), given.ranks_per_node)?;
            let Ok(collective) = given.collective.parse::<Collective>() else { continue };
            for &(bytes, us) in &given.points {
                let point = Point { placement: placement.clone(), collective, bytes, us };
                check_point(&point).map_err(|error| CatalogError::Nonsense {
                    file: cluster.name.clone(),
                    why: format!("a given point cannot be: {error}"),
                })?;
                all.push(point);
            }
        }
        Ok(all)
    }

    /// `per_node` ranks on each of `nodes` nodes of `cluster`.
    ///
    /// # Errors
    /// If the cluster cannot hold them, or its card is unknown.
    pub fn place(
        &self,
        cluster: &Cluster,
        nodes: u64,
        per_node: u32,
    ) -> Result<Placement, PlaceError> {
        let card = self.card(&cluster.card)?;
        let network = cluster.network.as_deref().and_then(|name| self.network(name));
        Ok(Placement::new(cluster, card, network, nodes, per_node)?)
    }
}

/// The reason that ranks cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The cluster is not well described.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The ranks do not fit.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// The most measured points of a cluster: their fit takes the cube of them.
pub(crate) const MOST_GIVEN: usize = 512;

/// Refuses measured points that cannot be; the error says what is wrong with them.
fn check_given(cluster: &Cluster) -> Result<(), String> {
    let count: usize = cluster.given.iter().map(|given| given.points.len()).sum();
    if count > MOST_GIVEN {
        return Err(format!("{count} given points are more than {MOST_GIVEN}: leave sizes out"));
    }
    for given in &cluster.given {
        given.collective.parse::<Collective>().map_err(|error| error.to_string())?;
        let right = |(bytes, us): &&(u64, f64)| {
            (1..=1_000_000_000_000_000).contains(bytes) && *us > 0.0 && *us <= 1e12
        };
        if let Some((bytes, us)) = given.points.iter().find(|point| !right(point)) {
            return Err(format!("a given point of {bytes} bytes in {us} µs: no call takes that"));
        }
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, CatalogError> {
    toml::from_str(text).map_err(|error| {
        let why = error.message().to_owned();
        let line = error.span().map_or(0, |span| {
            text.get(..span.start).map_or(0, |before| before.matches('\n').count() + 1)
        });
        let why = if line > 0 { format!("line {line}: {why}") } else { why };
        CatalogError::Parse { file: file.to_owned(), why }
    })
}

/// A name without case, blanks and punctuation.
pub(crate) fn plain(name: &str) -> String {
    name.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect()
}

/// The names that are near a wrong one, or all of them: `nearest: h100, h200`.
fn near<'a>(wrong: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(wrong, names.clone(), 3) {
        none if none.is_empty() => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
        near => format!("nearest: {}", near.join(", ")),
    }
}
