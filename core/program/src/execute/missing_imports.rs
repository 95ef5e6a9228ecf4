//! An import that is not known here: a value that may lie there unused, as in scripts that import
//! more than they need, and is refused where something is done with it.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::process::raised::Raised;
use crate::process::state::process;
use crate::process::undecided::{Decided, Unknown};
use allocative::Allocative;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::cmp::Ordering;
use std::fmt;

/// A module, or something of one.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct AbsentValue {
    /// Its whole name: `numpy.zeros`.
    path: String,
    /// The line of the import.
    line: u32,
    /// The interpreter's words about a name that nothing has given a value to.
    unknown: Option<String>,
    #[allocative(skip)]
    decided: Decided,
}
starlark_simple_value!(AbsentValue);

/// Transforms that leave pictures their shape: a data set of a known shape may have them.
const OF_ONE_SHAPE: [&str; 7] = [
    "Compose",
    "ToTensor",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "RandomRotation",
    "ColorJitter",
];

/// The advice in place of a module's contents.
const INSTEAD: [(&str, &str); 13] = [
    ("numpy", "There is no numpy: make tensors with tensor(numel)."),
    ("subprocess", "A program starts nothing: run(main, world_size = 4) starts its ranks."),
    ("threading", "A rank has one thread; a call with async_op = True goes on beside it."),
    ("pickle", "json.dumps(x).encode() makes bytes; object calls take x itself."),
    ("dataclasses", "Keep what belongs together in a dict or struct(...)."),
    ("tempfile", "A program has no files: torch.save writes none, and needs no name of one."),
    ("pathlib", "A program has no files."),
    (
        "torch.utils.data",
        "There are TensorDataset, DataLoader and distributed.DistributedSampler; or write the loop \
         over the batches: for step in range(10): model(torch.randn(32, 10)).",
    ),
    (
        "torchvision.transforms",
        "A transform may change the shape of pictures, which is not followed: torch.randn(32, 3, 224, \
         224) is a batch of them, and datasets.FakeData(1000, (3, 224, 224)) a data set.",
    ),
    ("torchvision", "There are no images: torch.randn(32, 3, 224, 224) is a batch of them."),
    ("random", "Random numbers are others on every rank and in every run: write one."),
    ("torch.nn", "Models: models.mlp([784, 256, 10]), or one that ships (docs/programs.md)."),
    (
        "torch",
        "docs/programs.md lists what a program has. What only computes can be left out: \
      compute(\"loss\", us = 50) takes the time that it would.",
    ),
];

/// Functions of modules that are not known here which change no call: settings, seeds, collections of garbage.
const SETTINGS: [&str; 10] = [
    "faulthandler.enable",
    "gc.collect",
    "gc.disable",
    "gc.enable",
    "gc.freeze",
    "numpy.random.seed",
    "random.seed",
    "warnings.filterwarnings",
    "warnings.simplefilter",
    "warnings.warn",
];

/// Functions of such modules that answer with a text which only the machine knows.
const OF_THE_MACHINE: [&str; 9] = [
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "getpass.getuser",
    "platform.node",
    "platform.platform",
    "socket.getfqdn",
    "socket.gethostname",
];

impl AbsentValue {
    /// A name that nothing has assigned: it may be in code that is never reached.
    pub(crate) fn unknown(name: &str, said: &str, decided: &Decided) -> AbsentValue {
        let (path, unknown) = (name.to_owned(), Some(said.to_owned()));
        AbsentValue { path, line: 0, unknown, decided: decided.clone() }
    }

    /// The reason that nothing can be done with it.
    pub(crate) fn why(&self) -> String {
        if let Some(said) = &self.unknown {
            return said.clone();
        }
        format!("{} is not known here (line {} imports it)", self.path, self.line)
    }

    fn refused<T>(&self) -> starlark::Result<T> {
        Err(starlark::Error::new_native(anyhow::anyhow!(self.why())))
    }
}

/// The advice, where a message says that something is not known here.
pub(crate) fn instead(message: &str) -> Option<&'static str> {
    let (path, _) = message.split_once(" is not known here (line ")?;
    let of = |module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    INSTEAD.iter().find(|(module, _)| of(module)).map(|(_, help)| *help)
}

impl fmt::Display for AbsentValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}: not known here>", self.path)
    }
}

#[starlark_value(type = "absent")]
impl<'v> StarlarkValue<'v> for AbsentValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let path = format!("{}.{attribute}", self.path);
        (path.len() < 1000).then(|| heap.alloc(AbsentValue { path, ..self.clone() }))
    }

    fn has_attr(&self, _attribute: &str, _heap: Heap<'v>) -> bool {
        true
    }

    fn invoke(
        &self,
        me: Value<'v>,
        _args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let transform = self.path.strip_prefix("torchvision.transforms.");
        if transform.is_some_and(|name| OF_ONE_SHAPE.contains(&name)) {
            return Ok(me);
        }
        if SETTINGS.contains(&self.path.as_str()) {
            return Ok(Value::new_none());
        }
        if OF_THE_MACHINE.contains(&self.path.as_str()) {
            let process = process(eval).map_err(starlark::Error::new_native)?;
            let answer = process.unknown(Unknown::Text);
            return Ok(eval.heap().alloc(answer));
        }
        self.refused()
    }

    // It may not fail, so the process is told, and refuses before anything else happens.
    fn to_bool(&self) -> bool {
        self.decided.by(&self.why());
        false
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        // `if np is None` asks whether the import has worked.
        if other.is_none() { Ok(false) } else { self.refused() }
    }

    fn compare(&self, _other: Value<'v>) -> starlark::Result<Ordering> {
        self.refused()
    }

    fn length(&self) -> starlark::Result<i32> {
        self.refused()
    }

    fn at(&self, _index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.refused()
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        self.refused()
    }

    fn is_in(&self, _other: Value<'v>) -> starlark::Result<bool> {
        self.refused()
    }

    fn add(&self, _rhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.refused())
    }

    fn radd(&self, _lhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.refused())
    }

    fn mul(&self, _rhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.refused())
    }

    fn rmul(&self, _lhs: Value<'v>, _heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.refused())
    }

    fn sub(&self, _other: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.refused()
    }

    fn div(&self, _other: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.refused()
    }
}

/// Passes if a value can be shown; a value that is not known cannot.
pub(crate) fn shown(value: Value<'_>) -> anyhow::Result<()> {
    match value.downcast_ref::<AbsentValue>() {
        Some(absent) => Err(anyhow::anyhow!(absent.why())),
        None => Ok(()),
    }
}

/// True if a decorator has no effect here: the one with which torchrun records errors.
pub(crate) fn changes_nothing(decorator: Value<'_>) -> bool {
    let of = decorator.downcast_ref::<AbsentValue>();
    of.is_some_and(|of| of.path == "torch.distributed.elastic.multiprocessing.errors.record")
}

/// Adds the function that an import is rewritten to.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

/// The modules of Python's own, `sys.stdlib_module_names` of CPython 3.12 without those that begin with
/// `_`, a line each: that one is not known here does not say that it is not there.
const STANDARD: &str = include_str!("standard.txt");
/// PyTorch's modules.
const OF_PYTORCH: [&str; 2] = ["torch", "torchvision"];

fn comes_along(root: &str) -> bool {
    OF_PYTORCH.contains(&root) || STANDARD.lines().any(|own| own == root)
}

/// The words about a module that was taken not to be there.
const NOT_INSTALLED: &str = "this import was taken to raise ImportError: of modules that come with \
                             neither Python nor PyTorch, none is known here";

fn imported<'v>(
    module: Value<'v>,
    path: &str,
    name: &str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let mut found = (!module.is_none()).then_some(module);
    for part in path.split('.').filter(|part| !part.is_empty()) {
        found = match found {
            Some(of) => of.get_attr(part, heap)?,
            None => None,
        };
    }
    if let Some(found) = found {
        return Ok(found);
    }
    let process = process(eval).map_err(starlark::Error::new_native)?;
    let own = name.rsplit('.').next().unwrap_or(name);
    // Other libraries have classes of PyTorch's names: they are not PyTorch's.
    let others = own == "DistributedDataParallel" && !name.starts_with("torch.");
    if module.is_none()
        && !others
        && let Some((_, value)) = process.natives.iter().find(|(known, _)| *known == own)
    {
        return Ok(value.to_value());
    }
    let (line, decided) = (process.line, process.decided.clone());
    Ok(heap.alloc(AbsentValue { path: name.to_owned(), line, unknown: None, decided }))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The value that an import binds: `path` of `module`, which is called `name` in full; `builtin` for
    /// names that a program has anyway; otherwise a value that stands for an unknown import.
    fn _imported<'v>(
        #[starlark(require = pos)] module: Value<'v>,
        #[starlark(require = pos)] path: &str,
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        imported(module, path, name, eval)
    }

    /// The value that an import in a `try` binds; its module may be missing.
    fn _import_tried<'v>(
        #[starlark(require = pos)] module: Value<'v>,
        #[starlark(require = pos)] path: &str,
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let value = imported(module, path, name, eval)?;
        let root = name.split('.').next().unwrap_or(name);
        if value.downcast_ref::<AbsentValue>().is_none() || comes_along(root) {
            return Ok(value);
        }
        let process = process(eval).map_err(starlark::Error::new_native)?;
        process.assumes(NOT_INSTALLED);
        let text = format!("ModuleNotFoundError: No module named '{root}'");
        let raised = Raised { text, help: None };
        Err(starlark::Error::new_native(anyhow::Error::new(raised)))
    }
}
