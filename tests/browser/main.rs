//! The four uses of Lockstep, on the real page in headless Chromium against the real binary; and that the
//! browser simulates the same bytes as we do.
//!
//! Elements that the tests look at have a `data-test` attribute in the page. `LOCKSTEP_SCREENSHOTS=FOLDER`
//! keeps a picture of each use.

mod every_view;
mod files;
mod gallery;
mod learn;
mod runs;
mod step;
mod whole;
mod workbench;
