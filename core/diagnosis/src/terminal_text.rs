//! The report for people at a terminal.

use crate::folded::fold;
use crate::report::{Certainty, Finding, Report, Verdict};
use lockstep_core::words::rank_list;
use std::fmt::Write;

impl Report {
    /// The report for a terminal, without colour, ending in a line break.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let ranks = if self.world_size == 1 { "rank" } else { "ranks" };
        let size = self.world_size;
        let _ = match (self.verdict, self.findings.len()) {
            (Verdict::Healthy, _) => {
                writeln!(out, "Healthy: nothing is wrong among {size} {ranks}.")
            }
            (Verdict::Inconclusive, _) => {
                writeln!(
                    out,
                    "Inconclusive: no finding among {size} {ranks}, but not all was seen."
                )
            }
            (Verdict::Unusable, _) => writeln!(out, "Unusable: nothing can be judged."),
            (Verdict::Findings, 1) => writeln!(out, "1 finding among {size} {ranks}."),
            (Verdict::Findings, count) => writeln!(out, "{count} findings among {size} {ranks}."),
        };
        for (number, finding) in (1..).zip(&self.findings) {
            out.push('\n');
            print(&mut out, number, finding);
        }
        if self.verdict == Verdict::Inconclusive {
            out.push('\n');
            for unseen in &self.unseen {
                fold(&mut out, "not seen  ", unseen);
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            fold(&mut out, "note  ", note);
        }
        out
    }
}

fn print(out: &mut String, number: usize, finding: &Finding) {
    let sure = match finding.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::Undecidable => " (cannot be decided from this recording)",
    };
    let _ = writeln!(out, "{number}. {}{sure}  [{}]", finding.kind.title(), finding.kind);
    fold(out, "   ", &finding.message);
    let mut field = |name: &str, text: &str| fold(out, &format!("   {name:<9}"), text);
    if !finding.culprits.is_empty() {
        field("culprits", &rank_list(&finding.culprits));
    }
    if !finding.victims.is_empty() {
        field("victims", &rank_list(&finding.victims));
    }
    if let Some(group) = &finding.group {
        let mut ranks = group.ranks.clone();
        ranks.sort_unstable();
        let desc =
            if group.desc.is_empty() { String::new() } else { format!(" \"{}\"", group.desc) };
        field("group", &format!("{}{desc}, ranks {}", group.name, rank_list(&ranks)));
    }
    for evidence in finding.evidence.iter().take(8) {
        let entry = evidence.entry.map(|entry| format!(", entry {entry}")).unwrap_or_default();
        let frame = evidence.frame.as_ref().map(|frame| format!(", {frame}")).unwrap_or_default();
        let place = evidence.place.as_ref().map(|place| format!(", in {place}"));
        let place = place.unwrap_or_default();
        field("seen", &format!("rank {} {}{entry}{frame}{place}", evidence.rank, evidence.note));
    }
    field("fix", &finding.fix);
    if let Some(repair) = &finding.repair {
        field("repair", &repair.change.words());
        field(repair.verdict(), &repair.why);
    }
}
