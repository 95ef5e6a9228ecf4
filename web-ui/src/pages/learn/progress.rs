//! A reader's progress, kept in the browser.

use crate::dom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use yew::prelude::*;

/// Under which it is kept in the browser's local storage.
const KEY: &str = "lockstep.lessons";

/// The progress, lesson by lesson.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress(BTreeMap<String, Kept>);

/// The progress in a lesson.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Per step from 0, the answers that were chosen, in order.
    #[serde(default)]
    pub(super) chosen: BTreeMap<usize, Vec<usize>>,
    /// Per step from 0 with a question, whether it was answered rightly.
    #[serde(default)]
    pub(super) solved: BTreeMap<usize, bool>,
    /// The step from 0 that was read last.
    #[serde(default)]
    pub(super) at: usize,
    /// True if the last step was read and all questions were answered.
    #[serde(default)]
    pub(super) done: bool,
}

impl Kept {
    /// Questions that were answered rightly.
    pub(super) fn solved(&self) -> usize {
        self.solved.values().filter(|solved| **solved).count()
    }

    /// The option that was chosen at a step.
    pub(super) fn chosen(&self, step: usize) -> &[usize] {
        self.chosen.get(&step).map(Vec::as_slice).unwrap_or_default()
    }

    /// True if the question of a step was answered rightly.
    pub(super) fn is_solved(&self, step: usize) -> bool {
        self.solved.get(&step).copied().unwrap_or(false)
    }

    /// The same after an answer; one that was given before counts once.
    pub(super) fn answered(mut self, step: usize, answer: usize, right: bool) -> Kept {
        let chosen = self.chosen.entry(step).or_default();
        if !chosen.contains(&answer) {
            chosen.push(answer);
        }
        if right {
            self.solved.insert(step, true);
        }
        self
    }

    /// The same with a step read, of so many, with so many questions in all.
    pub(super) fn read(mut self, step: usize, steps: usize, questions: usize) -> Kept {
        self.at = step;
        self.done |= step + 1 == steps && self.solved() >= questions;
        self
    }
}

impl Progress {
    fn load() -> Progress {
        let kept = dom::window().local_storage().ok().flatten();
        let kept = kept.and_then(|storage| storage.get_item(KEY).ok().flatten());
        kept.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
    }

    fn store(&self) {
        let storage = dom::window().local_storage().ok().flatten();
        // A browser may keep nothing, or have no room: then it is known as long as the page is open.
        if let (Some(storage), Ok(json)) = (storage, serde_json::to_string(self)) {
            let _ = storage.set_item(KEY, &json);
        }
    }

    /// The steps of a lesson that are done.
    pub(super) fn of(&self, lesson: &str) -> Kept {
        self.0.get(lesson).cloned().unwrap_or_default()
    }
}

/// The progress in a lesson, and a callback that changes it.
#[hook]
pub(super) fn use_kept(lesson: &str) -> (Kept, Callback<Kept>) {
    let progress = use_state(Progress::load);
    let set = {
        let (progress, lesson) = (progress.setter(), lesson.to_owned());
        Callback::from(move |kept: Kept| {
            // Another tab may have written since.
            let mut next = Progress::load();
            next.0.insert(lesson.clone(), kept);
            next.store();
            progress.set(next);
        })
    };
    (progress.of(lesson), set)
}

/// The progress in all lessons, and a callback that forgets it all.
#[hook]
pub(super) fn use_progress() -> (Progress, Callback<()>) {
    let progress = use_state(Progress::load);
    let set = progress.setter();
    let reset = Callback::from(move |()| {
        Progress::default().store();
        set.set(Progress::default());
    });
    ((*progress).clone(), reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesson_is_done_when_its_end_is_read_and_its_questions_are_answered() {
        let kept = Kept::default().answered(1, 2, false).answered(1, 2, false);
        assert_eq!((kept.chosen(1), kept.is_solved(1)), (&[2][..], false));
        let kept = kept.read(3, 4, 1);
        assert!(!kept.done);
        let kept = kept.answered(1, 0, true);
        assert_eq!((kept.chosen(1), kept.solved()), (&[2, 0][..], 1));
        let kept = kept.read(3, 4, 1);
        assert!(kept.done);
        assert!(kept.read(0, 4, 1).done, "read again, it stays done");
    }

    #[test]
    fn what_an_older_page_has_kept_is_read() {
        let progress: Progress = serde_json::from_str(r#"{"ring":{"at":2}}"#).unwrap();
        assert_eq!(progress.of("ring").at, 2);
        assert_eq!(progress.of("other"), Kept::default());
    }
}
