//! Python's `itertools`, as far as it ends: what its functions go through, as lists.

use super::arguments as take;
use super::python::raised;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, Value};

/// Entries of a list at most, of all its entries' entries together.
const MOST: usize = 1_000_000;

/// Choices of places: each is taken if it is told so.
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
    let size = take::whole_or_none(size, "r").map_err(native)?.map_or(Ok(items.len()), |size| {
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
        #[starlark(default = starlark::values::none::NoneType)] r: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        listed(iterable, r, heap, |front, at| !front.contains(&at))
    }

    fn product<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = 1)] repeat: u32,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let mut made: Vec<Vec<Value<'v>>> = vec![Vec::new()];
        for _ in 0..repeat {
            for of in &iterables.items {
                let items: Vec<Value<'v>> = of.iterate(heap)?.collect();
                let width = made.first().map_or(0, Vec::len) + 1;
                if made.len().saturating_mul(items.len()).saturating_mul(width) > MOST {
                    let why = anyhow::anyhow!("more than {MOST} entries of a product");
                    return Err(starlark::Error::new_native(why));
                }
                let longer = made.iter().flat_map(|front| {
                    items.iter().map(|item| front.iter().copied().chain([*item]).collect())
                });
                made = longer.collect();
            }
        }
        let tuples = made.into_iter().map(|entries| heap.alloc(AllocTuple(entries)));
        Ok(heap.alloc(AllocList(tuples.collect::<Vec<_>>())))
    }

    fn chain<'v>(
        #[starlark(args)] iterables: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let mut all = Vec::new();
        for of in iterables.items {
            all.extend(of.iterate(heap)?);
        }
        Ok(heap.alloc(AllocList(all)))
    }

    fn islice<'v>(
        iterable: Value<'v>,
        start: Value<'v>,
        #[starlark(default = starlark::values::none::NoneType)] stop: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let whole = |of: Value<'v>| {
            let whole = take::whole_or_none(of, "islice()").map_err(starlark::Error::new_native)?;
            Ok::<_, starlark::Error>(whole.and_then(|at| usize::try_from(at).ok()))
        };
        let (first, second) = (whole(start)?, whole(stop)?);
        let (from, to) = if stop.is_none() { (0, first) } else { (first.unwrap_or(0), second) };
        let taken = iterable.iterate(heap)?.take(to.unwrap_or(MOST)).skip(from);
        Ok(heap.alloc(AllocList(taken.collect::<Vec<_>>())))
    }
}

/// Adds it.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("itertools", functions);
}
