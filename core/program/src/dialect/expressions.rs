//! Expressions in Starlark's words: all rewritings that need no other statement, in their order.

use super::scan::{self, Logical};
use super::{
    annotations, arguments, bytes, chain, class_attribute, compare, displays, environ, fstring,
    load, methods, operators, own_operators, properties, reflected, subscript,
};
use crate::dialect::asked_methods::Asks;
use lockstep_scenarios::program::ProgramError;

/// The statement with f-strings and comparisons in Starlark's words, and its mask.
pub(super) fn expressions(statement: &Logical) -> Result<(String, String), ProgramError> {
    let (mut text, mut mask) = fstring::rewrite(statement, expression)?;
    class_attribute::rewrite(&mut text, &mut mask);
    properties::rewrite(&mut text, &mut mask);
    load::rewrite(&mut text, &mut mask);
    annotations::rewrite(&mut text, &mut mask);
    environ::rewrite(&mut text, &mut mask);
    bytes::rewrite(&mut text, &mut mask);
    displays::rewrite(&mut text, &mut mask);
    arguments::rewrite(&mut text, &mut mask);
    operators::rewrite(&mut text, &mut mask);
    if statement.asks.sums() {
        own_operators::rewrite(&mut text, &mut mask);
    }
    reflected::rewrite(&mut text, &mut mask);
    methods::rewrite(&mut text, &mut mask);
    subscript::rewrite(&mut text, &mut mask);
    statement.asks.rewrite(&mut text, &mut mask);
    chain::rewrite(&mut text, &mut mask);
    compare::rewrite(&mut text, &mut mask, statement.asks.orders());
    Ok((text, mask))
}

/// An expression inside of a text, in Starlark's words; as it is where it cannot be read.
pub(super) fn expression(text: &str, asks: Asks) -> String {
    let rewritten = match scan::scan(text).as_deref() {
        Ok([one]) => expressions(&Logical { asks, ..one.clone() }).ok(),
        _ => None,
    };
    rewritten.map_or_else(|| text.to_owned(), |(text, _)| text)
}
