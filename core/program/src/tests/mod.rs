//! Programs and the plans that come of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

mod attempts;
mod classes;
mod computed;
mod ddp;
mod forward;
mod mesh;
mod objects;
mod ordinary;
mod ordinary_code;
mod passed_over;
mod python;
mod recorded;
mod scripts;
mod special;
mod tensors;
mod tutorials;
mod undecided;
mod unknown;
mod users;
mod values;

use crate::compile;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Limits, Options, ProgramError};
use proptest::prelude::*;

pub(crate) fn compiled(text: &str) -> Compiled {
    compile("train.py", text, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> ProgramError {
    compile("train.py", text, &Options::default()).unwrap_err()
}

/// The operations of a rank: each one's name and line.
pub(crate) fn ops(plan: &Plan, rank: u32) -> Vec<(String, u32)> {
    let program = plan.program(GlobalRank(rank)).unwrap();
    let line = |op: &lockstep_core::plan::Op| op.at.map_or(0, |at| at.line);
    program.ops.iter().map(|op| (op.action.name().to_owned(), line(op))).collect()
}

fn named(ops: &[(&str, u32)]) -> Vec<(String, u32)> {
    ops.iter().map(|(name, line)| ((*name).to_owned(), *line)).collect()
}

/// The program of the issue, and of its README.
#[test]
fn a_skipped_all_reduce_has_its_line() {
    let text = r#"
def main():
    dist.init_process_group("nccl", timeout = minutes(10))
    dp = dist.new_group([0, 1, 2, 3])
    grad = tensor(1 << 20, dtype = "float32", fill = dist.get_rank())
    for step in range(3):
        compute("forward", us = 800)
        if dist.get_rank() != 2 or step != 1:      # the bug
            dist.all_reduce(grad, group = dp)
    dist.barrier()

run(main, world_size = 8, topology = "hgx-h100")
"#;
    let Compiled { plan, topology, raised, .. } = compiled(text);
    assert_eq!((plan.world_size, topology.as_deref()), (8, Some("hgx-h100")));
    assert!(raised.is_empty(), "{raised:?}");
    // Members, the rank with the bug, and ranks outside of the group.
    assert_eq!(plan.programs.len(), 3);
    let step = [("forward", 7), ("all_reduce", 9)];
    let good = [&step[..], &step, &step, &[("barrier", 10)]].concat();
    assert_eq!(ops(&plan, 0), named(&good));
    let bad = [&step[..], &step[..1], &step, &[("barrier", 10)]].concat();
    assert_eq!(ops(&plan, 2), named(&bad));
    assert_eq!(plan.sources[0].text, text);
    let grad = &plan.tensors[0];
    assert_eq!((grad.name.as_str(), grad.numel), ("grad", 1 << 20));
    assert_eq!(plan.groups[1].timeout_ms(), 600_000);
}

#[test]
fn python_as_people_write_it() {
    let text = r#"
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from datetime import timedelta

def average(t):
    dist.all_reduce(t, op=dist.ReduceOp.SUM)

def main():
    dist.init_process_group(backend="gloo", timeout=timedelta(seconds=30))
    rank = int(os.environ.get("RANK"))
    x = torch.ones(4, 4, dtype=torch.float64)
    i = 0
    while True:
        if i is not None and i >= 2:
            break
        average(x)
        i += 1
    assert rank == dist.get_rank() and sum([rank, 1.5]) == rank + 1.5, "not me"
    print(f"rank {rank}/{dist.get_world_size()}: {x.numel():>3}")
    with torch.no_grad():
        work = dist.broadcast(x, src=1, async_op=True)
    work.wait()
    if rank == 1:
        raise ValueError(f"rank {rank} is broken")
    dist.barrier()

if __name__ == "__main__":
    run(main, world_size=3)
"#;
    let Compiled { plan, printed, raised, .. } = compiled(text);
    let calls = [("all_reduce", 9), ("all_reduce", 9), ("broadcast", 24), ("wait", 25)];
    assert_eq!(ops(&plan, 0), named(&[&calls[..], &[("barrier", 28)]].concat()));
    assert_eq!(ops(&plan, 1), named(&[&calls[..], &[("die", 27)]].concat()));
    assert_eq!((printed[2].rank, printed[2].line), (GlobalRank(2), 22));
    assert_eq!(printed[2].text, "rank 2/3:  16");
    let [(ranks, error)] = &raised[..] else { panic!("{raised:?}") };
    assert_eq!(ranks[..], [GlobalRank(1)]);
    assert_eq!((error.line, error.message.as_str()), (27, "ValueError: rank 1 is broken"));
    assert_eq!(plan.groups[0].timeout_ms(), 30_000);
}

/// PyTorch's refusals are the rank's end, in PyTorch's words, and the others go on.
#[test]
fn a_refusal_of_torch_ends_its_rank() {
    let text = "
def main():
    dist.init_process_group('gloo')
    if dist.get_rank() == 1:
        dist.broadcast(tensor(4), src=7)
    dist.barrier()
run(main, world_size=2)
";
    let Compiled { plan, raised, .. } = compiled(text);
    assert_eq!(ops(&plan, 0), named(&[("barrier", 6)]));
    assert_eq!(ops(&plan, 1), named(&[("die", 5)]));
    assert_eq!(raised[0].1.line, 5);
    assert!(raised[0].1.message.contains("root rank: 7"), "{}", raised[0].1.message);
}

#[test]
fn errors_point_at_line_and_column() {
    for (text, line, column, about) in [
        ("x = 1\ny = (2 +\n", 2, 5, "bracket ("),
        ("x = 1\ny = f(2, [3)\nz = 4\n", 2, 6, "bracket ("),
        ("x = 1\ny = é, 'é', \"two\n", 2, 13, "string"),
        ("x = (\n  '''\n", 2, 3, "string"),
        ("def main():\n    pass\n\tx = 1\n", 3, 1, "a tab"),
        ("def main():\n    try:\n        pass\n", 2, 5, "`try`"),
        ("class Net:\n    f()\n", 1, 1, "class"),
        ("@print\ndef main():\n    pass\n", 1, 8, "decorators"),
        ("x = 1\nrun(main, world_size=2)\n", 2, 5, "main"),
        ("def main():\n    a = 1 + main\nrun(main, world_size=2)\n", 2, 9, "+"),
        ("def main():\n    dist.all_reduec(1)\nrun(main, world_size=2)\n", 2, 5, "all_reduec"),
        ("def main():\n    return\n", 0, 0, "how many ranks"),
        ("def main():\n  pass\nrun(main, world_size=0)\n", 3, 1, "0 ranks"),
        ("def main():\n  pass\nrun(main, world_size=99999)\n", 3, 1, "99999 ranks"),
        ("def main():\n    pass\ndist.barrier()\nrun(main, world_size=2)\n", 3, 1, "run(main"),
        ("def main(:\n", 1, 9, "not closed"),
        ("def main() pass\n", 1, 12, "pass"),
    ] {
        let error = refused(text);
        assert_eq!((error.line, error.column), (line, column), "{text}{error:?}");
        assert!(error.message.contains(about), "{text}{error:?}");
    }
}

#[test]
fn a_program_is_bounded() {
    let limits = Limits { ticks: 10_000, heap_bytes: 1 << 20, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    for body in [
        "while True:\n        pass",
        "x = []\n    for i in range(2000000000):\n        x.append([i])",
        "f(f)",
    ] {
        let text =
            format!("def f(g):\n    g(g)\ndef main():\n    {body}\nrun(main, world_size=2)\n");
        assert!(compile("train.py", &text, &options).is_err(), "{body}");
    }
    let long = "#".repeat(limits.text_bytes + 1);
    assert!(compile("train.py", &long, &options).is_err());
}

/// A loop without an end is pointed at, with calls in it or without.
#[test]
fn an_endless_loop_has_its_line() {
    let options =
        Options { limits: Limits { ticks: 10_000, ..Limits::default() }, ..Options::default() };
    for (turn, lines) in [("x += 1", 4..=5), ("dist.get_rank()", 4..=5)] {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n    x = 0\n    while True:\n        \
             {turn}\nrun(main, world_size=2)\n"
        );
        let error = compile("train.py", &text, &options).unwrap_err();
        assert!(lines.contains(&error.line), "{turn}: {error:?}");
        let column = if error.line == 4 { 5 } else { 9 };
        assert_eq!(error.column, column, "{turn}: {error:?}");
        assert!(error.help.unwrap().contains("without an end"));
    }
}

/// A program that takes too much memory is refused too, as precisely as the interpreter checks.
#[test]
fn lists_past_all_bounds_have_their_line() {
    let limits = Limits { heap_bytes: 1 << 20, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let text = "def main():\n    dist.init_process_group('gloo')\n    x = []\n    for i in \
                range(1000000):\n        x.append([0] * 1000)\nrun(main, world_size=2)\n";
    let error = compile("train.py", text, &options).unwrap_err();
    assert_eq!((error.line, error.column), (5, 9), "{error:?}");
    assert!(error.message.contains("more memory than they may"), "{error:?}");
    assert!(!error.message.contains('\n'), "{error:?}");
}

#[test]
fn links_that_are_slow_are_refused_with_what_there_is() {
    let text = "def main():\n    pass\nrun(main, world_size=2, slow_links={(0, 1): 2.0})\n";
    let error = refused(text);
    assert_eq!(error.line, 3);
    assert!(error.message.contains("--link-latency-ns"), "{error}");
}

/// A call on a stream of the user's holds that stream: the compute stream goes on until it waits
/// for the other one.
#[test]
fn a_stream_waits_for_its_calls() {
    let text = |waits: &str| {
        format!(
            "def main():
    dist.init_process_group('nccl')
    x = torch.ones(8)
    s = torch.cuda.Stream()
    e = torch.cuda.Event()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        dist.all_reduce(x)
        e.record()
    compute('backward', us=5)
    {waits}
    compute('step', us=5)
run(main, world_size=2)
"
        )
    };
    for waits in ["torch.cuda.current_stream().wait_stream(s)", "e.wait()"] {
        let calls = [("all_reduce", 8), ("backward", 10), ("wait", 11), ("step", 12)];
        assert_eq!(ops(&compiled(&text(waits)).plan, 0), named(&calls), "{waits}");
    }
    let plan = compiled(&text("s.synchronize()")).plan;
    assert_eq!(ops(&plan, 0)[2..4], named(&[("wait", 11), ("synchronize", 11)]));
    let plan = compiled(&text("pass")).plan;
    assert_eq!(ops(&plan, 0).len(), 3, "nobody waits");
    let error = refused(&text("pass").replace("e.record()", "compute('side', us=1)"));
    assert_eq!(error.line, 9);
}

/// `item()` copies an element from the GPU: the process waits until its stream has come to it
/// (`aten/src/ATen/native/cuda/CUDAScalar.cu`: a copy, then `cudaStreamSynchronize`).
#[test]
fn who_reads_an_element_on_the_gpu_waits_for_the_stream() {
    let text = |backend: &str, body: &str| {
        format!(
            "def main():
    dist.init_process_group('{backend}')
    x = torch.ones(1)
    {body}
run(main, world_size=2)
"
        )
    };
    let names = |backend: &str, body: &str| {
        let compiled = compiled(&text(backend, body));
        let ops = ops(&compiled.plan, 0);
        ops.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    for read in ["x.item()", "x.tolist()", "float(x)", "y = x.cpu()"] {
        let body = format!("dist.all_reduce(x); {read}; {read}");
        assert_eq!(names("nccl", &body)[..2], ["all_reduce", "synchronize"], "{read}");
        let waits =
            |backend| names(backend, &body).iter().filter(|it| *it == "synchronize").count();
        assert_eq!((waits("nccl"), waits("gloo")), (1, 0), "{read}");
    }
    // Nobody waited for the call: it is on a stream of its own.
    let body = "w = dist.all_reduce(x, async_op=True); x.item(); w.wait(); x.item()";
    assert_eq!(names("nccl", body), ["all_reduce", "wait", "synchronize"]);
}

/// Unbatched sends around a ring make their communicators in a circle; batched ones need none.
#[test]
fn a_ring_of_isends_never_makes_its_communicators() {
    let text = |body: &str| {
        format!(
            "def main():
    dist.init_process_group('nccl')
    r, w = dist.get_rank(), dist.get_world_size()
    x, y = torch.ones(8), torch.ones(8)
{body}
run(main, world_size=3)
"
        )
    };
    let unbatched = "    a = dist.isend(x, (r + 1) % w)\n    b = dist.irecv(y, (r - 1) % w)\n    a.wait()\n    b.wait()";
    let plan = compiled(&text(unbatched)).plan;
    assert_eq!(plan.groups.len(), 4, "the world, and three pairs");
    assert_eq!(ops(&plan, 0)[0].0, "barrier");
    let batched =
        "    ops = [dist.P2POp(dist.isend, x, (r + 1) % w), dist.P2POp(dist.irecv, y, (r - 1) % w)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()";
    assert_eq!(compiled(&text(batched)).plan.groups.len(), 1);
    let paired = "    if r < 2:
        if r == 0:
            dist.send(x, 1)
        else:
            dist.recv(y, 0)";
    assert_eq!(compiled(&text(paired)).plan.groups.len(), 1);
}

/// The answer of a work is known after `wait()`; before, nothing can be decided by it.
#[test]
fn nothing_is_decided_by_what_only_a_run_tells() {
    let text = |body: &str| {
        format!(
            "def main():
    dist.init_process_group('gloo')
    x = torch.ones(4)
{body}
run(main, world_size=2)
"
        )
    };
    let waited = "    work = dist.all_reduce(x, async_op=True)
    work.is_completed()
    work.wait()
    if not (work.is_completed() and work.is_success() and work.get_future().done()):
        raise RuntimeError('not completed?!')";
    let known = compiled(&text(waited));
    assert_eq!(known.raised, []);
    let refused = |body: &str| {
        let error = compile("p.py", &text(body), &Options::default()).unwrap_err();
        error.to_string()
    };
    let polls = "    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        compute('x', us=3)";
    let error = refused(polls);
    assert!(error.contains("is_completed() before wait()") && error.contains("line 5"), "{error}");
    let server = "    if dist.get_rank() == 0:
        source = dist.recv(x)
        dist.send(x, source)
    else:
        dist.send(x, 0)
        dist.recv(x, 0)";
    // With two ranks the sender would be the other one.
    let server = text(server).replace("world_size=2", "world_size=3");
    let error = compile("p.py", &server, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("a receive from any source"), "{error}");
}

#[test]
fn variables_as_scripts_read_and_set_them() {
    let text = "
import os
import torch.distributed as dist
rank = int(os.environ['RANK'])
os.environ['MASTER_ADDR'] = 'localhost'
os.environ.setdefault('MASTER_PORT', '29500')
def main():
    dist.init_process_group('gloo')
    assert rank == dist.get_rank() and int(os.environ['WORLD_SIZE']) == 2
    assert os.environ['MASTER_ADDR'] == 'localhost', os.environ['MASTER_ADDR']
    dist.barrier(group=dist.group.WORLD)
    assert dist.group.WORLD.size() == 2
    if rank == 1:
        os.environ['NO_SUCH']
run(main, world_size=2)
";
    let Compiled { plan, raised, .. } = compiled(text);
    let [(ranks, error)] = &raised[..] else { panic!("{raised:?}") };
    assert_eq!((&ranks[..], error.message.as_str()), (&[GlobalRank(1)][..], "KeyError: 'NO_SUCH'"));
    assert_eq!(ops(&plan, 0), named(&[("barrier", 11)]));
    let outside =
        "import os\nworld = int(os.environ['WORLD_SIZE'])\nrun(print, world_size=world)\n";
    let error = compile("p.py", outside, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("what run(main, world_size = …) says"), "{error}");
}

/// Refusals of gloo as PyTorch 2.7.1 raised them.
#[test]
fn gloo_refuses_as_pytorch_does() {
    let raised = |body: &str| {
        let text = format!(
            "def main():
    dist.init_process_group('gloo')
    {body}
run(main, world_size=3)
"
        );
        let raised = compiled(&text).raised;
        raised.first().map(|(ranks, error)| (ranks.len(), error.message.clone()))
    };
    let all = |text: &str| Some((3, text.to_owned()));
    let complex = "torch.zeros(6, dtype=torch.complex64)";
    assert_eq!(
        raised(&format!("dist.reduce({complex}, 0)")),
        all("RuntimeError: Invalid scalar type")
    );
    let gather =
        format!("dist.gather({complex}, [{complex}] * 3 if dist.get_rank() == 0 else None)");
    for call in [gather, format!("dist.broadcast({complex}, 0)")] {
        assert_eq!(raised(&call), all("RuntimeError: Invalid scalar type"), "{call}");
    }
    assert_eq!(
        raised(&format!(
            "dist.scatter({complex}, [{complex}] * 3 if dist.get_rank() == 0 else None)"
        )),
        None
    );
    assert_eq!(raised(&format!("dist.all_gather([{complex}] * 3, {complex})")), None);
    assert_eq!(raised(&format!("dist.all_reduce({complex})")), None);
    let unequal = "dist.all_to_all_single(torch.zeros(6), torch.zeros(3))";
    let refused = raised(unequal).unwrap_or_default().1;
    assert!(refused.ends_with("in->size == out->size."), "{refused}");
    let empty = "dist.broadcast_object_list([], 0)";
    let text = "ValueError: not enough values to unpack (expected 2, got 0)";
    assert_eq!(raised(empty), Some((1, text.to_owned())));
    let outsider = "dist.send(torch.ones(1), 1, group=dist.new_group([1, 2]))";
    let refused = raised(outsider).unwrap_or_default().1;
    assert_eq!(refused, "ValueError: Invalid process group specified");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// No text is too strange for an answer.
    #[test]
    fn any_text_has_an_answer(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("def main():"), Just("    dist.init_process_group('gloo')"),
                Just("    x = tensor(4, fill=-1)"), Just("    dist.all_reduce(x)"),
                Just("    with torch.no_grad():"), Just("        dist.barrier(group=x)"),
                Just("    for i in range(3):"), Just("    while x:"), Just("    return x[1:2]"),
                Just("run(main, world_size=2)"), Just("run(1, world_size=-2)"), Just("\u{e9} = ("),
                Just("    g = dist.new_group([0, 0])"), Just("    raise x"), Just("    f'{x!r:>3}'"),
                Just("    dist.send(x, -5)"), Just("    x.view(-1, 0)"), Just("    x.chunk(0)"),
                Just("    DDP(models.mlp([1, 2]))(x).backward()"), Just("    compute(us=-1)"),
                Just("    dist.batch_isend_irecv([x])"), Just("    dist.recv_object_list([], x)"),
                Just("    dist.init_device_mesh('cpu', (0, 2), ('a',))"), Just("\"\"\""),
            ],
            0..16,
        )
    ) {
        let limits = Limits { ticks: 20_000, ..Limits::default() };
        let _ = compile("p", &lines.join("\n"), &Options { limits, ..Options::default() });
    }
}
