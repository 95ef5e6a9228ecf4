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

/// An option of the lab.
struct LabOption {
    name: &'static str,
    /// Its value in words.
    value: fn(&Setting) -> String,
    /// Makes its value in the first setting that of the second.
    take: fn(&mut Setting, &Setting),
    /// The reason that the step takes longer or shorter with its other value, in sentences.
    why: fn(&Comparison<'_>) -> String,
}

/// The options, in the order in which they are listed.
const OPTIONS: &[LabOption] = &[
    LabOption {
        name: "world_size",
        value: |s| s.training.world_size.to_string(),
        take: |s, to| s.set_world_size(to.training.world_size),
        why: |step| step.world_size(),
    },
    LabOption {
        name: "links",
        value: |s| links(&s.links),
        take: |s, to| s.links = to.links,
        why: |step| step.links(),
    },
    LabOption {
        name: "device",
        value: |s| s.training.device.name.clone(),
        take: |s, to| s.training.device.clone_from(&to.training.device),
        why: |step| step.computing(),
    },
    LabOption {
        name: "batch",
        value: |s| s.training.batch.to_string(),
        take: |s, to| s.training.batch = to.training.batch,
        why: |step| step.computing(),
    },
    LabOption {
        name: "bucket_cap_mb",
        value: |s| cap(&s.training.options.bucket_cap),
        take: |s, to| {
            let cap = &to.training.options.bucket_cap;
            s.training.options.bucket_cap.clone_from(cap);
            // A list is an argument of 2.15.
            if matches!(cap, BucketCap::List(_)) {
                s.training.options.version = to.training.options.version;
            }
        },
        why: |step| step.buckets(),
    },
    LabOption {
        name: "find_unused_parameters",
        value: |s| on_off(s.training.options.find_unused_parameters),
        take: |s, to| {
            s.training.options.find_unused_parameters = to.training.options.find_unused_parameters;
        },
        why: |step| step.find_unused_parameters(),
    },
    LabOption {
        name: "static_graph",
        value: |s| on_off(s.training.options.static_graph),
        take: |s, to| s.training.options.static_graph = to.training.options.static_graph,
        why: |step| step.static_graph(),
    },
    LabOption {
        name: "gradient_as_bucket_view",
        value: |s| on_off(s.training.options.gradient_as_bucket_view),
        take: |s, to| {
            s.training.options.gradient_as_bucket_view =
                to.training.options.gradient_as_bucket_view;
        },
        why: |step| step.gradient_as_bucket_view(),
    },
    LabOption {
        name: "broadcast_buffers",
        value: |s| on_off(s.training.options.broadcast_buffers),
        take: |s, to| s.training.options.broadcast_buffers = to.training.options.broadcast_buffers,
        why: |step| step.broadcast_buffers(),
    },
    LabOption {
        name: "init_sync",
        value: |s| on_off(s.training.options.init_sync),
        take: |s, to| s.training.options.init_sync = to.training.options.init_sync,
        why: |_| String::new(),
    },
    LabOption {
        name: "ignored parameters",
        value: |s| listed(&s.training.options.ignored),
        take: |s, to| s.training.options.ignored.clone_from(&to.training.options.ignored),
        why: |_| String::new(),
    },
    LabOption {
        name: "delay_all_reduce_named_params",
        value: |s| {
            let options = &s.training.options;
            let hooked = options.param_to_hook_all_reduce.as_deref().unwrap_or("none");
            match &options.delay_all_reduce_named_params {
                None => "none".into(),
                Some(names) => format!("{}, hooked to {hooked}", listed(names)),
            }
        },
        take: |s, to| {
            let (own, other) = (&mut s.training.options, &to.training.options);
            own.delay_all_reduce_named_params.clone_from(&other.delay_all_reduce_named_params);
            own.param_to_hook_all_reduce.clone_from(&other.param_to_hook_all_reduce);
        },
        why: |_| String::new(),
    },
    LabOption {
        name: "order of gradients",
        value: |s| match &s.training.grad_ready_order {
            None => "the model's".into(),
            Some(order) => crate::ddp::format_indices(order),
        },
        take: |s, to| s.training.grad_ready_order.clone_from(&to.training.grad_ready_order),
        why: |_| String::new(),
    },
    LabOption {
        name: "DDP_SET_LAST_BUCKET_CAP",
        value: |s| on_off(s.training.options.set_last_bucket_cap),
        take: |s, to| {
            s.training.options.set_last_bucket_cap = to.training.options.set_last_bucket_cap
        },
        why: |step| step.buckets(),
    },
    LabOption {
        name: "version",
        value: |s| s.training.options.version.name().into(),
        take: |s, to| s.training.options.version = to.training.options.version,
        why: |step| step.buckets(),
    },
    LabOption {
        name: "comm_hook",
        value: |s| hook(s.training.options.comm_hook.as_ref()),
        take: |s, to| s.training.options.comm_hook.clone_from(&to.training.options.comm_hook),
        why: |step| step.comm_hook(),
    },
    LabOption {
        name: "mixed_precision",
        value: |s| mixed(&s.training.options),
        take: |s, to| s.training.options.mixed_precision = to.training.options.mixed_precision,
        why: |step| step.mixed_precision(),
    },
    LabOption {
        name: "no_sync",
        value: |s| match s.training.accumulate {
            0 | 1 => "never".into(),
            passes => format!("{} of {passes} passes", passes - 1),
        },
        take: |s, to| s.training.accumulate = to.training.accumulate,
        why: |step| step.no_sync(),
    },
    LabOption {
        name: "SyncBatchNorm",
        value: |s| on_off(s.training.sync_batch_norm),
        take: |s, to| s.training.sync_batch_norm = to.training.sync_batch_norm,
        why: |step| step.sync_batch_norm(),
    },
    LabOption {
        name: "ZeroRedundancyOptimizer",
        value: |s| match (s.training.zero, s.training.options.zero_overlap) {
            (_, Some(overlap)) => {
                let hook = if overlap.interleaved { "_interleaved" } else { "" };
                let shards = if overlap.shard_buckets { ", shard_buckets" } else { "" };
                format!("overlap_with_ddp, hook_with_zero_step{hook}{shards}")
            }
            (None, None) => "no".into(),
            (Some(false), None) => "one by one".into(),
            (Some(true), None) => "parameters_as_bucket_view".into(),
        },
        take: |s, to| {
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
        why: |step| step.zero(),
    },
    LabOption {
        name: "model averager",
        value: |s| s.training.averager.as_ref().map_or_else(|| "no".into(), ToString::to_string),
        take: |s, to| s.training.averager.clone_from(&to.training.averager),
        why: |step| step.averager(),
    },
    LabOption {
        name: "join",
        value: |s| uneven(&s.training),
        take: |s, to| s.training.uneven.clone_from(&to.training.uneven),
        why: |step| step.join(),
    },
    LabOption {
        name: "device_ids",
        value: |s| count(s.training.devices.max(1).into(), "device"),
        take: |s, to| {
            s.training.devices = to.training.devices;
            if to.training.devices > 1 {
                s.training.options.version = to.training.options.version;
            }
        },
        why: |step| step.device_ids(),
    },
    LabOption {
        name: "without gradient",
        value: |s| listed(&s.training.unused),
        take: |s, to| s.training.unused.clone_from(&to.training.unused),
        why: |step| step.without_gradient(),
    },
];

/// Every option that differs from `a` to `b`.
pub fn changes(a: &Setting, b: &Setting) -> Vec<Change> {
    let differing = OPTIONS.iter().filter_map(|option| {
        let mut setting = a.clone();
        (option.take)(&mut setting, b);
        let (from, to) = ((option.value)(a), (option.value)(b));
        (setting != *a).then_some(Change { option: option.name, from, to, setting })
    });
    differing.collect()
}

impl Change {
    /// The reason that the step takes longer or shorter with it, given the figures before and now.
    pub fn why(&self, before: &Summary, after: &Summary, gradient_bytes: u64) -> String {
        let compared = Comparison { before, after, setting: &self.setting, gradient_bytes };
        let option = OPTIONS.iter().find(|option| option.name == self.option);
        compared.faster() + &option.map(|option| (option.why)(&compared)).unwrap_or_default()
    }
}

/// The figures of a step before and after one option changed.
struct Comparison<'a> {
    before: &'a Summary,
    after: &'a Summary,
    /// The setting after the change.
    setting: &'a Setting,
    gradient_bytes: u64,
}

impl Comparison<'_> {
    /// The times of what can be compared, now and before, and its name: steps of as many passes are
    /// alike; else a pass is.
    fn step_ps(&self) -> (u64, u64, &'static str) {
        let (after, before) = (self.after, self.before);
        match after.passes == before.passes {
            true => (after.step_ps, before.step_ps, ""),
            false => (after.per_pass(after.step_ps), before.per_pass(before.step_ps), " a pass"),
        }
    }

    /// `2.1 ms faster a pass. `
    fn faster(&self) -> String {
        let (now_ps, was_ps, each) = self.step_ps();
        match now_ps.cmp(&was_ps) {
            std::cmp::Ordering::Less => format!("{} faster{each}. ", time(was_ps - now_ps)),
            std::cmp::Ordering::Equal => format!("As fast{each}. "),
            std::cmp::Ordering::Greater => format!("{} slower{each}. ", time(now_ps - was_ps)),
        }
    }

    /// `2 ms instead of 3 ms`
    fn time_instead(&self, of: fn(&Summary) -> u64) -> String {
        instead(time(of(self.after)), time(of(self.before)))
    }

    fn bytes_instead(&self) -> String {
        instead(bytes(self.after.bytes), bytes(self.before.bytes))
    }

    fn collectives_instead(&self) -> String {
        let calls = |summary: &Summary| count(summary.collectives.into(), "collective");
        instead(calls(self.after), calls(self.before))
    }

    fn latency(&self) -> String {
        let (now, was) = (time(self.after.latency_ps), time(self.before.latency_ps));
        match now == was {
            true => format!("latency takes {now} of the communication as before"),
            false => format!("latency takes {now} of the communication instead of {was}"),
        }
    }

    fn tail(&self) -> String {
        let (now, was) = (time(self.after.tail_ps), time(self.before.tail_ps));
        match now == was {
            true => format!("the last reduction ends {now} after the backward pass as before"),
            false => {
                format!("the last reduction ends {now} after the backward pass instead of {was}")
            }
        }
    }

    fn buckets(&self) -> String {
        let buckets = |summary: &Summary| count(summary.buckets.into(), "bucket");
        let (now, was) = (buckets(self.after), buckets(self.before));
        match now == was {
            true => format!("Still {now}; {}.", self.tail()),
            false => format!("{now} instead of {was}: {}, and {}.", self.latency(), self.tail()),
        }
    }

    fn find_unused_parameters(&self) -> String {
        let options = &self.setting.training.options;
        if options.static_graph {
            return "With static_graph the graph is searched once only: nothing else changes."
                .into();
        }
        match options.find_unused_parameters {
            true => format!(
                "Buckets in the reverse order of registration for ever, {}, and an all_reduce of the \
                 map of used parameters in every pass; the walk through the graph on the host is not \
                 in these times.",
                count(self.after.buckets.into(), "bucket")
            ),
            false => {
                "No map of used parameters, and buckets in the order in which gradients become \
                      ready."
                    .into()
            }
        }
    }

    fn static_graph(&self) -> String {
        "After the first passes nothing differs: only pass 1 reduces everything at its end, and the \
         rebuild comes one pass later."
            .into()
    }

    fn gradient_as_bucket_view(&self) -> String {
        format!(
            "The same bytes are communicated; gradients live inside their buckets, which saves {} of \
             memory and a copy a pass.",
            bytes(self.gradient_bytes)
        )
    }

    fn broadcast_buffers(&self) -> String {
        format!(
            "{} instead of {} in a step: buffers (BatchNorm's statistics) are {} before every \
             synchronized forward pass.",
            count(self.after.collectives.into(), "collective"),
            self.before.collectives,
            match self.setting.training.options.broadcast_buffers {
                true => "broadcast from rank 0",
                false => "left as each rank has them, and no longer broadcast",
            }
        )
    }

    fn comm_hook(&self) -> String {
        format!(
            "{} are communicated: the buckets take {}. The arithmetic of the hook itself is not in \
             these times.",
            self.bytes_instead(),
            self.time_instead(|summary| summary.communication_ps)
        )
    }

    fn no_sync(&self) -> String {
        let (now_ps, was_ps, _) = self.step_ps();
        format!(
            "A step is {} now, of as many batches: {} of communication are shared by them, and a pass \
             takes {}.",
            match self.setting.passes_a_step() {
                1 => "one pass".into(),
                passes => format!("{passes} passes"),
            },
            time(self.after.communication_ps),
            instead(time(now_ps), time(was_ps))
        )
    }

    fn world_size(&self) -> String {
        if self.after.communication_ps == 0 && self.before.communication_ps == 0 {
            return "No gradient is reduced in either, so that the number of ranks changes little."
                .into();
        }
        format!(
            "A ring has 2(n - 1) steps, so {}; each rank sends {} times its gradients.",
            self.latency(),
            ring_share(self.setting.training.world_size)
        )
    }

    fn links(&self) -> String {
        let took = self.time_instead(|summary| summary.communication_ps);
        format!("The buckets take {took}; {}.", self.tail())
    }

    fn computing(&self) -> String {
        format!(
            "Computing takes {}: there is {} to hide {} of communication behind.",
            self.time_instead(|summary| summary.compute_ps),
            match self.after.backward_ps.cmp(&self.before.backward_ps) {
                std::cmp::Ordering::Less => "less",
                std::cmp::Ordering::Equal => "as much",
                std::cmp::Ordering::Greater => "more",
            },
            time(self.after.communication_ps)
        )
    }

    fn sync_batch_norm(&self) -> String {
        format!(
            "{} instead of {} in a step: every BatchNorm gathers statistics forward and sums them \
             backward, the stream waits for each, and backward they queue behind buckets.",
            count(self.after.collectives.into(), "collective"),
            self.before.collectives
        )
    }

    fn zero(&self) -> String {
        let waiting = self.time_instead(|summary| summary.exposed_ps);
        if self.setting.training.options.zero_overlap.is_some() {
            return format!(
                "A bucket's rank updates its parameters in the communication hook and broadcasts them \
                 while the backward pass goes on: {} in a step, {waiting} of waiting. The update's \
                 arithmetic is not in these times.",
                self.collectives_instead()
            );
        }
        let more = self.after.collectives.saturating_sub(self.before.collectives);
        format!(
            "Each rank updates its share only, and then {} carry the parameters to everybody: \
             {waiting} of waiting.",
            count(more.into(), "broadcast")
        )
    }

    fn mixed_precision(&self) -> String {
        format!(
            "Passes compute in the parameters' type and {} are communicated: computing takes {}, the \
             buckets {}. The casts themselves are not in these times.",
            self.bytes_instead(),
            self.time_instead(|summary| summary.compute_ps),
            self.time_instead(|summary| summary.communication_ps)
        )
    }

    fn averager(&self) -> String {
        format!(
            "In the mean over {}, {} are communicated a step: averaging is a reduction of all \
             parameters that the stream waits for.",
            match self.setting.training.averager.as_ref().map_or(1, |of| of.cycle()) {
                1 => "every step".into(),
                cycle => format!("{cycle} steps, as long as it takes to come round"),
            },
            self.bytes_instead()
        )
    }

    fn join(&self) -> String {
        format!(
            "{} in a step: ranks say whether they have inputs, and a rank without any shadows the \
             others until all have none.",
            self.collectives_instead()
        )
    }

    fn device_ids(&self) -> String {
        format!(
            "A process splits its batch among {}: parameters and buffers are copied to all of them \
             before a pass, and a bucket is a ring of all devices of all processes.",
            count(self.setting.training.devices.max(1).into(), "device")
        )
    }

    fn without_gradient(&self) -> String {
        format!(
            "Parameters without a gradient are not computed, and their bucket is reduced all the same \
             where unused parameters are looked for: {}.",
            self.collectives_instead()
        )
    }
}

/// `2 ms instead of 3 ms`, or `2 ms as before`.
fn instead(now: String, was: String) -> String {
    match now == was {
        true => format!("{now} as before"),
        false => format!("{now} instead of {was}"),
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
