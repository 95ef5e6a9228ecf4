//! Python's exceptions, and torch's own, as what `raise` says.

use super::shown;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, Value};

/// `class: text`, as the last line of Python's traceback has it.
fn exception<'v>(class: &str, args: &UnpackTuple<Value<'v>>, heap: Heap<'v>) -> String {
    match args.items[..] {
        [] => class.to_owned(),
        // A key is shown as it is written.
        [one] if class == "KeyError" => format!("{class}: {}", shown::repr(one, heap)),
        [one] => format!("{class}: {}", shown::text(one, heap)),
        ref several => {
            let texts: Vec<String> = several.iter().map(|arg| shown::repr(*arg, heap)).collect();
            format!("{class}: ({})", texts.join(", "))
        }
    }
}

#[starlark_module]
fn python(builder: &mut GlobalsBuilder) {
    fn Exception<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("Exception", &args, heap))
    }

    fn RuntimeError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("RuntimeError", &args, heap))
    }

    fn ValueError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("ValueError", &args, heap))
    }

    fn KeyError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("KeyError", &args, heap))
    }

    fn StopIteration<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("StopIteration", &args, heap))
    }

    fn SystemExit<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("SystemExit", &args, heap))
    }

    fn TypeError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("TypeError", &args, heap))
    }

    fn IndexError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("IndexError", &args, heap))
    }

    fn AssertionError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("AssertionError", &args, heap))
    }

    fn AttributeError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("AttributeError", &args, heap))
    }

    fn NotImplementedError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("NotImplementedError", &args, heap))
    }

    fn ArithmeticError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("ArithmeticError", &args, heap))
    }

    fn ZeroDivisionError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("ZeroDivisionError", &args, heap))
    }

    fn OverflowError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("OverflowError", &args, heap))
    }

    fn MemoryError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("MemoryError", &args, heap))
    }

    fn TimeoutError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("TimeoutError", &args, heap))
    }

    fn ConnectionError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("ConnectionError", &args, heap))
    }

    fn OSError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("OSError", &args, heap))
    }

    fn IOError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("OSError", &args, heap))
    }

    fn FileNotFoundError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("FileNotFoundError", &args, heap))
    }

    fn ImportError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("ImportError", &args, heap))
    }

    fn KeyboardInterrupt<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("KeyboardInterrupt", &args, heap))
    }
}

#[starlark_module]
fn torch(builder: &mut GlobalsBuilder) {
    fn OutOfMemoryError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<String> {
        Ok(exception("torch.OutOfMemoryError", &args, heap))
    }
}

/// Adds Python's.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    python(builder);
}

/// Adds torch's own, which are `torch.OutOfMemoryError` and the same of `torch.cuda`.
pub(super) fn of_torch(builder: &mut GlobalsBuilder) {
    torch(builder);
}
