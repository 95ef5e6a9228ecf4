//! Objects as object calls pickle them. A function pickles by its name, which has to be one of its module: a
//! function inside another function has no such name, and Python refuses it.

use crate::dist::arguments as take;
use crate::process::state::{Process, process};
use lockstep_torch::c10d::{DistError, ErrorKind, Object};
use starlark::eval::Evaluator;
use starlark::values::Value;
use starlark::values::dict::DictRef;

/// Data in data that is looked into.
const MAX_NESTED: usize = 32;

/// An object as it is pickled, or Python's refusal.
pub(crate) fn object<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Object> {
    let object = take::object(value, eval.heap());
    let Some(name) = function(value, 0) else { return Ok(object) };
    Ok(match local_name(process(eval)?, &name) {
        Some(local) => object.refused_with(DistError::new(
            ErrorKind::AttributeError,
            format!("Can't pickle local object '{local}'"),
        )),
        None => object,
    })
}

/// Objects of a list.
pub(crate) fn objects<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Vec<Object>> {
    // A value that is not a list is refused there.
    let entries =
        take::items(value).filter(|items| items.iter().any(|item| function(*item, 0).is_some()));
    match entries {
        None => take::objects(value, eval.heap()),
        Some(entries) => entries.into_iter().map(|entry| object(entry, eval)).collect(),
    }
}

/// The name of the first function of the program in a value.
fn function(value: Value<'_>, depth: usize) -> Option<String> {
    if depth > MAX_NESTED {
        return None;
    }
    if value.get_type() == "function" {
        // The interpreter's own have no parameters that they tell.
        // Theirs are called by their file and name.
        let name = value.to_repr();
        let name = name.rsplit('.').next().unwrap_or_default().to_owned();
        return value.parameters_spec().is_some().then_some(name);
    }
    if let Some(items) = take::items(value) {
        return items.into_iter().find_map(|item| function(item, depth + 1));
    }
    let dict = DictRef::from_value(value)?;
    dict.iter().find_map(|(_, value)| function(value, depth + 1))
}

/// `main.<locals>.f` of a function that is defined inside of another one, as the text of the program
/// shows it.
fn local_name(process: &Process<'_>, name: &str) -> Option<String> {
    let lines = process.lines();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let defines = |line: &str| {
        let (name, _) = line.trim_start().strip_prefix("def ")?.split_once('(')?;
        Some(name.trim().to_owned())
    };
    let lambda = name == "lambda";
    let has = |line: &str| match lambda {
        true => line.contains("lambda"),
        false => defines(line).as_deref() == Some(name),
    };
    // The line that calls is the likeliest; of several others, the first.
    let own = (process.line as usize).checked_sub(1);
    let own = own.filter(|at| lines.get(*at).is_some_and(|line| has(line)));
    let at = own.or_else(|| lines.iter().position(|line| has(line)))?;
    let mut within = indent(lines.get(at)?);
    let mut names = vec![if lambda { "<lambda>".to_owned() } else { name.to_owned() }];
    for line in lines.get(..at)?.iter().rev() {
        if line.trim().is_empty() || indent(line) >= within {
            continue;
        }
        within = indent(line);
        names.extend(defines(line));
    }
    names.reverse();
    (names.len() > 1).then(|| names.join(".<locals>."))
}
