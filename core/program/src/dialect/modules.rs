//! `class Net(nn.Module)` as a function that makes a model: the attributes that its `__init__` sets in `self`
//! are kept in a dict, and the models among them are run one after the other, in the order in which they are
//! made. `forward` is left out, and so are the other methods, except those that are called directly
//! (`ddp.module.encode(x)`), which become functions of their own. Line numbers do not change.

use super::inline::equals;
use super::operand::closing;
use super::scan::{self, Logical};
use super::words::first_word;
use super::{classes, properties};
use crate::dialect::forward_omissions::{self, Followed};
use std::borrow::Cow;

/// Rewrites the classes of a program that are models; all others stay, and are refused.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    if !text.contains("Module)") {
        return Cow::Borrowed(text);
    }
    let Ok(statements) = scan::scan(text) else { return Cow::Borrowed(text) };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut changed = false;
    let mut marked: Vec<String> = Vec::new();
    for (at, head) in statements.iter().enumerate() {
        let Some(name) = model_of(head) else { continue };
        let behind = statements.get(at + 1..).unwrap_or_default();
        let length = behind.iter().take_while(|own| own.indent > head.indent).count();
        let block = behind.get(..length).unwrap_or_default();
        let asked = asked(&statements, at, block);
        let followed = forward_omissions::of_forward(block, &statements);
        if let Some(made) = function(name, head, block, (&asked, &followed)) {
            changed = true;
            marked.extend(asked);
            let end = block.last().map_or(head.last, |last| last.last);
            for (line, text) in (head.first..=end).zip(made) {
                if let Some(own) = lines.get_mut(line) {
                    *own = text;
                }
            }
        }
    }
    match changed {
        true => Cow::Owned(properties::asked(lines, &marked, &[], true)),
        false => Cow::Borrowed(text),
    }
}

/// A method of the class itself without decorators, by its name.
fn method(block: &[Logical], at: usize) -> Option<&str> {
    let own = block.get(at)?;
    let decorated = at.checked_sub(1).and_then(|front| block.get(front));
    let decorated = decorated.is_some_and(|front| front.mask.trim_start().starts_with('@'));
    let direct = block.first().is_some_and(|first| first.indent == own.indent);
    let (name, _) = own.mask.trim_start().strip_prefix("def ")?.split_once('(')?;
    let called = !name.starts_with("__") && name != "forward";
    (direct && called && !decorated).then_some(name)
}

/// True if a statement reads this attribute of some value.
fn asks_for(own: &Logical, name: &str) -> bool {
    let dotted = format!(".{name}");
    own.text.match_indices(&dotted).any(|(at, _)| {
        !own.text[at + dotted.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

/// The members of a class that the rest of a program asks for by hand: its methods, those that they
/// call, and the attributes that `__init__` keeps.
fn asked(statements: &[Logical], at: usize, block: &[Logical]) -> Vec<String> {
    let front = statements.get(..at).unwrap_or_default().iter();
    let behind = statements.get(at + 1 + block.len()..).unwrap_or_default();
    let outside: Vec<&Logical> = front.chain(behind).collect();
    let outside = |name: &str| outside.iter().any(|own| asks_for(own, name));
    let methods: Vec<(usize, &str)> =
        (0..block.len()).filter_map(|at| Some((at, method(block, at)?))).collect();
    let mut found: Vec<String> = Vec::new();
    let mut next: Vec<(usize, &str)> =
        methods.iter().copied().filter(|(_, name)| outside(name)).collect();
    while let Some((at, name)) = next.pop() {
        if found.iter().any(|own| own == name) {
            continue;
        }
        found.push(name.to_owned());
        let body: Vec<&Logical> = body_of(block, at).collect();
        let calls = |(_, name): &&(usize, &str)| body.iter().any(|own| asks_for(own, name));
        next.extend(methods.iter().filter(calls));
    }
    let init = block.iter().position(|own| own.mask.trim_start().starts_with("def __init__("));
    let kept = init.into_iter().flat_map(|at| body_of(block, at)).filter_map(|own| {
        let (name, rest) = own.mask.trim_start().strip_prefix("self.")?.split_once('=')?;
        let name = name.trim();
        let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        (plain && !rest.starts_with('=')).then(|| name.to_owned())
    });
    found.extend(kept.filter(|name| outside(name)));
    found
}

/// The statements of a method.
fn body_of(block: &[Logical], at: usize) -> impl Iterator<Item = &Logical> {
    let indent = block.get(at).map_or(0, |own| own.indent);
    block.iter().skip(at + 1).take_while(move |own| own.indent > indent)
}

/// The name of a class that is a model by itself.
fn model_of(head: &Logical) -> Option<&str> {
    let mask = head.mask.trim();
    if first_word(mask) != "class" {
        return None;
    }
    let (name, base) = mask.strip_prefix("class ")?.strip_suffix("):")?.split_once('(')?;
    let base = base.trim();
    (base == "Module" || base.ends_with("nn.Module")).then(|| name.trim())
}

/// The function in place of a class, line by line; `None` if it has no `__init__` that defines its parts.
fn function(
    name: &str,
    head: &Logical,
    block: &[Logical],
    (asked, followed): (&[String], &Followed),
) -> Option<Vec<String>> {
    let first = head.first;
    let end = block.last()?.last;
    let at = block.iter().position(|own| own.mask.trim_start().starts_with("def __init__("))?;
    let init = block.get(at)?;
    let open = init.mask.find('(')?;
    let close = closing(init.mask.as_bytes(), open)?;
    let arguments = init.text.get(open + 1..close)?.trim().strip_prefix("self")?;
    let arguments = arguments.trim_start().trim_start_matches(',').replace('\n', " ");
    let body: Vec<Logical> = body_of(block, at).map(registered).map(tied).collect();
    let body: Vec<&Logical> = body.iter().collect();
    let (indent, last) = (body.first()?.indent, *body.last()?);
    let mut lines = vec![String::new(); end + 1 - first];
    let mut put = |line: usize, text: String| {
        if let Some(own) = lines.get_mut(line - first) {
            *own = text;
        }
    };
    put(first, format!("{:1$}def {name}({2}):", "", head.indent, arguments.trim()));
    put(init.first, format!("{:indent$}self = {{}}", ""));
    let uses = followed.uses.as_ref().map_or_else(|| "*".to_owned(), |uses| uses.join(" "));
    let returned = format!(
        "return _module(\"{name}\", self, {}, {}, \"{}\", \"{uses}\")",
        values_of_forward(block),
        followed.line,
        followed.why,
    );
    let written = |at: &usize| method(block, *at).is_some_and(|own| asked.iter().any(|n| n == own));
    // If the next statement is rewritten as well, the line before it is used.
    let next = at + 1 + body.len();
    let free = block.get(next).map(|after| match written(&next) {
        true => (last.last + 1 < after.first).then_some(last.last + 1),
        false => Some(after.first),
    });
    let after = free.flatten();
    let weights = weight_loops(&body);
    for (own, weights) in body.iter().zip(weights) {
        if let Some(place) = weights {
            if place == InLoop::Head {
                put(own.first, format!("{:1$}pass", "", own.indent));
            }
            if after.is_none() && std::ptr::eq(*own, last) {
                return None;
            }
            continue;
        }
        let base = own.mask.contains("super(") || own.mask.contains("Module.__init__(");
        // Of `self.apply(…)` nothing is seen here but what weights begin with.
        let applies = own.mask.trim_start().starts_with("self.apply(");
        let applies = applies || changes_weights(own, block);
        if !applies && calls_itself(own, block) {
            return None;
        }
        let mut text = match (base || applies, own.mask.find(';')) {
            (true, None) => format!("{:1$}pass", "", own.indent),
            // Behind it stand other statements.
            (true, Some(end)) => {
                let rest = kept_in_a_dict(own).split_off(end);
                format!("{:1$}pass{rest}", "", own.indent)
            }
            (false, _) => kept_in_a_dict(own),
        };
        if after.is_none() && std::ptr::eq(*own, last) {
            // A block cannot end with it, nor a comment.
            if own.indent != indent || own.mask.trim_end().ends_with(':') {
                return None;
            }
            text = format!("{}; {returned}", text.trim_end());
        }
        for (line, text) in (own.first..=own.last).zip(text.split('\n')) {
            put(line, text.to_owned());
        }
    }
    if let Some(after) = after {
        put(after, format!("{:indent$}{returned}", ""));
    }
    for at in (0..block.len()).filter(written) {
        let (own, method) = (block.get(at)?, method(block, at)?);
        let rest = own.text.get(own.mask.find('(')?..)?;
        let name = classes::named_of_model(name, method);
        put(own.first, format!("{:1$}def {name}{rest}", "", head.indent).replace('\n', " "));
        for own in body_of(block, at) {
            let text = classes::dedented(own, block.get(at)?.indent - head.indent)?;
            for (line, text) in (own.first..=own.last).zip(text.split('\n')) {
                put(line, text.to_owned());
            }
        }
    }
    Some(lines)
}

/// `self.register_buffer("name", x)` and its like as `self["name"] = _kept("register_buffer", x)`, in the
/// dict's words.
fn registered(own: &Logical) -> Logical {
    const CALLS: [&str; 4] =
        ["register_buffer", "register_parameter", "add_module", "register_module"];
    let start = own.indent;
    let call = CALLS.into_iter().find_map(|call| {
        let front = format!("self.{call}(");
        own.mask.get(start..)?.starts_with(&front).then(|| (call, start + front.len()))
    });
    let made = call.and_then(|(call, from)| {
        let close = closing(own.mask.as_bytes(), from - 1)?;
        let mut depth = 0_usize;
        let comma = own.mask.get(from..close)?.char_indices().find_map(|(at, c)| {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => return Some(from + at),
                _ => {}
            }
            None
        })?;
        let put = |of: &str, quote: char| {
            let name: String =
                if quote == '"' { format!("\"{call}\"") } else { "\u{1}".repeat(call.len() + 2) };
            let (front, key) = (&of[..start], of[from..comma].trim());
            format!("{front}self[{key}] = _kept({name}, {}", &of[comma + 1..])
        };
        let (text, mask) = (put(&own.text, '"'), put(&own.mask, '\u{1}'));
        Some(Logical { text, mask, ..own.clone() })
    });
    made.unwrap_or_else(|| own.clone())
}

/// `self.out.weight = self.embedding.weight`, which makes two parameters one, in the dict's words.
fn tied(own: Logical) -> Logical {
    let parameter = |text: &str| {
        let path = text.trim().strip_prefix("self.")?;
        let plain = path.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        (plain && path.contains('.')).then(|| path.to_owned())
    };
    let paths = own.mask.split_once('=').and_then(|(alias, of)| {
        let (alias, of) = (parameter(alias)?, parameter(of)?);
        let of_parameter = |path: &str| path.ends_with(".weight") || path.ends_with(".bias");
        (of_parameter(&alias) && of_parameter(&of)).then_some((alias, of))
    });
    let Some((alias, of)) = paths else { return own };
    let front = " ".repeat(own.indent);
    let put =
        |quote: &str| format!("{front}_tied(self, {quote}{alias}{quote}, {quote}{of}{quote})");
    Logical { text: put("\""), mask: put("\u{1}"), ..own }
}

/// Methods that every module has. Their effect in an `__init__` is not followed.
const OF_EVERY_MODULE: [&str; 26] = [
    "add_module",
    "bfloat16",
    "buffers",
    "children",
    "cpu",
    "cuda",
    "double",
    "eval",
    "float",
    "half",
    "load_state_dict",
    "modules",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "parameters",
    "register_buffer",
    "register_forward_hook",
    "register_parameter",
    "requires_grad_",
    "state_dict",
    "to",
    "train",
    "type",
    "zero_grad",
];

/// The place of a statement in a loop that gives weights their first values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InLoop {
    Head,
    Body,
}

/// The statements of an `__init__` that are loops over its own parameters or modules and only give weights their first
/// values: which calls the model makes does not depend on them.
fn weight_loops(body: &[&Logical]) -> Vec<Option<InLoop>> {
    const OVER: [&str; 6] = [
        " in self.children(",
        " in self.modules(",
        " in self.named_children(",
        " in self.named_modules(",
        " in self.named_parameters(",
        " in self.parameters(",
    ];
    let mut places = vec![None; body.len()];
    for (at, head) in body.iter().enumerate() {
        let mask = head.mask.trim();
        let block = body.iter().skip(at + 1).take_while(|own| own.indent > head.indent);
        let length = block.clone().count();
        let is_loop = mask.starts_with("for ")
            && mask.ends_with(':')
            && OVER.iter().any(|over| mask.contains(over));
        if places.get(at) != Some(&None) || !is_loop || length == 0 {
            continue;
        }
        if block.into_iter().all(|own| gives_weights(own)) {
            for (inside, place) in places.iter_mut().skip(at).take(length + 1).enumerate() {
                *place = Some(if inside == 0 { InLoop::Head } else { InLoop::Body });
            }
        }
    }
    places
}

/// True if a statement only initializes a weight, or chooses which weight to initialize.
fn gives_weights(own: &Logical) -> bool {
    let mask = own.mask.trim();
    let branch = ["if ", "elif ", "else:"].iter().any(|word| mask.starts_with(word));
    let branch = branch && mask.ends_with(':');
    let call = ["nn.init.", "torch.nn.init.", "init."].iter().any(|call| mask.starts_with(call));
    let fills = mask.contains(".data.") && equals(mask, 0).is_some_and(|at| at.is_empty());
    let nothing = matches!(mask, "pass" | "continue");
    (branch || call || fills || nothing) && !mask.contains("dist.") && !mask.contains("self.")
}

/// True if a statement of `__init__` calls a method of its own class or one that every module has. The effect
/// of such a call is not followed.
fn calls_itself(own: &Logical, block: &[Logical]) -> bool {
    calls_own(own, block) || OF_EVERY_MODULE.iter().any(|name| calls(own, name))
}

fn calls(own: &Logical, name: &str) -> bool {
    own.mask.contains(&format!("self.{name}("))
}

/// True if a statement calls a method of its own class.
fn calls_own(own: &Logical, block: &[Logical]) -> bool {
    let defined = block.iter().filter_map(|own| own.mask.trim_start().strip_prefix("def "));
    let mut names = defined.filter_map(|def| def.split_once('(')).map(|(name, _)| name.trim());
    names.any(|name| calls(own, name))
}

/// True if a statement of `__init__` calls a method of its own class that only initializes weights: the
/// method keeps nothing in `self` and makes no call to other ranks.
fn changes_weights(own: &Logical, block: &[Logical]) -> bool {
    let mask = own.mask.trim();
    let Some((name, _)) = mask.strip_prefix("self.").and_then(|rest| rest.split_once('(')) else {
        return false;
    };
    let open = own.mask.find('(').unwrap_or(0);
    let whole = closing(own.mask.as_bytes(), open) == Some(own.mask.trim_end().len() - 1);
    let def = format!("def {name}(");
    let Some(at) = block.iter().position(|own| own.mask.trim_start().starts_with(&def)) else {
        return false;
    };
    let Some(head) = block.get(at).filter(|head| whole && head.mask.trim_end().ends_with(':'))
    else {
        return false;
    };
    let mut body = block.iter().skip(at + 1).take_while(|own| own.indent > head.indent);
    let kept = |own: &Logical| {
        let words = ["dist.", "register_", "add_module", "append", "extend", "setattr", "insert("];
        let mask = own.mask.trim_start();
        let target = equals(mask, 0).and_then(|at| mask.get(..*at.first()?));
        let assigns = target.is_some_and(|target| target.contains(['.', '[']));
        assigns
            || mask.contains("print(")
            || words.iter().any(|word| mask.contains(word))
            || calls_own(own, block)
    };
    !body.any(kept)
}

/// The number of values that `forward` returns side by side; 0 where that is not alike everywhere,
/// or where it does more with them than run modules.
fn values_of_forward(block: &[Logical]) -> usize {
    let forward = |own: &Logical| own.mask.trim_start().starts_with("def forward(");
    let Some(at) = block.iter().position(forward) else { return 0 };
    let Some(head) = block.get(at) else { return 0 };
    let body = block.iter().skip(at + 1).take_while(|own| own.indent > head.indent);
    let reshapes = ["sum(", "mean(", "reshape(", "squeeze(", "unsqueeze(", "argmax(", "[", "loss("];
    let mut values = None;
    for own in body {
        let Some(returned) = own.mask.trim().strip_prefix("return ") else { continue };
        let (mut depth, mut here) = (0_usize, 1);
        for c in returned.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => here += 1,
                _ => {}
            }
        }
        let plain = here > 1 || !reshapes.iter().any(|word| returned.contains(word));
        if !plain || values.is_some_and(|values| values != here) {
            return 0;
        }
        values = Some(here);
    }
    values.unwrap_or(0)
}

/// `self.x` as `self["x"]`, without the comment behind.
fn kept_in_a_dict(own: &Logical) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut text = String::with_capacity(own.text.len() + 16);
    let mut at = 0;
    let bare = own.mask.trim_end().len();
    while let Some(found) = own.mask.get(at..bare).and_then(|rest| rest.find("self.")) {
        let start = at + found;
        let name = start + "self.".len();
        let length = own.mask[name..bare].find(|c| !word(c)).unwrap_or(bare - name);
        text.push_str(&own.text[at..start]);
        at = name + length;
        match own.mask[..start].ends_with(|c| word(c) || c == '.') || length == 0 {
            true => text.push_str(&own.text[start..at]),
            false => text.push_str(&format!("self[\"{}\"]", &own.text[name..at])),
        }
    }
    text.push_str(&own.text[at..bare]);
    text
}
