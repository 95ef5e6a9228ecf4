//! Topologies in files, which `lockstep calibrate` writes and `--topology` reads.

use crate::files;
use crate::output_file::write_whole;
use anyhow::{Context, Result, bail};
use lockstep_core::group::BackendName;
use lockstep_sim::Topology;
use lockstep_sim::calibrate::Measured;
use serde::{Deserialize, Serialize};
use std::path::Path;

const SCHEMA: &str = "lockstep.topology/1";

/// Files past this are none: a topology and some dozens of measured times.
const MAX_BYTES: u64 = 1 << 20;

/// A topology, and the measurements that it was fitted to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopologyFile {
    schema: String,
    /// The topology, as the simulator takes it.
    pub(crate) topology: Topology,
    /// `None` in a file that was written by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Calibration>,
}

/// The measurements.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Calibration {
    pub(crate) backend: BackendName,
    /// The machine it ran on, in words.
    pub(crate) device: String,
    pub(crate) world_size: u32,
    /// The times that the parameters were fitted to.
    pub(crate) measured: Vec<Measured>,
}

impl TopologyFile {
    pub(crate) fn new(topology: Topology, calibration: Calibration) -> TopologyFile {
        TopologyFile { schema: SCHEMA.to_owned(), topology, calibration: Some(calibration) }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file is not a topology.
    pub(crate) fn read(path: &Path) -> Result<TopologyFile> {
        let bytes = files::read(path, MAX_BYTES)?;
        TopologyFile::parse(&bytes).with_context(|| format!("cannot use {}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<TopologyFile> {
        let file: TopologyFile = serde_json::from_slice(bytes).context(
            "no topology; `lockstep calibrate -o FILE` measures one, docs/formats.md says what is \
             in it",
        )?;
        if file.schema != SCHEMA {
            let schema: String = file.schema.chars().take(40).collect();
            bail!("its schema is {schema:?}, and this lockstep reads {SCHEMA:?}");
        }
        Ok(file)
    }

    /// Writes a file. Permission to replace an old file was checked before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_sim::calibrate::{Point, Probe};
    use lockstep_sim::{Link, SharedMemory};

    const MACHINE: SharedMemory = SharedMemory {
        cores: 2,
        call_ps: 500_000,
        latency_ps: 400_000,
        cached_bytes: [1 << 18, 1 << 22],
        store_bytes_per_second: [30, 20, 10],
        reduce_bytes_per_second: [u64::MAX, 0, 1],
    };

    #[test]
    fn a_file_says_again_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("topology.json");
        let point = Point { probe: Probe::AllGather, bytes: 4096 };
        let link = Link { latency_ps: 1, bytes_per_second: 2 };
        for topology in [Topology::SharedMemory(MACHINE), Topology::Uniform(link)] {
            let calibration = Calibration {
                backend: BackendName::Host,
                device: "2 processes on 2 CPU cores".into(),
                world_size: 2,
                measured: vec![Measured { point, call_ps: 12_345 }],
            };
            let file = TopologyFile::new(topology, calibration);
            file.write(&path).unwrap();
            assert_eq!(TopologyFile::read(&path).unwrap(), file);
        }
    }

    #[test]
    fn what_is_no_topology_is_refused_with_what_to_do() {
        let refused =
            |text: &str| format!("{:#}", TopologyFile::parse(text.as_bytes()).unwrap_err());
        assert!(refused("{}").contains("lockstep calibrate"));
        assert!(refused("[1, 2").contains("lockstep calibrate"));
        let link = r#""topology": {"uniform": {"latency_ps": 1, "bytes_per_second": 2}}"#;
        let other = format!(r#"{{"schema": "lockstep.topology/9", {link}}}"#);
        assert!(refused(&other).contains("lockstep.topology/9"), "{}", refused(&other));
        let by_hand = format!(r#"{{"schema": "lockstep.topology/1", {link}}}"#);
        assert_eq!(TopologyFile::parse(by_hand.as_bytes()).unwrap().calibration, None);
        let slip = by_hand.replace("latency_ps", "latency_ns");
        assert!(refused(&slip).contains("latency_ps"), "{}", refused(&slip));
    }
}
