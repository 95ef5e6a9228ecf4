//! The job, its process groups and meshes.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::given::{Truth, looked_up, not_registered, registered};
use crate::dist::arguments as take;
use crate::dist::values::{GroupValue, NamedGroup, WorldValue};
use crate::nn::parameter::models_are_on;
use crate::process::raised::refused;
use crate::process::state::process;
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use lockstep_torch::c10d::{Device, Dist, DistError, ErrorKind, Group, InitProcessGroup, NewGroup};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

/// The options that the calls which make groups share.
fn options(timeout: Value<'_>, backend: Value<'_>, local: bool, desc: Value<'_>) -> NewGroup {
    NewGroup {
        timeout_ms: take::timeout(timeout),
        backend: backend.unpack_str().map(str::to_owned),
        use_local_synchronization: local,
        group_desc: desc.unpack_str().map(str::to_owned),
    }
}

fn group_or_none<'v>(dist: &Dist<'_>, group: Option<Group>, heap: Heap<'v>) -> Value<'v> {
    let named = group.map(|group| GroupValue(NamedGroup::of(dist, group)));
    named.map_or(Value::new_none(), |group| heap.alloc(group))
}

/// The ranks of a new group: whatever can be gone through.
fn of_each<'v>(ranks: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Vec<i64>> {
    if matches!(ranks.get_type(), "set" | "dict") {
        let each = ranks.iterate(heap).map_err(starlark::Error::into_anyhow)?;
        return each.map(|rank| numbers::whole(rank, "a rank")).collect();
    }
    if ranks.unpack_str().is_some_and(|text| !text.is_empty()) {
        let text = "'<' not supported between instances of 'str' and 'int'";
        return Err(type_error(text.to_owned()));
    }
    if matches!(ranks.get_type(), "int" | "float" | "bool") {
        let text = format!("'{}' object is not iterable", class_of(ranks));
        return Err(type_error(text));
    }
    take::wholes(ranks, "ranks", heap)
}

/// The rank's own group, and all of them.
fn pair<'v>(dist: &Dist<'_>, (own, all): (Option<Group>, Vec<Group>), heap: Heap<'v>) -> Value<'v> {
    let all = all.into_iter().map(|group| group_or_none(dist, Some(group), heap));
    let all = heap.alloc(AllocList(all));
    heap.alloc((group_or_none(dist, own, heap), all))
}

/// The group whose ranks are asked for.
fn of_ranks(group: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<Group> {
    let world = process(eval)?.dist()?.world();
    match (registered(group)?, group.is_none(), world) {
        (Some(group), _, _) | (None, false, Some(group)) => Ok(group),
        _ => Err(refused(not_registered("None".to_owned()))),
    }
}

/// The remark where a program names mpi.
const WITH_MPI: &str = "PyTorch is taken for one that was built with MPI: its own packages are not, and \
    raise here (Distributed package doesn't have MPI built in)";

pub(super) fn functions(builder: &mut GlobalsBuilder) {
    backends(builder);
    membership(builder);
    queries(builder);
    subgroups(builder);
}

/// The backends of this PyTorch.
#[starlark_module]
fn backends(builder: &mut GlobalsBuilder) {
    fn is_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    fn is_nccl_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    fn is_gloo_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    /// As in PyTorch's packages: a program that asks has an alternative.
    fn is_mpi_available() -> anyhow::Result<bool> {
        Ok(false)
    }

    fn is_ucc_available() -> anyhow::Result<bool> {
        Ok(false)
    }

    fn is_xccl_available() -> anyhow::Result<bool> {
        Ok(false)
    }

    fn is_backend_available(
        backend: &str,
        eval: &mut Evaluator<'_, '_, '_>,
    ) -> anyhow::Result<bool> {
        let there = process(eval)?.dist()?.is_backend_available(backend);
        Ok(there && !backend.eq_ignore_ascii_case("mpi"))
    }

    /// True if `TORCHELASTIC_RUN_ID` is set, which the program may do itself.
    fn is_torchelastic_launched(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<bool> {
        Ok(matches!(process(eval)?.environ.get("TORCHELASTIC_RUN_ID"), Some(Some(_))))
    }

    fn get_default_backend_for_device<'v>(
        device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<&'static str> {
        let device = take::device(device)?.unwrap_or(Device::Cpu);
        Ok(process(eval)?.dist()?.get_default_backend_for_device(device))
    }

    fn get_pg_count(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<u32> {
        Ok(process(eval)?.dist()?.get_pg_count())
    }

    fn get_backend_config<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<String> {
        let group = take::group(group)?;
        process(eval)?.dist()?.get_backend_config(group).map_err(refused)
    }
}

/// The beginning and end of a process's part in the job.
#[starlark_module]
fn membership(builder: &mut GlobalsBuilder) {
    fn init_process_group<'v>(
        #[starlark(default = NoneType)] backend: Value<'v>,
        #[starlark(default = NoneType)] init_method: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = -1)] world_size: i32,
        #[starlark(default = -1)] rank: i32,
        #[starlark(default = NoneType)] store: Value<'v>,
        #[starlark(default = NoneType)] group_name: Value<'v>,
        #[starlark(default = NoneType)] pg_options: Value<'v>,
        #[starlark(default = NoneType)] device_id: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = (group_name, pg_options);
        if device_id.get_type() == "int" {
            let text = "'int' object has no attribute 'index'";
            let refusal = DistError::new(ErrorKind::AttributeError, text)
                .with_help("Pass torch.device(\"cuda\", local_rank).");
            return Err(refused(refusal));
        }
        let text = |value: Value<'v>| value.unpack_str().map(str::to_owned);
        let again = process(eval)?.dist()?.is_initialized();
        if !backend.is_none() && backend.unpack_str().is_none() && !again {
            return Err(crate::dist::backend_class::no_text());
        }
        let options = InitProcessGroup {
            backend: text(backend),
            init_method: text(init_method),
            timeout_ms: take::timeout(timeout),
            world_size: i64::from(world_size),
            rank: i64::from(rank),
            store: !store.is_none(),
            device_id: take::device(device_id)?.map(|_| 0),
        };
        let process = process(eval)?;
        if options.backend.as_deref().is_some_and(|name| name.to_lowercase().contains("mpi")) {
            process.assumes(WITH_MPI);
        }
        let dist = process.dist()?;
        dist.init_process_group(options).map_err(refused)?;
        let on_gpu = dist.get_backend_config(None).is_ok_and(|config| config.contains("nccl"));
        models_are_on(if on_gpu { Device::Cuda } else { Device::Cpu });
        super::super::stores::given(store, init_method, eval)?;
        Ok(NoneType)
    }

    fn destroy_process_group<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let group = looked_up(group, |_| {
            DistError::new(ErrorKind::ValueError, "Invalid process group specified")
        })?;
        process(eval)?.dist()?.destroy_process_group(group).map_err(refused)?;
        Ok(NoneType)
    }

    fn is_initialized<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<bool> {
        Ok(process(eval)?.is_rank() && process(eval)?.dist()?.is_initialized())
    }
}

/// Ranks and sizes of groups.
#[starlark_module]
fn queries(builder: &mut GlobalsBuilder) {
    fn get_rank<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let group = registered(group)?;
        process(eval)?.dist()?.get_rank(group).map_err(refused)
    }

    fn get_world_size<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let group = take::group(group).map_err(|_| {
            let text = format!("'{}' object has no attribute 'size'", class_of(group));
            refused(DistError::new(ErrorKind::AttributeError, text))
        })?;
        process(eval)?.dist()?.get_world_size(group).map_err(refused)
    }

    fn get_backend<'v>(
        #[starlark(default = NoneType)] group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<String> {
        let group = take::group(group)?;
        process(eval)?.dist()?.get_backend(group).map_err(refused)
    }

    fn get_node_local_rank<'v>(
        #[starlark(default = NoneType)] fallback_rank: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let fallback = numbers::whole_or_none(fallback_rank, "fallback_rank")?;
        process(eval)?.dist()?.get_node_local_rank(fallback).map_err(refused)
    }

    fn get_group_rank<'v>(
        group: Value<'v>,
        global_rank: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let group = of_ranks(group, eval)?;
        process(eval)?.dist()?.get_group_rank(group, i64::from(global_rank)).map_err(refused)
    }

    fn get_global_rank<'v>(
        group: Value<'v>,
        group_rank: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let group = of_ranks(group, eval)?;
        process(eval)?.dist()?.get_global_rank(group, i64::from(group_rank)).map_err(refused)
    }

    fn get_process_group_ranks<'v>(
        group: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let dist = process(eval)?.dist()?;
        if group.is_none() {
            let error = DistError::new(ErrorKind::KeyError, "None");
            return Err(refused(error.with_help(
                "PyTorch 2.7 looks the group up by itself: dist.group.WORLD is the default one.",
            )));
        }
        let key = group.unpack_str().map_or_else(|| group.to_str(), |text| format!("'{text}'"));
        let no_key = |_| DistError::new(ErrorKind::KeyError, key.clone());
        let group = match looked_up(group, no_key)? {
            Some(group) => group,
            None => dist.world().ok_or_else(|| type_error("there is no default group yet"))?,
        };
        let ranks = dist.get_process_group_ranks(group).map_err(refused)?;
        Ok(heap.alloc(AllocList(ranks.into_iter().map(|rank| rank.0))))
    }
}

/// New groups.
#[starlark_module]
fn subgroups(builder: &mut GlobalsBuilder) {
    fn new_group<'v>(
        #[starlark(default = NoneType)] ranks: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = NoneType)] backend: Value<'v>,
        #[starlark(default = NoneType)] pg_options: Value<'v>,
        #[starlark(default = Truth(false))] use_local_synchronization: Truth,
        #[starlark(default = NoneType)] group_desc: Value<'v>,
        #[starlark(default = NoneType)] device_id: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let _ = device_id;
        let _ = pg_options;
        let options = options(timeout, backend, use_local_synchronization.0, group_desc);
        let ranks = match ranks {
            none if none.is_none() => None,
            ranks => Some(of_each(ranks, heap)?),
        };
        let dist = process(eval)?.dist()?;
        let group = dist.new_group(ranks.as_deref(), &options).map_err(refused)?;
        Ok(group_or_none(dist, group, heap))
    }

    fn new_subgroups<'v>(
        #[starlark(default = NoneType)] group_size: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = NoneType)] backend: Value<'v>,
        #[starlark(default = NoneType)] pg_options: Value<'v>,
        #[starlark(default = Truth(false))] use_local_synchronization: Truth,
        #[starlark(default = NoneType)] group_desc: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let _ = pg_options;
        let options = options(timeout, backend, use_local_synchronization.0, group_desc);
        let _ = group;
        let size = numbers::whole_or_none(group_size, "group_size")?;
        let dist = process(eval)?.dist()?;
        let made = dist.new_subgroups(size, &options).map_err(refused)?;
        Ok(pair(dist, made, heap))
    }

    fn new_subgroups_by_enumeration<'v>(
        ranks_per_subgroup_list: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = NoneType)] backend: Value<'v>,
        #[starlark(default = NoneType)] pg_options: Value<'v>,
        #[starlark(default = Truth(false))] use_local_synchronization: Truth,
        #[starlark(default = NoneType)] group_desc: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let _ = pg_options;
        let options = options(timeout, backend, use_local_synchronization.0, group_desc);
        if ranks_per_subgroup_list.is_none() {
            let text = "The arg 'ranks_per_subgroup_list' cannot be empty";
            return Err(refused(DistError::new(ErrorKind::ValueError, text)));
        }
        let lists =
            take::lists_of_wholes(ranks_per_subgroup_list, "ranks_per_subgroup_list", heap)?;
        let dist = process(eval)?.dist()?;
        let made = dist.new_subgroups_by_enumeration(&lists, &options).map_err(refused)?;
        Ok(pair(dist, made, heap))
    }

    fn split_group<'v>(
        #[starlark(default = NoneType)] parent_pg: Value<'v>,
        #[starlark(default = NoneType)] split_ranks: Value<'v>,
        #[starlark(default = NoneType)] timeout: Value<'v>,
        #[starlark(default = NoneType)] pg_options: Value<'v>,
        #[starlark(default = NoneType)] group_desc: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let _ = pg_options;
        let lists = match split_ranks {
            none if none.is_none() => None,
            lists => Some(take::lists_of_wholes(lists, "split_ranks", heap)?),
        };
        let (parent, timeout) = (take::group(parent_pg)?, take::timeout(timeout));
        let desc = group_desc.unpack_str();
        let dist = process(eval)?.dist()?;
        let group = dist.split_group(parent, lists.as_deref(), timeout, desc).map_err(refused)?;
        Ok(group_or_none(dist, group, heap))
    }
}

/// The additional functions of `torch.distributed.distributed_c10d`.
#[starlark_module]
pub(super) fn of_c10d(builder: &mut GlobalsBuilder) {
    fn _get_default_group(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<WorldValue> {
        process(eval)?.dist()?.get_rank(None).map_err(refused)?;
        Ok(WorldValue)
    }
}
