//! `max` and `min`: of numbers of which one is known only when the program runs, another such number.

use crate::classes::operators;
use crate::nn::output::OutputValue;
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::iterators::each;
use crate::tensor::value::TensorValue;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Value, ValueLike};
use std::cmp::Ordering;

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    extremes(builder);
}

/// The first of those that none is on that side of.
fn extreme<'v>(
    name: &str,
    side: Ordering,
    args: UnpackTuple<Value<'v>>,
    key: Option<Value<'v>>,
    default: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let error = |text: String| starlark::Error::new_native(anyhow::anyhow!(text));
    let values = match args.items.as_slice() {
        [] => {
            return Err(error(format!("TypeError: {name} expected at least 1 argument, got 0")));
        }
        [one] => each(*one, eval)?,
        many => many.to_vec(),
    };
    let key = key.filter(|key| !key.is_none());
    let mut keys = Vec::with_capacity(values.len());
    for value in &values {
        keys.push(match key {
            Some(key) => eval.eval_function(key, &[*value], &[])?,
            None => *value,
        });
    }
    let unknown = |key: &Value<'v>| {
        key.downcast_ref::<UnknownValue>().filter(|value| value.number().is_some()).cloned()
    };
    if key.is_none()
        && let Some(first) = keys.iter().find_map(unknown)
        && let Some(number) = first.number()
    {
        let number = keys.iter().fold(number, |number, other| number.with(*other));
        return Ok(eval.heap().alloc(first.as_number(number)));
    }
    // Which of them it is depends on values that are not looked at here.
    let holds_values = |key: &Value<'v>| {
        key.downcast_ref::<TensorValue>().is_some() || key.downcast_ref::<OutputValue>().is_some()
    };
    if keys.iter().any(holds_values) {
        return Ok(eval.heap().alloc(process(eval)?.unknown(Unknown::Value(Number::Real))));
    }
    let mut all = keys.into_iter().zip(values);
    let Some((mut best, mut value)) = all.next() else {
        let empty = || error(format!("ValueError: {name}() iterable argument is empty"));
        return default.ok_or_else(empty);
    };
    for (key, other) in all {
        if operators::sorted(key, best, eval)? == side {
            (best, value) = (key, other);
        }
    }
    Ok(value)
}

#[starlark_module]
fn extremes(builder: &mut GlobalsBuilder) {
    fn max<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        extreme("max", Ordering::Greater, args, key, default, eval)
    }

    fn min<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        extreme("min", Ordering::Less, args, key, default, eval)
    }
}
