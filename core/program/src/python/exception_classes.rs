//! The classes of Python's exceptions and of torch's own, each with the one above it.

/// Python's, each with the one above it.
pub(crate) const PYTHONS: [(&str, &str); 36] = [
    ("BaseException", ""),
    ("Exception", "BaseException"),
    ("KeyboardInterrupt", "BaseException"),
    ("SystemExit", "BaseException"),
    ("GeneratorExit", "BaseException"),
    ("RuntimeError", "Exception"),
    ("NotImplementedError", "RuntimeError"),
    ("RecursionError", "RuntimeError"),
    ("ValueError", "Exception"),
    ("UnicodeDecodeError", "ValueError"),
    ("UnicodeEncodeError", "ValueError"),
    ("LookupError", "Exception"),
    ("KeyError", "LookupError"),
    ("IndexError", "LookupError"),
    ("StopIteration", "Exception"),
    ("TypeError", "Exception"),
    ("AssertionError", "Exception"),
    ("AttributeError", "Exception"),
    ("NameError", "Exception"),
    ("UnboundLocalError", "NameError"),
    ("ArithmeticError", "Exception"),
    ("ZeroDivisionError", "ArithmeticError"),
    ("OverflowError", "ArithmeticError"),
    ("MemoryError", "Exception"),
    ("ImportError", "Exception"),
    ("ModuleNotFoundError", "ImportError"),
    ("EOFError", "Exception"),
    ("BufferError", "Exception"),
    ("OSError", "Exception"),
    ("TimeoutError", "OSError"),
    ("ConnectionError", "OSError"),
    ("ConnectionRefusedError", "ConnectionError"),
    ("FileNotFoundError", "OSError"),
    ("FileExistsError", "OSError"),
    ("PermissionError", "OSError"),
    ("Warning", "Exception"),
];

/// Python's other names for `OSError`.
pub(crate) const OF_SYSTEM: [&str; 2] = ["IOError", "EnvironmentError"];

/// torch's own, by their whole names.
pub(crate) const TORCHS: [(&str, &str); 6] = [
    ("torch.OutOfMemoryError", "RuntimeError"),
    ("torch.distributed.DistError", "RuntimeError"),
    ("torch.distributed.DistBackendError", "torch.distributed.DistError"),
    ("torch.distributed.DistNetworkError", "torch.distributed.DistError"),
    ("torch.distributed.DistStoreError", "torch.distributed.DistError"),
    ("torch.distributed.QueueEmptyError", "torch.distributed.DistStoreError"),
];

/// Classes above each other that are looked through.
const MAX_DEPTH: usize = 16;

/// The base class of an exception class; `None` if the name is not that of an exception.
fn above(class: &str) -> Option<&'static str> {
    let mut all = PYTHONS.iter().chain(&TORCHS);
    all.find(|(own, _)| *own == class).map(|(_, above)| *above)
}

/// A class of exceptions as it is named here.
pub(crate) fn named(class: &str) -> Option<&'static str> {
    let mut all = PYTHONS.iter().chain(&TORCHS);
    all.find(|(own, _)| *own == class).map(|(own, _)| *own)
}

/// True if a name is that of an exception class.
pub(crate) fn is_class(name: &str) -> bool {
    named(name).is_some() || OF_SYSTEM.contains(&name)
}

/// True if an exception class is `of` or a subclass of it, by name.
pub(crate) fn is_below(class: &str, of: &str) -> bool {
    let of = if OF_SYSTEM.contains(&of) { "OSError" } else { of };
    let mut own = class;
    for _ in 0..MAX_DEPTH {
        if own == of {
            return true;
        }
        match above(own) {
            Some(next) => own = next,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_of_the_classes_above_them() {
        for (own, of, is) in [
            ("KeyError", "LookupError", true),
            ("KeyError", "Exception", true),
            ("FileNotFoundError", "IOError", true),
            ("torch.distributed.DistStoreError", "RuntimeError", true),
            ("KeyboardInterrupt", "Exception", false),
            ("SystemExit", "BaseException", true),
            ("ValueError", "RuntimeError", false),
            ("MyError", "Exception", false),
        ] {
            assert_eq!(is_below(own, of), is, "{own} {of}");
        }
        for (own, above) in PYTHONS.iter().chain(&TORCHS) {
            assert!(above.is_empty() || super::above(above).is_some(), "{own}");
        }
    }
}
