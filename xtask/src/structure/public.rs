//! Public items that are not named outside their crate.
//!
//! Names are compared, not paths: an item counts as used when its name appears anywhere in another crate, in
//! a test, a bench or a fuzz target, or in an example of the crate's documents. A type that a used item shows
//! (an argument, a field, an error) is used with it.

use std::collections::BTreeSet;
use syn::visit::Visit;
use syn::{Item, Visibility};

/// A public item, with the names that its users see.
struct Public {
    name: String,
    /// The names in its signature, its public fields or its variants.
    shows: BTreeSet<String>,
}

/// The names that a type shows by its implementations of traits, such as its error.
struct Shown {
    of: BTreeSet<String>,
    names: BTreeSet<String>,
}

/// Collects the names of a part of the syntax.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.0.insert(name.to_string());
    }
}

fn names(visit: impl FnOnce(&mut Names)) -> BTreeSet<String> {
    let mut names = Names::default();
    visit(&mut names);
    names.0
}

/// The words of a text: all that could be a name.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The words in the examples of a file's documents, which are compiled outside its crate.
pub(super) fn words_of_examples(text: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim_start();
        let Some(document) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
            inside = false;
            continue;
        };
        match document.trim_start().starts_with("```") {
            true => inside = !inside,
            false if inside => found.extend(words(document).map(str::to_owned)),
            false => {}
        }
    }
    found
}

/// Public items of a crate's files that are unused outside, as (index of the file, name), where `outside`
/// holds all words outside the crate.
pub(super) fn unused(files: &[syn::File], outside: &BTreeSet<String>) -> Vec<(usize, String)> {
    let (mut items, mut shown) = (Vec::new(), Vec::new());
    for (file, syntax) in files.iter().enumerate() {
        take_items(&syntax.items, file, &mut items, &mut shown);
    }
    let mut used = outside.clone();
    loop {
        let before = used.len();
        for (_, item) in &items {
            if used.contains(&item.name) {
                used.extend(item.shows.iter().cloned());
            }
        }
        for of in &shown {
            if of.of.iter().all(|name| used.contains(name)) {
                used.extend(of.names.iter().cloned());
            }
        }
        if used.len() == before {
            break;
        }
    }
    let unused = items.into_iter().filter(|(_, item)| !used.contains(&item.name));
    unused.map(|(file, item)| (file, item.name)).collect()
}

fn take_items(
    items: &[Item],
    file: usize,
    found: &mut Vec<(usize, Public)>,
    shown: &mut Vec<Shown>,
) {
    let mut take = |name: &syn::Ident, shows| {
        found.push((file, Public { name: name.to_string(), shows }));
    };
    for item in items {
        match item {
            Item::Const(it) if is_public(&it.vis) => {
                take(&it.ident, names(|names| names.visit_type(&it.ty)));
            }
            Item::Static(it) if is_public(&it.vis) && !is_exported(&it.attrs) => {
                take(&it.ident, names(|names| names.visit_type(&it.ty)));
            }
            Item::Fn(it)
                if is_public(&it.vis) && !is_exported(&it.attrs) && it.sig.abi.is_none() =>
            {
                take(&it.sig.ident, names(|names| names.visit_signature(&it.sig)));
            }
            Item::Struct(it) if is_public(&it.vis) => take(&it.ident, names_of_fields(&it.fields)),
            Item::Enum(it) if is_public(&it.vis) => {
                let variants = it.variants.iter();
                take(&it.ident, names(|names| variants.for_each(|it| names.visit_variant(it))));
            }
            Item::Trait(it) if is_public(&it.vis) => {
                take(&it.ident, names(|names| names.visit_item_trait(it)));
            }
            Item::Type(it) if is_public(&it.vis) => {
                take(&it.ident, names(|names| names.visit_type(&it.ty)));
            }
            // The output of a macro is unknown: all names in it count as used.
            Item::Macro(it) => shown.push(Shown {
                of: BTreeSet::new(),
                names: words(&it.mac.tokens.to_string()).map(str::to_owned).collect(),
            }),
            Item::Impl(block) => match &block.trait_ {
                None => block.items.iter().for_each(|member| match member {
                    syn::ImplItem::Fn(it) if is_public(&it.vis) => {
                        take(&it.sig.ident, names(|names| names.visit_signature(&it.sig)));
                    }
                    syn::ImplItem::Const(it) if is_public(&it.vis) => {
                        take(&it.ident, names(|names| names.visit_type(&it.ty)));
                    }
                    _ => {}
                }),
                Some((_, path, _)) => shown.push(Shown {
                    of: names(|names| names.visit_type(&block.self_ty)),
                    names: names(|names| {
                        names.visit_path(path);
                        for member in &block.items {
                            if let syn::ImplItem::Type(it) = member {
                                names.visit_type(&it.ty);
                            }
                        }
                    }),
                }),
            },
            _ => {}
        }
    }
}

fn names_of_fields(fields: &syn::Fields) -> BTreeSet<String> {
    let public = fields.iter().filter(|field| is_public(&field.vis));
    names(|names| public.for_each(|field| names.visit_type(&field.ty)))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// True if the linker or a browser sees the item, even if no Rust code names it.
fn is_exported(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("wasm_bindgen") || path.is_ident("unsafe") || path.is_ident("no_mangle")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused_in(text: &str, outside: &str) -> Vec<String> {
        let file = syn::parse_file(text).unwrap();
        let outside = words(outside).map(str::to_owned).collect();
        unused(&[file], &outside).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn what_nobody_outside_names_is_listed() {
        let text = "pub fn used() {} pub fn forgotten() {} pub(crate) fn inside() {} \
                    pub struct Thing; impl Thing { pub fn asked(&self) {} pub fn left(&self) {} }";
        assert_eq!(unused_in(text, "used(Thing).asked()"), ["forgotten", "left"]);
    }

    #[test]
    fn what_a_used_item_shows_is_used_with_it() {
        let text = "pub fn read() -> Result<Found, ReadError> {} \
                    pub struct Found { pub part: Part, hidden: Hidden } \
                    pub struct Part; pub struct Hidden; pub enum ReadError { Io(Cause) } \
                    pub struct Cause; pub struct Kind; pub struct NoKind; \
                    impl FromStr for Kind { type Err = NoKind; }";
        assert_eq!(unused_in(text, "read Kind"), ["Hidden"]);
        assert_eq!(unused_in(text, "read"), ["Hidden", "Kind", "NoKind"]);
    }

    #[test]
    fn what_the_linker_or_a_browser_sees_is_not_asked_for() {
        let text = "#[wasm_bindgen] pub fn start() {} pub extern \"C\" fn ncclSend() {}";
        assert_eq!(unused_in(text, ""), [""; 0]);
    }

    #[test]
    fn examples_of_documents_count_as_outside() {
        let text = "/// Text of `nothing`.\n/// ```\n/// shown();\n/// ```\npub fn shown() {}\n";
        assert_eq!(words_of_examples(text), ["shown".to_owned()].into());
    }
}
