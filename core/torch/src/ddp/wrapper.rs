//! `DistributedDataParallel` itself: the calls that one rank's wrapper issues in its constructor, its forward
//! and its backward passes (`distributed.py`).

use super::assignment::BucketParam;
use super::buckets::{Bucket, ItemOrder, SizedTensor, assign_by_size};
use super::call::{DdpCall, Purpose};
use super::error::DdpError;
use super::join_calls::common_rank;
use super::model::Model;
use super::options::{BucketCap, DdpOptions, DdpVersion};
use super::reducer::{Reducer, ReducerParam};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;

/// `broadcast_bucket_size`: 250 MiB.
pub(super) const BROADCAST_BUCKET_BYTES: u64 = 250 << 20;

/// The wrapper of one rank.
#[derive(Clone, Debug)]
pub struct Ddp {
    options: DdpOptions,
    /// None when every parameter is delayed: the constructor then returned early.
    reducer: Option<Reducer>,
    states: Vec<SizedTensor>,
    buffers: Vec<SizedTensor>,
    /// Per parameter of the model, its index in the reducer.
    reducer_index: Vec<Option<u32>>,
    /// Per parameter that requires grad, its index in the model.
    trained: Vec<u32>,
    /// Per parameter of the reducer, its index among those that require grad.
    trained_index: Vec<u32>,
    /// The parameter that launches the delayed `all_reduce`, and its elements.
    delayed: Option<(u32, u64)>,
    /// The type of the first delayed parameter that the buffer of float32 is no gradient for.
    delayed_type: Option<Dtype>,
    require_forward_param_sync: bool,
    static_graph_delay_enqueued: bool,
}

/// The conditions that decide about a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// `torch.is_grad_enabled()`.
    pub grad_enabled: bool,
    /// False inside `no_sync()`: it is the forward pass that decides, not the backward pass.
    pub sync: bool,
    /// The parameters that the outputs do not depend on, as indices among those that require grad: found by
    /// the walk of the graph with `find_unused_parameters`.
    pub unused: &'a [u32],
    /// The order that rank 0 rebuilds its buckets from, where it is not this rank's own.
    pub rank0_order: Option<&'a [u32]>,
    /// Inside `join()`.
    pub join: Option<InJoin>,
}

impl Default for Forward<'_> {
    fn default() -> Self {
        Forward { grad_enabled: true, sync: true, unused: &[], rank0_order: None, join: None }
    }
}

/// The conditions of a forward pass inside `join()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InJoin {
    /// The highest rank that has inputs: whose buffers are broadcast.
    pub authoritative_rank: u32,
    /// `throw_on_early_termination`, and whether any rank has no inputs left.
    pub throw: Option<bool>,
    /// True if DDP is the first joinable of the context, which announces that its rank has not joined.
    pub tells: bool,
}

impl Ddp {
    /// The constructor on `rank`, and the collectives that it issues.
    ///
    /// # Errors
    /// The error that PyTorch's constructor raises.
    pub fn new(
        rank: u32,
        model: &Model,
        options: &DdpOptions,
    ) -> Result<(Ddp, Vec<DdpCall>), DdpError> {
        let delayed_names = options.delay_all_reduce_named_params.as_deref();
        if delayed_names.is_some() != options.param_to_hook_all_reduce.is_some() {
            return Err(DdpError::DelayWithoutHook);
        }
        check_limits(options)?;
        let delayed_names = delayed_names.unwrap_or_default();
        let left_out = |name: &String| options.leaves_out(name);
        let mut calls = Vec::new();
        let mut states = Vec::new();
        let (mut params, mut reducer_index) = (Vec::new(), Vec::new());
        let (mut requiring, mut trained_index) = (Vec::new(), Vec::new());
        for (index, param) in (0..).zip(&model.params) {
            let called = options.name_in_reducer(model, &param.name);
            let called = called.filter(|_| param.requires_grad);
            reducer_index.push(called.as_ref().map(|_| params.len() as u32));
            if !left_out(&param.name) {
                states.push(sized(states.len(), param.dtype, param.numel()));
            }
            if param.requires_grad {
                requiring.push(index);
            }
            if let Some(name) = called {
                trained_index.push(requiring.len() as u32 - 1);
                params.push(ReducerParam {
                    bucket: BucketParam {
                        dtype: param.dtype,
                        numel: param.numel(),
                        sparse: param.sparse,
                    },
                    shape: param.shape.clone(),
                    name,
                    unexpected: param.unexpected,
                });
            }
        }
        let trains = model.params.iter().any(|param| param.requires_grad && !left_out(&param.name));
        if !trains && delayed_names.is_empty() {
            return Err(DdpError::NothingToTrain);
        }
        if states.is_empty() {
            return Err(DdpError::NoParameters);
        }
        if model.params.iter().any(|param| param.uninitialized && !left_out(&param.name)) {
            return Err(DdpError::Uninitialized);
        }
        let mut buffers = Vec::new();
        for buffer in model.buffers.iter().filter(|buffer| !left_out(&buffer.name)) {
            buffers.push(sized(buffers.len(), buffer.dtype, buffer.numel()));
            if options.broadcast_buffers {
                states.push(sized(states.len(), buffer.dtype, buffer.numel()));
            }
        }
        let delayed = delay(model, options, &mut calls);
        let mut ddp = Ddp {
            options: options.clone(),
            reducer: None,
            states,
            buffers,
            reducer_index,
            trained: requiring,
            trained_index,
            delayed,
            delayed_type: delayed_type(model, delayed_names),
            require_forward_param_sync: true,
            static_graph_delay_enqueued: false,
        };
        if params.is_empty() {
            return Ok((ddp, calls));
        }
        if options.init_sync {
            // Sizes and strides of every parameter.
            let dims: u64 = params.iter().map(|param| 2 * param.shape.len() as u64).sum();
            calls.push(DdpCall::all_gather(Dtype::Int64, 1, Purpose::ParamCount));
            calls.push(DdpCall::broadcast(Dtype::Int64, dims, 0, Purpose::ParamShapes));
            ddp.sync_module_states(0, &mut calls);
        }
        let mut reducer = Reducer::new(rank, params, options);
        reducer.set_debug(options.debug);
        if let Some(mixed) = options.mixed_precision {
            reducer.register_hook(mixed.hook())?;
            ddp.cast_buffers(mixed.buffer_dtype);
        }
        if let Some(hook) = options.comm_hook {
            reducer.register_hook(hook)?;
        }
        ddp.reducer = Some(reducer);
        Ok((ddp, calls))
    }

    /// `_cast_buffers`, after the constructor has broadcast them as they were.
    fn cast_buffers(&mut self, dtype: Option<Dtype>) {
        let Some(dtype) = dtype else { return };
        let states = if self.options.broadcast_buffers { self.buffers.len() } else { 0 };
        let first = self.states.len() - states.min(self.states.len());
        for tensor in self.buffers.iter_mut().chain(self.states.iter_mut().skip(first)) {
            let numel = tensor.bytes / tensor.dtype.size_bytes().max(1);
            *tensor = sized(tensor.index as usize, dtype, numel);
        }
    }

    /// The buckets in force, with their parameters as indices among those that require grad. The
    /// reducer itself counts only those that it has.
    pub fn buckets(&self) -> Vec<Bucket> {
        let buckets = self.reducer.as_ref().map(Reducer::buckets).unwrap_or_default();
        let own = |index: &u32| self.trained_index.get(*index as usize).copied();
        let bucket = |bucket: &Bucket| Bucket {
            indices: bucket.indices.iter().filter_map(own).collect(),
            ..bucket.clone()
        };
        buckets.iter().map(bucket).collect()
    }

    /// The parameters that the reducer has marked ready in this pass because nothing uses them, as
    /// indices among those that require grad.
    pub(crate) fn marked_unused(&self) -> Vec<u32> {
        let marked = self.reducer.as_ref().map(Reducer::marked_unused).unwrap_or_default();
        marked.iter().filter_map(|index| self.trained_index.get(*index as usize).copied()).collect()
    }

    /// The wrapper on a backend, on which some hooks raise.
    pub fn on(mut self, backend: BackendName) -> Ddp {
        if let Some(reducer) = &mut self.reducer {
            reducer.set_backend(backend);
        }
        self
    }

    /// Its reducer; `None` when every parameter is delayed.
    pub fn reducer(&self) -> Option<&Reducer> {
        self.reducer.as_ref()
    }

    /// The options that it was made with.
    pub(super) fn options(&self) -> &DdpOptions {
        &self.options
    }

    /// `_sync_module_states`: all parameters and buffers from `root`.
    pub(super) fn sync_module_states(&self, root: u32, calls: &mut Vec<DdpCall>) {
        let limit = BROADCAST_BUCKET_BYTES;
        broadcast_coalesced(&self.states, limit, root, Purpose::ModuleStates, calls);
    }

    /// The buckets in which `_sync_module_states` sends parameters and buffers.
    pub(super) fn state_buckets(&self) -> Vec<Bucket> {
        assign_by_size(&self.states, &[BROADCAST_BUCKET_BYTES], ItemOrder::Registration)
    }

    /// A forward pass, up to the return of the wrapper.
    ///
    /// # Errors
    /// The error that PyTorch raises: an unfinished reduction of the pass before, or an end of inputs.
    pub fn forward(
        &mut self,
        forward: &Forward<'_>,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        self.begin_forward(forward, calls)?;
        self.end_forward(forward.unused)
    }

    /// A forward pass, up to that of the wrapped module (`_pre_forward`).
    ///
    /// # Errors
    /// As [`Ddp::forward`].
    pub fn begin_forward(
        &mut self,
        forward: &Forward<'_>,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        let syncs = forward.grad_enabled && forward.sync;
        let Some(reducer) = &mut self.reducer else { return Err(DdpError::EverythingDelayed) };
        if syncs {
            reducer.prepare_for_forward();
        }
        if let Some(join) = forward.join.filter(|join| join.tells) {
            super::join_calls::tell(join.throw, calls)?;
        }
        if forward.grad_enabled {
            reducer.rebuild(forward.rank0_order, calls)?;
        }
        self.sync_buffers(forward.join, calls);
        if forward.join.is_some() {
            calls.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinSync));
        }
        self.require_forward_param_sync = syncs;
        Ok(())
    }

    /// The rest of a forward pass, behind that of the wrapped module (`_post_forward`), whose outputs do not
    /// depend on the `unused` parameters: indices among those that require grad.
    ///
    /// # Errors
    /// A delayed gradient of another type than the buffer for it.
    pub fn end_forward(&mut self, unused: &[u32]) -> Result<(), DdpError> {
        let syncs = self.require_forward_param_sync;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| syncs) {
            let unused = unused.iter().filter_map(|index| {
                let param = self.trained.get(*index as usize)?;
                self.reducer_index.get(*param as usize).copied().flatten()
            });
            reducer.prepare_for_backward(&unused.collect::<Vec<_>>());
        }
        // `_clear_grad_buffer`, the last of a forward pass.
        self.delayed_type.map_or(Ok(()), |dtype| Err(DdpError::DelayedType { dtype }))
    }

    /// The order from which rank 0 rebuilds its buckets at its next forward pass, as indices of the reducer;
    /// empty if it does not.
    pub fn rebuild_order(&self) -> &[u32] {
        self.reducer.as_ref().map_or(&[], Reducer::rebuild_order)
    }

    /// Buffers follow the forward pass before: they are broadcast when that one was to synchronize.
    fn sync_buffers(&self, join: Option<InJoin>, calls: &mut Vec<DdpCall>) {
        let wanted = self.options.broadcast_buffers && !self.buffers.is_empty();
        if !wanted || !self.require_forward_param_sync {
            return;
        }
        let mut root = 0;
        if let Some(join) = join {
            // The ranks agree on the highest that has inputs.
            calls.push(common_rank());
            root = join.authoritative_rank;
        }
        broadcast_coalesced(&self.buffers, BROADCAST_BUCKET_BYTES, root, Purpose::Buffers, calls);
    }

    /// The forward and backward pass of a rank that has joined, as it shadows those of the others:
    /// where none of them `syncs`, as inside `no_sync()`, there is no backward pass to shadow.
    ///
    /// # Errors
    /// As [`Ddp::forward`].
    pub(super) fn shadow(
        &mut self,
        authoritative_rank: u32,
        rank0_order: Option<&[u32]>,
        syncs: bool,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        let Some(reducer) = &mut self.reducer else { return Err(DdpError::EverythingDelayed) };
        reducer.rebuild(rank0_order, calls)?;
        self.sync_buffers(Some(InJoin { authoritative_rank, throw: None, tells: false }), calls);
        calls.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinSync));
        self.require_forward_param_sync = syncs;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| syncs) {
            reducer.shadow_backward(calls)?;
            reducer.push_all_rebuilt();
        }
        Ok(())
    }

    /// The gradient of a parameter is ready, given as its index among those that require grad;
    /// one that DDP ignores or delays is none of the reducer's.
    ///
    /// # Errors
    /// When it was already in this pass.
    pub fn gradient(&mut self, index: u32, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        match self.trained.get(index as usize) {
            Some(&param) => self.gradient_of(param, calls),
            None => Ok(()),
        }
    }

    /// The gradient of a parameter of the model is ready, also of one that is delayed.
    ///
    /// # Errors
    /// As [`Ddp::gradient`].
    pub(crate) fn gradient_of(
        &mut self,
        param: u32,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        // The tensor's own hook runs before its gradient is accumulated, with `no_sync` or without.
        if let Some((hooked, numel)) = self.delayed
            && hooked == param
        {
            calls.push(DdpCall::all_reduce(Dtype::Float32, numel, Purpose::Delayed));
        }
        let index = self.reducer_index.get(param as usize).copied().flatten();
        match (&mut self.reducer, index) {
            (Some(reducer), Some(index)) => reducer.gradient(index, calls),
            _ => Ok(()),
        }
    }

    /// True if the end of this backward pass waits for the collectives that were launched.
    pub(super) fn finalizes(&self) -> bool {
        let delays = self.options.static_graph && !self.static_graph_delay_enqueued;
        self.reducer.as_ref().is_none_or(|reducer| reducer.finalizes(delays))
    }

    /// The backward pass ends: the launched collectives are waited for.
    ///
    /// # Errors
    /// A static graph whose first pass was inside `no_sync()`, or an error of a hook's callback on the
    /// backend.
    pub fn end_backward(&mut self, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        let Some(reducer) = &mut self.reducer else { return Ok(()) };
        if self.options.static_graph && !self.static_graph_delay_enqueued {
            self.static_graph_delay_enqueued = true;
            reducer.delay_all_reduce(calls)?;
        }
        reducer.end_backward()
    }

    /// A whole backward pass with gradients in that order.
    ///
    /// # Errors
    /// As [`Ddp::gradient`].
    pub fn backward(&mut self, order: &[u32], calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        for &index in order {
            self.gradient(index, calls)?;
        }
        self.end_backward(calls)
    }
}

fn sized(index: usize, dtype: Dtype, numel: u64) -> SizedTensor {
    let bytes = numel.saturating_mul(dtype.size_bytes());
    SizedTensor { index: index as u32, dtype, bytes, sparse: false }
}

/// `broadcast_coalesced` (`comm.cpp`): tensors in registration order as flat buffers that are full
/// when they reach `limit` bytes, a type at a time.
pub fn broadcast_coalesced(
    tensors: &[SizedTensor],
    limit: u64,
    root: u32,
    purpose: Purpose,
    calls: &mut Vec<DdpCall>,
) {
    for bucket in assign_by_size(tensors, &[limit], ItemOrder::Registration) {
        let first = bucket.indices.first();
        let first = first.and_then(|index| tensors.iter().find(|tensor| tensor.index == *index));
        let Some(first) = first else { continue };
        let numel = bucket.bytes / first.dtype.size_bytes().max(1);
        calls.push(DdpCall::broadcast(first.dtype, numel, root, purpose));
    }
}

/// `_register_delay_all_reduce_hook`: the delayed parameters are broadcast by themselves, in
/// buffers of `bucket_cap_mb` *bytes* (PyTorch passes MB for bytes), so mostly one by one.
fn delay(model: &Model, options: &DdpOptions, calls: &mut Vec<DdpCall>) -> Option<(u32, u64)> {
    let names = options.delay_all_reduce_named_params.as_ref()?;
    let named = names.iter().filter_map(|name| model.params.iter().find(|p| p.name == *name));
    let delayed: Vec<_> =
        named.zip(0..).map(|(param, index)| sized(index, param.dtype, param.numel())).collect();
    let limit = (options.bucket_cap.cap_bytes() >> 20).max(0) as u64;
    broadcast_coalesced(&delayed, limit, 0, Purpose::ModuleStates, calls);
    let numel = delayed.iter().map(|tensor| tensor.bytes / tensor.dtype.size_bytes().max(1)).sum();
    let hooked = options.param_to_hook_all_reduce.as_ref()?;
    let hooked = (0..).zip(&model.params).find(|(_, param)| param.name == *hooked)?;
    Some((hooked.0, numel))
}

/// The buffer of delayed gradients is float32, whatever they are (`torch.zeros` without a type), and its
/// parts become the parameters' gradients.
fn delayed_type(model: &Model, names: &[String]) -> Option<Dtype> {
    let named = names.iter().filter_map(|name| model.params.iter().find(|p| p.name == *name));
    named.map(|param| param.dtype).find(|dtype| *dtype != Dtype::Float32)
}

/// pybind hands limits over as `size_t`, so that a negative one in Python's list is refused.
fn check_limits(options: &DdpOptions) -> Result<(), DdpError> {
    let caps: &[i64] = match &options.bucket_cap {
        BucketCap::List(list) => list,
        BucketCap::Bytes(bytes) if !options.rebuilds() || options.version == DdpVersion::V1 => {
            &[*bytes]
        }
        _ => &[],
    };
    match caps.iter().find(|bytes| **bytes < 0) {
        Some(&bytes) => Err(DdpError::NegativeLimit { bytes }),
        None => Ok(()),
    }
}
