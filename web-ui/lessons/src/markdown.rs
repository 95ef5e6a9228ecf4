//! Markdown as blocks. What a lesson has no use for (tables, images, nested lists, HTML) is refused.

use crate::types::{Block, Fact, Inline, LessonError};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

/// The start of the destination of a link that is a fact: `[6](<is: rounds>)`.
const FACT: &str = "is:";

/// A part of a file between its headings.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// The heading; empty for what stands before the first.
    pub(crate) title: String,
    /// The line of the heading.
    pub(crate) line: usize,
    pub(crate) parts: Vec<Part>,
    pub(crate) facts: Vec<Fact>,
}

/// A part of a section.
#[derive(Debug)]
pub(crate) enum Part {
    Block(Block),
    /// A fenced block with a name, which is ours to read.
    Fenced {
        name: String,
        text: String,
        line: usize,
    },
}

/// The inline pieces of one line of Markdown, and its facts.
pub(crate) fn inline(file: &str, text: &str) -> Result<(Vec<Inline>, Vec<Fact>), LessonError> {
    let mut found = sections(file, text, 1)?;
    let section = found.pop().filter(|_| found.is_empty()).unwrap_or_default();
    match <[Part; 1]>::try_from(section.parts) {
        Ok([Part::Block(Block::Text(line))]) => Ok((line, section.facts)),
        _ => Err(LessonError {
            file: file.to_owned(),
            line: 1,
            message: format!("this must be one line of text: {text:?}"),
        }),
    }
}

/// The sections of a Markdown text whose first line is line `first` of its file.
pub(crate) fn sections(file: &str, text: &str, first: usize) -> Result<Vec<Section>, LessonError> {
    let mut reader = Reader { sections: vec![Section::default()], ..Reader::default() };
    for (event, place) in Parser::new(text).into_offset_iter() {
        let line = first + text[..place.start].matches('\n').count();
        let read = reader.read(event, line);
        read.map_err(|unread| {
            let message = unread.to_string();
            LessonError { file: file.to_owned(), line, message }
        })?;
    }
    let mut sections = reader.sections;
    // Most texts begin with a heading.
    if sections.first().is_some_and(|section| section.parts.is_empty()) {
        sections.remove(0);
    }
    Ok(sections)
}

/// Markdown that a lesson has no place for.
#[derive(Debug, thiserror::Error)]
enum NotInLessons {
    #[error("headings have two hashes: ## Title")]
    Heading,
    #[error("a list has no lists inside")]
    NestedList,
    #[error("a lesson has no place for this: {0}")]
    Unknown(String),
}

#[derive(Default)]
struct Reader {
    sections: Vec<Section>,
    line: Vec<Inline>,
    items: Option<Vec<Vec<Inline>>>,
    /// The fenced block that is read: its name and the text so far.
    fenced: Option<(String, String)>,
    strong: bool,
    heading: bool,
    /// The destination of the link that is being read.
    link: Option<String>,
}

impl Reader {
    fn read(&mut self, event: Event<'_>, line: usize) -> Result<(), NotInLessons> {
        match event {
            Event::Start(tag) => self.start(tag, line),
            Event::End(tag) => {
                self.end(tag, line);
                Ok(())
            }
            Event::Text(text) => match &mut self.fenced {
                Some((_, code)) => {
                    code.push_str(&text);
                    Ok(())
                }
                None => {
                    self.put(Inline::Text(text.into_string()));
                    Ok(())
                }
            },
            Event::Code(text) => {
                self.put(Inline::Code(text.into_string()));
                Ok(())
            }
            Event::SoftBreak => {
                self.put(Inline::Text(" ".to_owned()));
                Ok(())
            }
            other => Err(NotInLessons::Unknown(format!("{other:?}"))),
        }
    }

    fn section(&mut self) -> Option<&mut Section> {
        self.sections.last_mut()
    }

    fn start(&mut self, tag: Tag<'_>, line: usize) -> Result<(), NotInLessons> {
        match tag {
            Tag::Paragraph | Tag::Item => {}
            Tag::Strong => self.strong = true,
            Tag::Heading { level: HeadingLevel::H2, .. } => {
                self.heading = true;
                self.sections.push(Section { line, ..Section::default() });
            }
            Tag::Heading { .. } => return Err(NotInLessons::Heading),
            Tag::List(_) if self.items.is_some() => {
                return Err(NotInLessons::NestedList);
            }
            Tag::List(_) => self.items = Some(Vec::new()),
            Tag::CodeBlock(CodeBlockKind::Fenced(name)) => {
                self.fenced = Some((name.into_string(), String::new()));
            }
            Tag::Link { dest_url, .. } => self.link = Some(dest_url.into_string()),
            other => return Err(NotInLessons::Unknown(format!("{other:?}"))),
        }
        Ok(())
    }

    fn end(&mut self, tag: TagEnd, line: usize) {
        match tag {
            TagEnd::Strong => self.strong = false,
            TagEnd::Link => self.link = None,
            TagEnd::Heading(_) => {
                self.heading = false;
                let title = plain(&std::mem::take(&mut self.line));
                if let Some(section) = self.section() {
                    section.title = title;
                }
            }
            TagEnd::Paragraph if self.items.is_none() => {
                let text = std::mem::take(&mut self.line);
                self.push(Part::Block(Block::Text(text)));
            }
            TagEnd::Item => {
                let text = std::mem::take(&mut self.line);
                if let Some(items) = &mut self.items {
                    items.push(text);
                }
            }
            TagEnd::List(_) => {
                let items = self.items.take().unwrap_or_default();
                self.push(Part::Block(Block::List(items)));
            }
            TagEnd::CodeBlock => {
                let (name, text) = self.fenced.take().unwrap_or_default();
                self.push(match name.as_str() {
                    "" | "text" | "python" | "json" => {
                        Part::Block(Block::Code(text.trim_end().to_owned()))
                    }
                    _ => Part::Fenced { name, text, line },
                });
            }
            _ => {}
        }
    }

    fn push(&mut self, part: Part) {
        if let Some(section) = self.section() {
            section.parts.push(part);
        }
    }

    fn put(&mut self, piece: Inline) {
        let piece = match (&self.link, piece) {
            (Some(to), Inline::Text(says) | Inline::Code(says)) => match to.strip_prefix(FACT) {
                Some(claim) => {
                    let claim = claim.trim().to_owned();
                    let fact = Fact { claim, says: says.clone() };
                    if let Some(section) = self.section() {
                        section.facts.push(fact);
                    }
                    Inline::Text(says)
                }
                None => Inline::Link { text: says, to: to.clone() },
            },
            (_, Inline::Text(text)) if self.strong => Inline::Strong(text),
            (_, piece) => piece,
        };
        match (self.line.last_mut(), piece) {
            (Some(Inline::Text(before)), Inline::Text(text)) => before.push_str(&text),
            (Some(Inline::Strong(before)), Inline::Strong(text)) => before.push_str(&text),
            (_, piece) => self.line.push(piece),
        }
    }
}

/// The words of a line.
pub(crate) fn plain(line: &[Inline]) -> String {
    let words = line.iter().map(|piece| match piece {
        Inline::Text(text)
        | Inline::Code(text)
        | Inline::Strong(text)
        | Inline::Link { text, .. } => text.as_str(),
    });
    words.collect()
}
