//! Stacks: which frame is the user's own.

use crate::trace::Frame;

/// Directories of libraries: a frame below one of them is not the user's code.
const LIBRARIES: [&str; 7] = [
    "/torch/",
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "\\torch\\",
    "\\site-packages\\",
    "<frozen",
];

/// The innermost frame that is not inside PyTorch or another library, or the innermost of all if
/// every frame is.
pub fn user_frame(stack: &[Frame]) -> Option<&Frame> {
    let own = |frame: &&Frame| {
        !LIBRARIES.iter().any(|library| frame.file.contains(library))
            && !frame.file.starts_with("torch/")
    };
    stack.iter().find(own).or_else(|| stack.first())
}

/// `train.py:88`: the last part of the file's path, and the line.
pub fn short_frame(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}
