//! Python's classes that a program names as functions: `int`, `list`.

use crate::process::state::process;
use starlark::environment::Globals;
use starlark::eval::Evaluator;
use starlark::values::{FrozenValue, Value};

/// Types that a program names.
pub(super) const CLASSES: [&str; 8] =
    ["int", "float", "str", "bool", "list", "dict", "tuple", "set"];

/// They themselves.
pub(crate) fn classes(globals: &Globals) -> Vec<(&'static str, FrozenValue)> {
    let all = globals.iter();
    let named = all.filter_map(|(name, value)| {
        let class = CLASSES.iter().find(|class| **class == name)?;
        Some((*class, value))
    });
    named.collect()
}

/// A set: whole numbers in their order, as Python has them while they are small.
pub(crate) fn set<'v>(
    mut items: Vec<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if items.iter().all(|item| item.unpack_i32().is_some()) {
        items.sort_by_key(|item| item.unpack_i32());
    }
    let classes = &process(eval).map_err(starlark::Error::new_native)?.classes;
    let make = classes.iter().find(|(name, _)| *name == "set").map(|(_, set)| *set);
    let make =
        make.ok_or_else(|| starlark::Error::new_other(anyhow::anyhow!("there is no set")))?;
    let list = eval.heap().alloc(items);
    eval.eval_function(make.to_value(), &[list], &[])
}
