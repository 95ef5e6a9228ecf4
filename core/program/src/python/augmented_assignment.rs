//! `x += y` and its like: the functions that the dialect writes for a name, an attribute and an item, each of
//! which is evaluated once.

use crate::classes::operators;
use crate::python::numbers::counted;
use crate::python::powers::{power, shifted};
use crate::python::subscript::{item, set_item};
use crate::python::type_error::class_of;
use crate::tensor::arithmetic;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

/// The result of `this operator= other`: a tensor and a list are changed in place.
///
/// # Errors
/// An exception that a program's operator raises, or operands that do not fit each other.
fn changed<'v>(
    operator: &str,
    this: Value<'v>,
    other: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    if this.get_type() == "Tensor" {
        let made = arithmetic::in_place(operator, this, other, eval);
        return made.map_err(starlark::Error::new_native);
    }
    if let Some(own) = operators::made((operator, true), this, other, eval)? {
        return Ok(own);
    }
    match operator {
        "+" if this.get_type() == "list" => {
            let extend = this.get_attr_error("extend", heap)?;
            eval.eval_function(extend, &[other], &[])?;
            Ok(this)
        }
        "+" => counted(this, heap).add(counted(other, heap), heap),
        "-" => counted(this, heap).sub(counted(other, heap), heap),
        "*" => this.mul(other, heap),
        "**" => power(this, other, heap),
        "<<" => shifted(this, other, heap),
        _ => this.div(other, heap),
    }
}

fn immutable(what: &str, of: Value<'_>) -> starlark::Error {
    let class = class_of(of);
    starlark::Error::new_native(anyhow::anyhow!(
        "Cannot mutate an immutable value: a {class} in {what}"
    ))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `x += y`. With `part`, the result is not assigned: only a tensor is changed then.
    fn _in_place<'v>(
        #[starlark(require = pos)] operator: &str,
        #[starlark(require = pos)] this: Value<'v>,
        #[starlark(require = pos)] other: Value<'v>,
        #[starlark(require = pos, default = false)] part: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        match part && this.get_type() != "Tensor" {
            true => Err(immutable("an attribute or a slice", this)),
            false => changed(operator, this, other, eval),
        }
    }

    /// `of.name += value` and its like: a tensor is changed in place, wherever it hangs.
    fn _augment<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] operator: &str,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let own = of.get_attr_error(name, eval.heap())?;
        let assigned = matches!(of.get_type(), "object" | "type");
        if !assigned && own.get_type() != "Tensor" {
            return Err(immutable("an attribute", own));
        }
        let made = changed(operator, own, value, eval)?;
        if assigned {
            of.set_attr(name, made)?;
        }
        Ok(NoneType)
    }

    /// `of[key] += value` and its like.
    fn _augment_item<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] key: Value<'v>,
        #[starlark(require = pos)] operator: &str,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let own = item(of, key, eval)?;
        let made = changed(operator, own, value, eval)?;
        set_item(of, key, made, eval)?;
        Ok(NoneType)
    }
}

/// Adds the functions that the dialect writes.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
