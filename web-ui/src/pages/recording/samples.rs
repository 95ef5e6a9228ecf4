//! Real recordings that ship with the page, fetched when somebody asks for one.

use crate::dom;
use crate::route::{Route, View};
use js_sys::{Array, ArrayBuffer, Uint8Array};
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, Response};

/// A recording that ships: an archive of its files beside the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pages) struct Sample {
    /// The word in the address, and the archive's name.
    id: &'static str,
    pub(in crate::pages) title: &'static str,
}

/// The samples, one a line: id, folder in the repository, title. `cargo xtask web` packs the folders.
const LISTED: &str = include_str!("../../../samples.txt");

/// The parameter of an address that opens a sample.
pub(crate) const PARAMETER: &str = "sample";

/// The recordings that ship.
pub(in crate::pages) fn samples() -> impl Iterator<Item = Sample> {
    LISTED.lines().filter_map(|line| {
        let mut fields = line.split(" | ");
        let (id, _folder, title) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Sample { id, title })
    })
}

impl Sample {
    /// The sample that an address names.
    pub(super) fn named(id: &str) -> Option<Sample> {
        samples().find(|sample| sample.id == id)
    }

    /// The address that opens it.
    pub(in crate::pages) fn route(self) -> Route {
        Route::to(View::Recording).with(PARAMETER, self.id)
    }

    /// Fetches its archive.
    ///
    /// # Errors
    /// When it is not there, or the connection breaks, in a sentence.
    pub(super) async fn fetch(self) -> Result<File, String> {
        let name = format!("{}.tar", self.id);
        let why = |error| format!("The sample could not be fetched: {}.", dom::words_of(&error));
        let asked = dom::window().fetch_with_str(&format!("samples/{name}"));
        let response: Response = JsFuture::from(asked).await.map_err(why)?.unchecked_into();
        if !response.ok() {
            return Err(format!(
                "The sample is not there: the server answered {}.",
                response.status()
            ));
        }
        let bytes = JsFuture::from(response.array_buffer().map_err(why)?).await.map_err(why)?;
        let parts = Array::of1(&Uint8Array::new(&bytes.unchecked_into::<ArrayBuffer>()));
        File::new_with_u8_array_sequence(&parts, &name).map_err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_sample_that_its_address_opens() {
        assert_eq!(samples().count(), LISTED.lines().count());
        for sample in samples() {
            let route = sample.route();
            assert_eq!(route.get(PARAMETER).and_then(Sample::named), Some(sample));
        }
    }
}
