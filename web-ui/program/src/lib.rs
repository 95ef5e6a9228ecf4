//! Executes programs for the page. Starlark weighs as much as the page itself, so that it is a
//! module of its own, fetched by `assets/program.js` when the first program is opened.

use lockstep_program::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};
use wasm_bindgen::prelude::wasm_bindgen;

/// A program's path, its text, and what is said about it from outside.
type Question = (String, String, Options);

/// Answers a question in postcard with an answer in postcard: what came of the program, or what is
/// wrong with it. `None` to what is no question.
#[wasm_bindgen]
pub fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let (path, text, options): Question = postcard::from_bytes(question).ok()?;
    let answer: Result<Compiled, ProgramError> = compile(&path, &text, &options);
    postcard::to_stdvec(&answer).ok()
}
