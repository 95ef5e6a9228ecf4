//! `tril` and `triu`: the part of each matrix below or above a diagonal.

use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::tensor::elementwise::{known, made};
use crate::tensor::value::tensor;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;

fn triangle<'v>(
    name: &str,
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
    keeps: impl Fn(i64, i64) -> bool,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let of = tensor(of)?;
    let [.., rows, columns] = *of.shape() else {
        let text = format!("{name}: input tensor must have at least 2 dimensions");
        return Err(runtime_error(text));
    };
    let process = process(eval)?;
    let values = known(process, of)?.map(|values| {
        let place = |at: u64| ((at / columns % rows) as i64, (at % columns) as i64);
        let kept = (0..).zip(values).map(|(at, value)| {
            let (row, column) = place(at);
            if keeps(row, column) { value } else { 0.0 }
        });
        kept.collect()
    });
    Ok(heap.alloc(made(process, of, of.dtype(), of.shape(), values)?))
}

/// Methods of tensors.
#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
    fn tril<'v>(
        this: Value<'v>,
        #[starlark(default = 0)] diagonal: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        triangle("tril", this, eval, |row, column| column - row <= i64::from(diagonal))
    }

    fn triu<'v>(
        this: Value<'v>,
        #[starlark(default = 0)] diagonal: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        triangle("triu", this, eval, |row, column| column - row >= i64::from(diagonal))
    }
}
