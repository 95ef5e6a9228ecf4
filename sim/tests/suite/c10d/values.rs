//! Contents of tensors after simulated calls, for random groups and sizes, against the promises of
//! torch.distributed.

use lockstep_core::dtype::Dtype::Int64;
use lockstep_core::plan::{Fill, Plan, TensorId};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, TensorValue, Trace, What};
use lockstep_scenarios::{TorchCallOptions, torch_calls};
use lockstep_sim::{SimConfig, simulate};
use lockstep_torch::c10d::{
    Device, Dist, DistError, FromRank, Group, InGroup, Job, Machine, NewGroup, Object, P2pKind,
    RecvFrom, Reduction, SendTo, Tensor, TensorListArg, ToRank,
};
use proptest::prelude::*;

/// Simulates a script; every rank must finish.
fn run(
    backend: &str,
    world_size: u32,
    mut script: impl FnMut(&mut Dist<'_>) -> Result<(), DistError>,
) -> (Plan, Trace) {
    let mut job = Job::new("values", world_size).unwrap();
    job.machine(Machine { cuda_devices: u32::from(backend == "nccl"), mpi: false });
    job.run(|dist| {
        dist.init_process_group(backend)?;
        script(dist)
    });
    for rank in 0..world_size {
        let raised = job.raised(lockstep_core::rank::GlobalRank(rank));
        assert_eq!(raised, None, "rank {rank}");
    }
    let plan = job.finish().unwrap();
    let trace = simulate(&plan, &SimConfig::default()).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Completed);
    (plan, trace)
}

fn bytes(trace: &Trace, rank: u32, id: TensorId) -> Vec<u8> {
    let found = trace.events.iter().find_map(|event| match &event.what {
        What::Result { tensor, value: TensorValue::Bytes(bytes) }
            if *tensor == id && event.rank.0 == rank =>
        {
            Some(bytes.clone())
        }
        _ => None,
    });
    found.unwrap()
}

fn longs(trace: &Trace, rank: u32, tensor: &Tensor) -> Vec<i64> {
    let bytes = bytes(trace, rank, tensor.storage());
    bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
}

fn device(dist: &Dist<'_>) -> Device {
    let config = dist.get_backend_config(None).unwrap();
    if config.contains("nccl") { Device::Cuda } else { Device::Cpu }
}

/// `rank * numel + i` in element i.
fn iota(dist: &mut Dist<'_>, name: &str, numel: u64) -> Tensor {
    let device = device(dist);
    dist.tensor_on(device, name, Int64, numel, Fill::Iota)
}

fn zeros(dist: &mut Dist<'_>, name: &str, numel: u64) -> Tensor {
    let device = device(dist);
    dist.tensor_on(device, name, Int64, numel, Fill::Zeros)
}

fn list(dist: &mut Dist<'_>, name: &str, numels: &[u64], fill: Fill) -> Vec<Tensor> {
    let device = device(dist);
    let made = numels.iter().enumerate();
    made.map(|(i, n)| dist.tensor_on(device, &format!("{name}[{i}]"), Int64, *n, fill)).collect()
}

fn rank(dist: &Dist<'_>) -> u32 {
    dist.process().0
}

fn iota_of(rank: u32, numel: u64) -> Vec<i64> {
    (0..numel).map(|i| (u64::from(rank) * numel + i) as i64).collect()
}

const BACKENDS: [&str; 3] = ["gloo", "nccl", "host"];

/// Every call of the lab, on every backend it names, ends.
#[test]
fn every_call_of_the_table_completes() {
    for call in torch_calls() {
        for backend in call.backends {
            for world_size in [call.min_world_size.max(2), 5, 8] {
                let backend = (*backend).to_owned();
                let options = TorchCallOptions { world_size, backend, ..call.options() };
                let plan = match call.plan(&options) {
                    Ok(plan) => plan,
                    // Subgroups of two do not divide five ranks.
                    Err(error) if world_size == 5 && call.name == "new_subgroups" => {
                        assert!(error.to_string().contains("divisible"), "{error}");
                        continue;
                    }
                    Err(error) => panic!("{} on {}: {error}", call.name, options.backend),
                };
                let trace = simulate(&plan, &SimConfig::default()).unwrap();
                let outcome = &trace.end.as_ref().unwrap().outcome;
                assert_eq!(outcome, &Outcome::Completed, "{} {}", call.name, options.backend);
            }
        }
    }
}

/// A rank whose parts happen to be equal meets one whose parts are not.
#[test]
fn lists_that_are_even_on_one_rank_only() {
    let parts: [[u64; 2]; 2] = [[2, 2], [0, 0]];
    let (_, trace) = run("nccl", 2, |dist| {
        let me = rank(dist) as usize;
        let inputs = list(dist, "inputs", &parts[me], Fill::Iota);
        let receives = [parts[0][me], parts[1][me]];
        let outputs = list(dist, "outputs", &receives, Fill::Zeros);
        dist.all_to_all(&outputs, &inputs, InGroup::default()).map(drop)
    });
    assert_eq!(trace.end.unwrap().outcome, Outcome::Completed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Into separate tensors, into views of one, and from a view.
    #[test]
    fn all_gather_fills_every_entry(world in 1..6u32, count in 1..5u64, backend in 0..3usize) {
        let mut made = Vec::new();
        let (_, trace) = run(BACKENDS[backend], world, |dist| {
            let wide = iota(dist, "wide", count + 2);
            let outputs = list(dist, "outputs", &vec![count; world as usize], Fill::Zeros);
            let all = zeros(dist, "all", count * u64::from(world));
            let views = all.chunk(u64::from(world));
            dist.all_gather(&outputs, wide.narrow(1, count), InGroup::default())?;
            dist.all_gather(&views, wide.narrow(1, count), InGroup::default())?;
            made.push((outputs, all));
            Ok(())
        });
        for (me, (outputs, all)) in (0..).zip(&made) {
            let mut flat = Vec::new();
            for (from, output) in (0..world).zip(outputs) {
                let expected = &iota_of(from, count + 2)[1..=count as usize];
                prop_assert_eq!(&longs(&trace, me, output)[..], expected);
                flat.extend_from_slice(expected);
            }
            prop_assert_eq!(longs(&trace, me, all), flat);
        }
    }

    /// NCCL makes one broadcast a rank of it.
    #[test]
    fn uneven_all_gather_on_nccl(numels in prop::collection::vec(1..5u64, 2..6)) {
        let world = numels.len() as u32;
        let mut made = Vec::new();
        let (plan, trace) = run("nccl", world, |dist| {
            let mine = iota(dist, "mine", numels[rank(dist) as usize]);
            let outputs = list(dist, "outputs", &numels, Fill::Zeros);
            dist.all_gather(&outputs, &mine, InGroup::default())?;
            made.push(outputs);
            Ok(())
        });
        if numels.iter().any(|numel| *numel != numels[0]) {
            let calls = plan.programs[0].ops.iter().flat_map(|op| op.action.calls()).count();
            prop_assert_eq!(calls, world as usize);
        }
        for (me, outputs) in (0..).zip(&made) {
            for (from, output) in (0..world).zip(outputs) {
                let expected = iota_of(from, numels[from as usize]);
                prop_assert_eq!(longs(&trace, me, output), expected);
            }
        }
    }

    /// Lists whose entries have a size a rank; NCCL makes one reduce a rank of uneven ones.
    #[test]
    fn reduce_scatter_sums_each_entry_for_its_rank(
        numels in prop::collection::vec(1..4u64, 1..6), even: bool
    ) {
        let world = numels.len() as u32;
        let numels = if even { vec![numels[0]; numels.len()] } else { numels };
        let mut made = Vec::new();
        let (_, trace) = run("nccl", world, |dist| {
            let inputs = list(dist, "inputs", &numels, Fill::Iota);
            let output = zeros(dist, "output", numels[rank(dist) as usize]);
            dist.reduce_scatter(&output, &inputs, Reduction::default())?;
            made.push(output);
            Ok(())
        });
        for (me, output) in (0..).zip(&made) {
            let numel = numels[me as usize];
            let sum = (0..world).map(|from| iota_of(from, numel)).fold(
                vec![0; numel as usize],
                |sum, own| sum.iter().zip(own).map(|(a, b)| a + b).collect(),
            );
            prop_assert_eq!(longs(&trace, me, output), sum);
        }
    }

    /// gloo's way, by an all_reduce of a copy, leaves the same sums and the input as it was.
    #[test]
    fn reduce_scatter_tensor_leaves_its_input_alone(
        world in 1..6u32, count in 1..5u64, backend in 0..3usize
    ) {
        let mut made = Vec::new();
        let numel = count * u64::from(world);
        let (_, trace) = run(BACKENDS[backend], world, |dist| {
            let (input, output) = (iota(dist, "input", numel), zeros(dist, "output", count));
            dist.reduce_scatter_tensor(&output, &input, Reduction::default())?;
            made.push((input, output));
            Ok(())
        });
        for (me, (input, output)) in (0..).zip(&made) {
            prop_assert_eq!(longs(&trace, me, input), iota_of(me, numel));
            let part = (u64::from(me) * count) as usize..((u64::from(me) + 1) * count) as usize;
            let sum: Vec<i64> = part
                .map(|i| (0..world).map(|from| iota_of(from, numel)[i]).sum())
                .collect();
            prop_assert_eq!(longs(&trace, me, output), sum);
        }
    }

    /// Any matrix of parts, by lists and by split sizes.
    #[test]
    fn all_to_all_moves_every_part(
        world in 1..5u32, seed in prop::collection::vec(0..4u64, 16), single: bool, nccl: bool
    ) {
        let part = |from: u32, to: u32| seed[((from * 4 + to) % 16) as usize];
        // gloo wants what a rank sends itself to be what it expects, which it is.
        let backend = if nccl || !single { "nccl" } else { "gloo" };
        let mut made = Vec::new();
        let (_, trace) = run(backend, world, |dist| {
            let me = rank(dist);
            let sends: Vec<u64> = (0..world).map(|to| part(me, to)).collect();
            let receives: Vec<u64> = (0..world).map(|from| part(from, me)).collect();
            let input = iota(dist, "input", sends.iter().sum());
            let output = zeros(dist, "output", receives.iter().sum());
            if single {
                let (to, from) = (Some(&receives[..]), Some(&sends[..]));
                dist.all_to_all_single(&output, &input, to, from, InGroup::default())?;
            } else {
                let cut = |tensor: &Tensor, numels: &[u64]| {
                    let mut start = 0;
                    let parts = numels.iter().map(|numel| {
                        start += numel;
                        tensor.narrow(start - numel, *numel)
                    });
                    parts.collect::<Vec<Tensor>>()
                };
                let (outputs, inputs) = (cut(&output, &receives), cut(&input, &sends));
                dist.all_to_all(&outputs, &inputs, InGroup::default())?;
            }
            made.push(output);
            Ok(())
        });
        for (me, output) in (0..).zip(&made) {
            let mut expected: Vec<i64> = Vec::new();
            for from in 0..world {
                let total = (0..world).map(|to| part(from, to)).sum();
                let start: u64 = (0..me).map(|to| part(from, to)).sum();
                let own = iota_of(from, total);
                expected.extend(&own[start as usize..(start + part(from, me)) as usize]);
            }
            prop_assert_eq!(longs(&trace, me, output), expected);
        }
    }

    /// Coalesced, under a manager, and one by one: the same sums in every tensor.
    #[test]
    fn coalesced_calls_do_what_single_ones_do(
        world in 1..6u32, numels in prop::collection::vec(1..5u64, 1..4), backend in 0..3usize
    ) {
        let mut made = Vec::new();
        let (_, trace) = run(BACKENDS[backend], world, |dist| {
            let lists = ["a", "b", "c"].map(|name| list(dist, name, &numels, Fill::Iota));
            let work = dist.all_reduce_coalesced(
                &lists[0],
                Reduction { async_op: true, ..Reduction::default() },
            )?;
            dist.coalescing_manager(None, None, false, |dist| {
                let each = lists[1].iter();
                each.map(|one| dist.all_reduce(one, Reduction::default())).try_for_each(|r| r.map(drop))
            })?;
            for one in &lists[2] {
                dist.all_reduce(one, Reduction::default())?;
            }
            if let Some(work) = work {
                dist.wait(work, None)?;
            }
            made.push(lists);
            Ok(())
        });
        for (me, lists) in (0..).zip(&made) {
            for (index, numel) in numels.iter().enumerate() {
                let sums = lists.each_ref().map(|list| longs(&trace, me, &list[index]));
                let expected: Vec<i64> = (0..*numel as usize)
                    .map(|i| (0..world).map(|from| iota_of(from, *numel)[i]).sum())
                    .collect();
                for sum in sums {
                    prop_assert_eq!(&sum, &expected);
                }
            }
        }
    }

    /// The pickles arrive whole, in rank order, each followed by zeros up to the longest; the sizes
    /// before them.
    #[test]
    fn objects_arrive_with_their_sizes(
        pickles in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..6),
        root in any::<prop::sample::Index>(),
        gloo: bool,
    ) {
        let world = pickles.len() as u32;
        let root = root.index(pickles.len()) as u32;
        let backend = if gloo { "gloo" } else { "nccl" };
        let objects: Vec<Object> = pickles.iter().cloned().map(Object::from_pickle).collect();
        let (plan, trace) = run(backend, world, |dist| {
            let own = &objects[rank(dist) as usize];
            dist.all_gather_object(world as usize, own, None)?;
            let length = (rank(dist) == root).then_some(world as usize);
            dist.gather_object(own, length, ToRank::dst(i64::from(root)))?;
            dist.broadcast_object_list(&objects, FromRank::src(i64::from(root)))?;
            let list = (rank(dist) == root).then_some(&objects[..]);
            dist.scatter_object_list(1, list, FromRank::src(i64::from(root)))?;
            Ok(())
        });
        let named = |me: u32, name: &str| {
            let program = plan.program(lockstep_core::rank::GlobalRank(me)).unwrap();
            let found: Vec<TensorId> = program
                .tensors()
                .into_iter()
                .filter(|id| plan.tensor(*id).unwrap().name == name)
                .collect();
            found.into_iter().map(|id| bytes(&trace, me, id)).collect::<Vec<_>>()
        };
        let longest = pickles.iter().map(Vec::len).max().unwrap();
        let padded = |pickle: &Vec<u8>| {
            let mut padded = pickle.clone();
            padded.resize(longest, 0);
            padded
        };
        let all: Vec<u8> = pickles.iter().flat_map(padded).collect();
        let sizes: Vec<u8> =
            pickles.iter().flat_map(|pickle| (pickle.len() as u64).to_le_bytes()).collect();
        for me in 0..world {
            prop_assert_eq!(&named(me, "all_gather_object.output"), std::slice::from_ref(&all));
            prop_assert!(named(me, "all_gather_object.object_sizes").contains(&sizes));
            if me == root {
                prop_assert_eq!(&named(me, "gather_object.output"), std::slice::from_ref(&all));
            }
            prop_assert!(named(me, "broadcast_object_list.objects").contains(&pickles.concat()));
            let mine = &pickles[me as usize];
            prop_assert_eq!(&named(me, "scatter_object_list.output"), &[padded(mine)]);
            let size = (mine.len() as u64).to_le_bytes().to_vec();
            prop_assert_eq!(&named(me, "scatter_object_list.obj_tensor_size"), &[size]);
        }
    }

    /// Around the ring, by a batch and by single calls with tags.
    #[test]
    fn point_to_point_around_the_ring(world in 2..6u32, count in 1..4u64, backend in 0..3usize) {
        let mut made = Vec::new();
        let (_, trace) = run(BACKENDS[backend], world, |dist| {
            let (mine, batch) = (iota(dist, "mine", count), zeros(dist, "batch", count));
            let single = zeros(dist, "single", count);
            let (me, size) = (i64::from(rank(dist)), i64::from(world));
            let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
            let ops = [
                dist.p2p_op(P2pKind::Isend, &mine, Some(next), None, 0, None)?,
                dist.p2p_op(P2pKind::Irecv, &batch, Some(previous), None, 0, None)?,
            ];
            for work in dist.batch_isend_irecv(ops)? {
                dist.wait(work, None)?;
            }
            // NCCL makes a communicator for each pair at its first single call: if every rank
            // began with its next, nobody's would ever be made.
            let receives_first = BACKENDS[backend] == "nccl" && me % 2 == 1;
            if receives_first {
                dist.recv(&single, RecvFrom { tag: 7, ..RecvFrom::src(previous) })?;
            }
            let work = dist.isend(&mine, SendTo { tag: 7, ..SendTo::dst(next) })?;
            if !receives_first {
                dist.recv(&single, RecvFrom { tag: 7, ..RecvFrom::src(previous) })?;
            }
            dist.wait(work.unwrap(), None)?;
            made.push((previous as u32, batch, single));
            Ok(())
        });
        for (me, (previous, batch, single)) in (0..).zip(&made) {
            prop_assert_eq!(longs(&trace, me, batch), iota_of(*previous, count));
            prop_assert_eq!(longs(&trace, me, single), iota_of(*previous, count));
        }
    }

    /// The `*_multigpu` forms reduce over all devices of all ranks.
    #[test]
    fn multigpu_forms_reach_every_device(world in 1..5u32, devices in 1..4u64, count in 1..4u64) {
        let mut made = Vec::new();
        let numels = vec![count; devices as usize];
        let (_, trace) = run("nccl", world, |dist| {
            let sums = list(dist, "sums", &numels, Fill::Iota);
            let copies = list(dist, "copies", &numels, Fill::Iota);
            let outputs: Vec<Vec<Tensor>> = (0..devices)
                .map(|i| {
                    let length = (devices * u64::from(world)) as usize;
                    list(dist, &format!("out{i}"), &vec![count; length], Fill::Zeros)
                })
                .collect();
            dist.all_reduce_multigpu(&sums, Reduction::default())?;
            dist.broadcast_multigpu(&copies, FromRank::src(i64::from(world) - 1), 0)?;
            let lists = outputs.iter().map(TensorListArg::from).collect();
            dist.all_gather_multigpu(lists, &copies, InGroup::default())?;
            made.push((sums, copies, outputs));
            Ok(())
        });
        let each: i64 = (0..world).map(|from| iota_of(from, count)[0]).sum::<i64>() * devices as i64;
        for (me, (sums, copies, outputs)) in (0..).zip(&made) {
            for sum in sums {
                prop_assert_eq!(longs(&trace, me, sum)[0], each);
            }
            let source = iota_of(world - 1, count);
            for tensor in copies.iter().chain(outputs.iter().flatten()) {
                prop_assert_eq!(&longs(&trace, me, tensor), &source);
            }
        }
    }

    /// A mesh of any shape: a sum along a dimension is over the ranks that differ only there.
    #[test]
    fn mesh_groups_reduce_along_their_dimension(
        shape in prop::collection::vec(1..4u32, 1..4), dim in any::<prop::sample::Index>()
    ) {
        let world: u32 = shape.iter().product();
        let dim = dim.index(shape.len());
        let mut made = Vec::new();
        let (_, trace) = run("gloo", world, |dist| {
            let mesh = dist.init_device_mesh("cpu", &shape, None)?;
            let x = dist.tensor("x", Int64, 1, Fill::Rank);
            let group: Group = mesh.get_group(Some(dim.into()))?;
            dist.all_reduce(&x, Reduction { group: Some(group), ..ReduceOp::Sum.into() })?;
            made.push((x, mesh));
            Ok(())
        });
        for (me, (x, mesh)) in (0..).zip(&made) {
            let at = mesh.get_coordinate().unwrap();
            let row = |at: &[u32]| {
                at.iter().zip(&shape).fold(0, |index, (i, size)| index * size + i)
            };
            prop_assert_eq!(row(at), me);
            let line = (0..shape[dim]).map(|i| {
                let mut other = at.to_vec();
                other[dim] = i;
                i64::from(row(&other))
            });
            prop_assert_eq!(longs(&trace, me, x), vec![line.sum::<i64>()]);
        }
    }

    /// Groups of any ranks in any order: group ranks are by rank, and only members take part.
    #[test]
    fn a_new_group_is_its_members_in_order(
        world in 2..8u32, mask in 1..256u32, reversed: bool
    ) {
        let members: Vec<i64> =
            (0..i64::from(world)).filter(|rank| mask >> rank & 1 == 1).collect();
        prop_assume!(!members.is_empty());
        let mut given = members.clone();
        if reversed {
            given.reverse();
        }
        let mut made = Vec::new();
        let (_, trace) = run("gloo", world, |dist| {
            let group = dist.new_group(Some(&given), &NewGroup::default())?.unwrap();
            let x = dist.tensor("x", Int64, 1, Fill::Rank);
            dist.all_reduce(&x, Reduction { group: Some(group), ..Reduction::default() })?;
            let place = members.iter().position(|rank| *rank == i64::from(dist.process().0));
            let expected = place.map_or(-1, |place| place as i64);
            assert_eq!(dist.get_rank(Some(group))?, expected);
            made.push((place.is_some(), x));
            Ok(())
        });
        for (me, (member, x)) in (0..).zip(&made) {
            if *member {
                prop_assert_eq!(longs(&trace, me, x), vec![members.iter().sum::<i64>()]);
            }
        }
    }
}
