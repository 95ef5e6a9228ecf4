//! The uses between the files of a crate, with the names that are used; and the circles among them.

use super::modules::{Crate, ItemPath, absolute, is_test};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// The names that a file takes from each other file.
pub(super) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// The arrows between a crate's files.
pub(super) fn arrows(whole: &Crate) -> Arrows {
    let mut found = Arrows::new();
    for (path, module) in &whole.modules {
        let (_, syntax) = &whole.files[module.file];
        let Some(items) = items_of(&syntax.items, path, whole, module.file) else { continue };
        let mut names = BTreeSet::new();
        let mut paths =
            Paths { whole, module: path, file: module.file, found: &mut found, names: &mut names };
        for item in items {
            // Imports are known already; modules below are read on their own.
            if !matches!(item, syn::Item::Use(_) | syn::Item::Mod(_)) {
                paths.visit_item(item);
            }
        }
        // A folder's file that only names what lies in it uses none of it.
        let taken = module
            .imports
            .iter()
            .filter(|(name, _)| !module.re_exported.contains(*name) || names.contains(*name));
        for (name, target) in taken {
            if let Some(file) = whole.definition(target) {
                add(&mut found, module.file, file, name);
            }
        }
    }
    found
}

fn add(found: &mut Arrows, from: usize, to: usize, name: &str) {
    if from != to {
        found.entry((from, to)).or_default().insert(name.to_owned());
    }
}

/// The items of a module: of the whole file, or of a module inside it.
fn items_of<'f>(
    items: &'f [syn::Item],
    module: &[String],
    whole: &Crate,
    file: usize,
) -> Option<&'f [syn::Item]> {
    let mut items = items;
    let mut inside: Vec<&String> = Vec::new();
    let mut path = module;
    // Up to the module that is the file itself.
    while let Some((last, above)) = path.split_last() {
        if whole.modules.get(above).is_none_or(|module| module.file != file) {
            break;
        }
        inside.push(last);
        path = above;
    }
    for name in inside.iter().rev() {
        items = items.iter().find_map(|item| match item {
            syn::Item::Mod(child) if child.ident == **name => {
                child.content.as_ref().map(|(_, items)| items.as_slice())
            }
            _ => None,
        })?;
    }
    Some(items)
}

/// Collects the paths that are written out where they are used: `words::ranks(…)`.
struct Paths<'c, 'f> {
    whole: &'c Crate,
    module: &'c ItemPath,
    file: usize,
    found: &'f mut Arrows,
    /// The first names of all paths.
    names: &'f mut BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Paths<'_, '_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ItemPath = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.names.extend(names.first().cloned());
        if names.len() > 1 {
            let own = self.whole.modules.get(self.module);
            let imported = own.and_then(|own| own.imports.get(&names[0])).and_then(|target| {
                // An imported type's own names need no arrow of their own.
                self.whole
                    .module(target)
                    .map(|module| module.iter().chain(&names[1..]).cloned().collect::<ItemPath>())
            });
            let target = imported.or_else(|| absolute(&names, self.module));
            if let Some(file) = target.and_then(|target| self.whole.definition(&target)) {
                add(self.found, self.file, file, &names.join("::"));
            }
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }
}

/// The circles: groups of files of which each can be reached from each other one, largest first.
/// By Tarjan ("Depth-first search and linear graph algorithms", 1972).
pub(super) fn circles(files: usize, arrows: &Arrows) -> Vec<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); files];
    for (from, to) in arrows.keys() {
        next[*from].push(*to);
    }
    let mut search = Search {
        next: &next,
        order: vec![None; files],
        low: vec![0; files],
        on_stack: vec![false; files],
        stack: Vec::new(),
        count: 0,
        found: Vec::new(),
    };
    for file in 0..files {
        if search.order[file].is_none() {
            search.from(file);
        }
    }
    let mut found = search.found;
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

struct Search<'g> {
    next: &'g [Vec<usize>],
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    count: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn from(&mut self, file: usize) {
        self.order[file] = Some(self.count);
        self.low[file] = self.count;
        self.count += 1;
        self.stack.push(file);
        self.on_stack[file] = true;
        for &to in &self.next[file] {
            match self.order[to] {
                None => {
                    self.from(to);
                    self.low[file] = self.low[file].min(self.low[to]);
                }
                Some(order) if self.on_stack[to] => self.low[file] = self.low[file].min(order),
                Some(_) => {}
            }
        }
        if Some(self.low[file]) == self.order[file] {
            let from = self.stack.iter().rposition(|it| *it == file).unwrap_or(0);
            let mut circle = self.stack.split_off(from);
            for file in &circle {
                self.on_stack[*file] = false;
            }
            if circle.len() > 1 {
                circle.sort_unstable();
                self.found.push(circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows_of(files: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let whole = Crate::read(&folder.path().join("lib.rs")).unwrap();
        let name = |at: usize| {
            whole.files[at].0.strip_prefix(folder.path()).unwrap().display().to_string()
        };
        arrows(&whole).into_keys().map(|(from, to)| (name(from), name(to))).collect()
    }

    #[test]
    fn imports_and_written_out_paths_are_arrows_to_where_the_item_is_defined() {
        let found = arrows_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::Thing; fn f() { super::c::help(); }"),
            ("b/mod.rs", "mod thing; pub use thing::Thing;"),
            ("b/thing.rs", "pub struct Thing; impl Thing { fn g() { crate::c::help() } }"),
            ("c.rs", "use super::b; pub fn help() {} fn h(_: b::Thing) {}"),
        ]);
        let expected = [
            ("a.rs", "b/thing.rs"),
            ("a.rs", "c.rs"),
            ("b/thing.rs", "c.rs"),
            ("c.rs", "b/thing.rs"),
        ];
        let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(found, expected.into_iter().collect());
    }

    #[test]
    fn tests_draw_no_arrows() {
        let found = arrows_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn f() {} #[cfg(test)] mod tests { use crate::b::g; }"),
            ("b.rs", "pub fn g() {}"),
        ]);
        assert_eq!(found, BTreeSet::new());
    }

    #[test]
    fn circles_are_found_whole() {
        let arrow = |from, to| ((from, to), BTreeSet::new());
        let arrows: Arrows =
            [arrow(0, 1), arrow(1, 2), arrow(2, 0), arrow(2, 3), arrow(3, 4), arrow(4, 3)].into();
        assert_eq!(circles(6, &arrows), [vec![0, 1, 2], vec![3, 4]]);
    }
}
