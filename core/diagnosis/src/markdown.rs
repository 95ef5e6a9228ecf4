//! The report as Markdown, for an issue or a chat.
//!
//! Everything that comes from a recording is escaped: a file name or an exception never becomes markup.

use crate::report::{Certainty, Finding, Ladder, LadderStep, Report, Verdict};
use lockstep_core::words::rank_list;
use lockstep_formats::frames::StackPart;
use std::fmt::Write;

/// So many places of evidence are written down for a finding.
const EVIDENCE: usize = 16;

impl Report {
    /// The report in GitHub's Markdown (tables, and `<br>` inside their cells).
    pub fn to_markdown(&self) -> String {
        let ranks = if self.world_size == 1 { "rank" } else { "ranks" };
        let size = self.world_size;
        let title = match (self.verdict, self.findings.len()) {
            (Verdict::Healthy, _) => format!("Healthy: nothing is wrong among {size} {ranks}"),
            (Verdict::Inconclusive, _) => format!("Inconclusive: no finding among {size} {ranks}"),
            (Verdict::Unusable, _) => "Unusable: nothing can be judged".to_owned(),
            (Verdict::Findings, 1) => format!("1 finding among {size} {ranks}"),
            (Verdict::Findings, count) => format!("{count} findings among {size} {ranks}"),
        };
        let mut out = format!("# {title}\n");
        for (number, finding) in (1..).zip(&self.findings) {
            write_finding(&mut out, number, finding);
        }
        write_list(&mut out, "What was not seen", &self.unseen);
        write_list(&mut out, "Notes", &self.notes);
        out
    }
}

fn write_finding(out: &mut String, number: usize, finding: &Finding) {
    let sure = match finding.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::Undecidable => " (cannot be decided from this recording)",
    };
    let _ = write!(out, "\n## {number}. {}{sure}\n", finding.kind.title());
    let _ = write!(out, "\n{}\n", escaped(&finding.message));
    if !finding.fix.is_empty() {
        let _ = write!(out, "\n**Fix:** {}\n", escaped(&finding.fix));
    }
    if let Some(repair) = &finding.repair {
        let (change, why) = (escaped(&repair.change.words()), escaped(&repair.why));
        let _ = write!(out, "\n**Repair** ({}): {change} {why}\n", repair.verdict());
    }
    let mut facts = Vec::new();
    if !finding.culprits.is_empty() {
        facts.push(format!("**culprits** {}", rank_list(&finding.culprits)));
    }
    if !finding.victims.is_empty() {
        facts.push(format!("**waiting** {}", rank_list(&finding.victims)));
    }
    if let Some(group) = &finding.group {
        let mut ranks = group.ranks.clone();
        ranks.sort_unstable();
        let label = if group.desc.is_empty() { &group.name } else { &group.desc };
        let ranks = rank_list(&ranks);
        facts.push(format!("**group** {} (ranks {ranks})", escaped(label)));
    }
    facts.push(format!("**kind** `{}`", finding.kind));
    let _ = write!(out, "\n{}\n", facts.join(" · "));
    if let Some(ladder) = &finding.ladder {
        write_ladder(out, ladder);
    }
    if !finding.evidence.is_empty() {
        out.push_str("\n### Evidence\n\n");
    }
    for seen in finding.evidence.iter().take(EVIDENCE) {
        let frame = seen.frame.as_ref().map(|frame| format!(", {}", code(frame)));
        let frame = frame.unwrap_or_default();
        let entry = seen.entry.map(|entry| format!(", entry {entry}")).unwrap_or_default();
        let place = seen.place.as_ref().map(|place| format!(", in {}", code(&place.to_string())));
        let (note, place) = (escaped(&seen.note), place.unwrap_or_default());
        let _ = writeln!(out, "- **rank {}** {note}{frame}{entry}{place}", seen.rank);
    }
    if let Some(more) = finding.evidence.len().checked_sub(EVIDENCE).filter(|more| *more > 0) {
        let _ = writeln!(out, "- and {more} more");
    }
}

fn write_ladder(out: &mut String, ladder: &Ladder) {
    out.push_str("\n### Calls side by side\n\n|   |");
    for side in &ladder.sides {
        let _ = write!(out, " {} |", side.title());
    }
    out.push_str("\n| --- |");
    out.push_str(&" --- |".repeat(ladder.sides.len()));
    out.push('\n');
    let dots = |out: &mut String, count: u64| {
        if count > 0 {
            let _ =
                writeln!(out, "|   | *{count} more* |{}", "   |".repeat(ladder.sides.len() - 1));
        }
    };
    dots(out, ladder.before);
    for rung in &ladder.rungs {
        out.push_str(if rung.differs { "| ➜ |" } else { "|   |" });
        for step in &rung.steps {
            let _ = write!(out, " {} |", step_text(step));
        }
        out.push('\n');
    }
    dots(out, ladder.after);
    write_stacks(out, ladder);
}

/// The stacks of the calls in which the sides differ, where more than a line is known of one.
fn write_stacks(out: &mut String, ladder: &Ladder) {
    let mut titled = false;
    for rung in ladder.rungs.iter().filter(|rung| rung.differs) {
        for (side, step) in ladder.sides.iter().zip(&rung.steps) {
            let LadderStep::Called(call) = step else { continue };
            // A single line is in the table.
            if call.stack.iter().map(|part| part.frames.len()).sum::<usize>() < 2 {
                continue;
            }
            if !std::mem::replace(&mut titled, true) {
                out.push_str("\n### Stacks\n");
            }
            let _ = write!(out, "\n{}, {}:\n\n", side.title(), escaped(&call.title()));
            for part in &call.stack {
                let _ = writeln!(out, "1. {}", stack_part_text(part));
            }
        }
    }
}

/// A line of the user's code with weight; of a library's frames the innermost, and how many there are.
fn stack_part_text(part: &StackPart) -> String {
    let Some(frame) = part.frames.first() else { return String::new() };
    // Without its folders, which are the machine's.
    let frame = code(frame.rsplit(['/', '\\']).next().unwrap_or(frame));
    match part.frames.len() {
        1 if part.own => format!("**{frame}**"),
        1 => frame,
        count => format!("{frame} and {} more in libraries", count - 1),
    }
}

fn step_text(step: &LadderStep) -> String {
    match step {
        LadderStep::LeftOut => "**did not call it**".to_owned(),
        LadderStep::NotReached => "*did not get here*".to_owned(),
        LadderStep::Called(call) => {
            let mut text = format!("**{}**", escaped(&call.title()));
            if !call.what.is_empty() {
                let _ = write!(text, " {}", escaped(&call.what));
            }
            if let Some(line) = &call.line {
                let _ = write!(text, "<br>{}", code(line));
            }
            if call.waits {
                text.push_str(" *waits*");
            }
            text
        }
    }
}

fn write_list(out: &mut String, title: &str, texts: &[String]) {
    if !texts.is_empty() {
        let _ = write!(out, "\n## {title}\n\n");
    }
    for text in texts {
        let _ = writeln!(out, "- {}", escaped(text));
    }
}

/// A text as code, if it can stand there as it is.
fn code(text: &str) -> String {
    match text.contains(['`', '|', '\n', '\r']) || text.is_empty() {
        true => escaped(text),
        false => format!("`{text}`"),
    }
}

/// A text in one line in which nothing is markup but what stands between backquotes, which is code.
pub fn escaped(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let paired =
        parts.len() % 2 == 1 && parts.iter().skip(1).step_by(2).all(|code| !code.is_empty());
    if !paired {
        return escaped_words(&text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => escaped_words(part),
        // A table's cell ends at a bar, also in code.
        _ if part.contains('|') => escaped_words(part),
        _ => format!("`{part}`"),
    };
    parts.iter().enumerate().map(part).collect()
}

/// A text in which nothing is markup. Underscores stay as they are inside words, where they emphasize nothing.
fn escaped_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before: Option<char> = None;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let within = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let plain = match char {
            '_' => within(before) && within(chars.peek().copied()),
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '#' | '~' | '@' => false,
            // At the start of a line they begin a list.
            '+' | '-' => before.is_some(),
            '.' | ')' => !out.bytes().all(|byte| byte.is_ascii_digit()) || out.is_empty(),
            _ => true,
        };
        if !plain {
            out.push('\\');
        }
        out.push(char);
        before = Some(char);
    }
    out
}
