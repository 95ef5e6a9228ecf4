//! The fit of `calibrate`: from the simulator's own times back to what made them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]
#![allow(clippy::float_arithmetic, reason = "ratios of times")]

use lockstep_core::group::BackendName;
use lockstep_sim::calibrate::{FitError, Measured, Model, Point, Probe, fit};
use lockstep_sim::{Link, SharedMemory, Topology};
use proptest::prelude::*;

const HOST: BackendName = BackendName::Host;
const FITTED: [u64; 7] = [4, 4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20, 64 << 20];
const HELD_BACK: [u64; 6] = [256, 16 << 10, 256 << 10, 2 << 20, 8 << 20, 32 << 20];

/// The simulator's own times of all collectives.
fn times(topology: Topology, world_size: u32, sizes: &[u64]) -> Vec<Measured> {
    let points = Probe::ALL
        .into_iter()
        .flat_map(|probe| sizes.iter().map(move |&bytes| Point { probe, bytes }));
    let of = |point: Point| {
        let call_ps = point.simulated_ps(topology, HOST, world_size).unwrap();
        Measured { point, call_ps }
    };
    points.map(of).collect()
}

fn ratio(a: u64, b: u64) -> f64 {
    a.max(b) as f64 / a.min(b).max(1) as f64
}

/// Every rate, latency and cost is found again where the times depend on it: what is asked is that
/// sizes that the fit has not seen take as long.
fn assert_same_times(topology: Topology, found: Topology, world_size: u32) {
    for (was, is) in times(topology, world_size, &HELD_BACK)
        .into_iter()
        .zip(times(found, world_size, &HELD_BACK))
    {
        let off = ratio(was.call_ps, is.call_ps);
        assert!(
            off < 1.1,
            "{:?}: {} ps, found {} ps\n{topology:?}\n{found:?}",
            was.point,
            was.call_ps,
            is.call_ps
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_link_is_found_again(
        latency_ps in 100_000u64..50_000_000,
        bytes_per_second in 1_000_000_000u64..100_000_000_000,
        world_size in 2u32..5,
    ) {
        let link = Link { latency_ps, bytes_per_second };
        let measured = times(Topology::Uniform(link), world_size, &FITTED);
        let found = fit(Model::Link, HOST, world_size, &measured).unwrap();
        let Topology::Uniform(found) = found else { panic!("{found:?} is no link") };
        prop_assert!(ratio(found.latency_ps, latency_ps) < 1.01, "{found:?} for {link:?}");
        prop_assert!(ratio(found.bytes_per_second, bytes_per_second) < 1.01, "{found:?} for {link:?}");
    }
}

#[test]
fn a_machine_is_found_again() {
    let machines = [
        (2, 300_000, 400_000, [30, 20, 5], [16, 12, 4]),
        (4, 1_500_000, 4_000_000, [12, 11, 10], [8, 7, 6]),
    ];
    for (world_size, call_ps, latency_ps, store, reduce) in machines {
        let gigabytes = |rates: [u64; 3]| rates.map(|rate| rate * 1_000_000_000);
        let machine = SharedMemory {
            cores: 2,
            call_ps,
            latency_ps,
            cached_bytes: [300 << 10, 5 << 20],
            store_bytes_per_second: gigabytes(store),
            reduce_bytes_per_second: gigabytes(reduce),
        };
        let topology = Topology::SharedMemory(machine);
        let model = Model::SharedMemory { cores: 2, caches: [1 << 20, 32 << 20] };
        let measured = times(topology, world_size, &FITTED);
        let found = fit(model, HOST, world_size, &measured).unwrap();
        assert_same_times(topology, found, world_size);
        let Topology::SharedMemory(found) = found else { panic!("{found:?} shares no memory") };
        // Among two ranks a call that takes longer looks like a message that does.
        let message = |machine: SharedMemory| machine.latency_ps + machine.call_ps;
        assert!(ratio(message(found), message(machine)) < 1.2, "{found:?} for {machine:?}");
    }
}

/// A parameter that no measured call depends on has the rate of the next smaller sizes, and none of
/// the search's own.
#[test]
fn sizes_that_were_not_measured_have_the_rates_of_smaller_ones() {
    let small: Vec<u64> = FITTED.into_iter().filter(|bytes| *bytes <= 512 << 10).collect();
    let machine = SharedMemory {
        cores: 2,
        call_ps: 300_000,
        latency_ps: 400_000,
        cached_bytes: [64 << 20, 256 << 20],
        store_bytes_per_second: [7_000_000_000; 3],
        reduce_bytes_per_second: [3_000_000_000; 3],
    };
    let measured = times(Topology::SharedMemory(machine), 2, &small);
    let model = Model::SharedMemory { cores: 2, caches: [64 << 20, 256 << 20] };
    let found = fit(model, HOST, 2, &measured).unwrap();
    let Topology::SharedMemory(found) = found else { panic!("{found:?} shares no memory") };
    for rates in [found.store_bytes_per_second, found.reduce_bytes_per_second] {
        assert_eq!(rates, [rates[0]; 3], "{found:?}");
    }
    assert!(ratio(found.store_bytes_per_second[2], 7_000_000_000) < 1.2, "{found:?}");
}

/// Memory of ranks is not a wire: what each of two ranks does, four do on two cores in turns.
#[test]
fn ranks_that_share_cores_take_turns() {
    let machine = |cores| {
        let rates = [10_000_000_000; 3];
        Topology::SharedMemory(SharedMemory {
            cores,
            call_ps: 0,
            latency_ps: 0,
            cached_bytes: [0, 0],
            store_bytes_per_second: rates,
            reduce_bytes_per_second: rates,
        })
    };
    let of = |probe, cores| {
        Point { probe, bytes: 4 << 20 }.simulated_ps(machine(cores), HOST, 4).unwrap()
    };
    // Four ranks copy a part and store three: 16 parts in all. A rank that is through begins its
    // next call while others are at this one: what it copies and stores for that comes on top.
    let part = 100 * (1 << 20);
    for (cores, parts) in [(4, 4), (2, 8), (1, 16)] {
        let took = of(Probe::AllGather, cores);
        assert!((parts * part..=(parts + 3) * part).contains(&took), "{cores} cores: {took}");
    }
    // Three read what the root has, as many at once as there are cores, and it waits for the last: the
    // mean of 1, 1, 1 and 1, of 1, 1, 2 and 2, and of 1, 2, 3 and 3.
    let of_all = [4, 2, 1].map(|cores| of(Probe::Broadcast, cores));
    assert_eq!(of_all, [4, 6, 9].map(|parts| parts * part));
}

#[test]
fn too_few_points_say_so() {
    let link = Topology::Uniform(Link::DEFAULT);
    let measured = times(link, 2, &[4]);
    let model = Model::SharedMemory { cores: 2, caches: [1, 2] };
    let error = fit(model, HOST, 2, &measured).unwrap_err();
    assert_eq!(error, FitError::TooFew { points: 3, parameters: 10 });
    assert!(error.to_string().contains("measure more sizes"), "{error}");
}

/// Times of a machine that was busy: some calls a thousand times as long as others of their size. A step of the
/// search then leads to where a call passes its timeout in the simulator.
fn of_a_busy_machine(seed: u64, world_size: u32) -> Vec<Measured> {
    let mut times = times(Topology::Uniform(Link::DEFAULT), world_size, &FITTED);
    let mut state = seed;
    for measured in &mut times {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Up to 9.5 s: a group's timeout is longer than what completed.
        let busy_ps = 1u64 << (20 + (state >> 40) % 24);
        measured.call_ps = (measured.call_ps + busy_ps).min(9_500_000_000_000);
    }
    times
}

#[test]
fn times_of_a_busy_machine_have_a_topology() {
    let caches = [1 << 20, 32 << 20];
    for seed in 0..40 {
        let measured = of_a_busy_machine(seed, 2);
        let models = match seed {
            0..3 => vec![Model::Link, Model::SharedMemory { cores: 2, caches }],
            _ => vec![Model::Link],
        };
        for model in models {
            let found = fit(model, HOST, 2, &measured).unwrap();
            // What it is for: the plans that were measured can be simulated on it.
            assert_eq!(self::times(found, 2, &FITTED).len(), measured.len());
        }
    }
}

/// No machine makes 64 MiB in no time and 4 bytes in minutes; and a plan of nobody is none.
#[test]
fn what_cannot_be_fitted_says_what_to_do() {
    assert_eq!(fit(Model::Link, HOST, 0, &of_a_busy_machine(1, 2)), Err(FitError::NoPlan(0)));
    let error = FitError::NoMachine { slowest_ps: 7_300_000_000_000 }.to_string();
    assert!(error.contains("up to 7 s") && error.contains("--rounds"), "{error}");
}
