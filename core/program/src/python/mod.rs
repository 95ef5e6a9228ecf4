//! Python's own functions, texts and methods, where Starlark has none or answers otherwise.

pub(crate) mod argparse;
pub(crate) mod augmented_assignment;
pub(crate) mod builtin_classes;
mod builtins;
pub(crate) mod collections;
pub(crate) mod comparison;
pub(crate) mod environ;
pub(crate) mod error_text;
pub(crate) mod exception_classes;
pub(crate) mod exception_value;
pub(crate) mod exceptions;
pub(crate) mod float;
pub(crate) mod format;
mod format_spec;
pub(crate) mod generators;
pub(crate) mod int_and_bytes;
pub(crate) mod iterator_value;
pub(crate) mod iterators;
pub(crate) mod itertools;
pub(crate) mod json;
pub(crate) mod loggers;
pub(crate) mod logging;
mod math;
mod min_max;
pub(crate) mod numbers;
pub(crate) mod powers;
pub(crate) mod process_exit;
mod sequence_functions;
pub(crate) mod standard_library;
pub(crate) mod subclasses;
pub(crate) mod subscript;
pub(crate) mod traceback;
pub(crate) mod try_statement;
pub(crate) mod type_error;
pub(crate) mod types;
mod value_methods;
pub(crate) mod value_text;
pub(crate) mod with_statement;

use starlark::environment::GlobalsBuilder;

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builtins::add(builder);
    comparison::add(builder);
    min_max::add(builder);
    math::add(builder);
    powers::add(builder);
    sequence_functions::add(builder);
}
