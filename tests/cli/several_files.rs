//! Programs of several files: those that a script imports are found beside it.

use crate::assert_refused;
use lockstep_core::plan::Plan;
use lockstep_tests::lockstep;
use std::fs;
use std::path::Path;

const TRAIN: &str = "import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import utils
from utils import reduce_mean as mean
from models import Net

def main():
    dist.init_process_group('gloo')
    net = DDP(Net())
    for i in range(utils.STEPS):
        net(torch.randn(2, 8)).sum().backward()
        mean(torch.ones(3))

if __name__ == '__main__':
    main()
";

const UTILS: &str = "import torch.distributed as dist

STEPS = 2

def reduce_mean(x):
    dist.all_reduce(x)
    return x
";

const NET: &str = "import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 4)

    def forward(self, x):
        return self.b(self.a(x))
";

fn written(folder: &Path, files: &[(&str, &str)]) -> String {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder.join("train.py").to_str().unwrap().to_owned()
}

#[test]
fn the_files_that_a_script_imports_are_followed_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("train.py", TRAIN),
        ("utils.py", UTILS),
        ("models/__init__.py", "from .net import Net\n"),
        ("models/net.py", NET),
    ];
    let script = written(folder.path(), &files);
    let plan = folder.path().join("plan.json");
    let made = lockstep(["plan", &script, "--world-size", "2", "-o", plan.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{made:?}");
    let plan = Plan::read(&fs::read(plan).unwrap()).unwrap();
    let paths: Vec<&str> = plan.sources.iter().map(|source| source.path.as_str()).collect();
    assert_eq!(paths[0], "train.py");
    assert!(paths.contains(&"utils.py"), "{paths:?}");
    // Two steps: each reduces a bucket from the program's line and three elements from the file's.
    let lines: Vec<String> = plan.programs[0]
        .ops
        .iter()
        .filter(|op| op.action.name() == "all_reduce")
        .map(|op| plan.describe_line(op.at.unwrap()))
        .collect();
    let once = ["train.py:11", "utils.py:6"];
    assert_eq!(lines, [once, once].concat());
    assert_eq!(plan.sources[0].text, TRAIN);
}

#[test]
fn a_name_that_two_files_give_is_refused_with_both_places() {
    let folder = tempfile::tempdir().unwrap();
    let utils = format!("{UTILS}\ndef main():\n    pass\n");
    let script = written(folder.path(), &[("train.py", TRAIN), ("utils.py", &utils)]);
    assert_refused(&lockstep(["sim", &script]), "main is something else in utils.py, line 9");
}
