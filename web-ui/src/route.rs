//! The address: which view, and what it shows. Whatever a reader may want to share is in it.
//!
//! `#/step?collective=all_reduce&world=4`: a path of plain words, then parameters.

use std::collections::BTreeMap;
use std::fmt::Write;

/// An address inside the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) path: Vec<String>,
    pub(crate) query: BTreeMap<String, String>,
}

/// The views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Home,
    Recording,
    Program,
    Hangs,
    Step,
    Gallery,
    Ddp,
    Mesh,
    Cluster,
    Runs,
    Learn,
}

impl View {
    /// The views by what people come for. The home page is no member: the name of the page leads to it.
    pub(crate) const GROUPS: [(&str, &[View]); 3] = [
        ("Debug", &[View::Recording, View::Program, View::Hangs]),
        ("Learn", &[View::Learn, View::Step, View::Gallery, View::Ddp, View::Mesh, View::Cluster]),
        ("Run", &[View::Runs]),
    ];

    fn all() -> impl Iterator<Item = View> {
        let grouped = View::GROUPS.into_iter().flat_map(|(_, views)| views.iter().copied());
        std::iter::once(View::Home).chain(grouped)
    }

    /// The word in the address.
    pub(crate) fn word(self) -> &'static str {
        match self {
            View::Home => "home",
            View::Recording => "recording",
            View::Program => "program",
            View::Hangs => "hangs",
            View::Step => "step",
            View::Gallery => "algorithms",
            View::Ddp => "ddp",
            View::Mesh => "mesh",
            View::Cluster => "cluster",
            View::Runs => "runs",
            View::Learn => "learn",
        }
    }

    /// The words in the header of a narrow page.
    pub(crate) fn short_title(self) -> &'static str {
        match self {
            View::Step => "Step",
            other => other.title(),
        }
    }

    /// The words in the header.
    pub(crate) fn title(self) -> &'static str {
        match self {
            View::Home => "Home",
            View::Recording => "Recording",
            View::Program => "Program",
            View::Hangs => "Hangs",
            View::Step => "Step through",
            View::Gallery => "Algorithms",
            View::Ddp => "DDP",
            View::Mesh => "Meshes",
            View::Cluster => "Cluster",
            View::Runs => "Runs",
            View::Learn => "Lessons",
        }
    }
}

/// The parameter of a hang's address that says whether its question comes before the answer.
pub(crate) const ASKS: &str = "ask";

impl Route {
    /// A view's own address, without parameters.
    pub(crate) fn to(view: View) -> Route {
        let word = (view != View::Home).then(|| view.word().to_owned());
        Route { path: word.into_iter().collect(), query: BTreeMap::new() }
    }

    /// One level deeper: `#/hangs/skipped`.
    pub(crate) fn below(view: View, name: &str) -> Route {
        Route { path: vec![view.word().to_owned(), name.to_owned()], query: BTreeMap::new() }
    }

    /// Reads `location.hash`. Anything that is no address of ours leads to the home page.
    pub(crate) fn parse(hash: &str) -> Route {
        let address = hash.trim_start_matches('#').trim_start_matches('/');
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let path = path.split('/').filter(|word| !word.is_empty()).map(decode).collect();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let bare = Route { path, query: BTreeMap::new() };
        pairs.fold(bare, |route, (name, value)| route.with(&decode(name), decode(value)))
    }

    /// The view it leads to.
    pub(crate) fn view(&self) -> View {
        let word = self.path.first().map(String::as_str);
        View::all().find(|view| Some(view.word()) == word).unwrap_or(View::Home)
    }

    /// The start of the first word of the address, if no view has that word.
    pub(crate) fn unknown_view(&self) -> Option<String> {
        let word = self.path.first()?;
        let known = View::all().any(|view| view.word() == word);
        (!known).then(|| word.chars().take(60).collect())
    }

    /// The name below the view, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.path.get(1).map(String::as_str)
    }

    /// True of a hang that shows its question before the answer.
    pub(crate) fn asks_first(&self) -> bool {
        self.get(ASKS) != Some("false") && self.get("repaired") != Some("true")
    }

    /// A parameter's text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// A parameter as a number, if it is one.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// The same address with one parameter set.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Route {
        self.query.insert(name.to_owned(), value.to_string());
        self
    }

    /// The same address without a parameter.
    pub(crate) fn without(mut self, name: &str) -> Route {
        self.query.remove(name);
        self
    }

    /// As `location.hash` writes it.
    pub(crate) fn to_hash(&self) -> String {
        let path: Vec<String> = self.path.iter().map(|word| encode(word)).collect();
        let mut hash = format!("#/{}", path.join("/"));
        for (index, (name, value)) in self.query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            // Writing to a String cannot fail.
            let _ = write!(hash, "{mark}{}={}", encode(name), encode(value));
        }
        hash
    }
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(byte.into());
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_there_and_back() {
        let route = Route::below(View::Hangs, "two groups & more").with("moment", 7);
        assert_eq!(route.to_hash(), "#/hangs/two%20groups%20%26%20more?moment=7");
        assert_eq!(Route::parse(&route.to_hash()), route);
        assert_eq!(route.number::<u32>("moment"), Some(7));
    }

    #[test]
    fn an_address_of_no_view_is_unknown() {
        for view in View::all() {
            let route = Route::to(view);
            assert_eq!(Route::parse(&route.to_hash()), route);
            assert_eq!((route.unknown_view(), route.view()), (None, view));
        }
        assert_eq!(Route::parse("#/nowhere?x=1").unknown_view().as_deref(), Some("nowhere"));
    }

    #[test]
    fn foreign_addresses_lead_home() {
        for hash in ["", "#", "#/nowhere", "#%", "#/?=&&", "#/%zz%"] {
            assert_eq!(Route::parse(hash).view(), View::Home);
        }
    }
}
