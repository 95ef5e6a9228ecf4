//! The reader's notes on calls and moments. They are part of the address, so that they are kept where
//! filters and pins are, and go into the report.

use crate::dom::{self, Listener};
use crate::explain;
use crate::ui::{Go, goes, keys};
use lockstep_diagnosis::markdown::escaped;
use lockstep_web_protocol::Which;
use std::fmt::Write;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, HtmlInputElement, KeyboardEvent, SubmitEvent};
use yew::prelude::*;

/// A note on a call, or on a moment of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pages) struct Note {
    pub(in crate::pages) place: Place,
    pub(in crate::pages) text: String,
}

/// The place of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pages) struct Place {
    pub(in crate::pages) rank: u32,
    /// The call's number on its rank, if it is on a call.
    pub(in crate::pages) work: Option<u32>,
    pub(in crate::pages) time_ps: u64,
    /// `all_reduce #7`.
    pub(in crate::pages) title: String,
}

/// The separator of a title and a text.
const BAR: char = '|';

impl Note {
    /// Notes as the address has them: `10.57@1234|all_reduce #7|the text`, one a line.
    pub(super) fn write(notes: &[Note]) -> String {
        let line = |Note { place: Place { rank, work, time_ps, title }, text }: &Note| {
            let work = work.map(|work| format!(".{work}")).unwrap_or_default();
            format!("{rank}{work}@{time_ps}{BAR}{}{BAR}{text}", title.replace(BAR, "/"))
        };
        notes.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Reads what [`Note::write`] wrote; lines that are none are passed over.
    pub(super) fn read(text: &str) -> Vec<Note> {
        text.lines().filter_map(Note::of_line).collect()
    }

    fn of_line(line: &str) -> Option<Note> {
        let mut parts = line.splitn(3, BAR);
        let (call, time) = parts.next()?.split_once('@')?;
        let (rank, work) = match call.split_once('.') {
            Some((rank, work)) => (rank, Some(work.parse().ok()?)),
            None => (call, None),
        };
        let (rank, time_ps) = (rank.parse().ok()?, time.parse().ok()?);
        let (title, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        Some(Note { place: Place { rank, work, time_ps, title }, text })
    }

    /// Notes as a section of a Markdown report; empty without notes.
    pub(super) fn markdown(notes: &[Note]) -> String {
        if notes.is_empty() {
            return String::new();
        }
        let mut section = "\n## Notes of the reader\n\n".to_owned();
        for Note { place, text } in notes {
            // Writing to a String cannot fail.
            let _ = writeln!(section, "- **{}**: {}", escaped(&place.words()), escaped(text));
        }
        section
    }
}

impl Place {
    /// `Rank 10, all_reduce #7, at 12.5 ms`.
    fn words(&self) -> String {
        format!("Rank {}, {}, at {}", self.rank, self.title, explain::time(self.time_ps))
    }
}

/// Properties of [`WriteNote`].
#[derive(Properties, PartialEq)]
pub(super) struct WriteNoteProps {
    pub(super) place: Place,
    pub(super) on_note: Callback<Note>,
}

/// A line that is kept as a note.
#[component(WriteNote)]
pub(super) fn write_note(props: &WriteNoteProps) -> Html {
    let input = use_node_ref();
    let submit = {
        let (input, place, on_note) = (input.clone(), props.place.clone(), props.on_note.clone());
        Callback::from(move |event: SubmitEvent| {
            event.prevent_default();
            let Some(field) = input.cast::<HtmlInputElement>() else { return };
            let text = field.value().trim().to_owned();
            if !text.is_empty() {
                on_note.emit(Note { place: place.clone(), text });
                field.set_value("");
            }
        })
    };
    {
        let input = input.clone();
        use_effect_with((), move |()| {
            let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
                // In a program N goes to the rank's next call.
                let program = dom::document().query_selector("main:not([hidden]) .debug-grid");
                let program = program.ok().flatten().is_some();
                if event.key() == "n" && !program && !keys::typing(&event) {
                    event.prevent_default();
                    if let Some(input) = input.cast::<HtmlInputElement>() {
                        let _ = input.focus();
                    }
                }
            });
            move || drop(heard)
        });
    }
    // Escape leaves the field, not what the field is in.
    let key = Callback::from(|event: KeyboardEvent| {
        if event.key() == "Escape" {
            event.stop_propagation();
            let field: HtmlInputElement = event.target_unchecked_into();
            let pane = field.closest(".details").ok().flatten();
            if let Some(pane) = pane.and_then(|pane| pane.dyn_into::<HtmlElement>().ok()) {
                let _ = pane.focus();
            }
        }
    });
    html! {
        <form class="write-note" onsubmit={submit}>
            <input ref={input} type="text" maxlength="400" placeholder="A note, kept in the address and printed in the report" aria-label="A note" onkeydown={key} data-test="note-text" />
            <button data-test="keep-note">{ "Keep note" }</button>
        </form>
    }
}

/// All notes; each leads to its place, and `on_drop` takes away the one with its number.
pub(in crate::pages) fn notes_list(
    notes: &[Note],
    on_go: &Callback<Go>,
    on_drop: &Callback<usize>,
) -> Html {
    if notes.is_empty() {
        return html! {};
    }
    let note = |(at, Note { place, text }): (usize, &Note)| {
        let which = place.work.map_or(Which::At(place.time_ps), Which::Work);
        let go = Go { rank: place.rank, which };
        let take = on_drop.reform(move |_: MouseEvent| at);
        html! {
            <li data-test="note">
                { goes(place.words(), go, Some(on_go)) }
                <span>{ text }</span>
                <button class="quiet" onclick={take} aria-label="Remove this note" title="Remove this note" data-test="drop-note">{ "×" }</button>
            </li>
        }
    };
    html! {
        <section class="notes" aria-label="Your notes">
            <h3>{ "Your notes" }</h3>
            <ul>{ for notes.iter().enumerate().map(note) }</ul>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_the_address() {
        let place =
            |work| Place { rank: 10, work, time_ps: 1_500_000, title: "all_reduce #7".into() };
        let notes = vec![
            Note { place: place(Some(57)), text: "skips | a step".into() },
            Note { place: place(None), text: "ask Ada".into() },
        ];
        assert_eq!(Note::read(&Note::write(&notes)), notes);
        for no in ["", "x", "10@", "10.5@7", "10@7|a", "-1@7|a|b"] {
            assert!(Note::read(no).is_empty(), "{no}");
        }
        let told = Note::markdown(&notes);
        assert!(
            told.contains(r"- **Rank 10, all_reduce \#7, at 1.50 µs**: skips \| a step"),
            "{told}"
        );
    }
}
