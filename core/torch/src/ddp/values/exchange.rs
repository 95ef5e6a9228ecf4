//! The calls that ranks make in one go, with values, as a plan; and the places of its results.

use super::state::{Pass, RankValues, Trainer};
use crate::ddp::averaging::Scaling;
use crate::ddp::{DdpCall, DdpOp, Purpose};
use half::{bf16, f16};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{
    Action, Call, Fill, Op, Plan, PlanError, Program, Tensor, TensorData, TensorId,
};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::Algorithm;

/// A plan whose tensors hold the data that each rank communicates.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The plan. Every rank has tensors and a program of its own.
    pub plan: Plan,
    pub(super) slots: Vec<Slot>,
}

/// A tensor whose result belongs somewhere.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) rank: GlobalRank,
    pub(super) tensor: TensorId,
    pub(super) contents: Contents,
}

/// The place of a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Contents {
    /// The gradients of a bucket, as indices among the parameters that require grad.
    Bucket { indices: Vec<u32>, dtype: Dtype },
    /// Parameters of the model.
    States { params: Vec<u32> },
    /// The flags of the parameters that any rank used.
    UsedMap,
}

/// Writes an exchange, rank by rank.
pub(super) struct Writer {
    plan: Plan,
    slots: Vec<Slot>,
}

impl Writer {
    pub(super) fn new(
        name: String,
        world_size: u32,
        backend: BackendName,
    ) -> Result<Writer, PlanError> {
        let world = ProcessGroup::world(world_size, backend).map_err(|_| PlanError::EmptyWorld)?;
        let plan = Plan {
            name,
            world_size,
            ranks_per_node: 0,
            groups: vec![world],
            tensors: Vec::new(),
            programs: Vec::new(),
            program_of: Vec::new(),
            sources: Vec::new(),
            schedules: Vec::new(),
            callers: Vec::new(),
        };
        Ok(Writer { plan, slots: Vec::new() })
    }

    pub(super) fn finish(self) -> Result<Exchange, PlanError> {
        self.plan.check()?;
        Ok(Exchange { plan: self.plan, slots: self.slots })
    }

    /// The program of a rank that issues these calls: buckets go on in the background and are waited
    /// for at the end, as `finalize_backward` does.
    pub(super) fn rank(
        &mut self,
        trainer: &Trainer,
        own: &RankValues,
        rank: GlobalRank,
        calls: &[DdpCall],
        pass: Option<&Pass>,
    ) {
        let (mut ops, mut launched) = (Vec::new(), Vec::new());
        let mut states = own.ddp.state_buckets().into_iter();
        for call in calls {
            let (name, data, contents) = match call.purpose {
                Purpose::Bucket { bucket } => {
                    let found = own.ddp.reducer().and_then(|r| r.buckets().get(bucket as usize));
                    let indices = found.map(|bucket| bucket.indices.clone()).unwrap_or_default();
                    let data = bucket_bytes(trainer, own, &indices, call.dtype, pass.is_none());
                    let contents = pass.map(|_| Contents::Bucket { indices, dtype: call.dtype });
                    (format!("bucket {bucket}"), data, contents)
                }
                Purpose::ModuleStates => {
                    let params = states.next().map(|bucket| bucket.indices).unwrap_or_default();
                    let values = params.iter().filter_map(|i| own.params.get(*i as usize));
                    let data = values.flatten().flat_map(|value| value.to_le_bytes()).collect();
                    ("module states".into(), data, Some(Contents::States { params }))
                }
                Purpose::UsedMap => {
                    let used = |index| {
                        let ready = pass.map(|pass| pass.gradients.as_slice()).unwrap_or_default();
                        i32::from(ready.iter().any(|(ready, _)| *ready == index))
                    };
                    let flags = (0..own.grads.len() as u32).map(used);
                    let data = flags.flat_map(i32::to_le_bytes).collect();
                    let contents = pass.map(|_| Contents::UsedMap);
                    ("used parameters".into(), data, contents)
                }
                _ => {
                    let (name, data) = agreement_bytes(trainer, own, rank, call, pass);
                    (name.to_owned(), data, None)
                }
            };
            let name = format!("{name} of rank {}", rank.0);
            let tensor = self.tensor(name, call.dtype, call.numel, data);
            if let Some(contents) = contents {
                self.slots.push(Slot { rank, tensor, contents });
            }
            let async_op = matches!(call.purpose, Purpose::Bucket { .. });
            if async_op {
                launched.push(ops.len() as u32);
            }
            ops.push(Action::call(self.collective(call, tensor, rank), async_op));
        }
        ops.extend(launched.into_iter().map(|op| Action::Wait { op, timeout_ms: None }));
        let ops = ops.into_iter().map(|action| Op::new(action, None)).collect();
        self.plan.program_of.push(self.plan.programs.len() as u32);
        self.plan.programs.push(Program { ops });
    }

    fn tensor(&mut self, name: String, dtype: Dtype, numel: u64, data: Vec<u8>) -> TensorId {
        let (fill, data) = (Fill::Data, TensorData(data));
        self.plan.tensors.push(Tensor { name, dtype, numel, fill, data });
        TensorId(self.plan.tensors.len() as u32 - 1)
    }

    fn collective(&mut self, call: &DdpCall, tensor: TensorId, rank: GlobalRank) -> Call {
        let collective = match call.op {
            DdpOp::AllReduce { reduce_op } => Collective::AllReduce { op: reduce_op },
            DdpOp::Broadcast { root } => Collective::Broadcast { root: GroupRank(root) },
            DdpOp::AllGather => Collective::AllGather,
        };
        let (mut input, mut output) = (None, Some(tensor));
        if call.op == DdpOp::AllGather {
            let all = call.numel.saturating_mul(u64::from(self.plan.world_size));
            let name = format!("gathered by rank {}", rank.0);
            (input, output) = (Some(tensor), Some(self.tensor(name, call.dtype, all, Vec::new())));
        }
        // gloo's order of additions; NCCL's default here is a ring.
        let gloo = self.plan.groups.first().is_some_and(|g| g.backend() == BackendName::Gloo);
        let algorithm = (gloo && Algorithm::of(collective).contains(&Algorithm::GlooRing))
            .then_some(Algorithm::GlooRing);
        Call::Collective {
            group: GroupId::WORLD,
            collective,
            count: call.numel,
            input,
            output,
            algorithm,
            channels: None,
            segments: None,
            schedule: None,
            splits: None,
        }
    }
}

/// The gradients of a bucket as they are when it is launched: scaled, and of the type that the hook
/// casts them to. Zeros for a rank that has joined, and for gradients that are not defined.
fn bucket_bytes(
    trainer: &Trainer,
    own: &RankValues,
    indices: &[u32],
    dtype: Dtype,
    joined: bool,
) -> Vec<u8> {
    let hook = trainer.options.comm_hook.is_some();
    let mut bucket = Vec::new();
    for &index in indices {
        let gradient = own.grads.get(index as usize).and_then(Option::as_ref).filter(|_| !joined);
        let Some(gradient) = gradient else {
            let param = trainer.trained.get(index as usize).and_then(|i| own.params.get(*i));
            bucket
                .resize(bucket.len() + param.map_or(0, Vec::len) * dtype.size_bytes() as usize, 0);
            continue;
        };
        let mut bytes = elements(dtype, &gradient.values);
        // Hooks divide the whole bucket, in its own type.
        let scaling = match hook {
            true => Scaling::Divide,
            false => {
                let view = trainer.options.gradient_as_bucket_view;
                Scaling::of(view, gradient.in_bucket, false)
            }
        };
        scaling.apply(dtype, trainer.divisor(), &mut bytes);
        bucket.extend(bytes);
    }
    bucket
}

/// The bytes that a rank passes to a call by which ranks agree on something.
fn agreement_bytes(
    trainer: &Trainer,
    own: &RankValues,
    rank: GlobalRank,
    call: &DdpCall,
    pass: Option<&Pass>,
) -> (&'static str, Vec<u8>) {
    let buckets = own.ddp.reducer().map(|reducer| reducer.buckets()).unwrap_or_default();
    let whole = |numbers: Vec<u32>| numbers.into_iter().flat_map(u32::to_le_bytes).collect();
    let float = |yes: bool| f32::from(u8::from(yes)).to_le_bytes().to_vec();
    match call.purpose {
        Purpose::ParamCount => {
            ("number of parameters", (trainer.trained.len() as i64).to_le_bytes().to_vec())
        }
        Purpose::RebuiltIndices => {
            let indices = buckets.iter().flat_map(|bucket| bucket.indices.iter().copied());
            ("bucket indices", whole(indices.chain([buckets.len() as u32]).collect()))
        }
        Purpose::RebuiltSizes => {
            let sizes = buckets.iter().map(|bucket| bucket.indices.len() as u32);
            ("bucket sizes", whole(sizes.collect()))
        }
        Purpose::JoinPresence => ("presence", float(pass.is_some())),
        Purpose::JoinSync => ("gradients to reduce", float(pass.is_some_and(|pass| pass.sync))),
        Purpose::JoinRank => {
            let active = trainer.active.contains(&rank.0);
            let authority = if active { i64::from(rank.0) } else { -1 };
            ("authoritative rank", authority.to_le_bytes().to_vec())
        }
        _ => ("sizes and strides", Vec::new()),
    }
}

/// Floats as little-endian elements of a type, rounded to the nearest.
fn elements(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::Float16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        Dtype::Bfloat16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// The floats that little-endian elements of a type are.
pub(super) fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::Float16 => {
            bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()
        }
        Dtype::Bfloat16 => {
            bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()
        }
        _ => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    }
}
