//! DDP's reducer as a state machine: `c10d::Reducer` (`reducer.cpp`), method by method.
//!
//! Autograd reports each gradient that is ready; the reducer answers with the collectives that it launches.
//! Buckets are launched strictly in the order of their indices, whatever order they fill in.

use super::assignment::{BucketParam, initial_buckets, rebuilt_buckets};
use super::buckets::Bucket;
use super::call::{DdpCall, Purpose};
use super::error::{DdpError, Unfinished};
use super::hook::{CommHook, CompressionStats, GradBucket, HookError, HookState};
use super::options::{DdpOptions, DdpVersion};
use super::sparse::SparseGradients;
use super::zero::OverlapState;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;

/// A parameter of the reducer.
#[derive(Clone, Debug)]
pub(super) struct ReducerParam {
    pub(super) bucket: BucketParam,
    pub(super) shape: Vec<u64>,
    pub(super) name: String,
    /// True if the gradient's kind is not `bucket.sparse`.
    pub(super) unexpected: bool,
}

/// The reducer of one rank.
#[derive(Clone, Debug)]
pub struct Reducer {
    rank: u32,
    params: Vec<ReducerParam>,
    options: DdpOptions,
    /// `TORCH_DISTRIBUTED_DEBUG` is set: errors name parameters.
    debug: bool,
    /// The backend that carries out its collectives, where it is known: hooks raise on some.
    backend: Option<BackendName>,
    hook: Option<HookState>,
    /// The first error of a hook's callback, which the end of the backward pass raises.
    hook_error: Option<DdpError>,
    zero: Option<OverlapState>,
    buckets: Vec<Bucket>,
    /// Per bucket, gradients that are not ready.
    pending: Vec<usize>,
    /// Per parameter, its bucket.
    bucket_of: Vec<usize>,
    next_bucket: usize,
    num_iterations: u64,
    expect_autograd_hooks: bool,
    require_finalize: bool,
    /// Everything has been launched; the end of the backward pass finalizes.
    finalize_queued: bool,
    has_marked_unused: bool,
    unused: Vec<u32>,
    /// `unused_parameter_size` of DDP's log.
    unused_bytes: Option<u64>,
    /// Per parameter, whether it was marked ready in this iteration.
    ready: Vec<bool>,
    /// Per parameter, how often its hook fired in a static graph's first iteration.
    triggered: Vec<u32>,
    triggered_left: Vec<u32>,
    ready_order: Vec<u32>,
    rebuild_order: Vec<u32>,
    has_rebuilt: bool,
    used: Vec<bool>,
    sparse: SparseGradients,
}

impl Reducer {
    pub(super) fn new(rank: u32, params: Vec<ReducerParam>, options: &DdpOptions) -> Reducer {
        let numbers: Vec<_> = params.iter().map(|param| param.bucket).collect();
        let buckets = initial_buckets(&numbers, options);
        let count = params.len();
        let sparse = params.iter().map(|param| (param.bucket.sparse, param.unexpected));
        let sparse = SparseGradients::new(sparse);
        let mut reducer = Reducer {
            rank,
            params,
            options: options.clone(),
            debug: false,
            backend: None,
            hook: None,
            hook_error: None,
            zero: options.zero_overlap.map(OverlapState::new),
            buckets: Vec::new(),
            pending: Vec::new(),
            bucket_of: Vec::new(),
            next_bucket: 0,
            num_iterations: 0,
            expect_autograd_hooks: false,
            require_finalize: false,
            finalize_queued: false,
            has_marked_unused: false,
            unused: Vec::new(),
            unused_bytes: None,
            ready: vec![false; count],
            triggered: vec![0; count],
            triggered_left: vec![0; count],
            ready_order: Vec::new(),
            rebuild_order: Vec::new(),
            has_rebuilt: false,
            used: vec![false; count],
            sparse,
        };
        reducer.initialize_buckets(buckets);
        reducer
    }

    /// Its buckets, in the order in which they are launched.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// True if the buckets have been rebuilt.
    pub(crate) fn has_rebuilt(&self) -> bool {
        self.has_rebuilt
    }

    /// The number of parameters.
    pub fn params(&self) -> usize {
        self.params.len()
    }

    /// The order in which this iteration's gradients became ready so far
    /// (`prev_iteration_grad_ready_order_indices` in DDP's log).
    #[cfg(test)]
    pub(crate) fn ready_order(&self) -> &[u32] {
        &self.ready_order
    }

    /// Per parameter, whether this rank used it in this iteration, as far as that is tracked.
    pub fn used(&self) -> &[bool] {
        &self.used
    }

    /// The parameters that the last forward pass, or a static graph's first backward pass, found
    /// unused.
    pub fn unused(&self) -> &[u32] {
        &self.unused
    }

    /// Those of them that were marked ready in this backward pass: with its first gradient.
    pub(super) fn marked_unused(&self) -> &[u32] {
        if self.has_marked_unused { &self.unused } else { &[] }
    }

    /// Statistics of PowerSGD's compression so far; none without such a hook.
    pub(crate) fn compression_stats(&self) -> Option<CompressionStats> {
        self.hook.as_ref().and_then(HookState::stats)
    }

    pub(super) fn set_debug(&mut self, debug: bool) {
        self.debug = debug;
    }

    pub(super) fn set_backend(&mut self, backend: BackendName) {
        self.backend = Some(backend);
    }

    pub(super) fn register_hook(&mut self, hook: CommHook) -> Result<(), DdpError> {
        if self.hook.is_some() {
            return Err(DdpError::HookTwice);
        }
        self.hook = Some(HookState::new(hook)?);
        Ok(())
    }

    fn initialize_buckets(&mut self, buckets: Vec<Bucket>) {
        self.bucket_of = vec![0; self.params.len()];
        for (index, bucket) in buckets.iter().enumerate() {
            for &param in &bucket.indices {
                if let Some(place) = self.bucket_of.get_mut(param as usize) {
                    *place = index;
                }
            }
        }
        self.pending = buckets.iter().map(|bucket| bucket.indices.len()).collect();
        self.buckets = buckets;
        self.sparse.emptied();
    }

    fn searches_unused(&self) -> bool {
        !self.options.static_graph && self.options.find_unused_parameters
    }

    fn static_graph_first_iteration(&self) -> bool {
        self.options.static_graph && self.num_iterations == 1
    }

    fn static_graph_after_first_iteration(&self) -> bool {
        self.options.static_graph && self.num_iterations > 1
    }

    fn should_rebuild(&self) -> bool {
        self.options.rebuilds() && !self.has_rebuilt
    }

    pub(super) fn prepare_for_forward(&mut self) {
        self.log_unused();
        self.num_iterations += 1;
    }

    /// `Logger::set_runtime_stats_and_log` (`logger.cpp`), which every forward pass that is to
    /// synchronize calls first. The bytes of unused parameters are *added* each time, as long as
    /// there are any; the log is kept up for ten iterations, then at every hundredth.
    fn log_unused(&mut self) {
        let sampled = (1..=10).contains(&self.num_iterations)
            || (self.num_iterations > 0 && self.num_iterations.is_multiple_of(100));
        if !sampled {
            return;
        }
        if self.unused.is_empty() && self.options.find_unused_parameters {
            self.unused_bytes = Some(0);
        }
        let unused = self.unused.iter().filter_map(|index| self.params.get(*index as usize));
        let bytes = unused.map(|p| p.bucket.numel.saturating_mul(p.bucket.dtype.size_bytes()));
        let sum = bytes.fold(0, u64::saturating_add);
        if sum > 0 {
            self.unused_bytes = Some(self.unused_bytes.unwrap_or(0).saturating_add(sum));
        }
    }

    /// `unused_parameter_size` of DDP's log, in bytes: those of all passes so far, added up. None
    /// before the log has it.
    pub(crate) fn unused_parameter_size(&self) -> Option<u64> {
        self.unused_bytes
    }

    /// The order in which the next forward pass would rebuild the buckets; empty if it would not.
    pub(crate) fn rebuild_order(&self) -> &[u32] {
        if self.should_rebuild() { &self.rebuild_order } else { &[] }
    }

    /// `rebuild_buckets`: at the start of a forward pass. All ranks take rank 0's buckets, so those
    /// of `rank0_order` if it is another rank's.
    pub(super) fn rebuild(
        &mut self,
        rank0_order: Option<&[u32]>,
        calls: &mut Vec<DdpCall>,
    ) -> Result<bool, DdpError> {
        self.ensure_prior_reduction_finished()?;
        if !self.should_rebuild() || self.rebuild_order.is_empty() {
            return Ok(false);
        }
        let own = std::mem::take(&mut self.rebuild_order);
        let numbers: Vec<_> = self.params.iter().map(|param| param.bucket).collect();
        let order = rank0_order.filter(|order| !order.is_empty()).unwrap_or(&own);
        let buckets = rebuilt_buckets(&numbers, order, &self.options).unwrap_or_default();
        // `sync_bucket_indices`: every parameter's bucket and the number of buckets, then the
        // buckets' sizes.
        let params = self.params.len() as u64;
        for (numel, purpose) in
            [(params + 1, Purpose::RebuiltIndices), (buckets.len() as u64, Purpose::RebuiltSizes)]
        {
            calls.push(DdpCall::broadcast(Dtype::Int32, numel, 0, purpose));
        }
        self.has_rebuilt = true;
        self.initialize_buckets(buckets);
        Ok(true)
    }

    /// `prepare_for_backward`: at the end of a forward pass that synchronizes. `unused` are the
    /// parameters that the graph of the outputs does not reach.
    pub(super) fn prepare_for_backward(&mut self, unused: &[u32]) {
        self.expect_autograd_hooks = true;
        self.ready_order.clear();
        self.next_bucket = 0;
        self.finalize_queued = false;
        self.pending = self.buckets.iter().map(|bucket| bucket.indices.len()).collect();
        self.triggered_left.clone_from(&self.triggered);
        self.has_marked_unused = false;
        self.ready.fill(false);
        if self.searches_unused() {
            self.unused =
                unused.iter().copied().filter(|i| (*i as usize) < self.params.len()).collect();
        }
    }

    /// `autograd_hook`: the gradient of a parameter has been accumulated.
    pub(super) fn gradient(
        &mut self,
        index: u32,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), DdpError> {
        let place = index as usize;
        if place >= self.params.len() {
            return Ok(());
        }
        self.sparse.came(place);
        if self.searches_unused() || self.static_graph_first_iteration() {
            self.used[place] = true;
        }
        if self.static_graph_first_iteration() {
            self.triggered[place] += 1;
            return Ok(());
        }
        if !self.expect_autograd_hooks {
            return Ok(());
        }
        self.ready_order.push(index);
        if !self.has_marked_unused {
            self.has_marked_unused = true;
            for unused in self.unused.clone() {
                self.mark_ready(unused, calls)?;
            }
        }
        if self.static_graph_after_first_iteration() {
            // A parameter that is used more than once is ready the last time.
            let Some(left) = self.triggered_left[place].checked_sub(1) else {
                return Err(DdpError::StaticGraphChanged);
            };
            self.triggered_left[place] = left;
            if left > 0 {
                return Ok(());
            }
        }
        if self.should_rebuild() {
            self.rebuild_order.push(index);
        }
        self.mark_ready(index, calls)
    }

    fn mark_ready(&mut self, index: u32, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        let place = index as usize;
        if std::mem::replace(&mut self.ready[place], true) {
            // Python has handed the names over since 1.10, whatever it is to print.
            let named = self.debug || self.options.version != DdpVersion::V1;
            let name = named.then(|| self.params[place].name.clone());
            return Err(DdpError::MarkedTwice { index, name });
        }
        self.require_finalize = true;
        self.sparse.mark_ready(place)?;
        let bucket = self.bucket_of[place];
        let pending = self.pending[bucket].saturating_sub(1);
        self.pending[bucket] = pending;
        if pending == 0 && bucket == self.next_bucket {
            while self.pending.get(self.next_bucket) == Some(&0) {
                self.launch(self.next_bucket, calls)?;
                self.next_bucket += 1;
            }
        }
        if self.next_bucket == self.buckets.len() {
            if self.searches_unused() {
                self.reduce_used_map(calls);
            }
            self.finalize_queued = true;
        }
        Ok(())
    }

    fn reduce_used_map(&self, calls: &mut Vec<DdpCall>) {
        let numel = self.params.len() as u64;
        calls.push(DdpCall::all_reduce(Dtype::Int32, numel, Purpose::UsedMap));
    }

    /// `all_reduce_bucket`, by way of the hook if there is one.
    fn launch(&mut self, index: usize, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        let Some(bucket) = self.buckets.get(index) else { return Ok(()) };
        let of = bucket.indices.iter().filter_map(|param| self.params.get(*param as usize));
        let params: Vec<_> = of.collect();
        let Some(first) = params.first() else { return Ok(()) };
        let numel = params.iter().map(|param| param.bucket.numel).fold(0, u64::saturating_add);
        let dtype = first.bucket.dtype;
        let purpose = Purpose::Bucket { bucket: index as u32 };
        match &mut self.hook {
            None => calls.push(DdpCall::all_reduce(dtype, numel, purpose)),
            Some(hook) => {
                let shapes: Vec<&[u64]> = params.iter().map(|p| p.shape.as_slice()).collect();
                let is_last = index + 1 == self.buckets.len();
                let (index, sparse) = (index as u32, first.bucket.sparse);
                let bucket = GradBucket { index, is_last, dtype, numel, sparse, shapes: &shapes };
                match hook.run(&bucket, self.backend, calls) {
                    Err(HookError::AtOnce(error)) => return Err(error),
                    Err(HookError::InCallback(error)) => {
                        self.hook_error.get_or_insert(error);
                    }
                    Ok(()) => {}
                }
            }
        }
        match &mut self.zero {
            Some(zero) if self.has_rebuilt => {
                let numels = params.iter().map(|param| param.bucket.numel).collect();
                zero.after_bucket(index, self.buckets.len(), dtype, numels, calls)
            }
            _ => Ok(()),
        }
    }

    /// `delay_all_reduce`: a static graph's first backward pass reduces everything at its end.
    /// After a first pass inside `no_sync()` it does so too, and then fails an assertion.
    pub(super) fn delay_all_reduce(&mut self, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        self.reduce_used_map(calls);
        let never = self.triggered.iter().zip(0..).filter(|(fired, _)| **fired == 0);
        self.unused = never.map(|(_, index)| index).collect();
        (0..self.params.len()).try_for_each(|place| self.sparse.mark_ready(place))?;
        for index in 0..self.buckets.len() {
            self.launch(index, calls)?;
        }
        if !self.expect_autograd_hooks {
            return Err(DdpError::StaticGraphNoSync);
        }
        self.finalize()
    }

    /// True if the end of this backward pass waits for the collectives that were launched. The reducer queues
    /// `finalize_backward` once every bucket is launched; if one is left over, it never does. A static
    /// graph's first pass `delays` them all, and inside `no_sync()` fails before it waits.
    pub(super) fn finalizes(&self, delays: bool) -> bool {
        let left_over = self.require_finalize && !self.finalize_queued;
        !left_over && (!delays || self.expect_autograd_hooks)
    }

    /// The callbacks at the end of a backward pass.
    ///
    /// # Errors
    /// The error that a hook's callback raised.
    pub(super) fn end_backward(&mut self) -> Result<(), DdpError> {
        if !std::mem::take(&mut self.finalize_queued) {
            return Ok(());
        }
        if self.static_graph_after_first_iteration() && self.should_rebuild() {
            self.rebuild_order.extend(&self.unused);
        }
        self.finalize()
    }

    /// `finalize_backward`, which waits for the launched collectives.
    fn finalize(&mut self) -> Result<(), DdpError> {
        self.expect_autograd_hooks = false;
        self.require_finalize = false;
        if let Some(error) = self.hook_error.take() {
            return Err(error);
        }
        if self.searches_unused() {
            self.used.fill(false);
        }
        Ok(())
    }

    /// `_push_all_rebuilt_params`: a rank that has joined takes the order of registration.
    pub(super) fn push_all_rebuilt(&mut self) {
        if self.should_rebuild() {
            self.rebuild_order.extend(0..self.params.len() as u32);
        }
    }

    /// The collectives of all buckets, as a rank that has joined makes them with zeros.
    ///
    /// # Errors
    /// There are no zeros for a sparse gradient's bucket, or a hook raises: each bucket's future is waited
    /// for behind the last of them.
    pub(super) fn shadow_backward(&mut self, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
        self.sparse.zeros_like_buckets()?;
        for index in 0..self.buckets.len() {
            self.launch(index, calls)?;
        }
        if let Some(error) = self.hook_error.take() {
            return Err(error);
        }
        if self.options.find_unused_parameters {
            self.reduce_used_map(calls);
        }
        Ok(())
    }

    fn ensure_prior_reduction_finished(&self) -> Result<(), DdpError> {
        if !self.require_finalize {
            return Ok(());
        }
        let unmarked = self.ready.iter().zip(0..).filter(|(ready, _)| !**ready);
        let indices: Vec<u32> = unmarked.map(|(_, index)| index).collect();
        // PyTorch goes through a hash table of C++, which has what was put in last at its front.
        let named = indices.iter().rev().filter(|_| self.debug);
        let names = named.map(|i| self.params[*i as usize].name.clone()).collect();
        let cause = match (self.options.static_graph, self.options.find_unused_parameters) {
            (true, _) => Unfinished::GraphChanged,
            (false, true) => Unfinished::OutputsNotInLoss,
            (false, false) => Unfinished::Unused,
        };
        Err(DdpError::Unfinished { rank: self.rank, indices, names, cause })
    }
}
