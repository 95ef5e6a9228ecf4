//! Imports: what a program has anyway gets the name that the import gives it.

use super::super::error::ProgramError;
use super::scan::Logical;

/// Modules that a program has, by Python's name, and what they are called here.
const MODULES: [(&str, &str); 21] = [
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
                    [module, "as", name] => {
                        // numpy and its like: whoever uses it is told that it is not there.
                        if let Some((_, here)) = known(module) {
                            assignments.extend(assign(name, here));
                        }
                    }
                    [_] => {}
                    _ => return Err(wrong()),
                }
            }
        }
        ["from", module, "import", ..] => {
            let names = flat.split_once(" import ").map(|(_, names)| names).ok_or_else(wrong)?;
            let Some((_, here)) = known(module) else { return Ok(String::new()) };
            for part in names.split(',') {
                let part: Vec<&str> = part.split_whitespace().collect();
                match part[..] {
                    ["*"] | [] => {}
                    [name] => assignments.extend(assign(name, &format!("{here}.{name}"))),
                    [name, "as", own] => {
                        assignments.extend(assign(own, &format!("{here}.{name}")));
                    }
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
