//! Scripts as tutorials write them, compared with the output and errors of PyTorch 2.7.1 on 2 ranks of gloo.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::plan::Action;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Options};

fn compiled(body: &str) -> Compiled {
    let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!(
        "import torch.nn as nn\nimport torch.nn.functional as F\n\ndef main():\n    \
         dist.init_process_group('gloo')\n    rank = dist.get_rank()\n    ws = \
         dist.get_world_size()\n{indented}\nrun(main, world_size = 2)\n"
    );
    compile("train.py", &text, &Options::default()).unwrap()
}

/// The output of rank 0.
fn printed(body: &str) -> Vec<String> {
    let compiled = compiled(body);
    assert_eq!(compiled.raised, [], "{body}");
    let own = compiled.printed.into_iter().filter(|print| print.rank == GlobalRank(0));
    own.map(|print| print.text).collect()
}

/// The error that rank 0 raises.
fn raised(body: &str) -> String {
    let compiled = compiled(body);
    let own = compiled.raised.iter().find(|(ranks, _)| ranks.contains(&GlobalRank(0)));
    own.unwrap_or_else(|| panic!("{body} raises nothing")).1.message.clone()
}

#[test]
fn types_and_shapes_are_pytorchs() {
    for (expression, expected) in [
        ("torch.full((2,), 3).dtype", "torch.int64"),
        ("torch.full((2,), 1.5).dtype", "torch.float32"),
        ("torch.full((2,), True).dtype", "torch.bool"),
        ("torch.cat([torch.zeros(2).half(), torch.zeros(2).bfloat16()]).dtype", "torch.float32"),
        ("torch.cat([torch.zeros(0), torch.zeros(2, 2)]).shape", "torch.Size([2, 2])"),
        ("torch.zeros(4, 4).chunk(2, dim=1)[0].shape", "torch.Size([4, 2])"),
        ("torch.zeros(4, 4).chunk(2, dim=1)[0].is_contiguous()", "False"),
        ("torch.zeros(4, 4).split(2, 1)[1].shape", "torch.Size([4, 2])"),
        ("torch.zeros(4, 4).split([1, 3], dim=0)[1].is_contiguous()", "True"),
        ("torch.zeros(4, 4)[1:3, 0].shape", "torch.Size([2])"),
        ("torch.zeros(4, 4)[:, 1:3].shape", "torch.Size([4, 2])"),
        ("torch.zeros(4, 4)[0, 1].shape", "torch.Size([])"),
        ("torch.zeros(4, 4)[:2, :2].is_contiguous()", "False"),
        ("torch.zeros(4, 4)[1:, :].is_contiguous()", "True"),
        ("(torch.ones(2, dtype=torch.int64) / 2).dtype", "torch.float32"),
        ("(torch.ones(2, dtype=torch.int64) * 1.5).dtype", "torch.float32"),
        ("(2 * torch.ones(2, 3) + torch.ones(3)).shape", "torch.Size([2, 3])"),
        ("torch.tensor([[1, 2], [3, 4]]).shape", "torch.Size([2, 2])"),
        ("torch.tensor([1, 2.5]).dtype", "torch.float32"),
        ("[*[1, 2], 3, *(4, 5)]", "[1, 2, 3, 4, 5]"),
    ] {
        assert_eq!(printed(&format!("print({expression})")), [expected], "{expression}");
    }
}

#[test]
fn what_cannot_be_computed_raises_pytorchs_text() {
    for (body, expected) in [
        (
            "i = torch.ones(2, dtype=torch.int64); i /= 2",
            "RuntimeError: result type Float can't be cast to the desired output type Long",
        ),
        (
            "a = torch.ones(3) + torch.ones(4)",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at \
             non-singleton dimension 0",
        ),
        (
            "a = torch.ones(3)\na += torch.ones(2, 3)",
            "RuntimeError: output with shape [3] doesn't match the broadcast shape [2, 3]",
        ),
        (
            "torch.zeros(4).copy_(torch.zeros(2, 4))",
            "RuntimeError: output with shape [4] doesn't match the broadcast shape [2, 4]",
        ),
        (
            "def f(x): return x\ndist.broadcast_object_list([f], 0)",
            "AttributeError: Can't pickle local object 'main.<locals>.f'",
        ),
        (
            "dist.all_gather_object([None] * ws, lambda x: x)",
            "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
        ),
        (
            "dist.all_to_all_single(torch.zeros(4, 4), torch.zeros(4, 4).t())",
            "ValueError: Tensors must be contiguous",
        ),
    ] {
        assert_eq!(raised(body), expected, "{body}");
    }
    // The output may lie as it likes.
    printed("dist.all_to_all_single(torch.zeros(4, 4).t(), torch.zeros(4, 4))");
}

/// Python's lists keep their identity, and numbers and texts do as they did.
#[test]
fn what_is_no_tensor_is_added_to_as_in_python() {
    let body = "n = 3; n += 1; s = 'a'; s += 'b'; l = [1]; k = l; l += [2]; d = {'x': 1}\nd['x'] += 2\n\
                if n > 3: n *= 2\nprint(n, s, l, k, d)";
    assert_eq!(printed(body), ["8 ab [1, 2] [1, 2] {'x': 3}"]);
    let body = "print('a', end=' '); print('b', 1, sep='-')\nprint('c', end='')";
    assert_eq!(printed(body), ["a b-1", "c"]);
}

#[test]
fn an_attribute_is_not_assigned_to() {
    let text = "def main():\n    s = struct(n = 1)\n    s.n += 1\nrun(main, world_size = 1)\n";
    let error = compile("train.py", text, &Options::default()).unwrap_err();
    assert!(error.message.contains("Cannot mutate an immutable value"), "{error}");
    assert_eq!(error.line, 3);
}

/// `average_gradients` of "Writing Distributed Applications with PyTorch".
#[test]
fn gradients_are_averaged_by_hand() {
    let body = "model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n\
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)\n\
                size = float(dist.get_world_size())\n\
                optimizer.zero_grad()\n\
                loss = F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2)) / 2\n\
                loss.backward()\n\
                for param in model.parameters():\n    \
                    dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)\n    \
                    param.grad.data /= size\n\
                optimizer.step()\n\
                print([(n, list(p.shape)) for n, p in model.named_parameters()])";
    assert_eq!(
        printed(body),
        ["[('0.weight', [8, 4]), ('0.bias', [8]), ('2.weight', [2, 8]), ('2.bias', [2])]"]
    );
    let plan = compiled(body).plan;
    let ops = &plan.program(GlobalRank(1)).unwrap().ops;
    let names: Vec<&str> = ops.iter().map(|op| op.action.name()).collect();
    let averaged = ["all_reduce", "reduce on this rank"].repeat(4);
    assert_eq!(names, [&["forward", "backward"], &averaged[..], &["optimizer.step"]].concat());
    // Each parameter's gradient is one tensor, and they are of different ones.
    let reduced = ops.iter().filter_map(|op| op.action.calls().first()?.tensors()[1]);
    let reduced: std::collections::BTreeSet<_> = reduced.collect();
    assert_eq!(reduced.len(), 4);
    for op in ops {
        if let Action::Copy(copy) = &op.action {
            assert!(reduced.contains(&copy.into));
        }
    }
}

/// Known values are worked out while the program is recorded; the rest are steps of the plan.
#[test]
fn tensors_are_computed_with() {
    let body =
        "t = torch.ones(2) * 3 + 1\nt -= 2\ndist.all_reduce(t)\nt.div_(ws)\nt += t\nu = t * t";
    let plan = compiled(&format!("{body}\ndist.all_reduce(u)")).plan;
    let ops = &plan.program(GlobalRank(0)).unwrap().ops;
    let seen = ops.iter().map(|op| match &op.action {
        Action::Copy(copy) => {
            let tensor = plan.tensor(copy.from).unwrap();
            format!("{:?} {:?} {:?}", copy.reduce, tensor.fill, tensor.data.0)
        }
        action => action.name().to_owned(),
    });
    let four = "Full { value: 4 } []";
    let two = 2_f32.to_le_bytes().repeat(2);
    let half = 0.5_f32.to_le_bytes().repeat(2);
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            format!("None Data {two:?}"),
            "all_reduce".to_owned(),
            format!("Some(Product) Data {half:?}"),
            format!("Some(Sum) {four}"),
            format!("None {four}"),
            format!("Some(Product) {four}"),
            "all_reduce".to_owned(),
        ]
    );
}

/// "Getting Started with Distributed Data Parallel", unchanged.
#[test]
fn a_class_of_models_is_a_model() {
    let text = "import os\nimport torch\nimport torch.distributed as dist\nimport torch.nn as nn\n\
                import torch.optim as optim\nimport torch.multiprocessing as mp\n\
                from torch.nn.parallel import DistributedDataParallel as DDP\n\n\
                def setup(rank, world_size):\n    os.environ['MASTER_ADDR'] = 'localhost'\n    \
                os.environ['MASTER_PORT'] = '12355'\n    \
                dist.init_process_group('gloo', rank=rank, world_size=world_size)\n\n\
                def cleanup():\n    dist.destroy_process_group()\n\n\
                class ToyModel(nn.Module):\n    def __init__(self, hidden=10):\n        \
                super(ToyModel, self).__init__()\n        self.net1 = nn.Linear(10, hidden)\n        \
                self.relu = nn.ReLU()\n        self.net2 = nn.Linear(hidden, 5)  # two\n\n    \
                def forward(self, x):\n        return self.net2(self.relu(self.net1(x)))\n\n\
                def demo_basic(rank, world_size):\n    print(f'Running basic DDP on rank {rank}.')\n    \
                setup(rank, world_size)\n    model = ToyModel().to(rank)\n    \
                ddp_model = DDP(model, device_ids=[rank])\n    loss_fn = nn.MSELoss()\n    \
                optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)\n    \
                optimizer.zero_grad()\n    outputs = ddp_model(torch.randn(20, 10))\n    \
                labels = torch.randn(20, 5).to(rank)\n    loss_fn(outputs, labels).backward()\n    \
                optimizer.step()\n    print([n for n, p in model.named_parameters()])\n    cleanup()\n\n\
                def run_demo(demo_fn, world_size):\n    \
                mp.spawn(demo_fn, args=(world_size,), nprocs=world_size, join=True)\n\n\
                if __name__ == '__main__':\n    run_demo(demo_basic, 2)\n";
    let compiled = compile("train.py", text, &Options::default()).unwrap();
    assert_eq!(compiled.raised, []);
    let texts: Vec<(&str, u32)> =
        compiled.printed.iter().map(|print| (print.text.as_str(), print.line)).collect();
    let names = "['net1.weight', 'net1.bias', 'net2.weight', 'net2.bias']";
    assert_eq!(texts[..2], [("Running basic DDP on rank 0.", 28), (names, 39)]);
    let ops = &compiled.plan.program(GlobalRank(0)).unwrap().ops;
    assert!(ops.iter().any(|op| op.action.name() == "all_reduce"));
}

/// The last of the elements that are written one by one, or in rows, are those that a call takes.
#[test]
fn parts_are_assigned_to() {
    let body = "t = torch.zeros(2, 2); t[0] = 3; t[1:] = torch.ones(2)\nt[1] += 1; t[:] = t + t\n\
                dist.all_reduce(t)";
    let plan = compiled(body).plan;
    let ops = &plan.program(GlobalRank(0)).unwrap().ops;
    let seen = ops.iter().filter_map(|op| match &op.action {
        Action::Copy(copy) => Some((copy.into_offset, copy.count, copy.reduce.is_some())),
        _ => None,
    });
    let expected = [(0, 2, false), (2, 2, false), (2, 2, false), (0, 4, false)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn futures_call_back() {
    let body = "w = dist.all_reduce(torch.ones(2), async_op=True)\n\
                w.get_future().add_done_callback(lambda f: print('done'))\nw.wait()\nprint('after')";
    assert_eq!(printed(body), ["done", "after"]);
    printed("dist.all_reduce_coalesced(torch.ones(2))");
    let body = "g = dist.new_group([0, 1]); print(g.name(), g.size(), g.rank())";
    assert_eq!(printed(body), ["gloo 2 0"]);
    let body = "ddp = DDP(nn.Linear(2, 2)); print([n for n, p in ddp.named_parameters()])";
    assert_eq!(printed(body), ["['module.weight', 'module.bias']"]);
}
