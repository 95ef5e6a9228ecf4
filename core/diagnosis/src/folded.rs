//! Paragraphs for a terminal.

/// Lines are folded at this width.
const WIDTH: usize = 88;

/// A paragraph behind a label, folded at [`WIDTH`] with the label's indent.
pub(crate) fn fold(out: &mut String, label: &str, text: &str) {
    let indent = label.chars().count();
    out.push_str(label);
    let mut column = indent;
    for (at, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if at > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}
