//! `--report FILE`: the report as a file to send, in Markdown or as a page of its own.

use crate::output_file::{FileKind, Overwrite, REPORT_MARK, write_whole};
use anyhow::Result;
use lockstep_diagnosis::Report;
use pulldown_cmark::{Options, Parser, html};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The file that a report goes to.
#[derive(Clone, Debug)]
pub(crate) struct ReportFile {
    path: PathBuf,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Markdown,
    Html,
}

/// A name that does not say in which form the report is to be written.
#[derive(Debug, thiserror::Error)]
#[error("name a file that ends in .md (Markdown) or .html (a page)")]
pub(crate) struct NoReportFile;

impl FromStr for ReportFile {
    type Err = NoReportFile;

    fn from_str(path: &str) -> Result<ReportFile, NoReportFile> {
        let path = PathBuf::from(path);
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let form = match ending.to_ascii_lowercase().as_str() {
            "md" | "markdown" => Form::Markdown,
            "html" | "htm" => Form::Html,
            _ => return Err(NoReportFile),
        };
        Ok(ReportFile { path, form })
    }
}

impl ReportFile {
    /// Refuses a file that is not to be replaced, before any work is done.
    ///
    /// # Errors
    /// Those of [`Overwrite::check`].
    pub(crate) fn check(&self, overwrite: Overwrite, inputs: &[&Path]) -> Result<()> {
        overwrite.check(&self.path, FileKind::Report, inputs)
    }

    /// Writes the report.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, report: &Report) -> Result<()> {
        let text = match self.form {
            Form::Markdown => format!("{REPORT_MARK}\n{}", report.to_markdown()),
            Form::Html => page(report),
        };
        write_whole(&self.path, |out| Ok(out.write_all(text.as_bytes())?))
    }
}

/// The report as one HTML file without scripts, that needs nothing else.
fn page(report: &Report) -> String {
    let markdown = report.to_markdown();
    let mut body = String::new();
    html::push_html(&mut body, Parser::new_ext(&markdown, Options::ENABLE_TABLES));
    // A table scrolls by itself on a phone, and leaves the text where it is.
    let body = body
        .replace("<table>", "<div class=\"wide\"><table>")
        .replace("</table>", "</table></div>");
    let title = markdown.lines().next().unwrap_or_default().trim_start_matches("# ");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let style = include_str!("written_report.css");
    format!(
        "{REPORT_MARK}\n<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         </body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_diagnosis::Verdict;

    #[test]
    fn what_a_recording_says_is_never_markup() {
        let hostile =
            "<script>alert(1)</script> ![x](http://a/b) [y](javascript:z) `</code><b>` | *c*\n# d";
        let mut report = Report::healthy(2);
        report.verdict = Verdict::Inconclusive;
        report.unseen = vec![hostile.to_owned()];
        let page = page(&report);
        for tag in ["<script", "<img", "<a ", "<b>", "<em>", "<h1>d", "<h1> d"] {
            assert!(!page.contains(tag), "{tag}: {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; ![x](http://a/b)"), "{page}");
    }
}
