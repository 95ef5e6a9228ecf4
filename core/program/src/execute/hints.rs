//! Hints about the interpreter's errors in a program.

/// A hint about the interpreter's error, where Python has taught people otherwise.
pub(crate) fn hint(message: &str) -> Option<&'static str> {
    const MISSING: [(&str, &str); 16] = [
        ("np", "There is no numpy: make tensors with tensor(numel)."),
        ("numpy", "There is no numpy: make tensors with tensor(numel)."),
        (
            "argparse",
            "Write import argparse; lockstep sim train.py -- ARGUMENTS gives the arguments.",
        ),
        ("logging", "Write what is logged with print(...)."),
        ("logger", "Write what is logged with print(...)."),
        ("subprocess", "A program starts nothing: run(main, world_size = 4) starts its ranks."),
        ("multiprocessing", "Write import torch.multiprocessing as mp."),
        ("threading", "A rank has one thread; a call with async_op = True goes on beside it."),
        ("pickle", "json.dumps(x).encode() makes bytes; object calls take x itself."),
        ("defaultdict", "Write d[key] = d.get(key, 0) + 1."),
        ("Counter", "Write d[key] = d.get(key, 0) + 1."),
        ("dataclass", "Keep what belongs together in a dict or struct(...)."),
        ("input", "Nobody can be asked: write the value."),
        ("open", "There are no files: write what would stand there."),
        ("F", "Write import torch.nn.functional as F."),
        ("nn", "Models: DDP(models.mlp([784, 256, 10])), or one that ships (docs/programs.md)."),
    ];
    let hints = [
        (
            "Cannot mutate an immutable value",
            "What is made outside of functions cannot be changed.",
        ),
        ("Execution limit reached", "A loop without an end? A program is bounded in its steps."),
        ("tick", "A loop without an end? A program is bounded in its steps."),
        (
            "Operation `[]` not supported for types `Tensor`",
            "A tensor holds no values while the program is executed, for all ranks and before anything \
             is sent: what depends on them cannot be decided. Decide by the rank or the step instead, \
             or take a part of the tensor as x[from:to].",
        ),
        (
            "not supported for types `Tensor`",
            "Of operators + - * / // % ** and comparisons are followed on tensors. Write what else \
             changes values as a call that keeps the shape (x.clone()); compute(\"scale\", us = 20) \
             takes the time.",
        ),
        (
            "Object of type `Tensor` has no attribute",
            "docs/programs.md lists the methods that tensors have here. What only computes can be left \
             out: compute(\"scale\", us = 20) takes the time, and torch.zeros(shape) stands for what \
             comes of it.",
        ),
        (
            "left-hand-side of assignment must take the form",
            "A part of a list is not assigned to: make a list anew (a = a[:2] + b + a[4:]).",
        ),
        (
            "Object of type `namespace` has no attribute",
            "It is not among what a program has: docs/programs.md lists that. What only computes \
             can be left out: compute(\"loss\", us = 50) takes the time that it would.",
        ),
        (
            "comparisons are not associative",
            "Give what stands in the middle a name, or write `a < b and b < c`.",
        ),
        (
            "unexpected symbol '**'",
            "Write `new = dict(old)` and `new.update(...)`, or `pow(x, y)`.",
        ),
        ("`(iter)` not supported on type `string`", "Its characters are text.elems()."),
    ];
    if let Some(instead) = crate::execute::missing_imports::instead(message) {
        return Some(instead);
    }
    let name = message.strip_prefix("Variable `").and_then(|rest| rest.split_once('`'));
    let missing = name.and_then(|(name, _)| MISSING.iter().find(|(known, _)| *known == name));
    missing.or_else(|| hints.iter().find(|(part, _)| message.contains(part))).map(|(_, help)| *help)
}
