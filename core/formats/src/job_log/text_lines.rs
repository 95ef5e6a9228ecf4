//! A log's lines as they were written: without a terminal's colours, and put together again where a terminal
//! cut them.

use super::colours::without_colours;
use super::writer;
use std::cmp::Ordering;

/// Lines past this many bytes are cut: nothing that is looked for is as long.
const MAX_LINE_BYTES: usize = 1 << 16;

/// A terminal is no narrower, in characters.
const NARROWEST: usize = 60;

/// The number of lines of one length, none longer, that shows that a terminal cut them.
const CUT_ALIKE: usize = 4;

/// The most bytes of a log that are searched for cut lines.
const LOOKED_AT: usize = 1 << 20;

/// Messages of PyTorch in one line that hold brackets: where one is open, the line goes on in the next.
const IN_BRACKETS: [&str; 2] = ["WorkNCCL(", "CollectiveFingerPrint("];

/// The most lines that are put together.
const MOST_PARTS: usize = 8;

/// Every line of a log that is not empty, with the number of the line in which it begins.
pub(super) fn of(text: &[u8], take: &mut dyn FnMut(u64, &str)) {
    let width = width(text);
    // A line that goes on, with its number and how many parts it has.
    let mut open: Option<(u64, String, usize)> = None;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        // A progress bar writes over itself, and what comes then stands behind it.
        for part in line.split(|byte| *byte == b'\r').filter(|part| !part.is_empty()) {
            let part = part.get(..part.len().min(MAX_LINE_BYTES)).unwrap_or(part);
            let part = String::from_utf8_lossy(part);
            let part = without_colours(&part);
            let goes_on = |line: &str, last: &str, parts: usize| {
                let cut = width.is_some_and(|width| last.chars().count() == width);
                parts < MOST_PARTS && line.len() < MAX_LINE_BYTES && (cut || is_open(line))
            };
            match open.take() {
                Some((first, mut line, parts)) if !begins(&part) => {
                    line.push_str(&part);
                    match goes_on(&line, &part, parts + 1) {
                        true => open = Some((first, line, parts + 1)),
                        false => take(first, &line),
                    }
                    continue;
                }
                Some((first, line, _)) => take(first, &line),
                None => {}
            }
            match goes_on(&part, &part, 1) {
                true => open = Some((number, part.into_owned(), 1)),
                false => take(number, &part),
            }
        }
    }
    if let Some((first, line, _)) = open {
        take(first, &line);
    }
}

/// True of a line whose message ends in another line.
fn is_open(line: &str) -> bool {
    IN_BRACKETS.iter().any(|message| {
        let Some((_, behind)) = line.rsplit_once(message) else { return false };
        let depth = behind.chars().fold(1i32, |depth, c| match c {
            '(' => depth + 1,
            ')' => depth - 1,
            _ => depth,
        });
        depth > 0
    })
}

/// True if a line has a known beginning.
fn begins(line: &str) -> bool {
    writer::speaker(line).is_some() || writer::job(line).is_some() || line.starts_with("Traceback ")
}

/// The width in characters of the terminal that cut a log's lines, if one did: many lines are as long as the
/// longest, and most of them go on in a line without a known beginning.
fn width(text: &[u8]) -> Option<usize> {
    let text = text.get(..text.len().min(LOOKED_AT)).unwrap_or(text);
    let (mut longest, mut times, mut going_on) = (0, 0, 0);
    let mut last_is_longest = false;
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        if last_is_longest && !line.is_empty() && !begins(&line) {
            going_on += 1;
        }
        let length = line.chars().count();
        match length.cmp(&longest) {
            Ordering::Greater => (longest, times, going_on) = (length, 1, 0),
            Ordering::Equal => times += 1,
            Ordering::Less => {}
        }
        last_is_longest = length == longest;
    }
    (longest >= NARROWEST && times >= CUT_ALIKE && going_on * 4 >= times * 3).then_some(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        of(text.as_bytes(), &mut |number, line| lines.push((number, line.to_owned())));
        lines
    }

    #[test]
    fn colours_are_left_out() {
        let text = "\u{1b}[36m(Actor pid=7)\u{1b}[0m [rank3]: ValueError: x\n";
        assert_eq!(lines(text), [(1, "(Actor pid=7) [rank3]: ValueError: x".to_owned())]);
        assert_eq!(lines("a\u{1b}[31"), [(1, "a".to_owned())]);
    }

    #[test]
    fn a_message_that_a_terminal_cut_is_one_line() {
        let text = "[rank1]: WorkNCCL(SeqNum=4, OpTy\npe=BROADCAST) ran\n[rank2]: WorkNCCL(Seq\n[rank3]: x\n";
        let all: Vec<String> = lines(text).into_iter().map(|(_, line)| line).collect();
        let whole = "[rank1]: WorkNCCL(SeqNum=4, OpType=BROADCAST) ran";
        assert_eq!(all, [whole, "[rank2]: WorkNCCL(Seq", "[rank3]: x"]);
    }

    #[test]
    fn lines_of_one_terminals_width_go_on() {
        let line = "x".repeat(150);
        let text: String = (0..5).map(|_| format!("{}\n{}\n", &line[..80], &line[80..])).collect();
        // A line without a known beginning goes on for as long as lines are full.
        assert!(lines(&text).iter().all(|(_, line)| line.len() == 150), "{:?}", lines(&text));
        assert_eq!(width(b"short\nlines\n"), None);
        // Ranks that write the same are no terminal.
        let alike: String = (0..5).map(|rank| format!("[rank{rank}]: {line}\n")).collect();
        assert_eq!(width(format!("{alike}world_size=6\n").as_bytes()), None);
    }
}
