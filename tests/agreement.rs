//! What is run for real and what is simulated leave the same bits.

use lockstep_core::plan::Plan;
use lockstep_core::trace::{Origin, Trace};
use lockstep_sim::{SimConfig, compare, simulate};
use lockstep_tests::lockstep;
use std::fs;

fn ran_and_simulated(words: &[&str]) -> (Plan, Trace, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.lks");
    let mut all = vec!["run"];
    all.extend(words);
    let path = trace.to_str().unwrap();
    all.extend(["-o", path]);
    let output = lockstep(&all);
    assert_eq!(output.code, 0, "{words:?}: {output:?}");
    let ran = Trace::read(&fs::read(&trace).unwrap()).unwrap();
    assert!(matches!(ran.header.origin, Origin::Run { .. }));
    let plan = ran.header.plan.clone().unwrap();
    let simulated = simulate(&plan, &SimConfig::default()).unwrap();
    (plan, ran, simulated)
}

fn assert_same_bits(words: &[&str]) {
    let (plan, ran, simulated) = ran_and_simulated(words);
    let comparison = compare(&plan, &simulated, &ran);
    assert!(comparison.all_equal(), "{words:?}: {comparison:#?}");
    assert_eq!(comparison.only_in_one, 0, "{words:?}");
}

/// Sums of these numbers round, and round differently in any other order.
#[test]
fn float32_sums_are_equal_to_the_bit() {
    for world_size in ["2", "3", "4", "7"] {
        for count in ["1", "2", "5", "1000", "100000"] {
            let ring = ["all_reduce", "--seed", "11", "--world-size", world_size, "--count", count];
            assert_same_bits(&ring);
        }
        for collective in ["reduce", "reduce_scatter"] {
            let words = [collective, "--seed", "5", "--world-size", world_size, "--count", "333"];
            assert_same_bits(&words);
        }
    }
}

#[test]
fn every_collective_leaves_what_the_simulator_says() {
    for collective in [
        "broadcast",
        "all_reduce",
        "reduce",
        "all_gather",
        "gather",
        "scatter",
        "reduce_scatter",
        "all_to_all",
    ] {
        assert_same_bits(&[collective, "--world-size", "5", "--count", "13"]);
    }
}

#[test]
fn low_precision_and_other_reductions_agree_too() {
    for dtype in ["float64", "float16", "bfloat16", "int32", "uint8"] {
        for op in ["SUM", "AVG", "MAX", "PRODUCT"] {
            let words = ["all_reduce", "--seed", "3", "--dtype", dtype, "--reduce-op", op];
            assert_same_bits(&words);
        }
    }
}
