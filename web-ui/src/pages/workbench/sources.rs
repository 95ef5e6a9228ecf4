//! The lines of a job's own files that findings point at, where the user has dropped those files:
//! a recording names them and does not hold them.

use crate::pages::recording::files::path_of;
use crate::sets::set;
use crate::ui::dropped::{Texts, excerpt, meant, place};
use lockstep_diagnosis::Report;
use std::rc::Rc;
use web_sys::File;
use yew::prelude::*;

/// Larger files are no source.
const MAX_BYTES: f64 = 4e6;

/// Places shown: more repeat themselves.
const MAX_PLACES: usize = 8;

/// True if a file is a program's, and no recording.
pub(in crate::pages) fn is_source(file: &File) -> bool {
    let name = file.name().to_ascii_lowercase();
    name.ends_with(".py") || name.ends_with(".star")
}

/// The texts and those of more files; what is no text is left out.
pub(in crate::pages) async fn with(texts: Texts, files: Vec<File>) -> Texts {
    let mut all = (*texts).clone();
    for file in files.into_iter().filter(|file| file.size() < MAX_BYTES) {
        let text = wasm_bindgen_futures::JsFuture::from(file.text()).await;
        if let Some(text) = text.ok().and_then(|text| text.as_string()) {
            all.insert(path_of(&file), text.into());
        }
    }
    Rc::new(all)
}

/// The lines that the findings point at.
pub(super) fn sources(report: &Report, texts: &Texts) -> Html {
    let evidence = report.findings.iter().flat_map(|finding| &finding.evidence);
    // A helper's line comes with its caller's.
    let lines = evidence.filter_map(|seen| seen.frame.as_deref());
    let frames = lines.flat_map(|line| line.split(", called from ")).filter_map(place);
    let places = set(frames);
    let name = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned();
    let missing = places.iter().filter(|(path, _)| meant(texts, path).is_none());
    let missing = set(missing.map(|(path, _)| name(path)));
    let missing: Vec<String> = missing.into_iter().take(MAX_PLACES).collect();
    let known = places.iter().filter_map(|&(path, line)| {
        let (_, text) = meant(texts, path)?;
        Some(excerpt(&name(path), text, 1, line))
    });
    html! {
        <>
            { for known.take(MAX_PLACES) }
            if !missing.is_empty() {
                <p class="muted small-print" data-test="drop-source">{ format!("Drop {} here to see the lines that are named above.", missing.join(", ")) }</p>
            }
        </>
    }
}
