//! A line of a job's file with those around it, read again from the file that was dropped: a log may have a gigabyte,
//! and the page holds none of its text.

use super::file::{self, Kind, read_slice};
use super::open::ARCHIVE_LIMITS;
use super::readers::Named;
use lockstep_diagnosis::Place;
use lockstep_formats::archive;
use lockstep_formats::job_log::without_colours;
use lockstep_formats::recording::name_in;
use lockstep_formats::text::in_utf8;
use lockstep_web_protocol::LogLines;

/// Lines before and behind the one that is meant.
const AROUND: u64 = 6;

/// Lines are cut here, in bytes.
const MAX_LINE_BYTES: usize = 2000;

/// Bytes of a file that are in memory at a time.
const BYTES_AT_ONCE: f64 = (4u32 << 20) as f64;

/// The lines around a place in one of these files, or in one of the archives among them.
///
/// # Errors
/// None of the files has that line any more.
pub(super) async fn around(files: &[Named], place: &Place) -> Result<LogLines, String> {
    let missing = || format!("Drop {} here again to see its line {}.", place.file, place.line);
    for (file, name) in files {
        let mut cutter = Cutter::around(place.line);
        if **name == *place.file {
            read(file, &mut cutter).await.map_err(|_| missing())?;
        } else if let Ok(bytes) = file::read(file).await
            && Kind::of(&bytes) == Kind::Archive
        {
            let alone = files.len() == 1;
            let mut take = |path: &str, bytes: &[u8]| {
                let is_it = match alone {
                    true => path == &*place.file,
                    false => name_in(name, path) == *place.file,
                };
                if is_it {
                    cutter.take(&in_utf8(bytes));
                }
            };
            // What cannot be unpacked has no such line.
            let _ = archive::for_each_file(name, &bytes, ARCHIVE_LIMITS, &mut take);
        }
        if let Some(lines) = cutter.end() {
            return Ok(lines);
        }
    }
    Err(missing())
}

/// Reads a file until the lines are there.
async fn read(file: &web_sys::File, cutter: &mut Cutter) -> Result<(), String> {
    let start = read_slice(file, 0.0, 2.0).await?;
    if matches!(*start, [0xFF, 0xFE] | [0xFE, 0xFF]) {
        cutter.take(&in_utf8(&file::read(file).await?));
        return Ok(());
    }
    let mut from = 0.0;
    while from < file.size() && !cutter.is_done() {
        let bytes = read_slice(file, from, from + BYTES_AT_ONCE).await?;
        cutter.take(&bytes);
        from += BYTES_AT_ONCE;
    }
    Ok(())
}

/// Cuts a stretch of lines out of a text that comes in pieces.
struct Cutter {
    /// The first line that is wanted, the one that must be there, and the last that is wanted; counted from 1.
    first: u64,
    meant: u64,
    last: u64,
    /// The line that is being read.
    at: u64,
    lines: Vec<Vec<u8>>,
}

impl Cutter {
    fn around(meant: u64) -> Cutter {
        let first = meant.saturating_sub(AROUND).max(1);
        Cutter { first, meant, last: meant.saturating_add(AROUND), at: 1, lines: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.at > self.last
    }

    fn take(&mut self, bytes: &[u8]) {
        for (nth, part) in bytes.split(|byte| *byte == b'\n').enumerate() {
            self.at += u64::from(nth > 0);
            if self.is_done() {
                return;
            }
            let Some(line) = self.at.checked_sub(self.first) else { continue };
            if part.is_empty() && self.lines.len() == line as usize {
                // The text may end here.
                continue;
            }
            self.lines.resize_with((line as usize + 1).max(self.lines.len()), Vec::new);
            if let Some(line) = self.lines.last_mut() {
                let room = MAX_LINE_BYTES.saturating_sub(line.len());
                line.extend(part.iter().take(room));
            }
        }
    }

    /// The lines, if the one that is meant is among them.
    fn end(self) -> Option<LogLines> {
        let there = self.first + self.lines.len() as u64 > self.meant;
        let lines: Vec<String> = self.lines.iter().map(|line| shown(line)).collect();
        there.then(|| LogLines { first: self.first, text: lines.join("\n") })
    }
}

/// A line as the page shows it: without a terminal's colours and other control characters.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = without_colours(text.trim_start_matches('\u{feff}').trim_end());
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, line: u64, piece: usize) -> Option<LogLines> {
        let mut cutter = Cutter::around(line);
        text.as_bytes().chunks(piece).for_each(|bytes| cutter.take(bytes));
        cutter.end()
    }

    #[test]
    fn a_line_is_cut_out_with_those_around_it_however_the_text_comes() {
        let text: String = (1..=30).map(|line| format!("line {line}\r\n")).collect();
        for piece in [1, 3, 7, 1000] {
            let around = |line: u64| cut(&text, line, piece).unwrap();
            let (first, lines) = (around(10).first, around(10).text);
            assert_eq!((first, lines.lines().count()), (4, 13), "{piece}");
            assert_eq!(lines.lines().nth(6), Some("line 10"));
            assert_eq!((around(2).first, around(2).text.lines().count()), (1, 8));
            assert_eq!(around(30).text.lines().last(), Some("line 30"));
            assert_eq!(cut(&text, 31, piece), None, "there is no such line");
        }
    }

    #[test]
    fn empty_lines_count_and_colours_do_not_show() {
        let text = "\n\n\u{1b}[31mred\u{1b}[0m\rover\n\nend";
        for piece in [1, 100] {
            let lines = cut(text, 3, piece).unwrap();
            assert_eq!((lines.first, lines.text.as_str()), (1, "\n\nred over\n\nend"));
        }
        let long = "x".repeat(10_000);
        assert_eq!(cut(&long, 1, 64).unwrap().text.len(), MAX_LINE_BYTES);
    }
}
