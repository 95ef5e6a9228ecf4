//! The request in an address, read strictly: an impossible one is named, with ways on, and never
//! replaced in silence.

use crate::route::Route;
use crate::ui::Fold;
use lockstep_core::words::nearest;
use std::fmt::Display;
use std::str::FromStr;
use yew::prelude::*;

/// Longer values are cut where they are repeated.
const MAX_SHOWN: usize = 60;

/// One thing of an address that cannot be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unmet {
    /// As the address has it: `world=100000`.
    pub(super) asked: String,
    /// The reason that it cannot be, in a sentence.
    pub(super) why: String,
    /// The possible alternatives.
    pub(super) ways: Vec<Way>,
}

/// A way on: words and where they lead.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) words: String,
    pub(super) route: Route,
}

/// An address that is being read.
pub(super) struct Asked<'a> {
    route: &'a Route,
    pub(super) unmet: Vec<Unmet>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(route: &'a Route) -> Asked<'a> {
        Asked { route, unmet: Vec::new() }
    }

    /// A whole number within bounds; `default` when the address says none. `why` says what the
    /// bounds are for.
    pub(super) fn number(
        &mut self,
        name: &str,
        (min, max): (u64, u64),
        default: u64,
        why: &str,
    ) -> u64 {
        let Some(text) = self.route.get(name) else { return default };
        let (instead, why) = match text.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => return number,
            Ok(number) => (number.clamp(min, max), why.to_owned()),
            // What is all digits is only too large.
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                (max, why.to_owned())
            }
            Err(_) => (default, "It is no whole number.".to_owned()),
        };
        let ways = vec![self.with(name, &instead.to_string())];
        self.refuse(name, &why, ways);
        instead
    }

    /// The value that the type reads from the text; `default` when the address says none, or none
    /// that it reads.
    pub(super) fn parsed<T>(&mut self, name: &str, default: T) -> T
    where
        T: FromStr<Err: Display> + Display,
    {
        let Some(text) = self.route.get(name) else { return default };
        text.parse().unwrap_or_else(|error: T::Err| {
            let ways = vec![self.with(name, &default.to_string())];
            self.refuse(name, &format!("{error}."), ways);
            default
        })
    }

    /// One of several by its name; `None` when the address says none, or none of these.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        name_of: impl Fn(T) -> String,
        what: &str,
    ) -> Option<T> {
        let text = self.route.get(name)?;
        if let Some(found) = all.iter().find(|one| name_of(**one) == text) {
            return Some(*found);
        }
        let names: Vec<String> = all.iter().map(|one| name_of(*one)).collect();
        let ways = self.near(name, names.iter().map(String::as_str), 3);
        self.refuse(name, &format!("There is no such {what}."), ways);
        None
    }

    /// The text in the address.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.route.get(name)
    }

    /// Ways on to the names that are nearest to what the address has under `name`; to the first
    /// name when none is near.
    pub(super) fn near<'n>(
        &self,
        name: &str,
        names: impl Iterator<Item = &'n str> + Clone,
        most: usize,
    ) -> Vec<Way> {
        let mut near = nearest(self.text(name).unwrap_or_default(), names.clone(), most);
        if near.is_empty() {
            near.extend(names.take(1));
        }
        near.into_iter().map(|instead| self.with(name, instead)).collect()
    }

    /// Says that what the address has under `name` cannot be.
    pub(super) fn refuse(&mut self, name: &str, why: &str, ways: Vec<Way>) {
        let text = self.route.get(name).unwrap_or_default();
        let shown: String = match text.chars().count() > MAX_SHOWN {
            true => text.chars().take(MAX_SHOWN).chain(['…']).collect(),
            false => text.to_owned(),
        };
        self.unmet.push(Unmet { asked: format!("{name}={shown}"), why: why.to_owned(), ways });
    }

    /// The same address with one thing changed.
    pub(super) fn with(&self, name: &str, value: &str) -> Way {
        let route = self.route.clone().with(name, value);
        Way { words: format!("{name}={value}"), route }
    }
}

/// The impossible requests in the address, beside a form with the nearest that can be.
pub(super) fn cannot(title: &str, unmet: Vec<Unmet>, words: String, form: Html) -> Html {
    html! {
        <div class="cannot-grid" data-ready="false">
            <aside class="panel side">
                <h1>{ title }</h1>
                <p class="muted hint">{ "The form has the nearest that can be shown; change anything in it to go there." }</p>
                <Fold {words}>{ form }</Fold>
            </aside>
            { unmet_list(&unmet) }
        </div>
    }
}

/// The impossible requests, the reasons, and ways on.
pub(super) fn unmet_list(unmet: &[Unmet]) -> Html {
    html! {
        <section class="panel unmet" role="alert" data-test="unmet" data-count={unmet.len().to_string()}>
            <h2>{ "The address asks for what cannot be shown" }</h2>
            <ul>{ for unmet.iter().map(|unmet| html! {
                <li><code class="bad">{ &unmet.asked }</code>{ " " }{ &unmet.why }{ ways(&unmet.ways) }</li>
            }) }</ul>
        </section>
    }
}

/// Links to what can be instead.
pub(super) fn ways(ways: &[Way]) -> Html {
    if ways.is_empty() {
        return html! {};
    }
    html! {
        <p class="ways">{ "Instead: " }{ for ways.iter().map(|way| html! {
            <a class="button" href={way.route.to_hash()} data-test="way-on">{ &way.words }</a>
        }) }</p>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::View;

    #[test]
    fn what_cannot_be_is_said_with_a_way_on() {
        let route =
            Route::to(View::Step).with("world", 100_000).with("root", "x").with("op", "SUN");
        let mut asked = Asked::new(&route);
        assert_eq!(asked.number("world", (1, 64), 4, "Up to 64."), 64);
        assert_eq!(asked.number("root", (0, 3), 0, "Ranks 0 to 3."), 0);
        assert_eq!(asked.number("count", (0, 9), 7, ""), 7);
        assert_eq!(asked.one_of("op", &["SUM", "MAX"], str::to_owned, "op"), None);
        let said: Vec<&str> = asked.unmet.iter().map(|unmet| unmet.asked.as_str()).collect();
        assert_eq!(said, ["world=100000", "root=x", "op=SUN"]);
        let ways = asked.unmet.iter().flat_map(|unmet| &unmet.ways);
        let words: Vec<&str> = ways.clone().map(|way| way.words.as_str()).collect();
        assert_eq!(words, ["world=64", "root=0", "op=SUM"]);
        for way in ways {
            let (name, value) = way.words.split_once('=').unwrap();
            assert_eq!(way.route.get(name), Some(value));
        }
    }
}
