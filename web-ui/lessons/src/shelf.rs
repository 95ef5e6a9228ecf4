//! All lessons and the glossary, and the files that the page fetches.

use crate::glossary::words;
use crate::lesson::read_lesson;
use crate::types::{Lesson, LessonError, Title, Word};
use std::collections::BTreeSet;

/// The name of the glossary's file.
const GLOSSARY: &str = "glossary.md";

/// All lessons, in the order of their files' names, and the glossary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shelf {
    /// The lessons.
    pub lessons: Vec<Lesson>,
    /// The words, in the order of the alphabet.
    pub words: Vec<Word>,
}

/// Reads the words of the glossary, in the order of the alphabet.
///
/// # Errors
/// A text that is not in the format, with the line.
pub(crate) fn read_glossary(file: &str, text: &str) -> Result<Vec<Word>, LessonError> {
    let mut found = words(file, text)?;
    found.sort_by_key(|word| word.word.to_lowercase());
    Ok(found)
}

impl Shelf {
    /// Reads the files of `text/`, given as names and texts.
    ///
    /// # Errors
    /// A text that is not in the format, or two lessons have one name.
    pub fn read<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Shelf, LessonError> {
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_unstable();
        let (mut shelf, mut names) = (Shelf::default(), BTreeSet::new());
        for (file, text) in files {
            if file == GLOSSARY {
                shelf.words = read_glossary(file, text)?;
                continue;
            }
            let lesson = read_lesson(file, text)?;
            let id = &lesson.title.id;
            // The page has these names for itself.
            let taken = ["glossary", "index", ""].contains(&id.as_str());
            if taken || !names.insert(id.clone()) {
                let message = format!("the name {id:?} is taken; rename the file");
                return Err(LessonError { file: file.to_owned(), line: 1, message });
            }
            shelf.lessons.push(lesson);
        }
        Ok(shelf)
    }

    /// The files that the page fetches below `lessons/`: names and JSON. `index.json` lists the lessons,
    /// `glossary.json` the words, and each lesson has a file of its own.
    ///
    /// # Errors
    /// Never for what [`Shelf::read`] has read.
    pub fn files(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        let titles: Vec<&Title> = self.lessons.iter().map(|lesson| &lesson.title).collect();
        let mut files = vec![
            ("index.json".to_owned(), serde_json::to_string(&titles)?),
            ("glossary.json".to_owned(), serde_json::to_string(&self.words)?),
        ];
        for lesson in &self.lessons {
            files.push((format!("{}.json", lesson.title.id), serde_json::to_string(lesson)?));
        }
        Ok(files)
    }
}
