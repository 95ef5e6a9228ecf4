//! `lockstep calibrate --from`: a cluster corrected by times that nccl-tests measured on it.

use crate::files;
use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::cluster_of;
use crate::terminal;
use anyhow::{Context, Result, bail};
use lockstep_clusters::calibrated::{Calibrated, calibrated};
use lockstep_clusters::{Catalog, Cluster, Table, nccl_tests, toml_text};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The largest log.
const MOST_BYTES: u64 = 256 << 20;

/// Measured times to make a cluster of.
#[derive(clap::Args)]
pub(crate) struct FromArguments {
    /// Measure nothing: correct a cluster by the times in these files, which nccl-tests printed (any of its
    /// collectives, sizes and node counts) or which are tables (docs/clusters.md); -o writes the cluster
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// The cluster on which they were measured [default: by the GPUs that they name]
    #[arg(long, value_name = "NAME|FILE.toml", requires = "from")]
    cluster: Option<String>,
}

impl FromArguments {
    /// The files.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        self.from.iter().map(PathBuf::as_path).collect()
    }

    /// Corrects the cluster and writes it; returns the text to print.
    ///
    /// # Errors
    /// When a file holds no times, or the cluster cannot hold its ranks.
    pub(crate) fn text(
        &self,
        output: Option<&Path>,
        overwrite: Overwrite,
        as_json: bool,
    ) -> Result<String> {
        let inputs = self.paths();
        if let Some(path) = output {
            overwrite.check(path, FileKind::Cluster, &inputs)?;
        }
        let mut catalog = Catalog::shipped()?;
        let mut tables = Vec::new();
        for path in &self.from {
            tables
                .extend(tables_of(path).with_context(|| format!("cannot use {}", path.display()))?);
        }
        let Some(first) = tables.first() else { bail!("--from names no file") };
        let mut base = match &self.cluster {
            Some(named) => cluster_of(&mut catalog, named)?,
            None => first.cluster(&catalog).with_context(|| {
                format!(
                    "no cluster is known by {:?}: say with --cluster on which one it was measured",
                    first.kind
                )
            })?,
        };
        self.refuse_mixture(&catalog, &base, &tables)?;
        for table in &tables {
            // A cluster that was named need not be guessed.
            let taken = table.recognise(&catalog).ok().and_then(|it| it.understood.taken_for);
            let taken = taken.filter(|_| self.cluster.is_none());
            for note in table.notes.iter().chain(&taken) {
                terminal::note(&format!("lockstep: {note}"));
            }
        }
        // Earlier corrections were of another day.
        base.given.clear();
        let mut found = calibrated(&catalog, &base, &tables)?;
        for note in &found.notes {
            terminal::note(&format!("lockstep: warning: {note}"));
        }
        let stem = output.and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        found
            .cluster
            .sources
            .push(format!("times: {}, corrected by {} measured ones", base.name, found.points[0]));
        found.cluster.name = stem.unwrap_or_else(|| format!("{}-measured", base.name));
        let written = toml_text(&found.cluster);
        if let Some(path) = output {
            overwrite.write(path, FileKind::Cluster, &inputs, written.as_bytes())?;
        }
        if as_json {
            return Ok(serde_json::to_string_pretty(&as_document(&base.name, &found))? + "\n");
        }
        let text = table_text(&base.name, &found);
        Ok(match output {
            Some(path) => {
                text + &format!("lockstep time all_reduce --cluster {} uses it\n", path.display())
            }
            None => {
                terminal::note("lockstep: -o FILE.toml writes the cluster to a file");
                text + "\n" + &written
            }
        })
    }
}

impl FromArguments {
    /// Refuses tables that name another card than the cluster has.
    fn refuse_mixture(&self, catalog: &Catalog, base: &Cluster, tables: &[Table]) -> Result<()> {
        for table in tables {
            if let Some(other) = table.cluster(catalog).ok().filter(|other| other.card != base.card)
            {
                bail!(
                    "{:?} was measured on {} and {} has {}: give each cluster its own file",
                    table.kind,
                    other.card,
                    base.name,
                    base.card
                );
            }
        }
        Ok(())
    }
}

/// The tests of a log, or the tables of a file.
fn tables_of(path: &Path) -> Result<Vec<Table>> {
    let bytes = files::read(path, MOST_BYTES)?;
    // Logs of many processes may be torn in the middle of a letter.
    let text = String::from_utf8_lossy(&bytes);
    if Table::are_in(&text) {
        return Ok(Table::parse_all(&text)?);
    }
    Ok(nccl_tests::read(&path.to_string_lossy(), &text)?)
}

fn table_text(base: &str, found: &Calibrated) -> String {
    let mut text = format!(
        "{} measured times on {base}, of which {} correct it\n{:<16}{:>6}{:>12}{:>7}{:>10}{:>12}\n",
        found.points[0],
        found.points[1],
        "collective",
        "nodes",
        "ranks each",
        "sizes",
        "before",
        "held back"
    );
    for check in &found.checks {
        let held_back = check.held_back.map_or("-".into(), |it| format!("{:.1}%", it * 100.0));
        let _ = writeln!(
            text,
            "{:<16}{:>6}{:>12}{:>7}{:>9.1}%{held_back:>12}",
            check.collective,
            check.nodes[0],
            check.nodes[1],
            check.sizes,
            check.before * 100.0
        );
    }
    text + "mean errors: of the cluster as it was, and of each half of the sizes when the other half was given\n"
}

fn as_document(base: &str, found: &Calibrated) -> serde_json::Value {
    let tables: Vec<_> = found
        .checks
        .iter()
        .map(|check| {
            json!({
                "collective": check.collective, "nodes": check.nodes[0],
                "ranks_per_node": check.nodes[1], "sizes": check.sizes,
                "error_before": check.before, "error_held_back": check.held_back,
            })
        })
        .collect();
    json!({
        "schema": "lockstep.calibrate-cluster/1", "base": base, "cluster": found.cluster.name,
        "measured": found.points[0], "given": found.points[1], "tables": tables,
        "notes": found.notes,
    })
}
