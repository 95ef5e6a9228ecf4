//! The outcome of a pass, in sentences: what was reduced and among whom, and so the agreement of
//! the ranks.

use super::pass::{CallSpan, Pass};
use super::words::{count, time};
use super::{LabModel, Setting};
use crate::ddp::call::Purpose;
use crate::ddp::hook::HookAlgorithm;
use crate::ddp::notes::StepKind;
use crate::ddp::trouble::known_trouble;

impl Pass {
    pub(super) fn backward_ends(&self, model: &LabModel, setting: &Setting) -> String {
        let over = format!(
            "The backward pass is over after {}",
            time(self.backward_end_ps - self.forward_end_ps)
        );
        let inputs = setting.training.uneven.as_ref().map(|uneven| uneven.of(self.rank));
        if !self.reduces() && inputs == Some(self.number + 1) {
            return format!(
                "{over}. This rank has no inputs left: nothing ever reduces these gradients."
            );
        }
        if !self.reduces() {
            return format!("{over}. The next pass adds to these gradients.");
        }
        if let Some(unreduced) = self.unreduced(model, setting) {
            return format!("{over}. {unreduced}");
        }
        let of =
            |call: &&CallSpan| call.of_bucket().is_some() && call.end_ps > self.backward_end_ps;
        let open = self.calls.iter().filter(of).filter_map(|call| call.of_bucket());
        let mut open: Vec<u32> = open.collect();
        open.dedup();
        match open[..] {
            _ if self.is_alone() => {
                format!(
                    "{over}. There was nothing to wait for: one rank has nobody to reduce with."
                )
            }
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

    /// True if all its buckets are reduced among one rank.
    pub(super) fn is_alone(&self) -> bool {
        let mut reductions = self.calls.iter().filter(|call| call.of_bucket().is_some()).peekable();
        reductions.peek().is_some() && reductions.all(|call| call.ranks <= 1)
    }

    /// Names the buckets that nothing reduces, with the reason; `None` if all are reduced.
    fn unreduced(&self, model: &LabModel, setting: &Setting) -> Option<String> {
        let open = (0u32..).zip(&self.buckets).filter(|(_, bucket)| bucket.span_ps.is_none());
        let (first, bucket) = open.clone().next()?;
        let last = open.clone().last().map_or(first, |(last, _)| last);
        let which = match (first, last) {
            (0, 0) if self.buckets.len() == 1 => "The only bucket is".to_owned(),
            (first, last) if first == last => format!("Bucket {first} is"),
            (first, last) => format!("Buckets {first} to {last} are"),
        };
        let Some(never) = self.never_ready(bucket) else {
            return Some(format!(
                "{} communicates nothing: no bucket is reduced, and every rank keeps its own \
                 gradients.",
                hook_name(setting)
            ));
        };
        let others = match first == last {
            true => "",
            false => ", and buckets are launched strictly in the order of their indices",
        };
        let raises = match &self.raised {
            Some(raised) if raised.here.is_none() => " The next forward pass raises for it.",
            _ => "",
        };
        let raises = match self.buckets.iter().any(|bucket| bucket.span_ps.is_some()) {
            true if setting.training.options.gradient_as_bucket_view => {
                format!(" Nor does the pass wait for what was launched.{raises}")
            }
            true => format!(
                " Nor does the pass wait for what was launched, or copy it back into the gradients.\
                 {raises}"
            ),
            false => raises.to_owned(),
        };
        Some(format!(
            "{which} never reduced: the gradient of {} never becomes ready{others}. Every rank keeps \
             its own gradients of what is in there.{raises}",
            model.name_of(never)
        ))
    }

    pub(super) fn optimized(&self, model: &LabModel, setting: &Setting) -> String {
        let took = time(self.optimizer.map_or(0, |(from, to)| to - from));
        if self.kind == StepKind::Shadow {
            return format!(
                "The sharded optimizer steps here too, in {took}, with whatever gradients this rank \
                 has left: the others wait for its parameters."
            );
        }
        let gradients = self.gradients_words(model, setting);
        if setting.training.zero.is_some() {
            return format!(
                "{gradients}. The sharded optimizer has stepped in {took}, the time of the rank with \
                 the largest share: nobody goes on without its parameters. Each rank's share comes \
                 to the others by broadcast."
            );
        }
        format!(
            "{gradients}, and the optimizer has stepped in {took}: {}.",
            self.parameters_words(setting)
        )
    }

    /// The state of the ranks' gradients when the optimizer steps.
    fn gradients_words(&self, model: &LabModel, setting: &Setting) -> String {
        let agreed = &self.agreement;
        let of = u64::from(agreed.gradients);
        let sketched =
            self.calls.iter().any(|call| matches!(call.purpose, Purpose::HookPart { .. }));
        let averaged = match sketched {
            true => format!("what {} makes of their mean", hook_name(setting)),
            false => "averaged".to_owned(),
        };
        let among = match agreed.reduced_among {
            among if among < agreed.ranks => format!(" among the {among} ranks of a subgroup"),
            _ => String::new(),
        };
        match agreed.local {
            0 if of == 0 => "No parameter has a gradient".to_owned(),
            0 if of < model.params.len() as u64 => {
                format!("All gradients that there are are {averaged}{among}")
            }
            0 => format!("All gradients are {averaged}{among}"),
            local if u64::from(local) == of => {
                "No gradient was reduced: every rank has its own".to_owned()
            }
            local => format!(
                "{} of {} were not reduced and are every rank's own, the others are {averaged}{among}",
                local,
                count(of, "gradient")
            ),
        }
    }

    /// The state of the ranks' parameters behind it.
    fn parameters_words(&self, setting: &Setting) -> String {
        let (agreed, training) = (&self.agreement, &setting.training);
        let every = match training.devices > 1 {
            true => "every process",
            false => "every rank",
        };
        if !agreed.parameters_agree() {
            let why = match agreed.gradients_agree() {
                true => ", from passes before this one",
                false => "",
            };
            return match agreed.same_after_step {
                0 | 1 => format!("the ranks' parameters differ{why}"),
                same => format!(
                    "only the {same} ranks of a subgroup have the same parameters, the {} subgroups \
                     differ{why}",
                    agreed.ranks / same
                ),
            };
        }
        let joined = training.uneven.as_ref().map_or(0, |uneven| {
            (0..training.world_size).filter(|rank| uneven.of(*rank) <= self.number).count() as u64
        });
        match joined {
            _ if !training.options.init_sync => format!(
                "{every} has changed its parameters alike. That they began alike is up to the \
                 script, with init_sync=False"
            ),
            0 => format!("{every} has the same parameters again"),
            joined => format!(
                "{every} with inputs has the same parameters again; {} without {} theirs until \
                 join() ends",
                count(joined, "rank"),
                if joined == 1 { "keeps" } else { "keep" }
            ),
        }
    }

    /// The result of a model averager.
    pub(super) fn averaged_words(&self) -> String {
        let agreed = &self.agreement;
        match agreed.same_at_end {
            same if same >= agreed.ranks => " All ranks have the same parameters again.".to_owned(),
            0 | 1 => String::new(),
            same => format!(" The {} subgroups still differ.", agreed.ranks / same),
        }
    }

    pub(super) fn ends(&self) -> String {
        if let Some(rank) = self.waits_for {
            return format!(
                "Rank {rank} raises in this pass, and this one waits for it: it does not come to its \
                 end. The times here are those that it would have had."
            );
        }
        match &self.raised {
            Some(raised) if raised.here.is_some() => {
                return format!("DDP raises here, and the pass is over: {}", first(&raised.text));
            }
            _ => {}
        }
        if self.kind != StepKind::Training {
            return format!("{} went by here without a pass of its own.", time(self.end_ps));
        }
        let exposed = u128::from(self.exposed_ps) * 1000 / u128::from(self.end_ps.max(1));
        let held = match self.held_ps() {
            0 => String::new(),
            held => format!(", {} held by {}", time(held), self.holders()),
        };
        let next = match &self.raised {
            Some(raised) => format!(" The next forward pass raises: {}", first(&raised.text)),
            None => String::new(),
        };
        format!(
            "The pass took {}: {} were computing{held}, {} ({}.{} %) waiting for communication of \
             gradients that nothing hid.{next}",
            time(self.end_ps),
            time(self.compute_ps()),
            time(self.exposed_ps),
            exposed / 10,
            exposed % 10
        )
    }

    /// Time that its compute stream neither computes nor waits for gradients: calls that are not
    /// asynchronous hold it.
    pub(crate) fn held_ps(&self) -> u64 {
        self.end_ps.saturating_sub(self.compute_ps()).saturating_sub(self.exposed_ps)
    }

    /// The calls that hold the compute stream.
    fn holders(&self) -> String {
        let mut words: Vec<&str> = Vec::new();
        for call in self.calls.iter().filter(|call| call.waited_ps.is_some() && call.blocking) {
            let word = match call.purpose {
                Purpose::Buffers => "the broadcast of buffers",
                Purpose::RebuiltIndices | Purpose::RebuiltSizes => "the rebuild",
                Purpose::BatchNorm => "SyncBatchNorm",
                Purpose::Averaged => "the model averager",
                Purpose::Replicate => "the copies to the other devices",
                Purpose::ParamCount | Purpose::ParamShapes | Purpose::ModuleStates => {
                    "the constructor's collectives"
                }
                Purpose::JoinPresence
                | Purpose::JoinThrow
                | Purpose::JoinSync
                | Purpose::JoinRank => "join()",
                Purpose::Delayed => "the delayed gradients",
                _ => "other collectives",
            };
            if !words.contains(&word) {
                words.push(word);
            }
        }
        match words.split_last() {
            None => "what came before".to_owned(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, before)) => format!("{} and {last}", before.join(", ")),
        }
    }
}

/// Notes for the reader about a setting with so many buckets: that its hook begins behind the
/// passes that are followed, and what PyTorch's own is known for.
pub fn notes(setting: &Setting, buckets: usize) -> Vec<String> {
    let training = &setting.training;
    let steps = u64::from(setting.optimizer_steps());
    let mut notes = known_trouble(&training.options, training.backend, buckets);
    if let Some(begins) = setting.hook_begins().filter(|begins| *begins >= steps) {
        notes.push(format!(
            "{} begins in iteration {} (its state's start): the {steps} that are followed here \
             come before, and reduce whole buckets among all ranks.",
            hook_name(setting),
            begins + 1
        ));
    }
    notes
}

/// The hook that decides what is communicated, by PyTorch's name.
pub(super) fn hook_name(setting: &Setting) -> &'static str {
    match setting.training.options.comm_hook.map(|hook| hook.algorithm) {
        Some(HookAlgorithm::Noop) => "noop_hook",
        Some(HookAlgorithm::PowerSgd(_)) => "powerSGD_hook",
        Some(HookAlgorithm::BatchedPowerSgd(_)) => "batched_powerSGD_hook",
        Some(HookAlgorithm::QuantizationPerTensor) => "quantization_pertensor_hook",
        Some(HookAlgorithm::QuantizationPerChannel) => "quantization_perchannel_hook",
        Some(HookAlgorithm::PostLocalSgd(_)) => "post_localSGD_hook",
        _ => "the hook",
    }
}

impl Pass {
    /// The fate of a gradient that is in no bucket.
    pub(super) fn outside(&self, model: &LabModel, setting: &Setting, param: u32) -> String {
        let (options, name) = (&setting.training.options, model.name_of(param));
        let delayed = options.delay_all_reduce_named_params.as_deref().unwrap_or_default();
        let (Some(hooked), true) =
            (&options.param_to_hook_all_reduce, delayed.iter().any(|delayed| delayed == name))
        else {
            return "DDP leaves it alone, and every rank has its own".to_owned();
        };
        let ready = |param: usize| self.params.get(param).and_then(|fate| fate.ready_ps);
        let comes = model.params.iter().position(|param| param.name == *hooked).and_then(ready);
        match comes < ready(param as usize) {
            true => format!(
                "it is delayed, but comes after that of {hooked}, with which the delayed are \
                 reduced: in this pass it is not"
            ),
            false => format!(
                "it is delayed, and reduced with the others that are when the gradient of \
                 {hooked} comes"
            ),
        }
    }
}

/// An error, or the first sentence of a long one: Python's often are.
fn first(text: &str) -> &str {
    match text.len() {
        0..160 => text,
        _ => text.split_inclusive(". ").next().unwrap_or(text).trim_end(),
    }
}
