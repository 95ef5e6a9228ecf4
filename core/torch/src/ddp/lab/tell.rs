//! The events at a moment, in sentences.

use super::outcome::hook_name;
use super::pass::{BucketFate, CallSpan, Event, ParamFate, Pass};
use super::words::{bytes, count, time, with_commas};
use super::{LabModel, Setting};
use crate::ddp::call::{HookPart, Purpose};
use crate::ddp::notes::{Half, StepKind};

impl Pass {
    /// A sentence about the event at a moment.
    pub fn sentence(&self, model: &LabModel, setting: &Setting, moment: usize) -> String {
        let number = moment as u32;
        let Some(moment) = self.moments.get(moment) else { return String::new() };
        match moment.event {
            Event::Begins => self.begins(model, setting),
            Event::ForwardEnds => self.forward_ends(model),
            Event::MarkedUnused => self.marked_unused(model, setting),
            Event::Gradient(param) => self.gradient(model, setting, param, number),
            Event::Starts(call) => self.starts(call),
            Event::Done(call) => self.done(model, setting, call),
            Event::BackwardEnds => self.backward_ends(model, setting),
            Event::Optimized => self.optimized(model, setting),
            Event::Ends => self.ends(),
        }
    }

    pub(super) fn bucket(&self, number: u32) -> Option<&BucketFate> {
        self.buckets.get(number as usize)
    }

    fn begins(&self, model: &LabModel, setting: &Setting) -> String {
        let throws = setting.training.uneven.as_ref();
        let throws = throws.is_some_and(|uneven| uneven.options.throw_on_early_termination);
        match self.kind {
            StepKind::Training => {}
            StepKind::Shadow if throws => {
                return format!(
                    "Rank {} has no inputs left. With throw_on_early_termination it does not shadow \
                     the others: it tells them, and all ranks raise.",
                    self.rank
                );
            }
            StepKind::Shadow => {
                return format!(
                    "Rank {} has no inputs left. Inside join() it shadows pass {} of the others: no \
                     forward, no backward, but every collective that they make, with zeros.",
                    self.rank,
                    self.number + 1
                );
            }
            StepKind::JoinEnds => {
                return "No rank has inputs left: join() ends, and all ranks take the states of the \
                        highest rank among those that had inputs longest."
                    .into();
            }
        }
        let pass = format!("Pass {} begins", self.number + 1);
        let buckets = count(self.buckets.len() as u64, "bucket");
        if self.raised.as_ref().is_some_and(|raised| raised.here == Some(Half::Forward)) {
            return format!(
                "{pass}, and its forward pass raises: the ranks tell each other that one of them has \
                 run out of inputs (throw_on_early_termination). No gradient is made."
            );
        }
        if !self.reduces() {
            return format!(
                "{pass} inside no_sync(): its gradients are added to those of the passes before, \
                 and nothing is reduced."
            );
        }
        if self.rebuilds {
            return format!(
                "{pass} by rebuilding the buckets: rank 0 has seen in which order gradients become \
                 ready, and broadcasts {buckets} built from it."
            );
        }
        let options = &setting.training.options;
        let first = self.number < setting.passes_a_step();
        if first && options.find_unused_parameters && !options.static_graph {
            return format!(
                "{pass} with {buckets} in the reverse order of registration. With \
                 find_unused_parameters they are never rebuilt."
            );
        }
        if first {
            return format!(
                "{pass}. Nobody knows yet in which order the {} gradients become ready, so {}.",
                model.params.len(),
                match self.buckets.len() {
                    1 => format!(
                        "all {} share one bucket, and nothing can overlap",
                        bytes(model.gradient_bytes())
                    ),
                    _ => format!("DDP begins with {buckets}"),
                }
            );
        }
        let order = match options.find_unused_parameters && !options.static_graph {
            true => "the reverse order of registration",
            false => "the order in which gradients become ready",
        };
        format!("{pass} as all later ones do, with {buckets} in {order}.")
    }

    fn forward_ends(&self, model: &LabModel) -> String {
        let layer = model.layers.last().map_or("the last layer", String::as_str);
        // Not always one of that layer's: a weight that layers share is ready after the last of them.
        let ready =
            self.params.iter().zip(&model.params).filter(|(fate, _)| fate.ready_ps.is_some());
        let first = ready.min_by_key(|(fate, _)| fate.ready_moment);
        let first = match first {
            Some((_, param)) => format!("the first gradient to be ready is that of {}", param.name),
            None => "no gradient becomes ready in it".to_owned(),
        };
        format!(
            "The forward pass is over after {}. The backward pass takes the layers in reverse, so \
             {layer} comes first; {first}.",
            time(self.forward_end_ps)
        )
    }

    fn marked_unused(&self, model: &LabModel, setting: &Setting) -> String {
        let marked = (0u32..).zip(&self.params).filter(|(_, fate)| fate.marked);
        let names: Vec<&str> = marked.map(|(param, _)| model.name_of(param)).collect();
        let listed = match names.len() {
            0..=3 => names.join(", "),
            more => format!("{}, … {} more", names[..2].join(", "), more - 2),
        };
        let how = match setting.training.options.static_graph {
            true => "As the first pass of the static graph has shown, nothing uses",
            false => "The walk of the graph (find_unused_parameters) has found that nothing uses",
        };
        let (it, zeros) = match names.len() {
            1 => ("it is", "its"),
            _ => ("they are", "their"),
        };
        let full = (0u32..).zip(&self.buckets).filter(|(_, bucket)| {
            let marked = |param: &u32| self.params.get(*param as usize).is_some_and(|f| f.marked);
            bucket.params.iter().all(marked)
        });
        let full: Vec<String> = full.map(|(number, _)| number.to_string()).collect();
        let full = match full[..] {
            [] => String::new(),
            [ref one] => format!(" Bucket {one} holds nothing else: it is full."),
            _ => format!(" Buckets {} hold nothing else: they are full.", full.join(", ")),
        };
        format!(
            "{how} {listed}: {it} marked ready with the first gradient, with zeros in {zeros} \
             place.{full}"
        )
    }

    fn gradient(&self, model: &LabModel, setting: &Setting, param: u32, moment: u32) -> String {
        let name = model.name_of(param);
        let size = model.params.get(param as usize).map_or(0, |param| param.bytes);
        let fate = self.params.get(param as usize);
        let ready = format!("{name}'s gradient is ready ({})", bytes(size));
        let Some(number) = fate.and_then(|fate| fate.bucket) else {
            return format!("{ready}; {}.", self.outside(model, setting, param));
        };
        let Some(bucket) = self.bucket(number) else { return ready };
        if !self.reduces() {
            return format!("{ready}: it is added to .grad, inside no_sync().");
        }
        let at = fate.map_or(0, |fate| fate.ready_moment);
        if moment < at {
            return format!(
                "{name}'s gradient comes, but not for the last time: a static graph counts in its first \
                 pass how often it does, and takes it for ready when it has come as often."
            );
        }
        if moment > at {
            return format!("{ready}, though the reducer has it marked ready already.");
        }
        if bucket.last != Some(param) {
            let so_far = self.bucket_so_far(model, bucket, fate);
            return format!("{ready}: bucket {number} has {so_far}.");
        }
        let full = format!(
            "{ready} and completes bucket {number} ({}{})",
            bytes(bucket.bytes),
            match bucket.limit {
                Some(limit) if bucket.bytes >= limit => format!(", closed at {}", bytes(limit)),
                Some(_) => ", what was left".into(),
                None => String::new(),
            }
        );
        if self.delayed {
            return format!(
                "{full}; the first pass of a static graph launches nothing before its end."
            );
        }
        match (bucket.launched_by, bucket.held_by) {
            (Some(by), _) if by == param => {
                let launched = self.buckets.iter().filter(|it| it.launched_by == Some(param));
                let others = match launched.count() as u64 {
                    0 | 1 => String::new(),
                    more => {
                        format!(", and {} that had to wait for it", count(more - 1, "later bucket"))
                    }
                };
                let start = self.reduction_start(bucket, fate);
                format!("{full}: its reduction is launched{others}; {start}.")
            }
            (None, Some(earlier)) if bucket.span_ps.is_none() => format!(
                "{full}, yet bucket {earlier} never is: buckets are launched strictly in the order \
                 of their indices, so this one is never reduced."
            ),
            (_, Some(earlier)) => format!(
                "{full}, yet bucket {earlier} is not complete: buckets are launched strictly in the \
                 order of their indices, so this one is held back."
            ),
            _ => format!("{full}; {} communicates nothing of it.", hook_name(setting)),
        }
    }

    /// `2 of its 5 (1 of them unused) and 3 MB of 8 MB; the last, fc.weight, comes in 2 ms`
    fn bucket_so_far(
        &self,
        model: &LabModel,
        bucket: &BucketFate,
        fate: Option<&ParamFate>,
    ) -> String {
        let at = fate.map_or(0, |fate| fate.ready_moment);
        let (mut there, mut held, mut marked) = (0, 0, 0);
        for of in &bucket.params {
            if let Some(fate) = self.params.get(*of as usize).filter(|of| of.ready_moment <= at) {
                there += 1;
                marked += u32::from(fate.marked);
                held += model.params.get(*of as usize).map_or(0, |param| param.bytes);
            }
        }
        let unused = match marked {
            0 => String::new(),
            marked => format!(" ({marked} of them unused)"),
        };
        let ready_ps = fate.and_then(|fate| fate.ready_ps).unwrap_or(0);
        let rest = match (bucket.last, bucket.full_ps) {
            (Some(last), Some(full)) => match full.saturating_sub(ready_ps) {
                0 => format!("{} of the same layer comes last", model.name_of(last)),
                ps => format!("the last, {}, comes in {}", model.name_of(last), time(ps)),
            },
            _ if self.delayed => {
                "the first pass of a static graph reduces everything at its end".into()
            }
            _ => match self.never_ready(bucket) {
                Some(never) => {
                    format!("{} never comes, so the bucket is never reduced", model.name_of(never))
                }
                None => "it is never full".into(),
            },
        };
        format!(
            "{there} of its {}{unused} and {} of {}; {rest}",
            bucket.params.len(),
            bytes(held),
            bytes(bucket.bytes)
        )
    }

    /// When the reduction of a bucket starts that its last gradient has launched.
    fn reduction_start(&self, bucket: &BucketFate, last: Option<&ParamFate>) -> String {
        match (bucket.launch_ps, bucket.span_ps) {
            (Some(launch), Some((start, _))) if start > launch => format!(
                "it queues {} behind what the communication stream is busy with",
                time(start - launch)
            ),
            _ if self.is_alone() => {
                "it is done at once, for one rank has nobody to reduce with".into()
            }
            _ if self.backward_end_ps > last.and_then(|last| last.ready_ps).unwrap_or(0) => {
                "it starts at once, while the backward pass goes on".into()
            }
            _ => "it starts at once, but there is nothing left to hide behind".into(),
        }
    }

    fn starts(&self, call: u32) -> String {
        let Some(call) = self.calls.get(call as usize) else { return String::new() };
        format!(
            "The communication stream is free: {} starts, {} after it was launched.",
            named(call),
            time(call.start_ps - call.ready_ps)
        )
    }

    fn done(&self, model: &LabModel, setting: &Setting, call: u32) -> String {
        let Some(call) = self.calls.get(call as usize) else { return String::new() };
        let took = format!(
            "{} of {} took {}",
            call.kind.name(),
            bytes(call.bytes),
            time(call.end_ps - call.start_ps)
        );
        let ranks = call.ranks;
        if ranks <= 1 {
            let alone = match self.agreement.ranks {
                0 | 1 => "one rank has nobody to talk to".to_owned(),
                all => format!("its subgroup is this one rank, of {all} in the world"),
            };
            return format!("{} moves nothing and takes no time: {alone}.", named(call));
        }
        // Times that were spent waiting for others are none that it needed.
        let took = match call.peers_ps {
            0 => took,
            peers => format!("{took}, {} of it for the last rank to begin it", time(peers)),
        };
        match call.purpose {
            Purpose::Bucket { bucket } | Purpose::HookPart { bucket, .. } => {
                self.bucket_done(call, bucket)
            }
            Purpose::Buffers => format!(
                "The model's {} ({}) {} broadcast from rank 0 before the forward pass, as \
                 broadcast_buffers asks for: the {took}.",
                count(model.buffers.0, "buffer"),
                bytes(model.buffers.1),
                if model.buffers.0 == 1 { "was" } else { "were" }
            ),
            Purpose::RebuiltIndices => format!(
                "Rank 0 has broadcast which bucket each of the {} parameters is in now.",
                model.params.len()
            ),
            Purpose::RebuiltSizes => format!(
                "Rank 0 has broadcast how many parameters each of the {} has; every rank reads that \
                 back, so its process waits for the device.",
                count(self.buckets.len() as u64, "new bucket")
            ),
            Purpose::UsedMap => format!(
                "The ranks have told each other which parameters any of them used ({}): the {took}, \
                 even when all were.",
                match setting.training.options.static_graph {
                    true => "the first pass of a static graph",
                    false => "find_unused_parameters",
                }
            ),
            Purpose::BatchNorm => format!(
                "SyncBatchNorm has the statistics of all {ranks} ranks: the {took}, and the compute \
                 stream waited {} for it.",
                time(call.end_ps - call.ready_ps)
            ),
            Purpose::Shard if setting.training.options.zero_overlap.is_some() => format!(
                "A rank has updated its parameters of a bucket in the communication hook and \
                 broadcast them, {}: the {took}. The update's own arithmetic is not in these times.",
                match call.start_ps < self.backward_end_ps {
                    true => "while the backward pass went on",
                    false => "behind the backward pass",
                }
            ),
            Purpose::Averaged => format!(
                "The model averager has averaged the parameters among {ranks} ranks: the {took}.{}",
                self.averaged_words()
            ),
            Purpose::Replicate => format!(
                "The first device of the process has copied to the other {} what they need for the \
                 pass (broadcast_coalesced): the {took}.",
                ranks - 1
            ),
            Purpose::JoinPresence => {
                format!("The ranks have told each other who still has inputs (join): the {took}.")
            }
            Purpose::JoinThrow => format!(
                "The ranks have told each other whether one has run out of inputs \
                 (throw_on_early_termination): the {took}."
            ),
            Purpose::JoinSync => format!(
                "The ranks without inputs have learned that this pass reduces gradients (join): \
                 the {took}."
            ),
            Purpose::JoinRank => format!(
                "The ranks have agreed whose states are the right ones, the highest rank with \
                 inputs (join): the {took}."
            ),
            Purpose::ModuleStates => {
                format!("All ranks have the same parameters and buffers: the {took}.")
            }
            Purpose::Shard => format!(
                "ZeroRedundancyOptimizer: a rank's updated parameters are everywhere; the {took}."
            ),
            Purpose::Delayed => {
                format!("The delayed gradients are reduced in one call: the {took}.")
            }
            _ => format!("The {took}."),
        }
    }

    /// The end of a bucket's reduction, and how much of it the backward pass hid.
    fn bucket_done(&self, call: &CallSpan, bucket: u32) -> String {
        let ranks = call.ranks;
        let among = match self.agreement.ranks {
            all if ranks < all => {
                format!("the {ranks} ranks of this subgroup, of {all} in the world,")
            }
            _ => format!("all {ranks} ranks"),
        };
        let took = time(call.end_ps - call.start_ps);
        let done = format!("{} is done on {among} after {took}", named(call));
        if self.kind != StepKind::Training {
            let until_others = match call.peers_ps {
                0 => String::new(),
                peers => format!(", and {} of it went by until the others began it", time(peers)),
            };
            return format!("{done}: zeros were this rank's share{until_others}.");
        }
        let Some((from, to)) = call.waited_ps else {
            return format!("{done}: the backward pass hid all of it.");
        };
        let last = self.buckets.len() as u64 - 1;
        let left = match last - u64::from(bucket).min(last) {
            0 => String::new(),
            left => format!("; {} to go", count(left, "bucket")),
        };
        format!(
            "{done}: {} of that is exposed, for the compute stream had nothing else to do{left}.",
            time(to - from)
        )
    }
}

/// A call by what it is for.
pub(super) fn named(call: &CallSpan) -> String {
    let part = |part| match part {
        HookPart::Uncompressed => "uncompressed tensors",
        HookPart::P => "factors P",
        HookPart::Q => "factors Q",
        HookPart::Scales => "scales",
        HookPart::Quantized => "quantized gradients",
    };
    match call.purpose {
        Purpose::Bucket { bucket } => format!("bucket {bucket}'s {}", call.kind.name()),
        Purpose::HookPart { bucket, part: of } => {
            format!("the {} of bucket {bucket}'s {}", call.kind.name(), part(of))
        }
        Purpose::BatchNorm => "a BatchNorm's statistics".into(),
        Purpose::UsedMap => "the map of used parameters".into(),
        Purpose::Delayed => "the delayed gradients".into(),
        _ => format!("{} of {} bytes", call.kind.name(), with_commas(call.bytes)),
    }
}
