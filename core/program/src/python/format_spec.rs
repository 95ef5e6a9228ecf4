//! Python's format specification: the text after the colon in `{x:>8.3f}`, and after `%`.

use crate::python::float::{not_finite, power, repr};

/// Characters that a format can ask for; enough for a table, and no more memory than a line.
const MAX_WIDTH: usize = 1000;

/// `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

/// The value that is formatted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Formatted {
    /// `int`, by its decimal digits.
    Int(String),
    Float(f64),
    /// Anything else, as its text.
    Text(String),
}

/// A number at the beginning of a text, and the rest of the text.
pub(super) fn number(text: &str) -> (Option<usize>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok().map(|number: usize| number.min(MAX_WIDTH)), &text[end..])
}

impl Spec {
    /// Reads a specification; `None` if it is not one of Python's.
    pub(super) fn read(text: &str) -> Option<Spec> {
        let mut spec = Spec::default();
        let mut chars = text.chars();
        let (first, second) = (chars.next(), chars.next());
        let is_align = |c: Option<char>| c.is_some_and(|c| matches!(c, '<' | '>' | '^' | '='));
        let mut rest = text;
        if is_align(second) {
            (spec.fill, spec.align) = (first, second);
            rest = chars.as_str();
        } else if is_align(first) {
            spec.align = first;
            rest = &text[1..];
        }
        if rest.starts_with(['+', '-', ' ']) {
            spec.sign = rest.chars().next();
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.fill = spec.fill.or(Some('0'));
            spec.align = spec.align.or(Some('='));
            rest = after;
        }
        let (width, after) = number(rest);
        (spec.width, rest) = (width.unwrap_or(0), after);
        if rest.starts_with([',', '_']) {
            spec.grouping = rest.chars().next();
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = number(after);
            spec.precision = Some(precision?);
            rest = after;
        }
        let mut kind = rest.chars();
        spec.kind = kind.next();
        let known = spec.kind.is_none_or(|kind| "bcdeEfFgGnosxX%".contains(kind));
        (known && kind.as_str().is_empty()).then_some(spec)
    }

    /// The value in this format; `None` if Python has it for no such value.
    pub(super) fn apply(&self, value: &Formatted) -> Option<String> {
        let (body, numeric) = match (value, self.kind) {
            (Formatted::Text(text), None | Some('s')) => {
                let text = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                (text, false)
            }
            (Formatted::Int(digits), None | Some('d' | 'n')) => (self.whole(digits, ""), true),
            (Formatted::Int(digits), Some('x' | 'X' | 'o' | 'b' | 'c')) => {
                (self.radix(digits)?, true)
            }
            (Formatted::Int(digits), Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => {
                (self.float(digits.parse().ok()?)?, true)
            }
            (
                Formatted::Float(number),
                None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%'),
            ) => (self.float(*number)?, true),
            _ => return None,
        };
        Some(self.pad(&body, numeric))
    }

    /// Whole digits with their sign, grouped by thousands.
    fn whole(&self, digits: &str, after: &str) -> String {
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits),
        };
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            (false, _) => "",
        };
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if let Some(group) = self.grouping
                && at > 0
                && (digits.len() - at) % 3 == 0
            {
                grouped.push(group);
            }
            grouped.push(digit);
        }
        format!("{sign}{grouped}{after}")
    }

    fn radix(&self, digits: &str) -> Option<String> {
        let number: i128 = digits.parse().ok()?;
        let (sign, size) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
        let (prefix, text) = match self.kind {
            Some('x') => ("0x", format!("{size:x}")),
            Some('X') => ("0X", format!("{size:X}")),
            Some('o') => ("0o", format!("{size:o}")),
            Some('b') => ("0b", format!("{size:b}")),
            _ => ("", char::from_u32(u32::try_from(number).ok()?)?.to_string()),
        };
        let prefix = if self.alternate { prefix } else { "" };
        Some(format!("{sign}{prefix}{text}"))
    }

    fn float(&self, number: f64) -> Option<String> {
        let kind = self.kind.unwrap_or(if self.precision.is_some() { 'G' } else { 'r' });
        let number = if kind == '%' { number * 100.0 } else { number };
        if !number.is_finite() {
            let text = not_finite(number);
            return Some(if number > 0.0 { self.whole("", text) } else { text.to_owned() });
        }
        let precision = self.precision.unwrap_or(6);
        let text = match kind {
            'f' | 'F' | '%' => format!("{number:.precision$}"),
            'e' | 'E' => scientific(number, precision),
            'r' => repr(number),
            // Without a letter, a digit behind the point is kept.
            'G' if self.kind.is_none() => {
                let text = general(number, precision.max(1));
                if text.contains(['.', 'e']) { text } else { text + ".0" }
            }
            _ => general(number, precision.max(1)),
        };
        let text = if matches!(self.kind, Some('E' | 'G')) { text.to_uppercase() } else { text };
        let end = text.find(['.', 'e', 'E']).unwrap_or(text.len());
        let percent = if kind == '%' { "%" } else { "" };
        Some(self.whole(&text[..end], &format!("{}{percent}", &text[end..])))
    }

    fn pad(&self, body: &str, numeric: bool) -> String {
        let missing = self.width.saturating_sub(body.chars().count());
        let fill = |count: usize| self.fill.unwrap_or(' ').to_string().repeat(count);
        match self.align.unwrap_or(if numeric { '>' } else { '<' }) {
            '^' => format!("{}{body}{}", fill(missing / 2), fill(missing - missing / 2)),
            '>' => format!("{}{body}", fill(missing)),
            '=' if numeric => {
                let sign = usize::from(body.starts_with(['+', '-', ' ']));
                let prefix = ["0x", "0X", "0o", "0b"].iter().any(|p| body[sign..].starts_with(p));
                let (front, rest) = body.split_at(sign + if prefix { 2 } else { 0 });
                format!("{front}{}{rest}", fill(missing))
            }
            _ => format!("{body}{}", fill(missing)),
        }
    }
}

/// `1.50e-05`.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    match text.split_once('e').map(|(digits, exponent)| (digits, exponent.parse())) {
        Some((digits, Ok(exponent))) => format!("{digits}{}", power(exponent)),
        _ => text,
    }
}

/// A number with so many significant digits, without zeros at the end.
fn general(number: f64, digits: usize) -> String {
    let text = format!("{number:.*e}", digits - 1);
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let exponent = exponent.unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= most {
        let digits = text.split('e').next().unwrap_or_default();
        return format!("{}{}", trimmed(digits), power(exponent));
    }
    let behind = usize::try_from(most - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{number:.behind$}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]
mod tests {
    use super::*;

    fn int(number: i64, spec: &str) -> String {
        Spec::read(spec).unwrap().apply(&Formatted::Int(number.to_string())).unwrap()
    }

    fn float(number: f64, spec: &str) -> String {
        Spec::read(spec).unwrap().apply(&Formatted::Float(number)).unwrap()
    }

    /// `format(value, spec)` of CPython 3.11.
    #[test]
    fn formats_are_pythons() {
        assert_eq!(int(1_234_567, ","), "1,234,567");
        assert_eq!(
            [int(5, "03d"), int(-5, "04d"), int(5, ">4"), int(5, "<4")],
            ["005", "-005", "   5", "5   "]
        );
        assert_eq!(
            [int(255, "x"), int(255, "#06x"), int(5, "b"), int(3, "+d")],
            ["ff", "0x00ff", "101", "+3"]
        );
        assert_eq!([int(3, ".2f"), int(7, "^5"), int(65, "c")], ["3.00", "  7  ", "A"]);
        assert_eq!(
            [float(12.345, "8.2f"), float(0.256, ".1%"), float(3.0, "+.1f")],
            ["   12.35", "25.6%", "+3.0"]
        );
        assert_eq!(
            [float(1e-5, ".2e"), float(3.0, "g"), float(1e-5, "g"), float(1e6, "g")],
            ["1.00e-05", "3", "1e-05", "1e+06"]
        );
        assert_eq!(
            [float(1234567.891, ",.2f"), float(0.1, ""), float(1.0, ".3"), float(2.5, ".0f")],
            ["1,234,567.89", "0.1", "1.0", "2"]
        );
        assert_eq!([float(f64::INFINITY, ".2f"), float(f64::NAN, "6.1f")], ["inf", "   nan"]);
        let text = |spec: &str| Spec::read(spec).unwrap().apply(&Formatted::Text("ab".into()));
        assert_eq!(
            [text("^6"), text("*<4"), text(".1")],
            ["  ab  ", "ab**", "a"].map(|t| Some(t.to_owned()))
        );
        assert_eq!((text("d"), Spec::read("8q"), Spec::read(".f")), (None, None, None));
    }
}
