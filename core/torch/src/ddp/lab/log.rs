//! DDP's own log: what `DistributedDataParallel._get_ddp_logging_data()` returns (`logger.cpp`,
//! `DDPLoggingData`), field by field. Real runs wrote the truth for it
//! (`tests/data/pytorch/ddp_log.json`).
//!
//! It lags behind: what a pass was like is written when the next one begins, before that rebuilds
//! its buckets. Its times are nanoseconds, and here those of the estimate.

use super::pass::Pass;
use super::{LabRun, bucket_of};
use crate::ddp::buckets::Bucket;
use crate::ddp::hook::{CommHook, HookAlgorithm};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DdpLog {
    /// Texts by name (`strs_map`).
    pub texts: BTreeMap<String, String>,
    /// Numbers by name (`ints_map`).
    pub numbers: BTreeMap<String, i64>,
}

impl fmt::Display for DdpLog {
    /// As Python prints the dictionary, a line an entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts.iter().map(|(name, value)| format!("'{name}': '{value}'"));
        let numbers = self.numbers.iter().map(|(name, value)| format!("'{name}': {value}"));
        let entries: Vec<_> = texts.chain(numbers).collect();
        write!(f, "{{{}}}", entries.join(",\n "))
    }
}

/// The times of a pass, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    forward: i64,
    backward: i64,
    communication: i64,
    overlap: i64,
}

impl LabRun<'_> {
    /// The log of a rank after so many passes. It is written as a forward pass outside `no_sync()`
    /// begins (`DistributedDataParallel._pre_forward`), of those before it, for the first ten and
    /// every hundredth (`Reducer::should_collect_runtime_stats`).
    pub fn log(&self, rank: u32, passes: u32) -> DdpLog {
        let mut log = DdpLog::default();
        self.construction(rank, &mut log);
        let steps = self.notes(rank).iter().take(passes.min(self.passes_of(rank)) as usize);
        let reduced = (0u32..).zip(steps).filter(|(_, step)| step.sync).map(|(number, _)| number);
        let reduced: Vec<u32> = reduced.collect();
        let collected = |before: &usize| (1..=10).contains(before) || before.is_multiple_of(100);
        if let Some(before) = (1..reduced.len()).rev().find(collected) {
            self.runtime(rank, &reduced[..=before], &mut log);
        }
        log
    }

    fn construction(&self, rank: u32, log: &mut DdpLog) {
        let training = &self.setting.training;
        let options = &training.options;
        let mut text = |name: &str, value: String| log.texts.insert(name.into(), value);
        let backend = training.backend.to_string();
        let nowhere = || "N/A".to_owned();
        text("bucket_sizes", sizes(self.initial()));
        text("device_ids", String::new());
        text("dtypes", self.dtypes());
        text("module_name", self.model.name.clone());
        for name in ["cuda_visible_devices", "master_addr", "master_port"] {
            text(name, nowhere());
        }
        let debug = self.setting.training.options.debug;
        text("torch_distributed_debug", if debug { "INFO".into() } else { nowhere() });
        let of_backend: &[&str] = match training.backend {
            BackendName::Nccl => &[
                "nccl_async_error_handling",
                "nccl_blocking_wait",
                "nccl_debug",
                "nccl_ib_timeout",
                "nccl_nthreads",
                "nccl_socket_ifname",
            ],
            _ => &["gloo_device_transport", "gloo_socket_ifname"],
        };
        for name in of_backend {
            text(name, nowhere());
        }
        if let Some(hook) = &options.comm_hook {
            text("comm_hook", hook_name(hook));
        }
        text("backend_name", backend);
        let own = self.reducer_indices();
        let own = self.model.trained().zip(own).filter(|(_, index)| index.is_some());
        let sizes: Vec<u64> = own.map(|(param, _)| param.bytes()).collect();
        let tensors = sizes.len() as i64;
        let bytes = sizes.into_iter().fold(0, u64::saturating_add);
        let mut number = |name: &str, value: i64| log.numbers.insert(name.into(), value);
        number("broadcast_buffers", options.broadcast_buffers.into());
        number("bucket_cap_bytes", options.bucket_cap.cap_bytes());
        number("find_unused_parameters", options.find_unused_parameters.into());
        number("gradient_as_bucket_view", options.gradient_as_bucket_view.into());
        number("has_sync_bn", training.sync_batch_norm.into());
        number("is_multi_device_module", 0);
        number("iteration", 0);
        number("num_parameter_tensors", tensors);
        number("output_device", -1);
        number("rank", rank.into());
        number("total_parameter_size_bytes", i64::try_from(bytes).unwrap_or(i64::MAX));
        number("world_size", training.world_size.into());
        if training.backend != BackendName::Nccl {
            number("gloo_num_threads", 2);
        }
        if options.static_graph {
            number("static_graph", 1);
        }
    }

    /// The log's entries when the last of these passes begins: about those before it.
    fn runtime(&self, rank: u32, reduced: &[u32], log: &mut DdpLog) {
        let options = &self.setting.training.options;
        let Some((begun, before)) = reduced.split_last() else { return };
        let passes = before.len() as u32;
        let notes = |number: &u32| self.notes(rank).get(*number as usize);
        // Buckets are rebuilt as a pass begins, also inside `no_sync()`.
        let until = self.notes(rank).get(..*begun as usize).unwrap_or_default();
        let rebuilt = until.iter().any(|step| step.rebuilds);
        if let Some(last) = before.last().and_then(notes) {
            let own = self.reducer_indices();
            let own = |param: &u32| own.get(*param as usize).copied().flatten();
            let order = last.gradients.iter().filter_map(|note| own(&note.param));
            let order: Vec<_> = order.map(|index| index.to_string()).collect();
            // A static graph's first pass marks nothing ready.
            let marks = !options.static_graph || passes > 1;
            if marks && !order.is_empty() {
                let name = "prev_iteration_grad_ready_order_indices";
                log.texts.insert(name.into(), order.join(", "));
            }
            let buckets = until.last().map_or(&[][..], |step| &step.buckets);
            if rebuilt {
                log.texts.insert("rebuilt_bucket_sizes".into(), sizes(buckets));
                let indices = buckets.iter().map(|bucket| {
                    let indices = bucket.indices.iter().filter_map(own);
                    indices.map(|index| index.to_string()).collect::<Vec<_>>().join(" ")
                });
                let indices = indices.collect::<Vec<_>>().join(", ");
                log.texts.insert("rebuilt_per_bucket_param_indices".into(), indices);
            }
        }
        let mut number = |name: &str, value: i64| log.numbers.insert(name.into(), value);
        number("iteration", passes.into());
        number("has_rebuilt_buckets", rebuilt.into());
        if let Some(bytes) = notes(begun).and_then(|step| step.unused_parameter_size) {
            number("unused_parameter_size", i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        let collected = before.iter().zip(1u32..).filter(|(_, n)| *n <= 10 || n % 100 == 0);
        let all: Vec<(Pass, u64)> = collected
            .filter_map(|(&number, _)| {
                Some((
                    self.followed(rank, number)?,
                    self.times(rank).get(number as usize)?.start_ps,
                ))
            })
            .collect();
        let times: Vec<Times> = all.iter().map(|(pass, _)| times(pass)).collect();
        let average = |of: fn(&Times) -> i64| {
            times.iter().map(of).fold(0, i64::saturating_add) / times.len().max(1) as i64
        };
        number("avg_forward_compute_time", average(|times| times.forward));
        number("avg_backward_compute_time", average(|times| times.backward));
        number("avg_backward_comm_time", average(|times| times.communication));
        number("avg_backward_compute_comm_overlap_time", average(|times| times.overlap));
        let (Some((pass, start_ps)), Some(last)) = (all.last(), times.last()) else { return };
        let at = |ps: u64| ns(start_ps.saturating_add(ps));
        number("forward_compute_time", last.forward);
        number("forward_compute_time_start", at(0));
        number("backward_compute_time", last.backward);
        number("backward_compute_time_start", at(pass.forward_end_ps));
        number("backward_compute_time_end", at(pass.backward_end_ps));
        number("backward_compute_comm_overlap_time", last.overlap);
        if let Some((from, to)) = communication(pass) {
            number("backward_comm_time", last.communication);
            number("backward_comm_time_start", at(from));
            number("backward_comm_time_end", at(to));
        }
    }

    /// Per parameter that requires grad, its index in the reducer, which does not have those that
    /// DDP ignores or delays.
    fn reducer_indices(&self) -> Vec<Option<u32>> {
        let options = &self.setting.training.options;
        let mut next = 0;
        let indices = self.model.trained().map(|param| {
            let own = options.reduces(&self.model, &param.name);
            next += u32::from(own);
            own.then_some(next.saturating_sub(1))
        });
        indices.collect()
    }

    /// The types of the parameters, by C++'s names.
    fn dtypes(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for param in self.model.trained() {
            let name = match param.dtype {
                Dtype::Float32 => "float",
                Dtype::Float64 => "double",
                Dtype::Float16 => "c10::Half",
                Dtype::Bfloat16 => "c10::BFloat16",
                other => other.name(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.join(", ")
    }
}

fn ns(ps: u64) -> i64 {
    i64::try_from(ps / 1000).unwrap_or(i64::MAX)
}

/// From the launch of the first bucket to the end of the last: where the hook communicates nothing,
/// to the end of the backward pass, which waits for the hooks.
fn communication(pass: &Pass) -> Option<(u64, u64)> {
    let calls = || pass.calls.iter().filter(|call| bucket_of(call.purpose).is_some());
    let called = calls().map(|call| call.ready_ps).min().zip(calls().map(|call| call.end_ps).max());
    let full = || pass.buckets.iter().map(|b| b.full_ps).collect::<Option<Vec<_>>>();
    called.or_else(|| Some((full()?.into_iter().min()?, pass.backward_end_ps)))
}

fn times(pass: &Pass) -> Times {
    let (from, to) = communication(pass).unwrap_or((pass.backward_end_ps, pass.backward_end_ps));
    Times {
        forward: ns(pass.forward_end_ps),
        backward: ns(pass.backward_end_ps.saturating_sub(pass.forward_end_ps)),
        communication: ns(to.saturating_sub(from)),
        overlap: ns(pass.backward_end_ps.saturating_sub(from)),
    }
}

fn sizes(buckets: &[Bucket]) -> String {
    let sizes = buckets.iter().map(|bucket| bucket.bytes.to_string());
    sizes.collect::<Vec<_>>().join(", ")
}

/// The function's name, as `register_comm_hook` logs it.
fn hook_name(hook: &CommHook) -> String {
    if let Some(dtype) = hook.wrapper {
        let name = if dtype == Dtype::Float16 { "fp16" } else { "bf16" };
        // Python's `__qualname__` of what the wrapper returns.
        return format!("{name}_compress_wrapper.<locals>.{name}_compress_wrapper_hook");
    }
    let name = match hook.algorithm {
        HookAlgorithm::AllReduce => "allreduce_hook",
        HookAlgorithm::Compress(Dtype::Float16) => "fp16_compress_hook",
        HookAlgorithm::Compress(_) => "bf16_compress_hook",
        HookAlgorithm::Noop => "noop_hook",
        HookAlgorithm::PowerSgd(_) => "powerSGD_hook",
        HookAlgorithm::BatchedPowerSgd(_) => "batched_powerSGD_hook",
        HookAlgorithm::QuantizationPerTensor => "quantization_pertensor_hook",
        HookAlgorithm::QuantizationPerChannel => "quantization_perchannel_hook",
        HookAlgorithm::PostLocalSgd(_) => "post_localSGD_hook",
    };
    name.into()
}
