//! Programs whose `forward` is executed, call by call as on real gloo: `forward/NAME.py` is the script,
//! `forward/truth.json` the calls of its ranks with PyTorch 2.15, written by `forward/record.py`.
//! `forward/parameters.json` has the parameters of layers as that PyTorch registers them (`forward/parameters.py`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Call, Op, Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Options};
use serde_json::Value;

fn truth() -> Value {
    serde_json::from_str(include_str!("forward/truth.json")).unwrap()
}

/// A call of PyTorch's as one line: its name, type, elements, reduction, root or peer, and line.
fn recorded(call: &Value) -> String {
    let elements = |of: &Value| of.as_array().unwrap().first().and_then(Value::as_u64);
    let text = |of: &Value| of.as_str().unwrap_or("-").to_owned();
    let number = |of: &Value| of.as_u64().map_or("-".to_owned(), |number| number.to_string());
    let numel = elements(&call[2]).or(elements(&call[3])).unwrap_or(0);
    let (dtype, at) = (text(&call[1]), number(&call[7]));
    let who = if call[5].is_null() { number(&call[6]) } else { number(&call[5]) };
    format!("{} {dtype} {numel} {} {who} line {at}", text(&call[0]), text(&call[4]))
}

fn planned(plan: &Plan, op: &Op, call: &Call) -> String {
    let tensor = |id: TensorId| plan.tensor(id).unwrap();
    let line = op.at.map_or(0, |at| at.line);
    let dtype = |dtype: Dtype| dtype.name().to_owned();
    match call {
        Call::Collective { collective, count, input, output, .. } => {
            let of = input.or(*output).map(tensor);
            let of = of.map_or("-".to_owned(), |tensor| dtype(tensor.dtype));
            let reduce = match collective.reduce_op() {
                Some(op) => format!("{op:?}").to_lowercase(),
                None => "-".to_owned(),
            };
            let root = collective.root().map_or("-".to_owned(), |root| root.to_string());
            format!("{} {of} {count} {reduce} {root} line {line}", collective.name())
        }
        Call::Send { peer, tensor: id, .. } => {
            let own = tensor(*id);
            format!("send {} {} - {peer} line {line}", dtype(own.dtype), own.numel)
        }
        Call::Recv { peer, tensor: id, .. } => {
            let (own, peer) = (tensor(*id), peer.map_or("-".to_owned(), |peer| peer.to_string()));
            format!("recv {} {} - {peer} line {line}", dtype(own.dtype), own.numel)
        }
    }
}

fn executed(name: &str, text: &str) -> Compiled {
    let world = truth()["programs"][name]["world_size"].as_u64().unwrap();
    let options = Options { world_size: Some(world as u32), ..Options::default() };
    compile("train.py", text, &options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn calls(plan: &Plan, rank: u32) -> Vec<String> {
    let program = plan.program(GlobalRank(rank)).unwrap();
    let calls = program
        .ops
        .iter()
        .flat_map(|op| op.action.calls().iter().map(move |call| planned(plan, op, call)));
    calls.collect()
}

fn unfollowed(compiled: &Compiled) -> Vec<String> {
    let ops = compiled.plan.programs.iter().flat_map(|program| &program.ops);
    let noted = ops.filter_map(|op| match Remark::of(op) {
        Some(Remark::NotFollowed { what, line, why }) => {
            Some(format!("{what}, line {line}: {why}"))
        }
        _ => None,
    });
    noted.collect()
}

macro_rules! compared {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            let text = include_str!(concat!("forward/", stringify!($name), ".py"));
            let compiled = executed(stringify!($name), text);
            assert_eq!(unfollowed(&compiled), Vec::<String>::new());
            let truth = truth();
            let ranks = truth["programs"][stringify!($name)]["ranks"].as_array().unwrap();
            for (rank, expected) in (0..).zip(ranks) {
                let expected: Vec<String> =
                    expected.as_array().unwrap().iter().map(recorded).collect();
                let found = calls(&compiled.plan, rank);
                assert_eq!(found, expected, "rank {rank}");
            }
        }
    )*};
}

compared! {
    attention,
    branch_by_rank,
    by_step,
    checkpointed,
    collective_inside,
    containers,
    frozen_by_hand,
    order_by_rank,
    outputs,
    pictures,
    pipeline,
    recurrent,
    reentrant,
    row_parallel,
    sync_batch_norm,
    tied,
    transformers,
    two_models,
    unused_raises,
    used_backwards,
}

/// Layers have the parameters of PyTorch's: names, shapes and order.
#[test]
fn layers_register_pytorchs_parameters() {
    let known: Value = serde_json::from_str(include_str!("forward/parameters.json")).unwrap();
    for (made, parameters) in known["layers"].as_object().unwrap() {
        let text = format!(
            "import torch, torch.nn as nn, torch.distributed as dist\n\
             dist.init_process_group('gloo')\nlayer = {made}\n\
             for name, own in layer.named_parameters():\n    print([name, list(own.shape)])\n"
        );
        let options = Options { world_size: Some(1), ..Options::default() };
        let compiled =
            compile("train.py", &text, &options).unwrap_or_else(|e| panic!("{made}: {e}"));
        let printed = compiled.printed.iter().map(|print| print.text.replace('\'', "\""));
        let printed: Vec<Value> =
            printed.map(|text| serde_json::from_str(&text).unwrap()).collect();
        assert_eq!(&printed, parameters.as_array().unwrap(), "{made}");
    }
}

/// A program with a class of two layers, whose `forward` has this body.
fn with_forward(body: &str) -> Compiled {
    let text = format!(
        "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\n\
         from torch.nn.parallel import DistributedDataParallel as DDP\n\
         class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
         self.a = nn.Linear(4, 4)\n        self.b = nn.Linear(4, 4)\n    def forward(self, x):\n{body}\
         dist.init_process_group('gloo')\nmodel = DDP(Net())\nfor step in range(2):\n    \
         model(torch.randn(2, 4)).sum().backward()\ndist.barrier()\n"
    );
    let options = Options { world_size: Some(2), ..Options::default() };
    compile("train.py", &text, &options).unwrap_or_else(|error| panic!("{body}: {error}"))
}

/// An operation that is not known, and a decision by a value that depends on data, are told with their line, once for
/// each rank; the program goes on, and nothing raises in its name.
#[test]
fn what_is_not_followed_is_told_with_its_line() {
    for (body, line, why) in [
        ("        return self.b(torch.special.erf(self.a(x)))\n", 11, "`special`"),
        ("        x = self.a(x)\n        return self.b(x.frobnicate())\n", 12, "frobnicate"),
        (
            "        x = self.a(x)\n        if x.sum() > 0:\n            x = self.b(x)\n        return x\n",
            12,
            "values",
        ),
        (
            "        x = self.a(x)\n        while x.max().item() > 1:\n            x = x / 2\n        return self.b(x)\n",
            12,
            "values",
        ),
        (
            "        x = self.a(x)\n        if float(x.mean()) == 0.5:\n            return x\n        return self.b(x)\n",
            12,
            "values",
        ),
    ] {
        let compiled = with_forward(body);
        assert_eq!(compiled.raised, [], "{body}");
        let told = unfollowed(&compiled);
        let front = format!("Net.forward, line {line}: ");
        assert!(!told.is_empty(), "{body}");
        assert!(told.iter().all(|told| told.starts_with(&front) && told.contains(why)), "{told:?}");
    }
}

/// An exception of the program's own, raised in `forward`, is one.
#[test]
fn what_forward_raises_ends_the_rank() {
    let compiled = with_forward("        raise ValueError(\"no\")\n");
    assert_eq!(compiled.raised[0].1.message, "ValueError: no");
    assert_eq!(unfollowed(&compiled), Vec::<String>::new());
}

/// Classes in functions and in methods, and methods that every module has.
#[test]
fn classes_of_modules_stand_anywhere() {
    let text = "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\n\
                class Trainer:\n    def build(self, width):\n        class Inner(nn.Module):\n            \
                def __init__(self):\n                super().__init__()\n                \
                self.lin = nn.Linear(width, 3)\n            def forward(self, x):\n                \
                return self.lin(x)\n        return Inner()\n\
                dist.init_process_group('gloo')\nnet = Trainer().build(4)\n\
                print(net(torch.ones(2, 4)).shape, net.training, net.eval().training)\n\
                print([name for name, _ in net.named_modules()], type(net.lin) is nn.Linear)\n\
                print(isinstance(nn.ReLU(), nn.ReLU), isinstance(nn.GRU(2, 2), (nn.LSTM, nn.GRU)), \
                isinstance(nn.SyncBatchNorm(2), nn.SyncBatchNorm), isinstance(nn.ReLU(), nn.GELU))\n";
    let options = Options { world_size: Some(1), ..Options::default() };
    let printed = compile("train.py", text, &options).unwrap().printed;
    let lines: Vec<&str> = printed.iter().map(|print| print.text.as_str()).collect();
    let known = ["torch.Size([2, 3]) True False", "['', 'lin'] True", "True True True False"];
    assert_eq!(lines, known);
}

const NORMS: &str = "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\n\
                     from torch.nn.parallel import DistributedDataParallel as DDP\n\
                     net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))\n\
                     net = nn.SyncBatchNorm.convert_sync_batchnorm(net)\n";

/// On NCCL the statistics come in one tensor (`torch/nn/modules/_functions.py`), which a plan calls an all_gather too.
#[test]
fn batch_norms_share_their_statistics_on_nccl() {
    let text = format!(
        "{NORMS}dist.init_process_group('nccl')\nmodel = DDP(net.cuda())\n\
         model(torch.randn(8, 4).cuda()).sum().backward()\n"
    );
    let options = Options { world_size: Some(2), ..Options::default() };
    let compiled = compile("train.py", &text, &options).unwrap();
    assert_eq!(unfollowed(&compiled), Vec::<String>::new());
    let made = calls(&compiled.plan, 1);
    let gathered = "all_gather float32 13 - - line 9".to_owned();
    let summed = "all_reduce float32 12 sum - line 9".to_owned();
    let place = |call: &String| made.iter().position(|made| made == call);
    assert!(place(&gathered).is_some() && place(&gathered) < place(&summed), "{made:?}");
}

/// PyTorch's refusals: of DDP's constructor, and of a pass without DDP.
#[test]
fn batch_norms_of_all_ranks_need_a_gpu() {
    for (line, said) in [
        ("DDP(net)", "ValueError: SyncBatchNorm layers only work with GPU modules"),
        ("net(torch.randn(8, 4))", "ValueError: SyncBatchNorm expected input tensor to be on GPU"),
        ("nn.SyncBatchNorm.convert_sync_batchnorm(1)", "'int' object has no attribute"),
        ("nn.MultiheadAttention(8, 3)", "AssertionError: embed_dim must be divisible by num_heads"),
        ("nn.LSTM(2, 2, 0)", "ValueError: num_layers must be greater than zero"),
    ] {
        let text = format!("{NORMS}dist.init_process_group('gloo')\n{line}\ndist.barrier()\n");
        let options = Options { world_size: Some(2), ..Options::default() };
        let compiled = compile("train.py", &text, &options).unwrap();
        let raised = compiled.raised.first().map(|(_, error)| error.message.clone());
        assert!(raised.as_ref().is_some_and(|text| text.contains(said)), "{line}: {raised:?}");
    }
}
