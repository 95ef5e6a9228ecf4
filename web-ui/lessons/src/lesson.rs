//! A lesson's file: a front matter in TOML between lines of `+++`, then steps in Markdown.

use crate::markdown::{Part, Section, inline, sections};
use crate::types::{Answer, Ask, Fact, Lesson, LessonError, Show, Step, Title};
use serde::Deserialize;

/// The line around the front matter.
const FENCE: &str = "+++";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    title: String,
    chapter: String,
    minutes: u32,
    after: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskText {
    question: String,
    claim: String,
    reveal: Option<String>,
    answer: Vec<AnswerText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerText {
    text: String,
    /// As the simulator says it; the text, if it is absent.
    value: Option<String>,
    why: String,
    #[serde(default)]
    right: bool,
}

/// Reads the lesson in a file. Its id is the file's name without number and ending:
/// `10-ring-all-reduce.md` is `ring-all-reduce`.
///
/// # Errors
/// A text that is not in the format, with the line.
pub(crate) fn read_lesson(file: &str, text: &str) -> Result<Lesson, LessonError> {
    let wrong = |line: usize, message: String| LessonError { file: file.to_owned(), line, message };
    let text = text.strip_prefix(FENCE).and_then(|text| text.split_once(&format!("\n{FENCE}\n")));
    let (head, body) = text.ok_or_else(|| {
        wrong(1, "a lesson begins with a front matter between two lines of +++".to_owned())
    })?;
    let head_lines = head.matches('\n').count() + 2;
    let head: FrontMatter =
        toml::from_str(head).map_err(|error| wrong(2, error.message().to_owned()))?;
    let mut steps: Vec<Step> = Vec::new();
    for section in sections(file, body, head_lines + 1)? {
        let before = steps.last().map(|step| step.show.clone());
        steps.push(step(file, section, before)?);
    }
    if steps.is_empty() {
        return Err(wrong(head_lines, "a lesson has steps: ## Title, then text".to_owned()));
    }
    let title = Title {
        id: id_of(file),
        title: head.title,
        chapter: head.chapter,
        minutes: head.minutes,
        after: head.after,
        steps_count: steps.len(),
        questions: steps.iter().filter(|step| step.ask.is_some()).count(),
    };
    Ok(Lesson { title, steps })
}

/// `text/10-ring-all-reduce.md` is `ring-all-reduce`.
fn id_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.strip_suffix(".md").unwrap_or(name);
    name.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '-').to_owned()
}

/// A step; it shows what the step before showed, if it says nothing else.
fn step(file: &str, section: Section, before: Option<Show>) -> Result<Step, LessonError> {
    let wrong = |line: usize, message: String| LessonError { file: file.to_owned(), line, message };
    let Section { title, line: start, parts, mut facts } = section;
    if title.is_empty() {
        return Err(wrong(start, "a step begins with a heading: ## Title".to_owned()));
    }
    let (mut show, mut ask) = (None, None);
    let (mut blocks, mut then) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Block(block) if ask.is_none() => blocks.push(block),
            Part::Block(block) => then.push(block),
            Part::Fenced { name, text, line } => match name.as_str() {
                "show" => show = Some(shown(&text)),
                "program" => {
                    let address = "#/program".to_owned();
                    show = Some(Show { address, program: Some(text), files: Vec::new() });
                }
                "ask" => ask = Some(asked(file, &text, line, &mut facts)?),
                _ => {
                    let message = format!(
                        "no block is called {name:?}; there are show, program, ask, and code as \
                         text, python or json"
                    );
                    return Err(wrong(line, message));
                }
            },
        }
    }
    let show = show.or(before).ok_or_else(|| {
        wrong(start, "the first step says what is shown: a block named show".to_owned())
    })?;
    Ok(Step { title, blocks, show, ask, then, facts })
}

/// The first line is an address, each further line a file.
fn shown(text: &str) -> Show {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let address = lines.next().unwrap_or_default().to_owned();
    Show { address, program: None, files: lines.map(str::to_owned).collect() }
}

fn asked(file: &str, text: &str, line: usize, facts: &mut Vec<Fact>) -> Result<Ask, LessonError> {
    let wrong = |message: String| LessonError { file: file.to_owned(), line, message };
    let ask: AskText = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let mut line_of = |text: &str| {
        let (line, found) = inline(file, text).map_err(|error| wrong(error.message))?;
        facts.extend(found);
        Ok(line)
    };
    let mut answers = Vec::new();
    for AnswerText { text, value, why, right } in ask.answer {
        let value = value.unwrap_or_else(|| text.clone());
        answers.push(Answer { text: line_of(&text)?, value, why: line_of(&why)?, right });
    }
    if !(2..=5).contains(&answers.len()) {
        return Err(wrong("a question has two to five answers".to_owned()));
    }
    if answers.iter().filter(|answer| answer.right).count() != 1 {
        return Err(wrong("one answer has right = true".to_owned()));
    }
    let question = line_of(&ask.question)?;
    Ok(Ask { question, claim: ask.claim, answers, reveal: ask.reveal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Block, Inline};

    const LESSON: &str = r###"+++
title = "A ring"
chapter = "Collectives"
minutes = 4
after = "You know a ring."
+++

## Four ranks

```show
#/step?world=4
```

Every rank sends [6](<is: messages rank=0>) messages to *nobody*.
"###;

    fn read(text: &str) -> Result<Lesson, String> {
        read_lesson("text/10-a-ring.md", text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_lesson_is_read() {
        let text = LESSON.replace("*nobody*", "the **next** [rank](#/learn/glossary)")
            + "\n- one\n- two `x`\n\n## Two\n\n```ask\nquestion = \"Which?\"\nclaim = \"it\"\n\
               [[answer]]\ntext = \"a\"\nwhy = \"No.\"\n[[answer]]\ntext = \"b\"\nvalue = \"c\"\n\
               why = \"Yes.\"\nright = true\n```\n\nAfterwards.\n";
        let lesson = read(&text).unwrap();
        assert_eq!((lesson.title.id.as_str(), lesson.title.questions), ("a-ring", 1));
        let [first, second] = &lesson.steps[..] else { panic!("{:?}", lesson.steps) };
        let fact = Fact { claim: "messages rank=0".into(), says: "6".into() };
        assert_eq!(first.facts, [fact]);
        let text = |text: &str| Inline::Text(text.to_owned());
        let line = vec![
            text("Every rank sends 6 messages to the "),
            Inline::Strong("next".into()),
            text(" "),
            Inline::Link { text: "rank".into(), to: "#/learn/glossary".into() },
            text("."),
        ];
        let list = vec![vec![text("one")], vec![text("two "), Inline::Code("x".into())]];
        assert_eq!(first.blocks, [Block::Text(line), Block::List(list)]);
        assert_eq!(second.show, first.show);
        let ask = second.ask.as_ref().unwrap();
        let values: Vec<_> = ask.answers.iter().map(|each| each.value.as_str()).collect();
        assert_eq!(values, ["a", "c"]);
        assert_eq!((second.blocks.len(), second.then.len()), (0, 1));
    }

    #[test]
    fn what_is_no_lesson_is_refused_with_its_line() {
        let said = read(LESSON).unwrap_err();
        assert!(said.starts_with("text/10-a-ring.md:14: a lesson has no place"), "{said}");
        let plain = LESSON.replace('*', "");
        assert!(read(&plain).is_ok());
        let said = read(&plain.replace("```show", "```shown")).unwrap_err();
        assert!(said.contains(":10: no block is called \"shown\""), "{said}");
        let said = read(&plain.replace("## Four", "# Four")).unwrap_err();
        assert!(said.contains(":8: headings have two hashes"), "{said}");
        assert!(read("## Four ranks\n").unwrap_err().contains("front matter"));
        assert!(read(&plain.replace("minutes", "minute")).is_err());
        let ask =
            "```ask\nquestion = \"?\"\nclaim = \"x\"\n[[answer]]\ntext = \"a\"\nwhy = \"b\"\n```\n";
        assert!(read(&(plain + ask)).unwrap_err().contains("two to five answers"));
    }
}
