//! Results of computing with tensors while a program is recorded, against the output of PyTorch 2.7.1.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

fn compiled(body: &str) -> Result<Compiled, ProgramError> {
    let body = body.replace('\n', "\n    ");
    let text = format!(
        "import torch\nimport torch.distributed as dist\nimport torch.nn as nn\n\ndef main():\n    \
         dist.init_process_group('gloo')\n    rank = dist.get_rank()\n    {body}\n\n\
         run(main, world_size = 2)\n"
    );
    compile("train.py", &text, &Options::default())
}

fn printed(body: &str) -> Vec<String> {
    let compiled = compiled(body).unwrap();
    assert_eq!(compiled.raised, [], "{body}");
    let own = compiled.printed.into_iter().filter(|print| print.rank.0 == 0);
    own.map(|print| print.text).collect()
}

/// Shape, type, whether it lies in a row, and values, as PyTorch 2.7.1 prints them.
#[test]
fn values_are_pytorchs() {
    let head = "x = torch.tensor([1.5, -2.25, 3.0, 7.0])\nz = torch.tensor([3, -7, 10, 4])\n\
                y = torch.arange(6, dtype=torch.float32).view(2, 3)\n";
    for (expression, expected) in [
        ("x ** 2", "[4] torch.float32 True [2.25, 5.0625, 9.0, 49.0]"),
        (
            "x ** -1",
            "[4] torch.float32 True [0.6666666865348816, -0.4444444477558136, 0.3333333432674408, \
             0.1428571492433548]",
        ),
        ("1 - x", "[4] torch.float32 True [-0.5, 3.25, -2.0, -6.0]"),
        ("7 - x * 2", "[4] torch.float32 True [4.0, 11.5, 1.0, -7.0]"),
        (
            "2 / x",
            "[4] torch.float32 True [1.3333333730697632, -0.8888888955116272, 0.6666666865348816, \
             0.2857142984867096]",
        ),
        ("x // 2", "[4] torch.float32 True [0.0, -2.0, 1.0, 3.0]"),
        ("x % 2", "[4] torch.float32 True [1.5, 1.75, 1.0, 1.0]"),
        ("z // 3", "[4] torch.int64 True [1, -3, 3, 1]"),
        ("z % 3", "[4] torch.int64 True [0, 2, 1, 1]"),
        (
            "2 / z",
            "[4] torch.float32 True [0.6666666865348816, -0.2857142984867096, 0.20000000298023224, \
             0.5]",
        ),
        (
            "torch.full((2,), 3.0) * 0.1",
            "[2] torch.float32 True [0.30000001192092896, 0.30000001192092896]",
        ),
        (
            "torch.tensor([1.0, 2.0], dtype=torch.float16) / 3",
            "[2] torch.float16 True [0.333251953125, 0.66650390625]",
        ),
        ("y.t() + 1", "[3, 2] torch.float32 False [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]"),
        (
            "(y.t() + 1).contiguous()",
            "[3, 2] torch.float32 True [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]",
        ),
        (
            "y.transpose(0, 1).double()",
            "[3, 2] torch.float64 False [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]",
        ),
        (
            "y.t() + torch.ones(3, 2)",
            "[3, 2] torch.float32 False [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]",
        ),
        (
            "torch.ones(3, 2) + y.t()",
            "[3, 2] torch.float32 True [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]",
        ),
        ("y.sum(0)", "[3] torch.float32 True [3.0, 5.0, 7.0]"),
        ("torch.sum(y, dim=1, keepdim=True)", "[2, 1] torch.float32 True [[3.0], [12.0]]"),
        ("y.mean(dim=1)", "[2] torch.float32 True [1.0, 4.0]"),
        ("y.max()", "[] torch.float32 True 5.0"),
        ("y.max(1)[1]", "[2] torch.int64 True [2, 2]"),
        ("torch.eye(2, 3)", "[2, 3] torch.float32 True [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]"),
        ("torch.vstack([z, z])", "[2, 4] torch.int64 True [[3, -7, 10, 4], [3, -7, 10, 4]]"),
        ("torch.hstack([y[0], y[1]])", "[6] torch.float32 True [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]"),
        (
            "torch.arange(4).view(1, 2, 2).permute(2, 0, 1)",
            "[2, 1, 2] torch.int64 False [[[0, 2]], [[1, 3]]]",
        ),
        ("x[::2]", "[2] torch.float32 False [1.5, 3.0]"),
        ("torch.arange(6).view(3, 2)[::2]", "[2, 2] torch.int64 False [[0, 1], [4, 5]]"),
        ("y[:, 0].view(2, 1)", "[2, 1] torch.float32 False [[0.0], [3.0]]"),
        ("y.eq(3)", "[2, 3] torch.bool True [[False, False, False], [True, False, False]]"),
        ("z.clamp(-1, 5)", "[4] torch.int64 True [3, -1, 5, 4]"),
    ] {
        let body = format!(
            "{head}t = {expression}\nprint(list(t.shape), t.dtype, t.is_contiguous(), t.tolist())"
        );
        assert_eq!(printed(&body), [expected], "{expression}");
    }
    let body = format!(
        "{head}print(z.sum().item(), x.mean().item(), torch.tensor(0.1).item(), float(x[0]))\n\
         if torch.equal(x, x + 0) and x.sum().item() > 3: print('yes')"
    );
    assert_eq!(printed(&body), ["10 2.3125 0.10000000149011612 1.5", "yes"]);
}

/// A number that only a run knows goes into sums, lists and prints, and decides nothing.
#[test]
fn numbers_that_are_not_known_decide_nothing() {
    let known = "<a tensor's value: known when it runs>";
    let losses = "t = torch.ones(2)\ndist.all_reduce(t)\ntotal = 0.0\n";
    let body = format!(
        "{losses}total += t[0].item()\nlosses = [1 - total]\nprint(total / 2, round(total, 2))\n\
         print(f'{{losses[0]:.3f}} %.2f' % total)\nmodel = DDP(nn.Linear(2, 2))\n\
         loss = nn.MSELoss()(model(t), t)\nprint(loss.item())"
    );
    let twice = format!("{known} {known}");
    assert_eq!(printed(&body), [twice.as_str(), &twice, known]);
    for decides in [
        "if t[0].item() > 1: dist.barrier()",
        "if t.sum().item(): dist.barrier()",
        "assert torch.equal(t, t * 1)",
        "if not t[0].item(): raise ValueError('x')",
        "for i in range(t[0].item()): dist.barrier()",
        "if torch.rand(1).item() < 0.5: dist.barrier()",
        "if (torch.rand(1) + 1).item() < 0.5: dist.barrier()",
        "if t: dist.barrier()\ndist.barrier()",
        "if t == 1: dist.barrier()",
    ] {
        let error = compiled(&format!("{losses}{decides}")).unwrap_err();
        let said = error.message.contains("known") || error.message.contains("tensor");
        assert!(said && error.line >= 9, "{decides}: {error}");
    }
}

/// As PyTorch 2.7.1 refuses them: the rank ends, and not the program.
#[test]
fn shapes_that_do_not_fit_end_their_rank() {
    for (expression, expected) in [
        ("torch.ones(4).view(3)", "RuntimeError: shape '[3]' is invalid for input of size 4"),
        (
            "torch.ones(4).view(-1, 3)",
            "RuntimeError: shape '[-1, 3]' is invalid for input of size 4",
        ),
        ("torch.ones(4).view(-1, -1)", "RuntimeError: only one dimension can be inferred"),
        ("torch.ones(4).reshape((3,))", "RuntimeError: shape '[3]' is invalid for input of size 4"),
        (
            "torch.tensor([2]) ** -1",
            "RuntimeError: Integers to negative integer powers are not allowed.",
        ),
        (
            "torch.tensor([1, 2]).mean()",
            "RuntimeError: mean(): could not infer output dtype. Input dtype must be either a floating \
             point or complex dtype. Got: Long",
        ),
        (
            "torch.ones(2).item()",
            "RuntimeError: a Tensor with 2 elements cannot be converted to Scalar",
        ),
        (
            "torch.ones(2).sum(3)",
            "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 3)",
        ),
        (
            "torch.ones(2, 3).expand(4, 3)",
            "RuntimeError: The expanded size of the tensor (4) must match the existing size (2) at \
             non-singleton dimension 0.  Target sizes: [4, 3].  Tensor sizes: [2, 3]",
        ),
    ] {
        let raised =
            compiled(&format!("if rank == 1: {expression}\ndist.barrier()")).unwrap().raised;
        let [(ranks, error)] = &raised[..] else { panic!("{expression}: {raised:?}") };
        assert_eq!((ranks[0].0, error.message.as_str()), (1, expected));
    }
}

/// The code of tutorials around their models.
#[test]
fn tutorials_go_through() {
    let body = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
                self.conv1 = nn.Conv2d(1, 10, kernel_size=5)\n        \
                self.norm = nn.BatchNorm2d(10)\n        self.drop = nn.Dropout2d()\n        \
                self.fc = nn.ModuleList([nn.Linear(320, 50), nn.LayerNorm(50)])\n    \
                def forward(self, x):\n        return x\n";
    let body = format!(
        "{body}acc = torch.accelerator.current_accelerator()\n\
         print(acc, torch.distributed.get_default_backend_for_device(acc))\n\
         model = DDP(Net())\nprint([(n, list(p.shape)) for n, p in model.named_parameters()][:4])\n\
         opt = torch.optim.Adagrad(model.parameters(), lr=0.1)\n\
         torch.save({{'model': model.state_dict(), 'opt': opt.state_dict()}}, 'x.pt')\n\
         state = torch.load('x.pt', weights_only=True)\nmodel.load_state_dict(state['model'])\n\
         opt.load_state_dict(state['opt'])\nmodel.eval()\n\
         @torch.no_grad()\ndef evaluate(x, n=1):\n    print(torch.is_grad_enabled(), n)\n    return n\n\
         assert evaluate(torch.ones(1), n=2) == 2\nprint(torch.is_grad_enabled())\n\
         dist.barrier()"
    );
    assert_eq!(
        printed(&body),
        [
            "cuda nccl",
            "[('module.conv1.weight', [10, 1, 5, 5]), ('module.conv1.bias', [10]), \
             ('module.norm.weight', [10]), ('module.norm.bias', [10])]",
            "False 2",
            "True"
        ]
    );
    let error = compiled("if torch.load('x.pt')['epoch'] > 3: dist.barrier()").unwrap_err();
    assert!(error.message.contains("what a checkpoint holds is not known"), "{error}");
}

/// Every rank gets as many batches, whose rows PyTorch's sampler shares out.
#[test]
fn batches_are_shared_out() {
    let body = "from torch.utils.data import DataLoader, TensorDataset\n\
                from torch.utils.data.distributed import DistributedSampler\n\
                data = TensorDataset(torch.randn(21, 10), torch.arange(21))\n\
                sampler = DistributedSampler(data)\n\
                loader = DataLoader(data, batch_size=4, sampler=sampler, pin_memory=True)\n\
                sampler.set_epoch(1)\nprint(len(data), len(sampler), len(loader))\n\
                model = DDP(nn.Linear(10, 5))\nfor nth, (x, y) in enumerate(loader):\n    \
                nn.CrossEntropyLoss()(model(x), y).backward()\n    \
                if nth == len(loader) - 1: print(list(x.shape), list(y.shape), y.dtype)";
    assert_eq!(printed(body), ["21 11 3", "[3, 10] [3] torch.int64"]);
    // The chosen rows are not known.
    let body = "import torch.utils.data as data\nfor rows in data.DataLoader(data.TensorDataset(\
                torch.arange(4))):\n    dist.all_reduce(rows[0])";
    let plan = compiled(body).unwrap().plan;
    assert!(plan.unknown().contains(&true), "{:?}", plan.tensors);
}
