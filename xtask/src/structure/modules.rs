//! A crate's modules, read from its files: which file a module lies in, and which file defines the
//! item that a path names.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Item, UseTree, Visibility};

/// The path of a module or item from the crate's root: `["plan", "Action"]`.
pub(super) type ItemPath = Vec<String>;

/// Re-exports of re-exports are followed so many times.
const MAX_HOPS: usize = 16;

/// One module of a crate.
#[derive(Default)]
pub(super) struct Module {
    /// The file that holds it, as an index into [`Crate::files`].
    pub(super) file: usize,
    /// The names that it defines.
    defined: Vec<String>,
    /// The items it imports or re-exports, by the name that they have here.
    pub(super) imports: BTreeMap<String, ItemPath>,
    /// The names among them that it re-exports: its users take those, it need not.
    pub(super) re_exported: BTreeSet<String>,
    /// The modules of which it imports everything.
    globs: Vec<ItemPath>,
}

/// The product files of a crate and its modules. Modules that only tests have are left out.
pub(super) struct Crate {
    /// The files with their syntax trees, in the order in which they were found.
    pub(super) files: Vec<(PathBuf, syn::File)>,
    /// The modules, by their paths; the root's is empty.
    pub(super) modules: BTreeMap<ItemPath, Module>,
}

impl Crate {
    /// Reads a crate from its root file.
    ///
    /// # Errors
    /// When a file cannot be read or is no Rust.
    pub(super) fn read(root: &Path) -> Result<Crate> {
        let mut whole = Crate { files: Vec::new(), modules: BTreeMap::new() };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        whole.read_file(root, &folder, Vec::new())?;
        Ok(whole)
    }

    /// Reads a module's file and those of its children, which lie in `folder`.
    fn read_file(&mut self, path: &Path, folder: &Path, module: ItemPath) -> Result<()> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        self.take_file(path, &text, folder, module)
    }

    fn take_file(
        &mut self,
        path: &Path,
        text: &str,
        folder: &Path,
        module: ItemPath,
    ) -> Result<()> {
        let syntax =
            syn::parse_file(text).with_context(|| format!("{} is no Rust", path.display()))?;
        let file = self.files.len();
        let items = syntax.items.clone();
        self.files.push((path.to_owned(), syntax));
        self.take_items(&items, file, folder, module)
    }

    fn take_items(
        &mut self,
        items: &[Item],
        file: usize,
        folder: &Path,
        module: ItemPath,
    ) -> Result<()> {
        let mut own = Module { file, ..Module::default() };
        let mut children = Vec::new();
        for item in items {
            match item {
                Item::Mod(child) if !is_test(&child.attrs) => children.push(child),
                Item::Mod(_) => {}
                Item::Use(used) if !is_test(&used.attrs) => {
                    let before: BTreeSet<String> = own.imports.keys().cloned().collect();
                    own.take_use(&used.tree, &module, Vec::new());
                    if !matches!(used.vis, Visibility::Inherited) {
                        let new = own.imports.keys().filter(|name| !before.contains(*name));
                        own.re_exported.extend(new.cloned().collect::<Vec<_>>());
                    }
                }
                other => own.defined.extend(name_of(other)),
            }
        }
        self.modules.insert(module.clone(), own);
        for child in children {
            let name = child.ident.to_string();
            let path: ItemPath = module.iter().cloned().chain([name.clone()]).collect();
            match &child.content {
                Some((_, items)) => self.take_items(items, file, &folder.join(&name), path)?,
                None => {
                    let beside = folder.join(format!("{name}.rs"));
                    let inside = folder.join(&name).join("mod.rs");
                    let found = if beside.is_file() { beside } else { inside };
                    self.read_file(&found, &folder.join(&name), path)?;
                }
            }
        }
        Ok(())
    }

    /// The file that defines the item of a path, wherever it is re-exported; `None` outside the crate.
    pub(super) fn definition(&self, path: &[String]) -> Option<usize> {
        match self.resolve(path, 0)? {
            Found::Item(file) => Some(file),
            Found::Module(_) => None,
        }
    }

    /// The module that a path names, wherever it is re-exported.
    pub(super) fn module(&self, path: &[String]) -> Option<ItemPath> {
        match self.resolve(path, 0)? {
            Found::Module(module) => Some(module),
            Found::Item(_) => None,
        }
    }

    fn resolve(&self, path: &[String], hops: usize) -> Option<Found> {
        if hops > MAX_HOPS {
            return None;
        }
        let mut module: ItemPath = Vec::new();
        for (at, name) in path.iter().enumerate() {
            let child: ItemPath = module.iter().cloned().chain([name.clone()]).collect();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let own = self.modules.get(&module)?;
            if own.defined.contains(name) {
                return Some(Found::Item(own.file));
            }
            let rest = path.get(at + 1..).unwrap_or_default();
            if let Some(target) = own.imports.get(name) {
                let target: ItemPath = target.iter().chain(rest).cloned().collect();
                return self.resolve(&target, hops + 1);
            }
            // Another crate's are none of ours.
            let globs = own.globs.iter().filter(|glob| self.modules.contains_key(*glob));
            return globs.into_iter().find_map(|glob| {
                let target: ItemPath = glob.iter().chain([name]).chain(rest).cloned().collect();
                self.resolve(&target, hops + 1)
            });
        }
        Some(Found::Module(module))
    }
}

enum Found {
    Item(usize),
    Module(ItemPath),
}

impl Module {
    fn take_use(&mut self, tree: &UseTree, module: &[String], before: ItemPath) {
        match tree {
            UseTree::Path(path) => {
                let mut before = before;
                before.push(path.ident.to_string());
                self.take_use(&path.tree, module, before);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.take_use(tree, module, before.clone());
                }
            }
            UseTree::Name(name) => self.import(name.ident.to_string(), None, module, before),
            UseTree::Rename(rename) => {
                let alias = rename.rename.to_string();
                self.import(rename.ident.to_string(), Some(alias), module, before);
            }
            UseTree::Glob(_) => self.globs.extend(absolute(&before, module)),
        }
    }

    fn import(&mut self, name: String, alias: Option<String>, module: &[String], before: ItemPath) {
        let mut path = before;
        if name != "self" {
            path.push(name);
        }
        let Some(last) = alias.or_else(|| path.last().cloned()) else { return };
        if let Some(path) = absolute(&path, module) {
            self.imports.insert(last, path);
        }
    }
}

/// A path from the crate's root: of `crate::…`, `self::…`, `super::…`, or of a child module; `None` of
/// another crate's, which begins with a name that only [`Crate::resolve`] can tell from a child's.
pub(super) fn absolute(path: &[String], module: &[String]) -> Option<ItemPath> {
    let mut base: ItemPath = module.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = rest.get(1..)?;
        }
        "self" => rest = rest.get(1..)?,
        _ => {}
    }
    while rest.first().is_some_and(|name| name == "super") {
        base.pop()?;
        rest = rest.get(1..)?;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// True for items that only tests compile.
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg") && (words == "test" || words.starts_with("all (test"))
    })
}

/// The name that an item defines.
fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(it) => it.ident.to_string(),
        Item::Enum(it) => it.ident.to_string(),
        Item::Fn(it) => it.sig.ident.to_string(),
        Item::Static(it) => it.ident.to_string(),
        Item::Struct(it) => it.ident.to_string(),
        Item::Trait(it) => it.ident.to_string(),
        Item::Type(it) => it.ident.to_string(),
        Item::Union(it) => it.ident.to_string(),
        Item::Macro(it) => it.ident.as_ref()?.to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of files in a folder.
    fn read(files: &[(&str, &str)]) -> Crate {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Crate::read(&folder.path().join("lib.rs")).unwrap()
    }

    fn file_of(whole: &Crate, path: &str) -> Option<String> {
        let path: ItemPath = path.split("::").map(str::to_owned).collect();
        let (file, _) = &whole.files[whole.definition(&path)?];
        Some(file.file_name().unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_its_item() {
        let whole = read(&[
            ("lib.rs", "mod plan; mod trace; pub use plan::Action as Step;"),
            ("plan/mod.rs", "mod action; pub use action::*; pub struct Plan;"),
            ("plan/action.rs", "pub enum Action { Wait }"),
            ("trace.rs", "mod inner { pub fn deep() {} } pub(crate) use self::inner::deep;"),
        ]);
        for (path, file) in [
            ("plan::Action", Some("action.rs")),
            ("plan::Action::Wait", Some("action.rs")),
            ("plan::Plan", Some("mod.rs")),
            ("Step", Some("action.rs")),
            ("trace::deep", Some("trace.rs")),
            ("trace::inner::deep", Some("trace.rs")),
            ("serde::Serialize", None),
            ("plan", None),
        ] {
            assert_eq!(file_of(&whole, path).as_deref(), file, "{path}");
        }
    }

    #[test]
    fn re_exports_in_a_ring_come_to_an_end() {
        let whole = read(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::*;"),
            ("b.rs", "pub use crate::a::*;"),
        ]);
        assert_eq!(file_of(&whole, "a::Nothing"), None);
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        let whole =
            read(&[("lib.rs", "#[cfg(test)] mod tests; #[cfg(all(test, unix))] mod more;")]);
        assert_eq!(whole.files.len(), 1);
    }
}
