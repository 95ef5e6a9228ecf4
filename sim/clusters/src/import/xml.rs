//! NCCL's topology, as `NCCL_TOPO_DUMP_FILE` writes it (`src/graph/xml.h` there): processors, below
//! them PCIe devices, among those GPUs with their NVLinks and NICs.

use super::machine::{Fabric, ImportError, MOST_DEVICES, Machine, Nic, fabric_of};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::collections::{BTreeMap, BTreeSet};

/// Elements inside each other, and in all.
const MOST_DEPTH: usize = 64;
const MOST_ELEMENTS: usize = 1 << 17;
/// The PCI class of a display or 3D controller: a GPU.
const GPU_CLASS: &str = "0x03";

/// Vendor and device of GPUs whose card is known by it.
const DEVICES: [(&str, &str); 24] = [
    ("0x1db1", "v100"),
    ("0x1db5", "v100"),
    ("0x1db8", "v100-dgx2"),
    ("0x1eb8", "t4"),
    ("0x1e04", "rtx2080ti"),
    ("0x1e07", "rtx2080ti"),
    ("0x20b0", "a100"),
    ("0x20b2", "a100"),
    ("0x20b5", "a100-pcie"),
    ("0x20f1", "a100-pcie"),
    ("0x20f3", "a800"),
    ("0x2204", "rtx3090"),
    ("0x2236", "a10"),
    ("0x2324", "h800"),
    ("0x2330", "h100"),
    ("0x2331", "h100-pcie"),
    ("0x2321", "h100-nvl"),
    ("0x2335", "h200"),
    ("0x2342", "gh200-mesh"),
    ("0x2684", "rtx4090"),
    ("0x26b9", "l40s"),
    ("0x27b8", "l4"),
    ("0x2901", "b200"),
    ("0x2941", "gb200"),
];

/// A PCIe device that is open.
#[derive(Clone, Default)]
struct PciDevice {
    bus: String,
    vendor: String,
    device: String,
}

#[derive(Default)]
struct Gpu {
    host: String,
    bus: String,
    /// PCIe switches above it, the root first.
    above: Vec<String>,
    card: Option<String>,
    sm: u32,
    /// Links to switches, and to other GPUs by bus.
    to_switches: u32,
    peers: BTreeMap<String, u32>,
    xgmi: bool,
    line: usize,
}

struct Net {
    host: String,
    name: String,
    gbps: f64,
    above: Vec<String>,
}

/// The state while the file is read: open elements, and the machine so far.
#[derive(Default)]
struct Parser {
    open: Vec<String>,
    host: String,
    in_cpu: bool,
    /// PCIe devices that are open.
    pci: Vec<PciDevice>,
    seen: BTreeSet<(String, String)>,
    gpus: Vec<Gpu>,
    nets: Vec<Net>,
    elements: usize,
}

/// Reads a topology.
pub(super) fn read(text: &str) -> Result<Machine, ImportError> {
    let mut parser = Parser::default();
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let line_at = |position: u64| {
        let end = usize::try_from(position).unwrap_or(text.len()).min(text.len());
        1 + text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    };
    loop {
        let start = reader.buffer_position();
        let event = reader.read_event().map_err(|error| ImportError::Line {
            line: line_at(reader.error_position()),
            why: format!("this is not XML: {error}"),
        })?;
        let done = match event {
            Event::Start(element) => parser.open(&element, || line_at(start)),
            Event::End(_) => {
                parser.close();
                Ok(())
            }
            Event::Eof if parser.open.is_empty() => break,
            Event::Eof => Err("the file ends inside an element".to_owned()),
            Event::DocType(_) => Err("a document type is not read: remove it".to_owned()),
            _ => Ok(()),
        };
        done.map_err(|why| ImportError::Line { line: line_at(start), why })?;
    }
    parser.machine()
}

impl Parser {
    fn open(
        &mut self,
        element: &BytesStart<'_>,
        line: impl FnOnce() -> usize,
    ) -> Result<(), String> {
        self.elements += 1;
        if self.open.len() >= MOST_DEPTH || self.elements > MOST_ELEMENTS {
            return Err("more elements than a machine has".to_owned());
        }
        let name = element.name().as_ref().to_owned();
        let attributes = attributes(element)?;
        let of = |key: &str| attributes.get(key).map_or("", String::as_str);
        match name.as_str() {
            "cpu" => {
                self.in_cpu = true;
                self.host = of("host_hash").to_owned();
            }
            "pci" => self.open_pci(of("busid"), of("vendor"), of("device"))?,
            "gpu" => self.open_gpu(of("sm"), of("gcn"), line())?,
            "nvlink" | "xgmi" => {
                self.link(of("target"), of("tclass"), of("count"), name == "xgmi")?;
            }
            "net" => self.net(of("name"), of("speed"))?,
            _ => {}
        }
        self.open.push(name);
        Ok(())
    }

    fn close(&mut self) {
        match self.open.pop().as_deref() {
            Some("cpu") => self.in_cpu = false,
            Some("pci") => drop(self.pci.pop()),
            _ => {}
        }
    }

    fn open_pci(&mut self, bus: &str, vendor: &str, device: &str) -> Result<(), String> {
        if self.pci.iter().any(|above| above.bus == bus) {
            return Err(format!("a cycle of switches: the PCIe device {bus} is below itself"));
        }
        if !self.seen.insert((self.host.clone(), bus.to_owned())) {
            return Err(format!("the PCIe device {bus} is there twice"));
        }
        let (bus, vendor) = (bus.to_owned(), vendor.to_lowercase());
        self.pci.push(PciDevice { bus, vendor, device: device.to_lowercase() });
        Ok(())
    }

    fn open_gpu(&mut self, sm: &str, gcn: &str, line: usize) -> Result<(), String> {
        if self.gpus.len() >= MOST_DEVICES {
            return Err(format!("more than {MOST_DEVICES} GPUs in one file"));
        }
        let PciDevice { bus, vendor, device } = self.pci.last().cloned().unwrap_or_default();
        if !self.in_cpu {
            return Err(format!("the GPU {bus} is below no <cpu>: no path leads to the others"));
        }
        let of_amd = [("942", "mi300x"), ("950", "mi355x"), ("90a", "mi250x"), ("910", "mi250x")];
        let of_amd = of_amd.iter().find(|(arch, _)| gcn.contains(arch));
        let by_device = DEVICES.iter().find(|(id, _)| *id == device);
        let sm = sm.parse().unwrap_or(0);
        contradiction(&bus, &vendor, by_device.copied(), gcn, sm)?;
        let known = by_device.or(of_amd);
        self.gpus.push(Gpu {
            host: self.host.clone(),
            bus,
            above: self.above(),
            card: known.map(|(_, card)| (*card).to_owned()),
            sm,
            line,
            ..Gpu::default()
        });
        Ok(())
    }

    /// PCIe switches above the device that is open.
    fn above(&self) -> Vec<String> {
        let above = &self.pci[..self.pci.len().saturating_sub(1)];
        above.iter().map(|above| above.bus.clone()).collect()
    }

    fn link(&mut self, target: &str, class: &str, count: &str, xgmi: bool) -> Result<(), String> {
        let Some(gpu) = self.gpus.last_mut() else {
            return Err("a link outside a GPU".to_owned());
        };
        let count = if count.is_empty() { 1 } else { count.parse::<u32>().unwrap_or(0) };
        if count == 0 || count > 64 {
            return Err(format!(
                "{} has a link to {target} of 0 GB/s: its count is wrong",
                gpu.bus
            ));
        }
        gpu.xgmi |= xgmi;
        if xgmi || class.is_empty() || class.starts_with(GPU_CLASS) {
            if target == gpu.bus {
                return Err(format!("{target} has a link to itself"));
            }
            *gpu.peers.entry(target.to_owned()).or_default() += count;
        } else {
            gpu.to_switches += count;
        }
        Ok(())
    }

    fn net(&mut self, name: &str, speed: &str) -> Result<(), String> {
        if self.nets.len() >= MOST_DEVICES {
            return Err(format!("more than {MOST_DEVICES} NICs in one file"));
        }
        let mbps: f64 = speed.parse().unwrap_or(0.0);
        if !(mbps > 0.0 && mbps <= 1e7) {
            let speed: String = speed.chars().take(20).collect();
            return Err(format!(
                "the NIC {name} has 0 GB/s (speed \"{speed}\"): is its port down? take it out, or give \
                 its speed in Mb/s"
            ));
        }
        let (host, name) = (self.host.clone(), name.to_owned());
        self.nets.push(Net { host, name, gbps: mbps / 1000.0, above: self.above() });
        Ok(())
    }

    fn machine(self) -> Result<Machine, ImportError> {
        let Some(first) = self.gpus.first() else {
            return Err(ImportError::Machine("it has no GPU".into()));
        };
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        for gpu in &self.gpus {
            *hosts.entry(&gpu.host).or_default() += 1;
        }
        // Parts of one machine may name their host differently only if they are many machines.
        let most = hosts.values().copied().max().unwrap_or(1);
        if hosts.values().any(|gpus| *gpus != most) {
            let why = "its hosts have different numbers of GPUs; the model has equal nodes";
            return Err(ImportError::Machine(why.into()));
        }
        let links = self.peer_links()?;
        let switched = self.gpus.iter().map(|gpu| gpu.to_switches).max().unwrap_or(0);
        let fabric = match switched {
            _ if self.gpus.iter().any(|gpu| gpu.xgmi) => Fabric::Xgmi,
            0 => fabric_of(&links),
            links => Fabric::Switched(links),
        };
        let near = |net: &Net| {
            self.gpus.iter().any(|gpu| {
                gpu.host == net.host && gpu.above.iter().any(|bus| net.above.contains(bus))
            })
        };
        let of_first = self.nets.iter().filter(|net| net.host == first.host);
        let nics = of_first.map(|net| Nic {
            name: net.name.clone(),
            gbps: Some(net.gbps),
            near: near(net),
        });
        let all = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        let rack = hosts.len() > 1 && matches!(fabric, Fabric::Switched(_));
        Ok(Machine {
            gpus: most,
            domain_gpus: rack.then_some(all),
            fabric,
            card: card(first, fabric),
            seen: if first.sm > 0 { format!(" (sm {})", first.sm) } else { String::new() },
            nics: nics.collect(),
            nvlinks: self
                .gpus
                .iter()
                .map(|gpu| (gpu.bus.clone(), gpu.to_switches + gpu.peers.values().sum::<u32>()))
                .collect(),
            coherent: false,
        })
    }

    /// Per GPU, its links to the others.
    fn peer_links(&self) -> Result<Vec<BTreeMap<usize, u32>>, ImportError> {
        let of = |gpu: &Gpu| {
            let links = gpu.peers.iter().map(|(target, count)| {
                let place = self.gpus.iter().position(|other| other.bus == *target);
                let place = place.ok_or_else(|| ImportError::Line {
                    line: gpu.line,
                    why: format!(
                        "a link to nowhere: the GPU {} has one to {target}, which is not in the file",
                        gpu.bus
                    ),
                })?;
                Ok((place, *count))
            });
            links.collect()
        };
        self.gpus.iter().map(of).collect()
    }
}

/// Refuses a GPU whose vendor, device and generation are of different cards.
fn contradiction(
    bus: &str,
    vendor: &str,
    device: Option<(&str, &str)>,
    gcn: &str,
    sm: u32,
) -> Result<(), String> {
    let (of_nvidia, of_amd) = (vendor == NVIDIA, vendor == AMD);
    if of_nvidia && !gcn.is_empty() {
        return Err(format!("the GPU {bus} has NVIDIA's vendor {NVIDIA} and AMD's gcn {gcn}"));
    }
    if of_amd && gcn.is_empty() && sm > 0 {
        return Err(format!(
            "the GPU {bus} has AMD's vendor {AMD} and sm {sm}, which NVIDIA's have"
        ));
    }
    let Some((id, card)) = device else { return Ok(()) };
    if of_amd || !gcn.is_empty() {
        return Err(format!("the GPU {bus} is AMD's, and its device {id} is NVIDIA's {card}"));
    }
    let generation = match card {
        "t4" | "rtx2080ti" => 75..=75,
        card if card.starts_with("v100") => 70..=72,
        "rtx3090" | "a10" => 86..=86,
        card if card.starts_with("a100") || card.starts_with("a800") => 80..=80,
        "rtx4090" | "l40s" | "l4" => 89..=89,
        card if card.starts_with('h') || card.starts_with("gh") => 90..=90,
        _ => 100..=103,
    };
    if sm > 0 && !generation.contains(&sm) {
        return Err(format!(
            "the GPU {bus} has the device {id} of {card}, which is sm {}, and says sm {sm}: is the file \
             put together from two machines?",
            generation.start()
        ));
    }
    Ok(())
}

/// Vendors of PCIe devices.
const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";

/// The card of a GPU, if its device or its generation and links tell.
fn card(gpu: &Gpu, fabric: Fabric) -> Option<String> {
    let by_links = |card: &str| {
        match (card, fabric) {
            ("v100" | "v100-dgx2", Fabric::Switched(_)) => "v100-dgx2",
            ("v100" | "v100-dgx2", Fabric::Direct(_)) => "v100-mesh",
            ("v100", _) => "v100-pcie",
            ("a100", Fabric::Direct(_)) => "a100-mesh",
            _ => return card.to_owned(),
        }
        .to_owned()
    };
    if let Some(card) = &gpu.card {
        return Some(by_links(card));
    }
    let by_generation = match (gpu.sm, fabric) {
        (70, _) => "v100",
        (80, Fabric::Switched(_) | Fabric::Direct(_)) => "a100",
        (80, _) => "a100-pcie",
        (90, Fabric::Switched(_)) => "h100",
        (90, Fabric::Direct(_)) => "gh200-mesh",
        (90, Fabric::Pairs) => "h100-nvl",
        (90, Fabric::Pcie) => "h100-pcie",
        (100, Fabric::Switched(_)) => "b200",
        (120, _) => "rtx5090",
        _ => return None,
    };
    Some(by_links(by_generation))
}

fn attributes(element: &BytesStart<'_>) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for attribute in element.attributes().with_checks(true) {
        let attribute = attribute.map_err(|error| format!("a wrong attribute: {error}"))?;
        let value = attribute.normalized_value(XmlVersion::Explicit1_0);
        let value = value.map_err(|error| format!("a wrong attribute: {error}"))?;
        all.insert(attribute.key.as_ref().to_owned(), value.into_owned());
        if all.len() > 64 {
            return Err("more attributes than an element has".to_owned());
        }
    }
    Ok(all)
}
