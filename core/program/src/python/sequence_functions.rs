//! Functions that iterate over values: `list`, `tuple`, `enumerate`, `zip`, `sorted` and their like, of
//! texts, of objects with an `__iter__`, and of lazy iterators.

use crate::classes::special_methods::truth;
use crate::python::iterator_value::{Source, made};
use crate::python::iterators::{advance, each, is_lazy, iterator};
use crate::python::value_methods;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::AllocList;
use starlark::values::tuple::{AllocTuple, UnpackTuple};

/// True if the same iterator is given twice: `zip(it, it)` takes its items by turns.
fn has_twice(all: &[Value<'_>]) -> bool {
    let mut before = all.iter().enumerate().map(|(at, one)| (one, all.get(..at)));
    before.any(|(one, before)| {
        let mut before = before.unwrap_or_default().iter();
        one.get_type() == "iterator" && before.any(|other| other.ptr_eq(*one))
    })
}

/// A piece of each, until one of them has none.
fn by_turns<'v>(
    all: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<Value<'v>>> {
    let mut own = Vec::with_capacity(all.len());
    for of in all {
        own.push(iterator(*of, eval)?);
    }
    let mut rows = Vec::new();
    loop {
        let mut row = Vec::with_capacity(own.len());
        for of in &own {
            match advance(*of, eval)? {
                Some(piece) => row.push(piece),
                None => return Ok(rows),
            }
        }
        rows.push(eval.heap().alloc(AllocTuple(row)));
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn list<'v>(
        #[starlark(require = pos)] of: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = of.map_or_else(|| Ok(Vec::new()), |of| each(of, eval))?;
        Ok(eval.heap().alloc(AllocList(all)))
    }

    fn tuple<'v>(
        #[starlark(require = pos)] of: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = of.map_or_else(|| Ok(Vec::new()), |of| each(of, eval))?;
        Ok(eval.heap().alloc(AllocTuple(all)))
    }

    fn reversed<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = each(of, eval)?;
        all.reverse();
        Ok(made(Source::Items(all), eval.heap()))
    }

    fn enumerate<'v>(
        iterable: Value<'v>,
        #[starlark(default = 0)] start: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if is_lazy(iterable) {
            let own = iterator(iterable, eval)?;
            return Ok(made(Source::Numbered(own, start), eval.heap()));
        }
        let all = each(iterable, eval)?;
        let heap = eval.heap();
        let pairs = (start..).zip(all).map(|pair| heap.alloc(pair));
        Ok(made(Source::Items(pairs.collect()), heap))
    }

    fn zip<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = false)] strict: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if iterables.items.iter().any(|of| is_lazy(*of)) {
            let mut own = Vec::with_capacity(iterables.items.len());
            for of in iterables.items {
                own.push(iterator(of, eval)?);
            }
            return Ok(made(Source::Beside(own), eval.heap()));
        }
        if has_twice(&iterables.items) && !strict {
            let rows = by_turns(&iterables.items, eval)?;
            return Ok(made(Source::Items(rows), eval.heap()));
        }
        let mut all = Vec::with_capacity(iterables.items.len());
        for of in iterables.items {
            all.push(each(of, eval)?);
        }
        let length = all.iter().map(Vec::len).min().unwrap_or(0);
        if let Some(at) = all.iter().position(|own| Some(own.len()) != all.first().map(Vec::len))
            && strict
        {
            let shorter = all.get(at).map(Vec::len) < all.first().map(Vec::len);
            let of = if at == 1 { "argument 1".to_owned() } else { format!("arguments 1-{at}") };
            let than = if shorter { "shorter" } else { "longer" };
            let text = format!("ValueError: zip() argument {} is {than} than {of}", at + 1);
            return Err(starlark::Error::new_native(crate::process::raised::raised(text)));
        }
        let heap = eval.heap();
        let row = |nth: usize| {
            let row = all.iter().filter_map(|own| own.get(nth).copied());
            heap.alloc(AllocTuple(row.collect::<Vec<_>>()))
        };
        Ok(made(Source::Items((0..length).map(row).collect()), heap))
    }

    fn sorted<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named, default = false)] reverse: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = each(of, eval)?;
        let list = eval.heap().alloc(AllocList(all));
        let mut named = vec![("reverse", Value::new_bool(reverse))];
        named.extend(key.map(|key| ("key", key)));
        value_methods::call("sort", list, &[], &named, eval)?;
        Ok(list)
    }

    fn any<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        for piece in each(of, eval)? {
            if truth(piece, eval)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn all<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        for piece in each(of, eval)? {
            if !truth(piece, eval)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn map<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = Vec::with_capacity(iterables.items.len());
        for of in iterables.items {
            all.push(each(of, eval)?);
        }
        let length = all.iter().map(Vec::len).min().unwrap_or(0);
        let mut answers = Vec::with_capacity(length);
        for nth in 0..length {
            let row: Vec<Value<'v>> = all.iter().filter_map(|own| own.get(nth).copied()).collect();
            answers.push(eval.eval_function(function, &row, &[])?);
        }
        Ok(made(Source::Items(answers), eval.heap()))
    }

    fn filter<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut taken_in = Vec::new();
        for piece in each(of, eval)? {
            let taken = match function.is_none() {
                true => piece,
                false => eval.eval_function(function, &[piece], &[])?,
            };
            if truth(taken, eval)? {
                taken_in.push(piece);
            }
        }
        Ok(made(Source::Items(taken_in), eval.heap()))
    }
}

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
