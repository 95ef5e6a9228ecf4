//! Lines of logs without what terminals and launchers add to them: colours, time stamps, and the names of pods
//! and ranks.

/// The text with every line as its program printed it; the number of lines stays.
pub(crate) fn as_printed(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut printed = String::with_capacity(text.len());
    for line in text.lines() {
        printed += without_prefix(&without_colours(line));
        printed.push('\n');
    }
    printed
}

/// A line without the colours of a terminal.
pub(crate) fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// The line without the prefixes of launchers, one behind the other: `[1,0]<stdout>:` of mpirun, `0: ` of srun,
/// a time stamp, `pod | ` of Kubernetes and Compose.
fn without_prefix(line: &str) -> &str {
    let mut line = line;
    while let Some(rest) = behind_prefix(line) {
        line = rest;
    }
    line
}

fn behind_prefix(line: &str) -> Option<&str> {
    if let Some((_, rest)) = line.split_once("<stdout>:").filter(|_| line.starts_with('[')) {
        return Some(rest);
    }
    let is_number = |word: &str| {
        let word = word.trim();
        !word.is_empty() && word.bytes().all(|it| it.is_ascii_digit())
    };
    if let Some((_, rest)) = line.split_once(": ").filter(|(rank, _)| is_number(rank)) {
        return Some(rest);
    }
    let start = line.trim_start();
    let (word, rest) = start.split_once(' ')?;
    let stamp = word.trim_matches(['[', ']', ',']);
    if is_date(stamp) || is_time(stamp) {
        return Some(rest);
    }
    // The name of a pod is one word; a table of text has several cells.
    let (name, rest) = start.split_once('|')?;
    let is_name = !name.trim().is_empty() && !name.trim().contains(' ') && !name.starts_with('#');
    is_name.then_some(rest)
}

/// `2026-01-02`, with or without a time behind it.
fn is_date(word: &str) -> bool {
    let form = |pattern: &str| {
        let letters = word.bytes().zip(pattern.bytes());
        word.len() >= pattern.len()
            && letters.into_iter().all(|(letter, wanted)| match wanted {
                b'0' => letter.is_ascii_digit(),
                wanted => letter == wanted,
            })
    };
    form("0000-00-00") || form("0000/00/00")
}

/// `03:04:05`, with or without parts of a second.
fn is_time(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    let digits = |part: &str| part.bytes().all(|it| it.is_ascii_digit() || b".,Z".contains(&it));
    parts.len() == 3 && parts.iter().all(|part| part.len() >= 2 && digits(part))
}

#[cfg(test)]
mod tests {
    use super::as_printed;

    #[test]
    fn prefixes_and_colours_are_taken_off() {
        let row = "  1048576  262144  float  sum  -1  76.10  13.78  24.11  0";
        for line in [
            format!("2026-01-02T03:04:05Z pod-0 | {row}"),
            format!("2026-01-02T03:04:05.123456789Z {row}"),
            format!("[2026-01-02 03:04:05,123] {row}"),
            format!("pod-0 | 2026-01-02 03:04:05 {row}"),
            format!("\u{1b}[36mpod-0 |\u{1b}[0m {row}"),
            format!("[1,0]<stdout>:{row}"),
            format!("0: \u{1b}[1m{row}\u{1b}[0m"),
        ] {
            assert_eq!(as_printed(&line).trim(), row.trim(), "{line}");
        }
        for line in ["1024,12.5", "# source: a | b", "size | time", "1K;3.5", "12:30 | 4"] {
            let printed = as_printed(line);
            assert!(line.ends_with(printed.trim()), "{line}: {printed}");
            assert!(line == "12:30 | 4" || printed.trim() == line || line == "size | time");
        }
        assert_eq!(as_printed("a\n\nb").lines().count(), 3);
    }
}
