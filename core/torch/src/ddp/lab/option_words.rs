//! The values of DDP's options in words, for tables and charts.

use super::words::{bytes, time};
use crate::ddp::DdpOptions;
use crate::ddp::hook::{CommHook, HookAlgorithm, PowerSgd};
use crate::ddp::links::{Links, RingLink};
use crate::ddp::options::BucketCap;
use crate::ddp::plan::Training;

pub(super) fn on_off(on: bool) -> String {
    if on { "True" } else { "False" }.into()
}

pub(super) fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

pub(super) fn mixed(options: &DdpOptions) -> String {
    let Some(of) = options.mixed_precision else { return "no".into() };
    let parts =
        [("param", of.param_dtype), ("reduce", of.reduce_dtype), ("buffer", of.buffer_dtype)];
    let parts = parts.iter().filter_map(|(what, dtype)| Some(format!("{what}={}", (*dtype)?)));
    parts.collect::<Vec<_>>().join(", ")
}

pub(super) fn uneven(training: &Training) -> String {
    let Some(uneven) = &training.uneven else { return "no".into() };
    let inputs = uneven.inputs.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match uneven.options.throw_on_early_termination {
        true => format!("{inputs}, throw_on_early_termination"),
        false => inputs,
    }
}

pub(super) fn cap(cap: &BucketCap) -> String {
    match cap {
        BucketCap::Default => "default (1 MiB, then 25 MiB)".into(),
        BucketCap::Bytes(cap) => match u64::try_from(*cap) {
            Ok(0) => "0: a bucket a parameter".into(),
            Ok(cap) => bytes(cap),
            Err(_) => format!("{cap} bytes"),
        },
        BucketCap::List(caps) => {
            let caps = caps.iter().map(|cap| cap_of(*cap)).collect::<Vec<_>>();
            format!("[{}]", caps.join(", "))
        }
    }
}

fn cap_of(cap: i64) -> String {
    u64::try_from(cap).map_or_else(|_| format!("{cap} bytes"), bytes)
}

pub(super) fn links(links: &Links) -> String {
    let link = |link: &RingLink| {
        format!("{}, {}/s", time(link.latency_ps), bytes_a_second(link.bytes_per_second))
    };
    match links {
        Links::Uniform(of) => link(of),
        Links::Nodes { ranks_per_node, inside, across } => {
            format!("nodes of {ranks_per_node}: {} inside, {} across", link(inside), link(across))
        }
    }
}

/// Networks count in powers of ten.
fn bytes_a_second(rate: u64) -> String {
    match rate {
        0..1_000_000_000 => format!("{} MB", rate / 1_000_000),
        _ => match rate / 100_000_000 % 10 {
            0 => format!("{} GB", rate / 1_000_000_000),
            tenth => format!("{}.{tenth} GB", rate / 1_000_000_000),
        },
    }
}

pub(super) fn hook(hook: Option<&CommHook>) -> String {
    let Some(hook) = hook else { return "none".into() };
    let name = match hook.algorithm {
        HookAlgorithm::AllReduce => "allreduce".to_owned(),
        HookAlgorithm::Compress(dtype) => format!("{dtype} compress"),
        HookAlgorithm::Noop => "noop".to_owned(),
        HookAlgorithm::PowerSgd(state) => format!("powerSGD({})", power(&state)),
        HookAlgorithm::BatchedPowerSgd(state) => format!("batched_powerSGD({})", power(&state)),
        HookAlgorithm::QuantizationPerTensor => "quantization_pertensor".to_owned(),
        HookAlgorithm::QuantizationPerChannel => "quantization_perchannel".to_owned(),
        HookAlgorithm::PostLocalSgd(state) => format!(
            "post_localSGD(from {}, {})",
            state.start_iter,
            match state.post_local_gradient_allreduce {
                true => format!("among {}", state.subgroup),
                false => "alone".to_owned(),
            }
        ),
    };
    match hook.wrapper {
        Some(dtype) => format!("{dtype} {name}"),
        None => name,
    }
}

fn power(state: &PowerSgd) -> String {
    let PowerSgd { matrix_approximation_rank, start_iter, .. } = state;
    let mut words = format!("rank {matrix_approximation_rank}, from {start_iter}");
    if state.min_compression_rate != PowerSgd::default().min_compression_rate {
        words.push_str(&format!(", min_compression_rate {}", state.min_compression_rate));
    }
    if !state.use_error_feedback {
        words.push_str(", no error feedback");
    }
    if !state.warm_start {
        words.push_str(", no warm start");
    }
    words
}

/// The words of a cap, for tables and charts.
pub(super) fn cap_words(of: &BucketCap) -> String {
    match of {
        BucketCap::Default => "default".into(),
        // A bucket for each element type: nobody's gradients reach 100 GiB.
        BucketCap::Bytes(bytes) if *bytes < 0 || *bytes >= 100 << 30 => "no limit".into(),
        other => cap(other),
    }
}

/// The words of a bandwidth.
pub(super) fn rate_words(rate: u64) -> String {
    format!("{}/s", bytes_a_second(rate))
}
