//! Wrong reducers: each breaks one rule, and none ends with the reference's bits.

use super::reference::{Run, reference, simulated};
use lockstep_core::plan::{Action, Call, Plan};
use lockstep_torch::ddp::values::Exchange;

/// Three ranks, buckets of a layer and more.
fn of_three() -> Run {
    Run { cap_bytes: Some(150), ..Run::plain(3) }
}

fn is_bucket(plan: &Plan, action: &Action) -> bool {
    let Action::Call { call, async_op: true } = action else { return false };
    let Call::Collective { output: Some(id), .. } = &**call else { return false };
    plan.tensor(*id).is_some_and(|tensor| tensor.name.starts_with("bucket "))
}

/// The places of a rank's buckets in its program.
fn buckets(plan: &Plan, rank: usize) -> Vec<usize> {
    let ops = plan.programs[rank].ops.iter().enumerate();
    ops.filter(|(_, op)| is_bucket(plan, &op.action)).map(|(index, _)| index).collect()
}

/// The bytes of a rank's bucket.
fn bytes_of(plan: &mut Plan, rank: usize, bucket: usize) -> &mut Vec<u8> {
    let at = buckets(plan, rank)[bucket];
    let Action::Call { call, .. } = &plan.programs[rank].ops[at].action else { panic!() };
    let id = call.tensors()[1].unwrap();
    &mut plan.tensors[id.index()].data.0
}

fn caught(change: impl FnMut(u32, &mut Exchange)) -> bool {
    simulated(&of_three(), change).is_none_or(|bits| bits != reference(&of_three()))
}

#[test]
fn the_right_reducer_is_not_caught() {
    assert!(!caught(|_, _| {}));
}

#[test]
fn a_rank_that_launches_buckets_in_another_order() {
    assert!(caught(|_, exchange| {
        let at = buckets(&exchange.plan, 1);
        if at.len() > 1 {
            exchange.plan.programs[1].ops.swap(at[0], at[1]);
        }
    }));
}

#[test]
fn all_ranks_fill_buckets_in_another_order() {
    assert!(caught(|_, exchange| {
        for rank in 0..3 {
            if buckets(&exchange.plan, rank).len() > 1 {
                let first = bytes_of(&mut exchange.plan, rank, 1);
                first.rotate_left(4);
            }
        }
    }));
}

#[test]
fn a_mean_that_is_not_divided() {
    assert!(caught(|_, exchange| {
        for rank in 0..3 {
            for value in bytes_of(&mut exchange.plan, rank, 0).as_chunks_mut().0 {
                *value = (f32::from_le_bytes(*value) * 3.0).to_le_bytes();
            }
        }
    }));
}

/// `sum(g) / W` in place of `sum(g * (1/W))`: the same number in most places, not the same bits.
#[test]
fn a_mean_that_is_divided_by_a_rounded_way() {
    assert!(caught(|_, exchange| {
        for rank in 0..3 {
            for value in bytes_of(&mut exchange.plan, rank, 0).as_chunks_mut().0 {
                let gradient = f32::from_le_bytes(*value) / (1.0 / 3.0f64) as f32;
                *value = (gradient / 3.0).to_le_bytes();
            }
        }
    }));
}

#[test]
fn a_gradient_that_is_left_out() {
    assert!(caught(|_, exchange| bytes_of(&mut exchange.plan, 2, 0)[..8].fill(0)));
}

#[test]
fn a_bucket_that_is_never_reduced() {
    assert!(caught(|step, exchange| {
        for rank in 0..3 {
            let last = *buckets(&exchange.plan, rank).last().unwrap();
            if step == 2 {
                let calls = exchange.plan.programs[rank].ops[last].action.calls_mut();
                // Something else is reduced in its place, so that all still meet.
                let [Call::Collective { output, count, .. }] = calls else { panic!() };
                let mut other = exchange.plan.tensors[output.unwrap().index()].clone();
                other.numel = *count;
                exchange.plan.tensors.push(other);
                *output =
                    Some(lockstep_core::plan::TensorId(exchange.plan.tensors.len() as u32 - 1));
            }
        }
    }));
}

#[test]
fn a_bucket_of_the_iteration_before() {
    let mut before: Option<Vec<u8>> = None;
    assert!(caught(|step, exchange| {
        let bytes = bytes_of(&mut exchange.plan, 0, 0);
        let own = bytes.clone();
        if step >= 2
            && let Some(stale) = before.take()
        {
            *bytes = stale;
        }
        before = Some(own);
    }));
}
