//! Groups and meshes as each rank sees them, for any world, and the facts that a job settles at its end.

use super::*;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Action, Call, Fill, PlanError};
use lockstep_core::rank::GlobalRank;
use proptest::prelude::*;

fn each_rank<T>(
    world_size: u32,
    mut script: impl FnMut(&mut Dist<'_>) -> Result<T, DistError>,
) -> Vec<T> {
    let mut job = Job::new("test", world_size).unwrap();
    let mut results = Vec::new();
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        results.push(script(dist)?);
        Ok(())
    });
    for rank in 0..world_size {
        assert_eq!(job.raised(GlobalRank(rank)), None);
    }
    results
}

#[test]
fn an_empty_world_is_no_job() {
    assert_eq!(Job::new("none", 0).err(), Some(PlanError::EmptyWorld));
    assert!(matches!(Job::new("large", u32::MAX), Err(PlanError::WorldTooLarge(_))));
}

#[test]
fn torchruns_environment_is_there() {
    let mut job = Job::new("nodes", 6).unwrap();
    job.ranks_per_node(4);
    let of = |job: &mut Job, rank, name| job.rank(GlobalRank(rank)).unwrap().environ(name).unwrap();
    assert_eq!(of(&mut job, 5, "RANK"), "5");
    assert_eq!(of(&mut job, 5, "LOCAL_RANK"), "1");
    assert_eq!(of(&mut job, 5, "LOCAL_WORLD_SIZE"), "2");
    assert_eq!(of(&mut job, 1, "LOCAL_WORLD_SIZE"), "4");
    assert_eq!(job.rank(GlobalRank(5)).unwrap().get_node_local_rank(None), Ok(1));
    assert_eq!(job.finish().unwrap().ranks_per_node, 4);
}

/// A use_local_synchronization group gets the same name only on ranks that have as many groups, so
/// ranks that have not hang; the plan shows it as a barrier that they do not share.
#[test]
fn local_groups_are_named_by_what_a_rank_has() {
    let mut job = Job::new("local", 2).unwrap();
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let local = NewGroup { use_local_synchronization: true, ..NewGroup::default() };
        if dist.process().0 == 0 {
            dist.new_group(Some(&[0]), &local)?;
        }
        dist.new_group(Some(&[0, 1]), &local).map(drop)
    });
    let plan = job.finish().unwrap();
    for rank in 0..2 {
        let ops = &plan.program(GlobalRank(rank)).unwrap().ops;
        assert_eq!(ops.last().unwrap().via.as_deref(), Some("new_group"));
    }
    // hashlib.sha1(b"0_1_1").hexdigest()
    let name = "4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7";
    assert!(plan.groups.iter().any(|group| group.name() == name));
}

/// The calls that a wait is for are remembered by index, also past groups that left nothing behind.
#[test]
fn waits_point_at_their_calls() {
    let mut job = Job::new("waits", 2).unwrap();
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
        let work = dist.all_reduce(&x, Reduction { async_op: true, ..Reduction::default() })?;
        dist.new_group(None, &NewGroup::default())?;
        dist.compute("forward", 1000);
        dist.wait(work.unwrap(), Some(5)).map(drop)
    });
    let plan = job.finish().unwrap();
    let actions: Vec<_> = plan.programs[0].ops.iter().map(|op| &op.action).collect();
    assert!(matches!(
        actions[..],
        [
            Action::Call { async_op: true, .. },
            Action::Compute { .. },
            Action::Wait { op: 0, timeout_ms: Some(5) }
        ]
    ));
}

/// `timedelta(0)` is the default of `wait`, which waits; a group with a timeout of zero is refused.
#[test]
fn no_time_at_all() {
    let mut job = Job::new("no time", 2).unwrap();
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
        let work = dist.all_reduce(&x, Reduction { async_op: true, ..Reduction::default() })?;
        dist.wait(work.unwrap(), Some(0))?;
        let options = NewGroup { timeout_ms: Some(Arg::Is(0)), ..NewGroup::default() };
        let refused = dist.new_group(None, &options).unwrap_err();
        assert_eq!(refused.to_string(), "DistStoreError: wait timeout after 0ms");
        dist.monitored_barrier(None, Some(Arg::Is(0)), false).map(drop)
    });
    let plan = job.finish().unwrap();
    let limits = plan.programs[0].ops.iter().filter_map(|op| match op.action {
        Action::Wait { timeout_ms, .. } => Some(timeout_ms),
        _ => None,
    });
    assert_eq!(limits.collect::<Vec<_>>(), [None, Some(1)]);
}

/// A loop makes no new tensors, and equal ranks share a program.
#[test]
fn temporary_tensors_are_used_again() {
    let mut job = Job::new("loop", 4).unwrap();
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
        for _ in 0..50 {
            dist.all_reduce(x.narrow(1, 2), Reduction::default())?;
        }
        Ok(())
    });
    let plan = job.finish().unwrap();
    assert_eq!((plan.programs.len(), plan.tensors.len()), (1, 2));
    assert_eq!(plan.programs[0].ops.len(), 150);
}

#[test]
fn a_work_of_another_rank_is_no_work() {
    let mut job = Job::new("works", 2).unwrap();
    let mut first = None;
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let x = dist.tensor("x", Dtype::Float32, 4, Fill::Rank);
        match first {
            None => {
                let options = Reduction { async_op: true, ..Reduction::default() };
                first = dist.all_reduce(&x, options)?;
                Ok(())
            }
            Some(work) => dist.wait(work, None).map(drop),
        }
    });
    assert_eq!(job.raised(GlobalRank(0)), None);
    assert_eq!(job.raised(GlobalRank(1)).unwrap().kind, ErrorKind::ValueError);
}

/// The behaviour of PyTorch 2.7.1 on gloo: of a mesh that is the world, the rank that is in it
/// twice asserts that it is not; of another one the lines along the first dimension come before
/// that, and one with a rank twice hangs on all ranks that it lists.
#[test]
fn a_rank_may_be_in_a_mesh_twice() {
    let hangs = "new_group lists rank 0 twice (PyTorch 2.7.1 hangs here instead";
    let two = "Each device mesh dimension should get only one process group, but got 0 in [0, 2]!";
    let cases = [
        (2, &[0, 0][..], &[2][..], ["AssertionError", ""]),
        (4, &[0, 0, 1], &[3], [hangs, hangs]),
        (4, &[0, 0, 1, 2], &[2, 2], [two, ""]),
    ];
    for (world, ranks, shape, said) in cases {
        let mut job = Job::new("twice", world).unwrap();
        job.run(|dist| {
            dist.init_process_group("gloo")?;
            dist.device_mesh("cpu", ranks, shape, None).map(drop)
        });
        let raised = (0..world).map(|rank| match job.raised(GlobalRank(rank)) {
            Some(error) => format!("{error} ({})", error.help.clone().unwrap_or_default()),
            None => String::new(),
        });
        let raised: Vec<String> = raised.collect();
        assert!(raised[0].contains(said[0]) && raised[1].contains(said[1]), "{raised:?}");
        assert_eq!(raised[1].is_empty(), said[1].is_empty(), "{raised:?}");
        assert!(raised[2..].iter().all(String::is_empty), "{raised:?}");
    }
}

#[test]
fn nccl_has_its_own_words() {
    let mut job = Job::new("nccl", 2).unwrap();
    job.machine(Machine { cuda_devices: 1, mpi: false });
    let mut said = Vec::new();
    job.run(|dist| {
        dist.init_process_group("nccl")?;
        let cpu = dist.tensor("cpu", Dtype::Float32, 4, Fill::Rank);
        let gpu = dist.tensor_on(Device::Cuda, "gpu", Dtype::Float32, 4, Fill::Rank);
        let short = dist.tensor_on(Device::Cuda, "short", Dtype::Int16, 4, Fill::Rank);
        let all = Reduction::default;
        let mut say = |called: Result<(), DistError>| said.push(called.unwrap_err().to_string());
        say(dist.all_reduce(&cpu, all()).map(drop));
        say(dist.all_reduce(gpu.non_contiguous(), all()).map(drop));
        say(dist.all_reduce(gpu.to_sparse(1), all()).map(drop));
        say(dist.all_reduce(&short, all()).map(drop));
        say(dist.all_reduce(&gpu, lockstep_core::reduce::ReduceOp::Band.into()).map(drop));
        say(dist.all_gather_into_tensor(&gpu, &gpu, InGroup::default()).map(drop));
        say(dist.reduce_scatter_tensor(&gpu, &gpu, all()).map(drop));
        say(dist.irecv(&gpu, RecvFrom::default()).map(drop));
        say(dist.gather(&gpu, None, ToRank::dst(7)).map(drop));
        say(dist.monitored_barrier(None, None, false).map(drop));
        let default = InGroup::default;
        say(dist.all_to_all_single(&short, &short, None, None, default()).map(drop));
        say(dist.all_to_all_single(gpu.to_sparse(1), &gpu, None, None, default()).map(drop));
        let (shorts, gpus) = (vec![short.clone(); 2], vec![gpu.non_contiguous(); 2]);
        say(dist.all_to_all(&shorts, &shorts, default()).map(drop));
        say(dist.all_to_all(&gpus, &gpus, default()).map(drop));
        say(dist.scatter(&short, None, FromRank::src(1 - dist.get_rank(None)?)).map(drop));
        say(dist.isend(&short, SendTo::dst(1 - dist.get_rank(None)?)).map(drop));
        say(dist.coalescing_manager(None, None, false, |_| Ok(())).map(drop));
        Ok(())
    });
    said.truncate(17);
    insta::assert_snapshot!(said.join("\n"), @r"
    RuntimeError: No backend type associated with device type cpu
    ValueError: Tensors must be contiguous
    RuntimeError: NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.
    TypeError: Input tensor data type is not supported for NCCL process group: Short
    ValueError: Cannot use ReduceOp.BAND with NCCL
    ValueError: output tensor size must be equal to world_size times input tensor size
    ValueError: input tensor must be the same size as output size times world size
    NotImplementedError: ProcessGroupNCCL does not support recvAnysource
    ValueError: ProcessGroupNCCL::gather: invalid root rank: 7
    ValueError: monitored_barrier is only implemented for GLOO backend.
    RuntimeError: Unconvertible NCCL type Short
    ValueError: Tensors must be CUDA and dense
    RuntimeError: Unconvertible NCCL type Short
    ValueError: Tensors must be contiguous
    RuntimeError: Unconvertible NCCL type Short
    RuntimeError: Unconvertible NCCL type Short
    UnboundLocalError: cannot access local variable 'work' where it is not associated with a value
    ");
}

/// ProcessGroupMPI of 2.7.1 has them not, and gloo's transport reads a sender's memory from the CPU.
#[test]
fn what_mpi_lacks_and_where_gloo_sends_from() {
    let mut said = Vec::new();
    let mut job = Job::new("mpi", 2).unwrap();
    job.machine(Machine { cuda_devices: 1, mpi: true });
    job.run(|dist| {
        dist.init_process_group("mpi")?;
        let one = dist.tensor("one", Dtype::Float32, 2, Fill::Zeros);
        let two = dist.tensor("two", Dtype::Float32, 4, Fill::Zeros);
        let mut say = |called: Called| said.push(called.unwrap_err().to_string());
        let pair = || vec![one.clone(); 2];
        say(dist.reduce_scatter(&one, pair(), lockstep_core::reduce::ReduceOp::Sum.into()));
        say(dist.reduce_scatter_tensor(&one, &two, lockstep_core::reduce::ReduceOp::Sum.into()));
        say(dist.all_gather_into_tensor(&two, &one, InGroup::default()));
        say(dist.all_reduce_coalesced(pair(), lockstep_core::reduce::ReduceOp::Sum.into()));
        // This one it has.
        dist.all_gather(pair(), &one, InGroup::default()).map(drop)
    });
    assert_eq!(job.raised(GlobalRank(0)), None);
    let mut job = Job::new("gloo", 2).unwrap();
    job.machine(Machine { cuda_devices: 1, mpi: false });
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let gpu = dist.tensor_on(Device::Cuda, "gpu", Dtype::Float32, 2, Fill::Zeros);
        let peer = 1 - dist.get_rank(None)?;
        said.push(dist.recv(&gpu, RecvFrom::src(peer)).unwrap_err().to_string());
        Ok(())
    });
    // Both ranks said the same.
    let said: Vec<&String> = said[..4].iter().chain(said.last()).collect();
    assert_eq!(
        said,
        [
            "RuntimeError: ProcessGroupMPI does not support reduce_scatter",
            "RuntimeError: Backend mpi does not support _reduce_scatter_base",
            "RuntimeError: no support for _allgather_base in MPI process group",
            "RuntimeError: allreduce_coalesced is currently not supported with MPI",
            "RuntimeError: gloo/transport/tcp/pair.cc: readv: Bad address",
        ]
    );
}

/// Without a device, a coalescing manager holds back only calls that it can join into one; the rest is made
/// at once.
#[test]
fn a_coalescing_manager_without_a_device_makes_other_calls_at_once() {
    let mut job = Job::new("nccl", 2).unwrap();
    job.machine(Machine { cuda_devices: 1, mpi: false });
    job.run(|dist| {
        dist.init_process_group("nccl")?;
        let x = dist.tensor_on(Device::Cuda, "x", Dtype::Float32, 4, Fill::Rank);
        for device in [None, Some(Device::Cuda)] {
            dist.coalescing_manager(None, device, false, |dist| {
                dist.all_reduce(&x, Reduction::default())?;
                dist.broadcast(&x, FromRank::src(0))?;
                dist.all_reduce(&x, Reduction::default()).map(drop)
            })?;
        }
        Ok(())
    });
    assert_eq!(job.raised(GlobalRank(0)), None);
    let plan = job.finish().unwrap();
    let ops = &plan.program(GlobalRank(0)).unwrap().ops;
    let names: Vec<Vec<&str>> =
        ops.iter().map(|op| op.action.calls().iter().map(Call::name).collect()).collect();
    let expected = vec![
        vec!["broadcast"],
        vec!["all_reduce", "all_reduce"],
        vec!["broadcast", "all_reduce", "all_reduce"],
    ];
    assert_eq!(names, expected);
}

/// A group that was split off has its parent's backend string, and only NCCL behind it.
#[test]
fn a_split_group_is_called_what_its_parent_is() {
    let mut job = Job::new("split", 2).unwrap();
    job.machine(Machine { cuda_devices: 2, mpi: false });
    job.run(|dist| {
        let device =
            InitProcessGroup { device_id: Some(0), ..InitProcessGroup::from("cpu:gloo,cuda:nccl") };
        dist.init_process_group(device)?;
        let mine = dist.split_group(None, Some(&[vec![0, 1]]), None, None)?;
        assert_eq!(dist.get_backend(mine)?, dist.get_backend(None)?);
        assert_eq!(dist.get_backend_config(mine)?, dist.get_backend_config(None)?);
        let cpu = dist.tensor("cpu", Dtype::Float32, 4, Fill::Rank);
        let refused = dist.all_reduce(&cpu, Reduction { group: mine, ..Reduction::default() });
        assert_eq!(
            refused.unwrap_err().to_string(),
            "RuntimeError: No backend type associated with device type cpu"
        );
        Ok(())
    });
    assert_eq!(job.raised(GlobalRank(0)), None);
}

proptest! {
    /// Names are numbers in the order of the calls, on every rank, members or not.
    #[test]
    fn groups_are_numbered_alike_on_every_rank(
        world in 1..7u32, masks in prop::collection::vec(1..127u32, 0..6)
    ) {
        let results = each_rank(world, |dist| {
            let mut names = Vec::new();
            for mask in &masks {
                let ranks: Vec<i64> =
                    (0..i64::from(world)).filter(|rank| mask >> rank & 1 == 1).collect();
                if ranks.is_empty() {
                    continue;
                }
                let group = dist.new_group(Some(&ranks), &NewGroup::default())?;
                names.push(dist.group_name(group).ok());
            }
            Ok(names)
        });
        for names in results {
            for (number, name) in (1..).zip(names) {
                prop_assert!(name.is_none_or(|name| name == number.to_string()));
            }
        }
    }

    /// Coordinates count row by row; groups along a dimension hold exactly the ranks that differ
    /// only there; a sub-mesh's coordinates are a part of the mesh's.
    #[test]
    fn a_mesh_is_a_grid_of_ranks(shape in prop::collection::vec(1..4u32, 1..5)) {
        let world: u32 = shape.iter().product();
        let names = &["pp", "dp", "cp", "tp"][..shape.len()];
        let results = each_rank(world, |dist| {
            let mesh = dist.init_device_mesh("cpu", &shape, Some(names))?;
            let mut lines = Vec::new();
            for name in names {
                let group = mesh.get_group(Some((*name).into()))?;
                let ranks = dist.get_process_group_ranks(group)?;
                let local = dist.mesh_local_rank(&mesh, Some((*name).into()))?;
                lines.push((ranks, local));
            }
            let last = &names[names.len() - 1..];
            let sub = mesh.submesh_with(last, &[])?;
            Ok((mesh, lines, sub))
        });
        for (rank, (mesh, lines, sub)) in (0..).zip(&results) {
            let at = mesh.get_coordinate().unwrap();
            for (dim, (ranks, local)) in lines.iter().enumerate() {
                let differs_only_there = |other: u32| {
                    let other = results[other as usize].0.get_coordinate().unwrap();
                    at.iter().zip(other).enumerate().all(|(d, (a, b))| d == dim || a == b)
                };
                let expected: Vec<_> =
                    (0..world).filter(|other| differs_only_there(*other)).map(GlobalRank).collect();
                prop_assert_eq!(ranks, &expected);
                prop_assert_eq!(*local, i64::from(at[dim]));
                prop_assert_eq!(ranks[*local as usize], GlobalRank(rank));
            }
            prop_assert_eq!(sub.get_coordinate().unwrap(), &at[at.len() - 1..]);
            prop_assert_eq!(sub.ranks().len(), shape[shape.len() - 1] as usize);
            prop_assert!(sub.ranks().contains(&rank));
        }
    }

    #[test]
    fn no_arguments_panic(
        world in 1..4u32, root in -3..6i64, numels in prop::collection::vec(0..5u64, 0..4),
        splits in prop::collection::vec(0..4u64, 0..4), tag in -2..3i64, nccl: bool,
    ) {
        let mut job = Job::new("any", world).unwrap();
        job.machine(Machine { cuda_devices: 1, mpi: true });
        job.run(|dist| {
            dist.init_process_group(if nccl { "nccl" } else { "gloo" })?;
            let device = if nccl { Device::Cuda } else { Device::Cpu };
            let list: Vec<Tensor> = numels
                .iter()
                .map(|n| dist.tensor_on(device, "t", Dtype::Float32, *n, Fill::Rank))
                .collect();
            let x = dist.tensor_on(device, "x", Dtype::Float32, 4, Fill::Rank);
            let (some, split) = (|| Some(TensorListArg::from(&list)), Some(&splits[..]));
            let _ = dist.broadcast(&x, FromRank::src(root));
            let _ = dist.all_gather(&list, &x, InGroup::default());
            let _ = dist.gather(&x, some(), ToRank::dst(root));
            let _ = dist.scatter(&x, some(), FromRank::src(root));
            let _ = dist.reduce_scatter(&x, &list, Reduction::default());
            let _ = dist.all_to_all(&list, &list, InGroup::default());
            let _ = dist.all_to_all_single(&x, &x, split, split, InGroup::default());
            let _ = dist.reduce_scatter_tensor(&x, &x, Reduction::default());
            let _ = dist.all_reduce_coalesced(&list, Reduction::default());
            let _ = dist.all_gather_coalesced(vec![(&list).into()], &list, InGroup::default());
            let _ = dist.all_reduce_multigpu(&list, Reduction::default());
            let _ = dist.reduce_scatter_multigpu(&list, vec![(&list).into()], Reduction::default());
            let _ = dist.all_gather_multigpu(vec![(&list).into()], &list, InGroup::default());
            let _ = dist.isend(&x, SendTo { tag, ..SendTo::dst(root) });
            let _ = dist.irecv(&x, RecvFrom { tag, ..RecvFrom::src(root) });
            let _ = dist.scatter_object_list(1, Some(&[]), FromRank::src(root));
            let _ = dist.send_object_list(&[], SendTo::dst(root));
            let _ = dist.new_group(Some(&[root, 0]), &NewGroup::default());
            let _ = dist.split_group(None, Some(&[vec![root]]), None, None);
            let _ = dist.init_device_mesh("cpu", &[root.unsigned_abs() as u32, 0], None);
            let _ = dist.init_device_mesh("cpu", &[], None);
            Ok(())
        });
        let _ = job.finish();
    }
}
