//! Stacks: which frame is the user's own.

use crate::trace::Frame;

/// Directories of libraries: a file below one of them is not the user's code.
const LIBRARIES: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/lib/python", "\\site-packages\\", "<frozen"];
/// What lies in PyTorch's own folder `torch`, wherever that was built or put: a job in a folder of that
/// name is not PyTorch.
const OF_TORCH: [&str; 28] = [
    "_C",
    "_compile.py",
    "_dynamo",
    "_functorch",
    "_higher_order_ops",
    "_inductor",
    "_jit_internal.py",
    "_library",
    "_ops.py",
    "_tensor.py",
    "_utils.py",
    "_utils_internal.py",
    "amp",
    "ao",
    "autograd",
    "compiler",
    "cuda",
    "distributed",
    "export",
    "func",
    "functional.py",
    "fx",
    "jit",
    "multiprocessing",
    "nn",
    "optim",
    "random.py",
    "utils",
];

/// The innermost frame that is not inside PyTorch or another library, or the innermost of all if
/// every frame is.
pub fn user_frame(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().find(|frame| !is_library(&frame.file)).or_else(|| stack.first())
}

/// True of a file of Python's own, of PyTorch, or of what was installed.
pub(crate) fn is_library(path: &str) -> bool {
    // PyTorch's wrappers go through it, and it lies beside PyTorch.
    path.ends_with("typing_extensions.py")
        || LIBRARIES.iter().any(|library| path.contains(library))
        || is_torch(path)
}

/// True of a file of PyTorch's, which need not be installed: it may be a checkout.
fn is_torch(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    let mut below = false;
    parts.any(|part| {
        let known = below && OF_TORCH.contains(&part);
        below = part == "torch";
        known
    })
}

/// `train.py:88`: the last part of the file's path, and the line.
pub fn short_frame(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorch_is_known_wherever_it_lies() {
        for library in [
            "/usr/lib/python3.11/threading.py",
            "/opt/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py",
            "/home/me/pytorch/torch/distributed/distributed_c10d.py",
            "C:\\py\\torch\\_tensor.py",
            "torch/autograd/graph.py",
            "<frozen importlib._bootstrap>",
            "/opt/libraries/typing_extensions.py",
        ] {
            assert!(is_library(library), "{library}");
        }
        for own in ["/home/torch/train.py", "/srv/torch/model/net.py", "train.py", "torch/train.py"]
        {
            assert!(!is_library(own), "{own}");
        }
    }
}
