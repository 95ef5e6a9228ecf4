//! The names and contents of a training plan's tensors.

use crate::ddp::{DdpCall, HookPart, Purpose};
use lockstep_core::plan::Fill;

/// Names for the calls of a run. Calls that come one after the other for the same purpose have
/// tensors of their own.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbered: u32,
}

impl Names {
    /// Counts from one again.
    pub(super) fn restart(&mut self) {
        self.numbered = 0;
    }

    fn next(&mut self, what: &str) -> (String, Fill) {
        self.numbered += 1;
        let seed = u64::from(self.numbered);
        (format!("{what} {}", self.numbered), Fill::Seeded { seed })
    }

    /// The name and contents of a call's tensor; `phase` distinguishes the buckets before the rebuild (1)
    /// from those after.
    pub(super) fn of(&mut self, call: &DdpCall, phase: u32) -> (String, Fill) {
        let bucketed = |bucket: u32, what: &str| {
            let phase = if phase > 1 { "" } else { "initial " };
            let seed = u64::from(phase.is_empty()) << 32 | u64::from(bucket);
            (format!("{phase}bucket {bucket}{what}"), Fill::Seeded { seed })
        };
        let seeded = |what: &str, seed| (what.to_owned(), Fill::Seeded { seed });
        let zeros = |what: &str| (what.to_owned(), Fill::Zeros);
        match call.purpose {
            Purpose::Bucket { bucket } => bucketed(bucket, ""),
            Purpose::HookPart { bucket, part } => {
                let part = match part {
                    HookPart::Uncompressed => ", uncompressed",
                    HookPart::P => ", P",
                    HookPart::Q => ", Q",
                    HookPart::Scales => ", scales",
                    HookPart::Quantized => ", quantized",
                };
                bucketed(bucket, part)
            }
            Purpose::ModuleStates => self.next("module states"),
            Purpose::Shard => self.next("shard"),
            Purpose::Replicate => self.next("replica"),
            Purpose::Averaged => seeded("parameters", 6),
            Purpose::BatchNorm => seeded("batch norm", 5),
            Purpose::Buffers => seeded("buffers", 3),
            Purpose::Delayed => seeded("delayed gradients", 4),
            Purpose::ParamCount => zeros("number of parameters"),
            Purpose::ParamShapes => zeros("sizes and strides"),
            Purpose::RebuiltIndices => zeros("bucket indices"),
            Purpose::RebuiltSizes => zeros("bucket sizes"),
            Purpose::UsedMap => zeros("used parameters"),
            Purpose::JoinPresence | Purpose::JoinThrow | Purpose::JoinSync | Purpose::JoinRank => {
                zeros("join")
            }
        }
    }
}
