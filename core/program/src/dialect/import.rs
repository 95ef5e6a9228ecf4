//! Imports: a name that the program has already is bound to the name that the import gives it.

use super::scan::Logical;
use lockstep_scenarios::program::ProgramError;

/// Modules that a program has, by Python's name, and their names here.
const MODULES: [(&str, &str); 31] = [
    ("torch.distributed.algorithms.join", "torch.distributed"),
    ("torch.distributed.device_mesh", "torch.distributed.device_mesh"),
    ("torch.distributed.distributed_c10d", "torch.distributed"),
    ("torch.distributed", "torch.distributed"),
    ("torch.nn.parallel", "torch.nn.parallel"),
    ("torch.nn.functional", "torch.nn.functional"),
    ("torch.nn", "torch.nn"),
    ("torch.optim", "torch.optim"),
    ("torch.multiprocessing", "torch.multiprocessing"),
    ("multiprocessing", "torch.multiprocessing"),
    ("torch.cuda", "torch.cuda"),
    ("torchvision.models", "models"),
    ("torchvision", "torchvision"),
    ("torch", "torch"),
    ("time", "time"),
    ("datetime", "datetime"),
    ("os", "os"),
    ("json", "json"),
    ("math", "math"),
    ("random", "random"),
    ("sys", "sys"),
    ("signal", "signal"),
    ("tqdm.auto", "_tqdm"),
    ("tqdm", "_tqdm"),
    ("logging", "logging"),
    ("argparse", "argparse"),
    ("traceback", "traceback"),
    ("itertools", "itertools"),
    ("contextlib", "contextlib"),
    ("collections", "collections"),
    ("tempfile", "tempfile"),
];

/// The statement that takes an import's place: empty when the names are there already.
///
/// # Errors
/// When it is no import.
pub(super) fn statement(statement: &Logical) -> Result<String, ProgramError> {
    let flat = statement.mask.replace(['\n', '(', ')'], " ");
    let words: Vec<&str> = flat.split_whitespace().collect();
    let wrong = || ProgramError::at(statement.first, 0, "this import is not understood");
    let mut assignments: Vec<String> = Vec::new();
    match words[..] {
        ["import", ..] => {
            for part in flat.trim().trim_start_matches("import").split(',') {
                let part: Vec<&str> = part.split_whitespace().collect();
                match part[..] {
                    [module, "as", name] => match known(module) {
                        Some((_, here)) => assignments.extend(assign(name, here)),
                        None => assignments.push(imported(name, module, None)),
                    },
                    [module] => {
                        let root = module.split('.').next().unwrap_or(module);
                        if known(root).is_none() && !ANYWAY.contains(&root) {
                            assignments.push(imported(root, root, None));
                        }
                    }
                    _ => return Err(wrong()),
                }
            }
        }
        ["from", module, "import", ..] => {
            let names = flat.split_once(" import ").map(|(_, names)| names).ok_or_else(wrong)?;
            let mut add = |own: &str, name: &str| match known(module) {
                Some((_, here)) => assignments.extend(of_module(own, here, module, name)),
                None if ANYWAY.contains(&module) => {}
                None => assignments.push(imported(own, module, Some(name))),
            };
            for part in names.split(',') {
                let part: Vec<&str> = part.split_whitespace().collect();
                match part[..] {
                    ["*"] | [] => {}
                    [name] => add(name, name),
                    [name, "as", own] => add(own, name),
                    _ => return Err(wrong()),
                }
            }
        }
        _ => return Err(wrong()),
    }
    Ok(assignments.join("; "))
}

fn known(module: &str) -> Option<&'static (&'static str, &'static str)> {
    MODULES.iter().find(|(name, _)| *name == module)
}

/// Modules whose names a program has anyway, or that say nothing to it.
const ANYWAY: [&str; 2] = ["__future__", "lockstep"];

/// `own = name` of a module that is there, if it has that.
fn of_module(own: &str, here: &str, module: &str, name: &str) -> Option<String> {
    let plain = assign(own, &format!("{here}.{name}"))?;
    if name == "load" || own == "load" {
        return Some(plain);
    }
    // `from time import time` gives the module's own name to its function.
    let here = if own == here { format!("_{here}") } else { here.to_owned() };
    Some(format!("{own} = _imported({here}, \"{name}\", \"{module}.{name}\")"))
}

/// The value of an import whose module, or a part of it, is not known to exist; without a name the module
/// itself.
fn imported(own: &str, module: &str, name: Option<&str>) -> String {
    let whole = name.map_or_else(|| module.to_owned(), |name| format!("{module}.{name}"));
    let (root, rest) = whole.split_once('.').unwrap_or((&whole, ""));
    let (of, path) = match known(root) {
        Some((_, here)) => (*here, rest),
        None => ("None", ""),
    };
    let own = if own == "load" { "_load" } else { own };
    if whole == "dataclasses.asdict" {
        return format!("{own} = _asdict");
    }
    format!("{own} = _imported({of}, \"{path}\", \"{whole}\")")
}

/// `name = here`, unless a program has that name already.
fn assign(name: &str, here: &str) -> Option<String> {
    let (name, here) = match (name, here.strip_suffix(".load")) {
        ("load", _) => ("_load", here.replace(".load", "._load")),
        (name, Some(module)) => (name, format!("{module}._load")),
        (name, None) => (name, here.to_owned()),
    };
    let there = match name {
        "dist" => here == "torch.distributed",
        "DDP" | "DistributedDataParallel" => here.starts_with("torch.nn.parallel"),
        "timedelta" => here == "datetime.timedelta",
        "models" => here.ends_with("models"),
        "optim" => here == "torch.optim",
        name => here == name,
    };
    (!there).then(|| format!("{name} = {here}"))
}
