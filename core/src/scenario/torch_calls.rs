//! The table of [`torch_calls`](super::torch_calls()): each call's text, and the same in Rust.

use super::torch_call::{Script, TorchCall};
use crate::c10d::{
    DistError, FromRank, InGroup, NewGroup, Object, P2pKind, PyObject, RecvFrom, Reduction, SendTo,
    TensorListArg, ToRank,
};
use crate::plan::WorkQuery;

type Done = Result<(), DistError>;
const ANY: &[&str] = &["gloo", "nccl", "host"];
const NO_NCCL: &[&str] = &["gloo", "host"];
const NO_GLOO: &[&str] = &["nccl", "host"];

macro_rules! call {
    ($name:literal, $about:literal, $backends:expr, $min:literal, $program:expr, $write:expr) => {
        TorchCall {
            name: $name,
            about: $about,
            backends: $backends,
            min_world_size: $min,
            program: $program,
            write: $write,
        }
    };
}

pub(super) const CALLS: &[TorchCall] = &[
    call!(
        "broadcast",
        "The source's tensor to every rank, in place.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         dist.broadcast(tensor, src={root})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let root = i64::from(s.options.root);
            s.on("broadcast(").broadcast(&tensor, FromRank::src(root)).map(drop)
        }
    ),
    call!(
        "all_reduce",
        "The reduction of all ranks' tensors to every rank, in place.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         dist.all_reduce(tensor, op={op})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let op = s.options.op;
            s.on("all_reduce(").all_reduce(&tensor, op.into()).map(drop)
        }
    ),
    call!(
        "reduce",
        "The reduction of all ranks' tensors to one rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         dist.reduce(tensor, dst={root}, op={op})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let (root, op) = (i64::from(s.options.root), s.options.op);
            s.on("reduce(").reduce(&tensor, ToRank::dst(root), op).map(drop)
        }
    ),
    call!(
        "all_gather",
        "Every rank's tensor to a list on every rank; the backend gathers into one buffer and \
         copies out of it.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         outputs = [torch.empty_like(tensor) for _ in range(world_size)]\n\
         dist.all_gather(outputs, tensor)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let outputs = s.list("outputs", s.options.world_size, crate::plan::Fill::Zeros);
            s.on("all_gather(").all_gather(&outputs, &tensor, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_gather_into_tensor",
        "Every rank's tensor, one after the other, in one tensor on every rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         output = torch.empty(world_size * {count}, dtype={dtype}{device})\n\
         dist.all_gather_into_tensor(output, tensor)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let output = s.empty("output", s.options.count * u64::from(s.options.world_size));
            let call = s.on("all_gather_into_tensor(");
            call.all_gather_into_tensor(&output, &tensor, InGroup::default()).map(drop)
        }
    ),
    call!(
        "gather",
        "Every rank's tensor to a list on one rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         outputs = [torch.empty_like(tensor) for _ in range(world_size)] if rank == {root} else None\n\
         dist.gather(tensor, outputs, dst={root})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let root = s.options.root;
            let outputs = (s.rank() == root)
                .then(|| s.list("outputs", s.options.world_size, crate::plan::Fill::Zeros));
            let outputs = outputs.map(TensorListArg::from);
            s.on("gather(").gather(&tensor, outputs, ToRank::dst(i64::from(root))).map(drop)
        }
    ),
    call!(
        "scatter",
        "Entry i of the source's list to rank i.",
        ANY,
        1,
        "tensor = torch.empty({count}, dtype={dtype}{device})\n\
         inputs = [torch.arange({count}, dtype={dtype}{device}) for _ in range(world_size)] \
         if rank == {root} else None\n\
         dist.scatter(tensor, inputs, src={root})\n",
        |s| {
            let tensor = s.empty("tensor", s.options.count);
            let root = s.options.root;
            let inputs =
                (s.rank() == root).then(|| s.list("inputs", s.options.world_size, s.options.fill));
            let inputs = inputs.map(TensorListArg::from);
            s.on("scatter(").scatter(&tensor, inputs, FromRank::src(i64::from(root))).map(drop)
        }
    ),
    call!(
        "reduce_scatter",
        "Entry i of the reduction of all ranks' lists to rank i; gloo has no such call.",
        NO_GLOO,
        1,
        "output = torch.empty({count}, dtype={dtype}{device})\n\
         inputs = [torch.arange({count}, dtype={dtype}{device}) for _ in range(world_size)]\n\
         dist.reduce_scatter(output, inputs, op={op})\n",
        |s| {
            let output = s.empty("output", s.options.count);
            let inputs = s.list("inputs", s.options.world_size, s.options.fill);
            let op = s.options.op;
            s.on("reduce_scatter(").reduce_scatter(&output, &inputs, op.into()).map(drop)
        }
    ),
    call!(
        "reduce_scatter_tensor",
        "Part i of the reduction of all ranks' tensors to rank i; gloo makes it an all_reduce of a \
         copy.",
        ANY,
        1,
        "output = torch.empty({count}, dtype={dtype}{device})\n\
         tensor = torch.arange(world_size * {count}, dtype={dtype}{device})\n\
         dist.reduce_scatter_tensor(output, tensor, op={op})\n",
        |s| {
            let output = s.empty("output", s.options.count);
            let tensor = s.filled("tensor", s.options.count * u64::from(s.options.world_size));
            let op = s.options.op;
            let call = s.on("reduce_scatter_tensor(");
            call.reduce_scatter_tensor(&output, &tensor, op.into()).map(drop)
        }
    ),
    call!(
        "all_to_all",
        "Entry i of every rank's list to rank i; gloo has no such call.",
        NO_GLOO,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{device}) for _ in range(world_size)]\n\
         outputs = [torch.empty_like(tensor) for tensor in inputs]\n\
         dist.all_to_all(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", s.options.world_size, s.options.fill);
            let outputs = s.list("outputs", s.options.world_size, crate::plan::Fill::Zeros);
            s.on("all_to_all(").all_to_all(&outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_to_all_single",
        "Part i of every rank's tensor to rank i, in equal parts.",
        ANY,
        1,
        "tensor = torch.arange(world_size * {count}, dtype={dtype}{device})\n\
         output = torch.empty_like(tensor)\n\
         dist.all_to_all_single(output, tensor)\n",
        |s| {
            let numel = s.options.count * u64::from(s.options.world_size);
            let (tensor, output) = (s.filled("tensor", numel), s.empty("output", numel));
            let call = s.on("all_to_all_single(");
            call.all_to_all_single(&output, &tensor, None, None, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_to_all_single_uneven",
        "all_to_all_single with split sizes: rank r sends (r + d) % 3 * count elements to rank d.",
        ANY,
        1,
        "splits = [(rank + peer) % 3 * {count} for peer in range(world_size)]\n\
         tensor = torch.arange(sum(splits), dtype={dtype}{device})\n\
         output = torch.empty_like(tensor)\n\
         dist.all_to_all_single(output, tensor, splits, splits)\n",
        |s| {
            let rank = s.rank();
            let part = |peer: u32| u64::from((rank + peer) % 3) * s.options.count;
            let splits: Vec<u64> = (0..s.options.world_size).map(part).collect();
            let numel = splits.iter().sum();
            let (tensor, output) = (s.filled("tensor", numel), s.empty("output", numel));
            let (splits, options) = (Some(&splits[..]), InGroup::default());
            let call = s.on("all_to_all_single(");
            call.all_to_all_single(&output, &tensor, splits, splits, options).map(drop)
        }
    ),
    call!(
        "barrier",
        "No rank leaves before every rank has come.",
        ANY,
        1,
        "dist.barrier()\n",
        |s| s.on("barrier(").barrier(InGroup::default()).map(drop)
    ),
    call!(
        "monitored_barrier",
        "A barrier that says who is missing: every rank reports to rank 0, which answers all.",
        NO_NCCL,
        1,
        "from datetime import timedelta\n\
         dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)\n",
        |s| s.on("monitored_barrier(").monitored_barrier(None, Some(5000.into()), true).map(drop)
    ),
    call!("send", "A tensor to one rank; waits until it is received.", ANY, 2, PAIRS, pairs),
    call!("recv", "A tensor from one rank.", ANY, 2, PAIRS, pairs),
    call!(
        "isend",
        "A send that returns a work at once, so that both of a pair can send first.",
        ANY,
        2,
        EXCHANGE,
        exchange
    ),
    call!("irecv", "A receive that returns a work at once.", ANY, 2, EXCHANGE, exchange),
    call!(
        "recv_any_source",
        "A receive from whoever sends first (src left out); NCCL has no such call.",
        NO_NCCL,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         if rank == 0:\n    for _ in range(world_size - 1):\n        dist.recv(tensor)\n\
         else:\n    dist.send(tensor, dst=0)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            if s.rank() != 0 {
                return s.on("dist.send(").send(&tensor, SendTo::dst(0));
            }
            for _ in 1..s.options.world_size {
                s.on("dist.recv(").recv(&tensor, RecvFrom::default())?;
            }
            Ok(())
        }
    ),
    call!(
        "batch_isend_irecv",
        "Sends and receives made together: every rank to the next, from the previous.",
        ANY,
        2,
        "mine = torch.arange({count}, dtype={dtype}{device})\n\
         theirs = torch.empty_like(mine)\n\
         send = dist.P2POp(dist.isend, mine, (rank + 1) % world_size)\n\
         recv = dist.P2POp(dist.irecv, theirs, (rank - 1) % world_size)\n\
         works = dist.batch_isend_irecv([send, recv])\n\
         for work in works:\n    work.wait()\n",
        |s| {
            let (mine, theirs) =
                (s.filled("mine", s.options.count), s.empty("theirs", s.options.count));
            let (rank, size) = (i64::from(s.rank()), i64::from(s.options.world_size));
            let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
            let send =
                s.on("dist.isend").p2p_op(P2pKind::Isend, &mine, Some(next), None, 0, None)?;
            let recv = s.on("dist.irecv").p2p_op(
                P2pKind::Irecv,
                &theirs,
                Some(previous),
                None,
                0,
                None,
            )?;
            for work in s.on("batch_isend_irecv(").batch_isend_irecv([send, recv])? {
                s.on("work.wait(").wait(work, None)?;
            }
            Ok(())
        }
    ),
    call!(
        "async_op",
        "An asynchronous all_reduce with computation beside it, its work asked, waited for and \
         asked again.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         work = dist.all_reduce(tensor, op={op}, async_op=True)\n\
         work.is_completed()\n\
         loss = model(batch)\n\
         work.wait()\n\
         work.is_success(), work.exception(), work.get_future().done()\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let options = Reduction { async_op: true, ..s.options.op.into() };
            let Some(work) = s.on("all_reduce(").all_reduce(&tensor, options)? else {
                return Ok(());
            };
            s.on("is_completed(").query(work, WorkQuery::IsCompleted)?;
            s.on("model(").compute("model(batch)", 200_000);
            s.on("work.wait(").wait(work, None)?;
            for what in [WorkQuery::IsSuccess, WorkQuery::Exception, WorkQuery::FutureDone] {
                s.on("is_success(").query(work, what)?;
            }
            Ok(())
        }
    ),
    call!(
        "broadcast_object_list",
        "The source's objects to every rank: their pickled sizes, then the pickles.",
        ANY,
        1,
        "objects = [\"config\", {\"lr\": 0.1}] if rank == {root} else [None, None]\n\
         dist.broadcast_object_list(objects, src={root})\n",
        |s| {
            let objects = match s.rank() == s.options.root {
                true => {
                    let settings = PyObject::Dict(vec![(text("lr"), PyObject::Float(0.1))]);
                    [(&text("config")).into(), (&settings).into()]
                }
                false => [(&PyObject::None).into(), (&PyObject::None).into()],
            };
            let root = FromRank::src(i64::from(s.options.root));
            s.on("broadcast_object_list(").broadcast_object_list(&objects, root)
        }
    ),
    call!(
        "all_gather_object",
        "Every rank's object to a list on every rank: sizes first, then pickles as long as the \
         longest.",
        ANY,
        1,
        "objects = [None] * world_size\n\
         dist.all_gather_object(objects, {\"rank\": rank})\n",
        |s| {
            let (length, object) = (s.options.world_size as usize, of_rank(s));
            s.on("all_gather_object(").all_gather_object(length, &object, None)
        }
    ),
    call!(
        "gather_object",
        "Every rank's object to a list on one rank; the sizes are gathered by all.",
        ANY,
        1,
        "objects = [None] * world_size if rank == {root} else None\n\
         dist.gather_object({\"rank\": rank}, objects, dst={root})\n",
        |s| {
            let length = (s.rank() == s.options.root).then_some(s.options.world_size as usize);
            let (object, to) = (of_rank(s), ToRank::dst(i64::from(s.options.root)));
            s.on("gather_object(").gather_object(&object, length, to)
        }
    ),
    call!(
        "scatter_object_list",
        "Object i of the source's list to rank i: the largest size, the pickles, the sizes.",
        ANY,
        1,
        "objects = [{\"rank\": r} for r in range(world_size)] if rank == {root} else None\n\
         output = [None]\n\
         dist.scatter_object_list(output, objects, src={root})\n",
        |s| {
            let root = s.options.root;
            let objects: Option<Vec<Object>> = (s.rank() == root).then(|| {
                (0..s.options.world_size).map(|rank| Object::from(&rank_object(rank))).collect()
            });
            let from = FromRank::src(i64::from(root));
            s.on("scatter_object_list(").scatter_object_list(1, objects.as_deref(), from)
        }
    ),
    call!(
        "send_object_list",
        "Objects to one rank: sizes, then pickles.",
        ANY,
        2,
        OBJECTS,
        objects
    ),
    call!("recv_object_list", "Objects from one rank.", ANY, 2, OBJECTS, objects),
    call!(
        "all_reduce_coalesced",
        "Several tensors reduced as if they were one: gloo flattens them, NCCL makes the calls \
         together.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) for _ in range(3)]\n\
         dist.all_reduce_coalesced(tensors, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 3, s.options.fill);
            let op = s.options.op;
            s.on("all_reduce_coalesced(").all_reduce_coalesced(&tensors, op.into()).map(drop)
        }
    ),
    call!(
        "all_gather_coalesced",
        "Every rank's list of tensors to every rank, in one gather; NCCL has no such call.",
        NO_NCCL,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{device}) for _ in range(2)]\n\
         outputs = [[torch.empty_like(t) for t in inputs] for _ in range(world_size)]\n\
         dist.all_gather_coalesced(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", 2, s.options.fill);
            let outputs = (0..s.options.world_size)
                .map(|i| s.list(&format!("outputs[{i}]"), 2, crate::plan::Fill::Zeros).into())
                .collect();
            let call = s.on("all_gather_coalesced(");
            call.all_gather_coalesced(outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "coalescing_manager",
        "Calls held back under a coalescing manager and made as one.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) for _ in range(3)]\n\
         with dist._coalescing_manager():\n    for tensor in tensors:\n        \
         dist.all_reduce(tensor, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 3, s.options.fill);
            let op = s.options.op;
            s.on("_coalescing_manager(")
                .coalescing_manager(None, None, false, |dist| {
                    tensors
                        .iter()
                        .try_for_each(|tensor| dist.all_reduce(tensor, op.into()).map(drop))
                })
                .map(drop)
        }
    ),
    call!(
        "broadcast_multigpu",
        "PyTorch 1.x: a broadcast between ranks, then to the rank's other devices.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) for _ in range(2)]  # one a GPU\n\
         dist.broadcast_multigpu(tensors, src={root})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let root = FromRank::src(i64::from(s.options.root));
            s.on("broadcast_multigpu(").broadcast_multigpu(&tensors, root, 0).map(drop)
        }
    ),
    call!(
        "all_reduce_multigpu",
        "PyTorch 1.x: reduced over the rank's devices, between ranks, and copied back to all.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) for _ in range(2)]  # one a GPU\n\
         dist.all_reduce_multigpu(tensors, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let op = s.options.op;
            s.on("all_reduce_multigpu(").all_reduce_multigpu(&tensors, op.into()).map(drop)
        }
    ),
    call!(
        "reduce_multigpu",
        "PyTorch 1.x: reduced over the rank's devices, then between ranks to one of them.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) for _ in range(2)]  # one a GPU\n\
         dist.reduce_multigpu(tensors, dst={root}, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let (to, op) = (ToRank::dst(i64::from(s.options.root)), s.options.op);
            s.on("reduce_multigpu(").reduce_multigpu(&tensors, to, op, 0).map(drop)
        }
    ),
    call!(
        "all_gather_multigpu",
        "PyTorch 1.x: the tensors of all devices of all ranks, to every device.",
        ANY,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{device}) for _ in range(2)]  # one a GPU\n\
         outputs = [[torch.empty_like(t) for _ in range(2 * world_size)] for t in inputs]\n\
         dist.all_gather_multigpu(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", 2, s.options.fill);
            let length = 2 * s.options.world_size;
            let outputs = (0..2)
                .map(|i| s.list(&format!("outputs[{i}]"), length, crate::plan::Fill::Zeros).into())
                .collect();
            let call = s.on("all_gather_multigpu(");
            call.all_gather_multigpu(outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "reduce_scatter_multigpu",
        "PyTorch 1.x: the reduction of all devices' lists, dealt to all devices of all ranks.",
        NO_GLOO,
        1,
        "outputs = [torch.empty({count}, dtype={dtype}{device}) for _ in range(2)]  # one a GPU\n\
         inputs = [[torch.arange({count}, dtype={dtype}{device}) for _ in range(2 * world_size)] \
         for _ in outputs]\n\
         dist.reduce_scatter_multigpu(outputs, inputs, op={op})\n",
        |s| {
            let outputs = s.list("outputs", 2, crate::plan::Fill::Zeros);
            let length = 2 * s.options.world_size;
            let inputs = (0..2)
                .map(|i| s.list(&format!("inputs[{i}]"), length, s.options.fill).into())
                .collect();
            let op = s.options.op;
            let call = s.on("reduce_scatter_multigpu(");
            call.reduce_scatter_multigpu(&outputs, inputs, op.into()).map(drop)
        }
    ),
    call!(
        "new_group",
        "A group of the even ranks, made by every rank, and an all_reduce inside it.",
        ANY,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         even = dist.new_group(list(range(0, world_size, 2)), group_desc=\"even\")\n\
         dist.all_reduce(tensor, op={op}, group=even)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let ranks: Vec<i64> = (0..i64::from(s.options.world_size)).step_by(2).collect();
            let desc = NewGroup { group_desc: Some("even".into()), ..NewGroup::default() };
            let group = s.on("new_group(").new_group(Some(&ranks), &desc)?;
            let options = Reduction { group, ..s.options.op.into() };
            s.on("all_reduce(").all_reduce(&tensor, options).map(drop)
        }
    ),
    call!(
        "new_subgroups",
        "Consecutive groups of two, and an all_reduce inside each.",
        ANY,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         pair, pairs = dist.new_subgroups(group_size=2)\n\
         dist.all_reduce(tensor, op={op}, group=pair)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let (group, _) = s.on("new_subgroups(").new_subgroups(Some(2), &NewGroup::default())?;
            let options = Reduction { group, ..s.options.op.into() };
            s.on("all_reduce(").all_reduce(&tensor, options).map(drop)
        }
    ),
    call!(
        "new_subgroups_by_enumeration",
        "Groups by lists of ranks: the even ones and the odd ones.",
        ANY,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         lists = [list(range(0, world_size, 2)), list(range(1, world_size, 2))]\n\
         mine, groups = dist.new_subgroups_by_enumeration(lists)\n\
         dist.all_reduce(tensor, op={op}, group=mine)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let size = i64::from(s.options.world_size);
            let lists = [0, 1].map(|first| (first..size).step_by(2).collect::<Vec<i64>>());
            let call = s.on("new_subgroups_by_enumeration(");
            let (group, _) = call.new_subgroups_by_enumeration(&lists, &NewGroup::default())?;
            let options = Reduction { group, ..s.options.op.into() };
            s.on("all_reduce(").all_reduce(&tensor, options).map(drop)
        }
    ),
    call!(
        "split_group",
        "NCCL splits a group whose processes are bound to devices (init_process_group with \
         device_id).",
        &["nccl"],
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         half = world_size // 2\n\
         lists = [list(range(half)), list(range(half, world_size))]\n\
         mine = dist.split_group(split_ranks=lists)\n\
         dist.all_reduce(tensor, op={op}, group=mine)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let size = i64::from(s.options.world_size);
            let lists = [(0..size / 2).collect(), (size / 2..size).collect::<Vec<i64>>()];
            let group = s.on("split_group(").split_group(None, Some(&lists), None, None)?;
            let options = Reduction { group, ..s.options.op.into() };
            s.on("all_reduce(").all_reduce(&tensor, options).map(drop)
        }
    ),
    call!(
        "init_device_mesh",
        "Ranks in two dimensions: tensor parallelism inside, data parallelism across, an \
         all_reduce along each.",
        ANY,
        4,
        "from torch.distributed.device_mesh import init_device_mesh\n\
         mesh = init_device_mesh(\"cpu\", (world_size // 2, 2), mesh_dim_names=(\"dp\", \"tp\"))\n\
         activation = torch.arange({count}, dtype={dtype}{device})\n\
         grad = torch.arange({count}, dtype={dtype}{device})\n\
         dist.all_reduce(activation, op={op}, group=mesh.get_group(\"tp\"))\n\
         dist.all_reduce(grad, op={op}, group=mesh.get_group(\"dp\"))\n",
        |s| {
            let shape = [s.options.world_size / 2, 2];
            let mesh =
                s.on("= init_device_mesh(").init_device_mesh("cpu", &shape, Some(&["dp", "tp"]))?;
            if mesh.get_coordinate().is_none() {
                return Ok(()); // the odd rank out
            }
            for (name, dim) in [("activation", "tp"), ("grad", "dp")] {
                let tensor = s.filled(name, s.options.count);
                let group = Some(mesh.get_group(super::torch_call::dim(dim))?);
                let options = Reduction { group, ..s.options.op.into() };
                s.on(&format!("all_reduce({name}")).all_reduce(&tensor, options)?;
            }
            Ok(())
        }
    ),
    call!(
        "destroy_process_group",
        "The default group ends, and another begins.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device})\n\
         dist.all_reduce(tensor, op={op})\n\
         dist.destroy_process_group()\n\
         dist.init_process_group()  # again\n\
         dist.barrier()\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let op = s.options.op;
            s.on("all_reduce(").all_reduce(&tensor, op.into())?;
            s.on("destroy_process_group(").destroy_process_group(None)?;
            let backend = s.options.backend.as_str();
            s.on("# again").init_process_group(backend)?;
            s.on("barrier(").barrier(InGroup::default()).map(drop)
        }
    ),
];

const PAIRS: &str = "\
tensor = torch.arange({count}, dtype={dtype}{device})
peer = rank ^ 1
if peer < world_size:
    if rank % 2 == 0:
        dist.send(tensor, dst=peer)
    else:
        dist.recv(tensor, src=peer)
";

fn pairs(s: &mut Script<'_, '_>) -> Done {
    let tensor = s.filled("tensor", s.options.count);
    let peer = s.rank() ^ 1;
    match (peer < s.options.world_size, s.rank() % 2) {
        (false, _) => Ok(()),
        (true, 0) => s.on("dist.send(").send(&tensor, SendTo::dst(i64::from(peer))),
        (true, _) => s.on("dist.recv(").recv(&tensor, RecvFrom::src(i64::from(peer))).map(drop),
    }
}

const EXCHANGE: &str = "\
mine = torch.arange({count}, dtype={dtype}{device})
theirs = torch.empty_like(mine)
peer = rank ^ 1
if peer < world_size:
    send = dist.isend(mine, dst=peer)
    recv = dist.irecv(theirs, src=peer)
    send.wait()
    recv.wait()
";

fn exchange(s: &mut Script<'_, '_>) -> Done {
    let (mine, theirs) = (s.filled("mine", s.options.count), s.empty("theirs", s.options.count));
    let peer = s.rank() ^ 1;
    if peer >= s.options.world_size {
        return Ok(());
    }
    let peer = i64::from(peer);
    let send = s.on("dist.isend(").isend(&mine, SendTo::dst(peer))?;
    let recv = s.on("dist.irecv(").irecv(&theirs, RecvFrom::src(peer))?;
    for (line, work) in [("send.wait(", send), ("recv.wait(", recv)] {
        if let Some(work) = work {
            s.on(line).wait(work, None)?;
        }
    }
    Ok(())
}

const OBJECTS: &str = "\
peer = rank ^ 1
if peer < world_size:
    if rank % 2 == 0:
        dist.send_object_list([{\"rank\": rank}, \"done\"], dst=peer)
    else:
        objects = [None, None]
        dist.recv_object_list(objects, src=peer)
";

fn objects(s: &mut Script<'_, '_>) -> Done {
    let peer = s.rank() ^ 1;
    let objects = [of_rank(s), (&text("done")).into()];
    match (peer < s.options.world_size, s.rank() % 2) {
        (false, _) => Ok(()),
        (true, 0) => {
            s.on("send_object_list(").send_object_list(&objects, SendTo::dst(i64::from(peer)))
        }
        (true, _) => {
            let from = RecvFrom::src(i64::from(peer));
            s.on("recv_object_list(").recv_object_list(2, from).map(drop)
        }
    }
}

fn text(text: &str) -> PyObject {
    PyObject::Str(text.into())
}

fn rank_object(rank: u32) -> PyObject {
    PyObject::Dict(vec![(text("rank"), PyObject::Int(i64::from(rank)))])
}

fn of_rank(s: &Script<'_, '_>) -> Object {
    Object::from(&rank_object(s.rank()))
}
