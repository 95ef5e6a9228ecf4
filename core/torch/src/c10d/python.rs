//! Values as Python prints them, for the texts of its exceptions.

/// `str()` of an exception that was raised with several arguments: their tuple.
pub(super) fn arguments(arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|text| repr(text)).collect();
    format!("({})", arguments.join(", "))
}

/// `repr()` of a string without control characters.
pub(super) fn repr(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    match text.contains('\'') && !text.contains('"') {
        true => format!("\"{text}\""),
        false => format!("'{}'", text.replace('\'', "\\'")),
    }
}

/// A list of strings.
pub(super) fn list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| repr(name)).collect();
    format!("[{}]", names.join(", "))
}

/// A tuple of strings.
pub(super) fn tuple(names: &[&str]) -> String {
    let shown: Vec<_> = names.iter().map(|name| repr(name)).collect();
    match names.len() {
        1 => format!("({},)", shown[0]),
        _ => format!("({})", shown.join(", ")),
    }
}
