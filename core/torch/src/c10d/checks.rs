//! The checks that `distributed_c10d.py` makes before any backend is asked.

use super::args::{Arg, TensorArg, TensorListArg};
use super::error::{DistError, type_error, unsupported, value_error};
use super::tensor::Tensor;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;

/// The class of values that are tensors in PyTorch and have no shape here: no call can be made with them.
pub(crate) const UNFOLLOWED: &str = "Output";

/// The class of names that a program has no value for; the value's text gives the reason.
pub const ABSENT: &str = "absent";

/// Refuses a value that is not a tensor with PyTorch's text, and a tensor without a known shape, or an
/// unknown value, with ours.
fn no_tensor(found: &[&TensorArg], text: String) -> DistError {
    let not = |of: &str| {
        found.iter().find_map(|one| match one {
            Arg::Not { class, repr } if class == of => Some(repr.clone()),
            _ => None,
        })
    };
    if let Some(name) = not(ABSENT) {
        return unsupported(name);
    }
    match not(UNFOLLOWED) {
        None => type_error(text),
        Some(_) => unsupported(
            "this call takes what a model returns, of which the shape is not known here",
        )
        .with_help("Give it before: out = out.reshape(32, 10). A loss of it has one element."),
    }
}

/// `_check_single_tensor`.
pub(super) fn single(tensor: impl Into<TensorArg>, name: &str) -> Result<Tensor, DistError> {
    let tensor = tensor.into();
    match &tensor {
        Arg::Is(tensor) => Ok(tensor.clone()),
        // PyTorch's literals carry the indentation of their source lines.
        Arg::Not { class, .. } => {
            let text = format!(
                "Invalid function argument. Expected parameter `{name}` of type \
                 torch.Tensor\n{:13}but got <class '{class}'> instead.",
                ""
            );
            Err(no_tensor(&[&tensor], text))
        }
    }
}

/// `_check_tensor_list`.
pub(super) fn list(
    tensors: impl Into<TensorListArg>,
    name: &str,
) -> Result<Vec<Tensor>, DistError> {
    let expected = format!(
        "Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n{:13}",
        ""
    );
    let tensors = match tensors.into() {
        Arg::Is(tensors) => tensors,
        Arg::Not { class, repr } => {
            let text = format!("{expected}but got <class '{class}'> instead.");
            return Err(no_tensor(&[&Arg::Not { class, repr }], text));
        }
    };
    let found: Result<Vec<Tensor>, ()> = tensors
        .iter()
        .map(|tensor| match tensor {
            Arg::Is(tensor) => Ok(tensor.clone()),
            Arg::Not { .. } => Err(()),
        })
        .collect();
    found.map_err(|()| {
        let classes = tensors.iter().map(|tensor| match tensor {
            Arg::Is(_) => "torch.Tensor",
            Arg::Not { class, .. } => class,
        });
        let classes: Vec<&str> = classes.collect();
        let elements: Vec<_> = classes.iter().map(|class| format!("<class '{class}'>")).collect();
        let text = format!(
            "{expected}but got <class 'list'> with elements of type [{}].",
            elements.join(", ")
        );
        no_tensor(&tensors.iter().collect::<Vec<_>>(), text)
    })
}

/// `_ensure_all_tensors_same_dtype`: complex64 counts as float32, and complex128 as itself.
pub(super) fn same_dtype<'a>(
    tensors: impl IntoIterator<Item = &'a Tensor>,
) -> Result<(), DistError> {
    let mut last = None;
    for tensor in tensors {
        let counts_as = match tensor.dtype {
            Dtype::Complex64 => Dtype::Float32,
            other => other,
        };
        match last {
            None => last = Some(counts_as),
            Some(last) if last != counts_as => {
                return Err(value_error(format!(
                    "Invalid usage of tensors with different dtypesFound torch.{last} and  \
                     torch.{}",
                    tensor.dtype
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A reduction that was set on c10d's options object of a call.
pub(super) fn reduce_op(op: &Arg<ReduceOp>, options: &str) -> Result<ReduceOp, DistError> {
    match op {
        Arg::Is(op) => Ok(*op),
        Arg::Not { repr, .. } => Err(type_error(format!(
            "(): incompatible function arguments. The following argument types are supported:\n    \
             1. (self: torch._C._distributed_c10d.{options}, arg0: \
             torch._C._distributed_c10d.ReduceOp) -> None\n\nInvoked with: \
             <torch.distributed.distributed_c10d.{options} object at 0xADDR>, {repr}"
        ))
        .with_help("op is a torch.distributed.ReduceOp: dist.ReduceOp.SUM.")),
    }
}
