//! The glossary's file: a heading a word, then what it means.

use crate::markdown::{Part, sections};
use crate::types::{LessonError, Word};

/// Reads the words of a glossary, in the order of the file.
pub(crate) fn words(file: &str, text: &str) -> Result<Vec<Word>, LessonError> {
    let mut words = Vec::new();
    for section in sections(file, text, 1)? {
        let wrong =
            |message: String| LessonError { file: file.to_owned(), line: section.line, message };
        if section.title.is_empty() {
            return Err(wrong("a word begins with a heading: ## word".to_owned()));
        }
        let mut blocks = Vec::new();
        for part in section.parts {
            match part {
                Part::Block(block) => blocks.push(block),
                Part::Fenced { name, .. } => {
                    return Err(LessonError {
                        file: file.to_owned(),
                        line: section.line,
                        message: format!("a glossary has no block {name:?}"),
                    });
                }
            }
        }
        words.push(Word { id: id_of(&section.title), word: section.title, blocks });
    }
    Ok(words)
}

/// `process group, world` is `process-group-world`.
fn id_of(word: &str) -> String {
    let letters = word.to_ascii_lowercase();
    let words = letters.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}
