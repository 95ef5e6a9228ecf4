//! The text of objects of a program's classes: by their `__str__` and `__repr__`, a dataclass by its fields,
//! also inside lists, tuples and dicts; and so are tensors.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::classes::object_text;
use crate::classes::objects::{InstanceValue, found};
use crate::dist::values::TensorValue;
use crate::python::collections::has_makers;
use crate::python::exception_value::{ExceptionValue, args_of, native_of, of_program};
use crate::python::value_text;
use allocative::Allocative;
use starlark::eval::Evaluator;
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// Lists in each other that are looked into.
const MAX_DEPTH: usize = 16;
/// The most values that are looked into, all together: a value that contains itself has no end.
const MAX_LOOKED_AT: u32 = 100_000;

/// The text of an object inside another value: not a string, which would be quoted.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct ShownValue(String);
starlark_simple_value!(ShownValue);

impl fmt::Display for ShownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[starlark_value(type = "shown")]
impl<'v> StarlarkValue<'v> for ShownValue {}

/// True if a value is an object of the program's or a tensor, or contains one within the first `left` values.
fn holds(value: Value<'_>, depth: usize, left: &mut u32) -> bool {
    if value.downcast_ref::<InstanceValue<'_>>().is_some()
        || value.downcast_ref::<TensorValue>().is_some()
    {
        return true;
    }
    if depth > MAX_DEPTH || *left == 0 {
        return false;
    }
    *left -= 1;
    let list = ListRef::from_value(value).map(|list| list.content());
    let items = list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content()));
    match (items, DictRef::from_value(value)) {
        (Some(items), _) => items.iter().any(|item| holds(*item, depth + 1, left)),
        (None, Some(dict)) => dict
            .iter()
            .any(|(key, value)| holds(key, depth + 1, left) || holds(value, depth + 1, left)),
        (None, None) => false,
    }
}

/// A value as `str()` shows it; objects inside are shown by their own `__str__` or `__repr__`.
///
/// # Errors
/// An exception that one of these methods raises.
pub(crate) fn shown<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let own = value.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class);
    match own.and_then(|class| class.find("__str__")) {
        Some(method) => {
            eval.eval_function(method, &[value], &[]).map_err(starlark::Error::into_anyhow)
        }
        None => match text(value, eval)? {
            Some(text) => Ok(eval.heap().alloc(text)),
            None => within(value, 0, &mut { MAX_LOOKED_AT }, eval),
        },
    }
}

/// A value as `repr()` shows it; objects inside are shown by their own `__repr__`.
///
/// # Errors
/// An exception that one of these methods raises.
pub(crate) fn as_repr<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    within(value, 0, &mut { MAX_LOOKED_AT }, eval)
}

/// The value that a format shows: the number of a tensor without dimensions, the text of an object.
///
/// # Errors
/// An exception that an object's method raises, or a value with too many parts to show.
pub(crate) fn formatted<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let value = crate::tensor::tensor_text::formatted(value, eval)?;
    shown(value, eval)
}

fn within<'v>(
    value: Value<'v>,
    depth: usize,
    left: &mut u32,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    if depth > MAX_DEPTH || !(holds(value, depth, left) || has_makers(eval)) {
        return Ok(value);
    }
    *left = left.saturating_sub(1);
    anyhow::ensure!(*left > 0, "what is shown here holds itself, or more than 100,000 values");
    let heap = eval.heap();
    if let Some(own) = value.downcast_ref::<InstanceValue<'v>>() {
        return Ok(match of_object(value, own, depth, left, eval)? {
            Some(text) => heap.alloc(ShownValue(text)),
            None => value,
        });
    }
    if let Some(text) = crate::tensor::tensor_text::shown(value, eval)? {
        return Ok(heap.alloc(ShownValue(text)));
    }
    let mut all = |items: &[Value<'v>]| -> anyhow::Result<Vec<Value<'v>>> {
        items.iter().map(|item| within(*item, depth + 1, left, eval)).collect()
    };
    let list = ListRef::from_value(value).map(|list| list.content().to_vec());
    if let Some(items) = list {
        return Ok(heap.alloc(AllocList(all(&items)?)));
    }
    let tuple = TupleRef::from_value(value).map(|tuple| tuple.content().to_vec());
    if let Some(items) = tuple {
        return Ok(heap.alloc(AllocTuple(all(&items)?)));
    }
    let pairs: Option<Vec<_>> = DictRef::from_value(value).map(|dict| dict.iter().collect());
    let Some(pairs) = pairs else { return Ok(value) };
    let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (shown, values) = (all(&keys)?, all(&values)?);
    let entry = |at: usize| {
        let of = |all: &[Value<'v>]| {
            all.get(at).map_or_else(String::new, |own| value_text::repr(*own, heap))
        };
        format!("{}: {}", of(&shown), of(&values))
    };
    let order =
        crate::python::collections::order(value, eval).unwrap_or_else(|| (0..keys.len()).collect());
    let entries: Vec<String> = order.into_iter().map(entry).collect();
    let text = format!("{{{}}}", entries.join(", "));
    Ok(heap.alloc(ShownValue(match crate::python::collections::maker(value, eval) {
        Some(counts) if counts.is_none() && entries.is_empty() => "Counter()".to_owned(),
        Some(counts) if counts.is_none() => format!("Counter({text})"),
        Some(maker) => format!("defaultdict({}, {text})", value_text::repr(maker, heap)),
        None => text,
    })))
}

/// `repr()` of an object, where its class says more than its name.
fn of_object<'v>(
    value: Value<'v>,
    own: &InstanceValue<'v>,
    depth: usize,
    left: &mut u32,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<String>> {
    let (Some(class), Some(state)) = (own.class(), own.state()) else { return Ok(None) };
    let heap = eval.heap();
    if let Some(method) = class.find("__repr__") {
        let shown = eval.eval_function(method, &[value], &[]);
        return Ok(Some(value_text::text(shown.map_err(starlark::Error::into_anyhow)?, heap)));
    }
    if let Some(text) = repr(own, eval)? {
        return Ok(Some(text));
    }
    let fields = class.fields();
    if fields.is_empty() {
        return Ok(None);
    }
    let mut texts = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(value) = found(&state.attributes, &field) else { continue };
        let value = within(value, depth + 1, left, eval)?;
        texts.push(format!("{field}={}", value_text::repr(value, heap)));
    }
    Ok(Some(format!("{}({})", class.name, texts.join(", "))))
}

/// `str()` of an exception with these arguments.
pub(crate) fn text_of<'v>(
    class: &str,
    args: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<String> {
    match args {
        [] => Ok(String::new()),
        // A key is shown as it is written.
        [_] if class == "KeyError" => inside(args, eval),
        [one] => {
            let heap = eval.heap();
            object_text::shown(*one, eval).map(|value| value_text::text(value, heap))
        }
        several => Ok(format!("({})", inside(several, eval)?)),
    }
}

/// The text between the brackets of `repr()`.
pub(crate) fn inside<'v>(
    args: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<String> {
    let heap = eval.heap();
    let shown = |arg: &Value<'v>| {
        object_text::as_repr(*arg, eval).map(|value| value_text::repr(value, heap))
    };
    Ok(args.iter().map(shown).collect::<anyhow::Result<Vec<_>>>()?.join(", "))
}

/// `str()` of an exception; `None` for other values.
///
/// # Errors
/// Errors of the methods that show its arguments.
fn text<'v>(value: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Option<String>> {
    if let Some(own) = value.downcast_ref::<ExceptionValue<'v>>() {
        return Ok(Some(own.text.clone()));
    }
    match of_program(value) {
        Some((own, native)) => text_of(native, &args_of(own), eval).map(Some),
        None => Ok(None),
    }
}

/// `repr()` of an exception of a class of the program's.
///
/// # Errors
/// Errors of the methods that show its arguments.
pub(crate) fn repr<'v>(
    own: &InstanceValue<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<String>> {
    match own.class().filter(|class| native_of(class).is_some()) {
        Some(class) => Ok(Some(format!("{}({})", class.name, inside(&args_of(own), eval)?))),
        None => Ok(None),
    }
}
