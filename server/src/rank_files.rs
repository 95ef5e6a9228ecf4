//! Files that a command writes into a folder, one a rank: `-o` of exports for other tools.
//!
//! Readers of such a folder take all its files for one job. So a file of a rank that this job does not have, left by
//! an earlier export, is removed if Lockstep wrote it; if it did not, nothing is written.

use crate::output_file::{FileKind, Overwrite, holds, write_whole};
use anyhow::{Context, Result, bail};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The files of a job's ranks in a folder.
pub(crate) struct RankFiles<'a> {
    folder: &'a Path,
    kind: FileKind,
    /// The name of a rank's file.
    name: fn(GlobalRank) -> String,
}

impl<'a> RankFiles<'a> {
    /// Files of a kind, named by `name`, in a folder that is made if it is not there.
    ///
    /// # Errors
    /// When it is no folder, or a file of the same names is there that Lockstep did not write.
    pub(crate) fn new(
        folder: &'a Path,
        kind: FileKind,
        name: fn(GlobalRank) -> String,
        ranks: &BTreeSet<GlobalRank>,
        (overwrite, inputs): (Overwrite, &[&Path]),
    ) -> Result<RankFiles<'a>> {
        let shown = folder.display();
        if folder.exists() && !folder.is_dir() {
            bail!("cannot write {shown}: it is a file, and a file for each rank is written");
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
        for rank in ranks {
            overwrite.check(&folder.join(name(*rank)), kind, inputs)?;
        }
        let mut stale: Vec<PathBuf> = Vec::new();
        let entries = fs::read_dir(folder).with_context(|| format!("cannot list {shown}"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {shown}"))?;
            let of = entry.file_name().to_str().and_then(|it| rank_of(it, name));
            if of.is_none_or(|of| ranks.contains(&of)) {
                continue;
            }
            let path = entry.path();
            let read = holds(&path, kind);
            if !read.with_context(|| format!("cannot read {}", path.display()))? {
                bail!(
                    "{} is of a rank that this job does not have, and would be taken for a part of it: name \
                     another folder, or move the file away",
                    path.display()
                );
            }
            stale.push(path);
        }
        for path in stale {
            fs::remove_file(&path).with_context(|| {
                format!("cannot remove {}, of an earlier export", path.display())
            })?;
        }
        Ok(RankFiles { folder, kind, name })
    }

    /// Writes the file of a rank.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(
        &self,
        rank: GlobalRank,
        content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        let path = self.folder.join((self.name)(rank));
        // Files that appeared since the check are not replaced either.
        Overwrite::default().check(&path, self.kind, &[])?;
        write_whole(&path, |out| Ok(content(out)?))
    }
}

/// The rank whose file is named so.
fn rank_of(file: &str, name: fn(GlobalRank) -> String) -> Option<GlobalRank> {
    let numbers = file.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok());
    numbers.map(GlobalRank).find(|rank| name(*rank) == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rank: GlobalRank) -> String {
        format!("job.{rank}.et")
    }

    #[test]
    fn a_smaller_job_leaves_no_file_of_a_larger_one() {
        let folder = tempfile::tempdir().unwrap();
        let goal = b"num_ranks 2";
        let made = |ranks: std::ops::Range<u32>| {
            let ranks: BTreeSet<GlobalRank> = ranks.map(GlobalRank).collect();
            let rules = (Overwrite::default(), &[][..]);
            let files = RankFiles::new(folder.path(), FileKind::Goal, name, &ranks, rules)
                .map_err(|error| error.to_string())?;
            for rank in &ranks {
                files.write(*rank, |out| out.write_all(goal)).map_err(|error| error.to_string())?;
            }
            Ok(fs::read_dir(folder.path()).unwrap().count())
        };
        assert_eq!(made(0..4), Ok(4));
        assert_eq!(made(0..2), Ok(2));
        // Files of other names, and of no rank.
        for other in ["job.03.et", "job.x.et", "rank.3.et"] {
            fs::write(folder.path().join(other), "mine").unwrap();
        }
        assert_eq!(made(0..2), Ok(5));
        fs::write(folder.path().join("job.7.et"), "mine").unwrap();
        let refused: Result<usize, String> = made(0..2);
        assert!(refused.unwrap_err().contains("of a rank that this job does not have"));
        assert_eq!(fs::read(folder.path().join("job.7.et")).unwrap(), b"mine");
    }
}
