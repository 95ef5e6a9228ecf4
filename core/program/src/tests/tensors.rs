//! Tensors, losses and futures as training scripts have them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

/// A script around the body, with the usual imports.
pub(crate) fn executed(body: &str) -> Result<Compiled, ProgramError> {
    let text = format!(
        "import os\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport \
         torch.optim as optim\nimport torch.distributed as dist\nfrom \
         torch.distributed.device_mesh import DeviceMesh\n\ndef main():\n    \
         dist.init_process_group('gloo')\n    rank = dist.get_rank()\n    ws = \
         dist.get_world_size()\n{body}\nrun(main, world_size=2)\n"
    );
    compile("train.py", &text, &Options::default())
}

/// The output of rank 0.
pub(crate) fn printed(body: &str) -> Vec<String> {
    let compiled = executed(body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    let first = compiled.printed.into_iter().filter(|print| print.rank.0 == 0);
    first.map(|print| print.text).collect()
}

/// The first that is raised.
pub(crate) fn raised(body: &str) -> String {
    let compiled = executed(body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    compiled.raised.first().map(|(_, error)| error.message.clone()).unwrap_or_default()
}

#[test]
fn a_tensor_moves_to_another_device_or_type() {
    let body = r#"
    x = torch.ones(2, 3)
    device = torch.device("cpu")
    print(x.to(device).device.type, x.to(rank).is_cuda, x.cuda().cpu().is_cuda, x.is_cuda)
    print(x.half().dtype, x.to(torch.int64).dtype, x.bfloat16().float().dtype)
    print(x.to("cuda", dtype=torch.float16, non_blocking=True).dtype, x.to(x.double()).dtype)
    y = torch.zeros(4).fill_(3)
    dist.all_reduce(y)
    print(y.numel(), [part.numel() for part in torch.zeros(5).split(2)])
"#;
    assert_eq!(
        printed(body),
        [
            "cpu True False False",
            "torch.float16 torch.int64 torch.float32",
            "torch.float16 torch.float64",
            "4 [2, 2, 1]"
        ]
    );
    let refused = executed("    x = torch.ones(2, 2)\n    x[:, 0] = 3").unwrap_err().to_string();
    assert!(refused.contains("assign to whole rows"), "{refused}");
}

#[test]
fn a_loss_is_what_backward_is_called_on() {
    for loss in ["nn.MSELoss().to('cpu')", "nn.CrossEntropyLoss()", "F.mse_loss", "F.cross_entropy"]
    {
        let body = format!(
            "    ddp = DDP(models.mlp([10, 10, 5]))\n    optimizer = optim.Adam(ddp.parameters(), \
             lr=0.001)\n    optimizer.zero_grad()\n    loss_fn = {loss}\n    loss = \
             loss_fn(ddp(torch.randn(20, 10)), torch.randn(20, 5).to('cpu'))\n    \
             loss.backward()\n    optimizer.step()\n"
        );
        let calls = executed(&body).unwrap().plan.programs.len();
        assert!(calls > 0);
        let deciding = format!("{body}    if loss.item() > 1: dist.barrier()");
        let refused = executed(&deciding).unwrap_err().to_string();
        assert!(refused.contains("values are not known while the program is"), "{refused}");
    }
}

#[test]
fn a_callback_gets_the_future_once_the_call_is_waited_for() {
    let body = r#"
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda fut: fut.value()).then(lambda fut: len(fut.value()))
    noted = work.get_future().then(lambda fut: print("reduced"))
    print("before")
    work.wait()
    print(future.wait(), future.value(), noted.value())
"#;
    assert_eq!(printed(body), ["before", "reduced", "1 1 None"]);
}

/// As gloo of PyTorch 2.7.1 answers.
#[test]
fn a_receive_knows_its_source() {
    let refused = "RuntimeError: sourceRank() may only be called on work objects that correspond \
                   to a recv or recv-from-any call.";
    let body = "    work = dist.irecv(torch.ones(2), 1) if rank == 0 else dist.isend(torch.ones(2), \
                0)\n    work.wait()\n    if rank == 0: print(work.source_rank())\n";
    assert_eq!(printed(body), ["1"]);
    assert_eq!(raised(&format!("{body}    if rank == 1: work.source_rank()")), refused);
    let reduced = "    dist.all_reduce(torch.ones(2), async_op=True).source_rank()";
    assert_eq!(raised(reduced), refused);
}
