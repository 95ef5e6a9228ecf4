//! Python's exceptions for errors that the interpreter words its own way.

/// The exception that Python raises where the interpreter says this: its rank ends, and the others
/// go on.
pub(crate) fn exception(message: &str) -> Option<String> {
    if let Some(key) = between(message, "Key `", "` was not found") {
        let text = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
        let shown = text.map_or_else(|| key.to_owned(), crate::python::value_text::quoted);
        return Some(format!("KeyError: {shown}"));
    }
    if between(message, "Index `", "` is out of bound").is_some() {
        return Some("IndexError: list index out of range".to_owned());
    }
    if between(message, "Element '", "]'").is_some_and(|rest| rest.contains("not found in list")) {
        return Some("ValueError: list.remove(x): x not in list".to_owned());
    }
    if let Some(counts) = message.strip_prefix("Unpacked ")
        && let Some((got, expected)) = counts.split_once(" values but expected ")
        && let (Ok(got), Ok(expected)) = (got.parse::<u32>(), expected.parse::<u32>())
    {
        return Some(match got > expected {
            true => format!("ValueError: too many values to unpack (expected {expected})"),
            false => {
                format!("ValueError: not enough values to unpack (expected {expected}, got {got})")
            }
        });
    }
    if let Some(name) = between(message, "Object of type `NoneType` has no attribute `", "`") {
        return Some(format!("AttributeError: 'NoneType' object has no attribute '{name}'"));
    }
    if message.starts_with("float division by zero") {
        let float = message.contains('.');
        let what = if float { "float division by zero" } else { "division by zero" };
        return Some(format!("ZeroDivisionError: {what}"));
    }
    if message.starts_with("Floor division by zero") || message.starts_with("Modulo by zero") {
        return Some("ZeroDivisionError: integer division or modulo by zero".to_owned());
    }
    operands(message)
}

/// The exception that Python raises for an operator between values that it does not take.
fn operands(message: &str) -> Option<String> {
    let (operator, types) =
        between(message, "Operation `", "`")?.split_once("` not supported for types `")?;
    let (left, right) = types.split_once("` and `")?;
    let plain = ["int", "float", "string", "list", "tuple", "dict", "NoneType"];
    if ![left, right].iter().all(|name| plain.contains(name)) {
        return None;
    }
    let name = |of: &str| if of == "string" { "str".to_owned() } else { of.to_owned() };
    let (own, other) = (name(left), name(right));
    let sequence = ["str", "list", "tuple"].contains(&own.as_str());
    let text = match operator {
        "+" if sequence => format!("can only concatenate {own} (not \"{other}\") to {own}"),
        "+" | "-" | "/" | "//" => {
            format!("unsupported operand type(s) for {operator}: '{own}' and '{other}'")
        }
        _ => return None,
    };
    Some(format!("TypeError: {text}"))
}

fn between<'m>(message: &'m str, before: &str, after: &str) -> Option<&'m str> {
    message.strip_prefix(before)?.strip_suffix(after)
}
