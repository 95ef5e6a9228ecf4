//! The matrix of `nvidia-smi topo -m`: a row a device, a column a device, and how the two reach each
//! other.

use super::machine::{Fabric, ImportError, MOST_DEVICES, Machine, Nic, fabric_of};
use crate::log_lines::without_colours;
use std::collections::BTreeMap;

/// The values of a cell that name a path. PIX and PXB share PCIe switches, the others meet in the processor.
const PATHS: [&str; 6] = ["PIX", "PXB", "PHB", "NODE", "SYS", "PSB"];

/// Reads a matrix.
pub(super) fn read(text: &str) -> Result<Machine, ImportError> {
    let mut lines = (1..).zip(text.lines().map(without_colours));
    let wrong = |line: usize, why: String| ImportError::Line { line, why };
    let head = lines.find(|(_, line)| line.split_whitespace().next() == Some("GPU0"));
    let (line, head) = head.ok_or(ImportError::Unknown)?;
    let names: Vec<String> = head
        .split_whitespace()
        .take_while(|name| *name != "CPU" && *name != "GPU" && *name != "NUMA")
        .map(str::to_owned)
        .collect();
    if names.len() > MOST_DEVICES {
        return Err(wrong(line, format!("more than {MOST_DEVICES} devices in one machine")));
    }
    let mut rows: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    // The last column says which NUMA node a GPU's memory is, where the processor sees it as its own.
    let has_numa_id = head.contains("GPU NUMA ID");
    let mut coherent = false;
    let mut legend: BTreeMap<String, String> = BTreeMap::new();
    for (line, text) in lines {
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { continue };
        if names.iter().any(|name| name == first) {
            let cells: Vec<String> = words.take(names.len()).map(str::to_owned).collect();
            if cells.len() < names.len() {
                let why = format!("{first} has {} of {} columns", cells.len(), names.len());
                return Err(wrong(line, why));
            }
            let last = text.split_whitespace().last().unwrap_or_default();
            let is_numa_id = last.bytes().all(|it| it.is_ascii_digit());
            coherent |= has_numa_id && first.starts_with("GPU") && is_numa_id;
            if rows.insert(first.to_owned(), (line, cells)).is_some() {
                return Err(wrong(line, format!("{first} has a second row")));
            }
        } else if let Some(name) =
            first.strip_suffix(':').filter(|_| names.iter().any(|n| first.starts_with(n)))
        {
            legend.insert(name.to_owned(), words.next().unwrap_or(name).to_owned());
        }
    }
    let machine = machine(&names, &rows, &legend)?;
    Ok(Machine { coherent, ..machine })
}

fn machine(
    names: &[String],
    rows: &BTreeMap<String, (usize, Vec<String>)>,
    legend: &BTreeMap<String, String>,
) -> Result<Machine, ImportError> {
    let gpus: Vec<usize> = (0..names.len()).filter(|at| names[*at].starts_with("GPU")).collect();
    let cell = |from: usize, to: usize| -> Result<(usize, &str), ImportError> {
        let name = &names[from];
        let (line, cells) = rows
            .get(name)
            .ok_or_else(|| ImportError::Machine(format!("{name} has a column and no row")))?;
        Ok((*line, cells.get(to).map_or("", String::as_str)))
    };
    let mut links: Vec<BTreeMap<usize, u32>> = vec![BTreeMap::new(); gpus.len()];
    for (at, &from) in gpus.iter().enumerate() {
        for (place, &to) in gpus.iter().enumerate() {
            let (line, said) = cell(from, to)?;
            let (a, b) = (&names[from], &names[to]);
            let wrong = |why: String| ImportError::Line { line, why };
            if from == to {
                if said != "X" {
                    return Err(wrong(format!("{a} has {said} where X marks itself")));
                }
                continue;
            }
            let (_, back) = cell(to, from)?;
            if said != back {
                let why = format!("{a} reaches {b} by {said}, and {b} reaches {a} by {back}");
                return Err(wrong(why));
            }
            match said.strip_prefix("NV").map(str::parse::<u32>) {
                Some(Ok(0)) => {
                    return Err(wrong(format!("{a} and {b} have 0 NVLinks, which is 0 GB/s")));
                }
                Some(Ok(count)) if count <= 64 => {
                    links[at].insert(place, count);
                }
                _ if PATHS.contains(&said) => {}
                _ => return Err(wrong(format!("there is no path between {a} and {b}: {said}"))),
            }
        }
    }
    let mut nics = Vec::new();
    for at in (0..names.len()).filter(|at| !gpus.contains(at)) {
        let mut near = false;
        for &gpu in &gpus {
            near |= matches!(cell(gpu, at)?.1, "PIX" | "PXB");
        }
        let name = legend.get(&names[at]).unwrap_or(&names[at]).clone();
        nics.push(Nic { name, gbps: None, near });
    }
    let fabric = fabric_of(&links);
    let nvlinks = gpus.iter().zip(&links).map(|(gpu, peers)| {
        let count = match fabric {
            // Every pair shows all links of a GPU.
            Fabric::Switched(_) => peers.values().copied().max().unwrap_or(0),
            _ => peers.values().sum(),
        };
        (names[*gpu].clone(), count)
    });
    Ok(Machine {
        nvlinks: nvlinks.collect(),
        gpus: gpus.len().try_into().unwrap_or(u32::MAX),
        fabric,
        nics,
        ..Machine::default()
    })
}
