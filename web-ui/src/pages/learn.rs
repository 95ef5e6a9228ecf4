//! Lessons: a text to read, a simulation beside it to step and change, and questions in between;
//! and a glossary whose words lead to where they can be seen.
//!
//! The texts are fetched when they are opened (`lockstep_lessons` says what they are written in).
//! The simulation is one of the other views, with an address of its own inside of the lesson.

#[cfg(test)]
mod claims;
mod fetched;
mod glossary;
mod lesson;
mod list;
mod live;
mod progress;
mod question;
mod text;

use crate::app::use_shared;
use glossary::Glossary;
use lesson::OneLesson;
use list::LessonList;
use yew::prelude::*;

/// The list of lessons, one of them, or the glossary.
#[component(Learn)]
pub(crate) fn learn() -> Html {
    match use_shared().nav.route.name() {
        None => html! { <LessonList /> },
        Some("glossary") => html! { <Glossary /> },
        Some(name) => html! { <OneLesson key={name} id={name.to_owned()} /> },
    }
}
