//! `argparse`: the arguments of a script, which its user gives (`lockstep sim train.py -- --epochs 1`), and otherwise
//! their defaults. The rules are those of CPython 3.11's `argparse.py`.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::objects;
use crate::process::state::process;
use crate::python::type_error::class_of;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::cell::RefCell;
use std::fmt;

/// The use that an argument makes of the words behind its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Trace, Allocative)]
enum Action {
    /// Takes one value.
    Store,
    /// Takes values up to the next flag, as a list (`nargs`).
    StoreAll,
    /// Takes none, and is this.
    Constant(bool),
    /// `--x` and `--no-x`: `BooleanOptionalAction`.
    Switch,
    /// Counts how often it is given.
    Count,
    /// An action that is not followed here.
    Other,
}

/// An argument as `add_argument` describes it.
#[derive(Clone, Debug, Trace, Allocative)]
struct Argument<'v> {
    name: String,
    /// `--epochs`, `-e`; none of one that is given by its place.
    flags: Vec<String>,
    action: Action,
    of_type: Option<Value<'v>>,
    /// The default value; `None` if the argument is required.
    default: Option<Value<'v>>,
}

/// A parser of arguments.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct ParserValue<'v> {
    arguments: RefCell<Vec<Argument<'v>>>,
}

impl fmt::Display for ParserValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArgumentParser(…)")
    }
}

methods_static!(PARSER_METHODS = parser_methods);

#[starlark_value(type = "ArgumentParser")]
impl<'v> StarlarkValue<'v> for ParserValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(PARSER_METHODS.methods())
    }
}

fn parser<'v>(this: Value<'v>) -> anyhow::Result<&'v ParserValue<'v>> {
    let own = this.downcast_ref::<ParserValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("{} is no parser", class_of(this)))
}

/// The value of an argument that `torch.distributed.launch` passes to every rank: `--local_rank`. Its default would
/// make each rank take itself for the first of its machine.
fn passed_by_launcher(
    name: &str,
    optional: bool,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<Option<String>> {
    if name != "local_rank" || !optional {
        return Ok(None);
    }
    let process = process(eval)?;
    match process.is_rank() {
        true => Ok(process.dist()?.environ("LOCAL_RANK")),
        false => Ok(None),
    }
}

/// A text as the value of an argument, by its type.
fn converted<'v>(
    text: Value<'v>,
    of_type: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    match of_type {
        Some(of_type) => eval.eval_function(of_type, &[text], &[]),
        None => Ok(text),
    }
}

/// True of a word that is a flag, and no negative number.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

/// The words of a command line, sorted by the argument's place in the list.
#[derive(Default)]
struct Given {
    /// The words of an argument, and whether it was given at all.
    words: Vec<(usize, Vec<String>)>,
    /// Words that no argument takes.
    unknown: Vec<String>,
}

/// Sorts the words of a command line by the arguments that they are of.
fn given(arguments: &[Argument<'_>], words: &[String]) -> Given {
    let mut given = Given::default();
    let mut places: Vec<usize> =
        (0..arguments.len()).filter(|at| arguments[*at].flags.is_empty()).rev().collect();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if !is_flag(word) {
            let Some(at) = places.pop() else {
                given.unknown.push(word.clone());
                continue;
            };
            let mut own = vec![word.clone()];
            if arguments[at].action == Action::StoreAll {
                own.extend(std::iter::from_fn(|| words.next_if(|word| !is_flag(word)).cloned()));
            }
            given.words.push((at, own));
            continue;
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let Some(at) = flagged(arguments, flag) else {
            given.unknown.push(word.clone());
            continue;
        };
        let takes = match arguments[at].action {
            Action::Store | Action::Other => 1,
            Action::StoreAll => usize::MAX,
            Action::Switch => {
                given.words.push((at, vec![(!flag.starts_with("--no-")).to_string()]));
                continue;
            }
            Action::Constant(_) | Action::Count => 0,
        };
        let mut own: Vec<String> = value.into_iter().collect();
        while own.len() < takes {
            let Some(next) = words.next_if(|word| !is_flag(word)) else { break };
            own.push(next.clone());
        }
        given.words.push((at, own));
    }
    given
}

/// The argument of a flag, which may be the beginning of one long flag only.
fn flagged(arguments: &[Argument<'_>], flag: &str) -> Option<usize> {
    let is_it = |argument: &Argument<'_>| {
        argument.flags.iter().any(|own| {
            let negated = argument.action == Action::Switch
                && flag
                    .strip_prefix("--no-")
                    .is_some_and(|rest| own.strip_prefix("--") == Some(rest));
            own == flag || negated
        })
    };
    let exact = arguments.iter().position(is_it);
    let begins = |argument: &Argument<'_>| argument.flags.iter().any(|own| own.starts_with(flag));
    let mut begun = (0..arguments.len())
        .filter(|at| flag.starts_with("--") && arguments.get(*at).is_some_and(begins));
    exact.or_else(|| begun.next().filter(|_| begun.next().is_none()))
}

/// The namespace of the arguments, and the words that are of none.
fn parsed<'v>(
    this: Value<'v>,
    words: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<(Value<'v>, Vec<String>)> {
    let native = starlark::Error::new_native;
    let heap = eval.heap();
    let words: Vec<String> = match words.is_none() {
        true => process(eval).map_err(native)?.arguments.to_vec(),
        false => words.iterate(heap)?.map(|word| word.to_str()).collect(),
    };
    let arguments: Vec<Argument<'v>> = parser(this)
        .map_err(native)?
        .arguments
        .try_borrow()
        .map(|it| it.clone())
        .unwrap_or_default();
    let Given { words: given, unknown } = given(&arguments, &words);
    let mut all = SmallMap::new();
    for (at, argument) in arguments.iter().enumerate() {
        let Argument { name, action, of_type, default, .. } = argument;
        let times = given.iter().filter(|(own, _)| *own == at).count();
        let value = match (given.iter().rfind(|(own, _)| *own == at), action) {
            (Some(_), Action::Constant(value)) => Some(Value::new_bool(*value)),
            (Some(_), Action::Count) => Some(heap.alloc(times as u32)),
            (Some((_, words)), Action::Switch) => {
                Some(Value::new_bool(words.first().is_some_and(|word| word == "true")))
            }
            (Some((_, words)), Action::StoreAll) => {
                let mut values = Vec::new();
                for word in words {
                    values.push(converted(heap.alloc(word.as_str()), *of_type, eval)?);
                }
                Some(heap.alloc(values))
            }
            (Some((_, words)), Action::Store) => {
                let Some(word) = words.first() else {
                    let flag = argument.flags.first().unwrap_or(name);
                    return Err(native(anyhow::anyhow!("argument {flag}: expected one argument")));
                };
                Some(converted(heap.alloc(word.as_str()), *of_type, eval)?)
            }
            (Some(_), Action::Other) => {
                return Err(native(anyhow::anyhow!(
                    "the action of the argument {name} is not followed here: leave it out of the command line"
                )));
            }
            (None, _) => *default,
        };
        let Some(value) = value else {
            return Err(native(anyhow::anyhow!(
                "the argument {name} has no default and was not given: lockstep sim train.py -- --{name} VALUE gives \
                 it, or write the value as a variable"
            )));
        };
        all.insert(name.clone(), value);
    }
    Ok((objects::object("Namespace", all, heap), unknown))
}

#[starlark_module]
fn parser_methods(builder: &mut MethodsBuilder) {
    fn add_argument<'v>(
        this: Value<'v>,
        #[starlark(args)] names: UnpackTuple<&'v str>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let get = |name: &str| named.entries.iter().find(|(own, _)| *own == name).map(|(_, v)| *v);
        let long = names.items.iter().find(|name| name.starts_with("--"));
        let Some(first) = long.or(names.items.first()) else { return Ok(NoneType) };
        let own = first.trim_start_matches('-').replace('-', "_");
        let name = get("dest").and_then(|dest| dest.unpack_str()).map_or(own, str::to_owned);
        let optional = first.starts_with('-');
        let required = get("required").is_some_and(Value::to_bool);
        let said = get("action").map(|action| match action.unpack_str() {
            Some(text) => text.to_owned(),
            None => action.to_str(),
        });
        let nargs = get("nargs").filter(|nargs| nargs.unpack_str() != Some("?"));
        let action = match said.as_deref() {
            Some("store_true") => Action::Constant(true),
            Some("store_false") => Action::Constant(false),
            Some("count") => Action::Count,
            Some("store") | None if nargs.is_some() => Action::StoreAll,
            Some("store") | None => Action::Store,
            Some("BooleanOptionalAction") => Action::Switch,
            Some(_) => Action::Other,
        };
        let none = match action {
            Action::Constant(value) => Some(Value::new_bool(!value)),
            _ if optional && !required => Some(Value::new_none()),
            _ => None,
        };
        let few = get("nargs").and_then(|nargs| nargs.unpack_str()).is_some_and(|n| n != "+");
        let none = if few && none.is_none() { Some(Value::new_none()) } else { none };
        let mut default = match passed_by_launcher(&name, optional, eval)? {
            Some(passed) => Some(eval.heap().alloc(passed)),
            None => get("default").or(none),
        };
        let of_type = get("type");
        // A text, given or as the default, goes through the argument's type.
        if let Some(text) = default.filter(|it| it.unpack_str().is_some()) {
            default = Some(converted(text, of_type, eval)?);
        }
        let flags =
            names.items.iter().filter(|_| optional).map(|name| (*name).to_owned()).collect();
        if let Ok(mut arguments) = parser(this)?.arguments.try_borrow_mut() {
            arguments.push(Argument { name, flags, action, of_type, default });
        }
        Ok(NoneType)
    }

    fn add_argument_group<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn parse_args<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] args: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        match parsed(this, args, eval)? {
            (namespace, unknown) if unknown.is_empty() => Ok(namespace),
            (_, unknown) => Err(starlark::Error::new_native(anyhow::anyhow!(
                "unrecognized arguments: {}",
                unknown.join(" ")
            ))),
        }
    }

    fn parse_known_args<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] args: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (namespace, unknown) = parsed(this, args, eval)?;
        let heap = eval.heap();
        Ok(heap.alloc(AllocTuple([namespace, heap.alloc(unknown)])))
    }
}

#[starlark_module]
fn argparse(builder: &mut GlobalsBuilder) {
    fn ArgumentParser<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (args, named);
        Ok(heap.alloc_complex_no_freeze(ParserValue { arguments: RefCell::default() }))
    }
}

/// Names of the module that a parser is given, and that are looked at nowhere but here.
const NAMES: [&str; 5] = [
    "ArgumentDefaultsHelpFormatter",
    "BooleanOptionalAction",
    "RawDescriptionHelpFormatter",
    "RawTextHelpFormatter",
    "SUPPRESS",
];

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("argparse", |builder| {
        argparse(builder);
        // Classes and marks that are handed to a parser, by their names.
        for name in NAMES {
            builder.set(name, name);
        }
    });
}
