//! Programs whose mistake no call shows, or of which something was not followed: never healthy.

use super::json;
use lockstep_tests::lockstep;
use serde_json::Value;

/// Runs `sim` and `explore` on a program: their exit codes, and the simulation's report.
fn said(name: &str, text: &str) -> (i32, i32, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let simulated = lockstep(["sim", path, "--json"]);
    let explored = lockstep(["explore", path, "--json"]);
    let report = json(&simulated)["findings"].clone();
    (simulated.code, explored.code, report)
}

fn first_kind(report: &Value) -> &Value {
    &report["findings"][0]["kind"]
}

const EXCHANGE: &str = "
    n = dist.get_world_size()
    got = torch.zeros(4, device='cuda')
    mine = torch.ones(4, device='cuda')
    r = dist.irecv(got, src=(rank - 1) % n)
    s = dist.isend(mine, dst=(rank + 1) % n)
    r.wait()
    s.wait()
    torch.cuda.synchronize()
";

fn nccl(init: &str, body: &str, world: u32) -> String {
    format!(
        "import torch\nimport torch.distributed as dist\ndef main():\n    dist.init_process_group('nccl'{init})\n    \
         rank = dist.get_rank()\n    torch.cuda.set_device(rank)\n{body}\nrun(main, world_size={world})\n"
    )
}

/// Unbatched calls between two ranks share a stream; with device_id all of a group's do.
#[test]
fn nccls_streams_keep_the_order_of_sends_and_receives() {
    let (code, explored, report) = said("two.py", &nccl("", EXCHANGE, 2));
    assert_eq!((code, explored, first_kind(&report)), (1, 1, &"p2p_deadlock".into()), "{report}");
    let fix = report["findings"][0]["fix"].as_str().unwrap();
    assert!(fix.contains("batch_isend_irecv"), "{fix}");
    // In a ring of four the pairs differ, and so do their streams: only eager groups hang.
    let (code, explored, report) = said("ring.py", &nccl("", EXCHANGE, 3));
    assert_eq!((code, explored, first_kind(&report)), (1, 1, &"group_deadlock".into()), "{report}");
    let odd_first = EXCHANGE.replace(
        "    r = dist.irecv(got, src=(rank - 1) % n)\n    s = dist.isend(mine, dst=(rank + 1) % n)\n",
        "    if rank % 2 == 0:\n        s = dist.isend(mine, dst=(rank + 1) % n)\n        \
         r = dist.irecv(got, src=(rank - 1) % n)\n    else:\n        \
         r = dist.irecv(got, src=(rank - 1) % n)\n        s = dist.isend(mine, dst=(rank + 1) % n)\n",
    );
    assert_eq!(said("odd.py", &nccl("", &odd_first, 4)).0, 0);
    let eager = ", device_id=torch.device('cuda', 0)";
    let (code, explored, report) = said("eager.py", &nccl(eager, EXCHANGE, 4));
    assert_eq!((code, explored, first_kind(&report)), (1, 1, &"p2p_deadlock".into()), "{report}");
    assert_eq!(said("eager_odd.py", &nccl(eager, &odd_first, 4)).0, 0);
}

#[test]
fn a_tag_that_nccl_ignores_is_told() {
    let body = "
    a = torch.ones(2, device='cuda')
    b = torch.zeros(2, device='cuda')
    if rank == 0:
        dist.send(a, dst=1, tag=1)
        dist.send(a, dst=1, tag=TAG)
    else:
        dist.recv(b, src=0, tag=1)
        dist.recv(b, src=0, tag=3)
";
    let (code, explored, report) = said("tags.py", &nccl("", &body.replace("TAG", "2"), 2));
    // It completes in every order, and is wrong in each of them.
    assert_eq!(
        (code, explored, first_kind(&report)),
        (1, 1, &"p2p_tag_ignored".into()),
        "{report}"
    );
    assert_eq!(said("alike.py", &nccl("", &body.replace("TAG", "3"), 2)).0, 0);
}

fn training(class: &str, model: &str, body: &str) -> String {
    format!(
        "import torch\nimport torch.nn as nn\nimport torch.distributed as dist\nfrom torch.nn.parallel import \
         DistributedDataParallel as DDP\n{class}\ndef main():\n    dist.init_process_group('gloo')\n    \
         model = DDP({model})\n    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    \
         x = torch.ones(2, 4)\n    for step in range(4):\n{body}\nrun(main, world_size=2)\n"
    )
}

#[test]
fn a_step_on_gradients_that_were_not_reduced_is_told() {
    let body = |condition: &str| {
        format!(
            "        if {condition}:\n            with model.no_sync():\n                \
             model(x).sum().backward()\n        else:\n            model(x).sum().backward()\n        \
             if step % 2 == 1:\n            opt.step()\n            opt.zero_grad()\n"
        )
    };
    let kind = "ddp_gradients_not_reduced";
    let (code, explored, report) =
        said("odd.py", &training("", "nn.Linear(4, 4)", &body("step % 2 == 1")));
    assert_eq!((code, explored, first_kind(&report)), (1, 1, &kind.into()), "{report}");
    assert_eq!(said("even.py", &training("", "nn.Linear(4, 4)", &body("step % 2 == 0"))).0, 0);
    let inner = "        model.module(x).sum().backward()\n        opt.step()\n";
    let (code, _, report) = said("inner.py", &training("", "nn.Linear(4, 4)", inner));
    assert_eq!((code, first_kind(&report)), (1, &kind.into()), "{report}");
    // Who averages them by hand does what DDP would have done.
    let by_hand = "        model.module(x).sum().backward()\n        for p in model.parameters():\n            \
                   dist.all_reduce(p.grad)\n        opt.step()\n";
    assert_eq!(said("by_hand.py", &training("", "nn.Linear(4, 4)", by_hand)).0, 0);
}

#[test]
fn a_forward_that_is_not_followed_is_inconclusive_with_its_line() {
    let class = |forward: &str| {
        format!(
            "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
             self.a = nn.Linear(4, 4)\n        self.b = nn.Linear(4, 4)\n    def forward(self, x):\n{forward}"
        )
    };
    let step = "        model(x).sum().backward()\n        opt.step()\n";
    let said = |forward: &str| said("net.py", &training(&class(forward), "Net()", step));
    for forward in [
        "        return self.b(torch.relu(self.a(x)))\n",
        "        x = self.b(self.a(x))\n        dist.barrier()\n        return x\n",
    ] {
        let (code, explored, report) = said(forward);
        assert_eq!((code, explored), (0, 0), "{report}");
    }
    // As in PyTorch: the second forward pass raises, since self.b got no gradient.
    assert_eq!(said("        return self.a(x)\n").0, 1);
    for (forward, line, why) in [
        (
            "        x = self.a(x)\n        if x.sum() > 0:\n            x = self.b(x)\n        return x\n",
            12,
            "a tensor's values are not known",
        ),
        (
            "        x = self.a(x)\n        return self.b(x) if x.max().item() > 1 else x\n",
            12,
            "a tensor's values are not known",
        ),
        ("        return self.b(torch.special.erf(self.a(x)))\n", 11, ""),
    ] {
        let (code, explored, report) = said(forward);
        assert_eq!((code, explored), (3, 3), "{forward}: {report}");
        let unseen = report["unseen"][0].as_str().unwrap();
        let place = format!("Net.forward (net.py:{line}) is not followed, since {why}");
        assert!(unseen.starts_with(&place), "{unseen}, and not {place}");
    }
}
