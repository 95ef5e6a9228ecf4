//! Process groups, device meshes, and their end.

use super::backends::ANY;
use super::entry::Entry;
use lockstep_torch::c10d::{InGroup, NewGroup, Reduction};

pub(super) const CALLS: [Entry; 6] = [
    call!(
        "new_group",
        "A group of the even ranks, made by every rank, and an all_reduce inside it.",
        ANY,
        2,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
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
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
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
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
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
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
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
         mesh = init_device_mesh(\"{device_type}\", (world_size // 2, 2), mesh_dim_names=(\"dp\", \"tp\"))\n\
         activation = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         grad = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         dist.all_reduce(activation, op={op}, group=mesh.get_group(\"tp\"))\n\
         dist.all_reduce(grad, op={op}, group=mesh.get_group(\"dp\"))\n",
        |s| {
            let shape = [s.options.world_size / 2, 2];
            let device_type = s.device().name();
            let mesh = s.on("= init_device_mesh(").init_device_mesh(
                device_type,
                &shape,
                Some(&["dp", "tp"]),
            )?;
            if mesh.get_coordinate().is_none() {
                return Ok(()); // the odd rank out
            }
            for (name, dim) in [("activation", "tp"), ("grad", "dp")] {
                let tensor = s.filled(name, s.options.count);
                let group = Some(mesh.get_group(crate::torch_call::dim(dim))?);
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
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         dist.all_reduce(tensor, op={op})\n\
         dist.destroy_process_group()\n\
         dist.init_process_group(\"{backend}\")  # again\n\
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
