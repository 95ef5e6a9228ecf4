//! Methods of texts, lists, dicts and sets that Python has and Starlark has not.

use crate::classes::{object_text, objects, operators, special_methods};
use crate::dist::arguments::items;
use crate::process::raised::raised;
use crate::python::collections;
use crate::python::format::template;
use crate::python::iterators::each;
use crate::python::type_error::class_of;
use crate::stores::bytes::BytesValue;
use starlark::eval::Evaluator;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::{Heap, Value};
use std::cmp::Ordering;

/// A text is filled up to so many characters at most.
const MAX_WIDTH: usize = 1000;

/// Calls one; of a value that has it itself, its own.
pub(super) fn call<'v>(
    name: &str,
    this: Value<'v>,
    args: &[Value<'v>],
    named: &[(&'v str, Value<'v>)],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let native = |error: anyhow::Error| starlark::Error::new_native(error);
    if let Some(text) = this.unpack_str() {
        if name == "encode" {
            return Ok(heap.alloc(BytesValue(text.as_bytes().to_vec())));
        }
        if name == "format" {
            // Objects are shown by their methods.
            let mut shown = |value, as_repr| match as_repr {
                true => object_text::as_repr(value, eval),
                false => object_text::formatted(value, eval),
            };
            let text = template(text, (args, named), &mut shown, heap).map_err(native)?;
            return Ok(heap.alloc(text));
        }
        if let Some(text) = filled(name, text, args) {
            return Ok(heap.alloc(text));
        }
    }
    if name == "encode" && this.get_attr(name, heap)?.is_none() {
        let class = class_of(this);
        let text = format!("AttributeError: '{class}' object has no attribute 'encode'");
        return Err(native(raised(text)));
    }
    let list = ListRef::from_value(this).is_some();
    if matches!(name, "count" | "index")
        && let Some(why) =
            args.iter().chain([&this]).find_map(|value| crate::python::comparison::unknown(*value))
    {
        return Err(native(anyhow::anyhow!(why)));
    }
    match (name, items(this)) {
        ("sort", Some(mut entries)) if list => {
            let of = |wanted: &str| named.iter().find(|(own, _)| *own == wanted).map(|own| own.1);
            sort(&mut entries, of("key").filter(|key| !key.is_none()), eval)?;
            if of("reverse").is_some_and(|reverse| reverse.to_bool()) {
                // Equal ones keep their order in Python.
                stable_reverse(&mut entries, of("key").filter(|key| !key.is_none()), eval)?;
            }
            put_back(this, &entries, heap)?;
            return Ok(Value::new_none());
        }
        ("reverse", Some(mut entries)) if list => {
            entries.reverse();
            put_back(this, &entries, heap)?;
            return Ok(Value::new_none());
        }
        ("copy", Some(entries)) if list => return Ok(heap.alloc(AllocList(entries))),
        ("count", Some(entries)) => {
            let [wanted] = args else {
                let text = format!("{}.count() takes exactly one argument", class_of(this));
                return Err(native(raised(format!("TypeError: {text}"))));
            };
            let mut count = 0;
            for entry in entries {
                count += i32::from(special_methods::same(entry, *wanted, eval)?);
            }
            return Ok(heap.alloc(count));
        }
        ("index", Some(entries)) if !list => {
            for (at, entry) in entries.iter().enumerate() {
                if let Some(wanted) = args.first()
                    && special_methods::same(*entry, *wanted, eval)?
                {
                    return Ok(heap.alloc(at));
                }
            }
            return Err(native(raised("ValueError: tuple.index(x): x not in tuple")));
        }
        _ => {}
    }
    if let Some(made) = of_several_sets(name, this, args, eval)? {
        return Ok(made);
    }
    if let Some(made) = collections::method(name, this, args, named, eval)? {
        return Ok(made);
    }
    let own = this.get_attr_error(name, heap)?;
    eval.eval_function(own, args, named)
}

/// A set's method with any number of arguments, where Starlark's takes one; `set.union(a, b)` as well. `None` for other
/// values.
fn of_several_sets<'v>(
    name: &str,
    this: Value<'v>,
    args: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    if !matches!(name, "union" | "intersection" | "difference" | "update") {
        return Ok(None);
    }
    let is_set = |value: &Value<'v>| value.get_type() == "set";
    let (this, args) = match args.split_first() {
        Some((first, rest)) if this.to_str() == "set" && is_set(first) => (*first, rest),
        _ => (this, args),
    };
    if !is_set(&this) {
        return Ok(None);
    }
    let heap = eval.heap();
    let empty = [heap.alloc(AllocList::EMPTY)];
    let mut all = this;
    // Without an argument a new set has the same entries.
    let args = if args.is_empty() && name == "union" { &empty[..] } else { args };
    for other in args {
        let own = all.get_attr_error(name, heap)?;
        let others = heap.alloc(AllocList(each(*other, eval)?));
        let made = eval.eval_function(own, &[others], &[])?;
        all = if name == "update" { this } else { made };
    }
    Ok(Some(if name == "update" { Value::new_none() } else { all }))
}

/// The padding that fills a text up.
fn filled(name: &str, text: &str, args: &[Value<'_>]) -> Option<String> {
    let width = usize::try_from(args.first()?.unpack_i32()?.max(0)).ok()?.min(MAX_WIDTH);
    let missing = width.saturating_sub(text.chars().count());
    let with = args.get(1).and_then(|with| with.unpack_str()).unwrap_or(" ");
    let fill = |count: usize| with.repeat(count);
    Some(match name {
        "ljust" => format!("{text}{}", fill(missing)),
        "rjust" => format!("{}{text}", fill(missing)),
        "center" => {
            // If the number of missing characters is odd, CPython places the odd one by both parities.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill(left), fill(missing - left))
        }
        "zfill" => {
            let sign = usize::from(text.starts_with(['+', '-']));
            format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..])
        }
        _ => return None,
    })
}

/// The keys that entries are compared by.
fn keys<'v>(
    entries: &[Value<'v>],
    key: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<(Value<'v>, Value<'v>)>> {
    let of = |entry: &Value<'v>| match key {
        Some(key) => Ok((eval.eval_function(key, &[*entry], &[])?, *entry)),
        None => Ok((*entry, *entry)),
    };
    entries.iter().map(of).collect()
}

/// Sorts by a comparison that may fail.
fn sort_by<'v>(
    keyed: &mut [(Value<'v>, Value<'v>)],
    turn: fn(Ordering) -> Ordering,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<()> {
    // A program's own `__lt__` need not be an order: each key goes in front of those it is less than.
    if keyed.iter().any(|(key, _)| objects::is_object(*key)) {
        for from in 1..keyed.len() {
            let mut at = from;
            while at > 0 && turn(operators::sorted(keyed[at].0, keyed[at - 1].0, eval)?).is_lt() {
                keyed.swap(at, at - 1);
                at -= 1;
            }
        }
        return Ok(());
    }
    let mut failed = None;
    keyed.sort_by(|(one, _), (other, _)| match one.compare(*other) {
        Ok(order) => turn(order),
        Err(error) => {
            failed.get_or_insert(error);
            Ordering::Equal
        }
    });
    failed.map_or(Ok(()), Err)
}

fn sort<'v>(
    entries: &mut [Value<'v>],
    key: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<()> {
    let mut keyed = keys(entries, key, eval)?;
    sort_by(&mut keyed, |order| order, eval)?;
    entries.iter_mut().zip(keyed).for_each(|(entry, (_, sorted))| *entry = sorted);
    Ok(())
}

fn stable_reverse<'v>(
    entries: &mut [Value<'v>],
    key: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<()> {
    let mut keyed = keys(entries, key, eval)?;
    sort_by(&mut keyed, Ordering::reverse, eval)?;
    entries.iter_mut().zip(keyed).for_each(|(entry, (_, sorted))| *entry = sorted);
    Ok(())
}

fn put_back<'v>(list: Value<'v>, entries: &[Value<'v>], heap: Heap<'v>) -> starlark::Result<()> {
    for (at, entry) in (0_i32..).zip(entries) {
        list.set_at(heap.alloc(at), *entry)?;
    }
    Ok(())
}
