//! `issubclass`, and the classes that `isinstance` compares with.

use crate::classes::objects;
use crate::python::types::TypeValue;
use crate::python::{exception_classes, exception_value};
use crate::torch::callable::Callable;
use starlark::values::tuple::TupleRef;
use starlark::values::{Value, ValueLike};

/// The classes that `isinstance` compares with, by name.
pub(crate) fn names(class: Value<'_>) -> Vec<String> {
    match TupleRef::from_value(class) {
        Some(classes) => classes.content().iter().flat_map(|class| names(*class)).collect(),
        None => match class.downcast_ref::<TypeValue>() {
            Some(class) => vec![class.0.clone()],
            None => vec![class.to_repr().trim_matches(['<', '>']).to_owned()],
        },
    }
}

/// The name of a class of exceptions.
fn callable(class: Value<'_>) -> Option<&'static str> {
    class.downcast_ref::<Callable>().map(Callable::name)
}

/// `issubclass(class, of)`.
///
/// # Errors
/// Values that are no class.
pub(super) fn is_below<'v>(class: Value<'v>, of: Value<'v>) -> anyhow::Result<bool> {
    if let Some(several) = TupleRef::from_value(of) {
        for of in several.content() {
            if is_below(class, *of)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if let Some(own) = objects::class(class) {
        if let Some(of) = objects::class(of) {
            return Ok(own.is(of));
        }
        let above = exception_value::native_of(own);
        return Ok(above
            .zip(callable(of))
            .is_some_and(|(own, of)| exception_classes::is_below(own, of)));
    }
    if let Some(own) = callable(class).filter(|own| exception_classes::is_class(own)) {
        return Ok(callable(of).is_some_and(|of| exception_classes::is_below(own, of)));
    }
    let (own, of_names) = (names(class), names(of));
    let below = |own: &String| {
        let base = own == "bool" && of_names.iter().any(|of| of == "int");
        base || of_names.contains(own) || of_names.iter().any(|of| of == "object")
    };
    Ok(own.iter().any(below))
}
