//! The folder that a run's Flight Recorder dumps go to.

use crate::files;
use anyhow::{Context, Result, bail};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::flight_recorder::is_written_by_lockstep;
use lockstep_gpu_exec::RankDump;
use rustix::fs::Access;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Writes a rank's dump, over its earlier one.
///
/// # Errors
/// When the folder or the file cannot be written.
pub(crate) fn write(folder: &Path, dump: &RankDump) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| cannot_write(folder))?;
    let path = folder.join(dump.file_name());
    std::fs::write(&path, &dump.pickle).with_context(|| cannot_write(&path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Refuses a folder that cannot take a run's dumps: one that cannot be written, or that holds a dump of the ranks
/// that are `meant` which Lockstep has not written, and which is the evidence of another job.
///
/// # Errors
/// When it is one: a run may take hours to find out.
pub(crate) fn check(folder: &Path, meant: impl Fn(GlobalRank) -> bool) -> Result<()> {
    earlier(folder, meant).map(drop)
}

/// Makes the folder, if it is not there, and removes the dumps that ranks of an earlier run of Lockstep's
/// have left there: a rank that leaves no dump this time, or that this run does not have, would be taken for
/// one of this run.
///
/// # Errors
/// Those of [`check`], and when such a file cannot be removed.
pub(crate) fn make_room(folder: &Path, meant: impl Fn(GlobalRank) -> bool) -> Result<()> {
    for path in earlier(folder, meant)? {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| {
                    format!("cannot remove {}, an earlier run's dump", path.display())
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The dumps of an earlier run of Lockstep's in a folder, which is made if it is not there. Only files of the
/// names that dumps are given.
fn earlier(folder: &Path, meant: impl Fn(GlobalRank) -> bool) -> Result<Vec<PathBuf>> {
    if folder.exists() && !folder.is_dir() {
        bail!("{}: it is a file, and dumps are files of a folder", cannot_write(folder));
    }
    std::fs::create_dir_all(folder).with_context(|| cannot_write(folder))?;
    let access = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK);
    access.with_context(|| cannot_write(folder))?;
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let of = entry.file_name().to_str().and_then(RankDump::rank_of_file);
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !of.is_some_and(&meant) {
            continue;
        }
        let path = entry.path();
        let bytes = files::read(&path, files::MAX_FILE_BYTES)?;
        if !bytes.is_empty() && !is_written_by_lockstep(&bytes) {
            bail!(
                "{} is a dump that Lockstep has not written, and stays as it is: name another --dump-dir, or \
                 move the dumps away",
                path.display()
            );
        }
        found.push(path);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_formats::flight_recorder::Dump;
    use std::collections::BTreeSet;

    #[test]
    fn only_dumps_of_the_ranks_that_are_meant_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "nccl_trace_rank_0",
            "nccl_trace_rank_1",
            "nccl_trace_rank_17",
            "nccl_trace_rank_01",
            "nccl_trace_rank_1.json",
            "notes.txt",
        ];
        let own = Dump::read("rank_0.json", br#"{"version": "2.10", "entries": []}"#)
            .unwrap()
            .to_pickle();
        for name in names {
            std::fs::write(folder.path().join(name), &own).unwrap();
        }
        std::fs::create_dir(folder.path().join("nccl_trace_rank_2")).unwrap();
        let left = || -> BTreeSet<String> {
            let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        make_room(folder.path(), |rank| rank == GlobalRank(1)).unwrap();
        assert_eq!(left().len(), 6);
        make_room(folder.path(), |_| true).unwrap();
        let kept =
            ["nccl_trace_rank_01", "nccl_trace_rank_1.json", "nccl_trace_rank_2", "notes.txt"];
        assert_eq!(left(), BTreeSet::from(kept.map(str::to_owned)));
        make_room(&folder.path().join("none/yet"), |_| true).unwrap();
        assert!(folder.path().join("none/yet").is_dir());
        // PyTorch's own dump is the evidence of another job.
        let theirs =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/flight-recorder/t215_healthy");
        let theirs =
            std::fs::read_dir(theirs).unwrap().flatten().find(|it| it.path().is_file()).unwrap();
        std::fs::copy(theirs.path(), folder.path().join("nccl_trace_rank_1")).unwrap();
        let refused = make_room(folder.path(), |_| true).unwrap_err().to_string();
        assert!(
            refused.contains("nccl_trace_rank_1 is a dump that Lockstep has not written"),
            "{refused}"
        );
        assert_eq!(left().len(), 6);
    }

    #[test]
    fn a_folder_that_takes_no_files_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for folder in [&file.path().join("in a file"), file.path(), Path::new("/proc/self/dumps")] {
            let error = format!("{:#}", make_room(folder, |_| true).unwrap_err());
            assert!(error.starts_with(&format!("cannot write {}", folder.display())), "{error}");
        }
    }
}
