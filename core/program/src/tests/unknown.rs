//! Outputs of models, losses, and values computed of them: tensors of known shapes whose values only a run
//! knows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::plan::Call;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

fn of(body: &str) -> Result<Compiled, ProgramError> {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\
         import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\
         def main():\n    dist.init_process_group('gloo')\n    rank = dist.get_rank()\n\
         {body}run(main, world_size=2)\n"
    );
    compile("train.py", &text, &Options::default())
}

/// The output of rank 0.
fn printed(body: &str) -> Vec<String> {
    let compiled = of(body).unwrap_or_else(|error| panic!("{}: {}", error.line, error.message));
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    let own = compiled.printed.into_iter().filter(|print| print.rank.0 == 0);
    own.map(|print| print.text).collect()
}

fn refused(body: &str) -> String {
    of(body).err().map(|error| error.message).unwrap_or_default()
}

/// The collectives of rank 0 that DDP does not make, with the elements of their tensors.
fn calls(body: &str) -> Vec<(String, u64, bool)> {
    let plan = of(body).unwrap_or_else(|error| panic!("{}: {}", error.line, error.message)).plan;
    let unknown = plan.unknown();
    let ops = plan.programs[plan.program_of[0] as usize].ops.iter();
    let own = ops.filter(|op| op.via.as_deref().is_none_or(|via| !via.contains("Distributed")));
    let calls = own.filter_map(|op| match op.action.calls() {
        [call @ Call::Collective { output, input, .. }] => {
            let tensor = output.or(*input)?;
            let numel = plan.tensor(tensor)?.numel;
            Some((call.name().to_owned(), numel, unknown[tensor.index()]))
        }
        _ => None,
    });
    calls.collect()
}

const MODEL: &str = "class Toy(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
                     self.net1 = nn.Linear(10, 10)\n        self.relu = nn.ReLU()\n        \
                     self.net2 = nn.Linear(10, 5)\n    def forward(self, x):\n        \
                     return self.net2(self.relu(self.net1(x)))\n\
                     model = DDP(Toy())\nloss_fn = nn.CrossEntropyLoss()\n\
                     target = torch.randint(5, (20,))\nout = model(torch.randn(20, 10))\n\
                     loss = loss_fn(out, target)\n";

#[test]
fn losses_and_outputs_are_tensors_in_calls_and_sums() {
    let body = format!(
        "{MODEL}loss.backward()\nprint(out.shape, loss.shape, out.dtype, loss.requires_grad)\n\
         dist.all_reduce(loss)\nmean = loss.detach().clone()\ndist.all_reduce(mean)\n\
         total = torch.zeros(1)\ntotal += loss\ndist.reduce(total / 2, 0)\n\
         dist.all_reduce(torch.tensor([loss.item(), 3]))\n\
         losses = torch.stack([loss.detach(), mean])\ndist.broadcast(losses, 0)\n\
         correct = (out.argmax(1) == target).sum()\nprint(correct.dtype, correct.shape)\n\
         dist.all_reduce(correct)\nboth = torch.zeros(2)\nboth[0] += loss.item()\n\
         both[1] += len(target)\ndist.all_reduce(both)\nknown = torch.ones(7)\n\
         dist.all_reduce(known)\nprint((out > 0.5).float().sum().dtype, float(total))\n\
         print(f'{{loss.item():.4f}} {{loss:.2f}} {{100. * correct.item() / 20:.1f}}%', end='|')\n"
    );
    let call = |name: &str, numel, unknown| (name.to_owned(), numel, unknown);
    let expected = [
        call("all_reduce", 1, true),
        call("all_reduce", 1, true),
        call("reduce", 1, true),
        call("all_reduce", 2, true),
        call("broadcast", 2, true),
        call("all_reduce", 1, true),
        call("all_reduce", 2, true),
        call("all_reduce", 7, false),
    ];
    assert_eq!(calls(&body), expected);
    let unknown = "<a tensor's value: known when it runs>";
    assert_eq!(
        printed(&body),
        [
            "torch.Size([20, 5]) torch.Size([]) torch.float32 True".to_owned(),
            "torch.int64 torch.Size([])".to_owned(),
            format!("torch.float32 {unknown}"),
            format!("{unknown} {unknown} {unknown}%|"),
        ]
    );
}

#[test]
fn the_larger_of_numbers_of_which_one_is_unknown_is_unknown() {
    let body = format!(
        "{MODEL}best = 0.0\nfor _ in range(3):\n    best = max(best, loss.item())\n\
         print(best, 100 / max(int(loss), 1), min([1, 2, loss.item()]), max(3, 1))\n\
         dist.all_reduce(torch.tensor([best, 1.0]))\n"
    );
    assert_eq!(calls(&body), [("all_reduce".to_owned(), 2, true)]);
    let unknown = "<a tensor's value: known when it runs>";
    assert_eq!(printed(&body), [format!("{unknown} {unknown} {unknown} 3")]);
    let refused = refused(&format!("{MODEL}if max(loss.item(), 1) > 2: dist.barrier()"));
    assert!(refused.starts_with("a tensor's values are not known"), "{refused}");
}

#[test]
fn unknown_values_decide_nothing() {
    for condition in [
        "loss.item() > 1",
        "loss > 1",
        "float(loss) == 0",
        "(out.argmax(1) == target).sum().item() == 20",
        "int(loss) in [1, 2]",
        "loss",
    ] {
        let refused = refused(&format!("{MODEL}if {condition}: dist.barrier()"));
        assert!(refused.starts_with("a tensor's values are not known"), "{condition}: {refused}");
    }
    let sized = refused(&format!("{MODEL}x = torch.zeros(int(loss.item()))"));
    assert!(sized.contains("not known"), "{sized}");
}

#[test]
fn a_shape_that_no_module_says_can_be_given() {
    let head = "model = DDP(models.gpt2_small())\nout = model(torch.randint(9, (4, 8)))\n";
    let text = refused(&format!("{head}dist.all_reduce(out)"));
    assert!(text.contains("the shape is not known here") && text.contains("reshape"), "{text}");
    assert!(refused(&format!("{head}x = torch.zeros(out.shape)")).contains("reshape"));
    let given = format!("{head}dist.all_reduce(out.reshape(4, 8, 3))\ndist.all_reduce(out.mean())");
    let call = |numel| ("all_reduce".to_owned(), numel, true);
    assert_eq!(calls(&given), [call(96), call(1)]);
}

#[test]
fn what_comes_of_no_model_has_no_backward_pass() {
    let raised = of(&format!("{MODEL}loss.detach().backward()")).unwrap().raised;
    let text =
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn";
    assert_eq!(raised[0].1.message, text);
    let raised = of(&format!("{MODEL}out.backward()")).unwrap().raised;
    let text = "RuntimeError: grad can be implicitly created only for scalar outputs";
    assert_eq!(raised[0].1.message, text);
    let summed = format!(
        "{MODEL}total = 0\nfor _ in range(2):\n    total = total + loss\n\
                          (total / 2).backward()\nprint(model.module.net1 is None)"
    );
    assert!(!refused(&summed).contains("backward"), "{}", refused(&summed));
}

const METER: &str = "class Base:\n    unit = 'ms'\n    def __init__(self, name):\n        \
                     self.name = name\n    def __str__(self):\n        return f'{self.name} {self.sum}'\n\
                     class Meter(Base):\n    \"\"\"of losses\"\"\"\n\n    def __init__(self, name, n=0):\n        \
                     super().__init__(name)\n        self.reset()\n        self.count = n\n\n    \
                     def reset(self):\n        self.sum = 0\n        self.count = 0\n\n    \
                     def update(self, value, n=1):\n        self.sum += value * n\n        \
                     self.count += n\n        return self\n\n    def all_reduce(self):\n        \
                     total = torch.tensor([self.sum, self.count], dtype=torch.float32)\n        \
                     dist.all_reduce(total)\n        self.sum, self.count = total.tolist()\n        \
                     self.avg = self.sum / self.count\n\n    @staticmethod\n    def twice(x):\n        \
                     return 2 * x\n\n    def __call__(self, x):\n        return self.twice(x) + self.count\n";

#[test]
fn objects_have_attributes_and_methods_and_what_they_inherit() {
    let body = format!(
        "{METER}m = Meter('loss', n=1)\nm.update(2.5, 4).update(1)\nprint(m, m.count, m(3), Meter.unit)\n\
         m.extra = [1]\nm.extra += [2]\nprint(m.extra, isinstance(m, Base), isinstance(m, Meter), \
         m == Meter('x'), m == m)\nprint('{{name}} {{sum}}'.format(**m.__dict__))"
    );
    assert_eq!(printed(&body), ["loss 11.0 6 12 ms", "[1, 2] True True False True", "loss 11.0"]);
    let reduced = format!("{METER}m = Meter('loss')\nm.update(1.5)\nm.all_reduce()\nprint(m.name)");
    assert_eq!(calls(&reduced), [("all_reduce".to_owned(), 2, false)]);
    let data = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    steps: int\n    \
                lr: float = 0.1\nc = Config(3, lr=0.5)\nc.steps += 1\nprint(c.steps, c.lr, Config(1).lr)";
    assert_eq!(printed(data), ["4 0.5 0.1"]);
}

#[test]
fn lines_of_every_day_change_nothing() {
    let body = "import os, random, time, logging, argparse\nimport numpy as np\nfrom tqdm import tqdm\n\
                logging.basicConfig(level=logging.INFO)\nlogger = logging.getLogger('x')\n\
                parser = argparse.ArgumentParser('x')\n\
                parser.add_argument('--epochs', '-e', type=int, default=2)\n\
                parser.add_argument('--no-amp', action='store_true')\nargs = parser.parse_args()\n\
                args.rank = rank\nnp.random.seed(3)\nrandom.seed(3)\ntorch.manual_seed(3)\n\
                torch.backends.cudnn.benchmark = True\nos.makedirs('a', exist_ok=True)\n\
                start = time.time()\nfor epoch in tqdm(range(args.epochs), disable=rank != 0):\n    \
                logger.info('epoch %d of %s', epoch, args.no_amp)\n\
                print(f'{time.time() - start:.2f} s', os.path.join('a', 'b.pt'))\n\
                os.environ['A'] = '1'\ndel os.environ['A']\nprint('A' in os.environ)\n\
                d = {'a': 1, 'b': 2}\ndel d['a']\nprint(d)\n\
                def inner(x):\n    with torch.no_grad():\n        if x > 1:\n            return x + 1\n    \
                return 0\nprint(inner(2), inner(1), torch.is_grad_enabled())";
    assert_eq!(
        printed(body),
        [
            "epoch 0 of False",
            "epoch 1 of False",
            "<known when it runs> s a/b.pt",
            "False",
            "{'b': 2}",
            "3 0 True"
        ]
    );
    let asked = of("import os\nif os.path.exists('a.pt'): dist.barrier()").unwrap();
    assert!(asked.assumed[0].1.contains("no files"), "{:?}", asked.assumed);
    let late = refused("import time\nif time.time() > 3: dist.barrier()");
    assert!(late.contains("the clock"), "{late}");
}

#[test]
fn mixed_precision_schedules_and_sync_by_hand_are_followed() {
    let body = "model = DDP(nn.Linear(4, 2))\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n\
                sched = torch.optim.lr_scheduler.StepLR(opt, 1)\nscaler = torch.amp.GradScaler('cpu')\n\
                for step in range(2):\n    model.require_backward_grad_sync = step == 1\n    \
                with torch.autocast('cpu', dtype=torch.bfloat16):\n        out = model(torch.ones(3, 4))\n        \
                loss = F.cross_entropy(out, torch.zeros(3, dtype=torch.long))\n    \
                scaler.scale(loss).backward()\nscaler.step(opt)\nscaler.update()\nsched.step()\n\
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\ndist.all_reduce(norm)\n\
                print(out.dtype, loss.dtype, opt.param_groups[0]['lr'])";
    let unknown = "<a tensor's value: known when it runs>";
    assert_eq!(printed(body), [format!("torch.bfloat16 torch.float32 {unknown}")]);
    let plan = of(body).unwrap().plan;
    let reduces = plan.programs[0].ops.iter().filter(|op| op.action.name() == "all_reduce");
    // The bucket of the second pass, and the norm.
    assert_eq!(reduces.count(), 2);
}
