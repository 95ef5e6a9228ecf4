//! Classes of programs beyond methods and attributes, names that functions give another value, and calls
//! with arguments that PyTorch does not take.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use crate::tests::compiled;
use lockstep_scenarios::program::{Compiled, Options};

/// The output of rank 0.
fn printed(text: &str) -> Vec<String> {
    let compiled = compiled(text);
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    let own = compiled.printed.into_iter().filter(|print| print.rank.0 == 0);
    own.map(|print| print.text).collect()
}

/// The errors that the ranks raise, each text with the number of ranks.
fn raised(init: &str, line: &str) -> Vec<(usize, String)> {
    let text = format!(
        "import torch\nimport torch.distributed as dist\nfrom torch.distributed.device_mesh import \
         DeviceMesh, init_device_mesh\ndef main():\n    {init}\n    t = torch.ones(2)\n    {line}\n\
         run(main, world_size=3)\n"
    );
    let compiled = compile("train.py", &text, &Options::default());
    let Compiled { raised, .. } = compiled.unwrap_or_else(|error| panic!("{line}: {error}"));
    raised.into_iter().map(|(ranks, error)| (ranks.len(), error.message)).collect()
}

/// As CPython 3.11.
#[test]
fn properties_class_methods_factories_and_names_of_outside() {
    let text = r#"
import torch.distributed as dist
from dataclasses import dataclass, field, asdict

best = 0
seen = []

@dataclass
class Config:
    lr: float = 0.1
    tags: list = field(default_factory=list)
    steps: int = field(default=3, repr=False)
    def __post_init__(self):
        self.total = self.steps * 2

class Meter:
    made = 0
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0, 0
    @classmethod
    def of(cls, name, start=0):
        meter = cls(name)
        meter.sum += start
        cls.made += 1
        return meter
    @property
    def avg(self):
        return self.sum / max(self.count, 1)
    def update(self, value):
        self.sum += value
        self.count += 1
    def __str__(self):
        return f"{self.name} {self.avg:.2f} ({self.avg})"

class Loud(Meter):
    @property
    def kind(self):
        return "loud " + str(self.avg)

def keep(value):
    global best
    is_best = value > best
    best = max(value, best)
    seen.append(best)
    return is_best

def main():
    a, b = Config(), Config(tags=[1])
    a.tags.append(2)
    print(a.tags, b.tags, Config().tags, a.steps, a.total)
    print(asdict(a))
    meter = Meter.of("loss", start=1)
    loud = Loud.of("x")
    for value in range(3):
        meter.update(value)
        loud.update(2 * value)
    print(meter, meter.avg == 4 / 3, loud.kind, [m.avg for m in [meter, loud]])
    print(type(loud).__name__, Meter.made, meter.of("y").name)
    print(keep(3), keep(2), best, f"{best}", seen)
run(main, world_size=1)
"#;
    assert_eq!(
        printed(text),
        [
            "[2] [1] [] 3 6",
            "{'lr': 0.1, 'tags': [2], 'steps': 3}",
            "loss 1.33 (1.3333333333333333) True loud 2.0 [1.3333333333333333, 2.0]",
            "Loud 1 y",
            "True False 3 3 [3, 3]",
        ]
    );
}

/// As PyTorch 2.7.1 on gloo.
#[test]
fn arguments_that_pytorch_does_not_take_are_its_type_errors() {
    for (line, text) in [
        ("dist.all_reduce()", "all_reduce() missing 1 required positional argument: 'tensor'"),
        (
            "dist.all_gather()",
            "all_gather() missing 2 required positional arguments: 'tensor_list' and 'tensor'",
        ),
        (
            "dist.all_gather(tensor=t)",
            "all_gather() missing 1 required positional argument: 'tensor_list'",
        ),
        ("dist.all_reduce(t, foo=1)", "all_reduce() got an unexpected keyword argument 'foo'"),
        ("dist.barrier(foo=1)", "barrier() got an unexpected keyword argument 'foo'"),
        ("dist.all_reduce(t, group=[0])", "unhashable type: 'list'"),
        (
            "dist.all_reduce(t, group='x')",
            "Invariant encountered: value was None when it should not be",
        ),
        (
            "dist.all_reduce(t, None, None, True, 1)",
            "all_reduce() takes from 1 to 4 positional arguments but 5 were given",
        ),
    ] {
        let said = raised("dist.init_process_group('gloo')", line);
        assert_eq!(said, [(3, format!("TypeError: {text}"))], "{line}");
    }
    let said = raised("dist.init_process_group('gloo')", "dist.barrier([0])");
    assert_eq!(said[0].1, "AttributeError: 'list' object has no attribute 'barrier'");
    let said = raised("dist.init_process_group('gloo')", "dist.P2POp('isend', t, 0)");
    assert!(said[0].1.starts_with("ValueError: Invalid ``op``."), "{said:?}");
    // A program's own function of that name is its own.
    let own = "def barrier(x):\n    print(x)\ndef main():\n    dist.init_process_group('gloo')\n    \
               barrier(foo=1)\nrun(main, world_size=1)\n";
    assert!(compile("train.py", own, &Options::default()).is_err());
}

/// As PyTorch 2.7.1, which says so on every rank.
#[test]
fn groups_of_nobody_and_of_ranks_that_are_not_there() {
    let gloo = "dist.init_process_group('gloo')";
    let said = raised(gloo, "dist.new_group([])");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].0, 3);
    assert!(said[0].1.starts_with("TypeError: __init__(): incompatible constructor"), "{said:?}");
    let outside = "ValueError: The new group's rank should be within the world_size set by init_process_group";
    for line in ["DeviceMesh('cpu', [0, 5])", "DeviceMesh('cpu', [-1, 0])"] {
        assert_eq!(raised(gloo, line), [(3, outside.to_owned())], "{line}");
    }
    let bigger =
        "RuntimeError: Mesh should not be bigger than default world size 3, but found 4 ranks!";
    let said = raised(gloo, "init_device_mesh('cpu', (2, 2))");
    assert_eq!(said, [(3, bigger.to_owned())]);
    assert_eq!(raised(gloo, "print(DeviceMesh('cpu', [0, 1]).get_coordinate())"), []);
}

#[test]
fn programs_on_mpi_are_recorded_with_what_it_has() {
    let text = |line: &str| {
        format!(
            "import torch.distributed as dist\ndef main():\n    dist.init_process_group('mpi')\n    \
             t = torch.ones(2)\n    {line}\n    print(dist.get_backend())\nrun(main, world_size=2)\n"
        )
    };
    let has = compiled(&text("dist.all_gather([torch.zeros(2), torch.zeros(2)], t)"));
    assert!(has.raised.is_empty(), "{:?}", has.raised);
    assert_eq!(has.printed[0].text, "mpi");
    let [(3, told)] = &has.assumed[..] else { panic!("{:?}", has.assumed) };
    assert!(told.contains("built with MPI"), "{told}");
    let lacks = compiled(&text("dist.reduce_scatter(t, [t, t])"));
    let error = &lacks.raised[0].1.message;
    assert_eq!(error, "RuntimeError: ProcessGroupMPI does not support reduce_scatter");
    let asks = "dist.init_process_group('mpi' if dist.is_mpi_available() else 'gloo')";
    assert_eq!(raised(asks, "assert dist.get_backend() == 'gloo'"), []);
    let old = raised("dist.init_process_group('tcp')", "pass");
    assert_eq!(old, [(3, "AssertionError: Unknown backend type tcp".to_owned())]);
}

/// gloo takes tensors on the CPU, also in a job of NCCL.
#[test]
fn a_tensor_in_a_group_on_gloo_is_no_guess() {
    let told = |group: &str| {
        let text = format!(
            "def main():\n    dist.init_process_group('nccl')\n    g = dist.new_group(backend='gloo')\n    \
             dist.all_reduce(torch.ones(2), group={group})\n    \
             dist.all_reduce(torch.ones(2, device='cuda'))\nrun(main, world_size=2)\n"
        );
        compiled(&text).assumed.len()
    };
    assert_eq!([told("g"), told("None")], [0, 1]);
}

/// Their sizes are known, and the shape of pictures after transforms that keep it; their contents are not.
#[test]
fn data_sets_of_torchvision_have_shapes() {
    let text = "import torch\nfrom torchvision import datasets, transforms\n\
                import torch.distributed as dist\ndef main():\n    \
                dist.init_process_group('gloo')\n    \
                t = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])\n    \
                data = datasets.MNIST('../data', train=False, download=True, transform=t)\n    \
                loader = torch.utils.data.DataLoader(data, batch_size=1000)\n    \
                for x, y in loader:\n        break\n    \
                print(len(data), len(loader), x.shape, y.shape, y.dtype)\nrun(main, world_size=1)\n";
    let said = "10000 10 torch.Size([1000, 1, 28, 28]) torch.Size([1000]) torch.int64";
    assert_eq!(printed(text), [said]);
    let resized = text.replace("ToTensor()", "Resize(224)");
    let error = compile("train.py", &resized, &Options::default()).unwrap_err();
    assert!(error.message.starts_with("torchvision.transforms.Resize is not known"), "{error}");
}

/// As in CPython 3.11, objects of a dataclass are compared by their fields, others by identity.
#[test]
fn objects_of_a_dataclass_are_equal_by_their_fields() {
    let text = "from dataclasses import dataclass\n@dataclass\nclass Shard:\n    rank: int = 0\n    of: int = \
                2\nclass Plain:\n    pass\ndef main():\n    a = Plain()\n    print(Shard() == Shard(), Shard(1) \
                == Shard(), Shard(1) in [Shard(), Shard(1)], Shard() != Shard(0), a == a, a == Plain())\n\
                run(main, world_size=1)\n";
    assert_eq!(printed(text), ["True False True False True False"]);
    let own = "class Own:\n    def __ne__(self, other):\n        return True\ndef main():\n    pass\n\
               run(main, world_size=1)\n";
    let refused = compile("train.py", own, &Options::default()).unwrap_err().to_string();
    assert!(refused.contains("this class is not followed"), "{refused}");
}

/// An `__init__` may hold more on the line of `super().__init__()`, and call methods that keep something.
#[test]
fn the_init_of_a_module_is_executed() {
    let model = |init: &str| {
        format!(
            "import torch.nn as nn\nclass Net(nn.Module):\n    def __init__(self):\n        {init}\n    def \
             forward(self, x):\n        return self.a(x)\n    def build(self):\n        self.b = 1\ndef main():\n    \
             print(sum(p.numel() for p in Net().parameters()))\nrun(main, world_size=1)\n"
        )
    };
    let line = "super().__init__(); self.k = 5; self.a = nn.Linear(8, 8)";
    assert_eq!(printed(&model(line)), ["72"]);
    let applied =
        "super().__init__()\n        self.a = nn.Linear(8, 8)\n        self.apply(lambda m: None)";
    assert_eq!(printed(&model(applied)), ["72"]);
    let built = "super().__init__()\n        self.a = nn.Linear(8, 8)\n        self.build()";
    assert_eq!(printed(&model(built)), ["72"]);
}

/// As PyTorch 2.7.1: DDP's parameters are those of the model that it was given.
#[test]
fn a_backward_pass_of_ddp_gives_the_model_its_gradients() {
    let text = "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\nfrom \
                torch.nn.parallel import DistributedDataParallel as DDP\ndef main():\n    \
                dist.init_process_group('gloo')\n    model = nn.Linear(4, 4)\n    before = \
                [p.grad is None for p in model.parameters()]\n    ddp = DDP(model)\n    \
                ddp(torch.randn(2, 4)).sum().backward()\n    own = [p.grad is not None for p in \
                model.parameters()]\n    print(before, own, [p.grad is not None for p in \
                ddp.parameters()])\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\n\
                run(main, world_size=2)\n";
    assert_eq!(printed(text), ["[True, True] [True, True] [True, True]"]);
}

#[test]
fn what_holds_itself_many_times_is_not_shown_for_ever() {
    let text = "class A:\n    pass\n\ndef main():\n    l = [A()]\n    for i in range(60):\n        \
                l.append(l)\n    print(l)\n\nrun(main, world_size = 1)\n";
    let error = compile("train.py", text, &Options::default()).unwrap_err();
    assert!(error.message.contains("holds itself"), "{error}");
}

/// The output of CPython for objects, alone and among others.
#[test]
fn objects_show_themselves_wherever_they_stand() {
    let text = r#"
from dataclasses import dataclass

@dataclass
class Config:
    lr: float = 0.1
    name: str = "run"

class Meter:
    def __init__(self, n):
        self.n = n
    def __repr__(self):
        return f"Meter({self.n})"

class Both(Meter):
    def __str__(self):
        return "both"

def main():
    c, m, b = Config(), Meter(1), Both(2)
    print(c, [c], {"m": m}, (m, b), b)
    print(f"{c} {m!r} {b!r} {b} {b:>6}", repr(b), str([b]))
    fmt = "rank %d: %s"
    print(fmt % (0, [m]), 7 % 4)

run(main, world_size = 1)
"#;
    let compiled = compile("train.py", text, &Options::default()).unwrap();
    let printed: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    let config = "Config(lr=0.1, name='run')";
    assert_eq!(
        printed,
        [
            &format!("{config} [{config}] {{'m': Meter(1)}} (Meter(1), Meter(2)) both"),
            &format!("{config} Meter(1) Meter(2) both   both Meter(2) [Meter(2)]"),
            "rank 0: [Meter(1)] 3",
        ]
    );
}
