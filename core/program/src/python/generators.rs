//! Generator functions, as `dialect::generators` writes them: their values are collected in a list.

use crate::dist::arguments as take;
use crate::process::state::process;
use crate::python::iterator_value::{Source, made};
use crate::python::numbers;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::AllocList;

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A generator function begins: the list of its values, behind the number of operations so far.
    fn _generates<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let ops = process(eval)?.ops();
        let heap = eval.heap();
        Ok(heap.alloc(AllocList([heap.alloc(u32::try_from(ops)?)])))
    }

    /// The iterator over the values, at the function's end.
    fn _generated<'v>(
        #[starlark(require = pos)] yielded: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let items = take::items(yielded).unwrap_or_default();
        let Some((ops, values)) = items.split_first() else {
            anyhow::bail!("a generator that did not begin")
        };
        let ops = usize::try_from(numbers::whole(*ops, "the number of operations")?)?;
        anyhow::ensure!(
            !process(eval)?.calls_since(ops),
            "a generator that makes calls of torch.distributed is not followed here, since each call waits until the \
             loop asks for the next value: make the calls in the loop itself"
        );
        Ok(made(Source::Items(values.to_vec()), eval.heap()))
    }
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
