//! Calls with right and with wrong arguments, and Python's own words, as PyTorch 2.7.1 (gloo on CPUs, CPython
//! 3.11) printed them: `recorded/NAME.py` is the script, `NAME.txt` the output of its rank 0, with the
//! addresses of objects as `0xADDR`. Record them anew with `torchrun --nproc-per-node=N NAME.py`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::Options;

/// The lines in which two texts differ, each with its number.
fn differences(found: &str, recorded: &str) -> Vec<String> {
    let (found, recorded): (Vec<&str>, Vec<&str>) =
        (found.lines().collect(), recorded.lines().collect());
    let longest = found.len().max(recorded.len());
    let differ = (0..longest).filter(|at| found.get(*at) != recorded.get(*at));
    let shown = |at| format!("{}: {:?}, PyTorch {:?}", at + 1, found.get(at), recorded.get(at));
    differ.take(40).map(shown).collect()
}

macro_rules! recorded {
    ($($name:ident of $ranks:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let text = include_str!(concat!("recorded/", stringify!($name), ".py"));
            let expected = include_str!(concat!("recorded/", stringify!($name), ".txt"));
            let options = Options { world_size: Some($ranks), ..Options::default() };
            let compiled = compile("train.py", text, &options).unwrap_or_else(|error| panic!("{error}"));
            let printed = compiled.printed.iter().filter(|line| line.rank == GlobalRank(0));
            let lines: Vec<&str> = printed.map(|line| line.text.as_str()).collect();
            let found = lines.join("\n") + "\n";
            let differences = differences(&found, expected);
            assert!(differences.is_empty(), "{}", differences.join("\n"));
        }
    )*};
}

recorded! {
    coalesced of 2,
    groups of 2,
    meshes of 4,
    more_of_python of 1,
    no_groups of 2,
    own_keys of 1,
    own_operators of 1,
    point_to_point of 2,
    reduce_ops of 2,
    roots_and_groups of 2,
    scattered of 2,
    stores of 2,
    works of 2,
}
