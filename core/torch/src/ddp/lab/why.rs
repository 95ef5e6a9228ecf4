//! The reasons that a gradient waits, in sentences.

use super::outcome::hook_name;
use super::pass::{BucketFate, Pass};
use super::tell::named;
use super::words::time;
use super::{LabModel, Setting};
use crate::ddp::notes::StepKind;

impl Pass {
    /// The reasons that a gradient waits, from the time it is ready to the time it is averaged.
    pub fn why(&self, model: &LabModel, setting: &Setting, param: u32) -> Vec<String> {
        let Some(fate) = self.params.get(param as usize) else { return Vec::new() };
        let bucket = fate.bucket.and_then(|bucket| Some((bucket, self.bucket(bucket)?)));
        let (Some(ready), Some((number, bucket))) = (fate.ready_ps, bucket) else {
            return vec![match fate.ready_ps {
                None if self.kind != StepKind::Training => {
                    "This rank has no inputs left: its share of every gradient is zero.".into()
                }
                None if fate.marked => format!(
                    "Nothing uses this parameter: the reducer marks it ready with the first \
                     gradient of the pass, and zeros stand for it in bucket {}.",
                    fate.bucket.unwrap_or(0)
                ),
                None => "No layer's backward pass makes this gradient ready in this pass.".into(),
                Some(_) => {
                    format!("It is in no bucket: {}.", self.outside(model, setting, param))
                }
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
        why.push(match (bucket.full_ps, bucket.last) {
            (Some(_), Some(last)) if last == param => {
                format!("It is the last of bucket {number}: nobody there keeps it waiting.")
            }
            (Some(full), Some(last)) if full > ready => format!(
                "It waits {} for {}, the last gradient of its bucket.",
                time(full - ready),
                model.name_of(last)
            ),
            (Some(_), Some(last)) => {
                format!("{}, of the same layer, fills the bucket at once.", model.name_of(last))
            }
            _ => match self.never_ready(bucket) {
                Some(never) => format!(
                    "Its bucket never fills: the gradient of {} never becomes ready.",
                    model.name_of(never)
                ),
                None => "Its bucket never fills.".into(),
            },
        });
        why.extend(self.held_back(bucket));
        match (bucket.launch_ps, bucket.span_ps) {
            (Some(launch), Some(span)) => why.extend(self.reduced(bucket, launch, span)),
            _ => why.push(match bucket.held_by {
                _ if bucket.full_ps.is_none() => "Nothing reduces it in this pass.".into(),
                Some(earlier) => format!(
                    "The bucket is full, yet never launched: bucket {earlier} never fills, and \
                     buckets are launched in the order of their indices."
                ),
                None => format!(
                    "{} communicates nothing of it: every rank keeps its own.",
                    hook_name(setting)
                ),
            }),
        }
        why
    }

    /// The reason that a full bucket is launched later.
    fn held_back(&self, bucket: &BucketFate) -> Option<String> {
        let (full, launch) = (bucket.full_ps?, bucket.launch_ps?);
        if launch <= full {
            return None;
        }
        Some(match (self.delayed, bucket.held_by) {
            (false, Some(earlier)) => format!(
                "The bucket is full, yet held back {}: buckets are launched in the order of their \
                 indices, and bucket {earlier} is not full before.",
                time(launch - full)
            ),
            _ => format!(
                "The bucket is full, yet waits {} for the end of the backward pass: the first pass of \
                 a static graph reduces everything there.",
                time(launch - full)
            ),
        })
    }

    /// The way of a bucket from its launch to its sum.
    fn reduced(&self, bucket: &BucketFate, launch: u64, (start, end): (u64, u64)) -> Vec<String> {
        let mut said = Vec::new();
        if bucket.full_ps.is_some_and(|full| launch < full) {
            said.push(
                "The bucket is launched before its gradients are there: the reducer takes them \
                 for unused, as it does in a static graph whose first pass was inside no_sync()."
                    .into(),
            );
        }
        if start > launch {
            let before = bucket.behind.and_then(|call| self.calls.get(call as usize));
            said.push(format!(
                "Launched, it queues {} on the communication stream{}.",
                time(start - launch),
                before.map_or(String::new(), |call| format!(" behind {}", named(call)))
            ));
        }
        said.push(format!(
            "It is reduced in {}; the sum is there {}.",
            time(end - start),
            match end > self.backward_end_ps {
                true => format!("{} after the backward pass", time(end - self.backward_end_ps)),
                false =>
                    format!("{} before the backward pass ends", time(self.backward_end_ps - end)),
            }
        ));
        said
    }

    /// The first gradient of a bucket that never becomes ready, nor is marked so.
    pub(super) fn never_ready(&self, bucket: &BucketFate) -> Option<u32> {
        let never = |param: &&u32| {
            let fate = self.params.get(**param as usize);
            fate.is_some_and(|fate| fate.ready_ps.is_none() && !fate.marked)
        };
        bucket.params.iter().find(never).copied()
    }
}
