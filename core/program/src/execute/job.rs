//! The functions of a program besides PyTorch: `run`, `tensor`, `compute`, `sleep`, `die`, and the functions
//! that the rewritten Python calls.

#![allow(clippy::too_many_arguments, reason = "the language's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::{DurationValue, TensorValue};
use crate::process::raised::Raised;
use crate::process::state::{Run, process};
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::type_error::{class_of, type_error};
use crate::python::with_statement::{entered, left};
use crate::python::{numbers, value_text};
use crate::tensor::made;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::dict::{DictRef, UnpackDictEntries};
use starlark::values::none::NoneType;
use starlark::values::tuple::{TupleRef, UnpackTuple};

/// The longest time that a program can name, in seconds: an hour less than 64 bits of picoseconds can count.
const MAX_SECONDS: f64 = 5_000_000.0;

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    python(builder);
    crate::stores::python(builder);
    crate::python::int_and_bytes::add(builder);
    crate::python::add(builder);
    crate::python::exceptions::add(builder);
    crate::python::try_statement::add(builder);
    crate::python::collections::add(builder);
    crate::python::subscript::add(builder);
    crate::python::augmented_assignment::add(builder);
    crate::tensor::products::add(builder);
    crate::python::itertools::add(builder);
    crate::python::generators::add(builder);
    crate::python::iterators::add(builder);
    crate::dist::mesh_ranks::add(builder);
    crate::execute::launched_processes::add(builder);
    crate::python::process_exit::add(builder);
    crate::python::process_exit::add_signals(builder);
    crate::execute::missing_imports::add(builder);
    crate::classes::construction::add(builder);
    crate::python::argparse::add(builder);
    crate::python::standard_library::add(builder);
    crate::python::logging::add(builder);
    crate::dist::held_works::add(builder);
    crate::classes::operators::add(builder);
    crate::classes::special_methods::add(builder);
    crate::python::with_statement::add(builder);
    durations(builder);
    // By a second name where an import gives the first to something in it.
    for name in ["time", "_time"] {
        builder.namespace(name, |builder| {
            clock(builder);
        });
    }
    for name in ["datetime", "_datetime"] {
        builder.namespace(name, |builder| {
            timedelta(builder);
        });
    }
    timedelta(builder);
    crate::python::environ::add(builder);
    crate::python::json::add(builder);
    builder.set("__name__", "__main__");
}

/// Nanoseconds of `ns=`, `us=`, `ms=` or `s=`.
fn nanoseconds<'v>(
    ns: Value<'v>,
    us: Value<'v>,
    ms: Value<'v>,
    s: Value<'v>,
) -> anyhow::Result<u64> {
    let mut total = 0.0;
    let mut given = false;
    for (value, unit) in [(ns, 1e-9), (us, 1e-6), (ms, 1e-3), (s, 1.0)] {
        if !value.is_none() {
            total += numbers::number(value, "a duration")? * unit;
            given = true;
        }
    }
    anyhow::ensure!(given, "say how long: us = 800, ms = 3 or s = 1");
    whole_nanoseconds(total)
}

fn whole_nanoseconds(seconds: f64) -> anyhow::Result<u64> {
    anyhow::ensure!(
        (0.0..=MAX_SECONDS).contains(&seconds),
        "a duration is between 0 and {MAX_SECONDS} seconds"
    );
    Ok((seconds * 1e9) as u64)
}

/// The PyTorch version that a program says it was written for: `torch = "1.13"`.
fn torch_version(version: Value<'_>) -> anyhow::Result<Option<(u32, u32)>> {
    if version.is_none() {
        return Ok(None);
    }
    let text = version.unpack_str().unwrap_or_default();
    let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    let (Some(major), Some(minor)) = (major, minor) else {
        anyhow::bail!("torch = says which PyTorch a program was written for: torch = \"1.13\"");
    };
    Ok(Some((major, minor)))
}

/// The functions for a method's decorators.
const CLASSES_OWN: [&str; 3] = ["_static", "_a_property", "_of_class"];

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Starts `world_size` ranks that each call `main`.
    fn run<'v>(
        main: Value<'v>,
        #[starlark(require = named)] world_size: u32,
        #[starlark(require = named, default = NoneType)] ranks_per_node: Value<'v>,
        #[starlark(require = named, default = NoneType)] topology: Value<'v>,
        #[starlark(require = named, default = NoneType)] timeout: Value<'v>,
        #[starlark(require = named, default = NoneType)] name: Value<'v>,
        #[starlark(require = named, default = NoneType)] slow: Value<'v>,
        #[starlark(require = named, default = NoneType)] slow_links: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = NoneType)] args: Value<'v>,
        #[starlark(require = named, default = NoneType)] torch: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let process = process(eval).map_err(native)?;
        if process.is_rank() {
            let arguments = take::items(args).unwrap_or_default();
            return eval.eval_function(main, &arguments, &[]).map(|_| NoneType);
        }
        let again = process.run.is_some();
        let line = process.line;
        let said = || -> anyhow::Result<Run> {
            anyhow::ensure!(!again, "run is called twice; a program is one job");
            anyhow::ensure!(
                slow_links.is_none(),
                "a program does not say what its links cost, and the simulator has no link that is \
                 slower than the others of its kind; say how fast all are with lockstep sim \
                 --link-latency-ns and --link-bytes-per-second, or with the page's links, and make \
                 ranks slow with slow = {{3: 2.0}}"
            );
            let mut said = Run { line, world_size, ..Run::default() };
            said.name = name.unpack_str().map(str::to_owned);
            said.topology = topology.unpack_str().map(str::to_owned);
            let per_node = numbers::whole_or_none(ranks_per_node, "ranks_per_node")?;
            said.ranks_per_node = per_node.map(|n| u32::try_from(n).unwrap_or(0));
            if !timeout.is_none() {
                said.timeout_ms = Some(take::milliseconds(timeout)?);
            }
            if let Some(entries) = DictRef::from_value(slow) {
                for (rank, factor) in entries.iter() {
                    let rank = u32::try_from(numbers::whole(rank, "a rank of slow")?)?;
                    let factor = numbers::number(factor, "a factor of slow")?;
                    anyhow::ensure!(
                        (0.0..=1e6).contains(&factor),
                        "slow says how many times as long a rank computes: {{3: 2.0}}"
                    );
                    said.slow.insert(rank, factor);
                }
            }
            said.torch = torch_version(torch)?;
            said.cpu_only = device.unpack_str() == Some("cpu");
            Ok(said)
        };
        let said = said().map_err(native)?;
        crate::process::state::process(eval).map_err(native)?.run = Some(said);
        Ok(NoneType)
    }

    /// Keeps the rank busy: its processor, or its compute stream.
    fn compute<'v>(
        #[starlark(default = "compute")] name: &str,
        #[starlark(require = named, default = NoneType)] ns: Value<'v>,
        #[starlark(require = named, default = NoneType)] us: Value<'v>,
        #[starlark(require = named, default = NoneType)] ms: Value<'v>,
        #[starlark(require = named, default = NoneType)] s: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let duration_ns = nanoseconds(ns, us, ms, s)?;
        let process = process(eval)?;
        let slowed = (duration_ns as f64 * process.slowness).min(MAX_SECONDS * 1e9) as u64;
        let dist = process.dist()?;
        anyhow::ensure!(
            dist.current_stream() == lockstep_torch::c10d::Stream::DEFAULT,
            "a plan's rank computes on one stream: compute outside of `with torch.cuda.stream(…)`, \
             which is for calls that another stream is to wait for"
        );
        dist.compute(name, slowed);
        Ok(NoneType)
    }

    /// Idle time of the process.
    fn sleep<'v>(
        #[starlark(default = "sleep")] name: &str,
        #[starlark(require = named, default = NoneType)] ns: Value<'v>,
        #[starlark(require = named, default = NoneType)] us: Value<'v>,
        #[starlark(require = named, default = NoneType)] ms: Value<'v>,
        #[starlark(require = named, default = NoneType)] s: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let duration_ns = nanoseconds(ns, us, ms, s)?;
        process(eval)?.dist()?.sleep(name, duration_ns);
        Ok(NoneType)
    }

    /// The process ends here, with nothing said to anybody.
    fn die<'v>(
        #[starlark(default = "died")] why: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let process = process(eval)?;
        let _ = process.dist()?;
        process.gone = true;
        Err(anyhow::Error::new(Raised { text: why.to_owned(), help: None }))
    }

    /// A tensor of this rank: on its device if its default group has one. `fill` is a whole number
    /// that every element has, or `"rank"`, `"iota"` or `"random"`.
    fn tensor<'v>(
        numel: Value<'v>,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        #[starlark(default = NoneType)] fill: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = NoneType)] name: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let on = made::on(device, made::On::OfGroup)?;
        made::make(eval, made::sizes(numel)?, dtype, fill, on, name)
    }
}

/// The functions that Python has and Starlark has not.
#[starlark_module]
fn python(builder: &mut GlobalsBuilder) {
    fn print<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let heap = eval.heap();
        let option = |name: &str, none: &'static str| -> anyhow::Result<String> {
            match kwargs.entries.iter().find(|(known, _)| *known == name).map(|(_, value)| *value) {
                Some(value) if !value.is_none() => match value.unpack_str() {
                    Some(text) => Ok(text.to_owned()),
                    None => Err(type_error(format!(
                        "{name} must be None or a string, not {}",
                        class_of(value)
                    ))),
                },
                _ => Ok(none.to_owned()),
            }
        };
        args.items.iter().try_for_each(|value| crate::execute::missing_imports::shown(*value))?;
        let (between, end) = (option("sep", " ")?, option("end", "\n")?);
        let shown = |value: &Value<'v>| {
            crate::classes::object_text::shown(*value, eval)
                .map(|value| value_text::text(value, heap))
        };
        let texts: Vec<String> = args.items.iter().map(shown).collect::<anyhow::Result<_>>()?;
        let text = texts.join(&between) + &end;
        process(eval)?.print(&text);
        Ok(NoneType)
    }

    fn _fstring<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<String> {
        let heap = eval.heap();
        let mut text = String::new();
        for value in args.items {
            match TupleRef::from_value(value).map(TupleRef::content) {
                Some(&[value, format]) => {
                    let format = format.unpack_str().unwrap_or_default();
                    let value = match format.starts_with("!r") {
                        true => crate::classes::object_text::as_repr(value, eval)?,
                        false if format.starts_with("!s") => {
                            crate::classes::object_text::shown(value, eval)?
                        }
                        false => crate::classes::object_text::formatted(value, eval)?,
                    };
                    text.push_str(&crate::python::format::format(value, format, heap)?);
                }
                Some(&[value]) => {
                    let value = crate::classes::object_text::formatted(value, eval)?;
                    crate::execute::missing_imports::shown(value)?;
                    text.push_str(&value_text::text(value, heap));
                }
                _ => text.push_str(value.unpack_str().unwrap_or_default()),
            }
            anyhow::ensure!(text.len() < 1 << 20, "a text of more than a million characters");
        }
        Ok(text)
    }

    fn _assert<'v>(
        condition: Value<'v>,
        #[starlark(default = NoneType)] message: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        if crate::classes::special_methods::truth(condition, eval)? {
            return Ok(NoneType);
        }
        let heap = eval.heap();
        let text = match message.is_none() {
            true => "AssertionError".to_owned(),
            false => format!("AssertionError: {}", value_text::text(message, heap)),
        };
        Err(starlark::Error::new_native(anyhow::Error::new(Raised { text, help: None })))
    }

    fn _enter<'v>(
        context: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        entered(context, eval)
    }

    fn _exit<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        left(eval)
    }

    /// A function behind a decorator.
    fn _decorated<'v>(
        #[starlark(require = pos)] decorator: Value<'v>,
        #[starlark(require = pos)] function: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        if crate::execute::missing_imports::changes_nothing(decorator) {
            return Ok(function);
        }
        let context = match decorator.get_type() {
            "function" if CLASSES_OWN.contains(&decorator.to_repr().as_str()) => {
                return eval.eval_function(decorator, &[function], &[]);
            }
            "context" => decorator,
            // `@torch.no_grad` without its brackets.
            "function" if matches!(decorator.to_repr().as_str(), "no_grad" | "inference_mode") => {
                eval.eval_function(decorator, &[], &[])?
            }
            _ => {
                return Err(native(anyhow::anyhow!(
                    "of decorators a program has torch.no_grad() and its like, and record: call the \
                     function instead, as in f = decorator(f)"
                )));
            }
        };
        let process = process(eval).map_err(native)?;
        let partial = process.native("partial").map_err(native)?.to_value();
        let within = process.native("_within").map_err(native)?.to_value();
        eval.eval_function(partial, &[within, context, function], &[])
    }

    /// Calls a function in a context.
    fn _within<'v>(
        #[starlark(require = pos)] context: Value<'v>,
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        entered(context, eval)?;
        let returned = eval.eval_function(function, &args.items, &named.entries)?;
        left(eval)?;
        Ok(returned)
    }
}

#[starlark_module]
fn clock(builder: &mut GlobalsBuilder) {
    fn sleep<'v>(seconds: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let duration_ns = whole_nanoseconds(numbers::number(seconds, "seconds")?)?;
        process(eval)?.dist()?.sleep("time.sleep", duration_ns);
        Ok(NoneType)
    }

    /// Virtual time is not known while the program is recorded.
    fn time(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Real)))
    }

    fn ctime<'v>(
        #[starlark(default = NoneType)] secs: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<UnknownValue> {
        let _ = secs;
        Ok(process(eval)?.unknown(Unknown::Text))
    }

    fn strftime<'v>(
        format: Value<'v>,
        #[starlark(default = NoneType)] t: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<UnknownValue> {
        let _ = (format, t);
        Ok(process(eval)?.unknown(Unknown::Text))
    }

    fn perf_counter(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Real)))
    }

    fn monotonic(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Real)))
    }

    fn process_time(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Real)))
    }
}

#[starlark_module]
fn durations(builder: &mut GlobalsBuilder) {
    fn minutes<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(whole_nanoseconds(numbers::number(n, "minutes")? * 60.0)? / 1_000_000))
    }

    fn seconds<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(whole_nanoseconds(numbers::number(n, "seconds")?)? / 1_000_000))
    }

    fn milliseconds<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(
            whole_nanoseconds(numbers::number(n, "milliseconds")? * 1e-3)? / 1_000_000,
        ))
    }
}

#[starlark_module]
fn timedelta(builder: &mut GlobalsBuilder) {
    fn timedelta<'v>(
        #[starlark(default = NoneType)] days: Value<'v>,
        #[starlark(default = NoneType)] seconds: Value<'v>,
        #[starlark(require = named, default = NoneType)] milliseconds: Value<'v>,
        #[starlark(require = named, default = NoneType)] minutes: Value<'v>,
        #[starlark(require = named, default = NoneType)] hours: Value<'v>,
    ) -> anyhow::Result<DurationValue> {
        let mut total = 0.0;
        let units = [
            (days, 86400.0),
            (seconds, 1.0),
            (milliseconds, 1e-3),
            (minutes, 60.0),
            (hours, 3600.0),
        ];
        for (value, unit) in units {
            if !value.is_none() {
                total += numbers::number(value, "a timedelta")? * unit;
            }
        }
        Ok(DurationValue(whole_nanoseconds(total)? / 1_000_000))
    }
}
