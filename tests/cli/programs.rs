//! Programs of the ranks, in words of Python.

use super::{assert_refused, json};
use lockstep_tests::lockstep;
use serde_json::Value;
use std::fs;

const SKIPPED: &str = "\
def main():
    dist.init_process_group('gloo')
    grad = tensor(1024, fill = dist.get_rank())
    for step in range(4):
        if dist.get_rank() != 2 or step != 1:
            dist.all_reduce(grad)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f'{step = }')

run(main, world_size = 4)
";

/// A program is simulated and really run, and both name the rank that is to blame, with the line.
#[test]
fn a_program_is_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    fs::write(&path, SKIPPED).unwrap();
    let path = path.to_str().unwrap();
    for words in [&["sim", path, "--json"][..], &["run", path, "--json", "--timeout-ms", "1500"]] {
        let done = lockstep(words);
        assert_eq!(done.code, 1, "{done:?}");
        let said: Value = serde_json::from_str(&done.out).unwrap();
        let findings = &said["findings"]["findings"];
        let blamed: Vec<_> = findings.as_array().unwrap().iter().map(|f| &f["culprits"]).collect();
        assert_eq!(blamed, [&serde_json::json!([2])], "{said}");
        assert!(done.out.contains("train.py:6"), "{done:?}");
    }
    let more = lockstep(["sim", path, "--world-size", "2"]);
    assert_eq!(more.code, 0, "without rank 2 nothing is wrong: {more:?}");
    assert!(more.err.trim().ends_with("\n[rank 0, train.py:9] step = 3"), "{more:?}");
}

/// `-n` and `--steps` are `record`'s words too.
#[test]
fn a_number_of_steps_ends_a_program_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    let text = "import torch, torch.nn as nn, torch.distributed as dist\ndist.init_process_group('gloo')\n\
                model = nn.Linear(2, 2)\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n\
                for step in range(5):\n    opt.step()\n    print('step', step)\n";
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let done = lockstep(["sim", path, "-n", "2", "--steps", "3"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("step 1") && !done.err.contains("step 2"), "{done:?}");
    assert!(done.err.contains("[rank 1, ") && !done.err.contains("[rank 2, "), "{done:?}");
    assert_refused(&lockstep(["sim", "all_reduce", "--steps", "3"]), "is no program");
}

/// A program that takes too much ends in a sentence, and so does a text that is no program.
#[test]
fn a_program_that_cannot_be_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.py");
    let main = |body: &str| format!("def main():\n    {body}\nrun(main, world_size=1)\n");
    for (text, about) in [
        (main("dist.al_reduce(1)"), "line 2, column 5"),
        (main("x = ["), "line 2"),
        (main("x = 'a'\n    for i in range(50):\n        x = x + x"), "memory"),
        (main("x = []\n    for i in range(900000):\n        x = [x]\n    print(x)"), "too deep"),
        (main("while True:\n        pass"), "ticks"),
        (String::new(), "is empty"),
        ("import torch\n".to_owned(), "how many ranks"),
        ("\0".repeat(10), "line 1"),
    ] {
        fs::write(&path, &text).unwrap();
        assert_refused(&lockstep(["sim", path.to_str().unwrap()]), about);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_refused(&lockstep(["sim", path.to_str().unwrap()]), "UTF-8");
}

/// Two groups whose calls nothing orders: in the simulator's own order all is well, and on a GPU
/// that carries out one collective at a time there is an order that hangs. The trace that is
/// written hangs, too.
#[test]
fn an_order_that_hangs_is_found_and_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("train.py"), folder.path().join("hang.lks"));
    let text = "\
def main():
    dist.init_process_group('nccl', timeout = seconds(10))
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    works = [dist.all_reduce(tensor(8), group = group, async_op = True) for group in groups]
    for work in works:
        work.wait()
    dist.barrier()

run(main, world_size = 2)
";
    fs::write(&path, text).unwrap();
    let (path, out) = (path.to_str().unwrap(), trace.to_str().unwrap());
    assert_eq!(lockstep(["sim", path]).code, 0);
    let explored = lockstep(["explore", path, "--json", "-o", out]);
    assert_eq!(explored.code, 1, "{explored:?}");
    let said: Value = serde_json::from_str(&explored.out).unwrap();
    assert_eq!(said["searches"][0]["verdict"], "completes");
    let fails = &said["searches"][1]["verdict"]["fails"];
    assert_eq!(fails["outcome"], "timed_out");
    assert!(!fails["order"]["choices"].as_array().unwrap().is_empty());
    assert_eq!(lockstep(["diagnose", out]).code, 1);
    let aside = lockstep(["explore", path, "--devices", "side-by-side"]);
    assert_eq!(aside.code, 0, "{aside:?}");
    let few = lockstep(["explore", path, "--states", "1"]);
    assert_eq!(few.code, 3, "{few:?}");
    assert!(few.out.contains("not all were looked at"), "{few:?}");
    // Each waited for before the next is called: nothing is left open.
    let ordered = text.replace(", async_op = True", "").replace("work.wait()", "pass");
    fs::write(folder.path().join("train.py"), ordered).unwrap();
    let explored = lockstep(["explore", path]);
    assert_eq!(explored.code, 0, "{explored:?}");
}

/// A value that a rank has put into a store is there, though the rank is gone; and all ranks that
/// died are named.
#[test]
fn a_store_keeps_what_a_rank_that_died_has_set() {
    let text = "\
def main():
    rank = int(os.environ['RANK'])
    store = dist.FileStore('/tmp/store', 3)
    if rank == 1:
        store.set('error', 'out of memory')
        raise RuntimeError('boom')
    print(store.get('error'))
    if rank == 2:
        raise RuntimeError('stopping')

run(main, world_size = 3)
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    fs::write(&path, text).unwrap();
    let output = lockstep(["sim", path.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{output:?}");
    let said = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("Rank 1 died at train.py:6"), "{said}");
    assert!(said.contains("Rank 2 died as well at train.py:9"), "{said}");
    assert!(said.contains("Mend the line that raised"), "{said}");
    assert!(!said.contains("victims") && !said.contains("isend"), "{said}");
}

/// The rank that comes too late is to blame, not the server that gave up on it.
#[test]
fn who_comes_too_late_to_a_store_is_named() {
    let text = "\
def main():
    rank = int(os.environ['RANK'])
    if rank == 2:
        time.sleep(5)
    store = dist.TCPStore('127.0.0.1', 29500, 3, rank == 0, timedelta(seconds=2))

run(main, world_size = 3)
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    fs::write(&path, text).unwrap();
    let report = json(&lockstep(["sim", path.to_str().unwrap(), "--json"]));
    let finding = &report["findings"]["findings"][0];
    assert_eq!(finding["kind"], "store_wait", "{report:#}");
    assert_eq!(finding["culprits"], serde_json::json!([2]));
    assert_eq!(finding["victims"], serde_json::json!([0]));
}

/// A run tells what its ranks got to, as a simulation does, and a process that leaves with a status of its own
/// ends with it.
#[test]
fn a_run_tells_what_its_ranks_print_and_how_they_leave() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("leaves.py");
    let text = "import os, signal\n\
                import torch, torch.distributed as dist\n\
                dist.init_process_group(\"gloo\")\n\
                rank = dist.get_rank()\n\
                print(\"before\", rank)\n\
                if rank == 1:\n    END\n    print(\"behind\")\n\
                dist.all_reduce(torch.ones(4))\n";
    for (end, told) in [
        ("os._exit(3)", ": exited with status 3: os._exit(3)"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "timed out"),
    ] {
        fs::write(&program, text.replace("END", end)).unwrap();
        for command in ["run", "sim"] {
            let done = lockstep([
                command.as_ref(),
                program.as_os_str(),
                "--world-size=2".as_ref(),
                "--timeout-ms=400".as_ref(),
            ]);
            assert_eq!(done.code, 1, "{done:?}");
            assert!(done.out.contains(told), "{command} {end}: {done:?}");
            let printed: Vec<&str> =
                done.err.lines().filter_map(|line| line.split_once("] ").map(|l| l.1)).collect();
            assert!(printed.contains(&"before 1"), "{command} {end}: {done:?}");
            assert!(!printed.contains(&"behind"), "{command} {end}: {done:?}");
        }
    }
}

/// The process that executes a program ends with the one that asked for it, also when that is killed.
#[test]
fn a_program_ends_with_whom_asked_for_it() {
    use lockstep_tests::{Patience, binary};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.py");
    let body = "    for i in range(50000):\n        x = [n * n for n in range(100)]\n";
    fs::write(&path, format!("def main():\n{body}run(main, world_size=64)\n")).unwrap();
    let mut command = std::process::Command::new(binary());
    command.arg("sim").arg(&path).stdout(std::process::Stdio::null());
    let mut asks = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let parent = asks.id();
    let child = Patience::until("the process that executes the program", || {
        let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        listed.split_whitespace().next()?.parse::<u32>().ok()
    });
    let is_there = || {
        // Its number may be another's by now.
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.windows(15).any(|part| part == b"compile-program")
    };
    Patience::until("its command line", || is_there().then_some(()));
    asks.kill().unwrap();
    asks.wait().unwrap();
    Patience::until("its end", || (!is_there()).then_some(()));
}
