//! The effect of each option between two settings: every one that differs, by itself, on top of the
//! first.

use super::option_words::{cap, hook, links, listed, mixed, on_off, uneven};
use super::words::{bytes, count, time};
use super::{Setting, Summary};
use crate::ddp::options::BucketCap;

/// An option that differs between two settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The option, by PyTorch's name where it has one.
    pub option: &'static str,
    /// Its value in the first setting.
    pub from: String,
    /// Its value in the second.
    pub to: String,
    /// The first setting with this option of the second.
    pub setting: Setting,
}

type Option_ = (&'static str, fn(&Setting) -> String, fn(&mut Setting, &Setting));

/// The options, in the order in which they are listed.
const OPTIONS: &[Option_] = &[
    (
        "world_size",
        |s| s.training.world_size.to_string(),
        |s, to| s.set_world_size(to.training.world_size),
    ),
    ("links", |s| links(&s.links), |s, to| s.links = to.links),
    (
        "device",
        |s| s.training.device.name.clone(),
        |s, to| s.training.device.clone_from(&to.training.device),
    ),
    ("batch", |s| s.training.batch.to_string(), |s, to| s.training.batch = to.training.batch),
    (
        "bucket_cap_mb",
        |s| cap(&s.training.options.bucket_cap),
        |s, to| {
            let cap = &to.training.options.bucket_cap;
            s.training.options.bucket_cap.clone_from(cap);
            // A list is an argument of 2.15.
            if matches!(cap, BucketCap::List(_)) {
                s.training.options.version = to.training.options.version;
            }
        },
    ),
    (
        "find_unused_parameters",
        |s| on_off(s.training.options.find_unused_parameters),
        |s, to| {
            s.training.options.find_unused_parameters = to.training.options.find_unused_parameters;
        },
    ),
    (
        "static_graph",
        |s| on_off(s.training.options.static_graph),
        |s, to| s.training.options.static_graph = to.training.options.static_graph,
    ),
    (
        "gradient_as_bucket_view",
        |s| on_off(s.training.options.gradient_as_bucket_view),
        |s, to| {
            s.training.options.gradient_as_bucket_view =
                to.training.options.gradient_as_bucket_view;
        },
    ),
    (
        "broadcast_buffers",
        |s| on_off(s.training.options.broadcast_buffers),
        |s, to| s.training.options.broadcast_buffers = to.training.options.broadcast_buffers,
    ),
    (
        "init_sync",
        |s| on_off(s.training.options.init_sync),
        |s, to| s.training.options.init_sync = to.training.options.init_sync,
    ),
    (
        "ignored parameters",
        |s| listed(&s.training.options.ignored),
        |s, to| s.training.options.ignored.clone_from(&to.training.options.ignored),
    ),
    (
        "delay_all_reduce_named_params",
        |s| {
            let options = &s.training.options;
            let hooked = options.param_to_hook_all_reduce.as_deref().unwrap_or("none");
            match &options.delay_all_reduce_named_params {
                None => "none".into(),
                Some(names) => format!("{}, hooked to {hooked}", listed(names)),
            }
        },
        |s, to| {
            let (own, other) = (&mut s.training.options, &to.training.options);
            own.delay_all_reduce_named_params.clone_from(&other.delay_all_reduce_named_params);
            own.param_to_hook_all_reduce.clone_from(&other.param_to_hook_all_reduce);
        },
    ),
    (
        "order of gradients",
        |s| match &s.training.grad_ready_order {
            None => "the model's".into(),
            Some(order) => crate::ddp::format_indices(order),
        },
        |s, to| s.training.grad_ready_order.clone_from(&to.training.grad_ready_order),
    ),
    (
        "DDP_SET_LAST_BUCKET_CAP",
        |s| on_off(s.training.options.set_last_bucket_cap),
        |s, to| s.training.options.set_last_bucket_cap = to.training.options.set_last_bucket_cap,
    ),
    (
        "version",
        |s| s.training.options.version.name().into(),
        |s, to| s.training.options.version = to.training.options.version,
    ),
    (
        "comm_hook",
        |s| hook(s.training.options.comm_hook.as_ref()),
        |s, to| s.training.options.comm_hook.clone_from(&to.training.options.comm_hook),
    ),
    (
        "mixed_precision",
        |s| mixed(&s.training.options),
        |s, to| s.training.options.mixed_precision = to.training.options.mixed_precision,
    ),
    (
        "no_sync",
        |s| match s.training.accumulate {
            0 | 1 => "never".into(),
            passes => format!("{} of {passes} passes", passes - 1),
        },
        |s, to| s.training.accumulate = to.training.accumulate,
    ),
    (
        "SyncBatchNorm",
        |s| on_off(s.training.sync_batch_norm),
        |s, to| s.training.sync_batch_norm = to.training.sync_batch_norm,
    ),
    (
        "ZeroRedundancyOptimizer",
        |s| match (s.training.zero, s.training.options.zero_overlap) {
            (_, Some(overlap)) => {
                let hook = if overlap.interleaved { "_interleaved" } else { "" };
                let shards = if overlap.shard_buckets { ", shard_buckets" } else { "" };
                format!("overlap_with_ddp, hook_with_zero_step{hook}{shards}")
            }
            (None, None) => "no".into(),
            (Some(false), None) => "one by one".into(),
            (Some(true), None) => "parameters_as_bucket_view".into(),
        },
        |s, to| {
            let overlap = to.training.options.zero_overlap;
            // The overlap wraps a hook.
            if overlap.is_some() && s.training.options.comm_hook.is_none() {
                s.training.options.comm_hook = to.training.options.comm_hook;
            }
            s.training.zero = to.training.zero;
            s.training.options.zero_overlap = overlap.map(|overlap| {
                crate::ddp::zero::ZeroOverlap { world_size: s.training.world_size, ..overlap }
            });
        },
    ),
    (
        "model averager",
        |s| s.training.averager.as_ref().map_or_else(|| "no".into(), ToString::to_string),
        |s, to| s.training.averager.clone_from(&to.training.averager),
    ),
    ("join", |s| uneven(&s.training), |s, to| s.training.uneven.clone_from(&to.training.uneven)),
    (
        "device_ids",
        |s| count(s.training.devices.max(1).into(), "device"),
        |s, to| {
            s.training.devices = to.training.devices;
            if to.training.devices > 1 {
                s.training.options.version = to.training.options.version;
            }
        },
    ),
    (
        "without gradient",
        |s| listed(&s.training.unused),
        |s, to| s.training.unused.clone_from(&to.training.unused),
    ),
];

/// Every option that differs from `a` to `b`.
pub fn changes(a: &Setting, b: &Setting) -> Vec<Change> {
    let differing = OPTIONS.iter().filter_map(|(option, value, take)| {
        let mut setting = a.clone();
        take(&mut setting, b);
        (setting != *a).then(|| Change { option, from: value(a), to: value(b), setting })
    });
    differing.collect()
}

impl Change {
    /// The reason that the step takes longer or shorter with it, given the figures before and now.
    pub fn why(&self, before: &Summary, after: &Summary, gradient_bytes: u64) -> String {
        // Steps of as many passes are alike; else a pass is what can be compared.
        let (now_ps, was_ps, each) = match after.passes == before.passes {
            true => (after.step_ps, before.step_ps, ""),
            false => (after.per_pass(after.step_ps), before.per_pass(before.step_ps), " a pass"),
        };
        let faster = match now_ps.cmp(&was_ps) {
            std::cmp::Ordering::Less => format!("{} faster{each}. ", time(was_ps - now_ps)),
            std::cmp::Ordering::Equal => format!("As fast{each}. "),
            std::cmp::Ordering::Greater => format!("{} slower{each}. ", time(now_ps - was_ps)),
        };
        let buckets = |summary: &Summary| count(summary.buckets.into(), "bucket");
        let latency = || match (time(after.latency_ps), time(before.latency_ps)) {
            (now, was) if now == was => {
                format!("latency takes {now} of the communication as before")
            }
            (now, was) => format!("latency takes {now} of the communication instead of {was}"),
        };
        let tail = || match (time(after.tail_ps), time(before.tail_ps)) {
            (now, was) if now == was => {
                format!("the last reduction ends {now} after the backward pass as before")
            }
            (now, was) => {
                format!("the last reduction ends {now} after the backward pass instead of {was}")
            }
        };
        let instead = |now: String, was: String| match now == was {
            true => format!("{now} as before"),
            false => format!("{now} instead of {was}"),
        };
        let why = match self.option {
            "bucket_cap_mb" | "version" | "DDP_SET_LAST_BUCKET_CAP"
                if before.buckets == after.buckets =>
            {
                format!("Still {}; {}.", buckets(after), tail())
            }
            "bucket_cap_mb" | "version" | "DDP_SET_LAST_BUCKET_CAP" => format!(
                "{} instead of {}: {}, and {}.",
                buckets(after),
                buckets(before),
                latency(),
                tail()
            ),
            "find_unused_parameters" => match self.setting.training.options.static_graph {
                true => "With static_graph the graph is searched once only: nothing else changes."
                    .into(),
                false if self.setting.training.options.find_unused_parameters => format!(
                    "Buckets in the reverse order of registration for ever, {}, and an all_reduce \
                     of the map of used parameters in every pass; the walk through the graph on \
                     the host is not in these times.",
                    buckets(after)
                ),
                false => "No map of used parameters, and buckets in the order in which gradients \
                          become ready."
                    .into(),
            },
            "static_graph" => "After the first passes nothing differs: only pass 1 reduces \
                               everything at its end, and the rebuild comes one pass later."
                .into(),
            "gradient_as_bucket_view" => format!(
                "What is communicated is the same; gradients live inside their buckets, which saves \
                 {} of memory and a copy a pass.",
                bytes(gradient_bytes)
            ),
            "broadcast_buffers" => format!(
                "{} instead of {} in a step: buffers (BatchNorm's statistics) are {} before every \
                 synchronized forward pass.",
                count(after.collectives.into(), "collective"),
                before.collectives,
                match self.setting.training.options.broadcast_buffers {
                    true => "broadcast from rank 0",
                    false => "left as each rank has them, and no longer broadcast",
                }
            ),
            "comm_hook" => format!(
                "{} are communicated: the buckets take {}. The arithmetic of the hook itself is \
                 not in these times.",
                instead(bytes(after.bytes), bytes(before.bytes)),
                instead(time(after.communication_ps), time(before.communication_ps))
            ),
            "no_sync" => format!(
                "A step is {} now, of as many batches: {} of communication are shared by them, \
                 and a pass takes {}.",
                match self.setting.passes_a_step() {
                    1 => "one pass".into(),
                    passes => format!("{passes} passes"),
                },
                time(after.communication_ps),
                instead(time(now_ps), time(was_ps))
            ),
            "world_size" if after.communication_ps == 0 && before.communication_ps == 0 => {
                "No gradient is reduced in either, so that the number of ranks changes little."
                    .into()
            }
            "world_size" => format!(
                "A ring has 2(n - 1) steps, so {}; each rank sends {} times its gradients.",
                latency(),
                ring_share(self.setting.training.world_size)
            ),
            "links" => format!(
                "The buckets take {}; {}.",
                instead(time(after.communication_ps), time(before.communication_ps)),
                tail()
            ),
            "device" | "batch" => format!(
                "Computing takes {}: there is {} to hide {} of communication behind.",
                instead(time(after.compute_ps), time(before.compute_ps)),
                match after.backward_ps.cmp(&before.backward_ps) {
                    std::cmp::Ordering::Less => "less",
                    std::cmp::Ordering::Equal => "as much",
                    std::cmp::Ordering::Greater => "more",
                },
                time(after.communication_ps)
            ),
            "SyncBatchNorm" => format!(
                "{} instead of {} in a step: every BatchNorm gathers statistics forward and sums \
                 them backward, the stream waits for each, and backward they queue behind buckets.",
                count(after.collectives.into(), "collective"),
                before.collectives
            ),
            "ZeroRedundancyOptimizer" if self.setting.training.options.zero_overlap.is_some() => {
                format!(
                    "A bucket's rank updates its parameters in the communication hook and broadcasts \
                     them while the backward pass goes on: {} in a step, {} of waiting. The update's \
                     arithmetic is not in these times.",
                    instead(
                        count(after.collectives.into(), "collective"),
                        count(before.collectives.into(), "collective")
                    ),
                    instead(time(after.exposed_ps), time(before.exposed_ps))
                )
            }
            "ZeroRedundancyOptimizer" => format!(
                "Each rank updates its share only, and then {} carry the parameters to everybody: \
                 {} of waiting.",
                count(u64::from(after.collectives.saturating_sub(before.collectives)), "broadcast"),
                instead(time(after.exposed_ps), time(before.exposed_ps))
            ),
            "mixed_precision" => format!(
                "Passes compute in the parameters' type and {} are communicated: computing takes {}, \
                 the buckets {}. The casts themselves are not in these times.",
                instead(bytes(after.bytes), bytes(before.bytes)),
                instead(time(after.compute_ps), time(before.compute_ps)),
                instead(time(after.communication_ps), time(before.communication_ps))
            ),
            "model averager" => format!(
                "In the mean over {}, {} are communicated a step: averaging is a reduction of all \
                 parameters that the stream waits for.",
                match self.setting.training.averager.as_ref().map_or(1, |of| of.cycle()) {
                    1 => "every step".into(),
                    cycle => format!("{cycle} steps, as long as it takes to come round"),
                },
                instead(bytes(after.bytes), bytes(before.bytes))
            ),
            "join" => format!(
                "{} in a step: ranks say whether they have inputs, and who has none shadows the \
                 others until all have none.",
                instead(
                    count(after.collectives.into(), "collective"),
                    count(before.collectives.into(), "collective")
                )
            ),
            "device_ids" => format!(
                "A process splits its batch among {}: parameters and buffers are copied to all of \
                 them before a pass, and a bucket is a ring of all devices of all processes.",
                count(self.setting.training.devices.max(1).into(), "device")
            ),
            "without gradient" => format!(
                "What gets no gradient is not computed, and its bucket is reduced all the same where \
                 unused parameters are looked for: {}.",
                instead(
                    count(after.collectives.into(), "collective"),
                    count(before.collectives.into(), "collective")
                )
            ),
            _ => String::new(),
        };
        faster + &why
    }
}

/// 2 (n - 1) / n with two decimals.
fn ring_share(world_size: u32) -> String {
    let ranks = u64::from(world_size.max(1));
    let hundredths = (200 * (ranks - 1) + ranks / 2) / ranks;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_rank_sends_is_rounded() {
        assert_eq!([1, 2, 3, 32].map(super::ring_share), ["0.00", "1.00", "1.33", "1.94"]);
    }
}
