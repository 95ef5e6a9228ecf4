//! A program of several files as one text: the files beside it that it imports stand in front of it, each once,
//! and their names are the program's own. Where two files give one name to different things, the program is
//! refused: nothing is mixed up.

use crate::dialect::scan::{Logical, scan};
use lockstep_core::plan::{Plan, Source};
use lockstep_scenarios::program::{Compiled, ProgramError};
use std::collections::{BTreeMap, BTreeSet};

/// A program imports at most so many files.
const MAX_FILES: usize = 200;

/// The files beside a program that it imports, directly or through each other: their paths from the program's
/// folder (`models/net.py`) and texts. `read` has the text of a path, if there is such a file.
pub fn siblings(text: &str, read: &mut dyn FnMut(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut asked: Vec<(String, String)> = vec![(String::new(), text.to_owned())];
    while let Some((path, text)) = asked.pop() {
        let Ok(statements) = scan(&text) else { continue };
        for module in
            statements.iter().flat_map(|own| imports(own, &path)).flat_map(|it| it.modules())
        {
            for candidate in candidates(&module) {
                if found.len() >= MAX_FILES || found.iter().any(|(known, _)| *known == candidate) {
                    continue;
                }
                if let Some(text) = read(&candidate) {
                    found.push((candidate.clone(), text.clone()));
                    asked.push((candidate, text));
                }
            }
        }
    }
    found
}

/// The files that a module can be, and those of the packages that it is in: `models/net.py`,
/// `models/net/__init__.py`, `models/__init__.py`.
fn candidates(module: &str) -> Vec<String> {
    let path = module.replace('.', "/");
    let packages = path.match_indices('/').map(|(at, _)| format!("{}/__init__.py", &path[..at]));
    let packages: Vec<String> = packages.collect();
    [format!("{path}.py"), format!("{path}/__init__.py")].into_iter().chain(packages).collect()
}

/// One import: `import module as alias`, or `from module import name as alias`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    /// Its dotted name from the program's folder.
    module: String,
    /// The name that is imported from it; `*` for all, `None` for the module itself.
    name: Option<String>,
    alias: Option<String>,
}

impl Import {
    /// The modules that it may mean: a name can be a module of a package.
    fn modules(&self) -> Vec<String> {
        let below =
            self.name.as_ref().filter(|name| *name != "*").map(|name| match self.module.as_str() {
                "" => name.clone(),
                module => format!("{module}.{name}"),
            });
        [self.module.clone()].into_iter().chain(below).filter(|module| !module.is_empty()).collect()
    }
}

/// The imports of a statement in the file at `path`, in their order; none of another statement.
fn imports(statement: &Logical, path: &str) -> Vec<Import> {
    let flat = statement.mask.replace(['\n', '(', ')', '\\', '\u{1}'], " ");
    let flat = flat.trim();
    let parts = |list: &str| -> Vec<(String, Option<String>)> {
        let part = |part: &str| {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                [name] => Some((name.to_owned(), None)),
                [name, "as", alias] => Some((name.to_owned(), Some(alias.to_owned()))),
                _ => None,
            }
        };
        list.split(',').filter_map(part).collect()
    };
    if let Some(list) = flat.strip_prefix("import ") {
        let import = |(module, alias)| Import { module, name: None, alias };
        return parts(list).into_iter().map(import).collect();
    }
    let Some((from, list)) =
        flat.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
    else {
        return Vec::new();
    };
    let module = absolute(from.trim(), path);
    let import = |(name, alias)| Import { module: module.clone(), name: Some(name), alias };
    parts(list).into_iter().map(import).collect()
}

/// A module's name from the program's folder: `.net` in `models/__init__.py` is `models.net`.
fn absolute(module: &str, path: &str) -> String {
    let dots = module.len() - module.trim_start_matches('.').len();
    if dots == 0 {
        return module.to_owned();
    }
    let mut package: Vec<&str> = path.split('/').collect();
    // The file itself, and a folder for each further dot.
    package.truncate(package.len().saturating_sub(dots));
    let rest = module.trim_start_matches('.');
    package.extend(rest.split('.').filter(|part| !part.is_empty()));
    package.join(".")
}

/// A file in the text.
#[derive(Clone, Debug)]
struct Part {
    path: String,
    text: String,
    /// The line, from 0, at which it begins in [`Bundle::shown`].
    first: u32,
}

/// A program and the files that it imports.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// All files, those that are imported first.
    pub(crate) text: String,
    /// Per line of the text its line in `shown`, from 0.
    shown_lines: Vec<u32>,
    /// The program itself, so that its lines are its own, and the imported files behind it.
    pub(crate) shown: String,
    /// The program, and the files behind it.
    parts: Vec<Part>,
}

impl Bundle {
    /// A program with the files that it imports, of those that are beside it; `None` where it imports none.
    ///
    /// # Errors
    /// Two files give one name to different things, or a file is no text in Python's words.
    pub(crate) fn of(
        path: &str,
        text: &str,
        files: &[(String, String)],
    ) -> Result<Option<Bundle>, ProgramError> {
        if files.is_empty() || scan(text).is_err() {
            // Its own mistakes are told as they are of a program of one file.
            return Ok(None);
        }
        let files: BTreeMap<&str, &str> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let mut order: Vec<&str> = Vec::new();
        let mut begun: BTreeSet<&str> = BTreeSet::new();
        needed("", text, &files, &mut begun, &mut order);
        if order.is_empty() {
            return Ok(None);
        }
        let all: Vec<File<'_>> = order
            .iter()
            .filter_map(|own| Some((*own, *files.get(own)?)))
            .map(|(own, text)| File::of(own, own, text))
            .chain([File::of("", path, text)])
            .collect::<Result<_, _>>()?;
        each_name_once(&all)?;
        let (mut parts, mut shown) = (Vec::new(), String::new());
        for file in all.last().into_iter().chain(&all[..all.len() - 1]) {
            let first = shown.lines().count() as u32;
            parts.push(Part { path: file.name.to_owned(), text: file.text.to_owned(), first });
            shown.push_str(file.text.trim_end_matches('\n'));
            shown.push('\n');
        }
        let (mut text, mut shown_lines) = (String::new(), Vec::new());
        for (nth, file) in all.iter().enumerate() {
            let part = if nth + 1 == all.len() { 0 } else { nth + 1 };
            let first = parts.get(part).map_or(0, |part: &Part| part.first);
            for (at, line) in file.rewritten(&all).iter().enumerate() {
                text.push_str(line);
                text.push('\n');
                shown_lines.push(first + at as u32);
            }
        }
        Ok(Some(Bundle { text, shown_lines, shown, parts }))
    }

    /// The line in `shown` of a line of the text; both from 0.
    pub(crate) fn shown_line(&self, line: u32) -> u32 {
        self.shown_lines.get(line as usize).copied().unwrap_or(line)
    }

    /// The file of a line of `shown`, and the line in it; both lines from 1.
    fn place(&self, line: u32) -> Option<(usize, u32)> {
        let at = line.checked_sub(1)?;
        let part = self.parts.iter().rposition(|part| part.first <= at)?;
        Some((part, line - self.parts.get(part)?.first))
    }

    /// An error of the bundle as one of its file.
    pub(crate) fn placed_error(&self, mut error: ProgramError) -> ProgramError {
        let in_file = |line: u32| self.place(line).filter(|(part, _)| *part > 0);
        let path = |part: usize| self.parts.get(part).map_or("", |part| part.path.as_str());
        if let Some((part, line)) = in_file(error.line) {
            error.message = format!("{}: {}", path(part), error.message);
            error.line = line;
        }
        for (function, line) in &mut error.stack {
            if let Some((part, own)) = in_file(*line) {
                function.push_str(&format!(" in {}", path(part)));
                *line = own;
            }
        }
        error
    }

    /// The results with the lines of each file in that file.
    pub(crate) fn placed(&self, mut compiled: Compiled) -> Compiled {
        self.place_lines(&mut compiled.plan);
        for (_, error) in &mut compiled.raised {
            let own = std::mem::replace(error, ProgramError::whole(""));
            *error = self.placed_error(own);
        }
        compiled
    }

    fn place_lines(&self, plan: &mut Plan) {
        let Some(own) = plan.sources.iter().position(|source| source.text == self.shown) else {
            return;
        };
        let behind = plan.sources.len() as u32;
        for (source, part) in plan.sources.iter_mut().skip(own).zip(&self.parts).take(1) {
            source.text.clone_from(&part.text);
        }
        let others = self.parts.iter().skip(1);
        plan.sources
            .extend(others.map(|part| Source { path: part.path.clone(), text: part.text.clone() }));
        let ops = plan.programs.iter_mut().flat_map(|program| &mut program.ops);
        for at in ops.filter_map(|op| op.at.as_mut()).filter(|at| at.source as usize == own) {
            if let Some((part, line)) = self.place(at.line).filter(|(part, _)| *part > 0) {
                (at.source, at.line) = (behind + part as u32 - 1, line);
            }
        }
    }
}

/// Adds the files that a file needs, each behind those that it needs itself.
fn needed<'f>(
    path: &str,
    text: &str,
    files: &BTreeMap<&'f str, &'f str>,
    begun: &mut BTreeSet<&'f str>,
    order: &mut Vec<&'f str>,
) {
    let Ok(statements) = scan(text) else { return };
    for module in statements.iter().flat_map(|own| imports(own, path)).flat_map(|it| it.modules()) {
        let there = candidates(&module);
        for (own, text) in there.iter().filter_map(|own| files.get_key_value(own.as_str())) {
            if begun.insert(own) {
                needed(own, text, files, begun, order);
                order.push(own);
            }
        }
    }
}

/// A file of the program, with its statements.
struct File<'f> {
    /// Its path from the program's folder; empty for the program itself.
    path: &'f str,
    /// The name that it is shown with.
    name: &'f str,
    text: &'f str,
    statements: Vec<Logical>,
}

impl<'f> File<'f> {
    fn of(path: &'f str, name: &'f str, text: &'f str) -> Result<File<'f>, ProgramError> {
        let statements = scan(text).map_err(|error| ProgramError {
            message: format!("{name}: {}", error.message),
            ..error
        })?;
        Ok(File { path, name, text, statements })
    }

    /// The dotted name of the module that it is.
    fn module(&self) -> String {
        let path = self.path.strip_suffix(".py").unwrap_or(self.path);
        let path = path.strip_suffix("/__init__").unwrap_or(path);
        path.replace('/', ".")
    }

    /// The names that its statements outside of every block give, and the statement of each.
    fn names(&self) -> impl Iterator<Item = (String, &Logical)> {
        let outside = self.statements.iter().filter(|own| own.indent == 0);
        outside.filter_map(|own| Some((given_name(&own.mask)?, own)))
    }

    /// The file line by line, in which imports of other files are the names that they give.
    fn rewritten(&self, all: &[File<'_>]) -> Vec<String> {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        let is_file =
            |module: &str| all.iter().any(|file| !file.path.is_empty() && file.module() == module);
        // `utils` and `u` of `import utils as u`: their names are those of the program.
        let mut spaces: Vec<String> = Vec::new();
        let mut put = |own: &Logical, text: String| {
            for (nth, line) in (own.first..=own.last).enumerate() {
                if let Some(line) = lines.get_mut(line) {
                    *line = if nth == 0 { text.clone() } else { String::new() };
                }
            }
        };
        for own in &self.statements {
            let front = " ".repeat(own.indent);
            if !self.path.is_empty() && own.indent == 0 && own.mask.starts_with("if __name__") {
                put(own, format!("{front}if False:"));
                continue;
            }
            let found = imports(own, self.path);
            if !found.iter().any(|import| import.modules().iter().any(|module| is_file(module))) {
                continue;
            }
            let mut texts: Vec<String> = Vec::new();
            for Import { module, name, alias } in found {
                let below = name.as_ref().map(|name| match module.as_str() {
                    "" => name.clone(),
                    module => format!("{module}.{name}"),
                });
                match (&name, alias) {
                    (Some(name), alias) if below.as_deref().is_some_and(is_file) => {
                        spaces.push(alias.unwrap_or_else(|| name.clone()));
                    }
                    (Some(name), Some(alias)) if is_file(&module) && *name != alias => {
                        texts.push(format!("{alias} = {name}"));
                    }
                    (Some(_), _) if is_file(&module) => {}
                    (None, alias) if is_file(&module) => spaces.push(alias.unwrap_or(module)),
                    (Some(name), None) => texts.push(format!("from {module} import {name}")),
                    (Some(name), Some(alias)) => {
                        texts.push(format!("from {module} import {name} as {alias}"));
                    }
                    (None, None) => texts.push(format!("import {module}")),
                    (None, Some(alias)) => texts.push(format!("import {module} as {alias}")),
                }
            }
            let text = if texts.is_empty() { "pass".to_owned() } else { texts.join("; ") };
            put(own, format!("{front}{text}"));
        }
        let kept: BTreeSet<usize> = self
            .statements
            .iter()
            .filter(|own| !imports(own, self.path).is_empty())
            .flat_map(|own| own.first..=own.last)
            .collect();
        // The longest first: `models.net.Net` is not `models`'s `net`.
        spaces.sort_by_key(|space| std::cmp::Reverse(space.len()));
        for own in self.statements.iter().filter(|own| !kept.contains(&own.first)) {
            let text = without_spaces(own, &spaces);
            if text != own.text {
                for (line, text) in (own.first..=own.last).zip(text.split('\n')) {
                    if let Some(line) = lines.get_mut(line) {
                        text.clone_into(line);
                    }
                }
            }
        }
        lines
    }
}

/// A statement's text with `utils.` in front of a name taken away.
fn without_spaces(own: &Logical, spaces: &[String]) -> String {
    let (mut text, mut mask) = (own.text.clone(), own.mask.clone());
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for space in spaces {
        let dotted = format!("{space}.");
        let mut at = 0;
        while let Some(found) = mask.get(at..).and_then(|rest| rest.find(&dotted)) {
            let start = at + found;
            let whole = !mask[..start].ends_with(|c| word(c) || c == '.');
            let named =
                mask[start + dotted.len()..].starts_with(|c: char| word(c) && !c.is_numeric());
            if whole && named {
                text.replace_range(start..start + dotted.len(), "");
                mask.replace_range(start..start + dotted.len(), "");
                at = start;
            } else {
                at = start + dotted.len();
            }
        }
    }
    text
}

/// The name that a statement gives: of a function, a class, or `NAME = …`.
fn given_name(mask: &str) -> Option<String> {
    let mask = mask.trim_start();
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        Some(text[..end].to_owned()).filter(|name| !name.is_empty())
    };
    if let Some(rest) = mask.strip_prefix("def ").or_else(|| mask.strip_prefix("class ")) {
        return word(rest.trim_start());
    }
    let name = word(mask)?;
    let rest = mask[name.len()..].trim_start();
    (rest.starts_with('=') && !rest.starts_with("==")).then_some(name)
}

/// Refuses two files that give one name to different things.
fn each_name_once(all: &[File<'_>]) -> Result<(), ProgramError> {
    let mut known: BTreeMap<String, (&str, &str, usize)> = BTreeMap::new();
    for file in all {
        for (name, own) in file.names() {
            // A function's head says nothing of its body.
            let is_value = !own.mask.starts_with("def ") && !own.mask.starts_with("class ");
            let before = known.get(&name).filter(|(path, ..)| *path != file.name);
            let same = before.is_none_or(|(_, text, _)| is_value && *text == own.text);
            if let (Some((path, _, line)), false) = (before, same) {
                return Err(ProgramError::at(own.first, 0, format!(
                    "{name} is something else in {path}, line {}, and in {}, line {}",
                    line + 1, file.name, own.first + 1
                )).with_help("The files of a program share their names here: give one of the two another name."));
            }
            known.insert(name, (file.name, own.text.as_str(), own.first));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_files_that_a_program_imports_are_found() {
        let there = files(&[
            ("utils.py", "import os\n"),
            ("models/__init__.py", "from .net import Net\n"),
            ("models/net.py", "from utils import x\n"),
            ("other.py", ""),
        ]);
        let mut read =
            |path: &str| there.iter().find(|(own, _)| own == path).map(|(_, text)| text.clone());
        let found = siblings("import torch\nfrom models import Net\n", &mut read);
        let mut paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["models/__init__.py", "models/net.py", "utils.py"]);
        let found = siblings("def f():\n    import other as o\n", &mut read);
        assert_eq!(found[0].0, "other.py");
    }

    #[test]
    fn imports_become_names_and_lines_stay_those_of_their_file() {
        let there = files(&[(
            "utils.py",
            "import os\n\ndef mean(x):\n    return x\n\nif __name__ == '__main__':\n    mean(1)\n",
        )]);
        let text = "import os, utils as u\nfrom utils import mean as m\n\nu.mean('u.mean')\nm(2)\n";
        let bundle = Bundle::of("train.py", text, &there).unwrap().unwrap();
        let lines: Vec<&str> = bundle.text.lines().collect();
        assert_eq!(lines[5], "if False:");
        assert_eq!(lines[7..], ["import os", "m = mean", "", "mean('u.mean')", "m(2)"]);
        // The program's lines are its own, those of the file stand behind it.
        assert_eq!((bundle.shown_line(7), bundle.shown_line(2)), (0, 7));
        assert_eq!(bundle.place(8), Some((1, 3)));
        let error = bundle.placed_error(ProgramError::at(7, 0, "no"));
        assert_eq!((error.line, error.message.as_str()), (3, "utils.py: no"));
    }

    #[test]
    fn one_name_for_two_things_is_refused() {
        let there = files(&[("utils.py", "log = 1\ndef helper():\n    pass\n")]);
        let same = Bundle::of("train.py", "import utils\nlog = 1\n", &there);
        assert!(same.unwrap().is_some());
        let error =
            Bundle::of("train.py", "import utils\ndef helper():\n    pass\n", &there).unwrap_err();
        assert!(error.message.contains("helper is something else in utils.py, line 2"), "{error}");
        assert!(Bundle::of("train.py", "import torch\n", &there).unwrap().is_none());
    }
}
