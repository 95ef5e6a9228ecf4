//! Python's `collections`: `defaultdict` and `Counter` are dicts, with a table in the module of the functions
//! that make missing values; `OrderedDict` is a dict, `deque` a list that may be bounded, and `namedtuple`
//! makes classes whose objects have their fields by name and by index.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::objects::{ClassValue, FIELDS, InstanceValue, fields_of};
use crate::dist::arguments as take;
use crate::process::raised::raised;
use crate::python::iterators::each;
use crate::python::numbers;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::{AllocDict, DictRef, UnpackDictEntries};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::none::NoneType;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::cell::RefCell;
use std::fmt;

/// The name under which a module holds the dicts that make missing values, each with its maker. No
/// program can name it.
const MAKERS: &str = "makers!";

/// A dict that makes missing values by a function; without a function they are 0, and are not kept.
fn with_maker<'v>(
    entries: Vec<(Value<'v>, Value<'v>)>,
    maker: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> Value<'v> {
    let heap = eval.heap();
    let made = heap.alloc(AllocDict(entries));
    let pair = heap.alloc((made, maker));
    let known = eval.module().get(MAKERS);
    let known =
        known.and_then(|list| ListRef::from_value(list).map(|list| list.content().to_vec()));
    let all = known.unwrap_or_default().into_iter().chain([pair]);
    eval.module().set(MAKERS, heap.alloc(AllocList(all.collect::<Vec<_>>())));
    made
}

/// True if the program has made a `defaultdict` or `Counter`.
pub(crate) fn has_makers(eval: &Evaluator<'_, '_, '_>) -> bool {
    eval.module().get(MAKERS).is_some()
}

/// The function for a dict's missing values: Python's `None` for a `Counter`; nothing for other dicts.
pub(crate) fn maker<'v>(of: Value<'v>, eval: &Evaluator<'v, '_, '_>) -> Option<Value<'v>> {
    let pairs = take::items(eval.module().get(MAKERS)?).unwrap_or_default().into_iter();
    pairs.filter_map(take::items).find_map(|pair| match pair[..] {
        [dict, maker] if dict.ptr_eq(of) => Some(maker),
        _ => None,
    })
}

/// The order in which the entries of a `Counter` are shown: the highest counts first.
pub(crate) fn order<'v>(of: Value<'v>, eval: &Evaluator<'v, '_, '_>) -> Option<Vec<usize>> {
    maker(of, eval).filter(|maker| maker.is_none())?;
    let counts: Option<Vec<i32>> =
        DictRef::from_value(of)?.values().map(|count| count.unpack_i32()).collect();
    let counts = counts?;
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(counts.get(*at).copied()));
    Some(order)
}

/// The value that a `defaultdict` makes for a missing key.
///
/// # Errors
/// An exception that its function raises.
pub(crate) fn missing<'v>(
    of: Value<'v>,
    key: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let Some(maker) = maker(of, eval) else { return Ok(None) };
    if maker.is_none() {
        return Ok(Some(eval.heap().alloc(0)));
    }
    let value = eval.eval_function(maker, &[], &[])?;
    of.set_at(key, value)?;
    Ok(Some(value))
}

/// The entries of a dict, or of pairs.
fn entries<'v>(
    of: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<(Value<'v>, Value<'v>)>> {
    let Some(of) = of.filter(|of| !of.is_none()) else { return Ok(Vec::new()) };
    if let Some(dict) = DictRef::from_value(of) {
        return Ok(dict.iter().collect());
    }
    let pairs = each(of, eval)?.into_iter().map(|pair| match take::items(pair).as_deref() {
        Some([key, value]) => Ok((*key, *value)),
        _ => {
            let text = "ValueError: dictionary update sequence element has length other than 2";
            Err(starlark::Error::new_native(raised(text)))
        }
    });
    pairs.collect()
}

/// The counts that a `Counter` is given: a dict's counts, or one for each piece.
fn counted<'v>(
    of: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<(Value<'v>, Value<'v>)>> {
    let Some(of) = of.filter(|of| !of.is_none()) else { return Ok(Vec::new()) };
    if DictRef::from_value(of).is_some() {
        return entries(Some(of), eval);
    }
    let pieces = match of.unpack_str() {
        Some(text) => text.chars().map(|piece| eval.heap().alloc(piece.to_string())).collect(),
        None => each(of, eval)?,
    };
    let one = eval.heap().alloc(1);
    Ok(pieces.into_iter().map(|piece| (piece, one)).collect())
}

/// Adds these counts to a `Counter`, or takes them away.
fn count<'v>(
    counter: Value<'v>,
    counts: Vec<(Value<'v>, Value<'v>)>,
    away: bool,
    heap: Heap<'v>,
) -> starlark::Result<()> {
    for (key, count) in counts {
        let known = DictRef::from_value(counter).and_then(|dict| dict.get(key).transpose());
        let known = known.transpose()?.unwrap_or_else(|| heap.alloc(0));
        let sum = if away { known.sub(count, heap)? } else { known.add(count, heap)? };
        counter.set_at(key, sum)?;
    }
    Ok(())
}

/// Calls a method of a dict that Starlark lacks, or that a `defaultdict` or `Counter` has differently.
///
/// # Errors
/// An exception that the arguments raise.
pub(crate) fn method<'v>(
    name: &str,
    this: Value<'v>,
    args: &[Value<'v>],
    named: &[(&'v str, Value<'v>)],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let Some(own) = DictRef::from_value(this) else { return Ok(None) };
    let mut all: Vec<_> = own.iter().collect();
    drop(own);
    let (heap, maker) = (eval.heap(), maker(this, eval));
    let is_counter = maker.is_some_and(|maker| maker.is_none());
    Ok(Some(match name {
        "copy" => match maker {
            Some(maker) => with_maker(all, maker, eval),
            None => heap.alloc(AllocDict(all)),
        },
        "update" | "subtract" if is_counter => {
            let mut given = counted(args.first().copied(), eval)?;
            given.extend(named.iter().map(|(name, count)| (heap.alloc(*name), *count)));
            count(this, given, name == "subtract", heap)?;
            Value::new_none()
        }
        "most_common" => {
            // As many as before another one stay in their order.
            all.sort_by_key(|(_, count)| std::cmp::Reverse(count.unpack_i32()));
            let most = args.first().and_then(|most| most.unpack_i32());
            all.truncate(most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0)));
            heap.alloc(AllocList(all))
        }
        _ => return Ok(None),
    }))
}

/// The arguments that are given by name, with the names as keys.
fn named_of<'v>(
    named: UnpackDictEntries<&'v str, Value<'v>>,
    heap: Heap<'v>,
) -> Vec<(Value<'v>, Value<'v>)> {
    named.entries.into_iter().map(|(name, value)| (heap.alloc(name), value)).collect()
}

/// The entries of a new dict.
fn given_and_named<'v>(
    given: Option<Value<'v>>,
    named: UnpackDictEntries<&'v str, Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<(Value<'v>, Value<'v>)>> {
    let mut all = entries(given, eval)?;
    all.extend(named_of(named, eval.heap()));
    Ok(all)
}

/// `deque(items, maxlen)`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct DequeValue<'v> {
    items: RefCell<Vec<Value<'v>>>,
    maxlen: Option<usize>,
}

impl fmt::Display for DequeValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.all();
        let shown: Vec<String> = items.iter().map(|item| item.to_repr()).collect();
        write!(f, "deque([{}]", shown.join(", "))?;
        match self.maxlen {
            Some(maxlen) => write!(f, ", maxlen={maxlen})"),
            None => f.write_str(")"),
        }
    }
}

impl<'v> DequeValue<'v> {
    fn all(&self) -> Vec<Value<'v>> {
        self.items.try_borrow().map_or_else(|_| Vec::new(), |items| items.iter().copied().collect())
    }

    fn len(&self) -> usize {
        self.items.try_borrow().map_or(0, |items| items.len())
    }

    /// Puts one at an end; where there are too many, the other end loses one.
    fn put(&self, value: Value<'v>, left: bool) {
        let Ok(mut items) = self.items.try_borrow_mut() else { return };
        match left {
            true => items.insert(0, value),
            false => items.push(value),
        }
        if self.maxlen.is_some_and(|maxlen| items.len() > maxlen) {
            let end = if left { items.len() - 1 } else { 0 };
            items.remove(end);
        }
    }

    fn take(&self, left: bool) -> anyhow::Result<Value<'v>> {
        let mut items = self.items.try_borrow_mut()?;
        if items.is_empty() {
            return Err(raised("IndexError: pop from an empty deque"));
        }
        let last = items.len() - 1;
        Ok(items.remove(if left { 0 } else { last }))
    }

    fn place(&self, index: Value<'v>) -> starlark::Result<usize> {
        let at = numbers::whole(index, "index").map_err(starlark::Error::new_native)?;
        let length = self.len();
        let at = if at < 0 { at + length as i64 } else { at };
        usize::try_from(at).ok().filter(|at| *at < length).ok_or_else(|| {
            starlark::Error::new_native(raised("IndexError: deque index out of range"))
        })
    }
}

methods_static!(DEQUE_METHODS = deque_methods);

#[starlark_value(type = "deque")]
impl<'v> StarlarkValue<'v> for DequeValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(DEQUE_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        (attribute == "maxlen").then(|| self.maxlen.map_or_else(Value::new_none, |n| heap.alloc(n)))
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.len()).unwrap_or(i32::MAX))
    }

    fn to_bool(&self) -> bool {
        self.len() > 0
    }

    fn at(&self, index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let place = self.place(index)?;
        let found = self.items.try_borrow().ok().and_then(|items| items.get(place).copied());
        Ok(found.unwrap_or_else(Value::new_none))
    }

    fn set_at(&self, index: Value<'v>, value: Value<'v>) -> starlark::Result<()> {
        let place = self.place(index)?;
        if let Ok(mut items) = self.items.try_borrow_mut()
            && let Some(own) = items.get_mut(place)
        {
            *own = value;
        }
        Ok(())
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.all())
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        for item in self.all() {
            if item.equals(other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let Some(other) = other.downcast_ref::<DequeValue<'v>>() else { return Ok(false) };
        let (own, other) = (self.all(), other.all());
        if own.len() != other.len() {
            return Ok(false);
        }
        for (a, b) in own.into_iter().zip(other) {
            if !a.equals(b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn deque_of<'v>(this: Value<'v>) -> anyhow::Result<&'v DequeValue<'v>> {
    let own = this.downcast_ref::<DequeValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("this is no deque"))
}

#[starlark_module]
fn deque_methods(builder: &mut MethodsBuilder) {
    fn append<'v>(
        this: Value<'v>,
        #[starlark(require = pos)] value: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        deque_of(this)?.put(value, false);
        Ok(NoneType)
    }

    fn appendleft<'v>(
        this: Value<'v>,
        #[starlark(require = pos)] value: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        deque_of(this)?.put(value, true);
        Ok(NoneType)
    }

    fn extend<'v>(
        this: Value<'v>,
        #[starlark(require = pos)] values: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        for value in each(values, eval)? {
            deque_of(this).map_err(starlark::Error::new_native)?.put(value, false);
        }
        Ok(NoneType)
    }

    fn pop<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        deque_of(this)?.take(false)
    }

    fn popleft<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        deque_of(this)?.take(true)
    }

    fn clear<'v>(this: Value<'v>) -> anyhow::Result<NoneType> {
        if let Ok(mut items) = deque_of(this)?.items.try_borrow_mut() {
            items.clear();
        }
        Ok(NoneType)
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn defaultdict<'v>(
        #[starlark(require = pos, default = NoneType)] default_factory: Value<'v>,
        #[starlark(require = pos)] given: Option<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = given_and_named(given, named, eval)?;
        Ok(match default_factory.is_none() {
            true => eval.heap().alloc(AllocDict(all)),
            false => with_maker(all, default_factory, eval),
        })
    }

    /// The number of times that each value occurs. A missing value counts 0 times.
    fn Counter<'v>(
        #[starlark(require = pos)] of: Option<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let made = with_maker(Vec::new(), Value::new_none(), eval);
        let mut given = counted(of, eval)?;
        given.extend(named_of(named, eval.heap()));
        count(made, given, false, eval.heap())?;
        Ok(made)
    }

    fn OrderedDict<'v>(
        #[starlark(require = pos)] given: Option<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = given_and_named(given, named, eval)?;
        Ok(eval.heap().alloc(AllocDict(all)))
    }

    fn deque<'v>(
        #[starlark(default = NoneType)] iterable: Value<'v>,
        #[starlark(default = NoneType)] maxlen: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let native = starlark::Error::new_native;
        let maxlen = numbers::whole_or_none(maxlen, "maxlen").map_err(native)?;
        let maxlen = maxlen.map(usize::try_from).transpose();
        let maxlen =
            maxlen.map_err(|_| native(raised("ValueError: maxlen must be non-negative")))?;
        let made = DequeValue { items: RefCell::default(), maxlen };
        if !iterable.is_none() {
            for piece in each(iterable, eval)? {
                made.put(piece, false);
            }
        }
        Ok(eval.heap().alloc_complex_no_freeze(made))
    }
}

/// The field of a named tuple at an index; `None` if the value is not a named tuple.
///
/// # Errors
/// The index is out of range.
pub(crate) fn field<'v>(of: Value<'v>, index: Value<'v>) -> starlark::Result<Option<Value<'v>>> {
    let fields = of.downcast_ref::<InstanceValue<'v>>().and_then(fields_of);
    let Some(fields) = fields else { return Ok(None) };
    let native = starlark::Error::new_native;
    let at = numbers::whole(index, "index").map_err(native)?;
    let at = if at < 0 { at + fields.len() as i64 } else { at };
    let found = usize::try_from(at).ok().and_then(|at| fields.get(at).copied());
    found.map(Some).ok_or_else(|| native(raised("IndexError: tuple index out of range")))
}

#[starlark_module]
fn tuples(builder: &mut GlobalsBuilder) {
    fn namedtuple<'v>(
        typename: &str,
        field_names: Value<'v>,
        #[starlark(require = named, default = NoneType)] defaults: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let text = |of: &Value<'v>| of.unpack_str().unwrap_or_default().to_owned();
        let names: Vec<String> = match field_names.unpack_str() {
            Some(names) => names.replace(',', " ").split_whitespace().map(str::to_owned).collect(),
            None => each(field_names, eval)?.iter().map(text).collect(),
        };
        let mut members = SmallMap::new();
        let shown = heap.alloc(AllocTuple(names.iter().map(String::as_str).collect::<Vec<_>>()));
        members.insert(FIELDS.to_owned(), shown);
        let defaults = take::items(defaults).unwrap_or_default();
        for (name, value) in names.iter().rev().zip(defaults.into_iter().rev()) {
            members.insert(name.clone(), value);
        }
        let members = RefCell::new(members);
        let (name, fields) = (typename.to_owned(), Some(names));
        let class = ClassValue { name, above: Vec::new(), fields, members };
        Ok(heap.alloc_complex_no_freeze(class))
    }
}

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("collections", |builder| {
        functions(builder);
        tuples(builder);
    });
}
