//! Methods that Starlark's values have not, as calls: `text.encode()`, `"{:.3f}".format(x)`,
//! `list.sort()`, `set().union(*sets)`.

use super::operand::before;

/// Methods of texts, lists, tuples, dicts and sets. A value that has one of that name itself is asked for
/// its own.
const METHODS: [&str; 17] = [
    "encode",
    "format",
    "ljust",
    "rjust",
    "center",
    "zfill",
    "sort",
    "reverse",
    "copy",
    "count",
    "index",
    "most_common",
    "update",
    "subtract",
    "union",
    "intersection",
    "difference",
];

/// Rewrites them in a statement and its mask, which stay of one length. In the mask, strings are
/// runs of one character.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    while let Some(dot) = mask.find(".__name__") {
        let Some(start) = before(mask.as_bytes(), dot) else { break };
        for of in [&mut *text, &mut *mask] {
            of.replace_range(dot..dot + ".__name__".len(), ")");
            of.insert_str(start, "_name(");
        }
    }
    // `chain.from_iterable(lists)` is `chain(*lists)`.
    while let Some(at) = mask.find(".from_iterable(") {
        for of in [&mut *text, &mut *mask] {
            of.replace_range(at..at + ".from_iterable(".len(), "(*");
        }
    }
    ranks_of_meshes(text, mask);
    for name in METHODS {
        if mask.contains(name) {
            method(text, mask, name, &format!("_method(\"{name}\", "));
        }
    }
}

/// Rewrites `device_mesh.mesh`, a tensor that must be made, as a call, for every name that is called a mesh.
fn ranks_of_meshes(text: &mut String, mask: &mut String) {
    const OWN: &str = ".mesh";
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find(OWN)) {
        let dot = at + found;
        let end = dot + OWN.len();
        at = end;
        let rest = mask[end..].trim_start();
        let goes_on = mask[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let assigned = rest.starts_with('=') && !rest.starts_with("==");
        if goes_on || assigned || rest.starts_with('(') {
            continue;
        }
        let Some(start) = before(mask.as_bytes(), dot) else { continue };
        let of = &mask[start..dot];
        let named = of.split('[').next().unwrap_or(of);
        if !named.to_lowercase().ends_with("mesh") {
            continue;
        }
        for own in [&mut *text, &mut *mask] {
            own.replace_range(dot..end, ")");
            own.insert_str(start, "_mesh_of(");
        }
        at = start + "_mesh_of(".len();
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
