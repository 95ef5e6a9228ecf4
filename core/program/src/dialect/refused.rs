//! Statements of Python that a program cannot have, and their replacements.

/// The advice in place of another library's class of models.
const MODEL_INSTEAD: &str = "Make the class of nn.Module; or take a model by its shapes: models.mlp([10, 10, 5]) for layers \
    of Linear, or one that ships, as models.resnet18() (docs/programs.md). A loop that a library makes is written out: \
    for batch in loader: model(batch).sum().backward(); opt.step().";

/// The base of a class of models, if it is another library's.
fn other_base(rest: &str) -> Option<&str> {
    let base = rest.split_once('(')?.1.split_once(')')?.0.trim();
    (base.contains("Module") && !base.ends_with("nn.Module")).then_some(base)
}

/// The advice in place of a class of another class that is not followed.
const BASE_INSTEAD: &str = "A class is made of nothing, of nn.Module, of a Dataset or of another class of the \
    program here. `lockstep record` runs the script with your own PyTorch.";

/// The advice in place of an operation with a backward pass of its own.
const FUNCTION_INSTEAD: &str = "Its backward is Python that the backward pass calls, which is not followed. `lockstep \
    record` runs the script with your own PyTorch.";

/// The base of a class that is the reason that the class is not followed.
fn unfollowed_base(rest: &str) -> Option<&str> {
    let bases = rest.split_once('(')?.1.split_once(')')?.0;
    let own = |base: &&str| {
        let base = base.rsplit('.').next().unwrap_or(base);
        super::classes::OWN_OF_PYTHON.contains(&base)
    };
    let followed = ["enum.Enum", "abc.ABC", "nn.Module", "data.Dataset"];
    let dotted = |base: &&str| {
        base.contains('.') && !followed.iter().any(|followed| base.ends_with(followed))
    };
    bases.split(',').map(str::trim).find(|base| own(base) || dotted(base))
}

/// The reason that a statement which begins with this word is refused, and a replacement; `None` for all
/// others. `rest` is the text behind the word.
pub(super) fn statement(word: &str, rest: &str) -> Option<(String, &'static str)> {
    if word == "class"
        && let Some(base) = other_base(rest)
    {
        let why = format!("{base} is not known here: a model's class is made of nn.Module");
        return Some((why, MODEL_INSTEAD));
    }
    if word == "class"
        && let Some(base) = unfollowed_base(rest)
    {
        let function = base.ends_with("Function");
        let why = format!("a class made of {base} is not followed here");
        return Some((why, if function { FUNCTION_INSTEAD } else { BASE_INSTEAD }));
    }
    let known = match word {
        "class" => (
            "this class is not followed",
            "A class has methods, properties and plain attributes here; setters, other decorators \
             and what else stands in its block are not followed. Write functions instead.",
        ),
        // Each may be a variable.
        _ if rest.trim_start().starts_with(['=', '.', '(', '[', ',', '+', '-']) => return None,
        "global" | "nonlocal" => (
            "this name of outside cannot be given another value in a function",
            "Another function has an argument or a name of its own that is called so, or it is \
             nonlocal. Keep it in a dict: `state = {\"step\": 0}` outside, and `state[\"step\"] += 1` inside; or \
             return it.",
        ),
        "del" => (
            "a program has no `del`",
            "Write `d.pop(key)` for an entry of a dict or list; a name needs no end.",
        ),
        "async" | "await" => (
            "a program has no coroutines",
            "Call torch.distributed with async_op = True, and wait for its work.",
        ),
        "match" => ("a program has no `match`", "Write it with `if` and `elif`."),
        _ => return None,
    };
    Some((known.0.to_owned(), known.1))
}
