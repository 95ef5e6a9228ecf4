//! The table of [`torch_calls`]: each call's text, and the same in Rust.

use super::torch_call::TorchCall;

macro_rules! call {
    ($name:literal, $about:literal, $backends:expr, $min:literal, $program:expr, $write:expr) => {
        TorchCall {
            name: $name,
            about: $about,
            backends: $backends,
            min_world_size: $min,
            count: 16,
            program: $program,
            write: $write,
        }
    };
}

mod backends;
mod collectives;
mod groups;
mod objects;
mod point_to_point;
mod together;
mod works;

const CALLS: &[TorchCall] = &joined::<COUNT>(&SECTIONS);

/// Every call, in the order of torch.distributed's documents.
pub fn torch_calls() -> &'static [TorchCall] {
    CALLS
}

/// The call of that name, if there is one.
pub fn torch_call(name: &str) -> Option<&'static TorchCall> {
    CALLS.iter().find(|call| call.name == name)
}

const SECTIONS: [&[TorchCall]; 6] = [
    &collectives::CALLS,
    &point_to_point::CALLS,
    &works::CALLS,
    &objects::CALLS,
    &together::CALLS,
    &groups::CALLS,
];

const COUNT: usize = collectives::CALLS.len()
    + point_to_point::CALLS.len()
    + works::CALLS.len()
    + objects::CALLS.len()
    + together::CALLS.len()
    + groups::CALLS.len();

/// One table of several, while compiling.
const fn joined<const N: usize>(sections: &[&[TorchCall]]) -> [TorchCall; N] {
    let mut all = [sections[0][0]; N];
    let (mut section, mut next) = (0, 0);
    while section < sections.len() {
        let mut one = 0;
        while one < sections[section].len() {
            all[next] = sections[section][one];
            (one, next) = (one + 1, next + 1);
        }
        section += 1;
    }
    all
}
