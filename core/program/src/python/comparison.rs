//! `==`, `is` and `in`: a value that is known only when a program runs refuses to be compared, on either
//! side, and so do the values of a tensor. All else is compared as the interpreter does.

use crate::classes::{operators, special_methods};
use crate::nn::output::OutputValue;
use crate::process::state::process;
use crate::process::undecided::{self, Number, Unknown, UnknownValue};
use crate::python::iterators;
use crate::tensor::value::TensorValue;
use crate::torch::callable;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::{TupleRef, UnpackTuple};
use starlark::values::{Value, ValueLike};

/// The depth to which nested lists are searched for unknown values.
const MAX_DEPTH: usize = 4;

/// The reason that a value cannot be compared: it is not known while the program is recorded, or
/// holds such a value.
pub(crate) fn unknown(value: Value<'_>) -> Option<String> {
    within(value, 0)
}

fn within(value: Value<'_>, depth: usize) -> Option<String> {
    if let Some(unknown) = value.downcast_ref::<UnknownValue>() {
        return Some(unknown.what().to_string());
    }
    if let Some(text) = value.unpack_str() {
        return text.contains(undecided::SHOWN).then(|| undecided::IN_TEXT.to_owned());
    }
    if depth >= MAX_DEPTH {
        return None;
    }
    if let Some(dict) = DictRef::from_value(value) {
        return dict.values().find_map(|value| within(value, depth + 1));
    }
    entries(value)?.iter().find_map(|value| within(*value, depth + 1))
}

/// The entries of a list or tuple, where they lie.
fn entries<'v>(value: Value<'v>) -> Option<&'v [Value<'v>]> {
    let list = ListRef::from_value(value).map(|list| list.content());
    list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content()))
}

/// True if a value is a tensor, or a model's output.
fn is_tensor(value: Value<'_>) -> bool {
    value.downcast_ref::<TensorValue>().is_some() || value.downcast_ref::<OutputValue>().is_some()
}

/// Refuses to compare unknown values.
fn known(values: [Value<'_>; 2]) -> starlark::Result<()> {
    match values.into_iter().find_map(unknown) {
        Some(why) => Err(undecided::undecided(why)),
        None => Ok(()),
    }
}

/// Refuses to compare a tensor's values.
fn no_values(values: [Value<'_>; 2]) -> starlark::Result<()> {
    let compared = values.into_iter().any(is_tensor);
    let with_none = values.iter().any(|value| value.is_none());
    match compared && !with_none {
        true => Err(undecided::undecided(undecided::VALUES)),
        false => Ok(()),
    }
}

/// Tensors compared element by element, by their method of that name.
fn of_elements<'v>(
    operator: &str,
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let turned = match operator {
        "lt" => "gt",
        "le" => "ge",
        "gt" => "lt",
        "ge" => "le",
        same => same,
    };
    let (own, other, name) = if is_tensor(a) { (a, b, operator) } else { (b, a, turned) };
    let method = own.get_attr_error(name, eval.heap())?;
    eval.eval_function(method, &[other], &[])
}

/// The functions that comparisons become, and the method of tensors for each.
const COMPARISONS: [(&str, &str); 9] = [
    ("_differs", "ne"),
    ("_less", "lt"),
    ("_greater", "gt"),
    ("_at_most", "le"),
    ("_at_least", "ge"),
    ("_given_less", "lt"),
    ("_given_greater", "gt"),
    ("_given_at_most", "le"),
    ("_given_at_least", "ge"),
];

/// The operators as they are written.
const SIGNS: [(&str, &str); 4] = [("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")];

/// `(a > b).sum()`: a comparison of which something is asked.
fn compared<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let [a, b] = args.positional(eval.heap())?;
    let operator = COMPARISONS.iter().find(|(own, _)| *own == name).map_or(name, |(_, own)| own);
    let unknown = [a, b].into_iter().find_map(|value| value.downcast_ref::<UnknownValue>());
    if let Some(unknown) = unknown.filter(|it| it.is_value() && name.starts_with("_given_")) {
        return Ok(eval.heap().alloc(unknown.as_number(Number::Bool)));
    }
    known([a, b])?;
    if [a, b].into_iter().any(is_tensor) && !a.is_none() && !b.is_none() {
        return of_elements(operator, a, b, eval);
    }
    if operator == "ne"
        && let Some(own) = special_methods::equal(a, b, eval)?
    {
        return Ok(Value::new_bool(!special_methods::truth(own, eval)?));
    }
    if let Some((_, sign)) = SIGNS.iter().find(|(own, _)| *own == operator)
        && let Some(own) = operators::compared(sign, a, b, eval)?
    {
        return Ok(own);
    }
    Ok(Value::new_bool(match operator {
        "ne" => !equal(a, b)?,
        "lt" => a.compare(b)?.is_lt(),
        "le" => a.compare(b)?.is_le(),
        "gt" => a.compare(b)?.is_gt(),
        _ => a.compare(b)?.is_ge(),
    }))
}

/// True if the interpreter compares such a value correctly by itself; it knows only Lockstep's own values as
/// something other than numbers.
fn plain(value: Value<'_>) -> bool {
    matches!(
        value.get_type(),
        "int" | "bool" | "float" | "string" | "NoneType" | "list" | "tuple" | "dict"
    )
}

/// `a == b`, asked of the side that knows more.
fn equal<'v>(a: Value<'v>, b: Value<'v>) -> starlark::Result<bool> {
    if plain(a) && !plain(b) { b.equals(a) } else { a.equals(b) }
}

/// True if a condition cannot be decided here. A known answer is a Python truth.
fn is_unsure<'v>(
    condition: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<bool>> {
    let answer = match eval.eval_function(condition, &[], &[]) {
        Err(error) if undecided::is_undecided(&error) => return Ok(None),
        answer => answer?,
    };
    if answer.downcast_ref::<UnknownValue>().is_some() || is_tensor(answer) {
        return Ok(None);
    }
    special_methods::truth(answer, eval).map(Some)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// True if the first of these conditions that is not false cannot be decided before the program runs. The
    /// notes of such decisions are dropped, since no block of theirs is entered.
    fn _unsure<'v>(
        #[starlark(args)] conditions: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let native = starlark::Error::new_native;
        let decided = process(eval).map_err(native)?.decided.clone();
        if decided.any() || undecided::decided_by_values() {
            return Ok(false);
        }
        for condition in conditions.items {
            let answer = is_unsure(condition, eval)?;
            let noted = undecided::forget_values() | decided.any();
            if noted {
                decided.forget();
            }
            match answer.filter(|_| !noted) {
                None => return Ok(true),
                Some(true) => return Ok(false),
                Some(false) => {}
            }
        }
        Ok(false)
    }

    /// The value of a name that is assigned under a condition which nobody knows.
    fn _undecided<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let process = process(eval)?;
        let line = process.line;
        Ok(heap.alloc(process.unknown(Unknown::Assigned { line })))
    }

    /// `a == b`.
    fn _same<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if let (Some(a), Some(b)) = (a.unpack_i32(), b.unpack_i32()) {
            return Ok(Value::new_bool(a == b));
        }
        known([a, b])?;
        if [a, b].into_iter().any(is_tensor) && !a.is_none() && !b.is_none() {
            return of_elements("eq", a, b, eval);
        }
        match special_methods::equal(a, b, eval)? {
            Some(own) => Ok(own),
            None => equal(a, b).map(Value::new_bool),
        }
    }

    /// `a is b`, of which values of numbers and texts know no difference.
    fn _is<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
    ) -> starlark::Result<bool> {
        known([a, b])?;
        match special_methods::identical(a, b) {
            Some(same) => Ok(same),
            None => equal(a, b),
        }
    }

    /// `item in of`.
    fn _among<'v>(
        #[starlark(require = pos)] item: Value<'v>,
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        known([item, of])?;
        if let Some(contains) = special_methods::contains(of, item, eval)? {
            return Ok(contains);
        }
        let pieces = iterators::pieces(of, eval)?;
        let all = match (&pieces, entries(of)) {
            (Some(pieces), _) => pieces.as_slice(),
            (None, Some(all)) => all,
            (None, None) => return of.is_in(item),
        };
        for one in all {
            no_values([item, *one])?;
            let same = match special_methods::equal(*one, item, eval)? {
                Some(own) => special_methods::truth(own, eval)?,
                None => equal(item, *one)?,
            };
            if same {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    callable::add(builder, &COMPARISONS.map(|(name, _)| name), compared);
}
