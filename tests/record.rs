//! Recorded scripts against the same scripts on real gloo: every rank makes the same calls in the same order, with
//! the same group, element type, sizes, reduction, root or peer, and line.
//!
//! `tests/data/record` holds the scripts, what each really called (`truth.json`, torch 2.15), and what
//! `lockstep record` noted of them (`notes.jsonl`). `LOCKSTEP_PYTHON=PYTHON cargo test --test record -- --ignored`
//! records the scripts anew, where that Python has torch 2.15.

use lockstep_core::collective::Collective;
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_diagnosis::{Verdict, diagnose_trace};
use lockstep_replay::script::{ScriptEvent, WorkTime, plan_of_script};
use lockstep_sim::{SimConfig, simulate};
use lockstep_tests::{Patience, Service, binary, lockstep};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPTS: [&str; 5] = ["ddp_mlp", "fsdp_tp", "funcol", "objects", "pipe_1f1b"];

fn folder(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/record").join(script)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn notes(script: &str) -> Vec<Vec<ScriptEvent>> {
    let text = std::fs::read_to_string(folder(script).join("notes.jsonl")).unwrap();
    let mut ranks: BTreeMap<u64, Vec<ScriptEvent>> = BTreeMap::new();
    for line in text.lines() {
        let mut noted: Value = serde_json::from_str(line).unwrap();
        let event = serde_json::from_value(noted["event"].take()).unwrap();
        ranks.entry(noted["rank"].as_u64().unwrap()).or_default().push(event);
    }
    ranks.into_values().collect()
}

/// A call in words that a plan and a truth can both be put into.
fn planned(plan: &Plan, call: &Call, at: &str) -> String {
    let group: &ProcessGroup = plan.group(call.group()).unwrap();
    let ranks: Vec<u32> = group.ranks().iter().map(|rank| rank.0).collect();
    let global = |rank: GroupRank| group.global_rank(rank).unwrap().0;
    let tensor = |id| plan.tensor(id).unwrap();
    match call {
        Call::Send { peer, tensor: sent, tag, .. } => {
            let sent = tensor(*sent);
            format!(
                "send {}[{}] to {} tag {tag} in {ranks:?} at {at}",
                sent.dtype,
                sent.numel,
                global(*peer)
            )
        }
        Call::Recv { peer, tensor: got, tag, .. } => {
            let got = tensor(*got);
            let peer = global(peer.unwrap());
            format!("recv {}[{}] from {peer} tag {tag} in {ranks:?} at {at}", got.dtype, got.numel)
        }
        Call::Collective { collective, count, output, splits, .. } => {
            let dtype = output.map_or(String::new(), |id| tensor(id).dtype.to_string());
            let count = match splits {
                Some(splits) => format!("{:?} to {:?}", splits.input, splits.output),
                None => count.to_string(),
            };
            let op =
                collective.reduce_op().map_or(String::new(), |op| op.to_string().to_lowercase());
            let root = collective.root().map_or(String::new(), |root| global(root).to_string());
            let name = match collective {
                Collective::MonitoredBarrier { .. } => "barrier",
                collective => collective.name(),
            };
            format!("{name} {dtype}[{count}] op {op} root {root} in {ranks:?} at {at}")
        }
    }
}

fn real(call: &Value) -> String {
    let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| call[name].as_u64().unwrap_or_default();
    let ranks: Vec<u64> =
        call["group"].as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap()).collect();
    let (op, dtype, at) = (text("op"), text("dtype"), text("at"));
    match op.as_str() {
        "send" | "recv" => {
            let (numel, to) =
                (number("in").max(number("out")), if op == "send" { "to" } else { "from" });
            let (peer, tag) = (number("peer"), number("tag"));
            format!("{op} {dtype}[{numel}] {to} {peer} tag {tag} in {ranks:?} at {at}")
        }
        _ => {
            let count = match op.as_str() {
                "scatter" | "reduce_scatter" => number("out").to_string(),
                "all_to_all" => {
                    let splits = |name: &str, scale: u64| -> Vec<u64> {
                        let parts = call[name].as_array().unwrap().iter();
                        parts.map(|part| part.as_u64().unwrap() * scale).collect()
                    };
                    // Rows in the truth, elements in a plan.
                    let rows: u64 = splits("in_splits", 1).iter().sum();
                    let row = number("in") / rows.max(1);
                    format!("{:?} to {:?}", splits("in_splits", row), splits("out_splits", row))
                }
                _ => number("in").to_string(),
            };
            let root = call["root"].as_u64().map_or(String::new(), |root| root.to_string());
            let reduce = text("reduce_op");
            let name = op.replace("monitored_barrier", "barrier");
            format!("{name} {dtype}[{count}] op {reduce} root {root} in {ranks:?} at {at}")
        }
    }
}

fn same_calls(script: &str, plan: &Plan) {
    let truth = json(&folder(script).join("truth.json"));
    for (rank, calls) in truth["ranks"].as_object().unwrap() {
        let program = plan.program(GlobalRank(rank.parse().unwrap())).unwrap();
        let mine: Vec<String> = program
            .ops
            .iter()
            .flat_map(|op| op.action.calls().iter().map(move |call| (op.at, call)))
            .map(|(at, call)| {
                planned(plan, call, &at.map_or(String::new(), |at| plan.describe_line(at)))
            })
            .collect();
        let theirs: Vec<String> = calls.as_array().unwrap().iter().map(real).collect();
        for (at, (mine, theirs)) in mine.iter().zip(&theirs).enumerate() {
            assert_eq!(mine, theirs, "{script}, call {at} of rank {rank}");
        }
        assert_eq!(mine.len(), theirs.len(), "{script}, calls of rank {rank}");
    }
}

#[test]
fn what_was_noted_is_what_gloo_carried_out() {
    for script in SCRIPTS {
        let texts = BTreeMap::new();
        let recorded = plan_of_script(script, 8, &notes(script), &texts, WorkTime::OnCard).unwrap();
        assert_eq!(recorded.assumed, [] as [String; 0], "{script}");
        same_calls(script, &recorded.plan);
        let trace = simulate(&recorded.plan, &SimConfig::default()).unwrap();
        let report = diagnose_trace(&trace);
        assert_eq!(report.verdict, Verdict::Healthy, "{script}: {:?}", report.findings);
    }
}

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn scripts_record_anew() {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    for script in SCRIPTS {
        let truth = json(&folder(script).join("truth.json"));
        let plan = out.path().join(format!("{script}.json"));
        let own = folder(script).display().to_string();
        let command =
            truth["command"].as_str().unwrap().replace("train.py", &format!("{own}/train.py"));
        // In a folder of its own: scripts save models beside themselves.
        let recorded = Command::new(binary())
            .current_dir(out.path())
            .args(["record", "-o", plan.to_str().unwrap(), "--"])
            .args(command.split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&recorded.stderr);
        assert_eq!(recorded.status.code(), Some(0), "{script}: {said}");
        same_calls(script, &Plan::from_json(&std::fs::read_to_string(&plan).unwrap()).unwrap());
    }
}

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn the_service_records_what_the_command_records() {
    let script = folder("ddp_mlp");
    let text = std::fs::read_to_string(script.join("train.py")).unwrap();
    let service = Service::start();
    let files = serde_json::json!([{ "name": "train.py", "text": text }]);
    let asked = serde_json::json!({ "files": files, "world_size": 4, "steps": 2 });
    let begun = service.post("api/records", &asked);
    assert_eq!(begun.status, 201, "{}", String::from_utf8_lossy(&begun.body));
    let record = format!("api/records/{}", begun.json()["id"]);
    let ended = || Some(service.get(&record).json()).filter(|told| told["ended"] == true);
    let told = Patience::until("its end", ended);
    assert_eq!(told["has_plan"], true, "{}", told["output"]);
    assert_eq!(told["cut"], Value::Null);
    let mine = Plan::from_bytes(&service.get(&format!("{record}/plan")).body);
    let out = tempfile::tempdir().unwrap();
    let plan = out.path().join("plan.json");
    let recorded = Command::new(binary())
        .current_dir(&script)
        .args(["record", "-n", "4", "--steps", "2", "-o", plan.to_str().unwrap(), "--", "train.py"])
        .output()
        .unwrap();
    assert_eq!(recorded.status.code(), Some(0), "{}", String::from_utf8_lossy(&recorded.stderr));
    let theirs = Plan::from_json(&std::fs::read_to_string(&plan).unwrap());
    assert_eq!(mine.unwrap().programs, theirs.unwrap().programs);
}

/// A script that starts its ranks itself, by the means that its argument names, and tells them something only then.
const STARTS_RANKS: &str = r#"
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def train(rank, ranks, told):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    model = DistributedDataParallel(torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(told.get() if told else 2):
        model(torch.randn(4, 32)).sum().backward()
        optimizer.step()
    if rank == 0:
        dist.send(torch.zeros(7), dst=2)
    if rank == 2:
        dist.recv(torch.zeros(7), src=0)

if __name__ == "__main__":
    ranks = 3
    if sys.argv[1] == "spawn":
        mp.spawn(train, args=(ranks, None), nprocs=ranks)
    else:
        mp.set_start_method("spawn")
        told = mp.Queue()
        processes = [mp.Process(target=train, args=(rank, ranks, told)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            told.put(2)
        for process in processes:
            process.join()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn ranks_that_a_script_starts_are_those_of_spawn() {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("train.py"), STARTS_RANKS).unwrap();
    let calls = |means: &str| {
        let notes = format!("{means}.jsonl");
        let recorded = Command::new(binary())
            .current_dir(out.path())
            .args(["record", "-n", "3", "--notes", &notes, "-o", &format!("{means}.json")])
            .args(["--", "train.py", means])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&recorded.stdout).into_owned();
        assert_eq!(recorded.status.code(), Some(0), "{said}");
        let text = std::fs::read_to_string(out.path().join(notes)).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events
            .filter(|noted| noted["event"]["t"] == "call" || noted["event"]["t"] == "end")
            .map(|noted| {
                let event = &noted["event"];
                let what =
                    [&noted["rank"], &event["op"], &event["in"], &event["at"], &event["how"]];
                what.map(ToString::to_string).join(" ")
            })
            .collect::<Vec<String>>()
    };
    let started = calls("process");
    assert_eq!(started, calls("spawn"));
    assert!(started.iter().any(|call| call.starts_with("0 \"send\" [7]")), "{started:?}");
}

/// Two ranks sum tensors in a captured graph; the sum of the last replay is the number of barriers that follow.
const CAPTURES: &str = r#"
import torch, torch.distributed as dist
dist.init_process_group("nccl")
mine, graph = torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    dist.all_reduce(mine, async_op=True).wait()
    doubled = mine * 2
for step in range(3):
    mine.fill_(dist.get_rank() + 1.0)
    graph.replay()
for _ in range(int(doubled[0].item())):
    dist.barrier()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_captured_graph_makes_its_calls_when_it_is_replayed() {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("train.py"), CAPTURES).unwrap();
    let recorded = Command::new(binary())
        .current_dir(out.path())
        .args(["record", "-n", "2", "--notes", "notes.jsonl", "-o", "plan.json", "--", "train.py"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(out.path().join("notes.jsonl")).unwrap();
    for rank in 0..2 {
        let calls: Vec<(String, u64)> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|noted| noted["rank"] == rank && noted["event"]["t"] == "call")
            .map(|noted| {
                let event = &noted["event"];
                (event["op"].as_str().unwrap().to_owned(), event["at"][1].as_u64().unwrap())
            })
            .collect();
        let replayed = std::iter::repeat_n(("all_reduce".to_owned(), 10), 3);
        let counted = std::iter::repeat_n(("barrier".to_owned(), 12), 6);
        assert_eq!(calls, replayed.chain(counted).collect::<Vec<_>>(), "rank {rank}");
    }
}

/// Records a script and returns the calls and the end of each rank, in order: operation, sizes, line, exception.
fn recorded_calls(script: &str, ranks: u32, options: &[&str]) -> Vec<String> {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("train.py"), script).unwrap();
    let recorded = Command::new(binary())
        .current_dir(out.path())
        .args(["record", "-n", &ranks.to_string(), "--notes", "notes.jsonl", "-o", "plan.json"])
        .args(options)
        .args(["--", "train.py"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&recorded.stdout).into_owned();
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(out.path().join("notes.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .filter(|noted| noted["event"]["t"] == "call" || noted["event"]["t"] == "end")
        .map(|noted| {
            let event = &noted["event"];
            let what = [&noted["rank"], &event["op"], &event["in"], &event["at"], &event["how"]];
            what.map(ToString::to_string).join(" ")
        })
        .collect()
}

/// SyncBatchNorm needs a GPU, which the recorder stands for. Its calls are those of PyTorch's own on real gloo, which
/// `core/program/src/tests/forward/record.py` has noted: no sum in the backward pass of a norm whose input is not
/// trained, none under `no_grad`, and none at all in `eval`.
#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn synchronised_batch_norms_make_pytorchs_calls() {
    let script = include_str!("../core/program/src/tests/forward/sync_batch_norm.py");
    let truth = include_str!("../core/program/src/tests/forward/truth.json");
    let truth: Value = serde_json::from_str(truth).unwrap();
    let ranks = truth["programs"]["sync_batch_norm"]["ranks"].as_array().unwrap();
    let calls = recorded_calls(script, 2, &[]);
    for (rank, real) in ranks.iter().enumerate() {
        let real: Vec<String> = real
            .as_array()
            .unwrap()
            .iter()
            .map(|call| format!("{rank} {} {} [\"train.py\",{}] null", call[0], call[2], call[7]))
            .collect();
        let front = format!("{rank} \"");
        let recorded: Vec<&String> = calls.iter().filter(|call| call.starts_with(&front)).collect();
        assert_eq!(recorded, real.iter().collect::<Vec<_>>());
    }
}

/// The operations that a rank called at a line of the script, of [`recorded_calls`].
fn operations_at(calls: &[String], rank: u32, line: u32) -> Vec<&str> {
    let (rank, place) = (format!("{rank} "), format!("[\"train.py\",{line}]"));
    let own = calls.iter().filter(|call| call.starts_with(&rank) && call.contains(&place));
    own.filter_map(|call| call.split('"').nth(1)).collect()
}

/// Initialises sharded weights. Of the second, some 66 of 2^20 values are drawn again, all within the bounds then.
const DRAWS: &str = r#"
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2))
torch.manual_seed(0)
weight = distribute_tensor(torch.empty(1024, 1024), mesh, [Shard(0), Shard(1)])
torch.nn.init.trunc_normal_(weight, std=0.02)
torch.nn.init.trunc_normal_(weight, std=0.02, a=-0.08, b=0.08)
dist.barrier()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn weights_without_values_are_drawn_as_often_as_with_values() {
    let with_values = recorded_calls(DRAWS, 4, &[]);
    let asked = with_values.iter().filter(|call| call.starts_with("0 \"all_gather\"")).count();
    assert_eq!(asked, 6, "{with_values:?}");
    assert_eq!(recorded_calls(DRAWS, 4, &["--no-memory"]), with_values);
}

/// Saves and loads a sharded model and its optimizer, by torch.distributed.checkpoint and by torch.save.
const SAVES: &str = r#"
import torch, torch.distributed as dist, torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 8))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 512)).sum().backward()
optimizer.step()
for call in (checkpoint.save, checkpoint.load):
    own, of_optimizer = get_state_dict(model, optimizer)
    call({"model": own, "optimizer": of_optimizer}, checkpoint_id="sharded")
set_state_dict(model, optimizer, model_state_dict=own, optim_state_dict=of_optimizer)
torch.save(own, f"{dist.get_rank()}.pt")
loaded = torch.load(f"{dist.get_rank()}.pt")
assert [one.shape for one in loaded.values()] == [one.shape for one in own.values()]
model(torch.randn(4, 512)).sum().backward()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_model_without_values_is_saved_and_loaded() {
    let with_values = recorded_calls(SAVES, 2, &[]);
    // A checkpoint's metadata, which the ranks send each other, says how long its files are.
    let of_files = |call: &&String| !call.contains("\"gather\"") && !call.contains("\"broadcast\"");
    let without = recorded_calls(SAVES, 2, &["--no-memory"]);
    assert_eq!(without.len(), with_values.len());
    assert_eq!(
        without.iter().filter(of_files).collect::<Vec<_>>(),
        with_values.iter().filter(of_files).collect::<Vec<_>>()
    );
}

/// FSDP1 with parameters of all sizes, and an optimizer that had them before they were wrapped.
const FSDP1: &str = r#"
import torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
dist.init_process_group("gloo")
device, half = torch.device("cpu"), MixedPrecision(param_dtype=torch.bfloat16)
for keeps in (True, False):
    model = nn.Sequential(nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 512)), nn.LayerNorm(512), nn.Linear(512, 4))
    early = torch.optim.AdamW(model.parameters())
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), device_id=device, mixed_precision=half, use_orig_params=keeps)
    optimizer = early if keeps else torch.optim.AdamW(model.parameters())
    for step in range(2):
        model(torch.randn(4, 512)).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    FSDP.optim_state_dict(model, optimizer)
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn fsdp1_makes_its_calls_without_values() {
    let with_values = recorded_calls(FSDP1, 2, &["--no-cuda"]);
    assert!(with_values.len() > 40, "{with_values:?}");
    assert_eq!(recorded_calls(FSDP1, 2, &["--no-cuda", "--no-memory"]), with_values);
}

/// Makes as many barriers as the driver's library was searched while tensors without values were computed. Lightning
/// sets the variable.
const SEARCHES: &str = r#"
import ctypes, os, torch, torch.distributed as dist
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
dist.init_process_group("gloo")
opened, searched = ctypes.CDLL.__init__, [0]
def opening(self, name, *args, **kwargs):
    searched[0] += "nvidia" in str(name)
    opened(self, name, *args, **kwargs)
ctypes.CDLL.__init__ = opening
values = torch.ones(512, 512)
for _ in range(50):
    values = values * 2
dist.all_reduce(values)
for _ in range(searched[0]):
    dist.barrier()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn operators_without_values_do_not_search_for_a_gpu() {
    let calls = recorded_calls(SEARCHES, 1, &["--no-memory"]);
    let barriers = calls.iter().filter(|call| call.contains("\"barrier\"")).count();
    assert!(barriers < 5, "{barriers} searches");
}

/// Sums sparse tensors, and makes as many barriers as the sum says.
const SPARSE: &str = r#"
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
mine = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, rank + 3.0], (4,))
dist.all_reduce(mine)
for _ in range(int(mine.to_dense() @ torch.tensor([1.0, 1.0, 1.0, 1.0]))):
    dist.barrier()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn sparse_tensors_are_summed() {
    let calls = recorded_calls(SPARSE, 2, &[]);
    let barriers = calls.iter().filter(|call| call.starts_with("1 \"barrier\"")).count();
    assert_eq!(barriers, 1 + 3 + 1 + 4);
}

/// Uses GPUs through other modules than torch.cuda: FSDP1 hands out rank 0's parameters, an optimizer runs in DDP's
/// backward pass, NCCL splits off a group, and Transformers 4's imports of flash_attn unpad a batch.
const OF_A_GPU: &str = r#"
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import _apply_optimizer_in_backward
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", device_id=device)
values = torch.ones(4, 8, device=device)
model = FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=device, sync_module_states=True)
model(values).sum().backward()
model = torch.nn.Linear(8, 8).to(device)
_apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
model(values).sum().backward()
dist.all_reduce(values, group=dist.split_group(split_ranks=[[0, 1], [2, 3]]))
from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input
tokens, kept, _, longest, _ = unpad_input(values.view(2, 2, 8), torch.tensor([[1, 1], [1, 0]]))
assert longest == 2 and torch.equal(tokens, index_first_axis(values, kept))
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_gpu_is_there_by_every_name() {
    let calls = recorded_calls(OF_A_GPU, 4, &[]);
    let at = |line| operations_at(&calls, 2, line);
    assert_eq!(at(8), ["broadcast"], "{calls:?}");
    assert_eq!(at(9), ["all_gather", "reduce_scatter"], "{calls:?}");
    assert_eq!(at(12), ["all_gather", "broadcast", "broadcast"], "{calls:?}");
    assert_eq!(at(13), ["all_reduce"], "{calls:?}");
    assert_eq!(at(14), ["all_reduce"], "{calls:?}");
}

/// Attention over a sequence cut over the ranks equals attention over the whole, with two key heads for four.
const CONTEXT_PARALLEL: &str = r#"
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method
import torch.nn.functional as F
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4,))
torch.manual_seed(0)
project, whole = torch.nn.Linear(64, 128).cuda(), torch.randn(1, 32, 64, device="cuda")
def attend(values):
    query, key, value = project(values).unflatten(2, (-1, 16)).transpose(1, 2).split([4, 2, 2], 1)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
expected = attend(whole)
expected.sum().backward()
grads = [one.grad.clone() for one in project.parameters()]
set_rotate_method("alltoall")
project.zero_grad()
cut = whole.clone()
with context_parallel(mesh, buffers=[cut], buffer_seq_dims=[1]):
    out = attend(cut)
    out.sum().backward()
    [found] = context_parallel_unshard(mesh, [out.detach()], [2])
torch.testing.assert_close(found, expected.detach())
for one, grad in zip(project.parameters(), grads):
    dist.all_reduce(one.grad)
    torch.testing.assert_close(one.grad, grad, rtol=1e-3, atol=1e-3)
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn context_parallel_passes_keys_around_the_ring() {
    let calls = recorded_calls(CONTEXT_PARALLEL, 4, &[]);
    let passed = |line| {
        let operations = operations_at(&calls, 3, line);
        operations.iter().filter(|operation| operation.starts_with("all_to_all")).count()
    };
    // Keys and values go to the next rank three times, and in the backward pass their gradients four times as well.
    assert_eq!((passed(13), passed(22)), (3, 7), "{calls:?}");
}

/// Records a script and returns its exit code and all that it said.
fn said_of(script: &str, ranks: &str, options: &[&str]) -> (Option<i32>, String) {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("train.py"), script).unwrap();
    let mut record = Command::new(binary());
    record.current_dir(out.path()).args(["record", "-n", ranks, "-o", "plan.json"]).args(options);
    let done = record.args(["--", "train.py"]).output().unwrap();
    let said =
        [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (done.status.code(), said.concat())
}

/// A mesh of CPUs makes the default group, and names no backend.
const MESH_OF_CPUS: &str = r#"
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dist.all_reduce(torch.ones(4), group=mesh.get_group("tp"))
print("backends", dist.get_backend(), dist.get_backend(mesh.get_group("tp")))
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_mesh_of_cpus_is_on_gloo() {
    let (code, said) = said_of(MESH_OF_CPUS, "4", &[]);
    assert!(code == Some(0) && said.contains("backends gloo gloo"), "{said}");
}

/// Rank 0 sends what tensor parallel has gathered, whose wrapper holds no values; rank 1 branches on a mean.
const ASYNC_TENSOR: &str = r#"
import torch, torch.distributed as dist, torch.distributed._functional_collectives as funcol
dist.init_process_group("gloo")
whole = funcol.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
if dist.get_rank() == 0:
    dist.send(whole.detach(), 1)
else:
    dist.recv(whole := torch.zeros(4), 0)
assert whole.tolist() == [2.0] * 4
large = torch.ones(40000)
dist.all_reduce(large)
if large.mean().item() > 1:
    dist.barrier()
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn what_a_functional_collective_made_is_sent_and_a_branch_has_its_line() {
    let (code, said) = said_of(ASYNC_TENSOR, "2", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("never sends"), "{said}");
    assert!(said.contains("the branch at train.py:12 on a value"), "{said}");
}

/// The first process waits for more than its own rank puts into the queue.
const WAITS_ON_A_QUEUE: &str = r#"
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=rank, world_size=3)
    dist.all_reduce(torch.ones(2))
    queue.put(rank)
if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(queue,), nprocs=3)
    print([queue.get() for _ in range(3)])
"#;

#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_script_that_starts_other_ranks_or_waits_says_so() {
    let (code, said) = said_of(WAITS_ON_A_QUEUE, "4", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the script starts 3 processes, but -n says 4"), "{said}");
    let (_, said) = said_of(WAITS_ON_A_QUEUE, "3", &["--patience", "20"]);
    assert!(said.contains("has waited at train.py:11 (get) for 10 s"), "{said}");
    assert!(!said.contains("leaked"), "{said}");
}

/// A package outside of the script's folder that makes the calls.
const STEPS: &str =
    "import torch.distributed as dist\ndef reduce(values):\n    dist.all_reduce(values)\n";

/// The script, which finds the package by PYTHONPATH.
const USES_A_PACKAGE: &str = "import torch, torch.distributed as dist\nfrom trainer import steps\n\
    dist.init_process_group('gloo')\nsteps.reduce(torch.ones(2))\n";

/// The user's own line is that of the package, however it is found, and the plan has its text.
#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_package_outside_of_the_scripts_folder_has_its_lines() {
    assert!(std::env::var_os("LOCKSTEP_PYTHON").is_some(), "LOCKSTEP_PYTHON names a Python");
    let out = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = out.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("src/trainer/__init__.py", "");
    write("src/trainer/steps.py", STEPS);
    write("src/trainer/run.py", USES_A_PACKAGE);
    // Of a name that the script's folder has as well, the plan knows the folder.
    write("src/steps.py", STEPS);
    write("job/steps.py", "");
    write("job/train.py", USES_A_PACKAGE);
    write(
        "job/named_alike.py",
        &USES_A_PACKAGE.replace(
            "from trainer import steps",
            "import sys; sys.path.remove(sys.path[0]); import steps",
        ),
    );
    // An editable install is a module that finds the package.
    let finds = "import importlib.util, sys\nclass Finder:\n    @staticmethod\n    def find_spec(name, path=None, \
                 target=None):\n        if name == 'trainer':\n            return \
                 importlib.util.spec_from_file_location(name, FOLDER + '/__init__.py', \
                 submodule_search_locations=[FOLDER])\nsys.meta_path.append(Finder)\n";
    let folder = format!("FOLDER = {:?}\n", out.path().join("src/trainer"));
    write("job/editable.py", &(folder + finds + USES_A_PACKAGE));
    let job = out.path().join("job");
    for (script, path, file) in [
        (&["train.py"][..], "../src", "trainer/steps.py"),
        (&["editable.py"], "", "trainer/steps.py"),
        (&["named_alike.py"], "../src", "src/steps.py"),
        (&["python", "-m", "trainer.run"], "../src", "trainer/steps.py"),
    ] {
        let recorded = Command::new(binary())
            .current_dir(&job)
            .env("PYTHONPATH", path)
            .args(["record", "-n", "2", "-o", "plan.json", "--force", "--"])
            .args(script)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
        assert_eq!(recorded.status.code(), Some(0), "{script:?}: {said}");
        let plan = std::fs::read_to_string(job.join("plan.json")).unwrap();
        let plan = Plan::from_json(&plan).unwrap();
        let op = plan
            .program(GlobalRank(0))
            .unwrap()
            .ops
            .iter()
            .find(|op| op.action.name() == "all_reduce");
        let at = op.unwrap().at.unwrap();
        assert_eq!(plan.describe_line(at), format!("{file}:3"), "{script:?}");
        assert_eq!(plan.sources[at.source as usize].text, STEPS, "{script:?}");
    }
}

/// A script on CPUs that has a SyncBatchNorm.
const NORM_ON_CPUS: &str = r#"
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
dist.barrier()
WRAPPED
model(torch.ones(2, 4))
"#;

/// PyTorch refuses SyncBatchNorm on CPUs, in DDP's constructor and in the forward pass.
#[test]
#[ignore = "needs a Python with PyTorch 2.15 in LOCKSTEP_PYTHON"]
fn a_synchronised_batch_norm_on_cpus_raises() {
    for (wrapped, raises) in [
        ("", "SyncBatchNorm expected input tensor to be on GPU"),
        (
            "model = torch.nn.parallel.DistributedDataParallel(model)",
            "SyncBatchNorm layers only work with GPU modules",
        ),
    ] {
        let script = NORM_ON_CPUS.replace("WRAPPED", wrapped);
        let (code, said) = said_of(&script, "2", &[]);
        assert!(code == Some(1) && said.contains(raises), "{said}");
        let on_gpus = script
            .replace("model(torch", "model.cuda()(torch")
            .replace("Parallel(model)", "Parallel(model.cuda())");
        let (code, said) = said_of(&on_gpus, "2", &[]);
        assert!(code == Some(0) && said.contains("all_gather"), "{said}");
    }
}

#[test]
fn what_cannot_be_recorded_says_why() {
    let ranks = lockstep(["record", "--", "train.py"]);
    assert_eq!(ranks.code, 2);
    assert!(ranks.err.contains("--world-size"), "{}", ranks.err);
    let missing = lockstep(["record", "-n", "2", "--", "no-such-script.py"]);
    assert!(missing.err.contains("no such file"), "{}", missing.err);
    let plugin = lockstep(["record", "--", "accelerate", "launch", "--use_fsdp", "train.py"]);
    assert_eq!(plugin.code, 2);
    assert!(plugin.err.contains("ACCELERATE_USE_FSDP=true"), "{}", plugin.err);
    let ray = lockstep(["record", "--", "ray", "submit", "train.py"]);
    assert!(ray.err.contains("name the script that it starts"), "{}", ray.err);
    let recorder = lockstep(["record", "--print-recorder"]);
    assert_eq!(recorder.code, 0);
    assert!(recorder.out.contains("class RecordedGroup(ProcessGroup)"));
}
