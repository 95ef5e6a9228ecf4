//! Hooks of tensors, modules and wrapped models. What a hook does is not followed: the plan has a remark with its
//! line, so that no verdict on the job is healthy.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::process::state::process;
use crate::tensor::value::tensor;
use allocative::Allocative;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneType;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// The handle that the registration of a hook returns.
#[derive(Clone, Copy, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct HandleValue;
starlark_simple_value!(HandleValue);

impl fmt::Display for HandleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.hooks.RemovableHandle object>")
    }
}

methods_static!(HANDLE_METHODS = handle_methods);

#[starlark_value(type = "RemovableHandle")]
impl<'v> StarlarkValue<'v> for HandleValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(HANDLE_METHODS.methods())
    }
}

#[starlark_module]
fn handle_methods(builder: &mut MethodsBuilder) {
    fn remove<'v>(this: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = this;
        Ok(NoneType)
    }
}

/// Notes that a hook is registered, which is not followed.
pub(crate) fn unfollowed(
    what: &str,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<HandleValue> {
    let process = process(eval)?;
    let (line, why) = (process.line, "what a hook does is not followed".to_owned());
    process.dist()?.note_unfollowed(what.to_owned(), line, why);
    Ok(HandleValue)
}

#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
    fn register_hook<'v>(
        this: Value<'v>,
        hook: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<HandleValue> {
        let _ = (tensor(this)?, hook);
        unfollowed("register_hook", eval)
    }

    fn register_post_accumulate_grad_hook<'v>(
        this: Value<'v>,
        hook: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<HandleValue> {
        let _ = (tensor(this)?, hook);
        unfollowed("register_post_accumulate_grad_hook", eval)
    }
}
