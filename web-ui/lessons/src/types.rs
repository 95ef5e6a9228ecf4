//! A lesson as the page draws it.

use serde::{Deserialize, Serialize};

/// A lesson: steps that are read one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lesson {
    /// Its entry in the list.
    #[serde(flatten)]
    pub title: Title,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// An entry of the list of lessons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    /// The name in the address: `ring-all-reduce`.
    pub id: String,
    /// A few words.
    pub title: String,
    /// The heading under which it is listed.
    pub chapter: String,
    /// Minutes that it takes to read and try.
    pub minutes: u32,
    /// The reader's gain, in a sentence or two.
    pub after: String,
    /// The number of steps.
    pub steps_count: usize,
    /// The number of questions.
    pub questions: usize,
}

/// One step: a text, what is shown beside it, perhaps a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its heading.
    pub title: String,
    /// The text above the question.
    pub blocks: Vec<Block>,
    /// The view beside it.
    pub show: Show,
    /// The question, if there is one.
    pub ask: Option<Ask>,
    /// The text that appears when the question is answered.
    pub then: Vec<Block>,
    /// Numbers of the text that the simulator is asked for; not for the page.
    #[serde(skip)]
    pub facts: Vec<Fact>,
}

/// The live part beside a text: a view of the page at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Show {
    /// The address: `#/step?collective=all_reduce&world=4`.
    pub address: String,
    /// The program that the address is given, if it is the Program view's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Files that are opened in the Recording view, below `lessons/files/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// A question about what is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The question.
    pub question: Vec<Inline>,
    /// The question for the simulator, which must answer with the value of the right answer; not for
    /// the page.
    #[serde(skip)]
    pub claim: String,
    /// Two to five answers; one is right.
    pub answers: Vec<Answer>,
    /// The address at which the answer can be seen; it is shown once the question is answered.
    pub reveal: Option<String>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its words.
    pub text: Vec<Inline>,
    /// The same as the simulator says it; not for the page.
    #[serde(skip)]
    pub value: String,
    /// The reason that it is right or wrong.
    pub why: Vec<Inline>,
    /// True if it is the right one.
    pub right: bool,
}

/// A number in a text, and what the simulator is asked for to check it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The question for the simulator.
    pub claim: String,
    /// The value in the text.
    pub says: String,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// A paragraph.
    Text(Vec<Inline>),
    /// A list; each entry is a line.
    List(Vec<Vec<Inline>>),
    /// Code, or what a program prints.
    Code(String),
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inline {
    /// Words.
    Text(String),
    /// Words in the font of code.
    Code(String),
    /// Important words.
    Strong(String),
    /// A link: an address of the page, or of the web.
    Link {
        /// Its words.
        text: String,
        /// Its destination.
        to: String,
    },
}

/// A word of the field, and where it can be seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Word {
    /// The name in the address: `process-group`.
    pub id: String,
    /// The word.
    pub word: String,
    /// Its meaning, with links to views that show it.
    pub blocks: Vec<Block>,
}

/// A text that is no lesson or no glossary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct LessonError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The mistake, and the right form.
    pub message: String,
}

impl Step {
    /// The inline pieces of everything that the reader sees of this step.
    pub fn inlines(&self) -> impl Iterator<Item = &Inline> {
        let asked = self.ask.iter().flat_map(|ask| {
            let answers = ask.answers.iter().flat_map(|each| each.text.iter().chain(&each.why));
            ask.question.iter().chain(answers)
        });
        self.blocks.iter().chain(&self.then).flat_map(Block::inlines).chain(asked)
    }
}

impl Block {
    /// Its inline pieces; none for code.
    pub fn inlines(&self) -> impl Iterator<Item = &Inline> {
        let lines: Vec<&Vec<Inline>> = match self {
            Block::Text(line) => vec![line],
            Block::List(lines) => lines.iter().collect(),
            Block::Code(_) => Vec::new(),
        };
        lines.into_iter().flatten()
    }
}
