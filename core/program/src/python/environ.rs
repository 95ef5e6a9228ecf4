//! `os.environ` and `os.getenv`: a rank's variables as torchrun sets them.

use crate::process::raised::Raised;
use crate::process::state::process;
use crate::python::type_error::{class_of, type_error};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};
use std::collections::BTreeSet;

/// Variables that a program may set; more than any does.
const MAX_SET: usize = 1000;

/// The variables that torchrun sets for every rank.
const OF_TORCHRUN: [&str; 6] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// The variable of torchrun's that says the same as one of Slurm's or MPI's launchers: a program that asks for such
/// a variable is started by that launcher, which counts its processes as torchrun counts ranks.
fn of_launchers(name: &str) -> Option<&'static str> {
    match name {
        "SLURM_PROCID" | "OMPI_COMM_WORLD_RANK" | "PMI_RANK" => Some("RANK"),
        "SLURM_NTASKS" | "SLURM_NPROCS" | "OMPI_COMM_WORLD_SIZE" | "PMI_SIZE" => Some("WORLD_SIZE"),
        "SLURM_LOCALID" | "OMPI_COMM_WORLD_LOCAL_RANK" | "MPI_LOCALRANKID" => Some("LOCAL_RANK"),
        "SLURM_NTASKS_PER_NODE" | "OMPI_COMM_WORLD_LOCAL_SIZE" => Some("LOCAL_WORLD_SIZE"),
        "SLURM_NODEID" => Some("GROUP_RANK"),
        _ => None,
    }
}

/// Adds `os`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("os", |builder| {
        builder.namespace("environ", environ);
        getenv(builder);
        crate::python::process_exit::of_os(builder);
        crate::python::standard_library::of_os(builder);
    });
    deleting(builder);
}

/// The value of a variable that a program asks for with a default.
fn asked_for<'v>(
    name: &str,
    default: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    // Without a default the question is whether that launcher started the program.
    match (variable(name, eval)?, of_launchers(name).filter(|_| !default.is_none())) {
        (None, Some(same)) => Ok(variable(same, eval)?.unwrap_or(default)),
        (known, _) => Ok(known.unwrap_or(default)),
    }
}

/// `os.environ[name]` and its assignment are written as calls by the dialect.
#[starlark_module]
fn environ(builder: &mut GlobalsBuilder) {
    fn get<'v>(
        name: &str,
        #[starlark(default = NoneType)] default: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        asked_for(name, default, eval)
    }

    /// The names, sorted; also of `name in os.environ`, which the dialect writes so.
    fn keys(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<AllocList<Vec<String>>> {
        Ok(AllocList(names(eval)?))
    }

    fn setdefault<'v>(
        name: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        if let Some(known) = variable(name, eval)? {
            return Ok(known);
        }
        set(name, value, eval)?;
        Ok(value)
    }

    fn _item<'v>(name: &str, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        if let Some(value) = variable(name, eval)? {
            return Ok(value);
        }
        let same = of_launchers(name);
        if let Some(value) = same.map(|same| variable(same, eval)).transpose()?.flatten() {
            return Ok(value);
        }
        let process = process(eval)?;
        // Torchrun sets it: what needs it is a rank.
        process.asked_for_rank |= !process.is_rank() && OF_TORCHRUN.contains(&same.unwrap_or(name));
        Err(anyhow::Error::new(Raised { text: format!("KeyError: '{name}'"), help: None }))
    }

    fn _set<'v>(
        name: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        set(name, value, eval)?;
        Ok(NoneType)
    }
}

#[starlark_module]
fn deleting(builder: &mut GlobalsBuilder) {
    /// `del of[key]`.
    fn _delete<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] key: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        if crate::python::subscript::deleted(of, key, eval)? {
            return Ok(NoneType);
        }
        if matches!(of.get_type(), "list" | "dict") {
            let pop = of.get_attr_error("pop", eval.heap())?;
            eval.eval_function(pop, &[key], &[])?;
            return Ok(NoneType);
        }
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let Some(name) = key.unpack_str().filter(|_| of.get_type() == "namespace") else {
            let class = class_of(of);
            let text = format!("'{class}' object doesn't support item deletion");
            return Err(native(type_error(text)));
        };
        if variable(name, eval).map_err(native)?.is_none() {
            let text = format!("KeyError: '{name}'");
            return Err(native(anyhow::Error::new(Raised { text, help: None })));
        }
        let process = process(eval).map_err(native)?;
        process.environ.insert(name.to_owned(), None);
        Ok(NoneType)
    }
}

#[starlark_module]
fn getenv(builder: &mut GlobalsBuilder) {
    fn getenv<'v>(
        name: &str,
        #[starlark(default = NoneType)] default: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        asked_for(name, default, eval)
    }
}

fn set(name: &str, value: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<()> {
    let Some(text) = value.unpack_str() else {
        let class = class_of(value);
        return Err(type_error(format!("str expected, not {class}")));
    };
    let process = process(eval)?;
    anyhow::ensure!(process.environ.len() < MAX_SET, "too many variables are set");
    process.environ.insert(name.to_owned(), Some(text.to_owned()));
    Ok(())
}

/// The names of all variables. Torchrun sets the same for every rank.
fn names(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<Vec<String>> {
    let process = process(eval)?;
    let of_rank = match process.is_rank() {
        true => process.dist()?.environ_names(),
        false => OF_TORCHRUN.map(str::to_owned).to_vec(),
    };
    let all: BTreeSet<String> =
        of_rank.into_iter().chain(process.environ.keys().cloned()).collect();
    let there = |name: &String| !matches!(process.environ.get(name), Some(None));
    Ok(all.into_iter().filter(there).collect())
}

/// A variable that the program has set, or that torchrun sets for the rank. While the program is only
/// searched for `run`, once and outside of all ranks, a rank's own variables are those of rank 0.
fn variable<'v>(name: &str, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Option<Value<'v>>> {
    let heap: Heap<'v> = eval.heap();
    let process = process(eval)?;
    if let Some(value) = process.environ.get(name) {
        return Ok(value.as_ref().map(|value| heap.alloc(value.as_str())));
    }
    if process.is_rank() {
        return Ok(process.dist()?.environ(name).map(|value| heap.alloc(value)));
    }
    let counts = matches!(name, "WORLD_SIZE" | "LOCAL_WORLD_SIZE");
    process.asked_for_rank |= counts;
    anyhow::ensure!(
        !counts,
        "how many ranks there are is what run(main, world_size = …) says: ask for {name} inside of \
         the function that it is handed"
    );
    Ok(matches!(name, "RANK" | "LOCAL_RANK" | "GROUP_RANK").then(|| heap.alloc("0")))
}
