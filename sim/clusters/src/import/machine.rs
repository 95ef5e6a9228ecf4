//! A machine as a file describes it, whichever file that is.

use crate::catalog::CatalogError;
use std::collections::BTreeMap;

/// A file that does not describe a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Neither a matrix nor NCCL's XML.
    #[error(
        "it is neither the output of `nvidia-smi topo -m` nor the XML that NCCL writes with \
         NCCL_TOPO_DUMP_FILE"
    )]
    Unknown,
    /// A line is not understood, or says what cannot be.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The problem, in words.
        why: String,
    },
    /// The machine as a whole cannot be.
    #[error("{0}")]
    Machine(String),
    /// The card is not known.
    #[error(
        "the file does not tell which card it is{seen}: say it with --card, for example {nearest}"
    )]
    Card {
        /// ` (sm 75)` or nothing.
        seen: String,
        /// Cards with such links.
        nearest: String,
    },
    /// The cluster that comes of it makes no sense.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// The most GPUs and NICs of a node.
pub(super) const MOST_DEVICES: usize = 1024;

/// A machine, as its file describes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// GPUs of a node.
    pub(super) gpus: u32,
    /// GPUs that share NVLink over several nodes, if they do.
    pub(super) domain_gpus: Option<u32>,
    pub(super) fabric: Fabric,
    /// The card's name, if the file tells.
    pub(super) card: Option<String>,
    /// The file's statements about the card, in words.
    pub(super) seen: String,
    pub(super) nics: Vec<Nic>,
    /// Each GPU by its name in the file, and its NVLinks; 0 where the file has none for it.
    pub(super) nvlinks: Vec<(String, u32)>,
    /// The GPUs' memory is the processor's too: Grace.
    pub(super) coherent: bool,
}

/// Links between the GPUs of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fabric {
    /// NVLink through switches, so many links a GPU.
    Switched(u32),
    /// NVLink between pairs of GPUs, so many links a GPU.
    Direct(u32),
    /// NVLink between some pairs only; the others by PCIe.
    Pairs,
    /// PCIe.
    #[default]
    Pcie,
    /// AMD's links.
    Xgmi,
}

/// A network card.
#[derive(Clone, Debug)]
pub(super) struct Nic {
    pub(super) name: String,
    /// Gb/s, if the file says it.
    pub(super) gbps: Option<f64>,
    /// It shares a PCIe switch with a GPU.
    pub(super) near: bool,
}

/// The fabric of GPUs with so many NVLinks to each other.
pub(super) fn fabric_of(links: &[BTreeMap<usize, u32>]) -> Fabric {
    let gpus = links.len();
    let counts = |of: &BTreeMap<usize, u32>| of.values().copied().collect::<Vec<_>>();
    let total = |of: &BTreeMap<usize, u32>| of.values().sum::<u32>();
    let first = links.first().map(counts).unwrap_or_default();
    let all = links.iter().all(|of| of.len() + 1 == gpus);
    let alike = links.iter().all(|of| of.values().all(|count| first.first() == Some(count)));
    let most = links.iter().map(total).max().unwrap_or(0);
    match first.first() {
        _ if most == 0 => Fabric::Pcie,
        // Every pair shows all links of a GPU, more than it can have to each other.
        Some(each) if all && alike && gpus > 2 && most > MOST_LINKS => Fabric::Switched(*each),
        Some(each) if all && alike && gpus == 2 && *each >= FEWEST_SWITCHED => {
            Fabric::Switched(*each)
        }
        _ if all => Fabric::Direct(most),
        _ if most <= 6 && gpus > 2 && links.iter().all(|of| of.len() > 1) => Fabric::Direct(most),
        _ => Fabric::Pairs,
    }
}

/// NVLinks that a GPU has at most, up to Blackwell.
const MOST_LINKS: u32 = 18;
/// Two GPUs with as many links between them use all that they have, as behind switches.
const FEWEST_SWITCHED: u32 = 12;
