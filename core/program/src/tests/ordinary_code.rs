//! Python that tutorials are full of: followed, or refused in Python's words.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use super::{compiled, ops};
use crate::compile;
use lockstep_core::plan::remark::Remark;
use lockstep_scenarios::program::{Compiled, Options};

/// The output of a program of one rank with these lines.
fn printed(lines: &str) -> Vec<String> {
    let text = format!(
        "import enum, logging, torch, torch.nn as nn, torch.distributed as dist\nfrom collections import \
         defaultdict\ndist.init_process_group('gloo')\n{lines}\n"
    );
    let options = Options { world_size: Some(1), ..Options::default() };
    let compiled = compile("train.py", &text, &options).unwrap_or_else(|e| panic!("{lines}: {e}"));
    let Compiled { printed, raised, .. } = compiled;
    assert!(raised.is_empty(), "{lines}: {raised:?}");
    printed.into_iter().map(|print| print.text).collect()
}

/// The refusal of a script with these lines from line 3 on.
fn refused(lines: &str) -> (u32, String) {
    let text = format!(
        "import torch, torch.nn as nn, torch.distributed as dist\ndist.init_process_group('gloo')\n{lines}\n"
    );
    let error = compile("train.py", &text, &Options::default()).unwrap_err();
    (error.line, error.to_string())
}

#[test]
fn what_tutorials_write_is_followed() {
    for (lines, said) in [
        ("a, b = [1, 2], (3,)\nprint(*a, *b, 4)", "1 2 3 4"),
        ("def f(*x, k=0): return (x, k)\nprint(f(0, *[1], 2, *[3], k=4))", "((0, 1, 2, 3), 4)"),
        ("print(nn.Linear(2, 2).__class__.__name__, nn.ReLU().__class__.__name__)", "Linear ReLU"),
        (
            "class A:\n    def __init__(s, x): s.x = x\nclass B(A):\n    def __init__(me, x):\n        \
             super().__init__(x + 1); me.y = 2\nb = B(1)\nprint(b.x, b.y)",
            "2 2",
        ),
        (
            "class N(nn.Module):\n    def __init__(s):\n        super().__init__(); s.a = nn.Linear(2, 2)\n    \
             def forward(s, x): return s.a(x)\nprint(len(list(N().parameters())))",
            "2",
        ),
        (
            "d = defaultdict(list)\nd[torch.float32].append(1)\nd[torch.int32].append(2)\n\
             d[torch.float32].append(3)\nprint(d[torch.float32], len(d))",
            "[1, 3] 2",
        ),
        (
            "class Mode(enum.Enum):\n    SUM = 'sum'\n    MAX = 'max'\nprint([m.value for m in Mode], \
             {Mode.SUM: 1}[Mode.SUM], Mode.SUM == Mode.MAX, Mode('max').name, Mode.SUM)",
            "['sum', 'max'] 1 False MAX Mode.SUM",
        ),
        ("print(torch.compile(nn.Linear(2, 3)).out_features, logging.WARN)", "3 30"),
    ] {
        assert_eq!(printed(lines), [said], "{lines}");
    }
}

#[test]
fn layers_that_change_no_call_are_there() {
    let text = "
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.norm = nn.EmbeddingBag(50, 8, mode='mean'), nn.GroupNorm(2, 8)
        self.pool, self.last = nn.AdaptiveAvgPool1d(4), nn.Linear(4, 2)
    def forward(self, x):
        return self.last(self.pool(self.norm(self.bag(x)).unsqueeze(1)))
def main():
    dist.init_process_group('gloo')
    net = DDP(Net())
    out = net(torch.randint(0, 50, (4, 3)))
    print(out.shape)
    out.sum().backward()
run(main, world_size=2)
";
    let Compiled { plan, printed, raised, .. } = compiled(text);
    assert!(raised.is_empty(), "{raised:?}");
    assert_eq!(printed[0].text, "torch.Size([4, 1, 2])");
    assert!(ops(&plan, 0).iter().any(|(name, _)| name == "all_reduce"));
}

#[test]
fn what_is_not_followed_is_named() {
    for (lines, line, said) in [
        ("class Registry(dict):\n    pass", 3, "a class made of dict is not followed"),
        (
            "class Copy(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x",
            3,
            "a class made of torch.autograd.Function is not followed",
        ),
        ("nn.ConvTranspose2d(2, 2, 3)", 3, "torch.nn.ConvTranspose2d is not followed"),
        ("nn.utils.parametrizations.weight_norm(1)", 3, "parametrizations.weight_norm is not"),
        ("nn.Frobnicate(2)", 3, "`Frobnicate` of this module is not followed here"),
        ("torch.ones(2).frobnicate()", 3, "`frobnicate` of a Tensor is not followed here"),
    ] {
        let (at, text) = refused(lines);
        assert!(at == line && text.contains(said), "{lines}: {at} {text}");
        assert!(!text.contains("namespace"), "{text}");
    }
}

/// A hook may call anything: the verdict of its plan is not healthy, and its line is told.
#[test]
fn hooks_are_told_with_their_line() {
    for (lines, what) in [
        ("model.weight.register_hook(lambda g: g)", "register_hook"),
        (
            "for p in model.parameters(): p.register_post_accumulate_grad_hook(print)",
            "register_post_accumulate_grad_hook",
        ),
        ("ddp = DDP(model); ddp.register_comm_hook(None, print)", "register_comm_hook"),
        ("h = model.weight.register_hook(print); h.remove()", "register_hook"),
    ] {
        let text = format!(
            "import torch, torch.nn as nn, torch.distributed as dist\nfrom torch.nn.parallel import \
             DistributedDataParallel as DDP\ndist.init_process_group('gloo')\nmodel = nn.Linear(2, \
             2)\n{lines}\ndist.barrier()\n"
        );
        let plan = compiled(&text).plan;
        let own = plan.programs[0].ops.iter();
        let told = own.filter(|op| {
            matches!(Remark::of(op), Some(Remark::NotFollowed { what: told, line: 5, .. }) if told == what)
        });
        assert!(told.count() > 0, "{lines}");
    }
}

#[test]
fn a_number_of_steps_ends_each_rank() {
    let text = "import torch, torch.nn as nn, torch.distributed as dist\ndist.init_process_group('gloo')\n\
                one, two = nn.Linear(2, 2), nn.Linear(2, 2)\na = torch.optim.SGD(one.parameters(), lr=1)\n\
                b = torch.optim.SGD(two.parameters(), lr=1)\nfor step in range(9):\n    \
                dist.all_reduce(torch.ones(2))\n    b.step(); a.step()\ndist.barrier()\n";
    let options = Options { steps: Some(2), world_size: Some(2), ..Options::default() };
    let Compiled { plan, raised, .. } = compile("train.py", text, &options).unwrap();
    assert!(raised.is_empty(), "{raised:?}");
    let names: Vec<String> = ops(&plan, 0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().filter(|name| *name == "all_reduce").count(), 2, "{names:?}");
    assert!(!names.contains(&"barrier".to_owned()), "{names:?}");
}

#[test]
fn sets_of_any_number_are_joined() {
    for (lines, said) in [
        ("xs = [{1, 2}, {2, 3}, {4}]\nprint(sorted(set().union(*xs)))", "[1, 2, 3, 4]"),
        ("print(sorted(set.union({1}, {2}, [3])), len({1, 2}.union()))", "[1, 2, 3] 2"),
        ("print({1, 2, 3}.intersection({1, 2}, [2]), {1, 2, 3}.difference({1}, (3,)))", "{2} {2}"),
        ("s = {1}\ns.update([2], range(3, 5))\nprint(sorted(s))", "[1, 2, 3, 4]"),
    ] {
        assert_eq!(printed(lines), [said], "{lines}");
    }
}

#[test]
fn a_tensor_dataset_has_its_tensors() {
    let lines = "from torch.utils.data import TensorDataset\nd = TensorDataset(torch.zeros(6, 2), torch.ones(6))\n\
                 x, y = d.tensors\nprint(x.shape, y.sum().item(), len(d))";
    assert_eq!(printed(lines), ["torch.Size([6, 2]) 6.0 6"]);
}

#[test]
fn what_a_generator_yields_is_gone_through() {
    for (lines, said) in [
        (
            "def batches(n):\n    for i in range(n):\n        if i == 1:\n            continue\n        yield i, 2 * i\nfor a, b \
             in batches(3):\n    print(a, b)",
            &["0 0", "2 4"][..],
        ),
        (
            "def f():\n    yield 1\n    yield 2\ng = f()\nprint(next(g), next(g), next(g, None))",
            &["1 2 None"],
        ),
        (
            "def f(n):\n    if n == 0:\n        return\n    yield n\n    yield from f(n - 1)\nprint(list(f(3)))",
            &["[3, 2, 1]"],
        ),
        (
            "class Data:\n    def __iter__(self):\n        for i in range(2):\n            yield i\nprint([x for x in Data()], sum(Data()))",
            &["[0, 1] 1"],
        ),
        (
            "def f():\n    while True:\n        yield 1\n        break\nprint(list(zip(f(), 'a')), sum(x for x in f()))",
            &["[(1, 'a')] 1"],
        ),
        (
            "def f():\n    for i in range(2):\n        with torch.no_grad():\n            yield i\nprint(list(enumerate(f())))",
            &["[(0, 0), (1, 1)]"],
        ),
    ] {
        assert_eq!(printed(lines), said, "{lines}");
    }
    let (line, why) = refused("def f():\n    while True:\n        yield 1\nnext(f())");
    assert!(
        line == 4 && why.contains("a generator that never ends is not followed"),
        "{line} {why}"
    );
    let (line, why) = refused("def f():\n    dist.barrier()\n    yield 1\nlist(f())");
    assert!(
        line >= 3 && why.contains("a generator that makes calls of torch.distributed"),
        "{line} {why}"
    );
}
