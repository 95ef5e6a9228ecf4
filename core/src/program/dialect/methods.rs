//! Methods that Starlark's values have not, as calls: `text.encode()`, `"{:.3f}".format(x)`,
//! `list.sort()`.

use super::operand::before;

/// Methods of texts, lists, tuples and dicts. A value that has one of that name itself is asked for
/// its own.
const METHODS: [&str; 10] =
    ["format", "ljust", "rjust", "center", "zfill", "sort", "reverse", "copy", "count", "index"];

/// Rewrites them in a statement and its mask, which stay of one length. In the mask, strings are
/// runs of one character.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    method(text, mask, "encode", "_encode(");
    while let Some(dot) = mask.find(".__name__") {
        let Some(start) = before(mask.as_bytes(), dot) else { break };
        for of in [&mut *text, &mut *mask] {
            of.replace_range(dot..dot + ".__name__".len(), ")");
            of.insert_str(start, "_name(");
        }
    }
    for name in METHODS {
        if mask.contains(name) {
            method(text, mask, name, &format!("_method(\"{name}\", "));
        }
    }
}

fn method(text: &mut String, mask: &mut String, name: &str, call: &str) {
    let called = format!(".{name}(");
    let masked: String = call.chars().map(|c| if c == '"' { '\u{1}' } else { c }).collect();
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find(&called)) {
        let dot = at + found;
        let open = dot + called.len();
        at = open;
        let Some(start) = before(mask.as_bytes(), dot) else { continue };
        let comma = if mask[open..].trim_start().starts_with(')') { "" } else { ", " };
        for (of, call) in [(&mut *text, call), (&mut *mask, masked.as_str())] {
            of.replace_range(dot..open, comma);
            of.insert_str(start, call);
        }
        at = dot + call.len() + comma.len();
    }
}
