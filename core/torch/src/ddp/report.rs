//! DDP's work on a model, as one document: its buckets, and every collective of the constructor and
//! the first iterations.

use super::buckets::Bucket;
use super::call::DdpCall;
use super::error::DdpError;
use super::hook::{CommHook, CompressionStats};
use super::join::JoinedRank;
use super::model::Model;
use super::notes::Half;
use super::options::DdpOptions;
use super::plan::passes::unused;
use super::wrapper::{Ddp, Forward};
use lockstep_core::group::BackendName;
use serde::Serialize;

/// DDP's work on a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DdpReport {
    /// The model's name.
    pub model: String,
    /// The number of ranks; no number here depends on it but the mean's divisor.
    pub world_size: u32,
    /// The PyTorch whose rules are followed.
    pub version: &'static str,
    /// The cap in bytes.
    pub cap_bytes: i64,
    /// The limit of the first bucket in bytes.
    pub first_bytes: i64,
    /// `find_unused_parameters`.
    pub find_unused_parameters: bool,
    /// `static_graph`.
    pub static_graph: bool,
    /// `broadcast_buffers`.
    pub broadcast_buffers: bool,
    /// `init_sync`.
    pub init_sync: bool,
    /// `DDP_SET_LAST_BUCKET_CAP=1`.
    pub set_last_bucket_cap: bool,
    /// The communication hook, as `lockstep ddp` calls it.
    pub comm_hook: Option<String>,
    /// The parameters of each bucket before the rebuild, as indices among those that require grad,
    /// in the order in which buckets are launched.
    pub initial: Vec<Vec<u32>>,
    /// Their sizes.
    pub initial_bytes: Vec<u64>,
    /// The buckets after the rebuild; `None` when buckets are never rebuilt.
    pub rebuilt: Option<Vec<Vec<u32>>>,
    /// Their sizes.
    pub rebuilt_bytes: Option<Vec<u64>>,
    /// The order in which gradients become ready.
    pub grad_ready_order: Vec<u32>,
    /// Every collective, in order.
    pub collectives: Vec<ReportedCall>,
    /// Statistics of PowerSGD's compression by the end; none without such a hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionStats>,
    /// The error that DDP raises, if it does; nothing is issued after that.
    pub error: Option<String>,
    /// The place in the run where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_at: Option<ErrorAt>,
}

/// The place in the run where DDP raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorAt {
    /// The iteration, counted from 1.
    pub iteration: u32,
    /// The half of the pass.
    pub phase: Half,
}

/// A collective, and where in the run it is issued.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReportedCall {
    /// The iteration, counted from 1; 0 for the constructor.
    pub iteration: u32,
    /// The part of the pass.
    pub phase: Phase,
    /// The call.
    #[serde(flatten)]
    pub call: DdpCall,
    /// Bytes of its tensor.
    pub bytes: u64,
}

/// A part of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Inside DDP's constructor.
    Construction,
    /// Between calling the module and its return.
    Forward,
    /// During `loss.backward()`.
    Backward,
    /// During `optimizer.step()` of a sharded optimizer, inside `Join`.
    Optimizer,
    /// Inside `join()`, when the rank has no inputs left.
    Joined,
}

impl DdpReport {
    /// Constructs DDP and runs that many iterations over gloo. Parameters that the ready order leaves out are
    /// unused.
    ///
    /// # Errors
    /// The error that DDP's constructor raises.
    pub fn of(
        model: &Model,
        options: &DdpOptions,
        world_size: u32,
        iterations: u32,
    ) -> Result<DdpReport, DdpError> {
        DdpReport::accumulating(model, options, world_size, BackendName::Gloo, iterations, 1)
    }

    /// Constructs DDP on a backend and runs `iterations` iterations. All but the last of every `accumulate`
    /// iterations, and of all, are inside `no_sync()`.
    ///
    /// # Errors
    /// The error that DDP's constructor raises.
    pub fn accumulating(
        model: &Model,
        options: &DdpOptions,
        world_size: u32,
        backend: BackendName,
        iterations: u32,
        accumulate: u32,
    ) -> Result<DdpReport, DdpError> {
        options.check(world_size)?;
        let (ddp, calls) = Ddp::new(0, model, options)?;
        let mut ddp = ddp.on(backend);
        let buckets = |ddp: &Ddp| ddp.reducer().map(|reducer| reducer.buckets().to_vec());
        let initial = buckets(&ddp).unwrap_or_default();
        let mut report = DdpReport {
            model: model.name.clone(),
            world_size,
            version: options.version.name(),
            cap_bytes: options.bucket_cap.cap_bytes(),
            first_bytes: options.first_bytes(),
            find_unused_parameters: options.find_unused_parameters,
            static_graph: options.static_graph,
            broadcast_buffers: options.broadcast_buffers,
            init_sync: options.init_sync,
            set_last_bucket_cap: options.set_last_bucket_cap,
            comm_hook: options.comm_hook.as_ref().map(CommHook::name),
            initial_bytes: bytes(&initial),
            initial: indices(initial),
            rebuilt: None,
            rebuilt_bytes: None,
            grad_ready_order: Vec::new(),
            collectives: Vec::new(),
            compression: None,
            error: None,
            error_at: None,
        };
        report.add(0, Phase::Construction, &calls);
        for iteration in 1..=iterations {
            let mut calls = Vec::new();
            let backward = model.backward_in(iteration - 1);
            let unused = unused(model, &backward);
            let order: Vec<u32> = backward.into_iter().flat_map(|(_, ready)| ready).collect();
            let sync = iteration.is_multiple_of(accumulate.max(1)) || iteration == iterations;
            let forward = Forward { sync, unused: &unused, ..Forward::default() };
            let mut phase = Half::Forward;
            let mut passed = ddp.forward(&forward, &mut calls);
            report.add(iteration, Phase::Forward, &calls);
            calls.clear();
            if passed.is_ok() {
                phase = Half::Backward;
                passed = ddp.backward(&order, &mut calls);
                report.add(iteration, Phase::Backward, &calls);
            }
            if let Err(error) = passed {
                report.error = Some(format!("{}: {error}", error.class()));
                report.error_at = Some(ErrorAt { iteration, phase });
                break;
            }
        }
        if ddp.reducer().is_some_and(|reducer| reducer.has_rebuilt()) {
            let rebuilt = buckets(&ddp).unwrap_or_default();
            report.rebuilt_bytes = Some(bytes(&rebuilt));
            report.rebuilt = Some(indices(rebuilt));
        }
        report.compression = ddp.reducer().and_then(|reducer| reducer.compression_stats());
        report.grad_ready_order = model.grad_ready_order();
        Ok(report)
    }

    /// The collectives become those of rank 0 inside `join()`.
    pub fn in_join(&mut self, rank0: &JoinedRank) {
        self.collectives.retain(|call| call.phase == Phase::Construction);
        let mut last = 0;
        for (iteration, step) in (1..).zip(&rank0.iterations) {
            self.add(iteration, Phase::Forward, &step.forward);
            self.add(iteration, Phase::Backward, &step.backward);
            self.add(iteration, Phase::Optimizer, &step.optimizer);
            last = iteration;
        }
        self.add(last + 1, Phase::Joined, &rank0.after);
    }

    fn add(&mut self, iteration: u32, phase: Phase, calls: &[DdpCall]) {
        let reported = calls.iter().map(|call| {
            let bytes = call.bytes();
            ReportedCall { iteration, phase, call: *call, bytes }
        });
        self.collectives.extend(reported);
    }

    /// The collectives of a part of the run.
    pub fn calls(&self, iteration: u32, phase: Phase) -> impl Iterator<Item = &DdpCall> {
        let of = move |call: &&ReportedCall| (call.iteration, call.phase) == (iteration, phase);
        self.collectives.iter().filter(of).map(|reported| &reported.call)
    }
}

fn indices(buckets: Vec<Bucket>) -> Vec<Vec<u32>> {
    buckets.into_iter().map(|bucket| bucket.indices).collect()
}

fn bytes(buckets: &[Bucket]) -> Vec<u64> {
    buckets.iter().map(|bucket| bucket.bytes).collect()
}
