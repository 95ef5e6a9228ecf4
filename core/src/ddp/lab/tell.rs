//! What happens at a moment, and why a gradient waits, in sentences.

use super::moments::Event;
use super::pass::{BucketFate, CallSpan, Pass};
use super::words::{bytes, count, time, with_commas};
use super::{LabModel, Setting};
use crate::ddp::call::{HookPart, Purpose};
use crate::ddp::notes::StepKind;

impl Pass {
    /// What happens at a moment.
    pub fn sentence(&self, model: &LabModel, setting: &Setting, moment: usize) -> String {
        let Some(moment) = self.moments.get(moment) else { return String::new() };
        match moment.event {
            Event::Begins => self.begins(model, setting),
            Event::ForwardEnds => self.forward_ends(model),
            Event::Gradient(param) => self.gradient(model, param),
            Event::Starts(call) => self.starts(call),
            Event::Done(call) => self.done(model, setting, call),
            Event::BackwardEnds => self.backward_ends(),
            Event::Optimized => self.optimized(setting),
            Event::Ends => self.ends(),
        }
    }

    /// Why a gradient waits, from the time it is ready to the time it is averaged.
    pub fn why(&self, model: &LabModel, param: u32) -> Vec<String> {
        let Some(fate) = self.params.get(param as usize) else { return Vec::new() };
        let bucket = fate.bucket.and_then(|bucket| Some((bucket, self.bucket(bucket)?)));
        let (Some(ready), Some((number, bucket))) = (fate.ready_ps, bucket) else {
            return vec![match fate.ready_ps {
                None if self.kind != StepKind::Training => {
                    "This rank has no inputs left: its share of every gradient is zero.".into()
                }
                None => "No layer's backward pass makes this gradient ready in this pass.".into(),
                Some(_) => "It is in no bucket: DDP leaves it alone.".into(),
            }];
        };
        let mut why = vec![format!(
            "Ready {} into the pass, in bucket {number}, gradient {} of {} there.",
            time(ready),
            1 + bucket.params.iter().position(|p| *p == param).unwrap_or(0),
            bucket.params.len()
        )];
        if !self.reduces() {
            why.push(
                "This pass is inside no_sync(): it is added to .grad, and nothing is reduced."
                    .into(),
            );
            return why;
        }
        match (bucket.full_ps, bucket.last) {
            (Some(_), Some(last)) if last == param => {
                why.push(format!(
                    "It is the last of bucket {number}: nobody there keeps it waiting."
                ));
            }
            (Some(full), Some(last)) if full > ready => why.push(format!(
                "It waits {} for {}, the last gradient of its bucket.",
                time(full - ready),
                model.name_of(last)
            )),
            (Some(_), Some(last)) => {
                why.push(format!(
                    "{}, of the same layer, fills the bucket at once.",
                    model.name_of(last)
                ));
            }
            _ => why.push("Its bucket never fills: a gradient of it never becomes ready.".into()),
        }
        if let (Some(full), Some(launch)) = (bucket.full_ps, bucket.launch_ps)
            && launch > full
        {
            why.push(match (self.delayed, bucket.held_by) {
                (false, Some(earlier)) => format!(
                    "The bucket is full, yet held back {}: buckets are launched in the order of \
                     their indices, and bucket {earlier} is not full before.",
                    time(launch - full)
                ),
                _ => format!(
                    "The bucket is full, yet waits {} for the end of the backward pass: the first \
                     pass of a static graph reduces everything there.",
                    time(launch - full)
                ),
            });
        }
        if let (Some(launch), Some((start, end))) = (bucket.launch_ps, bucket.span_ps) {
            if bucket.full_ps.is_some_and(|full| launch < full) {
                why.push(
                    "The bucket is launched before its gradients are there: the reducer takes them \
                     for unused, as it does in a static graph whose first pass was inside no_sync()."
                        .into(),
                );
            }
            if start > launch {
                why.push(format!(
                    "Launched, it queues {} on the communication stream{}.",
                    time(start - launch),
                    bucket
                        .behind
                        .and_then(|c| self.calls.get(c as usize))
                        .map_or(String::new(), |call| { format!(" behind {}", named(call)) })
                ));
            }
            why.push(format!(
                "It is reduced in {}; {}.",
                time(end - start),
                match end > self.backward_end_ps {
                    true => format!(
                        "the sum is there {} after the backward pass",
                        time(end - self.backward_end_ps)
                    ),
                    false => format!(
                        "the sum is there {} before the backward pass ends",
                        time(self.backward_end_ps - end)
                    ),
                }
            ));
        } else {
            why.push("Its bucket is not reduced.".into());
        }
        why
    }

    fn bucket(&self, number: u32) -> Option<&BucketFate> {
        self.buckets.get(number as usize)
    }

    fn begins(&self, model: &LabModel, setting: &Setting) -> String {
        match self.kind {
            StepKind::Training => {}
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
        let first = first.map_or("none", |(_, param)| param.name.as_str());
        format!(
            "The forward pass is over after {}. The backward pass takes the layers in reverse, so \
             {layer} comes first; the first gradient to be ready is that of {first}.",
            time(self.forward_end_ps)
        )
    }

    fn gradient(&self, model: &LabModel, param: u32) -> String {
        let name = model.name_of(param);
        let size = model.params.get(param as usize).map_or(0, |param| param.bytes);
        let fate = self.params.get(param as usize);
        let ready = format!("{name}'s gradient is ready ({})", bytes(size));
        let Some(number) = fate.and_then(|fate| fate.bucket) else {
            return format!("{ready}; DDP leaves it alone.");
        };
        let Some(bucket) = self.bucket(number) else { return ready };
        if !self.reduces() {
            return format!("{ready}: it is added to .grad, inside no_sync().");
        }
        let at = fate.map_or(0, |fate| fate.ready_moment);
        let (mut there, mut held) = (0, 0);
        for of in &bucket.params {
            if self.params.get(*of as usize).is_some_and(|of| of.ready_moment <= at) {
                there += 1;
                held += model.params.get(*of as usize).map_or(0, |param| param.bytes);
            }
        }
        if bucket.last != Some(param) {
            let rest = match (bucket.last, bucket.full_ps) {
                (Some(last), Some(full)) => {
                    match full.saturating_sub(fate.and_then(|f| f.ready_ps).unwrap_or(0)) {
                        0 => format!("{} of the same layer comes last", model.name_of(last)),
                        ps => format!("the last, {}, comes in {}", model.name_of(last), time(ps)),
                    }
                }
                _ => "one of them never comes, so it is never reduced".into(),
            };
            return format!(
                "{ready}: bucket {number} has {there} of its {} and {} of {}; {rest}.",
                bucket.params.len(),
                bytes(held),
                bytes(bucket.bytes)
            );
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
        let launched =
            self.buckets.iter().filter(|other| other.launched_by == Some(param)).count() as u64;
        match (bucket.launched_by, bucket.held_by) {
            (Some(by), _) if by == param => {
                let others = match launched {
                    0 | 1 => String::new(),
                    more => {
                        format!(", and {} that had to wait for it", count(more - 1, "later bucket"))
                    }
                };
                let start = match (bucket.launch_ps, bucket.span_ps) {
                    (Some(launch), Some((start, _))) if start > launch => format!(
                        "it queues {} behind what the communication stream is busy with",
                        time(start - launch)
                    ),
                    _ if self.backward_end_ps > fate.and_then(|f| f.ready_ps).unwrap_or(0) => {
                        "it starts at once, while the backward pass goes on".into()
                    }
                    _ => "it starts at once, but there is nothing left to hide behind".into(),
                };
                format!("{full}: its reduction is launched{others}; {start}.")
            }
            (_, Some(earlier)) => format!(
                "{full}, yet bucket {earlier} is not complete: buckets are launched strictly in the \
                 order of their indices, so this one is held back."
            ),
            _ => format!("{full}; the hook communicates nothing of it."),
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
        // Times that were spent waiting for others are none that it needed.
        let took = match call.peers_ps {
            0 => took,
            peers => format!("{took}, {} of it for the last rank to begin it", time(peers)),
        };
        match call.purpose {
            Purpose::Bucket { bucket } | Purpose::HookPart { bucket, .. } => {
                let done = format!(
                    "{} is done on all {ranks} ranks after {}",
                    named(call),
                    time(call.end_ps - call.start_ps)
                );
                let left = self.buckets.len() as u64
                    - 1
                    - u64::from(bucket).min(self.buckets.len() as u64 - 1);
                match call.waited_ps {
                    _ if self.kind != StepKind::Training => format!(
                        "{done}: zeros were this rank's share{}.",
                        match call.peers_ps {
                            0 => String::new(),
                            peers => format!(
                                ", and {} of it went by until the others began it",
                                time(peers)
                            ),
                        }
                    ),
                    None => format!("{done}: the backward pass hid all of it."),
                    Some((from, to)) => format!(
                        "{done}: {} of that is exposed, for the compute stream had nothing else to do{}.",
                        time(to - from),
                        match left {
                            0 => String::new(),
                            left => format!("; {} to go", count(left, "bucket")),
                        }
                    ),
                }
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
                "The ranks have told each other which parameters any of them used \
                 (find_unused_parameters): the {took}, even when all were."
            ),
            Purpose::BatchNorm => format!(
                "SyncBatchNorm has the statistics of all {ranks} ranks: the {took}, and the compute \
                 stream waited {} for it.",
                time(call.end_ps - call.ready_ps)
            ),
            Purpose::Shard if setting.training.options.zero_overlap.is_some() => format!(
                "A rank has updated its parameters of a bucket in the communication hook and \
                 broadcast them, while the backward pass goes on: the {took}. The update's own \
                 arithmetic is not in these times."
            ),
            Purpose::Averaged => format!(
                "The model averager has averaged the parameters among {ranks} ranks: the {took}."
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

    fn backward_ends(&self) -> String {
        let over = format!(
            "The backward pass is over after {}",
            time(self.backward_end_ps - self.forward_end_ps)
        );
        if !self.reduces() {
            return format!("{over}. The next pass adds to these gradients.");
        }
        let of =
            |call: &&CallSpan| call.of_bucket().is_some() && call.end_ps > self.backward_end_ps;
        let open = self.calls.iter().filter(of).filter_map(|call| call.of_bucket());
        let mut open: Vec<u32> = open.collect();
        open.dedup();
        match open[..] {
            [] => format!(
                "{over}, and every bucket is reduced already: all communication was hidden."
            ),
            [one] => format!(
                "{over}. The compute stream waits for bucket {one}: from here on communication is exposed."
            ),
            [first, .., last] => format!(
                "{over}. The compute stream waits for buckets {first} to {last}: from here on \
                 communication is exposed."
            ),
        }
    }

    fn optimized(&self, setting: &Setting) -> String {
        let took = self.optimizer.map_or(0, |(from, to)| to - from);
        match setting.training.zero {
            _ if self.kind == StepKind::Shadow => format!(
                "The sharded optimizer steps here too, in {}, with whatever gradients this rank has \
                 left: the others wait for its parameters.",
                time(took)
            ),
            Some(_) => format!(
                "The optimizer has stepped in {}: its {}th of the parameters. The other ranks' come by \
                 broadcast.",
                time(took),
                setting.training.world_size
            ),
            None => format!(
                "All gradients are averaged, and the optimizer has stepped in {}: every rank has the \
                 same parameters again.",
                time(took)
            ),
        }
    }

    fn ends(&self) -> String {
        if self.kind != StepKind::Training {
            return format!("{} went by here without a pass of its own.", time(self.end_ps));
        }
        let exposed = u128::from(self.exposed_ps) * 1000 / u128::from(self.end_ps.max(1));
        format!(
            "The pass took {}: {} were computing, {} ({}.{} %) waiting for communication that \
             nothing hid.",
            time(self.end_ps),
            time(self.compute_ps()),
            time(self.exposed_ps),
            exposed / 10,
            exposed % 10
        )
    }
}

/// A call by what it is for.
fn named(call: &CallSpan) -> String {
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
