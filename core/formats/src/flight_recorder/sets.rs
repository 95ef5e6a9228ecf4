//! Dumps of several jobs, or of several moments of one, among the files: finds those that belong together,
//! and the set that is judged.
//!
//! If two files claim one rank, calls of different jobs must not be compared with each other. Files of one
//! folder belong together; if one folder has a rank twice, files whose names are alike up to the rank do. The
//! set with the latest call is judged, with the other sets that fit beside it: those that claim other ranks,
//! and made calls at the same time. The files that are left out are reported.

use super::{Dump, FlightRecorderError};
use crate::problem::FileProblem;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::job_folder_of;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The last call of a dump, and when it was made: two dumps of a rank that agree in it are of one
/// moment.
fn moment(dump: &Dump) -> Option<(u64, Option<u64>)> {
    dump.entries.iter().map(|entry| (entry.created_ns, entry.record_id)).max()
}

/// A file's name up to the rank in it: `old_rank_` of `old_rank_3.pkl`.
fn up_to_rank(name: &str) -> &str {
    let digits_end = name.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let stem = name.get(..digits_end).unwrap_or(name);
    stem.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// True if two dumps of a rank hold calls in common: they are of one process.
fn share_calls(a: &Dump, b: &Dump) -> bool {
    let calls = |dump: &Dump| -> BTreeSet<(u64, Option<u64>)> {
        let known = dump.entries.iter().filter(|entry| entry.created_ns > 0);
        known.map(|entry| (entry.created_ns, entry.record_id)).collect()
    };
    !calls(a).is_disjoint(&calls(b))
}

/// Dumps that belong together.
#[derive(Default)]
struct Set {
    /// The folder, or the common beginning of the files' names.
    name: String,
    /// Those that can be used, ascending by rank, then the better of those of one moment first.
    dumps: Vec<Dump>,
}

impl Set {
    fn latest(&self) -> Option<u64> {
        self.dumps.iter().filter_map(moment).map(|(created_ns, _)| created_ns).max()
    }

    /// When its first known call was made.
    fn first(&self) -> Option<u64> {
        let entries = self.dumps.iter().flat_map(|dump| &dump.entries);
        entries.map(|entry| entry.created_ns).filter(|ns| *ns > 0).min()
    }

    /// True if all of it lies before all of another set: of a job that ended before that began.
    fn is_before(&self, other: &Set) -> bool {
        self.latest().zip(other.first()).is_some_and(|(latest, first)| latest < first)
    }

    /// The first two files that claim one rank, and are of different moments.
    fn clash(&self) -> Option<(&Dump, &Dump)> {
        clash(&self.dumps, &self.dumps)
    }
}

/// The first two files that claim one rank, and are of different moments.
fn clash<'d>(some: &'d [Dump], others: &'d [Dump]) -> Option<(&'d Dump, &'d Dump)> {
    let mut by_rank: BTreeMap<GlobalRank, Vec<&Dump>> = BTreeMap::new();
    for dump in some {
        by_rank.entry(dump.rank).or_default().push(dump);
    }
    others.iter().find_map(|other| {
        let same = by_rank.get(&other.rank)?;
        Some((*same.iter().find(|dump| moment(dump) != moment(other))?, other))
    })
}

/// The sets of some dumps, by the `name` of each file.
fn sets_by(dumps: Vec<Dump>, name: impl Fn(&str) -> &str) -> Vec<Set> {
    let mut sets: BTreeMap<String, Vec<Dump>> = BTreeMap::new();
    for dump in dumps {
        sets.entry(name(&dump.file_name).to_owned()).or_default().push(dump);
    }
    sets.into_iter().map(|(name, dumps)| Set { name, dumps }).collect()
}

/// By rank; of one rank's, the one that says most first.
fn better_first(a: &Dump, b: &Dump) -> Ordering {
    let last_record = |dump: &Dump| dump.entries.last().and_then(|entry| entry.record_id);
    (a.rank, a.form)
        .cmp(&(b.rank, b.form))
        .then_with(|| last_record(b).cmp(&last_record(a)))
        .then_with(|| a.file_name.cmp(&b.file_name))
}

/// The dumps of one moment of one job among `dumps`, by rank, the best of each first; `problems` gets a line
/// for every set that is left out.
///
/// # Errors
/// Files claim the same rank, and it is unclear which of them belong together.
pub(super) fn newest(
    mut dumps: Vec<Dump>,
    problems: &mut Vec<FileProblem>,
) -> Result<Vec<Dump>, FlightRecorderError> {
    dumps.sort_by(better_first);
    let all = Set { name: String::new(), dumps };
    if all.clash().is_none() {
        return Ok(super::stale::without(all.dumps, problems));
    }
    let mut sets: Vec<Set> = Vec::new();
    for set in sets_by(all.dumps, job_folder_of) {
        if set.clash().is_none() {
            sets.push(set);
            continue;
        }
        for mut set in sets_by(set.dumps, up_to_rank) {
            set.dumps = of_one_process(set.dumps, problems)?;
            sets.push(set);
        }
    }
    sets.sort_by(|a, b| b.latest().cmp(&a.latest()).then_with(|| a.name.cmp(&b.name)));
    let (mut chosen, mut rest): (Vec<Set>, Vec<Set>) = (Vec::new(), Vec::new());
    for set in sets {
        let against = |known: &Set| {
            let (one, other) = clash(&known.dumps, &set.dumps)?;
            Some((known.latest() == set.latest(), mixed(one, other)))
        };
        let against: Vec<_> = chosen.iter().filter_map(against).collect();
        if let Some((_, error)) = against.iter().find(|(as_new, _)| *as_new) {
            return Err(error.clone());
        }
        let fits = against.is_empty() && !chosen.iter().any(|known| set.is_before(known));
        if fits && rest.is_empty() { chosen.push(set) } else { rest.push(set) }
    }
    let names = |set: &Set| if set.name.is_empty() { ".".to_owned() } else { set.name.clone() };
    let judged: Vec<String> = chosen.iter().map(names).collect();
    problems.extend(rest.into_iter().map(|set| {
        let (files, judged) = (set.dumps.len(), judged.join(", "));
        FlightRecorderError::OtherSet { set: names(&set), files, judged }.of_file(set.name)
    }));
    let mut kept: Vec<Dump> = chosen.into_iter().flat_map(|set| set.dumps).collect();
    kept.sort_by(better_first);
    Ok(kept)
}

/// Keeps the latest of the files with one name and rank, if they are of one process.
fn of_one_process(
    dumps: Vec<Dump>,
    problems: &mut Vec<FileProblem>,
) -> Result<Vec<Dump>, FlightRecorderError> {
    let mut latest: BTreeMap<GlobalRank, Option<(u64, Option<u64>)>> = BTreeMap::new();
    for dump in &dumps {
        let known = latest.entry(dump.rank).or_insert(None);
        *known = moment(dump).max(*known);
    }
    let is_latest = |dump: &Dump| latest.get(&dump.rank).is_some_and(|it| *it == moment(dump));
    let (kept, earlier): (Vec<Dump>, Vec<Dump>) = dumps.into_iter().partition(is_latest);
    for dump in earlier {
        let Some(used) = kept.iter().find(|used| used.rank == dump.rank) else { continue };
        if !dump.entries.is_empty() && !share_calls(used, &dump) {
            return Err(mixed(used, &dump));
        }
        let (file, other, rank) = (dump.file_name.clone(), used.file_name.clone(), dump.rank);
        let error = FlightRecorderError::SameRank { file, other, rank };
        problems.push(error.of_file(dump.file_name));
    }
    Ok(kept)
}

fn mixed(one: &Dump, other: &Dump) -> FlightRecorderError {
    let mut files = [one.file_name.clone(), other.file_name.clone()];
    files.sort();
    let [file, other] = files;
    FlightRecorderError::Mixed { file, other, rank: one.rank }
}

#[cfg(test)]
mod tests {
    use super::super::recording_of;
    use super::*;
    use crate::problem::ProblemKind;
    use lockstep_core::trace::rank_of_file_name;
    use serde_json::json;

    /// A dump of two calls, the first of which is made at `ns`.
    fn dump(name: &str, ns: u64) -> Dump {
        let entry = |at: u64| {
            json!({"record_id": at, "pg_id": 0, "process_group": ["0", "default_pg"],
                "collective_seq_id": at + 1, "p2p_seq_id": 0, "op_id": at + 1,
                "profiling_name": "nccl:all_reduce", "time_created_ns": ns + at,
                "input_sizes": [[8]], "input_dtypes": ["Float"], "output_sizes": [[8]],
                "output_dtypes": ["Float"], "state": "completed", "retired": true,
                "timeout_ms": 1000, "is_p2p": false})
        };
        let text = json!({"version": "2.10", "entries": [entry(0), entry(1)],
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}});
        let mut dump = Dump::read(name, text.to_string().as_bytes()).unwrap();
        dump.rank = rank_of_file_name(name).unwrap();
        dump
    }

    type Judged = Result<(Vec<String>, Vec<String>), String>;

    /// The files that are judged, and the remarks on the others, in whichever order they are read.
    fn judged(files: &[(&str, u64)]) -> Judged {
        let of = |files: &[(&str, u64)]| -> Judged {
            let dumps = files.iter().map(|(name, ns)| dump(name, *ns)).collect();
            let mut problems = Vec::new();
            let mut kept = newest(dumps, &mut problems).map_err(|error| error.to_string())?;
            kept.sort_by(|a, b| a.file_name.cmp(&b.file_name));
            let said = problems.iter().map(|problem| problem.why.clone()).collect();
            Ok((kept.into_iter().map(|dump| dump.file_name).collect(), said))
        };
        let found = of(files);
        let mut turned = files.to_vec();
        for _ in files {
            turned.rotate_left(1);
            assert_eq!(of(&turned), found);
        }
        turned.reverse();
        assert_eq!(of(&turned), found);
        found
    }

    #[test]
    fn the_newest_folder_is_judged_alone() {
        let files = [("b/rank_0", 100), ("b/rank_1", 110), ("a/rank_0", 500), ("a/rank_2", 510)];
        let (kept, said) = judged(&files).unwrap();
        assert_eq!(kept, ["a/rank_0", "a/rank_2"]);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("a was judged") && said[0].contains("b"), "{said:?}");
        // Folders that claim different ranks are one job's.
        let nodes = [("n0/rank_0", 900), ("n1/rank_1", 901), ("old/n0/rank_0", 10)];
        assert_eq!(judged(&nodes).unwrap().0, ["n0/rank_0", "n1/rank_1"]);
        // A machine that left no dumps this time has its old ones.
        let nodes = [("n0/rank_0", 900), ("old/n1/rank_1", 12), ("old/n0/rank_0", 10)];
        assert_eq!(judged(&nodes).unwrap().0, ["n0/rank_0"]);
        let nodes = [("n0/rank_0", 100), ("n1/rank_1", 900)];
        assert_eq!(judged(&nodes).unwrap().1, [""; 0]);
    }

    #[test]
    fn within_a_folder_names_and_moments_tell() {
        let named = [("d/old_rank_0", 100), ("d/old_rank_1", 101), ("d/rank_0", 300)];
        assert_eq!(judged(&named).unwrap().0, ["d/rank_0"]);
        let one_process = [("d/rank_0", 100), ("d/rank_0.json", 101), ("d/rank_1", 100)];
        assert!(judged(&one_process).is_err(), "calls of other moments under one number");
        let unknown = [("d/rank_0", 100), ("d/rank_0.pkl", 900)];
        let why = judged(&unknown).unwrap_err();
        assert!(why.contains("d/rank_0 and d/rank_0.pkl"), "{why}");
        // As new as each other.
        let files = vec![dump("d/rank_0", 100), dump("d/rank_0.pkl", 100)];
        let mut files = files.into_iter();
        let (mut early, late) = (files.next().unwrap(), files.next().unwrap());
        early.entries.pop();
        let mut problems = Vec::new();
        let kept = newest(vec![early, late], &mut problems).unwrap();
        assert_eq!(kept[0].file_name, "d/rank_0.pkl");
        assert_eq!(problems[0].kind, ProblemKind::SameRank);
        let alike = [("a/rank_0", 100), ("a/rank_1", 101), ("b/rank_0", 101), ("b/rank_1", 100)];
        assert!(judged(&alike).is_err());
        let copies = [("a/rank_0", 100), ("b/rank_0", 100), ("b/rank_1", 7)];
        assert_eq!(judged(&copies).unwrap().0.len(), 3);
    }

    /// A rank that left no dump this time has its old one in the folder.
    #[test]
    fn a_dump_whose_calls_ended_before_the_others_began_is_left_out() {
        const HOUR: u64 = 3_600_000_000_000;
        let files = [("rank_0", HOUR), ("rank_1", HOUR + 5), ("rank_6", 7)];
        let (kept, said) = judged(&files).unwrap();
        assert_eq!(kept, ["rank_0", "rank_1"]);
        assert!(said[0].contains("rank_6 was left out") && said[0].contains("59 min"), "{said:?}");
        let halves = [("rank_0", HOUR), ("rank_1", HOUR), ("rank_2", 7), ("rank_3", 7)];
        let (kept, said) = judged(&halves).unwrap();
        assert_eq!((kept.len(), said.len()), (2, 1));
        assert!(said[0].contains("and another file were left out"), "{said:?}");
        // A clock that is ahead makes the others no older attempt.
        let ahead = [("rank_0", 1), ("rank_1", 1), ("rank_2", HOUR)];
        assert_eq!(judged(&ahead).unwrap().0.len(), 3);
        let near = [("rank_0", HOUR), ("rank_1", HOUR), ("rank_2", HOUR - 2_000_000_000)];
        assert_eq!(judged(&near).unwrap().0.len(), 3, "clocks differ");
    }

    /// Jobs on a mesh may make no call of the default group.
    #[test]
    fn calls_of_other_groups_tell_attempts_apart_as_well() {
        const HOUR: u64 = 3_600_000_000_000;
        let of = |members: &str, name: &str, ns: u64| {
            let mut dump = dump(name, ns);
            let ranks: Vec<GlobalRank> =
                members.split(' ').map(|rank| GlobalRank(rank.parse().unwrap())).collect();
            for site in &mut dump.sites {
                (site.group, site.group_desc) = (Some("3".into()), "tp".into());
                site.pg_id = 1;
            }
            dump.groups[0] =
                super::super::GroupConfig { name: "3".into(), desc: "tp".into(), ranks };
            dump
        };
        let kept = |dumps: Vec<Dump>| {
            let mut problems = Vec::new();
            (newest(dumps, &mut problems).unwrap().len(), problems.len())
        };
        let all = "0 1 2";
        let stale =
            vec![of(all, "rank_0", HOUR), of(all, "rank_1", HOUR + 5), of(all, "rank_2", 7)];
        assert_eq!(kept(stale), (2, 1));
        // Another group of the name may have been done an hour before.
        let other =
            vec![of("0 1", "rank_0", HOUR), of("0 1", "rank_1", HOUR + 5), of("2 3", "rank_2", 7)];
        assert_eq!(kept(other), (3, 0));
    }

    #[test]
    fn one_of_each_rank_is_merged() {
        let read = recording_of(vec![dump("a/rank_0", 5), dump("b/rank_0", 500)], Vec::new());
        assert_eq!(read.unwrap().problems.len(), 1);
    }
}
