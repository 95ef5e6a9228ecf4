//! `lockstep cluster`: cluster files, from the descriptions that machines give of themselves.

use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::cluster_of;
use crate::{files, terminal};
use anyhow::{Context, Result};
use lockstep_clusters::import::{self, Hints};
use lockstep_clusters::{Catalog, toml_text};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The largest file that describes a machine.
const MOST_BYTES: u64 = 64 << 20;

/// Write a cluster's file: of a shipped one, or from what a machine says of itself
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a cluster of `nvidia-smi topo -m`, or of the XML that NCCL writes with NCCL_TOPO_DUMP_FILE
    Import(ImportArguments),
    /// Print the file of a named cluster, to start one of your own, and where its numbers come from
    Show {
        /// Its name, or a TOML file
        #[arg(value_name = "NAME|FILE.toml")]
        cluster: String,
    },
}

#[derive(clap::Args)]
struct ImportArguments {
    /// The output of `nvidia-smi topo -m`, or the XML of NCCL_TOPO_DUMP_FILE
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The card, where the file does not tell: h100, a100, …
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// The transport between nodes: ib, roce, efa, slingshot, tcp, …
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// NICs of a node that NCCL uses
    #[arg(long, value_name = "N")]
    nics: Option<u32>,
    /// Line rate of a NIC in Gb/s
    #[arg(long, value_name = "RATE")]
    nic_gbps: Option<f64>,
    /// The cluster's name [default: that of the file that is written]
    #[arg(long)]
    name: Option<String>,
    /// Write the cluster to a file
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Import(arguments) => arguments.run(),
        Verb::Show { cluster } => {
            let mut catalog = Catalog::shipped()?;
            let cluster = cluster_of(&mut catalog, &cluster)?.without_names();
            let sources =
                catalog.sources(&cluster).into_iter().map(|source| format!("# {source}\n"));
            terminal::text(&(sources.collect::<String>() + &toml_text(&cluster)))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl ImportArguments {
    fn run(self) -> Result<ExitCode> {
        if let Some(path) = &self.output {
            self.overwrite.check(path, FileKind::Cluster, &[&self.file])?;
        }
        let catalog = Catalog::shipped()?;
        let bytes = files::read(&self.file, MOST_BYTES)?;
        let text = String::from_utf8_lossy(&bytes);
        let written_as = self.output.as_deref().unwrap_or(Path::new("mine"));
        let stem = written_as.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let hints = Hints {
            name: self.name.unwrap_or(stem),
            card: self.card,
            network: self.network,
            nics: self.nics,
            nic_gbps: self.nic_gbps,
        };
        let found = import::read(&catalog, &text, &hints)
            .with_context(|| format!("cannot use {}", self.file.display()))?;
        for note in &found.notes {
            terminal::note(&format!("lockstep: {note}"));
        }
        let written = toml_text(&found.cluster);
        match &self.output {
            Some(path) => {
                self.overwrite.write(path, FileKind::Cluster, &[&self.file], written.as_bytes())?;
                terminal::text(&format!(
                    "{}: lockstep time all_reduce --cluster {} uses it\n",
                    found.cluster.title,
                    path.display()
                ))?;
            }
            None => terminal::text(&written)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
