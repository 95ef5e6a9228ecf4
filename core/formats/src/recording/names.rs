//! The names of a recording's files.

use lockstep_core::trace::{job_folder_of, rank_of_file_name};
use std::collections::BTreeSet;

/// The names of the files at some paths: by their own names, or, where two have one name, with the
/// folders in which the paths part. Jobs, and attempts of one, call their files alike. Where only
/// its folders say whose a file is, they stay as well.
pub fn names_of<S: AsRef<str>>(paths: &[S]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = paths
        .iter()
        .map(|path| path.as_ref().split(['/', '\\']).filter(|part| !part.is_empty()).collect())
        .collect();
    let own: Vec<&str> = parts.iter().map(|parts| parts.last().copied().unwrap_or("")).collect();
    let different: BTreeSet<&str> = own.iter().copied().collect();
    // From which folder on a name says the rank, which its last part does not.
    let said = |(parts, own): (&Vec<&str>, &&str)| {
        rank_of_file_name(own).err()?;
        let path = parts.join("/");
        rank_of_file_name(&path).ok()?;
        let before = job_folder_of(&path);
        Some(before.split('/').filter(|part| !part.is_empty()).count())
    };
    let said = parts.iter().zip(&own).filter_map(said).min();
    if different.len() == own.len() && said.is_none() {
        return own.into_iter().map(str::to_owned).collect();
    }
    let folders = |parts: &Vec<&str>| parts.len().saturating_sub(1);
    let shortest = parts.iter().map(folders).min().unwrap_or(0);
    let first = parts.first().cloned().unwrap_or_default();
    let alike = |at: &usize| parts.iter().all(|parts| parts.get(*at) == first.get(*at));
    let common = (0..shortest).take_while(alike).count().min(said.unwrap_or(shortest));
    parts.iter().map(|parts| parts.get(common..).unwrap_or_default().join("/")).collect()
}

/// The name of a file of an archive: with the archive as its folder, unless the archive is the only file. A
/// file that is only compressed keeps its name.
pub fn name_in(archive: &str, path: &str) -> String {
    match archive.strip_suffix(".gz") == Some(path) {
        true => path.to_owned(),
        false => format!("{archive}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_what_tells_them_apart() {
        assert_eq!(names_of(&["/d/a/rank_0", "/d/b/rank_1"]), ["rank_0", "rank_1"]);
        let attempts = ["/d/a/rank_0", "/d/a/rank_1", "/d/b/n/rank_0"];
        assert_eq!(names_of(&attempts), ["a/rank_0", "a/rank_1", "b/n/rank_0"]);
        assert_eq!(names_of(&["rank_0", "old/rank_0"]), ["rank_0", "old/rank_0"]);
        assert_eq!(names_of(&["/d/rank_0", "/d/rank_0"]), ["rank_0", "rank_0"]);
        assert_eq!(names_of(&["/d/rank0/a.pkl", "/d/rank1/b.pkl"]), ["rank0/a.pkl", "rank1/b.pkl"]);
        assert_eq!(names_of(&["/d/rank0/dump"]), ["rank0/dump"]);
        assert_eq!(names_of(&["/d/n/3/fr.pkl", "/d/notes.txt"]), ["n/3/fr.pkl", "notes.txt"]);
        assert_eq!(names_of::<&str>(&[]), [""; 0]);
    }

    #[test]
    fn archives_are_folders() {
        assert_eq!(name_in("a.tar", "job/rank_0"), "a.tar/job/rank_0");
        assert_eq!(name_in("rank_0.gz", "rank_0"), "rank_0");
    }
}
