//! The limits of the machine itself.

use std::time::Instant;

/// Rate at which `threads` threads copy together, in GB/s: bytes copied, not read plus written.
/// Small sizes are copied within a cache.
pub(crate) fn copy(threads: usize, bytes: u64) -> f64 {
    let rounds = (400_000_000 / bytes).clamp(5, 50);
    let copying = |_| {
        std::thread::spawn(move || {
            let from = vec![1u8; bytes as usize];
            let mut into = vec![0u8; bytes as usize];
            let repeats = (1 << 20) / bytes.min(1 << 20);
            let took = (0..rounds).map(|_| {
                let started = Instant::now();
                for _ in 0..repeats {
                    std::hint::black_box(&mut into).copy_from_slice(std::hint::black_box(&from));
                }
                started.elapsed().as_secs_f64() / repeats as f64
            });
            bytes as f64 / median(took.collect()) / 1e9
        })
    };
    let threads: Vec<_> = (0..threads).map(copying).collect();
    threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
}

/// The middle one; not a number if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
