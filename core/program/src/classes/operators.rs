//! Operators of objects of a program's own classes: `__lt__` and its like for comparisons and sorting,
//! `__add__` and its like for arithmetic. As in Python, the right side is asked if the left side does not
//! implement the operator.

use crate::classes::objects::{InstanceValue, is_object};
use crate::classes::special_methods::{method, truth};
use crate::python::numbers::counted;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::operators::reflected;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::{Value, ValueLike};
use std::cmp::Ordering;

/// An operator, and the methods that it calls on the left side, on the right side, and in place.
const ASKED: [(&str, &str, &str, &str); 7] = [
    ("+", "__add__", "__radd__", "__iadd__"),
    ("-", "__sub__", "__rsub__", "__isub__"),
    ("*", "__mul__", "__rmul__", "__imul__"),
    ("/", "__truediv__", "__rtruediv__", "__itruediv__"),
    ("//", "__floordiv__", "__rfloordiv__", "__ifloordiv__"),
    ("%", "__mod__", "__rmod__", "__imod__"),
    ("**", "__pow__", "__rpow__", "__ipow__"),
];

/// Comparisons, with their methods on the left side and on the right side.
const COMPARED: [(&str, &str, &str); 4] = [
    ("<", "__lt__", "__gt__"),
    (">", "__gt__", "__lt__"),
    ("<=", "__le__", "__ge__"),
    (">=", "__ge__", "__le__"),
];

/// Python's name for the class of a value.
fn name_of(value: Value<'_>) -> String {
    let own = value.downcast_ref::<InstanceValue<'_>>().and_then(InstanceValue::class);
    own.map_or_else(|| class_of(value).to_owned(), |class| class.name.clone())
}

/// The answer of a method, where it is there and implements it.
fn answer<'v>(
    of: Value<'v>,
    name: &str,
    other: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let answer = method(of, name, &[other], eval)?;
    Ok(answer.filter(|answer| answer.get_type() != "NotImplementedType"))
}

/// The answer of one side or the other; `None` if neither side is an object of the program's.
fn of_sides<'v>(
    (a, b): (Value<'v>, Value<'v>),
    (left, right): (&str, &str),
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Option<Value<'v>>>> {
    if !is_object(a) && !is_object(b) {
        return Ok(None);
    }
    Ok(Some(match answer(a, left, b, eval)? {
        Some(answer) => Some(answer),
        None => answer(b, right, a, eval)?,
    }))
}

/// The answer of `a < b` or another comparison if one side is an object of a program's class; `None` for
/// other values.
///
/// # Errors
/// An exception that the methods raise, or objects without such a method.
pub(crate) fn compared<'v>(
    operator: &str,
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let Some((_, left, right)) = COMPARED.iter().find(|(own, ..)| *own == operator) else {
        return Ok(None);
    };
    match of_sides((a, b), (left, right), eval)? {
        None => Ok(None),
        Some(Some(answer)) => Ok(Some(answer)),
        Some(None) => Err(starlark::Error::new_native(type_error(format!(
            "'{operator}' not supported between instances of '{}' and '{}'",
            name_of(a),
            name_of(b)
        )))),
    }
}

/// The order of two values, found by `<` alone, as Python sorts.
///
/// # Errors
/// An exception that the methods raise, or values that have no order.
pub(crate) fn sorted<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Ordering> {
    let Some(less) = compared("<", a, b, eval)? else { return a.compare(b) };
    if truth(less, eval)? {
        return Ok(Ordering::Less);
    }
    Ok(match compared("<", b, a, eval)? {
        Some(more) if truth(more, eval)? => Ordering::Greater,
        _ => Ordering::Equal,
    })
}

/// The result of an operator if one side is an object of a program's class; `None` for other values. In place
/// (`x += y`), the left side may change itself.
///
/// # Errors
/// An exception that the methods raise, or objects without such a method.
pub(crate) fn made<'v>(
    (operator, in_place): (&str, bool),
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let Some((_, left, right, changes)) = ASKED.iter().find(|(own, ..)| *own == operator) else {
        return Ok(None);
    };
    if in_place && let Some(changed) = answer(a, changes, b, eval)? {
        return Ok(Some(changed));
    }
    match of_sides((a, b), (left, right), eval)? {
        None => Ok(None),
        Some(Some(answer)) => Ok(Some(answer)),
        Some(None) => {
            let shown = match (operator, in_place) {
                ("**", false) => "** or pow()".to_owned(),
                (operator, false) => operator.to_owned(),
                (operator, true) => format!("{operator}="),
            };
            Err(starlark::Error::new_native(type_error(format!(
                "unsupported operand type(s) for {shown}: '{}' and '{}'",
                name_of(a),
                name_of(b)
            ))))
        }
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `a + b` and its like, in a program whose classes define such operators.
    fn _operate<'v>(
        #[starlark(require = pos)] operator: &str,
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if let Some(own) = made((operator, false), a, b, eval)? {
            return Ok(own);
        }
        let heap = eval.heap();
        let (a, b) = (counted(a, heap), counted(b, heap));
        match operator {
            "+" => a.add(b, heap),
            "*" => a.mul(b, heap),
            "//" => a.floor_div(b, heap),
            "%" => a.percent(b, heap),
            // A number knows nothing of a tensor on its right.
            "-" | "/" if matches!(a.get_type(), "int" | "float") => reflected(operator, a, b, heap),
            "-" => a.sub(b, heap),
            _ => a.div(b, heap),
        }
    }

    /// `-a`.
    fn _negated<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if !is_object(a) {
            let heap = eval.heap();
            return counted(a, heap).minus(heap);
        }
        method(a, "__neg__", &[], eval)?.ok_or_else(|| {
            let text = format!("bad operand type for unary -: '{}'", name_of(a));
            starlark::Error::new_native(type_error(text))
        })
    }
}

/// Adds the functions that the dialect writes for operators.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
