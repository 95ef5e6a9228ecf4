//! The acts of a model's `forward` that a simulated pass leaves out.
//!
//! A simulated pass runs every module that a class keeps, once, and calls nothing of `torch.distributed`.
//! Here the text of `forward`, of the class's methods that it calls and of the program's functions that those
//! call, is searched for everything that makes that untrue: a call of `torch.distributed`, gradients that are
//! switched off, and modules that it runs in a branch only, or not at all.

use crate::dialect::scan::Logical;
use crate::dialect::words::first_word;

/// Describes a class's `forward`, as far as its text shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Followed {
    /// Its line in the program, counted from 1; 0 if the class has none.
    pub(super) line: usize,
    /// The act that is not followed, in a few words; empty if nothing is seen.
    pub(super) why: String,
    /// The attributes of `self` that it names wherever it runs; `None` if it may name all of it.
    pub(super) uses: Option<Vec<String>>,
}

/// Reads the `forward` of a class, of whose body `block` are the statements, in a program of `statements`.
pub(super) fn of_forward(block: &[Logical], statements: &[Logical]) -> Followed {
    let Some(at) = defined(block, "forward") else {
        return Followed { uses: Some(Vec::new()), ..Followed::default() };
    };
    let line = block.get(at).map_or(0, |head| head.first + 1);
    let mut found = Followed { line, uses: Some(Vec::new()), ..Followed::default() };
    let mut bodies = vec![(block, at, false)];
    let mut known: Vec<(bool, String)> = Vec::new();
    while let Some((of, at, branch)) = bodies.pop() {
        for own in body(of, at) {
            if found.why.is_empty() {
                found.why = unfollowed(own).unwrap_or_default();
                if !found.why.is_empty() {
                    found.line = own.first + 1;
                }
            }
            let branch = branch || in_branch(of, at, own);
            note_uses(own, branch, &mut found.uses);
            for name in called(own, "self.") {
                let method = defined(block, name);
                if let Some(method) = method.filter(|_| is_new(&mut known, true, name)) {
                    bodies.push((block, method, branch));
                }
            }
            for name in called(own, "") {
                let function = defined(statements, name);
                if let Some(function) = function.filter(|_| is_new(&mut known, false, name)) {
                    bodies.push((statements, function, true));
                }
            }
        }
    }
    found
}

fn is_new(known: &mut Vec<(bool, String)>, of_class: bool, name: &str) -> bool {
    let name = (of_class, name.to_owned());
    let new = !known.contains(&name);
    if new {
        known.push(name);
    }
    new
}

/// The statement that defines a function of that name.
fn defined(statements: &[Logical], name: &str) -> Option<usize> {
    let indent = statements.iter().map(|own| own.indent).min()?;
    statements.iter().position(|own| {
        let head = own.mask.trim_start().strip_prefix("def ").and_then(|rest| rest.split_once('('));
        own.indent == indent && head.is_some_and(|(own, _)| own.trim() == name)
    })
}

/// The statements of the function that is defined there.
fn body(statements: &[Logical], at: usize) -> impl Iterator<Item = &Logical> {
    let indent = statements.get(at).map_or(0, |own| own.indent);
    statements.iter().skip(at + 1).take_while(move |own| own.indent > indent)
}

/// Says which deed of a statement a simulated pass leaves out.
fn unfollowed(own: &Logical) -> Option<String> {
    const COMMUNICATES: [&str; 3] = ["dist.", "distributed.", "funcol."];
    const DETACHES: [&str; 4] = ["no_grad", ".detach(", "inference_mode", "set_grad_enabled"];
    let starts = |word: &str| {
        own.mask
            .match_indices(word)
            .map(|(at, _)| at)
            .find(|at| !own.mask[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    if let Some((at, word)) = COMMUNICATES.iter().find_map(|word| Some((starts(word)?, word))) {
        let rest = &own.mask[at + word.len()..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // Asking for the own rank or the world size is no communication.
        let asks = ["get_rank", "get_world_size", "is_initialized", "is_available"];
        return (!asks.contains(&name.as_str())).then(|| format!("it calls {word}{name}"));
    }
    DETACHES
        .iter()
        .any(|word| own.mask.contains(word))
        .then(|| "it switches gradients off for a part of the pass".to_owned())
}

/// True of a statement that runs only under a condition inside of its function.
fn in_branch(statements: &[Logical], function: usize, own: &Logical) -> bool {
    let Some(at) = statements.iter().position(|other| std::ptr::eq(other, own)) else {
        return false;
    };
    let mut indent = own.indent;
    let before = statements.get(function + 1..at).unwrap_or_default();
    let conditional = before.iter().rev().any(|head| {
        let holds = head.indent < indent;
        if holds {
            indent = head.indent;
        }
        let word = first_word(head.mask.trim_start());
        let branches =
            ["if", "elif", "else", "else:", "while", "try:", "try", "except", "match", "case"];
        // A branch on whether a part is there runs it where it is.
        let if_there = own_names(&head.mask).iter().any(|name| names(&own.mask, name));
        holds && branches.contains(&word) && !(word == "if" && if_there)
    });
    let head = ["if", "elif", "while"].contains(&first_word(own.mask.trim_start()));
    conditional || (!head && own.mask.contains(" if ") && own.mask.contains(" else "))
}

/// The names of `self` that a statement uses.
fn own_names(mask: &str) -> Vec<&str> {
    let parts = mask.match_indices("self.").filter_map(|(at, word)| {
        let rest = &mask[at + word.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        rest.get(..end).filter(|name| !name.is_empty())
    });
    parts.collect()
}

fn names(mask: &str, name: &str) -> bool {
    own_names(mask).contains(&name)
}

/// Adds the parts of `self` that a statement uses, unless it may be in a branch only. All parts count if the
/// statement iterates over them without their names.
fn note_uses(own: &Logical, branch: bool, uses: &mut Option<Vec<String>>) {
    const ALL: [&str; 6] = [
        "self.children(",
        "self.modules(",
        "self.named_",
        "self._modules",
        "getattr(self",
        "super(",
    ];
    if ALL.iter().any(|word| own.mask.contains(word)) {
        *uses = None;
        return;
    }
    let Some(uses) = uses.as_mut().filter(|_| !branch) else { return };
    for name in own_names(&own.mask) {
        // One of a list by its number leaves the others out.
        let by_number = own.mask.split(&format!("self.{name}[")).nth(1);
        let by_number =
            by_number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if !by_number && !uses.iter().any(|known| known == name) {
            uses.push(name.to_owned());
        }
    }
}

/// The names that a statement calls behind `front`: `self.` for methods.
fn called<'s>(own: &'s Logical, front: &str) -> Vec<&'s str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let calls = own.mask.match_indices('(').filter_map(|(at, _)| {
        let before = &own.mask[..at];
        let start = before.rfind(|c: char| !word(c)).map_or(0, |at| at + 1);
        let name = before.get(start..).filter(|name| !name.is_empty())?;
        let ahead = &before[..start];
        let is_it = match front {
            "" => !ahead.ends_with('.'),
            front => ahead.ends_with(front),
        };
        is_it.then_some(name)
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::scan::scan;

    fn read(class: &str) -> Followed {
        let statements = scan(class).unwrap();
        let at = statements.iter().position(|own| own.mask.starts_with("class ")).unwrap();
        let block: Vec<Logical> =
            statements[at + 1..].iter().take_while(|own| own.indent > 0).cloned().collect();
        of_forward(&block, &statements)
    }

    fn uses(class: &str) -> String {
        read(class).uses.map_or_else(|| "all".to_owned(), |uses| uses.join(" "))
    }

    #[test]
    fn what_runs_in_a_branch_is_not_always_used() {
        let class =
            |body: &str| format!("class Net(nn.Module):\n    def forward(self, x):\n{body}");
        assert_eq!(uses(&class("        return self.b(F.relu(self.a(x)))\n")), "b a");
        let branch = "        x = self.a(x)\n        if x.sum() > 0:\n            x = self.b(x)\n";
        assert_eq!(uses(&class(&format!("{branch}        return self.c(x)\n"))), "a c");
        let there =
            "        if self.down is not None:\n            x = self.down(x)\n        return x\n";
        assert_eq!(uses(&class(there)), "down");
        assert_eq!(uses(&class("        return self.a(x) if self.flag else x\n")), "");
        assert_eq!(uses(&class("        return self.layers[0](x)\n")), "");
        assert_eq!(uses(&class("        for l in self.layers:\n            x = l(x)\n")), "layers");
        assert_eq!(
            uses(&class("        for l in self.children():\n            x = l(x)\n")),
            "all"
        );
        let method =
            "        return self.enc(x)\n    def enc(self, x):\n        return self.a(x)\n";
        assert_eq!(uses(&class(method)), "enc a");
    }

    #[test]
    fn calls_of_others_are_found_through_methods_and_functions() {
        let text = "def reduce(x):\n    dist.all_reduce(x)\nclass Net(nn.Module):\n    def forward(self, x):\n        \
                    return self.own(x)\n    def own(self, x):\n        return reduce(x)\n";
        let found = read(text);
        assert_eq!((found.line, found.why.as_str()), (2, "it calls dist.all_reduce"));
        let asks = "class Net(nn.Module):\n    def forward(self, x):\n        r = dist.get_rank()\n        return x\n";
        assert_eq!(read(asks).why, "");
    }
}
