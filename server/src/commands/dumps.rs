//! The folder that a run's Flight Recorder dumps go to.

use anyhow::{Context, Result, bail};
use lockstep_core::rank::GlobalRank;
use lockstep_gpu_exec::RankDump;
use rustix::fs::Access;
use std::io::ErrorKind;
use std::path::Path;

/// Writes what a rank handed in, over what it handed in before.
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

/// Makes the folder, if it is not there, and removes what ranks of an earlier run have left there: a
/// rank that leaves no dump this time, or that this run does not have, would be taken for one of this
/// run. Only files of the names that dumps are given, of ranks that are `meant`, and nothing else.
///
/// # Errors
/// When such a file cannot be removed, or none could be written there: a run may take hours to find out.
pub(crate) fn make_room(folder: &Path, meant: impl Fn(GlobalRank) -> bool) -> Result<()> {
    if folder.exists() && !folder.is_dir() {
        bail!("{}: it is a file, and dumps are files of a folder", cannot_write(folder));
    }
    std::fs::create_dir_all(folder).with_context(|| cannot_write(folder))?;
    let access = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK);
    access.with_context(|| cannot_write(folder))?;
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries.flatten() {
        let of = entry.file_name().to_str().and_then(RankDump::rank_of_file);
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && of.is_some_and(&meant) {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    let path = entry.path();
                    return Err(error).with_context(|| {
                        format!("cannot remove {}, an earlier run's dump", path.display())
                    });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for name in names {
            std::fs::write(folder.path().join(name), "x").unwrap();
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
