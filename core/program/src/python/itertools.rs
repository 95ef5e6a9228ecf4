//! Python's `itertools`: finite results as lists, endless ones as iterators.

use crate::process::raised::raised;
use crate::python::iterator_value::{Source, made};
use crate::python::iterators::{each, is_lazy, iterator};
use crate::python::numbers;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, Value};

/// Entries of a list at most, of all its entries' entries together.
const MOST: usize = 1_000_000;

/// Combinations of indices; `take` decides which are kept.
fn choices(
    of: usize,
    size: usize,
    takes: impl Fn(&[usize], usize) -> bool,
) -> Option<Vec<Vec<usize>>> {
    let mut made: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..size {
        let mut longer = Vec::new();
        for front in &made {
            for at in (0..of).filter(|at| takes(front, *at)) {
                let mut next = front.clone();
                next.push(at);
                longer.push(next);
                if longer.len() * size > MOST {
                    return None;
                }
            }
        }
        made = longer;
    }
    Some(made)
}

fn listed<'v>(
    of: Value<'v>,
    size: Value<'v>,
    heap: Heap<'v>,
    takes: impl Fn(&[usize], usize) -> bool,
) -> starlark::Result<Value<'v>> {
    let native = starlark::Error::new_native;
    let items: Vec<Value<'v>> = of.iterate(heap)?.collect();
    let size =
        numbers::whole_or_none(size, "r").map_err(native)?.map_or(Ok(items.len()), |size| {
            usize::try_from(size).map_err(|_| native(raised("ValueError: r must be non-negative")))
        })?;
    let places = choices(items.len(), size.min(items.len() + 1), takes);
    let places = places.ok_or_else(|| native(anyhow::anyhow!("more than {MOST} choices")))?;
    let chosen = places.into_iter().map(|places| {
        let chosen = places.into_iter().filter_map(|at| items.get(at).copied());
        heap.alloc(AllocTuple(chosen.collect::<Vec<_>>()))
    });
    Ok(heap.alloc(AllocList(chosen)))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn combinations<'v>(
        iterable: Value<'v>,
        r: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        listed(iterable, r, heap, |front, at| front.last().is_none_or(|last| *last < at))
    }

    fn permutations<'v>(
        iterable: Value<'v>,
        #[starlark(default = NoneType)] r: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        listed(iterable, r, heap, |front, at| !front.contains(&at))
    }

    fn product<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = 1)] repeat: u32,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let mut factors: Vec<Vec<Value<'v>>> = Vec::with_capacity(iterables.items.len());
        for of in &iterables.items {
            factors.push(of.iterate(heap)?.collect());
        }
        let repeat = repeat as usize;
        let width = factors.len().saturating_mul(repeat);
        // An empty factor leaves no rows, however many others there are.
        let none = repeat > 0 && factors.iter().any(Vec::is_empty);
        let of_one = factors.iter().map(Vec::len).fold(1, usize::saturating_mul);
        let turns = if of_one > 1 { repeat } else { repeat.min(1) };
        let rows = match none {
            true => 0,
            // Whatever is doubled so often is more than may be.
            false => (0..turns.min(64)).fold(1, |rows: usize, _| rows.saturating_mul(of_one)),
        };
        if !none && width.max(1).saturating_mul(rows) > MOST {
            let why = anyhow::anyhow!("more than {MOST} entries of a product");
            return Err(starlark::Error::new_native(why));
        }
        let row = |nth: usize| {
            let mut rest = nth;
            let mut row = Vec::with_capacity(width);
            for factor in (0..repeat).flat_map(|_| &factors).rev() {
                row.extend(factor.get(rest % factor.len().max(1)).copied());
                rest /= factor.len().max(1);
            }
            row.reverse();
            heap.alloc(AllocTuple(row))
        };
        Ok(heap.alloc(AllocList((0..rows).map(row).collect::<Vec<_>>())))
    }

    fn chain<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = Vec::new();
        for of in iterables.items {
            all.extend(each(of, eval)?);
            if all.len() > MOST {
                let why = anyhow::anyhow!("more than {MOST} entries of a chain");
                return Err(starlark::Error::new_native(why));
            }
        }
        Ok(made(Source::Items(all), eval.heap()))
    }

    fn cycle<'v>(
        iterable: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let all = each(iterable, eval)?;
        Ok(made(Source::Cycle(all), eval.heap()))
    }

    fn count<'v>(
        #[starlark(default = NoneType)] start: Value<'v>,
        #[starlark(default = NoneType)] step: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let or = |of: Value<'v>, number: i32| if of.is_none() { heap.alloc(number) } else { of };
        Ok(made(Source::Count(or(start, 0), or(step, 1)), heap))
    }

    fn repeat<'v>(
        object: Value<'v>,
        #[starlark(default = NoneType)] times: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let times = numbers::whole_or_none(times, "times")?;
        let Some(times) = times else { return Ok(made(Source::Repeat(object), heap)) };
        let times = usize::try_from(times).unwrap_or(0);
        anyhow::ensure!(times <= MOST, "more than {MOST} entries");
        Ok(made(Source::Items(vec![object; times]), heap))
    }

    fn accumulate<'v>(
        iterable: Value<'v>,
        #[starlark(default = NoneType)] func: Value<'v>,
        #[starlark(require = named, default = NoneType)] initial: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = each(iterable, eval)?;
        if !initial.is_none() {
            all.insert(0, initial);
        }
        let mut sums: Vec<Value<'v>> = Vec::with_capacity(all.len());
        for piece in all {
            let next = match sums.last() {
                None => piece,
                Some(last) if func.is_none() => last.add(piece, eval.heap())?,
                Some(last) => eval.eval_function(func, &[*last, piece], &[])?,
            };
            sums.push(next);
        }
        Ok(made(Source::Items(sums), eval.heap()))
    }

    fn zip_longest<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] fillvalue: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = Vec::with_capacity(iterables.items.len());
        for of in iterables.items {
            all.push(each(of, eval)?);
        }
        let length = all.iter().map(Vec::len).max().unwrap_or(0);
        let heap = eval.heap();
        let row = |nth: usize| {
            let row = all.iter().map(|own| own.get(nth).copied().unwrap_or(fillvalue));
            heap.alloc(AllocTuple(row.collect::<Vec<_>>()))
        };
        Ok(heap.alloc(AllocList((0..length).map(row).collect::<Vec<_>>())))
    }

    /// Takes no more of an iterator than it returns.
    fn islice<'v>(
        iterable: Value<'v>,
        #[starlark(args)] bounds: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let bound = |of: Option<&Value<'v>>, least: i64, text: &str| {
            let Some(of) = of.filter(|of| !of.is_none()) else { return Ok(None) };
            let whole = match numbers::whole(*of, "islice()") {
                Err(error) if of.get_type() == "unknown" => {
                    return Err(starlark::Error::new_native(error));
                }
                whole => whole.ok().filter(|whole| *whole >= least),
            };
            let whole = whole.and_then(|whole| usize::try_from(whole).ok());
            let wrong = || starlark::Error::new_native(raised(format!("ValueError: {text}")));
            whole.map(Some).ok_or_else(wrong)
        };
        let (from, to, step) = match &bounds.items[..] {
            [to] => (None, Some(to), None),
            [from, to] => (Some(from), Some(to), None),
            [from, to, step] => (Some(from), Some(to), Some(step)),
            all => {
                let (word, got) =
                    if all.is_empty() { ("least 2", 1) } else { ("most 4", all.len() + 1) };
                let text = format!("TypeError: islice expected at {word} arguments, got {got}");
                return Err(starlark::Error::new_native(raised(text)));
            }
        };
        let range = "must be None or an integer: 0 <= x <= sys.maxsize.";
        let to = bound(to, 0, &format!("Stop argument for islice() {range}"))?;
        let from = bound(from, 0, &format!("Indices for islice() {range}"))?.unwrap_or(0);
        let step = bound(step, 1, "Step for islice() must be a positive integer or None.")?;
        let own = iterator(iterable, eval)?;
        let slice = made(Source::Slice { of: own, from, to, step: step.unwrap_or(1) }, eval.heap());
        // An iterable that nothing else iterates over may be taken at once.
        if own.ptr_eq(iterable) || is_lazy(iterable) {
            return Ok(slice);
        }
        let taken = each(slice, eval)?;
        Ok(made(Source::Items(taken), eval.heap()))
    }
}

/// The additional functions of `functools`.
#[starlark_module]
fn of_functools(builder: &mut GlobalsBuilder) {
    fn reduce<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] iterable: Value<'v>,
        #[starlark(require = pos)] initial: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut pieces = initial.into_iter().chain(each(iterable, eval)?);
        let Some(mut value) = pieces.next() else {
            let text = "TypeError: reduce() of empty iterable with no initial value";
            return Err(starlark::Error::new_native(raised(text)));
        };
        for piece in pieces {
            value = eval.eval_function(function, &[value, piece], &[])?;
        }
        Ok(value)
    }
}

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    of_functools(builder);
    builder.namespace("itertools", functions);
}
