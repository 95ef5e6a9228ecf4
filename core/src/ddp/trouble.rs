//! What is known to go wrong in PyTorch with a setting, where DDP itself raises nothing that could be
//! followed.

use super::hook::HookAlgorithm;
use super::options::DdpOptions;
use super::verify::mixed_precision_note;
use crate::group::BackendName;

/// What a reader has to know before trusting what is shown of a setting with so many buckets: a
/// sentence or two each.
///
/// `powerSGD_hook` waits in the callback of each of its reductions for the next one
/// (`powerSGD_hook.py`). Over gloo callbacks run on the threads that carry out collectives, two a
/// process (`ProcessGroupGloo::createProcessGroupGloo`), or on the one that attaches them if the
/// reduction is done already: 2.7.1 and 2.9.1 hung in each of ten runs with several buckets of dense
/// gradients, and in none of six with one.
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
    }
}
