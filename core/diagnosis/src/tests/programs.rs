//! Programs with DDP, whose plans say which passes reduce nothing, and ranks that wait for each other
//! in sends and receives.

use super::found;
use super::simulated::{report_of, run};
use crate::{Certainty, Kind, diagnose_trace};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, Op, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{
    Call, Event, Origin, Outcome, TensorShape, Trace, TraceEnd, TraceHeader, What,
};
use lockstep_program::compile;
use lockstep_scenarios::program::Options;

/// A pass of `model.module` leaves every gradient where it is: none is missing, and no option helps.
#[test]
fn a_pass_past_ddp_is_not_one_with_unused_parameters() {
    for option in ["", ", find_unused_parameters=True"] {
        let report = report_of(&format!(
            "    model = DDP(models.mlp([32, 32, 8]){option})
    for step in range(4):
        if rank == 2 and step == 2:
            model.module(torch.zeros(2)).backward()
        else:
            model(torch.zeros(2)).backward()"
        ));
        assert_eq!(found(&report), [(Kind::OpSkipped, vec![2])], "{}", report.to_text());
        let finding = &report.findings[0];
        assert!(
            finding.message.contains(
                "#3 differs: that of rank 2 (train.py:7) goes through \
             model.module"
            ),
            "{}",
            finding.message
        );
        assert!(!finding.message.contains("no gradient"), "{}", finding.message);
        assert!(
            finding.fix.contains("find_unused_parameters=True does not help"),
            "{}",
            finding.fix
        );
    }
}

/// A parameter that gets no gradient is told as before.
#[test]
fn unused_parameters_are_still_found() {
    let report = report_of(
        "    model = DDP(models.mlp([32, 32, 8]))
    for step in range(3):
        out = model(torch.zeros(2))
        if rank == 1 and step == 2:
            model.backward(unused=[0])
        else:
            out.backward()",
    );
    assert_eq!(found(&report), [(Kind::DdpUnusedParameters, vec![1])], "{}", report.to_text());
}

/// The calls of join() behind it differ as well, and follow from the pass that reduces nothing.
#[test]
fn a_pass_without_sync_is_named_where_join_comes_behind_it_or_around() {
    let before = "    model = DDP(models.mlp([32, 32, 8]))
    for step in range(4):
        if rank == 1 and step == 2:
            with model.no_sync():
                model(torch.zeros(2)).backward()
        else:
            model(torch.zeros(2)).backward()
    with model.join():
        for step in range(3 + rank):
            model(torch.zeros(2)).backward()";
    let around = "    model = DDP(models.mlp([32, 32, 8]))
    with model.join():
        for step in range(3 + rank):
            if rank == 1 and step == 2:
                with model.no_sync():
                    model(torch.zeros(2)).backward()
            else:
                model(torch.zeros(2)).backward()";
    for (body, line) in [(before, 8), (around, 9)] {
        let report = report_of(body);
        assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
        let finding = &report.findings[0];
        let why = format!("that of rank 1 (train.py:{line}) runs under no_sync()");
        assert!(finding.message.contains(&why), "{}", finding.message);
        assert!(finding.fix.contains("Enter no_sync() in the same steps"), "{}", finding.fix);
    }
    // Uneven inputs alone are what it is for.
    let uneven = "    model = DDP(models.mlp([32, 32, 8]))
    with model.join():
        for step in range(3 + rank):
            model(torch.zeros(2)).backward()";
    assert_eq!(found(&report_of(uneven)), []);
}

/// Gradients are accumulated over three steps inside join(), and rank 1 has fewer inputs: what it
/// shadows is not a call of another size. A hang in there is that of the rank that stands still.
#[test]
fn no_sync_inside_join_is_no_mismatch_of_the_rank_that_left() {
    for (backend, inputs) in [("nccl", 6), ("gloo", 6), ("gloo", 7)] {
        for stuck in [None, Some(5), Some(7)] {
            let at = stuck.unwrap_or(99);
            let text = format!(
                "def main():
    dist.init_process_group('{backend}')
    rank = dist.get_rank()
    model = DDP(models.mlp([64, 128, 64, 8]))
    with model.join():
        for step in range({inputs} if rank == 1 else 9):
            if rank == 3 and step == {at}:
                sleep('data', s=5000)
            if (step + 1) % 3 == 0:
                model(torch.zeros(2)).backward()
            else:
                with model.no_sync():
                    model(torch.zeros(2)).backward()
    dist.barrier()
run(main, world_size=4)
"
            );
            let mut plan = compile("train.py", &text, &Options::default()).unwrap().plan;
            for op in plan.programs.iter_mut().flat_map(|program| &mut program.ops) {
                if let Action::Sleep { duration_ns, .. } = &mut op.action {
                    *duration_ns = u64::MAX;
                }
            }
            let report = diagnose_trace(&run(&plan));
            let expected: Vec<_> =
                stuck.map(|_| (Kind::RankNeverJoined, vec![3])).into_iter().collect();
            assert_eq!(found(&report), expected, "{backend} {inputs} {}", report.to_text());
        }
    }
}

#[test]
fn no_sync_around_other_steps_is_named() {
    let report = report_of(
        "    model = DDP(models.mlp([32, 32, 8]))
    every = 4 if rank != 1 else 2
    for step in range(8):
        if (step + 1) % every != 0:
            with model.no_sync():
                model(torch.zeros(2)).backward()
        else:
            model(torch.zeros(2)).backward()",
    );
    assert_eq!(found(&report), [(Kind::OpExtra, vec![1])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert!(
        finding.message.contains("that of rank 0 (train.py:9) runs under no_sync()"),
        "{}",
        finding.message
    );
    assert!(finding.fix.contains("Enter no_sync() in the same steps"), "{}", finding.fix);
}

/// As many ranks have a batch more as have not: what happened is known, and who is wrong is not.
#[test]
fn uneven_inputs_of_half_the_ranks_are_a_tie_of_uneven_inputs() {
    let report = report_of(
        "    model = DDP(models.resnet18())
    for step in range(3 if rank < 2 else 2):
        model(torch.zeros(2)).backward()",
    );
    assert_eq!(found(&report), [(Kind::DdpUnevenInputs, vec![0, 1, 2, 3])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Undecidable);
    assert!(
        finding.message.starts_with("Ranks 2-3 left the DDP training loop"),
        "{}",
        finding.message
    );
}

/// The trace of ranks that wait in the first call of their programs: whose, which, and for whom.
fn that_wait(plan: Plan, waits: &[(u32, &str, u32)]) -> Trace {
    let begins = |(rank, op, peer): &(u32, &str, u32)| {
        let tensor = TensorShape { shape: vec![4], dtype: Dtype::Float32 };
        let sends = *op == "send";
        let call = Call {
            op: (*op).into(),
            group: GroupId::WORLD,
            seq: Some(1),
            p2p: true,
            peer: Some(GroupRank(*peer)),
            tag: 0,
            inputs: sends.then(|| tensor.clone()).into_iter().collect(),
            outputs: (!sends).then_some(tensor).into_iter().collect(),
            reduce_op: None,
            root: None,
            plan_op: Some(0),
            stack: vec![],
            record_id: None,
        };
        let event = |what| Event { time_ps: 1, rank: GlobalRank(*rank), what };
        [
            event(What::OpBegan { op: 0 }),
            event(What::Scheduled { work: 0, call: std::sync::Arc::new(call) }),
        ]
    };
    let origin = Origin::Simulated { version: "0".into(), topology: "none".into(), seed: 0 };
    Trace {
        events: waits.iter().flat_map(begins).collect(),
        header: TraceHeader {
            origin,
            world_size: plan.world_size,
            groups: plan.groups.clone(),
            plan: Some(plan.into()),
            epoch_ns: 0,
        },
        end: Some(TraceEnd { time_ps: 2, outcome: Outcome::TimedOut }),
    }
}

/// Rank 2's next call is the send that rank 0 waits for; it is two others that never meet.
#[test]
fn a_send_that_is_still_to_come_is_not_called_missing() {
    let mut plan = PlanBuilder::new("p", 3, BackendName::Gloo).unwrap();
    let tensor = plan.tensor("a", Dtype::Float32, 4, Fill::Rank);
    let plan = plan.every_rank(|rank, program| match rank.0 {
        0 | 1 => drop(program.recv(GroupId::WORLD, GroupRank(2), tensor)),
        _ => {
            program.recv(GroupId::WORLD, GroupRank(1), tensor);
            program.send(GroupId::WORLD, GroupRank(0), tensor);
        }
    });
    let trace = that_wait(plan.unwrap(), &[(0, "recv", 2), (1, "recv", 2), (2, "recv", 1)]);
    let report = diagnose_trace(&trace);
    assert_eq!(found(&report), [(Kind::P2pMismatch, vec![1, 2])], "{}", report.to_text());
    assert_eq!(report.findings[0].victims, [GlobalRank(0)]);
}

/// The collectives inside of a call on objects are named by it: that is what the program says.
#[test]
fn calls_inside_of_object_calls_are_named_by_them() {
    let report = report_of(
        "    all = [None] * 4
    for step in range(3):
        if rank != 1 or step != 1:
            dist.all_gather_object(all, step)",
    );
    let finding = &report.findings[0];
    assert!(finding.message.contains("all_gather_object's all_gather"), "{}", finding.message);
    assert_eq!(finding.op.as_deref(), Some("all_gather"));
    assert!(finding.evidence.iter().all(|seen| !seen.note.contains("object")));
}

/// The behaviour of gloo with calls that differ, and that Lockstep lets wait, is said with the finding.
#[test]
fn what_gloo_does_with_calls_that_differ_is_said() {
    let said = |call: &str, change: fn(&mut Call)| {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n    {call}\n\nrun(main, world_size = \
             4)\n"
        );
        let mut trace = run(&compile("train.py", &text, &Options::default()).unwrap().plan);
        for event in &mut trace.events {
            if let (GlobalRank(3), What::Scheduled { call, .. }) = (event.rank, &mut event.what) {
                change(std::sync::Arc::make_mut(call));
            }
        }
        trace
            .events
            .retain(|event| matches!(event.what, What::OpBegan { .. } | What::Scheduled { .. }));
        diagnose_trace(&trace).findings.first().map(|finding| finding.message.clone())
    };
    let longer = |call: &mut Call| {
        let tensors = call.inputs.iter_mut().chain(&mut call.outputs);
        tensors.for_each(|tensor| tensor.shape = vec![65]);
    };
    let other = |call: &mut Call| {
        let tensors = call.inputs.iter_mut().chain(&mut call.outputs);
        tensors.for_each(|tensor| tensor.dtype = Dtype::Int32);
    };
    for (message, part) in [
        (said("dist.broadcast(torch.ones(2), 0)", longer), "leaves the rest as it was"),
        (said("dist.all_reduce(torch.ones(2))", longer), "a rank that gets more than it has room"),
        (said("dist.all_reduce(torch.ones(2))", other), "does not compare types"),
    ] {
        let message = message.unwrap_or_default();
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// A receive from a rank that has nothing left to send, where another one sends: its line is told, not
/// only the one that waits for it.
#[test]
fn a_receive_from_the_wrong_rank_is_told_with_its_line() {
    let mut plan = PlanBuilder::new("p", 3, BackendName::Gloo).unwrap();
    let tensor = plan.tensor("a", Dtype::Float32, 4, Fill::Rank);
    plan.source("w.py", "");
    let plan = plan.every_rank(|rank, program| {
        program.line(0, 10 + rank.0);
        match rank.0 {
            0 => drop(program.recv(GroupId::WORLD, GroupRank(1), tensor)),
            1 => {
                program.recv(GroupId::WORLD, GroupRank(0), tensor);
                program.send(GroupId::WORLD, GroupRank(0), tensor);
            }
            _ => drop(program.send(GroupId::WORLD, GroupRank(1), tensor)),
        }
    });
    let waits = [(0, "recv", 1), (1, "recv", 0), (2, "send", 1)];
    let report = diagnose_trace(&that_wait(plan.unwrap(), &waits));
    assert_eq!(found(&report), [(Kind::P2pMismatch, vec![1])], "{}", report.to_text());
    let finding = &report.findings[0];
    let told = &finding.message;
    assert!(told.contains("names rank 0 and should name rank 2"), "{told}");
    assert!(told.contains("w.py:11") && told.contains("w.py:12"), "{told}");
    assert!(finding.fix.contains("recv from rank 2"), "{}", finding.fix);
    assert_eq!(finding.evidence.len(), 2, "{}", report.to_text());
}

/// gloo carries `reduce_scatter_tensor` out by an `all_reduce`: the finding names the call of the program.
#[test]
fn a_call_that_gloo_carries_out_by_another_has_its_name() {
    let report = report_of(
        "    if rank == 2:
        dist.barrier()
    dist.reduce_scatter_tensor(torch.zeros(3), torch.ones(3 * dist.get_world_size()))",
    );
    let finding = &report.findings[0];
    assert!(finding.message.contains("called reduce_scatter_tensor ("), "{}", finding.message);
    assert!(!report.to_text().contains("all_reduce"), "{}", report.to_text());
}

/// The constructor's calls reduce no bucket: they compare the parameters, and copy the first rank's.
#[test]
fn a_call_of_ddps_constructor_that_is_left_out_is_told_as_its_own() {
    let text = "def main():\n    dist.init_process_group('gloo')\n    model = DDP(models.resnet18())\n    \
                model(torch.zeros(2)).backward()\nrun(main, world_size=4)\n";
    let plan = compile("train.py", text, &Options::default()).unwrap().plan;
    for (nth, purpose) in [
        (0, "constructor compares the parameters of all ranks"),
        (1, "constructor compares the parameters of all ranks"),
        (2, "constructor copies the first rank's parameters and buffers"),
    ] {
        let mut plan = plan.clone();
        let mut without = plan.program(GlobalRank(1)).unwrap().clone();
        let is_call = |op: &Op| !op.action.calls().is_empty();
        let at = (0..without.ops.len()).filter(|at| is_call(&without.ops[*at])).nth(nth).unwrap();
        without.ops.remove(at);
        plan.programs.push(without);
        plan.program_of[1] = plan.programs.len() as u32 - 1;
        let report = diagnose_trace(&run(&plan));
        assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{nth}: {}", report.to_text());
        let finding = &report.findings[0];
        assert!(finding.message.contains(purpose), "{nth}: {}", finding.message);
        assert!(!report.to_text().contains("bucket"), "{nth}: {}", report.to_text());
        assert!(finding.fix.starts_with("Wrap the model"), "{nth}: {}", finding.fix);
    }
}

/// A rank that goes round an inner loop as often as the others before and after has left out calls, not the loop.
#[test]
fn rounds_that_are_left_out_once_are_skipped_calls() {
    let body = |rounds: &str| {
        format!(
            "    for step in range(5):
        for layer in range({rounds}):
            dist.all_reduce(torch.zeros(4))
            dist.broadcast(torch.zeros(3), 0)
        dist.all_gather_into_tensor(torch.zeros(4 * dist.get_world_size()), torch.zeros(4))"
        )
    };
    let report = report_of(&body("1 if rank == 1 and step == 2 else 2"));
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
    let report = report_of(&body("1 if rank == 1 and step == 4 else 2"));
    assert_eq!(found(&report), [(Kind::LoopShorter, vec![1])], "{}", report.to_text());
}
