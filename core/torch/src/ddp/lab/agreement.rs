//! The agreement of the ranks after a pass: which gradients were reduced, among whom, and whether
//! their parameters are still the same. It follows from the calls that were made, in this pass and
//! in all before it; the values of a run say the same (`sim/tests/suite/ddp_values`).

use super::{LabRun, bucket_of};
use crate::ddp::call::Purpose;
use crate::ddp::notes::{StepKind, StepNotes};
use serde::{Deserialize, Serialize};

/// The agreement of the ranks when the optimizer has stepped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The ranks: processes, or their devices.
    pub ranks: u32,
    /// Gradients that the optimizer steps with.
    pub gradients: u32,
    /// The number of them that nothing has reduced: each rank steps with its own.
    pub local: u32,
    /// Ranks of the smallest group in which one of the others was reduced.
    pub reduced_among: u32,
    /// The number of neighbouring ranks that have the same parameters after the step.
    pub same_after_step: u32,
    /// The same at the end of the pass, behind a model averager.
    pub same_at_end: u32,
}

impl Agreement {
    /// True if all ranks step with the same gradients.
    pub(crate) fn gradients_agree(&self) -> bool {
        self.local == 0 && self.reduced_among >= self.ranks
    }

    /// True if all ranks have the same parameters after the step.
    pub(crate) fn parameters_agree(&self) -> bool {
        self.same_after_step >= self.ranks
    }
}

/// Gradients and parameters as the passes go by.
struct Standing {
    all: u32,
    /// Per parameter, among how many ranks its gradient was reduced; none without one.
    gradients: Vec<Option<u32>>,
    /// Per parameter, how many neighbouring ranks have the same.
    same: Vec<u32>,
}

impl LabRun<'_> {
    /// The agreement of the ranks after a pass of a rank that trains in it.
    pub(super) fn agreement(&self, rank: u32, number: u32) -> Agreement {
        let all = self.run.plan.world_size.max(1);
        let params = self.model.trained().count();
        let mut standing = Standing { all, gradients: vec![None; params], same: vec![all; params] };
        let mut last = Agreement { ranks: all, ..Agreement::default() };
        for notes in self.notes(rank).iter().take(number as usize + 1) {
            self.reduced(rank, notes, &mut standing);
            last = standing.now();
            self.stepped(rank, notes, &mut standing, &mut last);
        }
        last
    }

    /// The gradients of a pass, and who reduced them.
    fn reduced(&self, rank: u32, notes: &StepNotes, standing: &mut Standing) {
        for gradient in &notes.gradients {
            standing.set(gradient.param, 1);
        }
        // Results that nobody waits for are not copied back into gradients that are no views.
        let waited = self.waited(rank, notes);
        let views = self.setting.training.options.gradient_as_bucket_view;
        for note in &notes.calls {
            let among = self.ranks_of(rank, note.op);
            if let Some(bucket) = bucket_of(note.call.purpose)
                && (views || waited.contains(&note.op))
            {
                let bucket = notes.buckets.get(bucket as usize);
                for &param in bucket.iter().flat_map(|bucket| &bucket.indices) {
                    standing.set(param, among);
                }
            }
            if note.call.purpose == Purpose::Delayed {
                // The hook's buffer holds what was accumulated before it ran.
                let before = note.launched_by.unwrap_or(0) as usize;
                let delayed = self.delayed();
                for gradient in notes.gradients.iter().take(before) {
                    if delayed.contains(&gradient.param) {
                        standing.set(gradient.param, among);
                    }
                }
            }
        }
    }

    /// The optimizer, and what follows it.
    fn stepped(&self, rank: u32, notes: &StepNotes, of: &mut Standing, last: &mut Agreement) {
        let training = &self.setting.training;
        if notes.kind == StepKind::JoinEnds {
            of.same.fill(of.all);
        }
        if !notes.sync || notes.raises.is_some() || notes.kind == StepKind::JoinEnds {
            last.same_after_step = of.smallest();
            last.same_at_end = last.same_after_step;
            return;
        }
        let used: Vec<bool> = of.gradients.iter().map(Option::is_some).collect();
        for (same, gradient) in of.same.iter_mut().zip(&mut of.gradients) {
            if let Some(among) = gradient.take() {
                *same = gcd(*same, among);
            }
        }
        if training.zero.is_some() || training.options.zero_overlap.is_some() {
            // Whoever updates a parameter broadcasts it.
            of.same.fill(of.all);
        }
        last.same_after_step = of.smallest();
        for note in notes.calls.iter().filter(|note| note.call.purpose == Purpose::Averaged) {
            let among = self.ranks_of(rank, note.op).max(1);
            for (same, _) in of.same.iter_mut().zip(&used).filter(|(_, used)| **used) {
                if !same.is_multiple_of(among) {
                    *same = among;
                }
            }
        }
        last.same_at_end = of.smallest();
    }

    /// The parameters that `delay_all_reduce_named_params` names, as indices among those that
    /// require grad.
    fn delayed(&self) -> Vec<u32> {
        let names = self.setting.training.options.delay_all_reduce_named_params.as_ref();
        let params = (0u32..).zip(self.model.trained());
        let named = params.filter(|(_, param)| names.is_some_and(|n| n.contains(&param.name)));
        named.map(|(index, _)| index).collect()
    }
}

impl Standing {
    fn set(&mut self, param: u32, among: u32) {
        // One rank agrees with itself.
        let among = if self.all == 1 { 1 } else { among.min(self.all) };
        match self.gradients.get_mut(param as usize) {
            // A reduction without any rank's gradient gives nothing.
            Some(None) if among > 1 => {}
            Some(gradient) => *gradient = Some(among),
            None => {}
        }
    }

    fn now(&self) -> Agreement {
        let gradients = || self.gradients.iter().flatten();
        let own = |among: &&u32| **among == 1 && self.all > 1;
        let reduced = gradients().filter(|among| !own(among)).min();
        Agreement {
            ranks: self.all,
            gradients: gradients().count() as u32,
            local: gradients().filter(own).count() as u32,
            reduced_among: reduced.copied().unwrap_or(self.all),
            ..Agreement::default()
        }
    }

    fn smallest(&self) -> u32 {
        self.same.iter().copied().min().unwrap_or(self.all)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}
