//! The classes above a class, as Python's `__mro__` has them: worked out once, when the class is made.

use crate::classes::objects::class;
use crate::process::raised::raised;
use starlark::values::Value;

/// Classes above one.
const MOST: usize = 500;

fn has(of: &[Value<'_>], one: Value<'_>) -> bool {
    of.iter().any(|own| own.ptr_eq(one))
}

/// All base classes of a class with these bases, the nearest first: the C3 linearization, which keeps each
/// base's own order and that of the bases.
///
/// # Errors
/// `TypeError` if there is no such order.
pub(crate) fn above<'v>(bases: &[Value<'v>]) -> anyhow::Result<Vec<Value<'v>>> {
    let line = |base: &Value<'v>| {
        let above = class(*base).map(|base| base.above.as_slice()).unwrap_or_default();
        [&[*base], above].concat()
    };
    let mut lines: Vec<Vec<Value<'v>>> = bases.iter().map(line).collect();
    lines.push(bases.to_vec());
    let mut all = Vec::new();
    loop {
        lines.retain(|line| !line.is_empty());
        let heads = lines.iter().filter_map(|line| line.first().copied());
        let behind = |one| lines.iter().any(|line| has(line.get(1..).unwrap_or_default(), one));
        let Some(next) = heads.clone().find(|one| !behind(*one)) else {
            if lines.is_empty() {
                return Ok(all);
            }
            let name =
                |base: Value<'v>| class(base).map_or_else(|| base.to_str(), |own| own.name.clone());
            let mut names: Vec<String> = Vec::new();
            for name in heads.map(name) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            let text =
                "TypeError: Cannot create a consistent method resolution order (MRO) for bases";
            return Err(raised(format!("{text} {}", names.join(", "))));
        };
        for line in &mut lines {
            if line.first().is_some_and(|one| one.ptr_eq(next)) {
                line.remove(0);
            }
        }
        all.push(next);
        anyhow::ensure!(all.len() <= MOST, "more than {MOST} classes above a class");
    }
}
