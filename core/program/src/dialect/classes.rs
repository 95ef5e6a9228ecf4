//! `class Meter:` as an object that its methods and attributes are put into: `Meter = _class("Meter", [])`.
//! Each method becomes a function of its own, which the rewriting attaches to the class after its end
//! ([`attached`]). Line numbers do not change.

use super::operand::closing;
use super::properties;
use super::scan::{self, Logical};
use super::words::first_word;
use crate::dialect::try_clauses::colon;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The text between a class and its method in the name of a function.
const OF: &str = "__method__";
/// The beginning of such a name.
const FRONT: &str = "_of_";

/// The class and the name of a method that a function was written for.
pub(super) fn attached(function: &str) -> Option<(&str, &str)> {
    function.strip_prefix(FRONT)?.split_once(OF)
}

/// Rewrites the classes of a program. A class that cannot be followed stays, and is refused later.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    if !text.contains("class ") {
        return Cow::Borrowed(text);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut changed = false;
    let (mut asked, mut set) = (Vec::new(), Vec::new());
    // The lines of classes that stay.
    let mut stay: BTreeSet<usize> = BTreeSet::new();
    // Classes inside of a class's methods first.
    while let Ok(statements) = scan::scan(&(lines.join("\n") + "\n")) {
        let is_class = |own: &Logical| {
            first_word(own.mask.trim_start()) == "class" && !stay.contains(&own.first)
        };
        let block_of = |at: usize| {
            let behind = statements.get(at + 1..).unwrap_or_default();
            let indent = statements.get(at).map_or(0, |head| head.indent);
            let length = behind.iter().take_while(|own| own.indent > indent).count();
            behind.get(..length).unwrap_or_default()
        };
        let innermost: Vec<usize> = (0..statements.len())
            .filter(|at| statements.get(*at).is_some_and(is_class))
            .filter(|at| !block_of(*at).iter().any(is_class))
            .collect();
        if innermost.is_empty() {
            break;
        }
        for at in innermost {
            let (Some(head), block) = (statements.get(at), block_of(at)) else { continue };
            let front = at.checked_sub(1).and_then(|at| statements.get(at));
            let front = front.filter(|front| front.indent == head.indent && is_dataclass(front));
            let Some(made) = of_class(head, block, front.is_some()) else {
                stay.insert(head.first);
                continue;
            };
            changed = true;
            asked.extend(properties::of(block));
            set.extend(properties::set(block));
            let cleared = front.map(|front| (front.first, front.last, String::new()));
            for (first, last, text) in made.into_iter().chain(cleared) {
                let mut parts = text.split('\n');
                for own in lines.iter_mut().take(last + 1).skip(first) {
                    *own = parts.next().unwrap_or_default().to_owned();
                }
            }
        }
    }
    match changed {
        true => Cow::Owned(properties::asked(lines, &asked, &set)),
        false => Cow::Borrowed(text),
    }
}

fn is_dataclass(front: &Logical) -> bool {
    let mask = front.mask.trim().trim_start_matches("@dataclasses.").trim_start_matches('@');
    mask == "dataclass" || mask.starts_with("dataclass(")
}

/// The rewritten statements, by their first and last line.
type Made = Vec<(usize, usize, String)>;

fn of_class(head: &Logical, block: &[Logical], data: bool) -> Option<Made> {
    let mask = head.mask.trim();
    if first_word(mask) != "class" {
        return None;
    }
    let colon = colon(mask)?;
    let declared = mask.strip_prefix("class ")?.get(..colon - "class ".len())?.trim();
    // `class Odd(Exception): pass`, and a text in its place.
    let beside = !mask[colon + 1..].trim().is_empty();
    if beside && (!is_empty(&mask[colon + 1..]) || !block.is_empty()) {
        return None;
    }
    let (name, bases) = match declared.split_once('(') {
        Some((name, bases)) => (name.trim(), bases.strip_suffix(')')?),
        None => (declared, ""),
    };
    let word = |c: char| c.is_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(word) || bases.contains(['=', '(', '[']) {
        return None;
    }
    let declared: Vec<&str> = bases.split(',').map(str::trim).collect();
    let members = matches!(declared[..], ["Enum" | "enum.Enum"]);
    let empty = ["", "object", "ABC", "abc.ABC", "Enum", "enum.Enum"];
    let mut bases: Vec<&str> = declared.into_iter().filter(|base| !empty.contains(base)).collect();
    // A class of named tuples has fields as a dataclass has.
    let tuple = matches!(bases[..], ["NamedTuple" | "typing.NamedTuple"]);
    if tuple {
        bases.clear();
    }
    let data = data || tuple;
    let followed = |base: &&str| {
        !OWN_OF_PYTHON.contains(base) && !base.contains('.')
            || base.ends_with("data.Dataset")
            || base.ends_with("nn.Module")
    };
    if !bases.iter().all(followed) {
        return None;
    }
    let body = block.first().map_or(head.indent, |first| first.indent);
    if block.is_empty() && !beside {
        return None;
    }
    let indent = &head.text[..head.indent];
    let mut fields = Vec::new();
    let mut made = Vec::new();
    let mut statements = block.iter().peekable();
    let mut sets = false;
    let mut this = "self".to_owned();
    let of = |this: &str| OfClass { name: name.to_owned(), this: this.to_owned(), members };
    while let Some(own) = statements.next() {
        // A class in a class's body would be a member, with methods of its own.
        if own.indent == body && own.mask.trim_start().starts_with(&format!("def {FRONT}")) {
            return None;
        }
        // `!=` is always the opposite of `__eq__` here.
        if own.mask.trim_start().starts_with("def __ne__(") {
            return None;
        }
        if own.indent > body {
            let text =
                within(&dedented(own, body - head.indent)?, own, &of(&this), head.indent, body);
            made.push((own.first, own.last, text));
            continue;
        }
        this = first_parameter(&own.mask).unwrap_or(this);
        let setter = properties::is_setter(own);
        let text = match std::mem::replace(&mut sets, setter) {
            // A property's setter has the getter's name in Python, and another one here.
            true => of_body(&properties::setter(own)?, &of(&this), indent, data, &mut fields)?,
            false if setter => String::new(),
            false => of_body(own, &of(&this), indent, data, &mut fields)?,
        };
        // Statements of a block in a class's body run when the class is made.
        let opens = statements.peek().is_some_and(|next| next.indent > body);
        if opens && !own.mask.trim_start().starts_with("def ") {
            return None;
        }
        made.push((own.first, own.last, text));
    }
    let fields: Vec<String> = fields.iter().map(|field| format!("\"{field}\"")).collect();
    let names = fields.join(", ");
    let fields = if data { format!(", [{names}]") } else { String::new() };
    let of_tuple = if tuple { format!("; {name}._fields = [{names}]") } else { String::new() };
    let class =
        format!("{indent}{name} = _class(\"{name}\", [{}]{fields}){of_tuple}", bases.join(", "));
    made.push((head.first, head.last, class));
    Some(made)
}

/// Classes of Python's own that a class of the program's is not made of.
pub(super) const OWN_OF_PYTHON: [&str; 11] = [
    "dict",
    "list",
    "tuple",
    "set",
    "OrderedDict",
    "UserDict",
    "defaultdict",
    "Counter",
    "IntEnum",
    "StrEnum",
    "Flag",
];

/// The class that a statement is of.
struct OfClass {
    name: String,
    /// The first parameter of the method around the statement.
    this: String,
    /// True if the class's attributes are members of an `Enum`.
    members: bool,
}

/// The first parameter of the method that a statement begins: `self`, whatever it is called.
fn first_parameter(mask: &str) -> Option<String> {
    let (_, parameters) = mask.trim_start().strip_prefix("def ")?.split_once('(')?;
    let parameters = parameters.trim_start();
    let end = parameters.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| parameters[..end].to_owned())
}

/// A statement without so many blanks in front.
fn dedented(own: &Logical, by: usize) -> Option<String> {
    let blank = own.text.get(..by)?.chars().all(|c| c == ' ' || c == '\t');
    if blank { own.text.get(by..).map(str::to_owned) } else { None }
}

/// A statement of a method: `super()` says of what it is.
fn within(text: &str, own: &Logical, of: &OfClass, outer: usize, body: usize) -> String {
    let out = supers(text, own.mask.get(body - outer..).unwrap_or_default(), of);
    // The topmost `__init__` does nothing.
    let (empty, begun) = (of.begins_above(), of.begins());
    let first = out.trim_start().strip_prefix(&empty).map(str::trim_start);
    match first.is_some_and(|rest| rest.is_empty() || rest.starts_with(';')) {
        true => out.replacen(&empty, &begun, 1),
        false => out,
    }
}

impl OfClass {
    /// `super().__init__()` as [`supers`] writes it.
    fn begins_above(&self) -> String {
        format!("_super({}, {}).__init__()", self.name, self.this)
    }

    fn begins(&self) -> String {
        format!("_begins({}, {})", self.name, self.this)
    }
}

/// Rewrites `super()` in a part of a statement, whose mask is as long.
fn supers(text: &str, mask: &str, of: &OfClass) -> String {
    let mut out = text.to_owned();
    let places: Vec<usize> = mask.match_indices("super(").map(|(at, _)| at).collect();
    for at in places.into_iter().rev() {
        let word = mask[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let open = at + "super".len();
        let Some(close) = closing(mask.as_bytes(), open).filter(|_| !word) else { continue };
        out.replace_range(at..=close, &format!("_super({}, {})", of.name, of.this));
    }
    out
}

/// True if a statement is only a text, `pass` or `...`.
fn is_empty(mask: &str) -> bool {
    let bare: String =
        mask.chars().filter(|c| c.is_ascii_graphic() && !"'\"".contains(*c)).collect();
    bare.is_empty() || matches!(bare.as_str(), "pass" | "...")
}

/// A statement of the class itself.
fn of_body(
    own: &Logical,
    of: &OfClass,
    indent: &str,
    data: bool,
    fields: &mut Vec<String>,
) -> Option<String> {
    let name = &of.name;
    let mask = own.mask.trim();
    let start = own.mask.len() - own.mask.trim_start().len();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    if is_empty(mask) {
        return Some(String::new());
    }
    if let Some(rest) = mask.strip_prefix("def ") {
        let method = &rest[..rest.find(|c| !word(c))?];
        let behind = start + "def ".len() + method.len();
        // Its statements may stand on the same line.
        let rest = supers(&own.text[behind..], &own.mask[behind..], of);
        let empty = format!(": {}", of.begins_above());
        let begins = rest.find(&empty).is_some_and(|at| {
            let behind = rest[at + empty.len()..].trim_start();
            behind.is_empty() || behind.starts_with(';')
        });
        let rest = match begins {
            true => rest.replacen(&empty, &format!(": {}", of.begins()), 1),
            false => rest,
        };
        return Some(format!("{indent}def {FRONT}{name}{OF}{method}{rest}"));
    }
    if let Some(decorator) = mask.strip_prefix('@') {
        return match decorator {
            "staticmethod" => Some(format!("{indent}@_static")),
            "classmethod" => Some(format!("{indent}@_of_class")),
            "property" => Some(format!("{indent}@_a_property")),
            "abstractmethod" => None,
            other if other.contains("deleter") || other.contains("cached") => None,
            _ => Some(format!("{indent}{}", own.text[start..].trim_end())),
        };
    }
    let field = &mask[..mask.find(|c| !word(c))?];
    let rest = mask[field.len()..].trim_start();
    if rest.starts_with(':') {
        fields.push(field.to_owned());
        let Some(at) = own.mask.find('=') else { return Some(String::new()) };
        let value = own.text[at + 1..own.mask.trim_end().len()].trim();
        let bare = value.strip_prefix("dataclasses.").unwrap_or(value);
        // A factory makes a new one for each object.
        if let Some(made) = bare.strip_prefix("field(").filter(|_| data) {
            return Some(format!("{indent}{name}.{field} = _field({made}"));
        }
        return Some(format!("{indent}{name}.{field} = {value}"));
    }
    if rest.starts_with('=') && !rest.starts_with("==") {
        if of.members && !field.starts_with('_') {
            let equals = own.mask.find('=')?;
            let value = own.text[equals + 1..own.mask.trim_end().len()].trim();
            return Some(format!(
                "{indent}{name}.{field} = _member({name}, \"{field}\", ({value}))"
            ));
        }
        return Some(format!("{indent}{name}.{}", own.text[start..].trim_end()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{attached, rewrite};

    #[test]
    fn classes_become_objects_and_functions_on_their_lines() {
        let text = "class Meter(object):\n    \"\"\"of losses\"\"\"\n    best = 3\n\n    def \
                    __init__(self, n=1):\n        super().__init__()\n        self.n = n\n\n\
                    @dataclass\nclass Config(Base):\n    lr: float = 0.1\n    steps: int\n\nx = 1\n";
        let made = "Meter = _class(\"Meter\", [])\n\nMeter.best = 3\n\ndef \
                    _of_Meter__method____init__(self, n=1):\n    _begins(Meter, self)\n    \
                    self.n = n\n\n\nConfig = _class(\"Config\", [Base], [\"lr\", \"steps\"])\n\
                    Config.lr = 0.1\n\n\nx = 1\n";
        assert_eq!(rewrite(text), made);
        assert_eq!(attached("_of_Meter__method____init__"), Some(("Meter", "__init__")));
        let short = "class Odd(Exception): pass\nclass Empty: \"\"\"none\"\"\"\n";
        let made = "Odd = _class(\"Odd\", [Exception])\nEmpty = _class(\"Empty\", [])\n";
        assert_eq!(rewrite(short), made);
        let stays = "class Net(pl.LightningModule):\n    pass\n";
        assert_eq!(rewrite(stays), stays);
    }
}
