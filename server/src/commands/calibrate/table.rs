//! Measured times in files: tables like those of nccl-tests, of gloo or MPI.

use crate::files;
use anyhow::{Context, Result, bail};
use lockstep_clusters::{Collective, Table};
use lockstep_sim::calibrate::{Measured, Point, Probe};
use std::path::PathBuf;

/// The largest file.
const MOST_BYTES: u64 = 16 << 20;

/// The times of tables, which were all measured with as many ranks.
#[derive(Debug, PartialEq)]
pub(super) struct Measurements {
    pub(super) measured: Vec<Measured>,
    pub(super) world_size: u32,
    /// The machine, in the tables' own words.
    pub(super) device: String,
}

/// Reads the tables of these files.
///
/// # Errors
/// A file is no table, a table is of a collective that is not fitted, or they were measured with different
/// numbers of ranks.
pub(super) fn read(paths: &[PathBuf]) -> Result<Measurements> {
    let mut all = Vec::new();
    for path in paths {
        let bytes = files::read(path, MOST_BYTES)?;
        let text = String::from_utf8_lossy(&bytes);
        let tables = Table::parse_all(&text);
        all.extend(tables.with_context(|| format!("cannot use {}", path.display()))?);
    }
    of_tables(&all)
}

fn of_tables(tables: &[Table]) -> Result<Measurements> {
    let Some(first) = tables.first() else { bail!("--from names no file") };
    let mut measured = Vec::new();
    for table in tables {
        if table.gpus != first.gpus {
            bail!(
                "one table was measured with {} ranks and another with {}: links are fitted to one number of \
                 ranks, so calibrate each by itself",
                first.gpus,
                table.gpus
            );
        }
        let probe = match table.collective {
            Collective::AllReduce => Probe::AllReduce,
            Collective::Broadcast => Probe::Broadcast,
            Collective::AllGather => Probe::AllGather,
            other => bail!(
                "links are fitted to all_reduce, broadcast and all_gather, and a table is of {other}: leave it out"
            ),
        };
        measured.extend(table.points.iter().map(|(bytes, us)| Measured {
            point: Point { probe, bytes: *bytes },
            call_ps: picoseconds(*us),
        }));
    }
    let words = [first.kind.as_str(), first.tool.as_str()].map(str::trim);
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let device = format!("{} ranks, {}", first.gpus, words.join(", "));
    Ok(Measurements { measured, world_size: first.gpus, device })
}

/// A time in whole picoseconds, within the range of the type.
#[allow(clippy::float_arithmetic, reason = "a measured time")]
fn picoseconds(us: f64) -> u64 {
    (us * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> Result<Measurements> {
        of_tables(&Table::parse_all(text).unwrap())
    }

    fn head(collective: &str, ranks: u32) -> String {
        format!(
            "# collective: {collective}\n# gpus: {ranks}\n# nodes: {ranks}\n# kind: gloo over 10 GbE\n\
             bytes,time_us\n"
        )
    }

    #[test]
    fn tables_of_one_job_are_read_and_others_refused() {
        let text = head("all_reduce", 4) + "4,120.5\n4096,200\n" + &head("broadcast", 4) + "4,80\n";
        let found = tables(&text).unwrap();
        assert_eq!((found.world_size, found.measured.len()), (4, 3));
        assert_eq!(found.device, "4 ranks, gloo over 10 GbE");
        let last =
            Measured { point: Point { probe: Probe::Broadcast, bytes: 4 }, call_ps: 80_000_000 };
        assert_eq!(found.measured[2], last);
        let mixed = head("all_reduce", 4) + "4,1\n" + &head("all_reduce", 2) + "4,1\n";
        assert!(tables(&mixed).unwrap_err().to_string().contains("4 ranks and another with 2"));
        let other = tables(&(head("alltoall", 4) + "4,1\n")).unwrap_err();
        assert!(other.to_string().contains("a table is of alltoall"), "{other}");
    }
}
