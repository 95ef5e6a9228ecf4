//! One call of torch.distributed on its own, as a small program: the calls that the lab and the command line
//! offer by name.
//!
//! [`torch_calls`](crate::torch_calls()) lists them all in order; each has a name, a sentence, the backends
//! it works on, the Python text that is shown ([`TorchCall::source`]), and its plan ([`TorchCall::plan`]),
//! which is made by calling [`c10d`](lockstep_torch::c10d) as the text does.

use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::{Device, Dist, Tensor};
use serde::{Deserialize, Serialize};

/// A call of torch.distributed with a small program that shows it.
#[derive(Clone, Copy, Debug)]
pub struct TorchCall {
    /// PyTorch's name: `all_gather_object`.
    pub name: &'static str,
    /// The effect, in a sentence.
    pub about: &'static str,
    /// The backends that carry it out; the first is the default.
    pub backends: &'static [&'static str],
    /// The smallest world that shows it.
    pub min_world_size: u32,
    /// Elements of a rank's tensor at first: enough to show the effect of the call.
    pub(super) count: u64,
    /// The program after the lines that all have, with `{dtype}`, `{count}`, `{device}`, `{op}` and
    /// `{root}` to be filled in.
    pub(super) program: &'static str,
}

/// The options for making a call's program into a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TorchCallOptions {
    /// The number of ranks.
    pub world_size: u32,
    /// Ranks a node; 0 for one node.
    pub ranks_per_node: u32,
    /// Elements of a rank's tensor, or of each part of it.
    pub count: u64,
    /// The element type.
    pub dtype: Dtype,
    /// The backend: `gloo`, `nccl`, `host`, …
    pub backend: String,
    /// The reduction of calls that reduce.
    pub op: ReduceOp,
    /// The root of calls that have one.
    pub root: u32,
    /// The contents of tensors at the start.
    pub fill: Fill,
    /// The timeout of every group, in milliseconds.
    pub timeout_ms: u64,
}

/// The lines that every program begins with.
const HEADER: &str = "\
import torch
import torch.distributed as dist

dist.init_process_group(\"{backend}\")
rank, world_size = dist.get_rank(), dist.get_world_size()

";

/// The header for tensors on a GPU, which each process must choose for itself: NCCL refuses two ranks on one,
/// and `device="cuda"` is the current one.
const CUDA_HEADER: &str = "\
import os
import torch
import torch.distributed as dist

local_rank = int(os.environ[\"LOCAL_RANK\"])
torch.cuda.set_device(local_rank{gpus})
dist.init_process_group(\"{backend}\"{bound})
rank, world_size = dist.get_rank(), dist.get_world_size()

";

/// The options that a call's program has a place for; the others change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heeds {
    /// [`TorchCallOptions::count`].
    pub count: bool,
    /// [`TorchCallOptions::dtype`].
    pub dtype: bool,
    /// [`TorchCallOptions::op`].
    pub op: bool,
    /// [`TorchCallOptions::root`].
    pub root: bool,
}

impl TorchCall {
    /// The options that affect the call.
    pub fn heeds(&self) -> Heeds {
        let has = |place: &str| self.program.contains(place);
        Heeds { count: has("{count}"), dtype: has("{dtype}"), op: has("{op}"), root: has("{root}") }
    }

    /// The options for its default backend: four ranks (more if it needs them), float32.
    pub fn options(&self) -> TorchCallOptions {
        TorchCallOptions {
            world_size: self.min_world_size.max(4),
            ranks_per_node: 0,
            count: self.count,
            dtype: Dtype::Float32,
            backend: self.backends.first().copied().unwrap_or("gloo").to_owned(),
            op: ReduceOp::Sum,
            root: 0,
            fill: Fill::Iota,
            timeout_ms: 10_000,
        }
    }

    /// The program as it would be run with PyTorch.
    pub fn source(&self, options: &TorchCallOptions) -> String {
        let cuda = on_device(&options.backend);
        let or_nothing = |there: bool, text: &'static str| if there { text } else { "" };
        let device = or_nothing(cuda, ", device=\"cuda\"");
        // The forms of several GPUs a process use two.
        let several = self.program.contains("{gpu}");
        let gpu = or_nothing(cuda, ", device=f\"cuda:{2 * local_rank + i}\"");
        let bound = ", device_id=torch.device(\"cuda\", local_rank)";
        let is_success = match cuda {
            true => {
                "# NCCL's work.is_success() raises NotImplementedError: \
                 WorkNCCL::isSuccess() is deprecated\n"
            }
            false => "work.is_success()\n",
        };
        let header = if cuda { CUDA_HEADER } else { HEADER };
        format!("{header}{}", self.program)
            .replace("{gpus}", or_nothing(several, " * 2"))
            .replace("{bound}", or_nothing(self.binds_device(), bound))
            .replace("{gpu}", gpu)
            .replace("{is_success}", is_success)
            .replace("{backend}", &options.backend)
            .replace("{dtype}", &format!("torch.{}", options.dtype))
            .replace("{count}", &options.count.to_string())
            .replace("{device_type}", if device.is_empty() { "cpu" } else { "cuda" })
            .replace("{device}", device)
            .replace("{op}", &options.op.python())
            .replace("{root}", &options.root.to_string())
    }

    /// True if the processes bind themselves to their GPUs at the beginning.
    pub(super) fn binds_device(&self) -> bool {
        self.name == "split_group"
    }
}

pub(super) fn on_device(backend: &str) -> bool {
    backend.contains("nccl")
}

/// A program being carried out on one rank, with the lines of its text.
pub(super) struct Script<'a, 'j> {
    pub(super) dist: &'a mut Dist<'j>,
    pub(super) text: &'a str,
    pub(super) source: u32,
    pub(super) options: &'a TorchCallOptions,
}

impl<'j> Script<'_, 'j> {
    /// The next call is at the first line that has these words.
    pub(super) fn on(&mut self, words: &str) -> &mut Dist<'j> {
        let lines = (1..).zip(self.text.lines());
        let line = lines.filter(|(_, line)| line.contains(words)).map(|(line, _)| line).next();
        if let Some(line) = line {
            self.dist.at(self.source, line);
        }
        self.dist
    }

    /// This rank.
    pub(super) fn rank(&self) -> u32 {
        self.dist.process().0
    }

    /// A tensor of the program's type on its device that holds the options' fill.
    pub(super) fn filled(&mut self, name: &str, numel: u64) -> Tensor {
        self.tensor(name, numel, self.options.fill)
    }

    /// A tensor of the program's type on its device that holds zeros.
    pub(super) fn empty(&mut self, name: &str, numel: u64) -> Tensor {
        self.tensor(name, numel, Fill::Zeros)
    }

    /// The device of the program's tensors.
    pub(super) fn device(&self) -> Device {
        match on_device(&self.options.backend) {
            true => Device::Cuda,
            false => Device::Cpu,
        }
    }

    fn tensor(&mut self, name: &str, numel: u64, fill: Fill) -> Tensor {
        let device = self.device();
        self.dist.tensor_on(device, name, self.options.dtype, numel, fill)
    }

    /// A list of tensors of `count` elements.
    pub(super) fn list(&mut self, name: &str, length: u32, fill: Fill) -> Vec<Tensor> {
        let count = self.options.count;
        (0..length).map(|i| self.tensor(&format!("{name}[{i}]"), count, fill)).collect()
    }
}

/// A mesh's dimension by name.
pub(super) fn dim(name: &str) -> Option<lockstep_torch::c10d::MeshDim<'_>> {
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{torch_call, torch_calls};
    use lockstep_core::plan::Plan;

    /// Every call of the table, on every backend it names and some world sizes, is a plan whose operations
    /// point at lines that name the calls.
    #[test]
    fn every_call_is_a_plan_on_every_backend_it_names() {
        for call in torch_calls() {
            for backend in call.backends {
                for world_size in [2, 4, 6] {
                    if world_size < call.min_world_size {
                        continue;
                    }
                    let options = TorchCallOptions {
                        world_size,
                        backend: (*backend).to_owned(),
                        ..call.options()
                    };
                    let plan = call.plan(&options);
                    let plan =
                        plan.unwrap_or_else(|error| panic!("{} {backend}: {error}", call.name));
                    let ops = plan.programs.iter().flat_map(|program| &program.ops);
                    assert!(ops.clone().count() > 0, "{}", call.name);
                    let lines: Vec<&str> = plan.sources[0].text.lines().collect();
                    for op in ops {
                        let line = lines[op.at.unwrap().line as usize - 1];
                        let name = op.via.as_deref().unwrap_or(op.action.name());
                        assert!(
                            line.contains(name) || line.contains("work."),
                            "{}: {name} at {line:?}",
                            call.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_can_be_found() {
        for call in torch_calls() {
            assert_eq!(torch_call(call.name).map(|found| found.about), Some(call.about));
        }
        assert!(torch_call("all_reduce_somehow").is_none());
    }

    #[test]
    fn what_a_backend_refuses_is_said_in_pytorchs_words() {
        let refusal = |name: &str, change: fn(&mut TorchCallOptions)| {
            let call = torch_call(name).unwrap();
            let mut options = call.options();
            change(&mut options);
            call.plan(&options).unwrap_err().to_string()
        };
        insta::assert_snapshot!([
            refusal("all_to_all", |options| options.backend = "gloo".into()),
            refusal("reduce_scatter", |options| options.backend = "gloo".into()),
            refusal("monitored_barrier", |options| options.backend = "nccl".into()),
            refusal("all_reduce", |options| options.op = ReduceOp::Avg),
            refusal("all_reduce", |options| options.dtype = Dtype::Int16),
            refusal("broadcast", |options| options.root = 9),
            refusal("all_gather_coalesced", |options| options.backend = "nccl".into()),
            refusal("barrier", |options| options.backend = "foo".into()),
        ].join("\n"), @r"
    ranks 0-3: RuntimeError: Backend gloo does not support alltoall (all_to_all_single works on gloo.)
    ranks 0-3: RuntimeError: ProcessGroupGloo does not support reduce_scatter (reduce_scatter_tensor works on gloo.)
    ranks 0-3: ValueError: monitored_barrier is only implemented for GLOO backend.
    ranks 0-3: RuntimeError: Cannot use ReduceOp.AVG with Gloo
    ranks 0-3: RuntimeError: Invalid scalar type
    ranks 0-3: RuntimeError: ProcessGroupGloo::broadcast: invalid root rank: 9 (The group's ranks are 0 to 3.)
    ranks 0-3: NotImplementedError: ProcessGroupNCCL does not support allgather_coalesced
    ranks 0-3: AssertionError: Unknown backend type foo (The backends are gloo, nccl, mpi, and Lockstep's own host.)
    ");
    }

    #[test]
    fn the_plan_of_every_call_reads_back_in_both_forms() {
        for call in torch_calls() {
            let plan = call.plan(&TorchCallOptions { world_size: 6, ..call.options() }).unwrap();
            assert_eq!(Plan::read(plan.to_json().as_bytes()).unwrap(), plan);
            assert_eq!(Plan::read(&plan.to_bytes()).unwrap(), plan);
        }
    }
}
