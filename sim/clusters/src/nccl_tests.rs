//! Reads the output of nccl-tests (`src/util.cu` there): the devices, then a row a size. Several
//! tests can stand in one log, between lines of NCCL and of launchers.
//!
//! A row is believed only if its columns agree: bytes over time must be the algorithm bandwidth that
//! is printed beside it, and the bus bandwidth must be the one that the collective has. A test that failed, or
//! found wrong values, is refused; one that is cut off says so ([`Table::notes`]).

use crate::choice::float;
use crate::collective::Collective;
use crate::log_lines::as_printed;
use crate::quantity::bytes_text;
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};

/// A log that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Nothing of nccl-tests is in it.
    #[error(
        "it holds no row of nccl-tests; give what `all_reduce_perf` and its like print, or a table \
         (docs/clusters.md)"
    )]
    NoRows,
    /// The collective is not named.
    #[error(
        "line {line}: rows of a test that is not named: newer nccl-tests print `Collective test \
         starting: all_reduce_perf`; of older ones the file's name has to hold the collective, as \
         in all_reduce_perf.txt"
    )]
    Unnamed {
        /// Counted from 1.
        line: usize,
    },
    /// There is no list of devices.
    #[error(
        "line {line}: rows without a list of devices (`Rank 0 … on HOST device 0 …`) before them, \
         so that nobody knows how many ranks and nodes there were"
    )]
    NoDevices {
        /// Counted from 1.
        line: usize,
    },
    /// Nodes with different numbers of ranks.
    #[error(
        "line {line}: {most} ranks on one node and {least} on another; the model has equal nodes"
    )]
    Uneven {
        /// Counted from 1.
        line: usize,
        /// Ranks of the fullest node.
        most: u32,
        /// Ranks of the emptiest.
        least: u32,
    },
    /// The test failed.
    #[error("line {line}: the test failed ({said}), so its times are of nothing: run it again")]
    Failed {
        /// Counted from 1.
        line: usize,
        /// The line, or what of it tells.
        said: String,
    },
    /// A row that contradicts itself or the test's name.
    #[error("line {line}: {why}")]
    Row {
        /// Counted from 1.
        line: usize,
        /// The problem, in words.
        why: String,
    },
}

/// The most ranks of a log.
const MOST_RANKS: usize = 1 << 20;
/// The most rows of a test.
const MOST_ROWS: usize = 100_000;

/// A rank of the list of devices.
#[derive(Clone, Debug)]
struct Device {
    host: String,
    pid: String,
    model: String,
}

/// A test that is being read.
#[derive(Default)]
struct Test {
    collective: Option<Collective>,
    devices: BTreeMap<u32, Device>,
    /// The line of the first device, counted from 1.
    devices_line: Option<usize>,
    /// Columns from the first time on, and all columns, as the head names them.
    columns: Option<(usize, usize)>,
    points: BTreeMap<u64, Vec<f64>>,
    /// The largest size that it was asked for.
    most_bytes: Option<u64>,
    /// Its last lines were there.
    ended: bool,
}

/// Reads the tests of a log. `file` is the file's name, for tests that do not say what they are.
///
/// # Errors
/// If it holds no row, a row contradicts itself, or ranks and collective are not said.
pub fn read(file: &str, text: &str) -> Result<Vec<Table>, LogError> {
    let named = collective_in(file);
    let mut test = Test { collective: named, ..Test::default() };
    let mut tables = Vec::new();
    let printed = as_printed(text);
    let mut last = 0;
    for (line, text) in (1..).zip(printed.lines()) {
        last = line;
        let plain = text.trim_start().trim_start_matches('#').trim();
        if let Some(name) = plain.strip_prefix("Collective test starting:") {
            finish(&mut test, line, &mut tables)?;
            test = Test { collective: collective_in(name).or(named), ..Test::default() };
        } else if let Some(said) = failure(plain) {
            return Err(LogError::Failed { line, said });
        } else if plain.starts_with("Avg bus bandwidth")
            || plain.starts_with("Out of bounds values")
        {
            test.ended = true;
        } else if plain.starts_with("nThread ") {
            // Older versions begin with this line; newer ones have said the name just before.
            let collective = if test.points.is_empty() { test.collective } else { named };
            if !test.points.is_empty() {
                finish(&mut test, line, &mut tables)?;
                test = Test::default();
            }
            test.collective = collective;
            let most = plain.split_once("maxBytes").map(|(_, rest)| rest.trim_start());
            test.most_bytes = most.and_then(|it| it.split_whitespace().next()?.parse().ok());
        } else if let Some((rank, device)) = device(plain) {
            test.devices_line.get_or_insert(line);
            if test.devices.len() < MOST_RANKS {
                test.devices.insert(rank, device);
            }
        } else if plain.starts_with("size ") && plain.contains(" time ") {
            let words: Vec<&str> = plain.split_whitespace().collect();
            let time = words.iter().position(|word| *word == "time").unwrap_or(0);
            test.columns = Some((words.len() - time, words.len()));
        } else if let Some(columns) = test.columns
            && text.trim_start().starts_with(|first: char| first.is_ascii_digit())
            && let Some(Row { bytes, us, bandwidths, wrong }) = row(text, columns)
        {
            if wrong > 0.0 {
                let said = format!("#wrong says {wrong} wrong values at {bytes} bytes");
                return Err(LogError::Failed { line, said });
            }
            test.check(line, bytes, us, bandwidths)?;
            if test.points.len() < MOST_ROWS && bytes > 0 && us > 0.0 {
                test.points.entry(bytes).or_default().push(us);
            }
        }
    }
    finish(&mut test, last, &mut tables)?;
    if tables.is_empty() { Err(LogError::NoRows) } else { Ok(tables) }
}

impl Test {
    /// True if a row's columns agree with each other and with the collective.
    fn check(
        &self,
        line: usize,
        bytes: u64,
        us: f64,
        (algorithm, bus): (f64, f64),
    ) -> Result<(), LogError> {
        let collective = self.collective.ok_or(LogError::Unnamed { line })?;
        if self.devices.is_empty() {
            return Err(LogError::NoDevices { line });
        }
        let real = float(bytes) / (us.max(1e-9) * 1000.0);
        // Two decimals are printed, or three digits.
        let near = |one: f64, other: f64| (one - other).abs() <= 0.011 + 0.03 * one.max(other);
        if bytes > 0 && us > 0.0 && !near(real, algorithm) {
            let why = format!(
                "{bytes} bytes in {us} µs are {real:.2} GB/s, and algbw says {algorithm}: is the line \
                 torn?"
            );
            return Err(LogError::Row { line, why });
        }
        let ranks = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let expected = algorithm * collective.bus_factor(ranks);
        if algorithm >= 1.0 && !near(expected, bus) {
            let why = format!(
                "its busbw {bus} is not that of {collective} among {ranks} ranks ({expected:.2}): is it \
                 another collective, or are ranks missing in the list of devices?"
            );
            return Err(LogError::Row { line, why });
        }
        Ok(())
    }

    fn table(&self, line: usize) -> Result<Option<Table>, LogError> {
        let Some(collective) = self.collective.filter(|_| !self.points.is_empty()) else {
            return Ok(None);
        };
        let mut hosts: BTreeMap<&str, (u32, BTreeSet<&str>)> = BTreeMap::new();
        for device in self.devices.values() {
            let host = hosts.entry(&device.host).or_default();
            host.0 += 1;
            host.1.insert(&device.pid);
        }
        let most = hosts.values().map(|(ranks, _)| *ranks).max().unwrap_or(0);
        let least = hosts.values().map(|(ranks, _)| *ranks).min().unwrap_or(0);
        if most != least {
            return Err(LogError::Uneven { line, most, least });
        }
        let one_process = most > 1 && hosts.values().all(|(_, pids)| pids.len() == 1);
        // nccl-tests round sizes down to whole elements of every rank.
        let largest = self.points.keys().copied().max().unwrap_or(0);
        let cut = self.most_bytes.is_some_and(|most| largest < most / 2);
        let mut notes = Vec::new();
        if !self.ended {
            let last = bytes_text(largest);
            let missing = if cut { ", and larger sizes were asked for" } else { "" };
            notes.push(format!(
                "the log of {collective} is cut off: it ends behind {last}, before `# Avg bus bandwidth`{missing}"
            ));
        }
        let settings = if one_process { "1 process" } else { "process per gpu" }.to_owned();
        let model = self.devices.values().next().map_or_else(String::new, |it| it.model.clone());
        let mean = |times: &Vec<f64>| times.iter().sum::<f64>() / times.len().max(1) as f64;
        Ok(Some(Table {
            collective,
            gpus: self.devices.len().try_into().unwrap_or(u32::MAX),
            nodes: hosts.len().try_into().unwrap_or(u32::MAX),
            kind: model.clone(),
            gpu_model: model,
            intra_link: String::new(),
            inter_link: String::new(),
            settings,
            tool: "nccl-tests".to_owned(),
            points: self.points.iter().map(|(bytes, times)| (*bytes, mean(times))).collect(),
            notes,
        }))
    }
}

/// Ends a test before `line`; a problem of its devices is told at its first rank.
fn finish(test: &mut Test, line: usize, tables: &mut Vec<Table>) -> Result<(), LogError> {
    let test = std::mem::take(test);
    let table = test.table(test.devices_line.unwrap_or(line))?;
    tables.extend(table);
    Ok(())
}

/// The collective whose name a file's name or a program's holds; the longest, since `reduce` is part
/// of `all_reduce`.
fn collective_in(name: &str) -> Option<Collective> {
    let base = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let plain: String =
        base.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect();
    let named = |collective: &Collective| {
        let name = collective.name().replace('_', "");
        plain.contains(&name).then_some((name.len(), *collective))
    };
    Collective::ALL.iter().filter_map(named).max_by_key(|(length, _)| *length).map(|(_, it)| it)
}

/// A line of the list of devices: `Rank 0 Group 0 Pid 12 on HOST device 0 [0x18] NVIDIA H100 …`.
fn device(line: &str) -> Option<(u32, Device)> {
    let (before, after) = line.strip_prefix("Rank")?.split_once(" device ")?;
    let (numbers, host) = before.split_once(" on ")?;
    let rank = numbers.split_whitespace().next()?.parse().ok()?;
    let pid = numbers.split_once("Pid")?.1.trim().to_owned();
    let model = after.split_once(']').map_or("", |(_, model)| model).trim().to_owned();
    Some((rank, Device { host: host.trim().to_owned(), pid, model }))
}

/// A line that says that the test failed: what of it tells.
fn failure(plain: &str) -> Option<String> {
    let said: String = plain.chars().take(80).collect();
    let failed = plain.contains("Test NCCL failure")
        || plain.contains("Test CUDA failure")
        || plain.contains(": Test failure ")
        || plain.starts_with("Out of bounds values") && plain.contains("FAILED");
    failed.then_some(said)
}

/// A row: bytes, microseconds out of place, algorithm and bus bandwidth, and the number of wrong values.
struct Row {
    bytes: u64,
    us: f64,
    bandwidths: (f64, f64),
    wrong: f64,
}

fn row(line: &str, (from_time, all): (usize, usize)) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // A column that is empty for this collective is missing at the front, never behind the time.
    let time =
        if words.len() >= all { all - from_time } else { words.len().checked_sub(from_time)? };
    let number = |at: usize| words.get(at)?.parse::<f64>().ok().filter(|it| it.is_finite());
    let bytes = words.first()?.parse().ok()?;
    // `N/A` where nobody looked. Out of place, then in place.
    let wrong = [time + 3, time + 7].into_iter().filter_map(number).fold(0.0, f64::max);
    let bandwidths = (number(time + 1)?, number(time + 2)?);
    Some(Row { bytes, us: number(time)?, bandwidths, wrong })
}
