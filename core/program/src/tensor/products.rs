//! Products of matrices: `a @ b`, `torch.matmul` and its like, as shapes, and with values where every
//! element is known and the order of its sum makes no difference.

use crate::nn::output::OutputValue;
use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::tensor::element_operation::exact_sum;
use crate::tensor::elementwise::{known, like_it, made};
use crate::tensor::graph::joined;
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::environment::{GlobalsBuilder, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::{Value, ValueLike};

/// The shape of a product, and how it is worked out.
struct Product {
    shape: Vec<u64>,
    /// Matrices on the left and on the right; one serves all of the other side's.
    batches: [u64; 2],
    rows: u64,
    inner: u64,
    columns: u64,
}

/// PyTorch's error for shapes that are not multiplied.
fn wrong(a: &Tensor, b: &Tensor, rows: u64, inner: [u64; 2], columns: u64) -> anyhow::Error {
    runtime_error(match (a.shape().len(), b.shape().len()) {
        (1, 1) => format!(
            "inconsistent tensor size, expected tensor [{}] and src [{}] to have the same number of \
             elements, but got {} and {} elements respectively",
            inner[0], inner[1], inner[0], inner[1]
        ),
        (2, 1) => format!(
            "size mismatch, got input ({rows}), mat ({rows}x{}), vec ({})",
            inner[0], inner[1]
        ),
        _ => format!(
            "mat1 and mat2 shapes cannot be multiplied ({rows}x{} and {}x{columns})",
            inner[0], inner[1]
        ),
    })
}

impl Product {
    fn of(a: &Tensor, b: &Tensor) -> anyhow::Result<Product> {
        let (left, right) = (a.shape(), b.shape());
        if left.is_empty() || right.is_empty() {
            return Err(runtime_error(format!(
                "both arguments to matmul need to be at least 1D, but they are {}D and {}D",
                left.len(),
                right.len()
            )));
        }
        let (front_left, rows, inner_left) = match left {
            [only] => (&[][..], 1, *only),
            [front @ .., rows, inner] => (front, *rows, *inner),
            [] => (&[][..], 1, 1),
        };
        let (front_right, inner_right, columns) = match right {
            [only] => (&[][..], *only, 1),
            [front @ .., inner, columns] => (front, *inner, *columns),
            [] => (&[][..], 1, 1),
        };
        if inner_left != inner_right {
            return Err(wrong(a, b, rows, [inner_left, inner_right], columns));
        }
        let mut shape = crate::tensor::promotion::broadcast(front_left, front_right)?;
        let batches = [front_left, front_right].map(|front| front.iter().product::<u64>());
        if left.len() > 1 {
            shape.push(rows);
        }
        if right.len() > 1 {
            shape.push(columns);
        }
        Ok(Product { shape, batches, rows, inner: inner_left, columns })
    }

    /// Its elements, where each is known to the last bit.
    fn values(&self, dtype: Dtype, a: &[f64], b: &[f64]) -> Option<Vec<f64>> {
        let [left, right] = self.batches;
        let batches = left.max(right);
        // Broadcasting of other batch shapes is not followed.
        if (left != batches && left != 1) || (right != batches && right != 1) {
            return None;
        }
        let mut all = Vec::new();
        for batch in 0..batches {
            let from = |of: u64, size: u64| if of == 1 { 0 } else { batch * size };
            let (a_from, b_from) =
                (from(left, self.rows * self.inner), from(right, self.inner * self.columns));
            for row in 0..self.rows {
                for column in 0..self.columns {
                    let product = |nth: u64| {
                        let one = a.get((a_from + row * self.inner + nth) as usize)?;
                        let other = b.get((b_from + nth * self.columns + column) as usize)?;
                        Some(one * other)
                    };
                    let products: Option<Vec<f64>> = (0..self.inner).map(product).collect();
                    all.push(exact_sum(dtype, &products?)?);
                }
            }
        }
        Some(all)
    }
}

/// Multiplications that are worked out at most.
const MOST: u64 = 1 << 16;

/// `a @ b`.
fn product<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    for of in [a, b] {
        if of.downcast_ref::<OutputValue>().is_some() {
            return like_it(of, eval);
        }
    }
    let heap = eval.heap();
    let (left, right) = (tensor(a)?, tensor(b)?);
    if left.dtype() != right.dtype() {
        let name = |of: &Tensor| of.dtype().scalar_type().to_lowercase();
        return Err(runtime_error(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            name(left),
            name(right)
        )));
    }
    let product = Product::of(left, right)?;
    let process = process(eval)?;
    let size = product.shape.iter().fold(1u64, |size, of| size.saturating_mul(*of));
    let work = size.saturating_mul(product.inner.max(1));
    let values = match work <= MOST {
        true => known(process, left)?.zip(known(process, right)?),
        false => None,
    };
    let values = values.and_then(|(a, b)| product.values(left.dtype(), &a, &b));
    let like = left.clone().with_grad_fn(joined([left, right]));
    Ok(heap.alloc(made(process, &like, left.dtype(), &product.shape, values)?))
}

/// Methods of tensors.
#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
    fn matmul<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(this, other, eval)
    }

    fn mm<'v>(
        this: Value<'v>,
        mat2: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(this, mat2, eval)
    }

    fn bmm<'v>(
        this: Value<'v>,
        mat2: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(this, mat2, eval)
    }

    fn mv<'v>(
        this: Value<'v>,
        vec: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(this, vec, eval)
    }

    fn dot<'v>(
        this: Value<'v>,
        tensor: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(this, tensor, eval)
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `a @ b`.
    fn _matmul<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        product(a, b, eval)
    }
}

/// Adds the functions that the dialect writes.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
