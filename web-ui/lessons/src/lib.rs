//! The lessons of the page: their texts in `text/`, and the format they are written in.
//!
//! A lesson is a Markdown file. `cargo xtask web` reads it with [`Shelf::read`] and writes it as
//! JSON into `dist/lessons/`, from where the page fetches it when it is opened: the page carries
//! neither the texts nor a Markdown parser. How to write one is in ARCHITECTURE.md, "How to add a
//! lesson".
//!
//! The claims of a lesson (the right answer of a question, a number in a sentence) is written in the
//! file and checked by the tests of `lockstep-web-ui`, which open the address that the lesson shows
//! and ask the simulator.

mod glossary;
mod lesson;
mod markdown;
mod shelf;
mod types;

pub use shelf::Shelf;
pub use types::{Answer, Ask, Block, Fact, Inline, Lesson, LessonError, Show, Step, Title, Word};
