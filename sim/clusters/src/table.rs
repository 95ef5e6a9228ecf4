//! Tables of nccl-tests: header lines `# key: value`, then `bytes,time_us,…`.

use crate::card::{Card, Intra};
use crate::collective::{Collective, UnknownCollective};
use crate::log_lines::as_printed;
use crate::placement::{Launcher, MOST_NODES};
use crate::quantity::parse_bytes;
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
    #[error("line {line}: the header of the table that begins here has no line `# {key}: …`")]
    Missing {
        /// The key.
        key: &'static str,
        /// The first line of the table, counted from 1.
        line: usize,
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
    #[error("line {line}: the table that begins here holds no row `bytes,time_us,…`")]
    Empty {
        /// The first line of the table, counted from 1.
        line: usize,
    },
}

/// The most GPUs of a node.
const MOST_GPUS_PER_NODE: u32 = 1024;
/// The most rows of a table.
const MOST_ROWS: usize = 100_000;

impl Table {
    /// True if a text holds tables: its comments or its column names are theirs.
    #[must_use]
    pub fn are_in(text: &str) -> bool {
        let printed = as_printed(text);
        let mut lines = printed.lines().map(str::trim);
        lines.any(|line| match header_line(line) {
            Some((key, _)) => key == "collective",
            None => matches!(Columns::of(line), Some(Ok(_))),
        })
    }

    /// Reads all tables of a text: a header behind rows that names a collective begins the next one.
    ///
    /// # Errors
    /// As [`Table::parse`], for any of them, with the line of the whole text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TableError> {
        let text = &as_printed(text);
        let mut begins = vec![(0, 1)];
        let (mut at, mut has_rows) = (0, false);
        // The line of the header after the last row, and true if it names a collective.
        let (mut header, mut names) = (None, false);
        for (line, number) in text.split_inclusive('\n').zip(1..) {
            let trimmed = line.trim();
            if trimmed.starts_with('#') {
                header = header.or(has_rows.then_some((at, number)));
                names |= header_line(trimmed).is_some_and(|(key, _)| key == "collective");
            } else if is_row(trimmed) {
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
        Table::read(&as_printed(text), 1)
    }

    /// The table of a part of a text that begins at a line.
    fn read(text: &str, first_line: usize) -> Result<Self, TableError> {
        let mut header = Header { first_line, lines: Vec::new() };
        let mut points = Vec::new();
        let mut columns = Columns::USUAL;
        for (line, number) in text.lines().zip(first_line..) {
            let line = line.trim();
            let wrong = |why| TableError::Line { line: number, why };
            if line.starts_with('#') {
                header.lines.extend(header_line(line).map(|(key, value)| (number, key, value)));
            } else if is_row(line) {
                points.push(columns.row(line).map_err(wrong)?);
                if points.len() > MOST_ROWS {
                    return Err(wrong(format!("more than {MOST_ROWS} rows")));
                }
            } else if let Some(named) = Columns::of(line) {
                columns = named.map_err(wrong)?;
            }
        }
        let (at, collective) = header.needed("collective")?;
        let collective = collective.parse().map_err(|error: UnknownCollective| {
            TableError::Line { line: at, why: error.to_string() }
        })?;
        if points.is_empty() {
            return Err(TableError::Empty { line: first_line });
        }
        let ((at, gpus), (of_nodes, nodes)) = (header.number("gpus")?, header.number("nodes")?);
        let wrong = |line, why| Err(TableError::Line { line, why });
        if nodes > MOST_NODES {
            return wrong(
                of_nodes,
                format!("{nodes} nodes are more than the model goes to ({MOST_NODES})"),
            );
        }
        if gpus.div_ceil(nodes) > MOST_GPUS_PER_NODE {
            return wrong(at, format!("{gpus} GPUs on {nodes} nodes are more than any node holds"));
        }
        if !gpus.is_multiple_of(nodes) {
            return wrong(
                at,
                format!(
                    "{gpus} GPUs do not spread evenly over {nodes} nodes, and the model has equal nodes: is \
                     one of the numbers wrong?"
                ),
            );
        }
        let (at, kind) = header.needed("kind")?;
        let words =
            |key: &str| header.value(key).map(|(_, value)| value).unwrap_or_default().to_owned();
        if kind.is_empty() && words("gpu_model").is_empty() {
            return wrong(
                at,
                "`kind:` is empty: say which machine it was, as `# kind: H100-SXM-IB`".into(),
            );
        }
        let (_, notes) = environment(&words("settings"));
        Ok(Self {
            collective,
            gpus,
            nodes,
            kind: kind.to_owned(),
            gpu_model: words("gpu_model"),
            intra_link: words("intra_link"),
            inter_link: words("inter_link"),
            settings: words("settings"),
            tool: words("tool"),
            points,
            notes,
        })
    }

    /// Ranks on each node.
    #[must_use]
    pub fn ranks_per_node(&self) -> u32 {
        self.gpus / self.nodes.max(1)
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

/// Key and value of a header line, `# key: value`.
fn header_line(line: &str) -> Option<(String, &str)> {
    let (key, value) = line.strip_prefix('#')?.split_once(':')?;
    Some((key.trim().to_lowercase(), value.trim()))
}

/// The header lines of a table.
struct Header<'a> {
    first_line: usize,
    /// The line, the key and the value.
    lines: Vec<(usize, String, &'a str)>,
}

impl<'a> Header<'a> {
    fn value(&self, key: &str) -> Option<(usize, &'a str)> {
        let mut lines = self.lines.iter();
        lines.find(|(_, known, _)| known == key).map(|(line, _, value)| (*line, *value))
    }

    fn needed(&self, key: &'static str) -> Result<(usize, &'a str), TableError> {
        self.value(key).ok_or(TableError::Missing { key, line: self.first_line })
    }

    /// The line and the value of a number above 0.
    fn number(&self, key: &'static str) -> Result<(usize, u32), TableError> {
        let (line, text) = self.needed(key)?;
        let is_whole = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        match text.parse::<u32>() {
            Ok(number) if number > 0 => Ok((line, number)),
            Err(_) if is_whole => {
                let why = format!("`{key}: {text}` is more than any machine has");
                Err(TableError::Line { line, why })
            }
            _ => Err(TableError::Line {
                line,
                why: format!("`{key}: {text}` is not a whole number above 0"),
            }),
        }
    }
}

/// The columns of a table that are read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Columns {
    bytes: usize,
    time: usize,
    /// Microseconds of the time's unit.
    unit_us: f64,
}

impl Columns {
    /// The columns of a table that does not name them.
    const USUAL: Self = Self { bytes: 0, time: 1, unit_us: 1.0 };

    /// The columns that a line names; none if the line names no columns of such a table.
    fn of(line: &str) -> Option<Result<Self, String>> {
        let names: Vec<String> =
            cells(line).map(|it| it.trim_matches('"').to_lowercase()).collect();
        let size = |name: &String| {
            let sizes = ["bytes", "size", "size(b)", "size_b", "size_bytes", "message_bytes"];
            sizes.contains(&name.replace(' ', "").as_str())
        };
        let bytes = names.iter().position(size);
        let time = names.iter().enumerate().find_map(|(at, name)| Some((at, time_unit(name)?)));
        if names.len() < 2 {
            return None;
        }
        Some(match (bytes, time) {
            (Some(bytes), Some((time, unit_us))) => Ok(Self { bytes, time, unit_us }),
            (Some(bytes), None) => {
                let other = names.get(usize::from(bytes == 0)).map_or("", String::as_str);
                Err(format!(
                    "no column is the time: one of them, as `{other}`, should be time_us (or time_ns, time_ms, \
                     time_s)"
                ))
            }
            (None, Some(_)) => {
                Err("no column is the size: one of them should be `bytes`".to_owned())
            }
            (None, None) => return None,
        })
    }

    /// Bytes and microseconds of a row.
    fn row(self, line: &str) -> Result<(u64, f64), String> {
        let cell = |at: usize| cells(line).nth(at).map(|cell| cell.trim_matches('"'));
        // nccl-tests round sizes below a rank's element down to none.
        let bytes = cell(self.bytes).and_then(|cell| match cell {
            "0" => Some(0),
            size => parse_bytes(size).ok(),
        });
        let time = cell(self.time).and_then(|cell| cell.parse::<f64>().ok());
        match (bytes, time) {
            (Some(bytes), Some(time)) if time > 0.0 && time.is_finite() => {
                Ok((bytes, time * self.unit_us))
            }
            _ => Err(format!("`{line}` is no row `bytes,time_us,…`")),
        }
    }
}

/// The cells of a line, between semicolons, tabs or commas.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    let separator = [';', '\t'].into_iter().find(|it| line.contains(*it)).unwrap_or(',');
    line.split(separator).map(str::trim)
}

/// Microseconds of the unit that a column of times is named after; none if the name is none of a time.
fn time_unit(name: &str) -> Option<f64> {
    Some(match name.replace(' ', "").as_str() {
        "time_us" | "us" | "time" | "time(us)" | "latency_us" => 1.0,
        "time_ns" | "time(ns)" => 1e-3,
        "time_ms" | "time(ms)" => 1e3,
        "time_s" | "time(s)" => 1e6,
        _ => return None,
    })
}
