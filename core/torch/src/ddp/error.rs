//! DDP's refusals, in PyTorch's words (`reducer.cpp`, `distributed.py`, `join.py`; most recorded in
//! `ddp_errors.json` and `ddp_cases.json`).

use lockstep_core::dtype::Dtype;

/// An error that DDP raises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the texts name")]
pub enum DdpError {
    /// `distributed.py`, constructor.
    #[error(
        "DistributedDataParallel is not needed when a module doesn't have any parameter that \
         requires a gradient."
    )]
    NothingToTrain,
    /// `distributed.py`, constructor, when every parameter is delayed or ignored.
    #[error(
        "DistributedDataParallel's input module must be on the same type of devices, but input \
         module parameters locate in set()."
    )]
    NoParameters,
    /// `distributed.py`, constructor.
    #[error(
        "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
    )]
    DelayWithoutHook,
    /// `distributed.py`, the end of the first forward pass: gradients that are delayed lie in one
    /// buffer of float32 (2.7.1's text).
    #[error(
        "attempting to assign a gradient with dtype 'float' to a tensor with dtype '{}'. Please \
         ensure that the gradient and the tensor have the same dtype",
        cpp_name(*.dtype)
    )]
    DelayedType { dtype: Dtype },
    /// `distributed.py`, constructor: a lazy module that has seen no batch.
    #[error(
        "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a \
         dummy forward pass to correctly initialize the modules"
    )]
    Uninitialized,
    /// A forward pass after the constructor returned early because everything is delayed; a defect
    /// of PyTorch 2.7.
    #[error("'DistributedDataParallel' object has no attribute '_use_python_reducer'")]
    EverythingDelayed,
    /// `distributed.py`, constructor, since 1.8.
    #[error("device_ids can only be None or contain a single element.")]
    DeviceIds,
    /// `distributed.py`, constructor, since 1.8: `device_ids` of a module on the CPU.
    #[error(
        "DistributedDataParallel device_ids and output_device arguments only work with \
         single-device/multiple-device GPU modules or CPU modules, but got device_ids {device_ids:?}, \
         output_device None, and module parameters {{device(type='cpu')}}."
    )]
    DeviceIdsOnCpu { device_ids: Vec<u32> },
    /// `ProcessGroupGloo.cpp`, at the first tensor of a type that gloo does not know.
    #[error("Invalid scalar type")]
    InvalidScalarType,
    /// `verify_params_across_processes` (`utils`, `reducer.cpp`).
    #[error(
        "DDP expects same model across all ranks, but Rank {rank} has {own} params, while rank \
         {other} has inconsistent {others} params."
    )]
    ParamCount { rank: u32, own: u64, other: u32, others: u64 },
    /// The same; raised on the ranks that differ from rank 0.
    #[error(
        "[{rank}]: params[{param}] in this process with sizes {sizes:?} appears not to match \
         sizes of the same param in process 0."
    )]
    ParamShape { rank: u32, param: usize, sizes: Vec<u64> },
    /// The cap does not fit the `size_t` that pybind asks for (2.7.1's text, which goes on with the
    /// values of all parameters).
    #[error(
        "_compute_bucket_assignment_by_size(): incompatible function arguments. The following \
         argument types are supported:\n    1. (tensors: list[torch.Tensor], bucket_size: list[int], \
         expect_sparse_gradient: list[bool] = [], tensor_indices: list[int] = [], logger: \
         Optional[torch._C._distributed_c10d.Logger] = None) -> tuple[list[list[int]], \
         list[int]]\n\nInvoked with: …, [{bytes}], …"
    )]
    NegativeLimit { bytes: i64 },
    /// `Reducer::ensure_prior_reduction_finished`.
    #[error("{}", unfinished(*.rank, .indices, .names, *.cause))]
    Unfinished { rank: u32, indices: Vec<u32>, names: Vec<String>, cause: Unfinished },
    /// `Reducer::checkAndRaiseMarkedTwiceError`.
    #[error("{}", marked_twice(*.index, .name.as_deref()))]
    MarkedTwice { index: u32, name: Option<String> },
    /// `Reducer::mark_variable_ready_sparse`.
    #[error("Expected sparse gradient to be defined.")]
    SparseUndefined,
    /// As above, for a gradient that is dense.
    #[error("Expected variable to have sparse gradient.")]
    SparseExpected,
    /// `Reducer::mark_variable_ready_dense`, of a gradient that is sparse.
    #[error("Cannot access storage of SparseTensorImpl")]
    SparseStorage,
    /// `_get_zeros_like_grad_buckets`, of a rank that has joined: `at::zeros_like` of nothing.
    #[error(
        "Expected a proper Tensor but got None (or an undefined Tensor in C++) for argument #0 'self'"
    )]
    ZerosLikeUndefined,
    /// `Reducer::autograd_hook`: a gradient that came less often in a static graph's first pass.
    #[error(
        "Your training graph has changed in this iteration, e.g., one parameter is unused in first \
         iteration, but then got used in the second iteration. this is not compatible with \
         static_graph set to True."
    )]
    StaticGraphChanged,
    /// `Reducer::finalize_backward`, when a static graph's first pass was inside `no_sync()`; a
    /// defect of PyTorch 2.7.
    #[error(
        "expect_autograd_hooks_ INTERNAL ASSERT FAILED at \
         \"/pytorch/torch/csrc/distributed/c10d/reducer.cpp\":1633, please report a bug to PyTorch. "
    )]
    StaticGraphNoSync,
    /// `Reducer::finalize_backward`, for an error in a communication hook's future; Python's own text goes on
    /// with the places in its files.
    #[error("Got the following error when running the callback: RuntimeError: {}{error}", again(*.wrapped))]
    Callback {
        error: CallbackError,
        /// True if a wrapper's callback raises the error too.
        wrapped: bool,
    },
    /// A hook that works on the flat tensor of a bucket, given a sparse gradient (recorded:
    /// `hook_errors.json`); PyTorch's own text goes on with the backends that have the operation.
    #[error(
        "Could not run '{operation}' with arguments from the 'Sparse{}' backend. This could be \
         because the operator doesn't exist for this backend, or was omitted during the \
         selective/custom build process (if using custom build).",
        if *.cpu { "CPU" } else { "CUDA" }
    )]
    SparseBucket { operation: &'static str, cpu: bool },
    /// `powerSGD_hook`, of a parameter whose first dimension is empty.
    #[error(
        "cannot reshape tensor of 0 elements into shape [0, -1] because the unspecified dimension \
         size -1 can be any value and is ambiguous"
    )]
    EmptyMatrix,
    /// `powerSGD_hook`, of a parameter without dimensions.
    #[error("tuple index out of range")]
    ScalarGradient,
    /// `_passing_sync_batchnorm_handle` (`distributed.py`).
    #[error("SyncBatchNorm layers only work with GPU modules")]
    SyncBatchNormOnCpu,
    /// `Reducer::register_comm_hook`.
    #[error("register_comm_hook or register_builtin_comm_hook can only be called once.")]
    HookTwice,
    /// `PowerSGDState`.
    #[error(
        "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, \
         because PowerSGD can only be applied after the first two iterations in DDP."
    )]
    PowerSgdStart,
    /// `hook_with_zero_step`, `hook_with_zero_step_interleaved`.
    #[error(
        "Overlapping DDP with ZeRO using this approach currently requires NCCL/HCCL backend to \
         avoid hangs"
    )]
    ZeroOverlapBackend,
    /// `ZeroRedundancyOptimizer._verify_same_dense_param_type`, of the first parameter and of the
    /// first that differs.
    #[error(
        "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got \
         both {} and {}",
        type_name(*.first, *.cpu),
        type_name(*.other, *.cpu)
    )]
    ZeroTypes { first: Dtype, other: Dtype, cpu: bool },
    /// `ZeroRedundancyOptimizer._get_min_index`, when a bucket has more pieces than there are ranks.
    #[error("All indices are disallowed")]
    ZeroMorePieces,
    /// `PeriodicModelAverager`.
    #[error("Arg ``period`` must be a positive value.")]
    AveragerPeriod,
    /// `HierarchicalModelAverager`.
    #[error("Arg ``period_group_size_dict`` must not be empty.")]
    AveragerEmpty,
    /// `HierarchicalModelAverager`.
    #[error("The minimum period in arg ``period_group_size_dict`` must be a positive value.")]
    AveragerSmallestPeriod,
    /// `HierarchicalModelAverager`.
    #[error(
        "The last value in arg ``period_process_group_dict`` {last} must be equal to the size of \
         arg ``process_group`` {world_size}."
    )]
    AveragerLastGroup { last: u32, world_size: u32 },
    /// `dist.new_subgroups`, which makes the subgroups of post-localSGD and of averagers.
    #[error("The arg 'group_size' ({group_size}) must be positive")]
    SubgroupZero { group_size: u32 },
    /// `dist.new_subgroups`.
    #[error("The arg 'group_size' ({group_size}) must not exceed the world size ({world_size})")]
    SubgroupTooLarge { group_size: u32, world_size: u32 },
    /// `dist.new_subgroups`.
    #[error("The world size must be divisible by 'group_size'")]
    SubgroupUneven,
    /// `Join`.
    #[error("The join context manager requires at least one joinable")]
    NoJoinables,
    /// `Join._notify_procs_to_terminate`.
    #[error("Rank {rank} exhausted all inputs.")]
    Exhausted { rank: u32 },
    /// `Join.notify_join_context`.
    #[error("Detected at least one rank that exhausted inputs. Throwing across all ranks.")]
    OthersExhausted,
}

/// An error that a communication hook's callback raises over gloo (recorded: `hook_errors.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// gloo cannot add up sparse gradients that were cast to float16.
    #[error("\"cadd_sparse\" not implemented for 'Half'")]
    SparseHalf,
    /// `quantization_pertensor_hook` takes the gathered scales for pairs.
    #[error(
        "Got the following error when running the callback: IndexError: invalid index of a 0-dim \
         tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim \
         tensor to a number"
    )]
    PerTensorScales,
    /// `quantization_perchannel_hook` does the same.
    #[error(
        "Got the following error when running the callback: IndexError: too many indices for tensor \
         of dimension 2"
    )]
    PerChannelScales,
}

/// Each callback in a chain says it once.
fn again(wrapped: bool) -> &'static str {
    if wrapped { "Got the following error when running the callback: RuntimeError: " } else { "" }
}

/// The reason that a reduction is unfinished, as far as the options show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Neither `find_unused_parameters` nor `static_graph` is set.
    Unused,
    /// `find_unused_parameters` is set.
    OutputsNotInLoss,
    /// `static_graph` is set.
    GraphChanged,
}

impl DdpError {
    /// Its text as one rank says it; where `several` say the same, each puts its own number for the
    /// one that is in it.
    pub(crate) fn said_by(&self, several: bool) -> String {
        let text = self.to_string();
        match self {
            DdpError::Unfinished { rank, .. } if several => {
                text.replace(&format!("for rank {rank}:"), "for this rank:")
            }
            DdpError::Exhausted { rank } if several => {
                text.replace(&format!("Rank {rank} "), "This rank ")
            }
            _ => text,
        }
    }

    /// Python's class of the exception.
    pub fn class(&self) -> &'static str {
        match self {
            DdpError::NoParameters
            | DdpError::DelayWithoutHook
            | DdpError::PowerSgdStart
            | DdpError::AveragerPeriod
            | DdpError::AveragerEmpty
            | DdpError::AveragerSmallestPeriod
            | DdpError::AveragerLastGroup { .. }
            | DdpError::SubgroupZero { .. }
            | DdpError::SubgroupTooLarge { .. }
            | DdpError::SubgroupUneven
            | DdpError::DeviceIds
            | DdpError::DeviceIdsOnCpu { .. }
            | DdpError::SyncBatchNormOnCpu
            | DdpError::ZeroTypes { .. }
            | DdpError::NoJoinables => "ValueError",
            DdpError::ZeroMorePieces => "AssertionError",
            DdpError::EverythingDelayed => "AttributeError",
            DdpError::NegativeLimit { .. } => "TypeError",
            DdpError::SparseBucket { .. } | DdpError::SparseStorage => "NotImplementedError",
            DdpError::ScalarGradient => "IndexError",
            _ => "RuntimeError",
        }
    }
}

/// `torch.typename` of a tensor: `torch.FloatTensor`, `torch.cuda.HalfTensor`.
fn type_name(dtype: Dtype, cpu: bool) -> String {
    let device = if cpu { "" } else { "cuda." };
    format!("torch.{device}{}Tensor", dtype.scalar_type())
}

/// A type's name in C++ (`TypeMeta::name`).
fn cpp_name(dtype: Dtype) -> String {
    match dtype {
        Dtype::Float64 => "double".into(),
        Dtype::Float32 => "float".into(),
        Dtype::Complex64 => "c10::complex<float>".into(),
        Dtype::Complex128 => "c10::complex<double>".into(),
        other => format!("c10::{}", other.scalar_type()),
    }
}

fn unfinished(rank: u32, indices: &[u32], names: &[String], cause: Unfinished) -> String {
    const LOSS: &str =
        "making sure all `forward` function outputs participate in calculating loss. ";
    const OUTPUTS: &str = "\nIf you already have done the above, then the distributed data parallel \
        module wasn't able to locate the output tensors in the return value of your module's \
        `forward` function. Please include the loss function and the structure of the return value \
        of `forward` of your module when reporting this issue (e.g. list, dict, iterable).";
    let mut text = String::from(
        "Expected to have finished reduction in the prior iteration before starting a new one. ",
    );
    match cause {
        Unfinished::GraphChanged => text.push_str(
            "This error indicates that your training graph has changed in this iteration, e.g., \
             one parameter is used in first iteration, but then got unused in the second \
             iteration. this is not compatible with static_graph set to True.",
        ),
        Unfinished::Unused | Unfinished::OutputsNotInLoss => {
            text.push_str(
                "This error indicates that your module has parameters that were not used in \
                 producing loss. ",
            );
            if cause == Unfinished::Unused {
                text.push_str(
                    "You can enable unused parameter detection by passing the keyword argument \
                     `find_unused_parameters=True` to \
                     `torch.nn.parallel.DistributedDataParallel`, and by \n",
                );
            }
            text.push_str(LOSS);
            text.push_str(OUTPUTS);
        }
    }
    let listed = indices.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let listed =
        format!("\nParameter indices which did not receive grad for rank {rank}: {listed}");
    if names.is_empty() {
        text.push_str(&listed);
        text.push_str(
            "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to \
             either INFO or DETAIL to print out information about which particular parameters did \
             not receive gradient on this rank as part of this error",
        );
    } else {
        let names = names.join(", ");
        text.push_str(&format!(
            "\nParameters which did not receive grad for rank {rank}: {names}{listed}"
        ));
    }
    text
}

fn marked_twice(index: u32, name: Option<&str>) -> String {
    let named = name.map(|name| format!(" with name {name}")).unwrap_or_default();
    let hint = match name {
        Some(_) => "",
        None => {
            " You can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL \
             to print parameter names for further debugging."
        }
    };
    format!(
        "Expected to mark a variable ready only once. This error is caused by one of the following \
         reasons: 1) Use of a module parameter outside the `forward` function. Please make sure \
         model parameters are not shared across multiple concurrent forward-backward passes. or \
         try to use _set_static_graph() as a workaround if this module graph does not change \
         during training loop.2) Reused parameters in multiple reentrant backward passes. For \
         example, if you use multiple `checkpoint` functions to wrap the same part of your model, \
         it would result in the same set of parameters been used by different reentrant backward \
         passes multiple times, and hence marking a variable ready multiple times. DDP does not \
         support such use cases in default. You can try to use _set_static_graph() as a workaround \
         if your module graph does not change over iterations.\nParameter at index {index}{named} \
         has been marked as ready twice. This means that multiple autograd engine  hooks have \
         fired for this particular parameter during this iteration.{hint}"
    )
}
