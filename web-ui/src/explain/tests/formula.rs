//! The formulas that the families give of themselves, against the simulator and the schedules.

use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Formula, Holds, Rounds};
use lockstep_sim::{Link, Topology, cost};

/// Evaluates a formula's text: what is read is what is checked.
struct Reader<'a> {
    rest: &'a str,
    n: f64,
    k: f64,
}

impl Reader<'_> {
    fn value(text: &str, n: f64, k: f64) -> f64 {
        let mut reader = Reader { rest: text, n, k };
        let value = reader.sum();
        assert_eq!(reader.rest, "", "{text}");
        value
    }

    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        rest.strip_prefix(word).map(|rest| self.rest = rest).is_some()
    }

    fn sum(&mut self) -> f64 {
        let mut value = self.product();
        loop {
            if self.takes("+") {
                value += self.product();
            } else if self.takes("−") {
                value -= self.product();
            } else {
                self.rest = self.rest.trim_start();
                return value;
            }
        }
    }

    fn product(&mut self) -> f64 {
        let mut value = self.factor().expect("a factor");
        loop {
            if self.takes("/") {
                value /= self.factor().expect("a divisor");
            } else if self.takes("·") {
                value *= self.factor().expect("a factor");
            } else if let Some(next) = self.factor() {
                value *= next;
            } else {
                return value;
            }
        }
    }

    fn factor(&mut self) -> Option<f64> {
        if self.takes("(") {
            let value = self.sum();
            assert!(self.takes(")"));
            return Some(value);
        }
        if self.takes("⌈") {
            let value = self.sum();
            assert!(self.takes("⌉"));
            // 2.0000000001 is 2.
            return Some((value - 1e-9).ceil());
        }
        if self.takes("log₂") {
            return self.factor().map(f64::log2);
        }
        if self.takes("log₄") {
            return self.factor().map(|of| of.log2() / 2.0);
        }
        if self.takes("n") {
            return Some(self.n);
        }
        if self.takes("k") {
            return Some(self.k);
        }
        let rest = self.rest.trim_start();
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let value = rest[..digits].parse().ok()?;
        self.rest = &rest[digits..];
        Some(value)
    }
}

#[test]
fn formulas_are_read_as_they_are_written() {
    assert_eq!(Reader::value("2(n − 1)/n", 4.0, 1.0), 1.5);
    assert_eq!(Reader::value("n/2·log₂(n)", 8.0, 1.0), 12.0);
    assert_eq!(Reader::value("4(⌈log₄(3n + 1)⌉ − 1)", 5.0, 1.0), 4.0);
    let ring = Formula::new("2(n − 1)", "2(n − 1)/n", Holds::Always);
    assert_eq!(ring.text(), "2(n − 1)·α + 2(n − 1)/n·S/β");
    let tree = Formula::new("n − 1", "1", Holds::Always);
    assert_eq!(tree.text(), "(n − 1)·α + S/β");
}

/// The calls of the gallery.
fn calls() -> impl Iterator<Item = Collective> {
    let every = Collective::every(ReduceOp::Sum, GroupRank(0));
    every.into_iter().chain([Collective::MonitoredBarrier { wait_all_ranks: false }])
}

/// Elements a rank: pipelines cut the larger ones into several segments.
const COUNTS: [u64; 3] = [5040 * 8, 5040 * 64, 5040 * 1024];

fn lab(call: Collective, algorithm: Algorithm, n: u32, count: u64) -> CollectiveLab {
    CollectiveLab { algorithm, timeout_ms: 1 << 40, ..CollectiveLab::new(call, n, count) }
}

/// Asserts that `counted` is the said number, within `slack`.
fn assert_holds(holds: Holds, n: u32, counted: f64, said: f64, slack: f64, what: &str) {
    let what = format!("{what}: is {counted}, said {said}");
    let close = (counted - said).abs() <= slack;
    match holds {
        Holds::Always => assert!(close, "{what}"),
        Holds::PowersOfTwo if n.is_power_of_two() => assert!(close, "{what}"),
        Holds::PowersOfTwo => {}
        Holds::AtMost => assert!(counted <= said, "{what}"),
        Holds::About(_) if n < 4 => {}
        Holds::About(_) => assert!((counted / said - 1.0).abs() < 0.34, "{what}"),
    }
}

/// Every formula says what the simulator takes, where it claims to: with latencies only, with
/// bandwidth only, and with both.
#[test]
fn formulas_say_what_the_simulator_takes() {
    for call in calls() {
        for (&algorithm, count) in Algorithm::of(call).iter().flat_map(|a| COUNTS.map(|c| (a, c))) {
            let formula = algorithm.explained(call).formula;
            if count != COUNTS[1] && !formula.has_segments() {
                continue;
            }
            for n in 2..=32u32 {
                let lab = lab(call, algorithm, n, count);
                let segments = f64::from(lab.schedule(0).unwrap().segments());
                let plan = lab.plan().unwrap();
                // One element takes a picosecond.
                for latency_ps in [0, 1 << 40] {
                    let link = Link { latency_ps, bytes_per_second: 4_000_000_000_000 };
                    let time = cost::time_ps(&plan, Topology::Uniform(link)).unwrap() as f64;
                    let ranks = f64::from(n);
                    let said = Reader::value(formula.hops, ranks, segments) * latency_ps as f64
                        + Reader::value(formula.volume, ranks, segments) * count as f64;
                    // Chunks differ by an element where n does not divide the tensor.
                    let slack = 4.0 * (ranks + segments);
                    let what = format!("{algorithm} {call} of {n}, {segments} segments");
                    assert_holds(formula.holds, n, time, said, slack, &what);
                }
            }
        }
    }
}

/// The steps that a card shows are the rounds of the literature's closed form beside them.
#[test]
fn steps_are_the_rounds_that_are_said() {
    for call in calls() {
        for (&algorithm, count) in Algorithm::of(call).iter().flat_map(|a| COUNTS.map(|c| (a, c))) {
            let (said, holds) = algorithm.explained(call).formula.rounds;
            for n in 2..=64u32 {
                let schedule = lab(call, algorithm, n, count).schedule(0).unwrap();
                let segments = f64::from(schedule.segments());
                let rounds = f64::from(Rounds::of(&schedule).count());
                let said = Reader::value(said, f64::from(n), segments);
                let what = format!("rounds of {algorithm} {call} of {n}");
                assert_holds(holds, n, rounds, said, 1e-6, &what);
            }
        }
    }
}
