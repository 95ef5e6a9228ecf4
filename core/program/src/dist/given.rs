//! The arguments of torch.distributed's calls for ranks, groups and switches, as Python takes them:
//! the error for anything else comes where PyTorch first looks at it.

use crate::classes::object_text;
use crate::dist::arguments as take;
use crate::process::raised::refused;
use crate::python::{numbers, value_text};
use lockstep_torch::c10d::{DistError, ErrorKind, Group};
use starlark::eval::Evaluator;
use starlark::typing::Ty;
use starlark::values::type_repr::StarlarkTypeRepr;
use starlark::values::{UnpackValue, Value};
use std::convert::Infallible;

/// A value of which only the truth matters: `async_op=1`.
#[derive(Clone, Copy)]
pub(crate) struct Truth(pub(crate) bool);

impl StarlarkTypeRepr for Truth {
    type Canonical = Truth;

    fn starlark_type_repr() -> Ty {
        Ty::any()
    }
}

impl<'v> UnpackValue<'v> for Truth {
    type Error = Infallible;

    fn unpack_value_impl(value: Value<'v>) -> Result<Option<Truth>, Infallible> {
        Ok(Some(Truth(value.to_bool())))
    }
}

/// `group=` of a call for which PyTorch 2.7.1's error names the wrong value, and does not call it missing.
pub(super) fn looked_up(
    group: Value<'_>,
    wrong: impl Fn(String) -> DistError,
) -> anyhow::Result<Option<Group>> {
    let hashable = !matches!(group.get_type(), "list" | "dict" | "set");
    match take::group(group) {
        Err(_) if hashable => Err(refused(wrong(group.to_str()))),
        looked_up => looked_up,
    }
}

/// `group=` of a call whose exceptions PyTorch logs nothing of: it looks the group's ranks up.
pub(super) fn registered(group: Value<'_>) -> anyhow::Result<Option<Group>> {
    looked_up(group, not_registered)
}

/// The error for an invalid group.
pub(super) fn not_registered(shown: String) -> DistError {
    let text = format!(
        "Group {shown} is not registered, please create group with torch.distributed.new_group API"
    );
    DistError::new(ErrorKind::ValueError, text)
}

/// A rank, if one is given.
fn number(rank: Value<'_>) -> Option<anyhow::Result<Option<i64>>> {
    if let Some(yes) = rank.unpack_bool() {
        return Some(Ok(Some(i64::from(yes))));
    }
    match rank.get_type() {
        "NoneType" | "int" | "unknown" => Some(numbers::whole_or_none(rank, "a rank")),
        _ => None,
    }
}

/// The rank in a group that c10d's options of a call name. Of a group that is not the default one,
/// PyTorch looks it up first.
pub(super) fn root(
    rank: Value<'_>,
    of: Option<Group>,
    options: &str,
) -> anyhow::Result<Option<i64>> {
    number(rank).unwrap_or_else(|| {
        if matches!(of, Some(Group::Member(_))) {
            let group = "<torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>";
            let text = format!("Global rank {} is not part of group {group}", rank.to_str());
            return Err(refused(DistError::new(ErrorKind::ValueError, text)));
        }
        let refusal = DistError::new(
            ErrorKind::TypeError,
            format!(
                "(): incompatible function arguments. The following argument types are \
                 supported:\n    1. (self: torch._C._distributed_c10d.{options}, arg0: int) -> \
                 None\n\nInvoked with: <torch.distributed.distributed_c10d.{options} object at \
                 0xADDR>, {}",
                take::repr(rank)
            ),
        );
        Err(refused(refusal.with_help("A rank is an int: int(…) makes one of a text.")))
    })
}

/// The peers that a process group sends to or receives from, and the tag.
pub(super) fn peer<'v>(
    (peers, tag): ([Value<'v>; 2], Value<'v>),
    (call, rank): (&str, &str),
    tensor: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<([Option<i64>; 2], i64)> {
    let [peer, group_peer] = peers;
    let numbers = (number(peer), number(group_peer), number(tag));
    if let (Some(peer), Some(group_peer), Some(tag)) = numbers {
        return Ok(([peer?, group_peer?], tag?.unwrap_or(0)));
    }
    let given = if peer.is_none() { group_peer } else { peer };
    let tensor = object_text::as_repr(tensor, eval)?;
    let tensor = value_text::repr(tensor, eval.heap());
    let refusal = DistError::new(
        ErrorKind::TypeError,
        format!(
            "{call}(): incompatible function arguments. The following argument types are \
             supported:\n    1. (self: torch._C._distributed_c10d.ProcessGroup, tensors: \
             list[torch.Tensor], {rank}: int, tag: int) -> c10d::Work\n\nInvoked with: \
             <torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>, [{tensor}], {}, {}",
            take::repr(given),
            take::repr(tag)
        ),
    );
    Err(refused(refusal.with_help("A rank and a tag are ints: int(…) makes one of a text.")))
}
