//! `--report FILE`: the report as a file to send, in Markdown or as a page of its own.

use anyhow::{Context, Result, bail};
use lockstep_diagnosis::Report;
use pulldown_cmark::{Options, Parser, html};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// With what every report begins, so that a later one may replace it.
const MARK: &str = "<!-- Written by lockstep diagnose --report. -->";

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

impl FromStr for ReportFile {
    type Err = String;

    fn from_str(path: &str) -> Result<ReportFile, String> {
        let path = PathBuf::from(path);
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let form = match ending.to_ascii_lowercase().as_str() {
            "md" | "markdown" => Form::Markdown,
            "html" | "htm" => Form::Html,
            _ => return Err("name a file that ends in .md (Markdown) or .html (a page)".to_owned()),
        };
        Ok(ReportFile { path, form })
    }
}

impl ReportFile {
    /// Refuses a file that this command has not written itself, before any work is done.
    ///
    /// # Errors
    /// When the file exists, is not empty, and is no report.
    pub(crate) fn check(&self) -> Result<()> {
        let path = self.path.display();
        let mut begins = Vec::new();
        match std::fs::File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file.and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut begins)),
        }
        .with_context(|| format!("{path} cannot be read"))?;
        if !begins.is_empty() && begins != MARK.as_bytes() {
            bail!("{path} exists and is no report of lockstep: name another file, or remove it");
        }
        Ok(())
    }

    /// Writes the report beside the file and renames it, so that a full disk leaves what was there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, report: &Report) -> Result<()> {
        self.check()?;
        let path = self.path.display();
        let text = match self.form {
            Form::Markdown => format!("{MARK}\n{}", report.to_markdown()),
            Form::Html => page(report),
        };
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = Path::new(&beside);
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(beside)
            .and_then(|mut file| {
                file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(beside, &self.path)).inspect_err(
                    |_| {
                        // The error of the writing is the one to be told.
                        let _ = std::fs::remove_file(beside);
                    },
                )
            });
        written.with_context(|| format!("the report cannot be written to {path}"))
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
        "{MARK}\n<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
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
        let hostile = "<script>alert(1)</script> ![x](http://a/b) [y](javascript:z) `</code><b>` | *c*\n# d";
        let mut report = Report::healthy(2);
        report.verdict = Verdict::Inconclusive;
        report.unseen = vec![hostile.to_owned()];
        let page = page(&report);
        for tag in ["<script", "<img", "<a ", "<b>", "<em>", "<h1>d", "<h1> d"] {
            assert!(!page.contains(tag), "{tag}: {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; ![x](http://a/b)"), "{page}");
    }

    #[test]
    fn only_a_report_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.md");
        let file: ReportFile = path.to_str().unwrap().parse().unwrap();
        file.write(&Report::healthy(2)).unwrap();
        file.write(&Report::healthy(3)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("among 3 ranks"), "{text}");
        std::fs::write(&path, "my notes").unwrap();
        let error = file.write(&Report::healthy(2)).unwrap_err().to_string();
        assert!(error.contains("is no report of lockstep"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
