//! The parts of an explanation of a kind of finding, and their printing.

use crate::folded::fold;

/// The explanation of a kind of finding, in plain words. Names of calls and commands stand between
/// backquotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The name in files: `rank_never_joined`.
    pub name: &'static str,
    /// A heading for people: `Rank never joined`.
    pub title: &'static str,
    /// The events, in a paragraph.
    pub what: &'static str,
    /// The signs in Flight Recorder dumps.
    pub in_dumps: &'static str,
    /// The signs in the ranks' logs.
    pub in_logs: &'static str,
    /// The signs in stacks, as py-spy and faulthandler show them.
    pub in_stacks: &'static str,
    /// The arguments with which `lockstep` shows one, `sim skipped-all-reduce`; `None` where
    /// nothing that ships shows it.
    pub example: Option<&'static str>,
    /// The fix.
    pub fix: &'static str,
    /// The way to keep it from coming back.
    pub prevent: &'static str,
}

impl Explanation {
    /// The parts of it, each under a word: `("in logs", "…")`. Without its example.
    pub fn parts(&self) -> [(&'static str, &'static str); 6] {
        [
            ("what", self.what),
            ("in dumps", self.in_dumps),
            ("in logs", self.in_logs),
            ("in stacks", self.in_stacks),
            ("fix", self.fix),
            ("prevent", self.prevent),
        ]
    }

    /// It for a terminal, folded, ending in a line break.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}  [{}]\n\n", self.title, self.name);
        for (label, text) in self.parts() {
            fold(&mut out, &format!("{label:<11}"), text);
        }
        if let Some(example) = self.example {
            fold(&mut out, &format!("{:<11}", "see one"), &format!("lockstep {example}"));
        }
        out
    }
}
