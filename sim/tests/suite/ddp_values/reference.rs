//! A plain reference: ranks whose gradients are added number by number in the order of the
//! schedule. It knows neither reducer nor plan; where a gradient lies in its bucket decides which
//! rank begins, so it fills buckets too, in a few lines of its own.

use super::{bits, reduce, seeded};
use lockstep_core::group::BackendName;
use lockstep_torch::ddp::join::JoinOptions;
use lockstep_torch::ddp::values::{Exchange, Mlp, Pass, Trainer};
use lockstep_torch::ddp::{BucketCap, DdpOptions};

pub(super) const SIZES: [usize; 4] = [6, 9, 7, 3];
const BATCH: usize = 4;
const RATE: f32 = 0.05;

/// A training run, as reference and simulator are told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) world_size: u32,
    /// `bucket_cap_mb` in bytes; none is the default.
    pub(super) cap_bytes: Option<u64>,
    pub(super) backend: BackendName,
    /// Passes of which the last one reduces.
    pub(super) accumulate: u32,
    /// Rank r has so many inputs and r more; all have 6 if 0.
    pub(super) uneven: u32,
    pub(super) divide_by_initial_world_size: bool,
}

impl Run {
    pub(super) fn plain(world_size: u32) -> Run {
        Run {
            world_size,
            cap_bytes: None,
            backend: BackendName::Nccl,
            accumulate: 1,
            uneven: 0,
            divide_by_initial_world_size: true,
        }
    }

    fn inputs(&self, rank: u32) -> u32 {
        if self.uneven > 0 { self.uneven + rank } else { 6 }
    }

    fn steps(&self) -> u32 {
        self.inputs(self.world_size - 1)
    }
}

fn sizes_of_params() -> Vec<usize> {
    SIZES.windows(2).flat_map(|pair| [pair[0] * pair[1], pair[1]]).collect()
}

fn initial() -> Vec<Vec<f32>> {
    let params = (0..).zip(sizes_of_params());
    params.map(|(seed, n)| seeded(seed, 9, n).iter().map(|v| v / 32.0).collect()).collect()
}

fn batch(step: u32, rank: u32) -> (Vec<f32>, Vec<f32>) {
    let seed = 1000 + u64::from(step);
    (seeded(seed, rank, BATCH * SIZES[0]), seeded(seed + 500, rank, BATCH * SIZES[3]))
}

/// Forward and backward of the perceptron, sample by sample and neuron by neuron.
fn gradients(params: &[Vec<f32>], (inputs, targets): &(Vec<f32>, Vec<f32>)) -> Vec<Vec<f32>> {
    let mut grads: Vec<Vec<f32>> = params.iter().map(|p| vec![0.0f32; p.len()]).collect();
    for sample in 0..BATCH {
        let mut values = vec![inputs[sample * SIZES[0]..(sample + 1) * SIZES[0]].to_vec()];
        for layer in 0..3 {
            let mut next = Vec::new();
            for o in 0..SIZES[layer + 1] {
                let mut sum = 0.0f32;
                for i in 0..SIZES[layer] {
                    sum += params[2 * layer][o * SIZES[layer] + i] * values[layer][i];
                }
                sum += params[2 * layer + 1][o];
                next.push(if layer < 2 { sum.max(0.0) } else { sum });
            }
            values.push(next);
        }
        let mut delta: Vec<f32> = (0..SIZES[3])
            .map(|o| (values[3][o] - targets[sample * SIZES[3] + o]) * (1.0 / BATCH as f32))
            .collect();
        for layer in (0..3).rev() {
            let mut before = vec![0.0f32; SIZES[layer]];
            for o in 0..SIZES[layer + 1] {
                grads[2 * layer + 1][o] += delta[o];
                for i in 0..SIZES[layer] {
                    grads[2 * layer][o * SIZES[layer] + i] += delta[o] * values[layer][i];
                    before[i] += delta[o] * params[2 * layer][o * SIZES[layer] + i];
                }
            }
            for (before, value) in before.iter_mut().zip(&values[layer]) {
                if *value <= 0.0 {
                    *before = 0.0;
                }
            }
            delta = before;
        }
    }
    grads
}

/// Buckets in the order of launch: before the rebuild one with all in the order of registration,
/// then in the order of the gradients, closed when full.
fn buckets(cap_bytes: Option<u64>, rebuilt: bool) -> Vec<Vec<usize>> {
    let sizes = sizes_of_params();
    if !rebuilt {
        return vec![(0..sizes.len()).collect()];
    }
    let mut buckets = vec![(Vec::new(), 0u64)];
    for layer in (0..3).rev() {
        for param in [2 * layer + 1, 2 * layer] {
            let limit = cap_bytes.unwrap_or(if buckets.len() == 1 { 1 << 20 } else { 25 << 20 });
            let (bucket, bytes) = buckets.last_mut().unwrap();
            bucket.push(param);
            *bytes += 4 * sizes[param] as u64;
            if *bytes >= limit {
                buckets.push((Vec::new(), 0));
            }
        }
    }
    buckets.retain(|(bucket, _)| !bucket.is_empty());
    buckets.into_iter().map(|(bucket, _)| bucket).collect()
}

/// The sum of all ranks' numbers at a place of a bucket of n, in the order of the schedule's ring.
fn ring_sum(backend: BackendName, parts: &[f32], place: usize, n: usize) -> f32 {
    let world = parts.len();
    if backend == BackendName::Gloo {
        // Two segments a rank; x[c] + (x[c+1] + (… + x[c-1])).
        let segment = (4 * n).div_ceil(2 * world).div_ceil(4);
        let first = place / (2 * segment);
        let order: Vec<usize> = (0..world).map(|ahead| (first + ahead) % world).collect();
        return order.iter().rev().skip(1).fold(parts[order[world - 1]], |sum, r| parts[*r] + sum);
    }
    let first = (0..world).rev().find(|chunk| n * chunk / world <= place).unwrap();
    (1..world).fold(parts[first], |sum, ahead| sum + parts[(first + ahead) % world])
}

/// Trains without a reducer; what every rank ends with.
pub(super) fn reference(run: &Run) -> Vec<Vec<Vec<u32>>> {
    let sizes = sizes_of_params();
    let world = run.world_size as usize;
    let mut params = vec![initial(); world];
    let zeros: Vec<Vec<f32>> = sizes.iter().map(|n| vec![0.0; *n]).collect();
    let mut grads = vec![zeros.clone(); world];
    let (mut reductions, mut last) = (0, 0);
    for step in 0..run.steps() {
        let active: Vec<usize> =
            (0..world).filter(|rank| step < run.inputs(*rank as u32)).collect();
        last = *active.last().unwrap();
        for &rank in &active {
            let own = gradients(&params[rank], &batch(step, rank as u32));
            for (sum, own) in grads[rank].iter_mut().flatten().zip(own.iter().flatten()) {
                *sum += own;
            }
        }
        if (step + 1) % run.accumulate != 0 {
            continue;
        }
        let divisor = if run.divide_by_initial_world_size { world } else { active.len() };
        let factor = (1.0 / divisor as f64) as f32;
        let mut means = zeros.clone();
        for bucket in buckets(run.cap_bytes, reductions > 0) {
            let n = bucket.iter().map(|param| sizes[*param]).sum();
            let places = bucket.iter().flat_map(|&p| (0..sizes[p]).map(move |i| (p, i)));
            for (place, (param, i)) in places.enumerate() {
                let part = |rank| match active.contains(&rank) {
                    true => grads[rank][param][i] * factor,
                    false => 0.0,
                };
                let parts: Vec<f32> = (0..world).map(part).collect();
                means[param][i] = ring_sum(run.backend, &parts, place, n);
            }
        }
        reductions += 1;
        for &rank in &active {
            for (param, mean) in params[rank].iter_mut().flatten().zip(means.iter().flatten()) {
                *param -= RATE * mean;
            }
        }
        grads = vec![zeros.clone(); world];
    }
    if run.uneven > 0 {
        params = vec![params[last].clone(); world];
    }
    let bits = |params: &Vec<Vec<f32>>| {
        params.iter().map(|param| param.iter().map(|v| v.to_bits()).collect()).collect()
    };
    params.iter().map(bits).collect()
}

/// Trains in the simulator. Every plan passes through `change` first; none where a run does not end
/// or loses a result.
pub(super) fn simulated(
    run: &Run,
    mut change: impl FnMut(u32, &mut Exchange),
) -> Option<Vec<Vec<Vec<u32>>>> {
    let mlp = Mlp::new(&SIZES).unwrap();
    let bucket_cap = match run.cap_bytes {
        Some(bytes) => BucketCap::Bytes(bytes as i64),
        None => BucketCap::Default,
    };
    let options = DdpOptions { bucket_cap, ..DdpOptions::default() };
    // Only rank 0 begins with the right parameters; the constructor gives them to the others.
    let mut all = vec![initial(); run.world_size as usize];
    all[1..].iter_mut().flatten().flatten().for_each(|value| *value += 1.0);
    let (mut trainer, exchange) = Trainer::new(&mlp.model(), &options, run.backend, all).unwrap();
    reduce(&mut trainer, &exchange);
    if run.uneven > 0 {
        let divide_by_initial_world_size = run.divide_by_initial_world_size;
        trainer.enter_join(JoinOptions { divide_by_initial_world_size, ..Default::default() });
    }
    for step in 0..run.steps() {
        let sync = (step + 1) % run.accumulate == 0;
        let pass = |rank| {
            (step < run.inputs(rank)).then(|| {
                let (inputs, targets) = batch(step, rank);
                let (_, gradients) = mlp.backward(trainer.params(rank), (&inputs, &targets));
                Pass { sync, gradients }
            })
        };
        let passes: Vec<_> = (0..run.world_size).map(pass).collect();
        let mut exchange = trainer.iteration(&passes).unwrap();
        change(step, &mut exchange);
        let (outcome, held) = super::run(&exchange);
        if outcome != lockstep_core::trace::Outcome::Completed {
            return None;
        }
        trainer.receive(&exchange, |rank, id| held.get(&(rank.0, id.0)).cloned()).ok()?;
        if sync {
            trainer.sgd(RATE);
            trainer.zero_grad(true);
        }
    }
    if run.uneven > 0 {
        let exchange = trainer.leave_join().unwrap();
        reduce(&mut trainer, &exchange);
    }
    Some((0..run.world_size).map(|rank| bits(&trainer, rank)).collect())
}

#[test]
fn ranks_end_with_the_references_bits() {
    let mut compared = 0;
    for world_size in [2, 3, 4] {
        for backend in [BackendName::Nccl, BackendName::Gloo] {
            for cap_bytes in [None, Some(0), Some(300), Some(1 << 30)] {
                for (accumulate, uneven) in [(1, 0), (3, 0), (1, 2)] {
                    for divide_by_initial_world_size in [true, false] {
                        let run = Run {
                            world_size,
                            cap_bytes,
                            backend,
                            accumulate,
                            uneven,
                            divide_by_initial_world_size: divide_by_initial_world_size
                                || uneven == 0,
                        };
                        let truth = reference(&run);
                        assert_eq!(simulated(&run, |_, _| {}).as_ref(), Some(&truth), "{run:?}");
                        assert!(truth.windows(2).all(|pair| pair[0] == pair[1]), "ranks differ");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert_eq!(compared, 3 * 2 * 4 * 3 * 2);
}

/// Two numbers have one sum: buckets change nothing. With three ranks they decide who begins.
#[test]
fn bucketing_keeps_the_bits_of_two_ranks() {
    let of = |world_size, cap_bytes| {
        simulated(&Run { cap_bytes, ..Run::plain(world_size) }, |_, _| {}).unwrap()
    };
    assert_eq!(of(2, Some(0)), of(2, None));
    assert_eq!(of(2, Some(300)), of(2, None));
    assert_ne!(of(3, Some(0)), of(3, None));
}

/// The gradients are those of the loss: against differences of it.
#[test]
fn the_perceptrons_gradients_are_its_losss_slopes() {
    let mlp = Mlp::new(&SIZES).unwrap();
    let (inputs, targets) = batch(0, 0);
    let params = initial();
    let loss = |params: &[Vec<f32>]| f64::from(mlp.backward(params, (&inputs, &targets)).0);
    let (_, gradients) = mlp.backward(&params, (&inputs, &targets));
    for (param, gradient) in gradients {
        for at in [0, gradient.len() - 1] {
            let moved = |by: f32| {
                let mut moved = params.clone();
                moved[param as usize][at] += by;
                loss(&moved)
            };
            let slope = (moved(0.01) - moved(-0.01)) / 0.02;
            let error = (slope - f64::from(gradient[at])).abs();
            assert!(error <= 0.02 * slope.abs().max(0.5), "{param} {at}: {slope}");
        }
    }
}
