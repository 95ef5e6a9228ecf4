//! Annotations, which Python does not look at: `def f(x: Tensor, n: int = 3) -> None:` without them.

use super::operand::closing;

/// Blanks them out in a statement and its mask, which stay as long as they are.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let parts = match mask.trim_start().strip_prefix("def ") {
        Some(_) => of_function(mask),
        None => of_variable(mask).into_iter().collect(),
    };
    for (from, to) in parts {
        for of in [&mut *text, &mut *mask] {
            let blank: String = of[from..to]
                .chars()
                .flat_map(|c| match c {
                    '\n' => vec!['\n'],
                    c => vec![' '; c.len_utf8()],
                })
                .collect();
            of.replace_range(from..to, &blank);
        }
    }
}

/// The annotations of a function's parameters and of its result, as ranges of the mask.
fn of_function(mask: &str) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let Some(open) = mask.find('(') else { return parts };
    let Some(close) = closing(mask.as_bytes(), open) else { return parts };
    let mut depth = 0usize;
    let mut from = None;
    let mut default = false;
    for (at, c) in mask.char_indices().skip_while(|(at, _)| *at <= open) {
        match c {
            ')' if at >= close => {
                parts.extend(from.take().map(|from| (from, at)));
                break;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && !default && from.is_none() => from = Some(at),
            '=' | ',' if depth == 0 => {
                parts.extend(from.take().map(|from| (from, at)));
                default = c == '=';
            }
            _ => {}
        }
    }
    let rest = &mask[close + 1..];
    if rest.trim_start().starts_with("->")
        && let Some(colon) = rest.find(':')
    {
        parts.push((close + 1, close + 1 + colon));
    }
    parts
}

/// The annotation of a variable that is assigned a value, as a range of the mask.
fn of_variable(mask: &str) -> Option<(usize, usize)> {
    let colon = mask.find(':')?;
    let name = mask[..colon].trim();
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let plain = !name.is_empty() && name.chars().all(part);
    if !plain || matches!(name, "else" | "try" | "finally" | "lambda" | "except") {
        return None;
    }
    let rest = &mask[colon..];
    let equals = rest.find('=').filter(|at| !rest[at + 1..].starts_with('='))?;
    Some((colon, colon + equals))
}
