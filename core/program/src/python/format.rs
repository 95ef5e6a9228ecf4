//! Texts made from values: `format(x, ".3f")`, `"{} {:>4}".format(a, b)`, `"%d %.3f" % (a, b)`.

use super::float::float_of;
use crate::dist::arguments::items;
use crate::process::raised::raised;
use crate::process::undecided::{self, UnknownValue};
use crate::python::format_spec::{Formatted, Spec, number};
use crate::python::type_error::class_of;
use crate::python::value_text;
use crate::tensor::value::tensor;
use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value, ValueLike};

/// The form of a value for a format.
fn formatted<'v>(value: Value<'v>, heap: Heap<'v>) -> Formatted {
    if let Some(float) = float_of(value) {
        return Formatted::Float(float);
    }
    match value.get_type() {
        "int" => Formatted::Int(value.to_str()),
        _ => Formatted::Text(value_text::text(value, heap)),
    }
}

/// `format(value, spec)`, and `{value!r:spec}` in an f-string.
///
/// # Errors
/// `ValueError` if the format does not fit such a value.
pub(crate) fn format<'v>(value: Value<'v>, spec: &str, heap: Heap<'v>) -> anyhow::Result<String> {
    let (of, spec) = match spec.strip_prefix("!r") {
        Some(rest) => (Formatted::Text(value_text::repr(value, heap)), rest),
        None => match spec.strip_prefix("!s") {
            Some(rest) => (Formatted::Text(value_text::text(value, heap)), rest),
            None => (formatted(value, heap), spec),
        },
    };
    let spec = spec.strip_prefix(':').unwrap_or(spec);
    if spec.is_empty() {
        return Ok(match of {
            Formatted::Text(text) => text,
            _ => value_text::text(value, heap),
        });
    }
    // An unknown value is shown as such.
    if value.downcast_ref::<UnknownValue>().is_some() {
        return Ok(value.to_str());
    }
    if let Ok(tensor) = tensor(value) {
        return match tensor.shape().is_empty() {
            true => Ok(format!("<a tensor's value: {}", undecided::SHOWN)),
            false => {
                let text = "TypeError: unsupported format string passed to Tensor.__format__";
                Err(raised(text))
            }
        };
    }
    let of = match (value.unpack_bool(), spec.ends_with(['d', 'f', 'e', 'g', 'x', '%'])) {
        (Some(yes), true) => Formatted::Int(u8::from(yes).to_string()),
        _ => of,
    };
    let class = class_of(value);
    let Some(read) = Spec::read(spec) else {
        let text =
            format!("ValueError: Invalid format specifier '{spec}' for object of type '{class}'");
        return Err(raised(text));
    };
    read.apply(&of).ok_or_else(|| {
        let kind = read.kind.unwrap_or('s');
        raised(format!("ValueError: Unknown format code '{kind}' for object of type '{class}'"))
    })
}

/// The function that shows a value, with whether `!r` asks for its `repr()`.
pub(super) type Show<'x, 'v> = &'x mut dyn FnMut(Value<'v>, bool) -> anyhow::Result<Value<'v>>;

/// `template.format(…)` of positional and named values.
///
/// # Errors
/// The error that Python raises: an index past the arguments, or a brace that is not closed.
pub(super) fn template<'v>(
    template: &str,
    (args, named): (&[Value<'v>], &[(&str, Value<'v>)]),
    show: Show<'_, 'v>,
    heap: Heap<'v>,
) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = template;
    let mut next = 0;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            out.push_str(&rest[..1]);
            rest = after;
            continue;
        }
        let Some(after) = rest.strip_prefix('{') else {
            return Err(raised("ValueError: Single '}' encountered in format string"));
        };
        let Some(end) = after.find('}') else {
            return Err(raised("ValueError: expected '}' before end of string"));
        };
        let field = &after[..end];
        let split = field.find(['!', ':']).unwrap_or(field.len());
        let (path, spec) = field.split_at(split);
        let name_end = path.find(['.', '[']).unwrap_or(path.len());
        let (name, path) = path.split_at(name_end);
        let value = match name.parse::<usize>() {
            Ok(index) => args.get(index).copied(),
            Err(_) if name.is_empty() => {
                next += 1;
                args.get(next - 1).copied()
            }
            Err(_) => {
                let found = named.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
                let missing = || raised(format!("KeyError: {}", value_text::quoted(name)));
                Some(found.ok_or_else(missing)?)
            }
        };
        let Some(value) = value else {
            let index = name.parse().unwrap_or(next - 1);
            return Err(raised(format!(
                "IndexError: Replacement index {index} out of range for positional args tuple"
            )));
        };
        let value = show(inner(value, path, heap)?, spec.starts_with("!r"))?;
        out.push_str(&format(value, spec, heap)?);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// `.name` and `[index]` behind a field's name.
fn inner<'v>(value: Value<'v>, path: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let mut value = value;
    for part in path.split_inclusive(['.', ']']).filter(|part| *part != ".") {
        let part = part.trim_matches(['.', '[', ']']);
        if part.is_empty() {
            continue;
        }
        let index = match part.parse::<i32>() {
            Ok(index) => heap.alloc(index),
            Err(_) => heap.alloc(part),
        };
        let found = match value.get_attr(part, heap) {
            Ok(Some(found)) => Ok(found),
            _ => value.at(index, heap),
        };
        value = found.map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    Ok(value)
}

/// The conversion of each value of a `%` format: the letters at the ends of its parts.
pub(super) fn conversions(template: &str) -> Vec<char> {
    let mut parts = template.split('%').skip(1);
    let mut kinds = Vec::new();
    while let Some(part) = parts.next() {
        match part.chars().find(|c| c.is_alphabetic()) {
            // `%%`
            _ if part.is_empty() => {
                parts.next();
            }
            Some(kind) => kinds.push(kind),
            None => {}
        }
    }
    kinds
}

/// `template % values`.
///
/// # Errors
/// The error that Python raises: too few or too many values, or a value that is not a number.
pub(crate) fn percent<'v>(
    template: &str,
    values: Value<'v>,
    heap: Heap<'v>,
) -> anyhow::Result<String> {
    let tuple = TupleRef::from_value(values).map(|tuple| tuple.content().to_vec());
    let one = tuple.is_none();
    let args = tuple.unwrap_or_else(|| vec![values]);
    let mut args = args.into_iter();
    let few = || raised("TypeError: not enough arguments for format string");
    let mut out = String::new();
    let mut rest = template;
    let mut by_name = false;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut named = None;
        if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            let Some(entries) = DictRef::from_value(values) else {
                return Err(raised("TypeError: format requires a mapping"));
            };
            by_name = true;
            let found = entries.iter().find(|(key, _)| key.unpack_str() == Some(name));
            let missing = || raised(format!("KeyError: {}", value_text::quoted(name)));
            named = Some(found.map(|(_, value)| value).ok_or_else(missing)?);
            rest = after;
        }
        let flags = rest.len() - rest.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        let (flags, after) = rest.split_at(flags);
        let mut starred = |text: &'_ str| -> anyhow::Result<Option<i32>> {
            let wrong = || raised("TypeError: * wants int");
            match text.starts_with('*') {
                true => Ok(Some(args.next().ok_or_else(few)?.unpack_i32().ok_or_else(wrong)?)),
                false => Ok(None),
            }
        };
        let size = |number: i32| usize::try_from(number.unsigned_abs()).unwrap_or(0).min(1000);
        let (width, mut after) = match starred(after)? {
            Some(width) => (Some(size(width)), &after[1..]),
            None => number(after),
        };
        let mut precision = None;
        if let Some(behind) = after.strip_prefix('.') {
            (precision, after) = match starred(behind)? {
                Some(precision) => (Some(size(precision)), &behind[1..]),
                None => number(behind),
            };
            precision = precision.or(Some(0));
        }
        let Some(kind) = after.chars().next() else {
            return Err(raised("ValueError: incomplete format"));
        };
        rest = &after[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match named {
            Some(value) => value,
            None => args.next().ok_or_else(few)?,
        };
        let left = flags.contains('-');
        let numeric = !matches!(kind, 's' | 'r' | 'a' | 'c');
        let zeros = flags.contains('0') && !left && numeric;
        let sign = ['+', ' '].into_iter().find(|sign| flags.contains(*sign));
        let spec = Spec {
            fill: zeros.then_some('0'),
            align: Some(match () {
                () if left => '<',
                () if zeros => '=',
                () => '>',
            }),
            sign: sign.filter(|_| numeric),
            alternate: flags.contains('#'),
            width: width.unwrap_or(0),
            grouping: None,
            precision: if matches!(kind, 'd' | 'i' | 'u') { None } else { precision },
            kind: Some(kind),
        };
        out.push_str(&one_of(value, spec, heap)?);
    }
    out.push_str(rest);
    let left_over = args.next().is_some() && !by_name;
    let subscripts = items(values).is_some() || DictRef::from_value(values).is_some();
    if left_over && !(one && subscripts) {
        return Err(raised("TypeError: not all arguments converted during string formatting"));
    }
    Ok(out)
}

/// One value behind `%`.
fn one_of<'v>(value: Value<'v>, spec: Spec, heap: Heap<'v>) -> anyhow::Result<String> {
    let class = class_of(value);
    let kind = spec.kind.unwrap_or('s');
    let of = match value.unpack_bool() {
        Some(yes) => Formatted::Int(u8::from(yes).to_string()),
        None => formatted(value, heap),
    };
    let text = |text| Spec { kind: Some('s'), ..spec }.apply(&Formatted::Text(text));
    let one = tensor(value).is_ok_and(|tensor| tensor.numel() == 1);
    let unknown = value.downcast_ref::<UnknownValue>().is_some();
    let done = match (kind, of) {
        ('r' | 'a', _) => text(value_text::repr(value, heap)),
        ('s', _) => text(value_text::text(value, heap)),
        _ if unknown => Some(value.to_str()),
        _ if one => Some(format!("<a tensor's value: {}", undecided::SHOWN)),
        ('c', Formatted::Text(one)) => text(one),
        ('d' | 'i' | 'u', Formatted::Float(number)) if number.is_finite() => {
            let whole = Formatted::Int(format!("{:.0}", number.trunc()));
            Spec { kind: Some('d'), ..spec }.apply(&whole)
        }
        ('d' | 'i' | 'u', whole) => Spec { kind: Some('d'), ..spec }.apply(&whole),
        ('c' | 'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G', of) => spec.apply(&of),
        _ => {
            let text = format!("ValueError: unsupported format character '{kind}'");
            return Err(raised(text));
        }
    };
    done.ok_or_else(|| match kind {
        'd' | 'i' | 'u' => {
            raised(format!("TypeError: %{kind} format: a real number is required, not {class}"))
        }
        'x' | 'X' | 'o' => {
            raised(format!("TypeError: %{kind} format: an integer is required, not {class}"))
        }
        'c' => raised("TypeError: %c requires int or char"),
        _ => raised(format!("TypeError: must be real number, not {class}")),
    })
}
