//! Tables of nccl-tests: header lines `# key: value`, then `bytes,time_us,…`; and the cluster that a
//! header describes.

use crate::card::{Card, Intra};
use crate::catalog::{Catalog, CatalogError, plain};
use crate::cluster::Cluster;
use crate::collective::{Collective, UnknownCollective};
use crate::placement::Launcher;
use crate::settings::Settings;

/// A table of measured times.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The collective that was measured.
    pub collective: Collective,
    /// Ranks.
    pub gpus: u32,
    /// Nodes.
    pub nodes: u32,
    /// The kind of machine.
    pub kind: String,
    /// The card in words.
    pub gpu_model: String,
    /// Links inside the node, in words.
    pub intra_link: String,
    /// Links between nodes, in words.
    pub inter_link: String,
    /// Settings in words, NCCL's variables among them.
    pub settings: String,
    /// The program that measured.
    pub tool: String,
    /// Bytes and microseconds, as they stand in the table.
    pub points: Vec<(u64, f64)>,
}

/// A table that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The header lacks a line.
    #[error("its header has no line `# {key}: …`")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A line of the header or a row is not understood.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The problem, in words.
        why: String,
    },
    /// There is no row.
    #[error("it holds no row `bytes,time_us,…`")]
    Empty,
}

/// The most GPUs of a node.
const MOST_GPUS_PER_NODE: u32 = 1024;
/// The most rows of a table.
const MOST_ROWS: usize = 100_000;

impl Table {
    /// Reads all tables of a text: a header behind rows that names a collective begins the next one.
    ///
    /// # Errors
    /// As [`Table::parse`], for any of them, with the line of the whole text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TableError> {
        let mut begins = vec![(0, 1)];
        let (mut at, mut has_rows) = (0, false);
        // Where the header behind the last row begins, and whether it names a collective.
        let (mut header, mut names) = (None, false);
        for (line, number) in text.split_inclusive('\n').zip(1..) {
            if let Some(comment) = line.trim_start().strip_prefix('#') {
                header = header.or(has_rows.then_some((at, number)));
                names |= comment.split_once(':').is_some_and(|(key, _)| key.trim() == "collective");
            } else if is_row(line.trim()) {
                begins.extend(header.take().filter(|_| names));
                (has_rows, names) = (true, false);
            }
            at += line.len();
        }
        let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([text.len()]);
        let parts = begins.iter().zip(ends).map(|((from, line), to)| (&text[*from..to], *line));
        parts.map(|(part, line)| Table::read(part, line)).collect()
    }

    /// Reads the text of a table.
    ///
    /// # Errors
    /// If a needed header line or every row is missing, or a row holds no numbers.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        Table::read(text, 1)
    }

    /// The table of a part of a text that begins at a line.
    fn read(text: &str, first_line: usize) -> Result<Self, TableError> {
        let mut header: Vec<(String, &str)> = Vec::new();
        let mut points = Vec::new();
        for (line, number) in text.lines().zip(first_line..) {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                if let Some((key, value)) = comment.split_once(':') {
                    header.push((key.trim().to_lowercase(), value.trim()));
                }
            } else if is_row(line) {
                let point = row(line).map_err(|why| TableError::Line { line: number, why })?;
                points.push(point);
                if points.len() > MOST_ROWS {
                    let why = format!("more than {MOST_ROWS} rows");
                    return Err(TableError::Line { line: number, why });
                }
            }
        }
        let value = |key: &str| header.iter().find(|(it, _)| it == key).map(|(_, value)| *value);
        let needed = |key: &'static str| value(key).ok_or(TableError::Missing { key });
        let number = |key: &'static str| {
            let text = needed(key)?;
            text.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(|| TableError::Line {
                line: first_line,
                why: format!("`{key}: {text}` is not a number above 0"),
            })
        };
        let collective = needed("collective")?.parse().map_err(|error: UnknownCollective| {
            TableError::Line { line: first_line, why: error.to_string() }
        })?;
        if points.is_empty() {
            return Err(TableError::Empty);
        }
        let (gpus, nodes) = (number("gpus")?, number("nodes")?);
        if gpus.div_ceil(nodes) > MOST_GPUS_PER_NODE {
            let why = format!("{gpus} GPUs on {nodes} nodes are more than any node holds");
            return Err(TableError::Line { line: first_line, why });
        }
        let words = |key: &str| value(key).unwrap_or_default().to_owned();
        Ok(Self {
            collective,
            gpus,
            nodes,
            kind: needed("kind")?.to_owned(),
            gpu_model: words("gpu_model"),
            intra_link: words("intra_link"),
            inter_link: words("inter_link"),
            settings: words("settings"),
            tool: words("tool"),
            points,
        })
    }

    /// NCCL's variables among the settings; what is no variable of the model is passed over.
    #[must_use]
    pub fn environment(&self) -> Settings {
        let mut settings = Settings::default();
        for word in self.settings.split([' ', ',']) {
            if let Some((name, value)) = word.split_once('=') {
                // Free text: a value that NCCL would not take is no reason to refuse the table.
                let _ = settings.set(name, value);
            }
        }
        let words = self.settings.to_lowercase();
        let without = ["before sharp", "no sharp", "without sharp", "sharp off", "not sharp"];
        if words.contains("sharp") && !without.iter().any(|word| words.contains(word)) {
            settings.coll_net = true;
        }
        settings
    }

    /// The launcher of the calls, as far as the header says.
    #[must_use]
    pub fn launcher(&self) -> Launcher {
        let settings = self.settings.to_lowercase();
        if self.tool.to_lowercase().contains("torch") {
            Launcher::PyTorch
        } else if settings.contains("process a gpu") || settings.contains("process per gpu") {
            Launcher::ProcessPerGpu
        } else if settings.contains("1 process") || settings.contains("one process") {
            Launcher::OneProcess
        } else {
            Launcher::Unknown
        }
    }

    /// The cluster of `catalog` that the header describes, with the NICs that it names.
    ///
    /// # Errors
    /// If neither the kind nor the card's name is known: with the nearest names.
    pub fn cluster(&self, catalog: &Catalog) -> Result<Cluster, CatalogError> {
        let mut cluster = match catalog.cluster(&self.kind) {
            Ok(cluster) => cluster.clone(),
            Err(unknown) => by_parts(catalog, self).ok_or(unknown)?,
        };
        let per_node = self.gpus.div_ceil(self.nodes);
        if self.nodes > 1 {
            let links = Links::read(&self.inter_link);
            if let Some(network) = network_of(&self.inter_link, &self.kind) {
                // The cluster's own variant of a transport says more than its plain name.
                let variant =
                    cluster.network.as_deref().is_some_and(|own| own.starts_with(network));
                if !variant {
                    cluster.network = Some(network.to_owned());
                    // What was measured over the other transport backs nothing here.
                    for measured in &mut cluster.measured {
                        measured.nodes.retain(|nodes| *nodes == 1);
                    }
                }
            }
            if let Some(nics) = links.nics {
                cluster.nics_per_node = nics;
            } else if links.per_gpu {
                cluster.nics_per_node = cluster.gpus_per_node;
            }
            if let Some(gbps) = links.gbps {
                // A rate without a count that no NIC has, or that is said of the node, is of all.
                let of_node = gbps > 800.0 || links.per_node && !links.per_gpu;
                let all = links.nics.is_none() && of_node && cluster.nics_per_node > 0;
                cluster.nic_gbps = gbps / if all { f64::from(cluster.nics_per_node) } else { 1.0 };
            }
            if cluster.network.is_none() {
                cluster.network = Some("ib".to_owned());
            }
            if cluster.nics_per_node == 0 {
                cluster.nics_per_node = per_node;
            }
            if cluster.nic_gbps <= 0.0 {
                cluster.nic_gbps = 100.0;
            }
        }
        // The table knows how many GPUs its nodes have at least.
        cluster.gpus_per_node = cluster.gpus_per_node.max(per_node);
        Ok(cluster)
    }
}

impl Table {
    /// The card as this machine has it: PCIe of another generation, or a rate that the header states.
    pub(crate) fn adjust(&self, card: &mut Card) {
        if card.intra != Intra::Pcie {
            return;
        }
        let text = self.intra_link.to_lowercase();
        let generations = [("pcie3", 16.0), ("pcie4", 32.0), ("pcie5", 64.0)];
        let plain: String = text.chars().filter(|it| !" -.".contains(*it)).collect();
        let plain = plain.replace("gen", "").replace("pciex16", "pcie");
        let link = generations.iter().find(|(name, _)| plain.contains(name)).map(|(_, rate)| *rate);
        let scale = match (stated_gbps(&self.intra_link), link) {
            (Some(rate), _) => rate / card.ring.busbw_gbps,
            (None, Some(link)) => link / card.link_gbps,
            (None, None) => 1.0,
        };
        for rate in [&mut card.ring, &mut card.all_to_all, &mut card.send_recv] {
            rate.busbw_gbps *= scale;
        }
        card.ll_busbw_gbps *= scale;
        card.ll128_busbw_gbps *= scale;
    }
}

/// A rate in GB/s that the text gives the collective, not a copy between two cards.
fn stated_gbps(text: &str) -> Option<f64> {
    if ["copy", "one way", "both ways", "peer"].iter().any(|word| text.contains(word)) {
        return None;
    }
    let before = text.split("GB/s").next().filter(|before| before.len() < text.len())?;
    let number = before.trim_end().rsplit(|it: char| !it.is_ascii_digit() && it != '.').next()?;
    number.parse().ok().filter(|rate| (1.0..=64.0).contains(rate))
}

fn is_row(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_digit())
}

fn row(line: &str) -> Result<(u64, f64), String> {
    let mut cells = line.split(',').map(str::trim);
    let bytes = cells.next().and_then(|cell| cell.parse::<u64>().ok());
    let time = cells.next().and_then(|cell| cell.parse::<f64>().ok());
    match (bytes, time) {
        (Some(bytes), Some(time)) if time > 0.0 && time.is_finite() => Ok((bytes, time)),
        _ => Err(format!("`{line}` is no row `bytes,time_us,…`")),
    }
}

/// A cluster put together from the card and the transport that the words of a header name.
fn by_parts(catalog: &Catalog, table: &Table) -> Option<Cluster> {
    let words = format!("{} {}", table.kind, table.gpu_model);
    let wanted = plain(&words);
    let relatives = |cluster: &&Cluster| {
        cluster.aliases.iter().any(|alias| alias.starts_with('~') && wanted.contains(&plain(alias)))
    };
    // The longest name that the header holds says most.
    let longest = |cluster: &&Cluster| {
        let named =
            cluster.aliases.iter().filter(|it| it.starts_with('~') && wanted.contains(&plain(it)));
        named.map(|alias| alias.len()).max().unwrap_or(0)
    };
    let mut found: Vec<&Cluster> = catalog.clusters.iter().filter(relatives).collect();
    found.sort_by_key(|cluster| std::cmp::Reverse(longest(cluster)));
    let mut cluster = (*found.first()?).clone();
    cluster.measured.clear();
    Some(cluster)
}

/// The transport that free text names.
fn network_of(inter_link: &str, kind: &str) -> Option<&'static str> {
    let names = [
        ("tcpxo", "tcpxo"),
        ("tcpx", "tcpx"),
        ("slingshot", "slingshot"),
        ("efa", "efa"),
        ("roce", "roce"),
        ("infiniband", "ib"),
        ("-ib", "ib"),
        ("ib ", "ib"),
        ("rdma", "ib"),
        ("tcp", "tcp"),
        ("ethernet", "tcp"),
        ("socket", "tcp"),
    ];
    // The link says more than the kind.
    [inter_link, kind].into_iter().find_map(|text| {
        let text = text.to_lowercase();
        names.iter().find(|(word, _)| text.contains(word)).map(|(_, network)| *network)
    })
}

/// NICs of a node as free text counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Links {
    nics: Option<u32>,
    gbps: Option<f64>,
    per_gpu: bool,
    per_node: bool,
}

impl Links {
    /// Reads `8 x 400 Gb/s a node`, `4 NICs x 200 Gb/s`, `8 NICs a node`, `400 Gb/s a GPU`,
    /// `InfiniBand HDR, NIC count not stated (2 likely)`.
    fn read(text: &str) -> Self {
        let lower = text.to_lowercase();
        // `Gb/s` counts bits and `GB/s` bytes: only bits are a line rate here.
        let words: Vec<&str> = text
            .split(|letter: char| letter.is_whitespace() || "(),;".contains(letter))
            .filter(|word| !word.is_empty())
            .collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<f64>().ok());
        const BITS: [&str; 5] = ["Gb/s", "Gbps", "Gbit/s", "Gbit", "Gb"];
        let mut links = Self::default();
        for (index, word) in words.iter().enumerate() {
            let before = index.checked_sub(1).and_then(number);
            if BITS.contains(word) {
                links.gbps = links.gbps.or(before);
            } else if *word == "Tb/s" || *word == "Tbps" {
                links.gbps = links.gbps.or(before.map(|tera| tera * 1000.0));
            } else if let Some(glued) = BITS.iter().find_map(|unit| word.strip_suffix(unit)) {
                links.gbps = links.gbps.or(glued.trim_end_matches('-').parse().ok());
            }
            let counts =
                ["x", "NIC", "NICs", "nics", "HCA", "HCAs", "rails", "likely"].contains(word);
            if counts && links.nics.is_none() {
                links.nics = before.map(whole).filter(|nics| (1..=64).contains(nics));
            }
            if let Some(glued) = word.strip_suffix('x').or(word.strip_prefix('x')) {
                let count = glued.parse::<f64>().ok().map(whole);
                links.nics = links.nics.or(count.filter(|nics| (1..=64).contains(nics)));
            }
            if let Some((count, rate)) = glued(word) {
                links.nics = links.nics.or(Some(count));
                links.gbps = links.gbps.or(Some(rate));
            }
        }
        links.per_gpu = lower.contains("a gpu") || lower.contains("per gpu");
        links.per_node = lower.contains("a node") || lower.contains("per node");
        if links.gbps.is_none() {
            links.per_node = false;
            let generations = [
                ("xdr", 800.0),
                ("ndr", 400.0),
                ("hdr100", 100.0),
                ("hdr", 200.0),
                ("edr", 100.0),
                ("fdr", 56.0),
                ("slingshot-11", 200.0),
                ("slingshot-10", 100.0),
            ];
            links.gbps =
                generations.iter().find(|(name, _)| lower.contains(name)).map(|(_, gbps)| *gbps);
        }
        links
    }
}

/// NICs and their rate in a word such as `8x400G`.
fn glued(word: &str) -> Option<(u32, f64)> {
    let (count, rate) = word.split_once('x')?;
    let count = count.parse().ok().filter(|count| (1..=64).contains(count))?;
    let rate = rate.trim_end_matches(|it: char| !it.is_ascii_digit()).parse().ok()?;
    (rate >= 10.0).then_some((count, rate))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u32 {
    value.clamp(0.0, 1e6) as u32
}
