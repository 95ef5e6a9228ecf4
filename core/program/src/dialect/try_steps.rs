//! The steps that a statement of a `try` becomes: the computation, and the assignment, each only
//! where nothing has raised before.

use crate::dialect::assignment_targets::{Target, assigned, is_part};

/// The statements, which have equal indentation.
pub(super) fn steps(text: &str, mask: &str, guard: usize) -> Vec<String> {
    let goes = format!("if _try_{guard}.goes:");
    // A module that is not there raises where that is tried.
    let text = tried_import(text).unwrap_or_else(|| text.to_owned());
    // A mask is as long as its text.
    let target = if text.len() == mask.len() { assigned(mask) } else { imported(&text) };
    let Some((end, target)) = target else {
        return vec![format!("{goes} _attempt(_try_{guard}, lambda: ({text}))")];
    };
    let (names, value) = (&text[..end], text[end..].trim());
    let tried = |value: &str| format!("{goes} _tried = _attempt(_try_{guard}, lambda: {value})");
    let part = |given: &str| {
        [format!("def _part(): {given}"), format!("{goes} _attempt(_try_{guard}, _part)")]
    };
    match target {
        Target::Name => vec![tried(&format!("({value})")), format!("{goes} {names} _tried")],
        Target::Part => part(&text).to_vec(),
        Target::Augmented(at) if is_part(&mask[..at]) => part(&text).to_vec(),
        // An augmented assignment may change the variable's value in place, as with a list.
        Target::Augmented(at) => {
            let (name, operator) = (text[..at].trim(), text[at..end].trim());
            vec![
                format!("def _part(_own): _own {operator} ({value}); return _own"),
                tried(&format!("_part({name})")),
                format!("{goes} {name} = _tried"),
            ]
        }
        Target::Several(shape, places) => {
            let first = tried(&format!("_unpacked(({value}), {shape})"));
            if !places.iter().any(|own| is_part(&mask[own.clone()])) {
                return vec![first, format!("{goes} {names} _tried")];
            }
            // One after the other: what is given to a part may raise, and its key may be one of the
            // names.
            let mut held = names.to_owned();
            for (nth, own) in places.iter().enumerate().rev() {
                held.replace_range(own.clone(), &format!("_held_{nth}"));
            }
            let mut all = vec![first, format!("{goes} {held} _tried")];
            for (nth, own) in places.into_iter().enumerate() {
                let given = format!("{} = _held_{nth}", &text[own.clone()]);
                match is_part(&mask[own]) {
                    true => all.extend(part(&given)),
                    false => all.push(format!("{goes} {given}")),
                }
            }
            all
        }
    }
}

/// An import as `import::statement` writes it, `np = _imported(…)`, that raises where the module is missing; `None`
/// for any other statement, whatever its strings say.
fn tried_import(text: &str) -> Option<String> {
    let (own, import) = text.split_once(" = _imported(")?;
    let is_name = own.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    is_name.then(|| format!("{own} = _import_tried({import}"))
}

/// The target of an import, whose value has no `=`.
fn imported(text: &str) -> Option<(usize, Target)> {
    Some((text.find('=')? + 1, Target::Name))
}
