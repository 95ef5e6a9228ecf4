//! The files of the job, and of its attempt, that are judged: chosen by the folders of the dumps, and by
//! torchrun's folders of attempts.

use crate::file_names::folder_of;
use std::collections::BTreeSet;

/// The files of the job, and of its attempt, that are judged.
#[derive(Debug, Default)]
pub(super) struct JudgedFiles {
    /// The folders of dumps that are left out, with all other files in them.
    left_out: BTreeSet<String>,
    /// Those of dumps that are not.
    kept: BTreeSet<String>,
    /// The attempt, where there are several.
    attempt: Option<u32>,
    /// The files of earlier attempts.
    earlier: BTreeSet<u32>,
}

impl JudgedFiles {
    /// Chooses the files by the folders that have dumps, those of the folders that are left out, and the
    /// names of logs.
    pub(super) fn of<'a>(
        folders: BTreeSet<String>,
        left_out: BTreeSet<String>,
        logs: impl Iterator<Item = &'a str>,
    ) -> JudgedFiles {
        let kept: BTreeSet<String> =
            folders.into_iter().filter(|folder| !left_out.contains(folder)).collect();
        let of_dumps: BTreeSet<Option<u32>> =
            kept.iter().map(|folder| attempt(&format!("{folder}/"))).collect();
        let mut earlier: BTreeSet<u32> = logs.filter_map(attempt).collect();
        let attempt = match of_dumps.first().copied() {
            Some(only) if of_dumps.len() == 1 => only,
            Some(_) => None,
            None => earlier.last().copied(),
        };
        earlier.retain(|it| attempt.is_some_and(|attempt| *it != attempt));
        JudgedFiles { left_out, kept, attempt, earlier }
    }

    /// True if a file is to be judged.
    pub(super) fn holds(&self, name: &str) -> bool {
        let mut folder = folder_of(name);
        while !folder.is_empty() && !self.kept.contains(folder) {
            if self.left_out.contains(folder) {
                return false;
            }
            folder = folder_of(folder);
        }
        let of = attempt(name).zip(self.attempt);
        of.is_none_or(|(of, judged)| of == judged)
    }

    /// A note on logs that are not judged.
    pub(super) fn note(&self) -> Option<String> {
        let judged = self.attempt.filter(|_| !self.earlier.is_empty())?;
        let others: Vec<String> = self.earlier.iter().map(u32::to_string).collect();
        let (noun, was) = if others.len() == 1 { ("", "was") } else { ("s", "were") };
        Some(format!(
            "Of the logs, those of attempt {judged} were judged; attempt{noun} {} {was} left out.",
            others.join(", ")
        ))
    }
}

/// The attempt that a file is of, as torchrun names folders: `attempt_1`.
pub(super) fn attempt(name: &str) -> Option<u32> {
    let of = |part: &str| {
        let part = part.to_ascii_lowercase();
        let names = ["attempt", "restart", "try"];
        let rest = names.iter().find_map(|name| part.strip_prefix(name))?;
        rest.trim_start_matches(['_', '-']).parse().ok()
    };
    folder_of(name).split(['/', '\\']).find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_in_the_folders() {
        assert_eq!(attempt("x/attempt_1/3/stderr.log"), Some(1));
        assert_eq!(attempt("x/restart2/rank_3.log"), Some(2));
        assert_eq!(attempt("attempt_1.log"), None);
        assert_eq!(attempt("country/a.log"), None);
    }
}
