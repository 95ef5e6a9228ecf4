//! Scripts that start their processes themselves: `mp.spawn(…)`, and `mp.Process(…)` in a loop, whose n-th
//! process is rank n. Every rank executes the script, and then the function of its own process.

use crate::dist::arguments as take;
use crate::process::state::{Run, process};
use starlark::environment::{Globals, GlobalsBuilder};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{DictRef, UnpackDictEntries};
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{FrozenValue, Value};

/// Adds the functions that [`Process::natives`](crate::process::state::Process::natives) finds by name.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    hidden(builder);
}

/// Globals that a program's functions look up: those that a program can name, and the one that starts it.
pub(crate) fn natives(globals: &Globals) -> Vec<(&'static str, FrozenValue)> {
    let named = globals.iter().filter_map(|(name, value)| {
        let hidden = ["_start", "_nothing", "_within"].into_iter().find(|known| *known == name);
        let known = NATIVES.iter().copied().find(|known| *known == name);
        Some((hidden.or(known)?, value))
    });
    named.collect()
}

/// Names that a program has without an import, and that Python's modules have as well.
const NATIVES: [&str; 13] = [
    "partial",
    "reduce",
    "struct",
    "torch",
    "nullcontext",
    "timedelta",
    "DDP",
    "DistributedDataParallel",
    "Join",
    "init_device_mesh",
    "DeviceMesh",
    "ReduceOp",
    "models",
];

/// The error for ranks that are started twice.
const TWICE: &str = "ranks are started twice; a program is one job";

#[starlark_module]
fn hidden(builder: &mut GlobalsBuilder) {
    /// `process.start()`.
    fn _start<'v>(
        target: Value<'v>,
        args: Value<'v>,
        kwargs: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let process = process(eval).map_err(native)?;
        let number = process.started;
        process.started += 1;
        if process.is_rank() {
            let rank = process.dist().map_err(native)?.process().0;
            if rank != number {
                return Ok(NoneType);
            }
            let given = take::items(args).unwrap_or_default();
            let named: Vec<(String, Value<'v>)> = match DictRef::from_value(kwargs) {
                Some(entries) => {
                    entries.iter().map(|(name, value)| (name.to_str(), value)).collect()
                }
                None => Vec::new(),
            };
            let named: Vec<(&str, Value<'v>)> =
                named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            return eval.eval_function(target, &given, &named).map(|_| NoneType);
        }
        let line = process.line;
        match &mut process.run {
            Some(_) if number == 0 => return Err(native(anyhow::anyhow!(TWICE))),
            Some(run) => run.world_size += 1,
            none => *none = Some(Run { line, world_size: 1, ..Run::default() }),
        }
        Ok(NoneType)
    }

    /// A method that does nothing here: `process.join()`.
    fn _nothing<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let _ = (args, kwargs);
        Ok(NoneType)
    }
}

/// `torch.multiprocessing`.
#[starlark_module]
pub(crate) fn multiprocessing(builder: &mut GlobalsBuilder) {
    /// Starts `nprocs` ranks that each call `fn(rank, *args)`, as `run` does.
    fn spawn<'v>(
        r#fn: Value<'v>,
        #[starlark(default = NoneType)] args: Value<'v>,
        #[starlark(default = 1)] nprocs: u32,
        #[starlark(kwargs)] options: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let _ = options;
        let heap = eval.heap();
        let process = process(eval).map_err(starlark::Error::new_native)?;
        if process.is_rank() {
            let rank = process.dist().map_err(starlark::Error::new_native)?.process().0;
            let mut arguments = vec![heap.alloc(rank)];
            arguments.extend(take::items(args).unwrap_or_default());
            return eval.eval_function(r#fn, &arguments, &[]).map(|_| NoneType);
        }
        if process.run.is_some() {
            return Err(starlark::Error::new_native(anyhow::anyhow!(TWICE)));
        }
        process.run = Some(Run { line: process.line, world_size: nprocs, ..Run::default() });
        Ok(NoneType)
    }

    /// A process that `start()` makes the next rank.
    fn Process<'v>(
        #[starlark(require = named)] target: Value<'v>,
        #[starlark(require = named, default = NoneType)] args: Value<'v>,
        #[starlark(require = named, default = NoneType)] kwargs: Value<'v>,
        #[starlark(kwargs)] options: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let _ = options;
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let process = process(eval).map_err(native)?;
        let function = |name| process.native(name).map(FrozenValue::to_value).map_err(native);
        let (nothing, make) = (function("_nothing")?, function("struct")?);
        let (partial, start) = (function("partial")?, function("_start")?);
        let start = eval.eval_function(partial, &[start, target, args, kwargs], &[])?;
        let zero = eval.heap().alloc(0);
        let others = ["join", "is_alive", "terminate", "kill", "close"].map(|name| (name, nothing));
        let named = [&[("start", start), ("exitcode", zero)], &others[..]].concat();
        eval.eval_function(make, &[], &named)
    }

    fn set_start_method<'v>(
        #[starlark(args)] method: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] options: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let _ = (method, options);
        Ok(NoneType)
    }

    /// The functions of `mp` again.
    fn get_context<'v>(
        #[starlark(default = NoneType)] method: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let _ = method;
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let heap = eval.heap();
        let torch = process(eval).and_then(|process| process.native("torch")).map_err(native)?;
        let own = torch.to_value().get_attr("multiprocessing", heap)?;
        own.ok_or_else(|| native(anyhow::anyhow!("torch has no multiprocessing")))
    }

    fn freeze_support() -> anyhow::Result<NoneType> {
        Ok(NoneType)
    }

    fn get_start_method() -> anyhow::Result<&'static str> {
        Ok("spawn")
    }
}
