//! Tables of nccl-tests: header lines `# key: value`, then `bytes,time_us,…`.

use crate::card::{Card, Intra};
use crate::collective::{Collective, UnknownCollective};
use crate::placement::Launcher;
use crate::settings::{SettingError, Settings};

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
    /// Remarks on what of the table was passed over, in sentences.
    pub notes: Vec<String>,
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
        let mut unit_us = 1.0;
        for (line, number) in text.lines().zip(first_line..) {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                if let Some((key, value)) = comment.split_once(':') {
                    header.push((key.trim().to_lowercase(), value.trim()));
                }
            } else if is_row(line) {
                let (bytes, time) =
                    row(line).map_err(|why| TableError::Line { line: number, why })?;
                points.push((bytes, time * unit_us));
                if points.len() > MOST_ROWS {
                    let why = format!("more than {MOST_ROWS} rows");
                    return Err(TableError::Line { line: number, why });
                }
            } else if let Some((_, columns)) = line.split_once(',').filter(|(it, _)| *it == "bytes")
            {
                unit_us =
                    time_unit(columns).map_err(|why| TableError::Line { line: number, why })?;
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
        if needed("kind")?.is_empty() && words("gpu_model").is_empty() {
            let why = "`kind:` is empty: say which machine it was, as `# kind: H100-SXM-IB`".into();
            return Err(TableError::Line { line: first_line, why });
        }
        let (_, notes) = environment(&words("settings"));
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
            notes,
        })
    }

    /// NCCL's variables among the settings; what is no variable of the model is passed over.
    #[must_use]
    pub fn environment(&self) -> Settings {
        let (mut settings, _) = environment(&self.settings);
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

/// NCCL's variables in free text, and remarks on those that cannot be meant so.
fn environment(text: &str) -> (Settings, Vec<String>) {
    let mut settings = Settings::default();
    let mut notes = Vec::new();
    for word in text.split([' ', ',', ';']) {
        let Some((name, value)) = word.split_once('=') else { continue };
        // Free text: neither another variable nor a wrong value is a reason to refuse the table.
        match settings.set(name, value) {
            Ok(()) | Err(SettingError::Unknown { .. }) => {}
            Err(error @ (SettingError::Value { .. } | SettingError::Contradiction { .. })) => {
                let note = format!("settings: {error}; passed over");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
    }
    (settings, notes)
}

/// Microseconds of the unit that a table's second column is named after.
fn time_unit(columns: &str) -> Result<f64, String> {
    match columns.split(',').next().unwrap_or_default().trim() {
        "time_us" | "us" | "time" | "time(us)" => Ok(1.0),
        "time_ns" => Ok(1e-3),
        "time_ms" => Ok(1e3),
        "time_s" => Ok(1e6),
        other => Err(format!(
            "the second column is `{other}`, and should be time_us (or time_ns, time_ms, time_s)"
        )),
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
