//! The text of a claim while it can still change: its parts are joined when the claim becomes a finding.

use crate::facts::alternatives::Alternatives;

/// A claim's message in parts. Later stages add doubts or drop guesses; none of them reads a sentence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// The sentences about the evidence and its meaning.
    pub(crate) said: String,
    /// A guess at the cause.
    pub(crate) guess: Option<Guess>,
    /// The reasons that it may be otherwise.
    pub(crate) doubts: Vec<Doubt>,
    /// Further facts, printed last.
    pub(crate) added: Vec<String>,
}

/// A guess at the fate of ranks that left no recording.
#[derive(Clone, Debug)]
pub(crate) enum Guess {
    /// One explanation: `it crashed.`
    Likely(String),
    /// Several, in whole sentences: `Either it crashed, or only the dump is missing.`
    Several(String),
}

/// A reason why a claim may not hold.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) reason: Reason,
    /// The weight of this reason against the claim.
    pub(crate) weight: Alternatives,
    /// In a sentence.
    pub(crate) text: String,
}

/// The kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The job may have been running when it was recorded.
    StillRunning,
    /// Something that the recording does not hold may be behind it.
    NotSeen,
}

impl Doubt {
    /// An unrecorded cause is possible.
    pub(crate) fn not_seen(weight: Alternatives, text: String) -> Doubt {
        Doubt { reason: Reason::NotSeen, weight, text }
    }
}

impl Message {
    /// The whole text.
    pub(crate) fn text(&self) -> String {
        let guess = self.guess.as_ref().map(|guess| match guess {
            Guess::Likely(cause) if self.doubts(Reason::StillRunning) => format!("Either {cause}"),
            Guess::Likely(cause) => format!("Most likely {cause}"),
            Guess::Several(causes) => causes.clone(),
        });
        let doubts = self.doubts.iter().map(|doubt| doubt.text.clone());
        let parts = std::iter::once(self.said.clone()).chain(guess).chain(doubts);
        parts.chain(self.added.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// True if there is a doubt for this reason.
    pub(crate) fn doubts(&self, reason: Reason) -> bool {
        self.doubts.iter().any(|doubt| doubt.reason == reason)
    }
}

impl From<String> for Message {
    fn from(said: String) -> Message {
        Message { said, ..Message::default() }
    }
}
