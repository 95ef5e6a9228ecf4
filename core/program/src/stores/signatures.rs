//! The signatures of a store's methods, as pybind11 gives them for a call with other arguments: arguments are
//! identified by position, and have no names.

use crate::dist::arguments as take;
use crate::python::type_error::type_error;
use starlark::values::Value;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::tuple::UnpackTuple;

/// A method: its name, the arguments of each of its forms, and their results.
pub(super) struct Signature(&'static str, &'static [&'static str], &'static str);

pub(super) const SET: Signature = Signature("set", &["arg0: str, arg1: str"], "None");
pub(super) const APPEND: Signature = Signature("append", &["arg0: str, arg1: str"], "None");
pub(super) const GET: Signature = Signature("get", &["arg0: str"], "bytes");
pub(super) const ADD: Signature = Signature("add", &["arg0: str, arg1: int"], "int");
pub(super) const COMPARE_SET: Signature =
    Signature("compare_set", &["arg0: str, arg1: str, arg2: str"], "bytes");
pub(super) const DELETE_KEY: Signature = Signature("delete_key", &["arg0: str"], "bool");
pub(super) const CHECK: Signature = Signature("check", &["arg0: list[str]"], "bool");
pub(super) const WAIT: Signature =
    Signature("wait", &["arg0: list[str]", "arg0: list[str], arg1: datetime.timedelta"], "None");
pub(super) const MULTI_GET: Signature = Signature("multi_get", &["arg0: list[str]"], "list[bytes]");
pub(super) const MULTI_SET: Signature =
    Signature("multi_set", &["arg0: list[str], arg1: list[str]"], "None");
pub(super) const SET_TIMEOUT: Signature =
    Signature("set_timeout", &["arg0: datetime.timedelta"], "None");

/// Arguments that were given by name.
pub(super) type Named<'v> = UnpackDictEntries<&'v str, Value<'v>>;

/// The arguments of a method; none where one has a name.
pub(super) fn positions<'a, 'v>(
    args: &'a UnpackTuple<Value<'v>>,
    named: &Named<'v>,
) -> &'a [Value<'v>] {
    if named.entries.is_empty() { &args.items } else { &[] }
}

/// The argument of a method that takes one.
pub(super) fn only<'v>(args: &UnpackTuple<Value<'v>>, named: &Named<'v>) -> Option<Value<'v>> {
    match positions(args, named) {
        [only] => Some(*only),
        _ => None,
    }
}

/// The refusal of such a call.
pub(super) fn refusal<'v>(
    Signature(name, forms, returns): &Signature,
    this: Value<'v>,
    args: &UnpackTuple<Value<'v>>,
    named: &Named<'v>,
) -> anyhow::Error {
    let forms: String = forms
        .iter()
        .zip(1..)
        .map(|(takes, nth)| {
            format!("    {nth}. (self: torch._C._distributed_c10d.Store, {takes}) -> {returns}\n")
        })
        .collect();
    type_error(format!(
        "{name}(): incompatible function arguments. The following argument types are supported:\n\
         {forms}\n{}",
        invoked_with(std::iter::once(this).chain(args.items.iter().copied()), named)
    ))
}

/// `Invoked with: 'a', 3; kwargs: key='b'`.
pub(super) fn invoked_with<'v>(args: impl Iterator<Item = Value<'v>>, named: &Named<'v>) -> String {
    let args: Vec<String> = args.map(take::repr).collect();
    let shown = |(name, value): &(&str, Value<'v>)| format!("{name}={}", take::repr(*value));
    let named: Vec<String> = named.entries.iter().map(shown).collect();
    match named.is_empty() {
        true => format!("Invoked with: {}", args.join(", ")),
        false => format!("Invoked with: {}; kwargs: {}", args.join(", "), named.join(", ")),
    }
}
