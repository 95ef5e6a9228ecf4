//! `sum`, `mean`, `max` and the like of tensors: values where every element is known and PyTorch's answer
//! follows from them to the last bit, and else a shape.

use crate::dist::arguments as take;
use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::python::numbers;
use crate::tensor::element_operation::exact_sum;
use crate::tensor::elementwise::{known, made, pairwise};
use crate::tensor::indexing::dimension;
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;
use starlark::values::tuple::AllocTuple;

/// The reduction of several elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Sum,
    Mean,
    Norm,
    Prod,
    Max,
    Min,
    ArgMax,
    ArgMin,
    All,
    Any,
}

impl Fold {
    /// The type of the result.
    fn dtype(self, of: Dtype) -> anyhow::Result<Dtype> {
        let whole = !of.is_float() && !of.is_complex();
        Ok(match self {
            Fold::Sum | Fold::Prod if whole => Dtype::Int64,
            Fold::ArgMax | Fold::ArgMin => Dtype::Int64,
            Fold::All | Fold::Any => Dtype::Bool,
            Fold::Mean if whole => {
                return Err(runtime_error(format!(
                    "mean(): could not infer output dtype. Input dtype must be either a floating \
                     point or complex dtype. Got: {}",
                    of.scalar_type()
                )));
            }
            Fold::Norm if whole => {
                return Err(runtime_error(format!(
                    "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
                    of.scalar_type()
                )));
            }
            _ => of,
        })
    }

    /// The element that comes of those, in a result of that type; `None` where its last bit is not known.
    fn of(self, dtype: Dtype, values: &[f64]) -> Option<f64> {
        let best = |better: fn(f64, f64) -> bool| {
            let nan = values.iter().position(|value| value.is_nan());
            let first = |at: usize, (nth, value): (usize, &f64)| {
                if better(*value, *values.get(at).unwrap_or(value)) { nth } else { at }
            };
            nan.unwrap_or_else(|| values.iter().enumerate().fold(0, first))
        };
        let (max, min) = (|| best(|a, b| a > b), || best(|a, b| a < b));
        let at = |nth: usize| values.get(nth).copied();
        match self {
            Fold::Sum => exact_sum(dtype, values),
            Fold::Mean if matches!(dtype, Dtype::Float32 | Dtype::Float64) => {
                Some(exact_sum(dtype, values)? / values.len() as f64)
            }
            Fold::Mean | Fold::Norm => None,
            Fold::Prod if matches!(dtype, Dtype::Float16 | Dtype::Bfloat16) => None,
            Fold::Prod => values.iter().try_fold(1.0, |product, value| {
                let next = product * value;
                let exact = libm::floor(next) == next && next.abs() < 2048.0;
                exact.then_some(next)
            }),
            Fold::Max => at(max()),
            Fold::Min => at(min()),
            Fold::ArgMax => Some(max() as f64),
            Fold::ArgMin => Some(min() as f64),
            Fold::All => Some(f64::from(u8::from(values.iter().all(|value| *value != 0.0)))),
            Fold::Any => Some(f64::from(u8::from(values.iter().any(|value| *value != 0.0)))),
        }
    }
}

/// The dimensions that are meant: all where none is named.
fn dims_of(dim: Value<'_>, dims: usize) -> anyhow::Result<Vec<usize>> {
    let entries = match take::items(dim) {
        Some(entries) if entries.is_empty() => return Ok((0..dims).collect()),
        Some(entries) => entries,
        None if dim.is_none() => return Ok((0..dims).collect()),
        None => vec![dim],
    };
    // A tensor without dimensions has one, as far as that goes.
    let of = |dim: Value<'_>| dimension(numbers::whole(dim, "dim")?, dims.max(1));
    let mut found: Vec<usize> = entries.into_iter().map(of).collect::<anyhow::Result<_>>()?;
    found.sort_unstable();
    found.retain(|dim| *dim < dims);
    Ok(found)
}

/// For each element of the result, the positions of the elements that it is computed from.
fn places(shape: &[u64], over: &[usize]) -> Vec<Vec<usize>> {
    let numel: u64 = shape.iter().product();
    let left = shape.iter().enumerate().filter(|(dim, _)| !over.contains(dim));
    let count: u64 = left.map(|(_, size)| *size).product();
    let mut groups = vec![Vec::new(); count as usize];
    for index in 0..numel {
        let (mut rest, mut group, mut stride) = (index, 0, 1);
        for (dim, size) in shape.iter().enumerate().rev() {
            let nth = rest % size;
            rest /= size;
            if !over.contains(&dim) {
                group += nth * stride;
                stride *= size;
            }
        }
        if let Some(group) = groups.get_mut(group as usize) {
            group.push(index as usize);
        }
    }
    groups
}

fn folded<'v>(
    fold: Fold,
    of: Value<'v>,
    dim: Value<'v>,
    keepdim: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let of = tensor(of)?;
    let dtype = fold.dtype(of.dtype())?;
    let over = dims_of(dim, of.shape().len())?;
    let shape: Vec<u64> = of
        .shape()
        .iter()
        .enumerate()
        .filter(|(dim, _)| keepdim || !over.contains(dim))
        .map(|(dim, size)| if over.contains(&dim) { 1 } else { *size })
        .collect();
    let picks = matches!(fold, Fold::Max | Fold::Min | Fold::ArgMax | Fold::ArgMin);
    let none = over.iter().any(|dim| of.shape().get(*dim) == Some(&0));
    if none && (picks || fold == Fold::Mean) {
        let name = format!("{fold:?}").to_lowercase();
        anyhow::ensure!(!picks, "{name}() of a tensor without elements");
    }
    let process = process(eval)?;
    let values = known(process, of)?.and_then(|values| {
        let groups = places(of.shape(), &over);
        let each = |group: &Vec<usize>| {
            let values: Option<Vec<f64>> =
                group.iter().map(|at| values.get(*at).copied()).collect();
            fold.of(dtype, &values?)
        };
        groups.iter().map(each).collect()
    });
    Ok(heap.alloc(made(process, of, dtype, &shape, values)?))
}

/// `x.max(dim)`: values and where they are.
fn best<'v>(
    folds: [Fold; 2],
    of: Value<'v>,
    dim: Value<'v>,
    keepdim: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    if dim.is_none() {
        return folded(folds[0], of, dim, false, eval);
    }
    if tensor(dim).is_ok() {
        let fold = folds[0];
        return pairwise(of, dim, None, eval, |a, b| {
            let first = if fold == Fold::Max { a >= b } else { a <= b };
            Some(if a.is_nan() || (first && !b.is_nan()) { a } else { b })
        });
    }
    let both =
        [folded(folds[0], of, dim, keepdim, eval)?, folded(folds[1], of, dim, keepdim, eval)?];
    Ok(eval.heap().alloc(AllocTuple(both)))
}

/// Methods of tensors, and functions of `torch`'s.
#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
    fn sum<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Sum, this, dim, keepdim, eval)
    }

    fn mean<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Mean, this, dim, keepdim, eval)
    }

    /// A norm, of which only the shape is followed: its last bit is the machine's.
    fn norm<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] p: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = p;
        folded(Fold::Norm, this, dim, keepdim, eval)
    }

    fn prod<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Prod, this, dim, keepdim, eval)
    }

    fn max<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        best([Fold::Max, Fold::ArgMax], this, dim, keepdim, eval)
    }

    fn min<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        best([Fold::Min, Fold::ArgMin], this, dim, keepdim, eval)
    }

    fn argmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::ArgMax, this, dim, keepdim, eval)
    }

    fn argmin<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::ArgMin, this, dim, keepdim, eval)
    }

    /// `_, pred = out.topk(5, 1)`: of the largest only the shape is followed.
    fn topk<'v>(
        this: Value<'v>,
        k: i32,
        #[starlark(default = -1)] dim: i32,
        #[starlark(default = true)] largest: bool,
        #[starlark(default = true)] sorted: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (largest, sorted);
        let of = tensor(this)?;
        let at = dimension(i64::from(dim), of.shape().len().max(1))?;
        let mut shape = of.shape().to_vec();
        let size = shape.get_mut(at).zip(u64::try_from(k).ok()).filter(|(own, k)| *k <= **own);
        let Some((own, k)) = size else {
            return Err(runtime_error("selected index k out of range"));
        };
        *own = k;
        let process = process(eval)?;
        let both = [
            made(process, of, of.dtype(), &shape, None)?,
            made(process, of, Dtype::Int64, &shape, None)?,
        ];
        Ok(eval.heap().alloc(AllocTuple(both)))
    }

    fn all<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::All, this, dim, keepdim, eval)
    }

    fn any<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Any, this, dim, keepdim, eval)
    }
}
