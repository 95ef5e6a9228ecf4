//! Plans of every kind, as MPI carries them out.

use super::*;
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::Factor;

/// The lowered form of a collective among two ranks.
fn lowered(
    backend: BackendName,
    collective: Collective,
    dtype: Dtype,
    count: u64,
) -> Result<Lowered, Unsupported> {
    let mut plan = PlanBuilder::new("one", 2, backend).unwrap();
    // The root passes the most: a shared program names its tensors on every rank.
    let most = |elements: fn(Collective, u32, GroupRank, u64) -> Option<u64>| {
        (0..2).filter_map(|rank| elements(collective, 2, GroupRank(rank), count)).max()
    };
    let mut made = |numel: Option<u64>| Some(plan.tensor("t", dtype, numel?, Fill::Zeros));
    let input = made(most(Collective::input_elements));
    let output = made(most(Collective::output_elements));
    let plan = plan
        .every_rank(|_, program| {
            program.collective(GroupId::WORLD, collective, count, input, output);
        })
        .unwrap();
    check(&plan)?;
    let call = &plan.program(GlobalRank(1)).unwrap().ops[0].action.calls()[0];
    lower(&plan, GlobalRank(1), 0, call)
}

/// Compares groups of the backend mpi with PyTorch's tables, to the last pair.
#[test]
fn pytorchs_tables_are_kept() {
    let half = ReduceOp::PremulSum(Factor::new(0.5).unwrap());
    let mut known = 0;
    for reduction in ReduceOp::ALL.into_iter().chain([half]) {
        for dtype in Dtype::COMPUTABLE {
            if !reduction.supports(dtype) {
                continue;
            }
            let all_reduce = Collective::AllReduce { op: reduction };
            let found = lowered(BackendName::Mpi, all_reduce, dtype, 4);
            match reduce::allowed(BackendName::Mpi, reduction, dtype) {
                Ok(()) => {
                    known += 1;
                    assert!(found.is_ok(), "{found:?}");
                }
                Err(refused) => {
                    assert_eq!(found, Err(Unsupported::Table { op: 0, refused }));
                }
            }
        }
    }
    assert_eq!(known, 4 * 7);
}

#[test]
fn what_pytorch_refuses_is_refused_in_its_words() {
    let text = |backend, collective, dtype| {
        lowered(backend, collective, dtype, 4).map_err(|error| error.to_string())
    };
    let scatter = Collective::ReduceScatter { op: ReduceOp::Sum };
    let refused = text(BackendName::Mpi, scatter, Dtype::Float32).unwrap_err();
    assert!(refused.contains("ProcessGroupMPI does not support reduce_scatter"), "{refused}");
    assert!(text(BackendName::Host, scatter, Dtype::Float32).is_ok());
    let refused = text(BackendName::Mpi, Collective::AllGather, Dtype::Bfloat16).unwrap_err();
    assert!(refused.contains("map::at"), "{refused}");
    let moved = text(BackendName::Gloo, Collective::AllGather, Dtype::Bfloat16).unwrap();
    assert_eq!((moved.element, moved.how), (Element::Uint16, How::AllGather { count: 4 }));
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let refused = text(BackendName::Gloo, sum, Dtype::Bfloat16).unwrap_err();
    assert!(refused.contains("MPI reduces no bfloat16 with SUM"), "{refused}");
}

#[test]
fn what_mpi_counts_in_an_int_is_refused_beyond() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let most = i32::MAX as u64;
    assert!(lowered(BackendName::Host, sum, Dtype::Int8, most).is_ok());
    let refused = lowered(BackendName::Host, sum, Dtype::Int8, most + 1).unwrap_err();
    assert_eq!(refused, Unsupported::Count { op: 0, count: most + 1 });
    // Complex numbers are two floats, and a gather is as large as all of its parts.
    assert!(lowered(BackendName::Host, sum, Dtype::Complex64, most / 2 + 1).is_err());
    assert!(lowered(BackendName::Host, Collective::AllGather, Dtype::Int8, most / 2 + 1).is_err());
}

#[test]
fn only_the_root_has_what_others_do_not_pass() {
    let gather =
        lowered(BackendName::Mpi, Collective::Gather { root: GroupRank(0) }, Dtype::Int32, 4);
    let gather = gather.unwrap();
    assert_eq!((gather.send.map(|part| part.bytes), gather.receive), (Some(16), None));
    let average = Collective::AllReduce { op: ReduceOp::Avg };
    let floats = lowered(BackendName::Host, average, Dtype::Float32, 4).unwrap();
    assert_eq!((floats.scale, floats.divide), (Some((Dtype::Float32, 0.5)), None));
    let integers = lowered(BackendName::Host, average, Dtype::Int32, 4).unwrap();
    assert_eq!((integers.scale, integers.divide), (None, Some((Dtype::Int32, 2))));
}
