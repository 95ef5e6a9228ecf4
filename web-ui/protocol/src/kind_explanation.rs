//! The explanation of a kind of finding.

use lockstep_diagnosis::Kind;
use serde::{Deserialize, Serialize};

/// The explanation of a kind of finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindExplanation {
    /// Its parts, each under a word: `("in logs", "…")`.
    pub parts: Vec<(String, String)>,
    /// The id of a hang of the gallery that shows one.
    pub hang: Option<String>,
}

impl From<Kind> for KindExplanation {
    fn from(kind: Kind) -> KindExplanation {
        let explanation = kind.explanation();
        let parts = explanation.parts().map(|(label, text)| (label.to_owned(), text.to_owned()));
        // The page can only link to examples of `sim`: its gallery has those hangs.
        let hang = explanation.example.and_then(|example| example.strip_prefix("sim "));
        KindExplanation { parts: parts.into(), hang: hang.map(str::to_owned) }
    }
}
