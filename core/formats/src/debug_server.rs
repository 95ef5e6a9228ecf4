//! Pages of PyTorch's debug server (`torch.distributed.debug`): the answer of each rank below a heading that names the
//! rank, as text or as the saved HTML page. `/fr_trace_json` has dumps, `/stacks` the threads of every rank.

use crate::text::is_text;

/// More ranks on one page are left out: the page is made for a look at a small job.
const MAX_RANKS: usize = 1 << 12;

/// Larger files are no such pages.
const MAX_PAGE_BYTES: usize = 1 << 30;

/// The first heading is within so many bytes: a page's head comes before it. Large files of other kinds are
/// not searched.
const HEAD_BYTES: usize = 1 << 16;

/// The heading of a rank's part, up to its number.
const HEADING: &str = "Rank ";

/// The ranks of a page with the text below their headings; empty if the file is no such page.
fn parts(bytes: &[u8]) -> Vec<(u32, &str)> {
    let head = bytes.get(..bytes.len().min(HEAD_BYTES)).unwrap_or(bytes);
    let has_heading = || head.windows(HEADING.len()).any(|window| window == HEADING.as_bytes());
    if bytes.len() > MAX_PAGE_BYTES || !is_text(head) || !has_heading() {
        return Vec::new();
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let headings: Vec<(u32, usize)> = text
        .match_indices(HEADING)
        .filter_map(|(at, _)| heading(text, at))
        .take(MAX_RANKS)
        .collect();
    let ends = headings.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    let parts = headings.iter().zip(ends);
    parts.filter_map(|((rank, begin), end)| Some((*rank, text.get(*begin..end)?))).collect()
}

/// The ranks of a page of dumps with their JSON; empty if the file is no such page.
pub(crate) fn dumps(bytes: &[u8]) -> Vec<(u32, String)> {
    let dump = |(rank, part): (u32, &str)| {
        let json = part.get(part.find('{')?..=part.rfind('}')?)?;
        json.contains("entries").then(|| (rank, unescaped(json)))
    };
    parts(bytes).into_iter().filter_map(dump).collect()
}

/// A saved HTML page of stacks as the text that the debug server writes into files; `None` if it is no such page.
pub(crate) fn stacks(bytes: &[u8]) -> Option<String> {
    const BEGIN: &str = "<pre>";
    let of_rank = |(rank, part): (u32, &str)| {
        let begin = part.find(BEGIN)? + BEGIN.len();
        let end = part.get(begin..)?.find("</pre>")?;
        let stack = unescaped(part.get(begin..begin + end)?);
        Some(format!("=== Rank {rank}: http://page ===\n{stack}\n"))
    };
    let text: String = parts(bytes).into_iter().filter_map(of_rank).collect();
    (!text.is_empty()).then_some(text)
}

/// The rank of a heading, `Rank 3: http://node-1:25999`, and where its line goes on.
fn heading(text: &str, at: usize) -> Option<(u32, usize)> {
    let rest = text.get(at + HEADING.len()..)?;
    let (rank, rest) = rest.split_once(": http")?;
    let rank = rank.parse().ok()?;
    Some((rank, text.len() - rest.len()))
}

/// Text of a saved page as it was before it became HTML.
fn unescaped(json: &str) -> String {
    let escapes = [
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    match json.contains('&') {
        true => escapes
            .iter()
            .fold(json.to_owned(), |text, (escape, plain)| text.replace(escape, plain)),
        false => json.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_every_rank() {
        let json = |rank: u32| format!("{{\n  \"version\": \"2.10\",\n  \"entries\": [{rank}]\n}}");
        let text: String = (0..3)
            .map(|rank| format!("=== Rank {rank}: http://a:1/handler ===\n{}\n", json(rank)))
            .collect();
        let wanted: Vec<(u32, String)> = (0..3).map(|rank| (rank, json(rank))).collect();
        assert_eq!(dumps(text.as_bytes()), wanted);
        let page: String = (0..3)
            .map(|rank| {
                let json = json(rank).replace('"', "&#34;");
                format!("<h2>Rank {rank}: http://a:1/</h2>\n<pre>{json}</pre>\n")
            })
            .collect();
        assert_eq!(dumps(page.as_bytes()), wanted);
        assert_eq!(stacks(text.as_bytes()), None);
        let stack = "<h2>Rank 2: http://a:1/</h2>\n  <pre>Thread 1:\n  File &#34;a.py&#34;, line 3 in &lt;module&gt;</pre>";
        let wanted =
            "=== Rank 2: http://page ===\nThread 1:\n  File \"a.py\", line 3 in <module>\n";
        assert_eq!(stacks(stack.as_bytes()).as_deref(), Some(wanted));
        for none in
            ["", "Rank 3: http://a {", "Rank x: http://a {\"entries\": []}", "{\"entries\": []}"]
        {
            assert_eq!(dumps(none.as_bytes()), [], "{none}");
        }
    }
}
