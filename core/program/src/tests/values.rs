//! The contents of tensors, as PyTorch 2.7.1 computes them, or a refusal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::tests::tensors::executed;
use lockstep_core::plan::value::{display_element, initial_bytes};
use lockstep_core::plan::{Action, Call, TensorCopy};
use lockstep_core::rank::GlobalRank;

/// The contents of the last tensor of that name on a rank once its copies are made: its elements as
/// people read them.
fn held(body: &str, rank: u32) -> Vec<String> {
    let body = format!(
        "{body}\n    sent = torch.zeros_like(r)\n    sent.copy_(r)\n    \
                        dist.broadcast(sent, 0)"
    );
    let plan = executed(&body).unwrap_or_else(|error| panic!("{error}\n{body}")).plan;
    let rank = GlobalRank(rank);
    let mut bytes: Vec<Vec<u8>> =
        plan.tensors.iter().map(|tensor| initial_bytes(tensor, rank)).collect();
    let mut sent = None;
    for op in &plan.program(rank).unwrap().ops {
        match &op.action {
            Action::Copy(copy) => {
                let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } =
                    &**copy;
                assert_eq!(*reduce, None, "a received tensor is computed with");
                let size = plan.tensors[from.index()].dtype.size_bytes();
                let at = |start: u64| (start * size) as usize..((start + count) * size) as usize;
                let part = bytes[from.index()][at(*from_offset)].to_vec();
                bytes[into.index()][at(*into_offset)].copy_from_slice(&part);
            }
            action => {
                if let [Call::Collective { output: Some(output), .. }] = action.calls() {
                    sent = Some(*output);
                }
            }
        }
    }
    let sent = sent.unwrap();
    let dtype = plan.tensors[sent.index()].dtype;
    let elements = bytes[sent.index()].chunks(dtype.size_bytes() as usize);
    elements.map(|element| display_element(dtype, element)).collect()
}

fn refused(body: &str) -> String {
    executed(body).unwrap_err().to_string()
}

#[test]
fn arange_counts_alike_on_every_rank() {
    for rank in [0, 1] {
        for (made, expected) in [
            ("torch.arange(4)", "0 1 2 3"),
            ("torch.arange(2, 10, 3)", "2 5 8"),
            ("torch.arange(3, 0, -1)", "3 2 1"),
            ("torch.arange(0, 1, 0.25)", "0 0.25 0.5 0.75"),
            ("torch.arange(3).float()", "0 1 2"),
            ("torch.arange(6).view(2, 3)[1]", "3 4 5"),
            ("torch.arange(3) + rank", if rank == 0 { "0 1 2" } else { "1 2 3" }),
        ] {
            assert_eq!(held(&format!("    r = {made}"), rank).join(" "), expected, "{made}");
        }
    }
    let large = held("    r = torch.arange(5000)", 1);
    assert_eq!(large[4095..4098], ["4095", "4096", "4097"]);
}

#[test]
fn a_fraction_fills_large_tensors_too() {
    assert_eq!(held("    r = torch.full((5000,), 0.5)", 1)[4999], "0.5");
    assert_eq!(held("    r = torch.ones(5000) / 4", 0)[4999], "0.25");
}

#[test]
fn what_is_known_is_divided() {
    for (made, expected) in [
        ("torch.tensor([1., 2.]) / torch.tensor([4., 0.])", "0.25 inf"),
        ("torch.zeros(2) / 0", "NaN NaN"),
        ("torch.arange(3) / torch.tensor([1, 2, 4])", "0 0.5 0.5"),
        ("torch.arange(4).view(2, 2) / torch.tensor([[1], [2]])", "0 1 1 1.5"),
    ] {
        assert_eq!(held(&format!("    r = {made}"), 0).join(" "), expected, "{made}");
    }
    let in_place = "    r = torch.tensor([1., 3.])\n    r += 1\n    r.div_(torch.tensor([4., 8.]))";
    assert_eq!(held(in_place, 0).join(" "), "0.5 0.5");
}

/// No value is shown for a result that the plan has no operation for.
#[test]
fn a_quotient_of_received_tensors_is_unknown() {
    let unknown = |body: &str| {
        let plan = executed(body).unwrap().plan;
        let both = plan.tensors.iter().zip(plan.unknown());
        let names = both.filter(|(_, unknown)| *unknown).map(|(tensor, _)| tensor.name.clone());
        names.collect::<Vec<_>>()
    };
    let divided = "    n = torch.tensor([6., 3.])\n    dist.all_reduce(n)\n    q = n[0] / n[1]\n    \
                   print(q.shape)";
    let known = "    other = torch.tensor([6., 3.])\n    dist.all_reduce(other)\n";
    let names = unknown(&format!("{known}{divided}\n    dist.all_reduce(q)"));
    assert_eq!(names, ["computed", "not known"]);
    let copied =
        format!("{divided}\n    z = torch.zeros(())\n    z.copy_(q)\n    dist.all_reduce(z)");
    assert!(unknown(&copied).contains(&"z".to_owned()), "{:?}", unknown(&copied));
    for computed in ["m.float()", "torch.zeros(3).copy_(m)", "torch.randn(3) + m"] {
        let received =
            format!("    m = torch.arange(3)\n    dist.all_reduce(m)\n    x = {computed}\n");
        assert!(!unknown(&format!("{received}    dist.all_reduce(x)")).is_empty(), "{computed}");
    }
}

#[test]
fn types_are_turned_into_others() {
    for (made, expected) in [
        ("torch.zeros(3).copy_(torch.arange(3))", "0 1 2"),
        ("torch.arange(3) + torch.tensor([0.5, 0.5, 0.5])", "0.5 1.5 2.5"),
        ("torch.tensor([1.9, -1.9]).long()", "1 -1"),
    ] {
        assert_eq!(held(&format!("    r = {made}"), 0).join(" "), expected, "{made}");
    }
}

#[test]
fn tensors_are_joined_along_any_dimension() {
    for (made, expected) in [
        ("torch.cat([torch.ones(2, 1), torch.zeros(2, 2)], dim=1)", "1 0 0 1 0 0"),
        ("torch.cat([torch.arange(2), torch.tensor([0.5])], dim=-1)", "0 1 0.5"),
        ("torch.stack([torch.ones(2), torch.arange(2)], dim=1)", "1 0 1 1"),
    ] {
        assert_eq!(held(&format!("    r = {made}"), 0).join(" "), expected, "{made}");
    }
}

#[test]
fn checkpoints_and_counted_gpus_do_not_stop_a_script() {
    let unused = "    def resume(path):\n        return torch.load(path)\n    torch.save({}, 'a.pt')\n    \
                  r = torch.ones(1)";
    assert_eq!(held(unused, 0), ["1"]);
    let text = refused("    x = torch.load('a.pt', map_location='cpu')['epoch']");
    assert!(text.contains("what a checkpoint holds is not known here"), "{text}");
    let script = "import torch\nimport torch.multiprocessing as mp\nimport torch.distributed as dist\n\n\
                  def main(rank, n):\n    dist.init_process_group('gloo', rank=rank, world_size=n)\n\n\
                  if __name__ == '__main__':\n    n = torch.cuda.device_count()\n    \
                  mp.spawn(main, args=(n,), nprocs=n)\n";
    let options = lockstep_scenarios::program::Options {
        world_size: Some(3),
        ..lockstep_scenarios::program::Options::default()
    };
    assert_eq!(crate::compile("train.py", script, &options).unwrap().plan.world_size, 3);
}
