//! Scripts as they are started: by torchrun, by processes of their own; and their prints of torch's values,
//! compared with PyTorch 2.7.1.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::plan::Action;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

fn executed(text: &str) -> Result<Compiled, ProgramError> {
    compile("train.py", text, &Options::default())
}

fn compiled(text: &str) -> Compiled {
    executed(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn of_rank(compiled: &Compiled, rank: u32) -> Vec<&str> {
    let own = compiled.printed.iter().filter(|print| print.rank == GlobalRank(rank));
    own.map(|print| print.text.as_str()).collect()
}

/// The output of rank 0 for a body on gloo, on 2 ranks.
fn printed(body: &str) -> Vec<String> {
    let compiled = compiled(&in_main("gloo", body));
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    of_rank(&compiled, 0).into_iter().map(str::to_owned).collect()
}

fn in_main(backend: &str, body: &str) -> String {
    format!(
        "import torch\nimport torch.distributed as dist\n\ndef main():\n    \
         dist.init_process_group('{backend}')\n    rank = dist.get_rank()\n{body}\nrun(main, \
         world_size=2)\n"
    )
}

/// Every rank of a script for torchrun is the script itself; the script does not give the number of ranks.
#[test]
fn a_script_of_torchrun_is_its_own_main() {
    let text = "import os\nimport torch.distributed as dist\n\ndef main():\n    \
                dist.init_process_group('gloo')\n    print(dist.get_rank(), \
                os.environ['WORLD_SIZE'])\n    dist.barrier()\n\nif __name__ == '__main__':\n    \
                main()\n";
    let all = compiled(text);
    assert_eq!(all.plan.world_size, 4);
    assert_eq!(of_rank(&all, 3), ["3 4"]);
    let [(line, told)] = &all.assumed[..] else { panic!("{:?}", all.assumed) };
    assert_eq!(*line, 5);
    assert!(told.contains("4 are taken") && told.contains("--world-size"), "{told}");
    let said = Options { world_size: Some(3), ..Options::default() };
    let three = compile("train.py", text, &said).unwrap();
    assert_eq!((three.plan.world_size, three.assumed.len()), (3, 0));
    let made = "x = torch.ones(2)\nrun(main, world_size = 2)\n";
    // Scripts that name their ranks, or have none at all, get the same error as before.
    let outside = executed(&format!("def main():\n    pass\n{made}")).unwrap_err();
    assert!(outside.message.contains("no rank has been started here"), "{outside}");
    let none = executed("def main():\n    pass\n").unwrap_err();
    assert!(none.message.contains("does not say how many ranks"), "{none}");
}

/// As the tutorial starts its processes.
#[test]
fn processes_are_ranks_in_the_order_that_they_start_in() {
    for first in ["mp.set_start_method(\"spawn\")", "mp = mp.get_context(\"spawn\")"] {
        let text = format!(
            r#"import sys
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, size, *, name="none"):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    dist.barrier()
    print(rank, size, name)

if __name__ == "__main__":
    processes = []
    if "google.colab" not in sys.modules:
        {first}
    for rank in range(3):
        p = mp.Process(target=work, args=(rank, 3), kwargs={{"name": "p%d" % rank}})
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
"#
        );
        let compiled = compiled(&text);
        assert_eq!(compiled.plan.world_size, 3);
        assert_eq!(of_rank(&compiled, 2), ["2 3 p2"]);
    }
    let twice = "import torch.multiprocessing as mp\ndef f(r):\n    pass\nmp.spawn(f, nprocs=2)\n\
                 mp.Process(target=f, args=(0,)).start()\n";
    assert!(executed(twice).unwrap_err().message.contains("started twice"));
}

#[test]
fn who_exits_leaves_the_others_alone() {
    for exit in ["exit()", "exit(0)", "quit()", "sys.exit(0)", "os._exit(0)"] {
        let text = format!("    if rank == 1: {exit}\n    print('on')");
        let compiled = compiled(&in_main("gloo", &text));
        assert!(compiled.raised.is_empty(), "{exit}: {:?}", compiled.raised);
        assert_eq!((of_rank(&compiled, 0), of_rank(&compiled, 1).len()), (vec!["on"], 0));
    }
    let signals = |signal: &str| {
        let kill = format!("    if rank == 1: os.kill(os.getpid(), signal.{signal})");
        let compiled = compiled(&in_main("gloo", &(kill + "\n    dist.barrier()")));
        let ops = &compiled.plan.program(lockstep_core::rank::GlobalRank(1)).unwrap().ops;
        (ops.iter().map(|op| op.action.name().to_owned()).collect::<Vec<_>>(), compiled.raised)
    };
    assert_eq!(signals("SIGKILL"), (vec!["SIGKILL".to_owned()], vec![]));
    assert_eq!(signals("SIGSTOP").0, ["SIGSTOP", "barrier"]);
    for ends in ["SIGTERM", "SIGABRT", "SIGSEGV", "SIGUSR1"] {
        assert_eq!(signals(ends), (vec![ends.to_owned()], vec![]));
    }
    for own in ["os.abort()", "signal.raise_signal(signal.SIGABRT)"] {
        let compiled = compiled(&in_main("gloo", &format!("    {own}\n    print('on')")));
        let ops = &compiled.plan.program(lockstep_core::rank::GlobalRank(1)).unwrap().ops;
        let names: Vec<&str> = ops.iter().map(|op| op.action.name()).collect();
        assert_eq!((names, of_rank(&compiled, 1).len()), (vec!["SIGABRT"], 0), "{own}");
    }

    let dies = compiled(&in_main("gloo", "    if rank == 1: sys.exit(3)\n    dist.barrier()"));
    let [(ranks, error)] = &dies.raised[..] else { panic!("{:?}", dies.raised) };
    assert_eq!((ranks[0].0, error.message.as_str()), (1, "SystemExit: 3"));
}

/// Answers of PyTorch 2.7.1 to the same lines.
#[test]
fn values_of_torch_are_printed_as_torch_prints_them() {
    let body = r#"
    x = torch.ones(2, 3)
    print(x.shape, repr(x.size()), f"{x.shape}", [x.shape], x.shape[1:], x.shape + (1,))
    print(x.shape == (2, 3), x.shape == [2, 3], x.shape != x.shape, len(x.shape), 2 in x.shape)
    print(tuple(x.shape), list(x.shape), x.shape.numel(), torch.ones(()).shape, "%s" % (x.shape,))
    rows, columns = x.shape
    print(rows, columns, torch.zeros(*x.shape).numel(), torch.zeros(x.shape).shape, x.shape[-1])
    print(dist.ReduceOp.SUM, repr(dist.ReduceOp.SUM), f"{dist.ReduceOp.MAX}", [dist.ReduceOp.AVG])
    d = torch.device("cuda", 1)
    print(d, repr(d), f"{d}", [d], d.index, torch.device("cuda:1") == d, torch.device("cuda").index)
    print(x.device, [x.device], x.device == torch.device("cpu"), x.to("cuda:3").device)
    print(x.nbytes, x.ndim, x.is_contiguous(), x.itemsize)
    print(dist.is_mpi_available(), dist.is_ucc_available(), dist.is_torchelastic_launched())
    print(dist.get_backend_config(), dist.Backend.GLOO, dist.get_pg_count())
"#;
    assert_eq!(
        printed(body),
        [
            "torch.Size([2, 3]) torch.Size([2, 3]) torch.Size([2, 3]) [torch.Size([2, 3])] \
             torch.Size([3]) torch.Size([2, 3, 1])",
            "True False False 2 True",
            "(2, 3) [2, 3] 6 torch.Size([]) torch.Size([2, 3])",
            "2 3 6 torch.Size([2, 3]) 3",
            "RedOpType.SUM <RedOpType.SUM: 0> RedOpType.MAX [<RedOpType.AVG: 1>]",
            "cuda:1 device(type='cuda', index=1) cuda:1 [device(type='cuda', index=1)] 1 True None",
            "cpu [device(type='cpu')] True cuda:3",
            "24 2 True 4",
            "False False False",
            "cpu:gloo,cuda:gloo gloo 1",
        ]
    );
    // A text where an operation is asked for is quoted as Python does it.
    let raised = compiled(&in_main("gloo", "    dist.all_reduce(torch.ones(2), 'sum')")).raised;
    assert!(raised[0].1.message.ends_with(", 'sum'"), "{}", raised[0].1.message);
    let asked = printed("    print(dist.all_reduce(torch.ones(2), async_op=True).is_completed())");
    assert_eq!(asked, ["<is_completed(): known when it runs>"]);
}

/// As PyTorch 2.7.1 answers.
#[test]
fn tensors_are_joined_and_split() {
    let body = r#"
    x = torch.ones(2, 3)
    print(torch.cat([x, x, x]).shape, torch.cat((x, x), dim=1).shape, torch.stack([x, x]).shape)
    print(torch.cat([torch.ones(2), torch.ones(2, dtype=torch.int64)]).dtype)
    print([t.shape for t in torch.split(torch.ones(5, 2), 2)], len(torch.chunk(torch.ones(5), 3)))
    print(torch.rand(2, 3).shape, torch.randint(0, 10, (3,)).dtype, torch.full_like(x, 3).shape)
    print(torch.ones_like(x, dtype=torch.int64).dtype, torch.zeros_like(x).dtype)
"#;
    assert_eq!(
        printed(body),
        [
            "torch.Size([6, 3]) torch.Size([2, 6]) torch.Size([2, 2, 3])",
            "torch.float32",
            "[torch.Size([2, 2]), torch.Size([2, 2]), torch.Size([1, 2])] 3",
            "torch.Size([2, 3]) torch.int64 torch.Size([2, 3])",
            "torch.int64 torch.float32",
        ]
    );
    for (statement, text) in [
        (
            "torch.cat([torch.ones(2, 3), torch.ones(2, 4)])",
            "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 for \
             tensor number 1 in the list.",
        ),
        ("torch.cat([])", "torch.cat(): expected a non-empty list of Tensors"),
        (
            "torch.stack([torch.ones(2, 3), torch.ones(2, 4)])",
            "stack expects each tensor to be equal size, but got [2, 3] at entry 0 and [2, 4] at \
             entry 1",
        ),
        (
            "torch.cat([torch.ones(2), torch.ones(2, 4)])",
            "Tensors must have same number of dimensions: got 1 and 2",
        ),
        (
            "torch.split(torch.ones(5), [2, 2])",
            "split_with_sizes expects split_sizes to sum exactly to 5 (input tensor's size at \
             dimension 0), but got split_sizes=[2, 2]",
        ),
        (
            "torch.ones(5).split(0)",
            "split_size can only be 0 if dimension size is 0, but got dimension size of 5",
        ),
    ] {
        let raised = compiled(&in_main("gloo", &format!("    {statement}"))).raised;
        assert_eq!(raised[0].1.message, format!("RuntimeError: {text}"));
    }
}

/// A write into a tensor is a copy in the plan, so that values are the same as in PyTorch.
#[test]
fn values_follow_their_tensors() {
    let copies = |body: &str| -> Vec<(String, String, u64)> {
        let plan = compiled(&in_main("gloo", body)).plan;
        let name = |id| plan.tensor(id).map(|tensor| tensor.name.clone()).unwrap_or_default();
        let ops = &plan.program(GlobalRank(0)).unwrap().ops;
        let copies = ops.iter().filter_map(|op| match &op.action {
            Action::Copy(copy) => Some((name(copy.from), name(copy.into), copy.into_offset)),
            _ => None,
        });
        copies.collect()
    };
    // A tensor that nothing has written into is made again instead of copied.
    assert_eq!(copies("    a = torch.ones(4)\n    b = a.clone()\n    c = b.to('cuda')"), []);
    let written = "    a = torch.ones(4)\n    dist.all_reduce(a)\n    b = a.clone()\n    c = \
                   a.to(torch.float64)";
    let copied = [("a", "b"), ("not known", "c")].map(|(a, b)| (a.to_owned(), b.to_owned(), 0));
    assert_eq!(copies(written), copied);
    let filled = "    a = torch.ones(4)\n    a.fill_(3)\n    b = torch.cat([torch.ones(2), a])";
    let expected = [("filled", "a", 0), ("b", "b", 0), ("a", "b", 2)];
    assert_eq!(copies(filled), expected.map(|(a, b, at)| (a.to_owned(), b.to_owned(), at)));
    // Before there is a group, nothing looks at it.
    let early = "import torch\nimport torch.distributed as dist\ndef main():\n    a = \
                 torch.zeros(2)\n    a.fill_(7)\n    dist.init_process_group('gloo')\n    \
                 dist.all_reduce(a)\nrun(main, world_size=2)\n";
    let plan = compiled(early).plan;
    let ops: Vec<&str> = plan.programs[0].ops.iter().map(|op| op.action.name()).collect();
    assert_eq!(ops, ["copy", "all_reduce"]);
}

/// A tensor without a device is a guess where NCCL is the only backend, and said to be one where the
/// program knows of devices.
#[test]
fn a_tensor_without_a_device_is_told() {
    let told = |backend: &str, first: &str| {
        let body =
            format!("    x = {first}\n    dist.all_reduce(torch.ones(3))\n    y = torch.ones(3)");
        compiled(&in_main(backend, &body)).assumed
    };
    let on_cuda = "torch.ones(3, device='cuda')";
    let [(8, text)] = &told("nccl", on_cuda)[..] else { panic!("not told") };
    assert!(text.contains("names no device") && text.contains("device = \"cuda\""), "{text}");
    assert_eq!(told("nccl", "torch.ones(3)"), []);
    let moved = "    dist.all_reduce(torch.ones(3).to('cuda'))\n    dist.all_reduce(tensor(3))";
    assert_eq!(compiled(&in_main("nccl", moved)).assumed, []);
    assert_eq!(told("cpu:gloo,cuda:nccl", on_cuda), []);
    let device = printed_on("cpu:gloo,cuda:nccl", "print(torch.ones(3).device, tensor(3).device)");
    assert_eq!(device, ["cpu cuda:0"]);
}

fn printed_on(backend: &str, statement: &str) -> Vec<String> {
    let compiled = compiled(&in_main(backend, &format!("    {statement}")));
    of_rank(&compiled, 0).into_iter().map(str::to_owned).collect()
}

/// As CPython 3.11.
#[test]
fn a_star_takes_what_is_left() {
    let body = r#"
    a, *b = [1, 2, 3]; print(a, b)
    *a, b = (1, 2, 3)
    print(a, b)
    a, *b, c = range(5)
    print(a, b, c)
    [a, *b] = [1]
    (c, *d) = 1, 2, 3
    print(a, b, c, d)
    for a, *b in [(1, 2, 3), (4,)]:
        print(a, b)
    import os; import math; print(math.floor(2.5)); x = 2 * 3
    print(x, dict(a = 2 * 2))
"#;
    assert_eq!(
        printed(body),
        [
            "1 [2, 3]",
            "[1, 2] 3",
            "0 [1, 2, 3] 4",
            "1 [] 1 [2, 3]",
            "1 [2, 3]",
            "4 []",
            "2",
            "6 {'a': 4}"
        ]
    );
    let raised = compiled(&in_main("gloo", "    a, *b, c = [1]")).raised;
    let text = "ValueError: not enough values to unpack (expected at least 2, got 1)";
    assert_eq!(raised[0].1.message, text);
}

/// A statement of tutorials that a program cannot have is answered with a replacement.
#[test]
fn tutorials_are_told_what_to_write() {
    for (line, help) in [
        ("    accum = [1]\n    accum[:] = [rank]", "make it anew"),
        ("    class Toy(pl.LightningModule):\n        pass", "models.mlp([10, 10, 5])"),
        ("    y = torch.special.erf(2)", "docs/programs.md"),
    ] {
        let error = executed(&in_main("gloo", line)).unwrap_err();
        let said = format!("{error} {}", error.help.clone().unwrap_or_default());
        assert!(said.contains(help), "{line}: {said}");
    }
}

/// A script whose own function is called `run`, as PyTorch's tutorials call it.
#[test]
fn a_script_may_call_its_own_function_run() {
    let text = r#"
import torch.distributed as dist

def run(rank, size):
    print(rank, size)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
"#;
    let options = Options { world_size: Some(2), ..Options::default() };
    let compiled = compile("train.py", text, &options).unwrap();
    let printed: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(printed, ["0 2", "1 2"]);
}

/// Calls that only print or switch a setting refuse no program.
#[test]
fn the_machine_may_be_asked_for_its_name() {
    let text = r#"
import gc, os, random, socket, time, warnings
import torch
import torch.distributed as dist
from datetime import datetime

warnings.filterwarnings("ignore")
random.seed(0)
dist.init_process_group("gloo")
print(socket.gethostname(), os.uname()[1], os.getuid(), time.ctime(), time.strftime("%H:%M"), datetime.now())
print(torch.__version__, torch.cuda.get_device_name(0))
torch.use_deterministic_algorithms(True)
gc.collect()
if dist.get_rank() != 1:
    dist.barrier()
"#;
    let options = Options { world_size: Some(2), ..Options::default() };
    let compiled = compile("train.py", text, &options).unwrap();
    assert_eq!(compiled.printed.len(), 4, "{:?}", compiled.printed);
    assert!(compiled.printed[0].text.contains("<known when it runs>"), "{:?}", compiled.printed);
    assert!(compiled.printed[1].text.starts_with("2.7.1 <known"), "{:?}", compiled.printed);
    let decides = text.replace("if dist.get_rank() != 1", "if socket.gethostname() == 'a'");
    let refused = compile("train.py", &decides, &options).unwrap_err();
    assert!(refused.message.contains("nothing can be decided by it"), "{refused:?}");
}

/// Classes of models: attributes of one name, loops that only give weights their first values, and refusals
/// with a reason.
#[test]
fn classes_of_models_are_followed_or_refused_by_name() {
    let program = |init: &str, after: &str| {
        format!(
            "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\n\n\
             class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
             self.lin = nn.Linear(4, 4)\n        self.width = 8\n{init}\n    def forward(self, x):\n        \
             return self.lin(x)\n\nclass Other(nn.Module):\n    def __init__(self):\n        \
             super().__init__()\n        self.width = 4\n\n    def forward(self, x):\n        return x\n\n\
             dist.init_process_group(\"gloo\")\n{after}\ndist.barrier()\n"
        )
    };
    let options = Options { world_size: Some(2), ..Options::default() };
    let of = |init: &str, after: &str| compile("train.py", &program(init, after), &options);
    let frozen = "        self.to(\"cpu\")\n        for p in self.parameters():\n            \
                  p.requires_grad_(False)\n            dist.broadcast(p.data, 0)\n";
    let weights = "        for name, p in self.named_parameters():\n            if name.endswith(\"weight\"):\n                \
                   nn.init.normal_(p)\n        for m in self.modules():\n            if isinstance(m, nn.Linear):\n                \
                   m.weight.data.normal_(0, 0.1)\n";
    for init in ["", weights, frozen] {
        let made = of(init, "print(Net().width, Other().width)").unwrap();
        assert_eq!(made.printed.len(), 2, "{init}: {:?}", made.printed);
        assert_eq!(made.printed[0].text, "8 4", "{init}");
    }
    let made = of(
        "",
        "for p in Net().parameters():\n    print(type(p) is torch.Tensor, type(p) is nn.Parameter, isinstance(p, \
         nn.Parameter), p.requires_grad, p.requires_grad_(False).requires_grad)",
    )
    .unwrap();
    assert_eq!(made.printed[0].text, "False True True True False");
    let lightning = "import pytorch_lightning as pl\nclass Model(pl.LightningModule):\n    def __init__(self):\n        \
                     super().__init__()\n        self.layer = 1\nModel()\n";
    let refused = compile("train.py", lightning, &options).unwrap_err();
    assert!(refused.message.contains("pl.LightningModule is not known here"), "{refused:?}");
}
