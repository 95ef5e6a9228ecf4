//! DDP with real values: ranks whose gradients are numbers, reduced bucket by bucket.
//!
//! A plan knows no arithmetic but that of its collectives, so a training run is a plan an iteration: the
//! caller computes each rank's gradients ([`Mlp`] is a module that can), [`Trainer::iteration`] puts them
//! through the ranks' reducers and answers with the plan that communicates them ([`Exchange`]), any executor
//! runs it, and [`Trainer::receive`] takes the values of the ranks' tensors afterwards. The mean is formed as
//! the reducer forms it (`averaging`), so that the parameters end with PyTorch's bits if the executor adds in
//! the backend's order (`ddp_features.json`, `values`).
//!
//! Only dense float32 parameters and hooks that are plain sums: PowerSGD's result depends on PyTorch's random
//! numbers.

mod exchange;
mod mlp;
mod state;

pub use exchange::Exchange;
pub use mlp::Mlp;
pub use state::{Pass, Trainer};

use super::DdpCall;
use super::error::DdpError;
use super::hook::{CommHook, HookAlgorithm};
use super::join::JoinOptions;
use super::join_calls::{common_rank, presence};
use super::model::Model;
use super::options::DdpOptions;
use super::wrapper::{Ddp, Forward, InJoin};
use exchange::{Contents, Writer};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{PlanError, TensorId};
use lockstep_core::rank::GlobalRank;
use state::{Gradient, RankValues};

/// The reason that ranks cannot be trained so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainerError {
    /// DDP itself raises.
    #[error("{}: {_0}", _0.class())]
    Ddp(#[from] DdpError),
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A setting whose values are not followed.
    #[error("training with values does not follow {0}; leave it out")]
    Unsupported(&'static str),
    /// Values that do not fit the model.
    #[error("rank {rank}: {what} has {found} values, but the model has {expected}")]
    WrongLength {
        /// The rank.
        rank: u32,
        /// The name of the parameter or gradient.
        what: String,
        /// The number that was found.
        found: usize,
        /// The number that the model needs.
        expected: usize,
    },
    /// The executor does not return the values of a tensor.
    #[error("nothing is known of what tensor {} holds on rank {rank} after the run", tensor.0)]
    Missing {
        /// The rank.
        rank: GlobalRank,
        /// The tensor.
        tensor: TensorId,
    },
}

impl Trainer {
    /// Ranks that construct DDP over their own parameters, and the constructor's exchange: after
    /// [`Trainer::receive`] all have rank 0's. `params` has, per rank, the values of every parameter of the
    /// model.
    ///
    /// # Errors
    /// An error that DDP's constructor raises, values that do not fit, or settings that are not followed.
    pub fn new(
        model: &Model,
        options: &DdpOptions,
        backend: BackendName,
        params: Vec<Vec<Vec<f32>>>,
    ) -> Result<(Trainer, Exchange), TrainerError> {
        check_supported(model, options)?;
        let (mut ranks, mut constructors) = (Vec::new(), Vec::new());
        let trained: Vec<usize> =
            (0..).zip(&model.params).filter(|(_, p)| p.requires_grad).map(|(i, _)| i).collect();
        for (rank, params) in (0u32..).zip(params) {
            let wrong = |what: String, found, expected| TrainerError::WrongLength {
                rank,
                what,
                found,
                expected,
            };
            if params.len() != model.params.len() {
                let what = "the list of parameters".to_owned();
                return Err(wrong(what, params.len(), model.params.len()));
            }
            for (values, param) in params.iter().zip(&model.params) {
                if values.len() as u64 != param.numel() {
                    let numel = param.numel() as usize;
                    return Err(wrong(param.name.clone(), values.len(), numel));
                }
            }
            let (ddp, calls) = Ddp::new(rank, model, options)?;
            constructors.push(calls);
            ranks.push(RankValues { ddp, params, grads: vec![None; trained.len()] });
        }
        let active = (0..ranks.len() as u32).collect();
        let (model, options) = (model.clone(), options.clone());
        let trainer = Trainer { model, trained, options, backend, join: None, ranks, active };
        let exchange = trainer.exchange("constructor", &constructors, &[])?;
        Ok((trainer, exchange))
    }

    /// Enters `join()`: from now on [`Trainer::iteration`] may be given ranks without inputs.
    pub fn enter_join(&mut self, join: JoinOptions) {
        self.join = Some(join);
    }

    /// The parameters of a rank, as the model lists them; none outside the world.
    pub fn params(&self, rank: u32) -> &[Vec<f32>] {
        self.ranks.get(rank as usize).map(|rank| rank.params.as_slice()).unwrap_or_default()
    }

    /// The gradient of a parameter that requires grad (`.grad`), if it is defined.
    pub fn gradient(&self, rank: u32, index: u32) -> Option<&[f32]> {
        let gradient = self.ranks.get(rank as usize)?.grads.get(index as usize)?.as_ref()?;
        Some(&gradient.values)
    }

    /// A forward and a backward pass of all ranks; `None` for a rank that has joined. The caller must still
    /// run the exchange that is returned.
    ///
    /// # Errors
    /// An error that DDP raises, gradients that do not fit, or ranks without inputs outside `join()`.
    pub fn iteration(&mut self, passes: &[Option<Pass>]) -> Result<Exchange, TrainerError> {
        let active = (0u32..).zip(passes).filter(|(_, pass)| pass.is_some());
        self.active = active.map(|(rank, _)| rank).collect();
        if passes.len() != self.ranks.len()
            || (self.join.is_none() && self.active.len() < passes.len())
        {
            return Err(TrainerError::Unsupported("ranks without inputs outside join()"));
        }
        let authoritative_rank = self.active.last().copied().unwrap_or(0);
        let rank0 = self.ranks.first().and_then(|rank| rank.ddp.reducer());
        let rank0_order = rank0.map(|reducer| reducer.rebuild_order().to_vec()).unwrap_or_default();
        let (mut calls, syncs) = (Vec::new(), passes.iter().flatten().any(|pass| pass.sync));
        for ((rank, own), pass) in (0u32..).zip(&mut self.ranks).zip(passes) {
            let mut issued = Vec::new();
            let Some(pass) = pass else {
                issued.push(presence());
                own.ddp.shadow(authoritative_rank, Some(&rank0_order), syncs, &mut issued)?;
                calls.push(issued);
                continue;
            };
            let unused: Vec<u32> = (0..own.grads.len() as u32)
                .filter(|index| !pass.gradients.iter().any(|(used, _)| used == index))
                .collect();
            let rebuilt = |ddp: &Ddp| ddp.reducer().is_some_and(|reducer| reducer.has_rebuilt());
            let before = rebuilt(&own.ddp);
            let forward = Forward {
                sync: pass.sync,
                unused: &unused,
                rank0_order: Some(&rank0_order),
                join: self.join.map(|_| InJoin { authoritative_rank, throw: None, tells: true }),
                ..Forward::default()
            };
            own.ddp.forward(&forward, &mut issued)?;
            if self.options.gradient_as_bucket_view && !before && rebuilt(&own.ddp) {
                // Gradients that are defined move into the new buckets (`initialize_bucket_views`).
                own.grads.iter_mut().flatten().for_each(|gradient| gradient.in_bucket = true);
            }
            for (index, values) in &pass.gradients {
                let place = own.grads.get_mut(*index as usize);
                let param =
                    self.trained.get(*index as usize).and_then(|i| self.model.params.get(*i));
                let (Some(place), Some(param)) = (place, param) else { continue };
                if values.len() as u64 != param.numel() {
                    return Err(TrainerError::WrongLength {
                        rank,
                        what: format!("the gradient of {}", param.name),
                        found: values.len(),
                        expected: param.numel() as usize,
                    });
                }
                match place {
                    Some(gradient) => {
                        let sums = gradient.values.iter_mut().zip(values);
                        sums.for_each(|(sum, value)| *sum += value);
                    }
                    None => *place = Some(Gradient { values: values.clone(), in_bucket: false }),
                }
                own.ddp.gradient(*index, &mut issued)?;
            }
            own.ddp.end_backward(&mut issued)?;
            calls.push(issued);
        }
        self.exchange("iteration", &calls, passes)
    }

    /// The end of `join()`: all take the parameters of the highest rank that had inputs longest.
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn leave_join(&mut self) -> Result<Exchange, TrainerError> {
        self.join = None;
        let last_joiner = self.active.last().copied().unwrap_or(0);
        let calls = self.ranks.iter().map(|rank| {
            let mut calls = vec![presence(), common_rank()];
            rank.ddp.sync_module_states(last_joiner, &mut calls);
            calls
        });
        let calls: Vec<_> = calls.collect();
        self.exchange("end of join", &calls, &[])
    }

    /// Takes the values of a plan's tensors after it has run; `held` returns them as little-endian elements.
    ///
    /// # Errors
    /// `held` does not know a tensor.
    pub fn receive(
        &mut self,
        exchange: &Exchange,
        held: impl Fn(GlobalRank, TensorId) -> Option<Vec<u8>>,
    ) -> Result<(), TrainerError> {
        let world_size = self.ranks.len();
        let mut used: Vec<Option<Vec<u8>>> = vec![None; world_size];
        for slot in exchange.slots.iter().filter(|slot| slot.contents == Contents::UsedMap) {
            used[slot.rank.index()] = held(slot.rank, slot.tensor);
        }
        for slot in &exchange.slots {
            let missing = || TrainerError::Missing { rank: slot.rank, tensor: slot.tensor };
            let bytes = held(slot.rank, slot.tensor).ok_or_else(missing)?;
            let Some(own) = self.ranks.get_mut(slot.rank.index()) else { continue };
            match &slot.contents {
                Contents::UsedMap => {}
                Contents::States { params } => {
                    let mut values = exchange::floats(Dtype::Float32, &bytes).into_iter();
                    for &param in params {
                        let Some(param) = own.params.get_mut(param as usize) else { continue };
                        let numel = param.len();
                        *param = values.by_ref().take(numel).collect();
                    }
                }
                Contents::Bucket { indices, dtype } => {
                    let mut values = exchange::floats(*dtype, &bytes).into_iter();
                    for index in indices {
                        let place = *index as usize;
                        let param = self.trained.get(place).and_then(|i| own.params.get(*i));
                        let numel = param.map_or(0, Vec::len);
                        let values: Vec<f32> = values.by_ref().take(numel).collect();
                        // Nobody used it: its gradient stays as it is.
                        let map = used[slot.rank.index()].as_deref();
                        let flag = map.and_then(|map| map.as_chunks::<4>().0.get(place));
                        if flag.is_some_and(|flag| i32::from_le_bytes(*flag) == 0) {
                            continue;
                        }
                        let in_bucket = self.options.gradient_as_bucket_view;
                        if let Some(gradient) = own.grads.get_mut(place) {
                            *gradient = Some(Gradient { values, in_bucket });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// `optimizer.step()` of SGD without momentum, on the ranks that had inputs: `p - lr * g`,
    /// rounded twice. PyTorch's vectorised kernel rounds once (a fused multiply-add), which is the
    /// same where `lr` is a power of two.
    pub fn sgd(&mut self, learning_rate: f32) {
        let active = &self.active;
        let ranks = (0u32..).zip(&mut self.ranks).filter(|(rank, _)| active.contains(rank));
        for (_, own) in ranks {
            for (gradient, param) in own.grads.iter().zip(&self.trained) {
                let (Some(gradient), Some(param)) = (gradient, own.params.get_mut(*param)) else {
                    continue;
                };
                let pairs = param.iter_mut().zip(&gradient.values);
                pairs.for_each(|(param, gradient)| *param -= learning_rate * gradient);
            }
        }
    }

    /// `optimizer.zero_grad(set_to_none)`, on the ranks that had inputs.
    pub fn zero_grad(&mut self, set_to_none: bool) {
        let active = &self.active;
        let ranks = (0u32..).zip(&mut self.ranks).filter(|(rank, _)| active.contains(rank));
        for (_, own) in ranks {
            for gradient in &mut own.grads {
                match gradient {
                    Some(gradient) if !set_to_none => gradient.values.fill(0.0),
                    _ => *gradient = None,
                }
            }
        }
    }

    /// The divisor of this iteration's gradients.
    fn divisor(&self) -> u32 {
        match self.join {
            Some(join) if !join.divide_by_initial_world_size => self.active.len() as u32,
            _ => self.ranks.len() as u32,
        }
    }

    fn exchange(
        &self,
        what: &str,
        calls: &[Vec<DdpCall>],
        passes: &[Option<Pass>],
    ) -> Result<Exchange, TrainerError> {
        let name = format!("DDP with values, {}, {what}", self.model.name);
        let mut writer = Writer::new(name, self.ranks.len() as u32, self.backend)?;
        for ((rank, own), calls) in (0..).map(GlobalRank).zip(&self.ranks).zip(calls) {
            let pass = passes.get(rank.index()).and_then(Option::as_ref);
            writer.rank(self, own, rank, calls, pass);
        }
        Ok(writer.finish()?)
    }
}

fn check_supported(model: &Model, options: &DdpOptions) -> Result<(), TrainerError> {
    let unsupported = |what| Err(TrainerError::Unsupported(what));
    if model.params.iter().any(|param| param.dtype != Dtype::Float32 || param.sparse) {
        return unsupported("parameters other than dense float32");
    }
    if !model.buffers.is_empty() {
        return unsupported("buffers");
    }
    if !model.unused.is_empty() {
        return unsupported("passes that use different parameters");
    }
    if !options.ignored.is_empty() || options.delay_all_reduce_named_params.is_some() {
        return unsupported("parameters outside the reducer");
    }
    if options.mixed_precision.is_some() {
        return unsupported("mixed precision");
    }
    if options.zero_overlap.is_some() {
        return unsupported("a sharded optimizer's overlap");
    }
    match options.comm_hook {
        // A wrapper around a cast of its own rounds twice.
        Some(CommHook { wrapper: Some(_), algorithm: HookAlgorithm::Compress(_) }) => {
            unsupported("a wrapper around a hook that compresses")
        }
        None
        | Some(CommHook {
            algorithm: HookAlgorithm::AllReduce | HookAlgorithm::Compress(_) | HookAlgorithm::Noop,
            ..
        }) => Ok(()),
        Some(_) => unsupported("communication hooks other than sums"),
    }
}
