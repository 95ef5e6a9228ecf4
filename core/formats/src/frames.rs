//! Stacks: which frame is the user's own.

use lockstep_core::trace::Frame;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Directories of libraries: a file below one of them is not the user's code.
const LIBRARIES: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/lib/python", "\\site-packages\\", "<frozen"];
/// The contents of PyTorch's own folder `torch` (2.7.1's), wherever that was built or put, without names that
/// begin with `_`, and without folders that have no Python: a job in a folder of that name is not PyTorch.
const OF_TORCH: [&str; 48] = [
    "accelerator",
    "amp",
    "ao",
    "autograd",
    "backends",
    "compiler",
    "contrib",
    "cpu",
    "cuda",
    "distributed",
    "distributions",
    "export",
    "fft",
    "func",
    "functional.py",
    "futures",
    "fx",
    "hub.py",
    "jit",
    "library.py",
    "linalg",
    "masked",
    "monitor",
    "mps",
    "mtia",
    "multiprocessing",
    "nested",
    "nn",
    "onnx",
    "optim",
    "overrides.py",
    "package",
    "profiler",
    "quantization",
    "quasirandom.py",
    "random.py",
    "return_types.py",
    "serialization.py",
    "signal",
    "sparse",
    "special",
    "storage.py",
    "testing",
    "torch_version.py",
    "types.py",
    "utils",
    "version.py",
    "xpu",
];

/// Tells files of libraries from the user's code, by the paths of one stack.
///
/// A process has one PyTorch: if a stack shows for certain in which `torch` folder that is, another folder of
/// that name is the job's, whatever its files are called, and PyTorch's need no known names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Libraries<'a> {
    /// The folder of PyTorch, as far as the paths show it: `/opt/pytorch/torch/`.
    torch: Option<&'a str>,
}

impl<'a> Libraries<'a> {
    /// The folders that the paths of one stack show.
    pub(crate) fn of(paths: impl Iterator<Item = &'a str> + Clone) -> Libraries<'a> {
        let mut found: Option<(Sure, &str)> = None;
        // Folders with a file that PyTorch has not, as `torch/train.py`.
        let jobs: BTreeSet<&str> = paths
            .clone()
            .filter_map(|path| {
                let (folder, file) = path.split_at(path.rfind(['/', '\\'])? + 1);
                (!file.starts_with('_') && !OF_TORCH.contains(&file)).then_some(folder)
            })
            .collect();
        for (sure, folder) in paths.filter_map(folder_of_torch) {
            if sure == Sure::ByName && jobs.contains(folder) {
                continue;
            }
            if found.is_none_or(|(known, _)| sure > known) {
                found = Some((sure, folder));
            }
        }
        Libraries { torch: found.map(|(_, folder)| folder) }
    }

    /// True for a file of Python's own, of PyTorch, or of an installed package.
    pub(crate) fn hold(self, path: &str) -> bool {
        // PyTorch's wrappers go through it, and it lies beside PyTorch.
        path.ends_with("typing_extensions.py")
            || is_installed(path)
            || self.torch.is_some_and(|folder| path.starts_with(folder))
    }
}

/// The certainty that a folder `torch` is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sure {
    /// Something in it is called as in PyTorch.
    ByName,
    /// It has a file that every stack through PyTorch's calls has.
    ByFile,
    /// The file is among installed packages.
    Installed,
}

/// The frames that are not inside PyTorch or another library, innermost first.
pub fn own_frames(stack: &[Frame]) -> impl Iterator<Item = &Frame> {
    let libraries = Libraries::of(stack.iter().map(|frame| frame.file.as_str()));
    stack.iter().filter(move |frame| !libraries.hold(&frame.file))
}

/// The innermost frame that is not inside PyTorch or another library, or the innermost of all if
/// every frame is.
pub fn user_frame(stack: &[Frame]) -> Option<&Frame> {
    own_frames(stack).next().or_else(|| stack.first())
}

/// A part of a stack as its reader wants it: a line of the user's code, or what libraries do between two of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackPart {
    /// True of the user's code, which is one frame; false of neighbouring frames of PyTorch and other libraries.
    pub own: bool,
    /// The frames, innermost first: `/job/train.py:88 in step`.
    pub frames: Vec<String>,
}

/// The parts of a stack's innermost frames, innermost first. A stack without any frame of the user's is one part.
pub fn stack_parts(stack: &[Frame]) -> Vec<StackPart> {
    let libraries = Libraries::of(stack.iter().map(|frame| frame.file.as_str()));
    let stack = stack.get(..MOST_FRAMES).unwrap_or(stack);
    let own = |frame: &Frame| !libraries.hold(&frame.file);
    let parts = stack.chunk_by(|a, b| !own(a) && !own(b));
    let part = |frames: &[Frame]| StackPart {
        own: frames.first().is_some_and(own),
        frames: frames.iter().map(frame_text).collect(),
    };
    parts.map(part).collect()
}

fn frame_text(frame: &Frame) -> String {
    let Frame { file, line, function } = frame;
    let inside = if function.is_empty() { "" } else { " in " };
    format!("{file}:{line}{inside}{function}")
}

fn is_installed(path: &str) -> bool {
    LIBRARIES.iter().any(|library| path.contains(library))
}

/// The folder `torch` on a file's path that may be PyTorch's, which need not be installed: it may be a
/// checkout.
fn folder_of_torch(path: &str) -> Option<(Sure, &str)> {
    let separator = ['/', '\\'];
    path.match_indices("torch").find_map(|(at, name)| {
        let (before, below) = (path.get(..at)?, path.get(at + name.len()..)?);
        let below = below.strip_prefix(separator)?;
        if !before.is_empty() && !before.ends_with(separator) {
            return None;
        }
        let mut parts = below.split(separator);
        let (first, second) = (parts.next()?, parts.next());
        let sure = match (first, second) {
            (first, _) if !first.starts_with('_') && !OF_TORCH.contains(&first) => return None,
            _ if is_installed(before) => Sure::Installed,
            ("autograd", _)
            | ("nn", Some("modules"))
            | ("distributed", Some("c10d_logger.py" | "distributed_c10d.py")) => Sure::ByFile,
            _ => Sure::ByName,
        };
        Some((sure, path.get(..path.len() - below.len())?))
    })
}

/// `train.py:88`: the last part of the file's path, and the line.
pub fn short_frame(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}

/// A stack as one text, as PyTorch's profiler writes it: `model.py(12): forward;train.py(88): main`.
pub(crate) fn stack_text(stack: &[Frame]) -> String {
    // The character that separates frames is in no sensible path.
    let plain = |text: &str| text.replace(';', ",");
    let frames = stack
        .iter()
        .map(|frame| format!("{}({}): {}", plain(&frame.file), frame.line, plain(&frame.function)));
    frames.collect::<Vec<_>>().join(";")
}

/// Stacks that were read from such texts, each once: thousands of calls have the same.
#[derive(Debug, Default)]
pub(crate) struct StackTexts(BTreeMap<String, Arc<[Frame]>>);

impl StackTexts {
    /// The stack of a text; parts that are no frame are left out.
    pub(crate) fn read(&mut self, text: &str) -> Arc<[Frame]> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let frames = text.trim_matches('"').split(';').filter_map(frame_of);
        let stack: Arc<[Frame]> = frames.take(MOST_FRAMES).collect();
        self.0.insert(text.to_owned(), Arc::clone(&stack));
        stack
    }
}

/// Deeper stacks are cut.
const MOST_FRAMES: usize = 256;

/// The frame of `train.py(88): main`.
fn frame_of(text: &str) -> Option<Frame> {
    let (place, function) = text.trim().split_once("): ")?;
    let (file, line) = place.rsplit_once('(')?;
    let (file, function) = (file.to_owned(), function.to_owned());
    Some(Frame { function, file, line: line.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_survives_its_text() {
        let frame = |file: &str, line, function: &str| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        };
        let stack =
            [frame("/job (1)/model.py", 12, "<lambda>"), frame("C:\\job\\train.py", 88, "main")];
        let mut texts = StackTexts::default();
        let text = stack_text(&stack);
        assert_eq!(*texts.read(&text), stack);
        assert!(Arc::ptr_eq(&texts.read(&text), &texts.read(&text)));
        // As the profiler writes it: in quotes, and with a separator behind the last.
        let written = format!("\"{text};\"");
        assert_eq!(*texts.read(&written), stack);
        for none in ["", ";;", "train.py", "train.py(x): main", "train.py(88)"] {
            assert!(texts.read(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn what_libraries_do_is_one_part() {
        let frame =
            |file: &str, line| Frame { function: "f".to_owned(), file: file.to_owned(), line };
        let torch = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py";
        let stack = [
            frame(torch, 1),
            frame(torch, 2),
            frame("model.py", 3),
            frame("train.py", 4),
            frame(torch, 5),
        ];
        let part = |own, frames: &[&str]| StackPart {
            own,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        };
        let inside = |line: u32| format!("{torch}:{line} in f");
        assert_eq!(
            stack_parts(&stack),
            [
                part(false, &[&inside(1), &inside(2)]),
                part(true, &["model.py:3 in f"]),
                part(true, &["train.py:4 in f"]),
                part(false, &[&inside(5)]),
            ]
        );
        assert_eq!(stack_parts(&stack[..2]), [part(false, &[&inside(1), &inside(2)])]);
        assert_eq!(stack_parts(&[]), []);
    }

    fn holds(path: &str) -> bool {
        Libraries::of([path].into_iter()).hold(path)
    }

    #[test]
    fn pytorch_is_known_wherever_it_lies() {
        for library in [
            "/usr/lib/python3.11/threading.py",
            "/opt/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py",
            "/home/me/pytorch/torch/distributed/distributed_c10d.py",
            "/home/me/pytorch/torch/serialization.py",
            "/home/me/pytorch/torch/_subclasses/fake_tensor.py",
            "/home/torch/torch/profiler/profiler.py",
            "C:\\py\\torch\\_tensor.py",
            "torch/autograd/graph.py",
            "<frozen importlib._bootstrap>",
            "/opt/libraries/typing_extensions.py",
        ] {
            assert!(holds(library), "{library}");
        }
        for own in ["/home/torch/train.py", "/srv/torch/model/net.py", "train.py", "torch/train.py"]
        {
            assert!(!holds(own), "{own}");
        }
    }

    /// The line of a stack, innermost file first, that is the job's own.
    fn own_of(files: &[&str]) -> String {
        let frame = |(file, line): (&&str, u32)| Frame {
            function: "f".to_owned(),
            file: (*file).to_owned(),
            line,
        };
        let stack: Vec<Frame> = files.iter().zip(1..).map(frame).collect();
        short_frame(user_frame(&stack).unwrap())
    }

    #[test]
    fn a_folder_of_the_jobs_is_none_of_pytorchs_where_that_lies_elsewhere() {
        let job = ["/srv/torch/utils/data.py", "/srv/torch/train.py"];
        // Nor where PyTorch is not seen, and a file in it is none of PyTorch's.
        let numpy = "/opt/venv/lib/python3.11/site-packages/numpy/lib/npyio.py";
        assert_eq!(own_of(&[numpy, job[0], job[1]]), "data.py:2");
        for pytorch in [
            "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py",
            "/opt/pytorch/torch/distributed/distributed_c10d.py",
            "/opt/pytorch/torch/nn/modules/module.py",
        ] {
            let [data, train] = job;
            assert_eq!(own_of(&[pytorch, data, train]), "data.py:2", "{pytorch}");
            // PyTorch may as well call the job, as a hook.
            assert_eq!(own_of(&[data, pytorch, train]), "data.py:1", "{pytorch}");
        }
    }

    #[test]
    fn what_lies_beside_pytorch_needs_no_known_name() {
        let c10d = "/opt/pytorch/torch/distributed/c10d_logger.py";
        assert_eq!(
            own_of(&[c10d, "/opt/pytorch/torch/new.py", "/opt/pytorch/train.py"]),
            "train.py:3"
        );
    }
}
