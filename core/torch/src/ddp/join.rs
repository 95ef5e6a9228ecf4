//! `join()` and the generic `Join`: training with uneven inputs (`torch/distributed/algorithms/join.py` and DDP's join
//! hook in `distributed.py`).
//!
//! A rank that has run out of inputs shadows the collectives of the others with zeros until all
//! have; then all take the states of the highest rank among those that had inputs longest.

use super::call::{DdpCall, Purpose};
use super::error::DdpError;
use super::join_calls::{common_rank, presence, tell};
use super::model::Model;
use super::options::DdpOptions;
use super::wrapper::{Ddp, Forward, InJoin};
use super::zero::sync_params;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde::{Deserialize, Serialize, Serializer};

/// `join`'s arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinOptions {
    /// `divide_by_initial_world_size`.
    pub divide_by_initial_world_size: bool,
    /// `throw_on_early_termination`.
    pub throw_on_early_termination: bool,
}

impl Default for JoinOptions {
    fn default() -> JoinOptions {
        JoinOptions { divide_by_initial_world_size: true, throw_on_early_termination: false }
    }
}

/// An iteration of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JoinIteration {
    /// The calls that its forward pass issued.
    pub forward: Vec<DdpCall>,
    /// The calls that its backward pass issued.
    pub backward: Vec<DdpCall>,
    /// The calls that its sharded optimizer issued.
    pub optimizer: Vec<DdpCall>,
    /// The divisor of the gradients; none when one of its passes raised, or they were inside
    /// `no_sync()`.
    pub divisor: Option<u32>,
}

/// The iterations and calls of one rank inside `join()`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JoinedRank {
    /// Its own iterations.
    pub iterations: Vec<JoinIteration>,
    /// The calls that it issued after its inputs were exhausted.
    pub after: Vec<DdpCall>,
    /// The error that it raised, if any.
    #[serde(serialize_with = "as_text")]
    pub error: Option<DdpError>,
}

/// An error as Python prints it: `RuntimeError: …`.
fn as_text<S: Serializer>(error: &Option<DdpError>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = error.as_ref().map(|error| format!("{}: {error}", error.class()));
    text.serialize(serializer)
}

/// The passes of all members of a `join()`: what a rank that has left follows when it shadows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinPasses {
    /// The inputs of each member, by group rank.
    pub inputs: Vec<u32>,
    /// By pass, whether any member that has an input for it reduces its gradients. The members tell
    /// those that have left (`_check_global_requires_backward_grad_sync`), who shadow a backward pass
    /// only then.
    pub syncs: Vec<bool>,
}

impl JoinPasses {
    /// From each member's own passes, by group rank: whether they reduce.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a [bool]>) -> JoinPasses {
        let mut passes = JoinPasses::default();
        for own in members {
            passes.inputs.push(own.len() as u32);
            if own.len() > passes.syncs.len() {
                passes.syncs.resize(own.len(), false);
            }
            passes.syncs.iter_mut().zip(own).for_each(|(any, own)| *any |= own);
        }
        passes
    }

    /// The highest rank that has at least so many inputs: it is the authoritative one.
    fn last_with(&self, inputs: u32) -> u32 {
        let last = self.inputs.iter().rposition(|own| *own >= inputs);
        last.map_or(0, |rank| rank as u32)
    }
}

/// A participant of a `Join` context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joinable {
    /// `DistributedDataParallel`.
    Ddp,
    /// `ZeroRedundancyOptimizer`, without overlap. Its hook makes a step with whatever gradients
    /// the rank has left.
    Zero {
        /// `parameters_as_bucket_view`.
        parameters_as_bucket_view: bool,
    },
}

/// True if a pass, counted from 0, reduces: all but the last of every `accumulate` are inside
/// `no_sync()`. No rank of a join knows the last pass of all, so left-over passes never reduce.
pub(super) fn reduces(iteration: u32, accumulate: u32) -> bool {
    (iteration + 1).is_multiple_of(accumulate.max(1))
}

/// The same on a backend inside `Join(joinables)`, with all but the last of every `accumulate` passes
/// inside `no_sync()`. Whatever takes part, a training loop's iteration is a forward
/// and a backward pass of DDP, then a step of the sharded optimizer if there is one. The first
/// joinable tells the others that its rank has not joined yet: a sharded optimizer that is first
/// does so in its step, behind what DDP communicates, and in the step of a rank that *has* joined
/// too, so that such a job hangs in PyTorch, and as a plan.
///
/// # Errors
/// Errors of DDP's constructor; no joinables.
pub fn run_join_of(
    joinables: &[Joinable],
    model: &Model,
    options: &DdpOptions,
    inputs: &[u32],
    join: JoinOptions,
    accumulate: u32,
    backend: BackendName,
) -> Result<Vec<JoinedRank>, DdpError> {
    if joinables.is_empty() {
        return Err(DdpError::NoJoinables);
    }
    let order = model.grad_ready_order();
    let trained = model.trained().count() as u32;
    let hidden = |index: &u32| !order.contains(index) || model.reentrant.contains(index);
    let unused: Vec<u32> = (0..trained).filter(hidden).collect();
    let world_size = inputs.len() as u32;
    let mut ranks = Vec::new();
    for rank in 0..inputs.len() as u32 {
        let ddp = Ddp::new(rank, model, options)?.0.on(backend);
        ranks.push((ddp, JoinedRank::default()));
    }
    let most = inputs.iter().copied().max().unwrap_or(0);
    for iteration in 0..most {
        let active = (0..).zip(inputs).filter(|(_, inputs)| **inputs > iteration);
        let active: Vec<u32> = active.map(|(rank, _)| rank).collect();
        let authoritative_rank = active.last().copied().unwrap_or(0);
        let exhausted = active.len() < inputs.len();
        let throw = join.throw_on_early_termination.then_some(exhausted);
        let rank0 = ranks.first().and_then(|(ddp, _)| ddp.reducer());
        let rank0_order = rank0.map(|reducer| reducer.rebuild_order().to_vec()).unwrap_or_default();
        let sync = reduces(iteration, accumulate);
        let divisor = match join.divide_by_initial_world_size {
            true => inputs.len(),
            false => active.len(),
        };
        let step = JoinedStep {
            joinables,
            model,
            world_size,
            order: &order,
            unused: &unused,
            authoritative_rank,
            throw,
            rank0_order: &rank0_order,
            sync,
            divisor: sync.then_some(divisor as u32),
        };
        for (rank, (ddp, done)) in (0..).zip(&mut ranks) {
            match active.binary_search(&rank).is_ok() {
                true => step.with_inputs(ddp, done),
                false => step.without_inputs(rank, ddp, done),
            }
        }
        if ranks.iter().any(|(_, done)| done.error.is_some()) {
            // Whoever does not raise as well waits for those that did, and divides nothing.
            for (_, done) in ranks.iter_mut().filter(|(_, done)| done.error.is_none()) {
                if let Some(step) = done.iterations.last_mut().filter(|_| done.after.is_empty()) {
                    step.divisor = None;
                }
            }
            return Ok(ranks.into_iter().map(|(_, done)| done).collect());
        }
    }
    let last = (0..).zip(inputs).filter(|(_, inputs)| **inputs == most).last();
    let last_joiner = last.map_or(0, |(rank, _)| rank);
    for (ddp, done) in &mut ranks {
        done.after.push(presence());
        if joinables.contains(&Joinable::Ddp) {
            done.after.push(common_rank());
            ddp.sync_module_states(last_joiner, &mut done.after);
        }
    }
    Ok(ranks.into_iter().map(|(_, done)| done).collect())
}

/// One iteration of a training loop inside `Join`, as every rank has it.
struct JoinedStep<'a> {
    joinables: &'a [Joinable],
    model: &'a Model,
    world_size: u32,
    /// The order in which gradients become ready.
    order: &'a [u32],
    /// The parameters that get no gradient.
    unused: &'a [u32],
    authoritative_rank: u32,
    /// Under `throw_on_early_termination`, whether a rank has run out of inputs.
    throw: Option<bool>,
    /// The order in which rank 0 would rebuild its buckets.
    rank0_order: &'a [u32],
    /// False inside `no_sync()`.
    sync: bool,
    /// The divisor of the gradients, if the pass reduces them.
    divisor: Option<u32>,
}

impl JoinedStep<'_> {
    /// The first joinable tells the others that its rank has not joined yet.
    fn ddp_tells(&self) -> bool {
        self.joinables.first() == Some(&Joinable::Ddp)
    }

    /// The iteration of a rank that has inputs left.
    fn with_inputs(&self, ddp: &mut Ddp, done: &mut JoinedRank) {
        let mut step = JoinIteration::default();
        done.error = self.train(ddp, &mut step).err();
        done.iterations.push(step);
    }

    fn train(&self, ddp: &mut Ddp, step: &mut JoinIteration) -> Result<(), DdpError> {
        let in_join = InJoin {
            authoritative_rank: self.authoritative_rank,
            throw: self.throw,
            tells: self.ddp_tells(),
        };
        let forward = Forward {
            sync: self.sync,
            unused: self.unused,
            rank0_order: Some(self.rank0_order),
            join: self.joinables.contains(&Joinable::Ddp).then_some(in_join),
            ..Forward::default()
        };
        ddp.forward(&forward, &mut step.forward)?;
        ddp.backward(self.order, &mut step.backward)?;
        step.divisor = self.divisor;
        for as_buffers in self.joinables.iter().filter_map(Joinable::as_zero) {
            if !self.ddp_tells() {
                tell(self.throw, &mut step.optimizer)?;
            }
            step.optimizer.extend(sync_params(self.model, self.world_size, as_buffers));
        }
        Ok(())
    }

    /// The iteration of a rank that has none left: it shadows what the others communicate.
    fn without_inputs(&self, rank: u32, ddp: &mut Ddp, done: &mut JoinedRank) {
        done.after.push(presence());
        if self.throw.is_some() {
            done.after.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinThrow));
            done.error = Some(DdpError::Exhausted { rank });
            return;
        }
        for (number, joinable) in self.joinables.iter().enumerate() {
            let Some(as_buffers) = joinable.as_zero() else {
                let order = Some(self.rank0_order);
                let shadowed =
                    ddp.shadow(self.authoritative_rank, order, self.sync, &mut done.after);
                done.error = done.error.take().or(shadowed.err());
                continue;
            };
            if number == 0 {
                done.after.push(presence());
            }
            done.after.extend(sync_params(self.model, self.world_size, as_buffers));
        }
    }
}

impl Joinable {
    /// Of a sharded optimizer, whether its parameters are views of buckets.
    fn as_zero(&self) -> Option<bool> {
        match self {
            Joinable::Ddp => None,
            Joinable::Zero { parameters_as_bucket_view } => Some(*parameters_as_bucket_view),
        }
    }
}

impl Ddp {
    /// The order in which rank 0 would rebuild its buckets for the first time, after its own inputs
    /// and what it shadows of the others: all ranks take it (`sync_bucket_indices`). A pass that
    /// reduces nothing gives no order.
    ///
    /// # Errors
    /// Errors that DDP raises on rank 0 until then.
    pub fn rank0_order(&self, model: &Model, passes: &JoinPasses) -> Result<Vec<u32>, DdpError> {
        /// A static graph is rebuilt before the third forward pass, others before the second.
        const BEFORE_REBUILD: usize = 3;
        let inputs = passes.inputs.first().copied().unwrap_or(0);
        let mut rank0 = Ddp::new(0, model, self.options())?.0;
        let (order, mut calls) = (model.grad_ready_order(), Vec::new());
        let reducing = (0..).zip(&passes.syncs).filter(|(_, syncs)| **syncs);
        for (pass, _) in reducing.take(BEFORE_REBUILD) {
            if pass < inputs {
                rank0.forward(&Forward::default(), &mut calls)?;
                rank0.backward(&order, &mut calls)?;
            } else if rank0.shadow(0, None, true, &mut calls).is_err() {
                // Rank 0 says so itself.
                break;
            }
            let rebuilt = rank0.reducer().map_or(&[][..], |reducer| reducer.rebuild_order());
            if !rebuilt.is_empty() {
                return Ok(rebuilt.to_vec());
            }
        }
        Ok(Vec::new())
    }

    /// The calls that a rank of the group issues once its own inputs are exhausted: it shadows the
    /// others until nobody has any left, and then takes the states of the last. `rank0_order` is
    /// [`Ddp::rank0_order`].
    ///
    /// # Errors
    /// Errors that PyTorch raises there; `calls` keeps the collectives issued before.
    pub fn leave_join(
        &mut self,
        rank: u32,
        passes: &JoinPasses,
        rank0_order: &[u32],
        join: JoinOptions,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        let own = passes.inputs.get(rank as usize).copied().unwrap_or(0);
        for (iteration, syncs) in (0..).zip(&passes.syncs).skip(own as usize) {
            calls.push(presence());
            if join.throw_on_early_termination {
                calls.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinThrow));
                return Err(DdpError::Exhausted { rank });
            }
            let authoritative_rank = passes.last_with(iteration + 1);
            self.shadow(authoritative_rank, Some(rank0_order), *syncs, calls)?;
        }
        calls.push(presence());
        calls.push(common_rank());
        self.sync_module_states(passes.last_with(passes.syncs.len() as u32), calls);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::{BucketCap, CommHook, HookAlgorithm};

    /// Recorded with PyTorch 2.7.1 over gloo: a pass of the others inside `no_sync()` has no backward
    /// to shadow, and no buffers are broadcast behind it.
    #[test]
    fn passes_inside_no_sync_are_shadowed_without_their_backward() {
        let text = r#"{"params": [["l.weight", [4, 4], 16, "float32", true],
            ["l.bias", [4], 4, "float32", true]], "buffers": [["mean", [4], 4, "float32"]]}"#;
        let model = Model::read("m", text).unwrap();
        let (options, join) = (DdpOptions::default(), JoinOptions::default());
        let ranks =
            run_join_of(&[Joinable::Ddp], &model, &options, &[5, 2], join, 2, BackendName::Gloo)
                .unwrap();
        let made = |calls: &[DdpCall]| {
            let made = calls.iter().map(|call| format!("{:?}", call.purpose));
            made.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            made(&ranks[1].after),
            "JoinPresence RebuiltIndices RebuiltSizes JoinRank Buffers JoinSync \
             JoinPresence JoinSync Bucket { bucket: 0 } \
             JoinPresence JoinRank Buffers JoinSync \
             JoinPresence JoinRank ModuleStates"
        );
        let backward = ranks[0].iterations.iter().map(|step| step.backward.len());
        assert_eq!(backward.collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
        let divisors = ranks[0].iterations.iter().map(|step| step.divisor);
        assert_eq!(divisors.collect::<Vec<_>>(), [None, Some(2), None, Some(2), None]);
    }

    /// Each rank by itself, from what it hears of the others' passes, makes the calls that all make
    /// together, also where rank 0 leaves before its first pass that reduces.
    #[test]
    fn a_rank_that_leaves_shadows_what_the_others_do_in_each_pass() {
        let text = r#"{"params": [["a", [4, 4], 16, "float32", true], ["b", [4], 4, "float32", true],
            ["c", [8, 4], 32, "float32", true]], "buffers": [["mean", [4], 4, "float32"]]}"#;
        let model = Model::read("m", text).unwrap();
        let options = DdpOptions { bucket_cap: BucketCap::Bytes(64), ..DdpOptions::default() };
        let (join, gloo) = (JoinOptions::default(), BackendName::Gloo);
        let ready = model.grad_ready_order();
        for inputs in [[5, 2], [2, 5], [1, 7], [0, 4], [4, 4]] {
            for accumulate in 1..=4 {
                let whole = run_join_of(
                    &[Joinable::Ddp],
                    &model,
                    &options,
                    &inputs,
                    join,
                    accumulate,
                    gloo,
                )
                .unwrap();
                let own = inputs.map(|inputs| {
                    (0..inputs).map(|pass| reduces(pass, accumulate)).collect::<Vec<_>>()
                });
                let passes = JoinPasses::of(own.iter().map(Vec::as_slice));
                for (rank, (done, own)) in (0..).zip(whole.iter().zip(&own)) {
                    let mut ddp = Ddp::new(rank, &model, &options).unwrap().0.on(gloo);
                    let order = ddp.rank0_order(&model, &passes).unwrap();
                    let mut calls = Vec::new();
                    for (iteration, sync) in (0..).zip(own) {
                        let authoritative_rank = passes.last_with(iteration + 1);
                        let join = Some(InJoin { authoritative_rank, throw: None, tells: true });
                        let rank0_order = Some(order.as_slice());
                        let forward =
                            Forward { sync: *sync, rank0_order, join, ..Forward::default() };
                        ddp.forward(&forward, &mut calls).unwrap();
                        ddp.backward(&ready, &mut calls).unwrap();
                    }
                    ddp.leave_join(rank, &passes, &order, join, &mut calls).unwrap();
                    let steps = done.iterations.iter();
                    let steps = steps.flat_map(|step| step.forward.iter().chain(&step.backward));
                    let expected: Vec<_> = steps.chain(&done.after).copied().collect();
                    assert_eq!(calls, expected, "{inputs:?} {accumulate} rank {rank}");
                }
            }
        }
    }

    /// PyTorch 2.7.1 over gloo, on ranks with inputs as on one that shadows them.
    #[test]
    fn what_a_hook_raises_over_gloo_ends_every_rank_in_its_first_pass() {
        let quantizes = CommHook::new(HookAlgorithm::QuantizationPerTensor);
        let halves = CommHook::compress(Dtype::Float16);
        let join = JoinOptions::default();
        for (sparse, hook, inputs, said) in [
            (true, halves, [3, 2], "\"cadd_sparse\" not implemented for 'Half'"),
            (true, quantizes, [3, 2], "arguments from the 'SparseCPU' backend"),
            (false, quantizes, [3, 2], "IndexError: invalid index of a 0-dim tensor"),
            (false, quantizes, [2, 0], "IndexError: invalid index of a 0-dim tensor"),
            (false, quantizes, [0, 2], "IndexError: invalid index of a 0-dim tensor"),
        ] {
            let sparse = if sparse { r#""e""# } else { "" };
            let text = format!(
                r#"{{"params": [["e", [30, 4], 120, "float32", true],
                ["b", [4], 4, "float32", true]], "sparse": [{sparse}]}}"#
            );
            let model = Model::read("m", &text).unwrap();
            let options = DdpOptions { comm_hook: Some(hook), ..Default::default() };
            let gloo = BackendName::Gloo;
            let ranks =
                run_join_of(&[Joinable::Ddp], &model, &options, &inputs, join, 1, gloo).unwrap();
            for (done, inputs) in ranks.iter().zip(inputs) {
                let error = done.error.as_ref().map(ToString::to_string).unwrap_or_default();
                assert!(error.contains(said), "{hook:?} {error}");
                assert_eq!(done.iterations.len(), usize::from(inputs > 0));
                assert!(done.iterations.iter().all(|step| step.divisor.is_none()));
            }
            let nccl = BackendName::Nccl;
            let ranks =
                run_join_of(&[Joinable::Ddp], &model, &options, &inputs, join, 1, nccl).unwrap();
            let dense_only = sparse.is_empty() || hook == halves;
            assert_eq!(ranks.iter().all(|done| done.error.is_none()), dense_only, "{hook:?}");
        }
    }
}
