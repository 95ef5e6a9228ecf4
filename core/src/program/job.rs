//! What a program has besides PyTorch: `run`, `tensor`, `compute`, `sleep`, `die`, and what the
//! rewritten Python calls.

#![allow(clippy::too_many_arguments, reason = "the language's arguments")]

use super::arguments as take;
use super::mesh::MeshValue;
use super::process::{Raised, Run, process};
use super::shown;
use super::torch;
use super::values::{Context, ContextValue, DurationValue, TensorValue};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{DictRef, UnpackDictEntries};
use starlark::values::none::NoneType;
use starlark::values::tuple::{TupleRef, UnpackTuple};
use starlark::values::{Value, ValueLike};

/// The longest time that a program can name: an hour short of what picoseconds count.
const MAX_SECONDS: f64 = 5_000_000.0;
/// The longest text that is kept of a `print`.
const MAX_PRINTED_CHARS: usize = 2000;

/// Adds them.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    python(builder);
    super::stores::python(builder);
    exceptions(builder);
    durations(builder);
    builder.namespace("time", |builder| {
        clock(builder);
    });
    builder.namespace("datetime", |builder| {
        timedelta(builder);
    });
    timedelta(builder);
    super::environ::add(builder);
    super::json::add(builder);
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
            total += take::number(value, "a duration")? * unit;
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

/// Whether a program says that it was written for a PyTorch before 2.2: `torch = "1.13"`.
fn old_torch(version: Value<'_>) -> anyhow::Result<bool> {
    if version.is_none() {
        return Ok(false);
    }
    let text = version.unpack_str().unwrap_or_default();
    let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    let (Some(major), Some(minor)) = (major, minor) else {
        anyhow::bail!("torch = says which PyTorch a program was written for: torch = \"1.13\"");
    };
    Ok((major, minor) < (2, 2))
}

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
            let per_node = take::whole_or_none(ranks_per_node, "ranks_per_node")?;
            said.ranks_per_node = per_node.map(|n| u32::try_from(n).unwrap_or(0));
            if !timeout.is_none() {
                said.timeout_ms = Some(take::milliseconds(timeout)?);
            }
            if let Some(entries) = DictRef::from_value(slow) {
                for (rank, factor) in entries.iter() {
                    let rank = u32::try_from(take::whole(rank, "a rank of slow")?)?;
                    let factor = take::number(factor, "a factor of slow")?;
                    anyhow::ensure!(
                        (0.0..=1e6).contains(&factor),
                        "slow says how many times as long a rank computes: {{3: 2.0}}"
                    );
                    said.slow.insert(rank, factor);
                }
            }
            said.old_torch = old_torch(torch)?;
            said.cpu_only = device.unpack_str() == Some("cpu");
            Ok(said)
        };
        let said = said().map_err(native)?;
        super::process::process(eval).map_err(native)?.run = Some(said);
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
            dist.current_stream() == crate::c10d::Stream::DEFAULT,
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
        let _ = process(eval)?.dist()?;
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
        torch::make(eval, torch::sizes(numel)?, dtype, fill, device, name)
    }
}

/// What Python has and Starlark has not.
#[starlark_module]
fn python(builder: &mut GlobalsBuilder) {
    fn print<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = kwargs;
        let texts: Vec<String> = args.items.iter().map(|value| shown::text(*value)).collect();
        let text: String = texts.join(" ").chars().take(MAX_PRINTED_CHARS).collect();
        let process = process(eval)?;
        if process.is_rank() && process.unheard == 0 && process.printed.len() < 1000 {
            let line = process.line;
            process.printed.push((line, text));
        }
        Ok(NoneType)
    }

    fn sum<'v>(
        items: Value<'v>,
        #[starlark(default = NoneType)] start: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let start = if start.is_none() { heap.alloc(0) } else { start };
        items.iterate(heap)?.try_fold(start, |sum, item| sum.add(item, heap))
    }

    fn _fstring<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        let mut text = String::new();
        for value in args.items {
            let formatted = TupleRef::from_value(value).filter(|pair| pair.len() == 2);
            let format = formatted.and_then(|pair| pair.content()[1].unpack_str());
            match (formatted, format) {
                (Some(pair), Some(format)) => {
                    text.push_str(&formatted_as(pair.content()[0], format))
                }
                _ => text.push_str(&shown::text(value)),
            }
            anyhow::ensure!(text.len() < 1 << 20, "a text of more than a million characters");
        }
        Ok(text)
    }

    fn _raise<'v>(error: Value<'v>) -> anyhow::Result<NoneType> {
        Err(anyhow::Error::new(Raised { text: error.to_str(), help: None }))
    }

    fn _assert<'v>(
        condition: Value<'v>,
        #[starlark(default = NoneType)] message: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        if condition.to_bool() {
            return Ok(NoneType);
        }
        let text = match message.is_none() {
            true => "AssertionError".to_owned(),
            false => format!("AssertionError: {}", message.to_str()),
        };
        Err(anyhow::Error::new(Raised { text, help: None }))
    }

    fn _enter<'v>(
        context: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        // `with mesh:` names the current mesh, which nothing here asks for.
        let mesh = context.downcast_ref::<MeshValue>().map(|_| &ContextValue(Context::Nothing));
        let Some(entered) = context.downcast_ref::<ContextValue>().or(mesh) else {
            return Err(take::type_error(format!(
                "'{}' object does not support the context manager protocol",
                take::class_of(context)
            )));
        };
        let process = process(eval)?;
        anyhow::ensure!(process.contexts.len() < 1000, "too many `with` blocks are open");
        let mut entering = entered.0.clone();
        match &mut entering {
            Context::Join { model, throw } => super::join::enter(process, *model, *throw)?,
            Context::Stream { stream, before } => *before = process.dist()?.set_stream(*stream),
            Context::Coalescing(at) => super::dist::enter(process, *at)?,
            Context::NoSync(_) | Context::Grad(_) | Context::Nothing => {}
        }
        process.contexts.push(entering);
        Ok(context)
    }

    fn _exit<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let process = process(eval)?;
        match process.contexts.pop() {
            Some(Context::Join { .. }) => super::join::leave(process)?,
            Some(Context::Stream { before, .. }) => {
                process.dist()?.set_stream(before);
            }
            Some(Context::Coalescing(at)) => super::dist::leave(process, at)?,
            Some(Context::NoSync(_) | Context::Grad(_) | Context::Nothing) | None => {}
        }
        Ok(NoneType)
    }

    /// A context that changes nothing here.
    fn nullcontext<'v>() -> anyhow::Result<ContextValue> {
        Ok(ContextValue(Context::Nothing))
    }
}

/// `{value:format}`: `!r`, a number of digits, a width.
fn formatted_as(value: Value<'_>, format: &str) -> String {
    let (quoted, format) = match format.strip_prefix("!r") {
        Some(rest) => (true, rest.trim_start_matches(':')),
        None => (false, format.trim_start_matches("!s").trim_start_matches(':')),
    };
    let text = if quoted { value.to_repr() } else { value.to_str() };
    let digits = format
        .split_once('.')
        .and_then(|(_, digits)| digits.trim_end_matches(['f', 'e', 'g']).parse::<usize>().ok());
    let number = take::number(value, "a number").ok();
    let text = match (digits, number) {
        (Some(digits), Some(number)) => format!("{number:.*}", digits.min(17)),
        _ => text,
    };
    let width = format.split('.').next().unwrap_or_default();
    let width = width.trim_start_matches(['<', '>', '^', '0']).trim_end_matches(['d', 's']);
    let width = width.parse::<usize>().unwrap_or(0).min(200);
    match format.chars().next() {
        Some('<') => format!("{text:<width$}"),
        Some('^') => format!("{text:^width$}"),
        Some('0') => format!("{text:0>width$}"),
        _ if number.is_some() || format.starts_with('>') => format!("{text:>width$}"),
        _ => format!("{text:<width$}"),
    }
}

/// Adds Python's exceptions, as what `raise` says.
fn exceptions(builder: &mut GlobalsBuilder) {
    builder_exceptions(builder);
}

/// Adds torch's own, which are `torch.OutOfMemoryError` and the same of `torch.cuda`.
pub(super) fn of_torch(builder: &mut GlobalsBuilder) {
    torch_exceptions(builder);
}

fn exception(class: &str, args: &[Value<'_>]) -> String {
    let texts: Vec<String> = args.iter().map(|value| value.to_str()).collect();
    match texts.is_empty() {
        true => class.to_owned(),
        false => format!("{class}: {}", texts.join(", ")),
    }
}

#[starlark_module]
fn builder_exceptions(builder: &mut GlobalsBuilder) {
    fn Exception<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("Exception", &args.items))
    }

    fn RuntimeError<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("RuntimeError", &args.items))
    }

    fn ValueError<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("ValueError", &args.items))
    }

    fn KeyError<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("KeyError", &args.items))
    }

    fn StopIteration<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("StopIteration", &args.items))
    }

    fn SystemExit<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>) -> anyhow::Result<String> {
        Ok(exception("SystemExit", &args.items))
    }
}

#[starlark_module]
fn torch_exceptions(builder: &mut GlobalsBuilder) {
    fn OutOfMemoryError<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<String> {
        Ok(exception("torch.OutOfMemoryError", &args.items))
    }
}

#[starlark_module]
fn clock(builder: &mut GlobalsBuilder) {
    fn sleep<'v>(seconds: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let duration_ns = whole_nanoseconds(take::number(seconds, "seconds")?)?;
        process(eval)?.dist()?.sleep("time.sleep", duration_ns);
        Ok(NoneType)
    }

    /// Virtual time is not known while the program is recorded.
    fn time() -> anyhow::Result<f64> {
        Ok(0.0)
    }

    fn perf_counter() -> anyhow::Result<f64> {
        Ok(0.0)
    }
}

#[starlark_module]
fn durations(builder: &mut GlobalsBuilder) {
    fn minutes<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(whole_nanoseconds(take::number(n, "minutes")? * 60.0)? / 1_000_000))
    }

    fn seconds<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(whole_nanoseconds(take::number(n, "seconds")?)? / 1_000_000))
    }

    fn milliseconds<'v>(n: Value<'v>) -> anyhow::Result<DurationValue> {
        Ok(DurationValue(whole_nanoseconds(take::number(n, "milliseconds")? * 1e-3)? / 1_000_000))
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
                total += take::number(value, "a timedelta")? * unit;
            }
        }
        Ok(DurationValue(whole_nanoseconds(total)? / 1_000_000))
    }
}
