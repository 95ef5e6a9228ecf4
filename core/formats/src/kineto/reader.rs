//! Profiles as contributions.

use super::{KinetoError, Profile, shown_calls_of};
use crate::chakra;
use crate::job_calls::{JobCalls, Merged, Shows};
use crate::problem::{FileProblem, MixedFiles, ProblemKind};
use crate::rank_calls::{Calls, RankCalls};
use crate::reader::{CallSource, Contribution, File, FileCalls, Filled, Reader};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::counted;
use std::collections::BTreeSet;
use std::io::BufRead;

/// Reads traces of PyTorch's profiler.
#[derive(Debug)]
pub(crate) struct KinetoReader;

const NAME: &str = "kineto";

impl Reader for KinetoReader {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, file: File<'_>) -> bool {
        Profile::is_one(file.bytes)
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        contribution(file.name, Profile::read(file.name, file.bytes)).map(|read| vec![read])
    }

    fn calls(&self) -> Option<&'static dyn CallSource> {
        Some(&Profiles)
    }
}

/// Reads a large profile as it comes.
///
/// # Errors
/// When it is no whole profile with calls, of a known rank.
pub(crate) fn read_stream(name: &str, stream: impl BufRead) -> Result<Contribution, FileProblem> {
    contribution(name, Profile::read_stream(name, stream))
}

fn contribution(
    name: &str,
    read: Result<Profile, KinetoError>,
) -> Result<Contribution, FileProblem> {
    let profile = read.map_err(|error| FileProblem {
        file_name: name.to_owned(),
        kind: ProblemKind::Unusable,
        why: error.to_string(),
    })?;
    Ok(Contribution::Calls(FileCalls::new(&Profiles, name, profile)))
}

/// The calls of profiles.
#[derive(Debug)]
struct Profiles;

impl CallSource for Profiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shows(&self) -> Shows {
        Shows::EndedCalls
    }

    fn join(
        &self,
        files: Vec<FileCalls>,
        problems: &mut Vec<FileProblem>,
    ) -> Result<Option<JobCalls>, MixedFiles> {
        let profiles = files.into_iter().filter_map(FileCalls::into_content);
        let mut profiles: Vec<RankCalls> = profiles.map(|Profile(calls)| calls).collect();
        problems.extend(RankCalls::settle_broken(&mut profiles));
        Ok(shown_calls_of(&profiles).map(|(shows, calls)| {
            let Calls { header, log, end_ps, notes, problems: flaws } = calls;
            problems.extend(flaws);
            JobCalls { shows, merged: Merged { header, log, end_ps }, notes }
        }))
    }

    fn adopt(&self, own: &[FileCalls], others: &mut Vec<FileCalls>) -> Vec<FileCalls> {
        let ranks: BTreeSet<GlobalRank> =
            own.iter().filter_map(|file| file.content::<Profile>()).map(Profile::rank).collect();
        let is_missing =
            |file: &mut FileCalls| chakra::rank_of(file).is_some_and(|rank| !ranks.contains(&rank));
        let adopted = others.extract_if(.., is_missing).filter_map(|file| {
            let name = file.file_name.clone();
            Some(FileCalls::new(&Profiles, &name, Profile(chakra::calls_of(file)?)))
        });
        adopted.collect()
    }

    fn has_whole_ranks(&self) -> bool {
        true
    }

    fn filled_in(&self, filled: &Filled) -> String {
        let all = counted(filled.of_calls, "call");
        if filled.calls == 0 {
            return format!(
                "The profiles tell of {all}, none of which is in the dumps: a recorder keeps the last \
                 calls only."
            );
        }
        format!(
            "The profiles tell of {all}; {} of {} are in the dumps too, and they filled in when {} of \
             them started, and the root of {}.{}",
            filled.calls,
            counted(filled.ranks, "rank"),
            filled.times,
            filled.roots,
            match filled.computations {
                0 => String::new(),
                some => format!(
                    " {} of the devices are theirs; what the devices computed before and after is not known.",
                    counted(some, "computation")
                ),
            }
        )
    }
}
