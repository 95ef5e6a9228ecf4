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
use crate::dtype::Dtype;
use crate::group::BackendName;
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

/// What a pass took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    forward: i64,
    backward: i64,
    communication: i64,
    overlap: i64,
}

impl LabRun<'_> {
    /// The log of a rank after so many passes.
    pub fn log(&self, rank: u32, passes: u32) -> DdpLog {
        let mut log = DdpLog::default();
        self.construction(rank, &mut log);
        if passes < 2 {
            return log;
        }
        self.runtime(rank, passes.min(self.passes_of(rank)).max(1) - 1, &mut log);
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
        for name in
            ["cuda_visible_devices", "master_addr", "master_port", "torch_distributed_debug"]
        {
            text(name, nowhere());
        }
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
        let bytes = self.model.trained().map(|param| param.bytes()).fold(0, u64::saturating_add);
        let mut number = |name: &str, value: i64| log.numbers.insert(name.into(), value);
        number("broadcast_buffers", options.broadcast_buffers.into());
        number("bucket_cap_bytes", options.bucket_cap.cap_bytes());
        number("find_unused_parameters", options.find_unused_parameters.into());
        number("gradient_as_bucket_view", options.gradient_as_bucket_view.into());
        number("has_sync_bn", training.sync_batch_norm.into());
        number("is_multi_device_module", 0);
        number("iteration", 0);
        number("num_parameter_tensors", self.model.trained().count() as i64);
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

    /// What the log says when pass `passes` begins: of the passes before it.
    fn runtime(&self, rank: u32, passes: u32, log: &mut DdpLog) {
        let options = &self.setting.training.options;
        let before = self.notes(rank).get(..passes as usize).unwrap_or_default();
        let rebuilt = before.iter().any(|step| step.rebuilds);
        if let Some(last) = before.last() {
            let order: Vec<_> = last.gradients.iter().map(|note| note.param.to_string()).collect();
            // A static graph's first pass marks nothing ready.
            let marks = !options.static_graph || passes > 1;
            if marks && !order.is_empty() {
                let name = "prev_iteration_grad_ready_order_indices";
                log.texts.insert(name.into(), order.join(", "));
            }
            if rebuilt {
                log.texts.insert("rebuilt_bucket_sizes".into(), sizes(&last.buckets));
                let indices = last.buckets.iter().map(|bucket| {
                    bucket.indices.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
                });
                let indices = indices.collect::<Vec<_>>().join(", ");
                log.texts.insert("rebuilt_per_bucket_param_indices".into(), indices);
            }
        }
        let mut number = |name: &str, value: i64| log.numbers.insert(name.into(), value);
        number("iteration", passes.into());
        number("has_rebuilt_buckets", rebuilt.into());
        if options.find_unused_parameters && !options.static_graph {
            let used: usize = before.last().map_or(0, |step| step.gradients.len());
            let unused = self.model.trained().count().saturating_sub(used);
            number("unused_parameter_size", unused as i64);
        }
        let all: Vec<(Pass, u64)> = (0..passes)
            .filter_map(|number| {
                Some((self.pass_of(rank, number)?, self.times(rank).get(number as usize)?.start_ps))
            })
            .collect();
        let times: Vec<Times> = all.iter().map(|(pass, _)| times(pass)).collect();
        let average = |of: fn(&Times) -> i64| {
            times.iter().map(of).fold(0, i64::saturating_add) / i64::from(passes.max(1))
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

/// From the launch of the first bucket to the end of the last.
fn communication(pass: &Pass) -> Option<(u64, u64)> {
    let calls = || pass.calls.iter().filter(|call| bucket_of(call.purpose).is_some());
    Some((calls().map(|call| call.ready_ps).min()?, calls().map(|call| call.end_ps).max()?))
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
    let name = match hook.algorithm {
        HookAlgorithm::AllReduce => match hook.compress {
            Some(Dtype::Float16) => "fp16_compress_hook",
            Some(_) => "bf16_compress_hook",
            None => "allreduce_hook",
        },
        HookAlgorithm::Noop => "noop_hook",
        HookAlgorithm::PowerSgd(_) => "powerSGD_hook",
        HookAlgorithm::BatchedPowerSgd(_) => "batched_powerSGD_hook",
        HookAlgorithm::QuantizationPerTensor => "quantization_pertensor_hook",
        HookAlgorithm::QuantizationPerChannel => "quantization_perchannel_hook",
        HookAlgorithm::PostLocalSgd(_) => "post_localSGD_hook",
    };
    name.into()
}
