//! The known trouble of PyTorch with a setting, where DDP itself raises nothing that could be
//! followed.

use super::hook::HookAlgorithm;
use super::options::DdpOptions;
use super::verify::mixed_precision_note;
use lockstep_core::group::BackendName;

/// Notes to read before trusting the figures of a setting with so many buckets: a sentence or two
/// each.
///
/// `powerSGD_hook` waits in the callback of each of its reductions for the next one
/// (`powerSGD_hook.py`). Over gloo callbacks run on the threads that carry out collectives, two a
/// process (`ProcessGroupGloo::createProcessGroupGloo`), or on the one that attaches them if the
/// reduction is done already: 2.7.1 and 2.9.1 hung in each of ten runs with several buckets of dense
/// gradients, and in none of six with one. With one bucket and `find_unused_parameters` 2.7.1 was
/// aborted in 8 of 9 runs (SIGABRT on one rank, or both); in the other the bitmap's reduction came between
/// the first and the second of the hook's on both ranks.
pub fn known_trouble(options: &DdpOptions, backend: BackendName, buckets: usize) -> Vec<String> {
    let mut trouble: Vec<String> =
        mixed_precision_note(options, backend).into_iter().map(str::to_owned).collect();
    match options.comm_hook.map(|hook| hook.algorithm) {
        Some(HookAlgorithm::BatchedPowerSgd(_)) => trouble.push(
            "batched_powerSGD_hook raises an AssertionError in PyTorch 1.12 and later as soon as it \
             compresses; this is what it would communicate."
                .into(),
        ),
        Some(HookAlgorithm::PowerSgd(_)) if backend == BackendName::Gloo && buckets > 1 => trouble
            .push(format!(
                "powerSGD_hook hangs over gloo with several buckets ({buckets} here) as soon as it \
                 compresses: its callbacks run on gloo's two threads and wait there for reductions \
                 that only these threads could carry out, and ranks do not come to them in the same \
                 order. One bucket, or nccl, goes through; this is what it would communicate."
            )),
        Some(HookAlgorithm::PowerSgd(_))
            if backend == BackendName::Gloo
                && options.find_unused_parameters
                && !options.static_graph =>
        {
            trouble.push(
                "powerSGD_hook with find_unused_parameters is a race over gloo as soon as it \
                 compresses: its second and third reductions are issued on gloo's threads, that of the \
                 used parameters on the process's own, in an order that is left to chance. Where \
                 ranks differ in it, gloo mixes them up, and a process is aborted (in 8 of 9 runs of \
                 2.7.1); what is shown is nccl's order."
                    .into(),
            );
        }
        _ => {}
    }
    trouble
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::{CommHook, PowerSgd};

    #[test]
    fn power_sgd_hangs_over_gloo_with_several_buckets() {
        let hook = CommHook::new(HookAlgorithm::PowerSgd(PowerSgd::default()));
        let options = DdpOptions { comm_hook: Some(hook), ..DdpOptions::default() };
        let trouble = |backend, buckets| known_trouble(&options, backend, buckets);
        assert!(trouble(BackendName::Gloo, 4)[0].contains("(4 here)"));
        assert_eq!(trouble(BackendName::Gloo, 1), Vec::<String>::new());
        assert_eq!(trouble(BackendName::Nccl, 4), Vec::<String>::new());
        let searching = DdpOptions { find_unused_parameters: true, ..options.clone() };
        let told = known_trouble(&searching, BackendName::Gloo, 1);
        assert!(told[0].contains("is a race over gloo"), "{told:?}");
        assert_eq!(known_trouble(&searching, BackendName::Nccl, 1), Vec::<String>::new());
    }
}
