//! Branches on values that only a run knows: those that guard no call are passed over.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use super::{compiled, ops};
use crate::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

/// A training loop of three steps whose loss is followed by these lines, from line 10 on; then a barrier.
fn training(behind: &str) -> Result<Compiled, ProgramError> {
    let lines: String = behind.lines().map(|line| format!("        {line}\n")).collect();
    let text = format!(
        "import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist\n\
         from torch.nn.parallel import DistributedDataParallel as DDP\ndef main():\n    \
         dist.init_process_group('gloo')\n    model = DDP(nn.Linear(4, 1)); best = float('inf')\n    \
         opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    for step in range(3):\n        \
         loss = F.mse_loss(model(torch.randn(2, 4)), torch.zeros(2, 1))\n        \
         loss.backward(); opt.step(); opt.zero_grad()\n{lines}    dist.barrier()\nmain()\n"
    );
    compile("train.py", &text, &Options { world_size: Some(2), ..Options::default() })
}

#[test]
fn a_loss_that_guards_no_call_is_passed_over() {
    for behind in [
        "if loss.item() < best:\n    best = loss.item()\n    torch.save(model.state_dict(), 'best.pt')",
        "if torch.isnan(loss):\n    print('nan!')",
        "if best > loss.item(): best = loss.item()",
        "if dist.get_rank() == 0 and loss.item() < best:\n    print('new best', best)\nelse:\n    best = 3",
        "if loss.item() > 2:\n    x = 'a'\nelif loss.item() > 1:\n    x = 'b'\nelse:\n    x = 'c'\nprint(x)",
        "if loss.item() < best:\n    if dist.get_rank() == 0:\n        print('best')\n    best = loss.item()\n\
         is_best = loss.item() < best\nbest = max(loss.item(), best)\nif is_best:\n    print(best)",
        "try:\n    if loss.item() < best:\n        best = loss.item()\nexcept ValueError:\n    pass",
        "with torch.no_grad():\n    if torch.isfinite(loss) and loss.item() < best:\n        best = loss.item()",
        "acc = torch.randn(1)\nif acc[0] > best:\n    best = acc[0]\nbest = max(acc[0], best)",
    ] {
        let Compiled { plan, raised, .. } =
            training(behind).unwrap_or_else(|error| panic!("{behind}: {error}"));
        assert!(raised.is_empty(), "{behind}: {raised:?}");
        let own = ops(&plan, 0);
        assert_eq!(
            own.iter().filter(|(name, _)| name == "barrier").count(),
            1,
            "{behind}: {own:?}"
        );
        assert!(own.iter().filter(|(name, _)| name == "optimizer.step").count() == 3, "{own:?}");
    }
}

/// The function that a program calls is read: one that saves is passed over, one with a barrier is not.
#[test]
fn a_guarded_function_of_the_program_is_read() {
    let text = |body: &str| {
        format!(
            "import torch, torch.distributed as dist\ndef keep(state, path='x.pt'):\n    {body}\n    \
             torch.save(state, path)\ndist.init_process_group('gloo')\nx = torch.randn(2)\nif \
             x.sum().item() > 0:\n    keep({{'x': x}})\ndist.barrier()\n"
        )
    };
    let options = Options { world_size: Some(2), ..Options::default() };
    let plan = compile("train.py", &text("print(path)"), &options).unwrap().plan;
    assert_eq!(ops(&plan, 1).len(), 1);
    let error = compile("train.py", &text("dist.barrier()"), &options).unwrap_err();
    assert_eq!(error.line, 7, "{error}");
}

/// A call in either side, and anything that could decide one, is refused with the line of the condition.
#[test]
fn a_loss_that_guards_a_call_is_refused_with_its_line() {
    for behind in [
        "if loss.item() < best:\n    dist.all_reduce(loss.detach())",
        "if loss.item() < best:\n    print('a')\nelse:\n    dist.barrier()",
        "if loss.item() < best:\n    break",
        "if loss.item() < best:\n    todo.append(1)",
    ] {
        let error = training(behind).unwrap_err();
        assert_eq!(error.line, 10, "{behind}: {error}");
    }
    let behind = "stop = False\nif loss.item() < best:\n    stop = True\nif stop:\n    break";
    let error = training(behind).unwrap_err();
    assert!(error.message.contains("when the program runs (line 11)"), "{behind}: {error}");
    // A number of turns that only one side assigns.
    let behind = "n = 1\nif loss.item() < best:\n    n = 2\nfor _ in range(n):\n    dist.barrier()";
    assert!(training(behind).is_err());
}

/// A tensor that only one side assigns is not what a call takes.
#[test]
fn what_such_a_branch_assigns_is_not_sent() {
    let error = training(
        "x = torch.ones(3)\nif loss.item() < best:\n    x = loss.detach()\n\
                          dist.all_reduce(x)",
    )
    .unwrap_err();
    assert_eq!(error.line, 13, "{error}");
}

/// A known condition has its side followed.
#[test]
fn a_known_condition_takes_its_side() {
    let Compiled { printed, raised, .. } = compiled(
        "import torch\ndef main():\n    dist.init_process_group('gloo')\n    x, best = torch.ones(2), 1\n    \
         if x.sum().item() > best:\n        best = 7\n    else:\n        best = 8\n    print(best)\n    \
         if best == 8 or x[0].item() == 1:\n        print('one')\nrun(main, world_size=1)\n",
    );
    assert!(raised.is_empty(), "{raised:?}");
    let said: Vec<_> = printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(said, ["7", "one"]);
}
