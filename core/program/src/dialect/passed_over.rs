//! `if loss.item() < best: best = loss.item()`: an `if` whose blocks only print, save and assign. A condition
//! that only a run decides needs no refusal there, since no call depends on it. The `if` gets a question in
//! front: `if _unsure(lambda: (…)):` gives the assigned names values that nobody knows, and the `if` itself
//! becomes its `elif`. So both sides are passed over where the condition is not known, and a later decision by
//! one of those names is refused as any other.

use super::inline;
use super::scan::Logical;
use super::try_clauses::colon;
use super::words::first_word;

/// The functions and methods that make no call and change nothing that decides one. A program's own function of
/// such a name is read instead.
const HARMLESS: [&str; 76] = [
    "print",
    "item",
    "tolist",
    "save",
    "state_dict",
    "format",
    "float",
    "int",
    "str",
    "bool",
    "repr",
    "min",
    "max",
    "abs",
    "round",
    "len",
    "sum",
    "mean",
    "any",
    "all",
    "isnan",
    "isinf",
    "isfinite",
    "sqrt",
    "exp",
    "log",
    "info",
    "warning",
    "warn",
    "error",
    "debug",
    "critical",
    "flush",
    "write",
    "get_rank",
    "get_world_size",
    "get_local_rank",
    "is_initialized",
    "is_available",
    "join",
    "dirname",
    "basename",
    "exists",
    "makedirs",
    "mkdir",
    "copyfile",
    "deepcopy",
    "detach",
    "clone",
    "cpu",
    "numpy",
    "time",
    "perf_counter",
    "now",
    "strftime",
    "isinstance",
    "type",
    "getLogger",
    "add_scalar",
    "add_scalars",
    "is_main_process",
    "size",
    "numel",
    "dim",
    "abspath",
    "norm",
    "isclose",
    "get_last_lr",
    "memory_allocated",
    "max_memory_allocated",
    "strip",
    "upper",
    "lower",
    "startswith",
    "endswith",
    "Path",
];

/// Names that every rank knows: a condition of these alone needs no question.
const KNOWN: [&str; 32] = [
    "rank",
    "local_rank",
    "global_rank",
    "world_size",
    "step",
    "epoch",
    "i",
    "it",
    "idx",
    "batch_idx",
    "args",
    "dist",
    "torch",
    "distributed",
    "get_rank",
    "get_world_size",
    "is_initialized",
    "self",
    "gpu",
    "print_freq",
    "log_interval",
    "and",
    "or",
    "not",
    "in",
    "is",
    "True",
    "False",
    "None",
    "__name__",
    "len",
    "_truth",
];

/// Calls of the program's own functions inside each other that are read.
const MAX_DEPTH: usize = 4;

/// The conditions of an `if` and its `elif`s, and the targets that its blocks assign.
pub(super) struct PassedOver {
    conditions: Vec<(String, String)>,
    targets: Vec<String>,
}

impl PassedOver {
    /// Reads the `if` at an index; `None` where a block could make a call, or the condition is one of ranks and
    /// steps.
    pub(super) fn of(statements: &[Logical], index: usize) -> Option<PassedOver> {
        let own = statements.get(index)?;
        let head = own.mask.trim_start();
        if first_word(head) != "if" || own.first != own.last || own.mask.contains(":=") {
            return None;
        }
        let reader = Reader { statements };
        let mut found = PassedOver { conditions: Vec::new(), targets: Vec::new() };
        let mut unknown = false;
        for (at, next) in statements.iter().enumerate().skip(index) {
            let word = first_word(next.mask.trim_start());
            let clause =
                next.indent == own.indent && (at == index || matches!(word, "elif" | "else"));
            if next.indent < own.indent || (next.indent == own.indent && !clause) {
                break;
            }
            if !clause {
                reader.block_statement(next, &mut found.targets)?;
                continue;
            }
            let colon = colon(&next.mask)?;
            if word != "else" {
                let from = next.indent + word.len();
                let (text, mask) = (next.text.get(from..colon)?, next.mask.get(from..colon)?);
                if next.first != next.last || !reader.calls_are_harmless(text, mask, 0) {
                    return None;
                }
                unknown |= !is_known(mask);
                found.conditions.push((text.trim().to_owned(), mask.trim().to_owned()));
            }
            reader.simple_statements(next, colon + 1, &mut found.targets)?;
        }
        found.targets.dedup();
        unknown.then_some(found)
    }

    /// The question in front of the `if`, and the assignments behind it.
    pub(super) fn question(&self, own: &Logical) -> Vec<Logical> {
        let joined = |of: fn(&(String, String)) -> &String| {
            let asked: Vec<String> =
                self.conditions.iter().map(|one| format!("lambda: ({})", of(one))).collect();
            format!("{:1$}if _unsure({2}):", "", own.indent, asked.join(", "))
        };
        let asks = own.asks.comparing();
        let mut made = vec![Logical {
            text: joined(|(text, _)| text),
            mask: joined(|(_, mask)| mask),
            asks,
            ..own.clone()
        }];
        let inner = own.indent + 4;
        let line =
            |text: String| Logical { indent: inner, mask: text.clone(), text, ..own.clone() };
        if self.targets.is_empty() {
            made.push(line(format!("{:inner$}pass", "")));
        }
        made.extend(
            self.targets.iter().map(|to| line(format!("{:inner$}{to} = _undecided()", ""))),
        );
        made
    }
}

/// The `if` as the `elif` of its question.
pub(super) fn as_elif(own: &Logical) -> Logical {
    let turned = |of: &str| {
        let mut of = of.to_owned();
        of.replace_range(own.indent..own.indent + 2, "elif");
        of
    };
    Logical { text: turned(&own.text), mask: turned(&own.mask), ..own.clone() }
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// True if every name of a condition is one that all ranks know.
fn is_known(mask: &str) -> bool {
    let mut after_dot = false;
    for part in mask.split_inclusive(|c: char| !word(c)) {
        let name = part.trim_end_matches(|c: char| !word(c));
        let starts = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        // An attribute of `self` may be anything, but its rank.
        if starts && !KNOWN.contains(&name) && !(after_dot && name.ends_with("rank")) {
            return false;
        }
        if !part.trim().is_empty() {
            after_dot = part.ends_with('.');
        }
    }
    true
}

struct Reader<'a> {
    statements: &'a [Logical],
}

impl Reader<'_> {
    /// Reads a statement inside of a block.
    fn block_statement(&self, own: &Logical, targets: &mut Vec<String>) -> Option<()> {
        let head = own.mask.trim_start();
        match first_word(head) {
            condition @ ("if" | "elif" | "else") => {
                let colon = colon(&own.mask)?;
                let from = own.indent + condition.len();
                let (text, mask) = (own.text.get(from..colon)?, own.mask.get(from..colon)?);
                if !self.calls_are_harmless(text, mask, 0) {
                    return None;
                }
                self.simple_statements(own, colon + 1, targets)
            }
            _ => self.simple_statements(own, own.indent, targets),
        }
    }

    /// Reads the statements of a line from a place on.
    fn simple_statements(
        &self,
        own: &Logical,
        from: usize,
        targets: &mut Vec<String>,
    ) -> Option<()> {
        let (text, mask) = (own.text.get(from..)?, own.mask.get(from..)?);
        for (from, to) in inline::simple(mask) {
            let (text, mask) = (&text[from..to], &mask[from..to]);
            self.simple_statement(text, mask, 0, targets)?;
        }
        Some(())
    }

    /// Reads an assignment or a call; `None` for any other statement, or where one makes calls.
    fn simple_statement(
        &self,
        text: &str,
        mask: &str,
        depth: usize,
        targets: &mut Vec<String>,
    ) -> Option<()> {
        if matches!(mask, "pass" | "...") {
            return Some(());
        }
        const OTHERS: [&str; 17] = [
            "return", "break", "continue", "raise", "assert", "del", "import", "from", "def",
            "class", "for", "while", "with", "try", "global", "nonlocal", "yield",
        ];
        if OTHERS.contains(&first_word(mask)) || mask.contains(":=") {
            return None;
        }
        if !self.calls_are_harmless(text, mask, depth) {
            return None;
        }
        let augmented = ["+=", "-=", "*=", "/="].iter().find_map(|sign| mask.find(sign));
        let assigned = match augmented {
            Some(at) => &text[..at],
            None => match inline::equals(mask, 0)?.as_slice() {
                [] => return Some(()),
                [one] => &text[..*one],
                _ => return None,
            },
        };
        for target in assigned.split(',').map(str::trim) {
            if !is_target(target) {
                return None;
            }
            if !targets.iter().any(|known| known == target) {
                targets.push(target.to_owned());
            }
        }
        Some(())
    }

    /// True if an expression only calls functions that make no call of `torch.distributed`.
    fn calls_are_harmless(&self, text: &str, mask: &str, depth: usize) -> bool {
        // The text itself, since its f-strings call as well.
        let text = text.get(..mask.trim_end().len()).unwrap_or(text);
        text.match_indices('(').all(|(at, _)| {
            let front = &text[..at];
            let name = front.rsplit(|c| !word(c)).next().unwrap_or_default();
            match name {
                "" => !front.ends_with([')', ']']),
                "if" | "else" | "and" | "or" | "not" | "in" | "is" | "lambda" => true,
                name => self.is_harmless(name, depth),
            }
        }) && !text.contains("await ")
    }

    /// True if a function of this name makes no call; a program's own is read.
    fn is_harmless(&self, name: &str, depth: usize) -> bool {
        let heads = [format!("def {name}("), format!("__method__{name}(")];
        let mut own = self
            .statements
            .iter()
            .enumerate()
            .filter(|(_, own)| {
                let head = own.mask.trim_start();
                head.starts_with(&heads[0])
                    || (head.starts_with("def ") && head.contains(&heads[1]))
            })
            .peekable();
        if own.peek().is_none() {
            return HARMLESS.contains(&name) || name == "_truth";
        }
        depth < MAX_DEPTH && own.all(|(at, _)| self.body_is_harmless(at, depth + 1))
    }

    /// True if the function at an index calls only what is harmless, and assigns only names of its own.
    fn body_is_harmless(&self, at: usize, depth: usize) -> bool {
        let Some(head) = self.statements.get(at) else { return false };
        let behind = self.statements.get(at + 1..).unwrap_or_default();
        let body = behind.iter().take_while(|own| own.indent > head.indent);
        let decorated = at.checked_sub(1).and_then(|at| self.statements.get(at));
        let decorated = decorated.is_some_and(|own| own.mask.trim_start().starts_with('@'));
        !decorated && body.into_iter().all(|own| self.own_statement(own, depth).is_some())
    }

    /// Reads a statement of a program's own function.
    fn own_statement(&self, own: &Logical, depth: usize) -> Option<()> {
        let (text, mask) = (own.text.trim_start(), own.mask.trim());
        let head = first_word(mask);
        if matches!(head, "if" | "elif" | "else" | "for" | "with") {
            let colon = colon(mask)?;
            let harmless = self.calls_are_harmless(text.get(..colon)?, &mask[..colon], depth)
                || (head == "with" && mask.contains("open("));
            let rest = mask[colon + 1..].trim();
            return (harmless && rest.is_empty()).then_some(());
        }
        let mut assigned = Vec::new();
        for (from, to) in inline::simple(&own.mask) {
            let (text, mask) = (&own.text[from..to], &own.mask[from..to]);
            if first_word(mask) == "return" {
                let harmless = self.calls_are_harmless(text, mask, depth);
                harmless.then_some(())?;
                continue;
            }
            self.simple_statement(text, mask, depth, &mut assigned)?;
        }
        assigned.iter().all(|name| name.chars().all(word)).then_some(())
    }
}

/// True if a target is a name, an attribute, or an entry with a key that is written out.
fn is_target(target: &str) -> bool {
    let (path, key) = match target.split_once('[') {
        Some((path, key)) => (path, key.strip_suffix(']').unwrap_or_default()),
        None => (target, "0"),
    };
    let quoted = key.len() > 1 && key.starts_with(['"', '\'']) && key.ends_with(['"', '\'']);
    let literal = quoted || (!key.is_empty() && key.chars().all(|c| c.is_ascii_digit()));
    let named = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_') && part.chars().all(word)
    };
    literal && path.split('.').all(named)
}
