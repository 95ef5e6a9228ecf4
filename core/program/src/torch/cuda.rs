//! `torch.cuda` but for its streams.

use crate::dist::arguments as take;
use crate::dist::values::DeviceValue;
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::torch::callable;
use lockstep_torch::c10d::Device;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn synchronize<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        synchronized(eval)
    }

    fn set_device<'v>(
        device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        chosen(device, eval)
    }

    fn manual_seed<'v>(seed: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = seed;
        Ok(NoneType)
    }

    fn manual_seed_all<'v>(seed: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = seed;
        Ok(NoneType)
    }

    fn is_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    fn current_device(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        Ok(i64::from(process(eval)?.cuda_device()))
    }

    fn device_count(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        counted(eval)
    }

    fn get_device_name<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<UnknownValue> {
        let _ = device;
        Ok(process(eval)?.unknown(Unknown::Text))
    }

    fn empty_cache() -> anyhow::Result<NoneType> {
        Ok(NoneType)
    }

    fn ipc_collect() -> anyhow::Result<NoneType> {
        Ok(NoneType)
    }
}

/// The questions about memory, by the names of `torch.cuda`: bytes that only a run knows, or nothing.
const MEMORY: [&str; 7] = [
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_accumulated_memory_stats",
];

fn memory<'v>(
    name: &'static str,
    _args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if name.starts_with("reset") {
        return Ok(Value::new_none());
    }
    let heap = eval.heap();
    let process = process(eval).map_err(starlark::Error::new_native)?;
    Ok(heap.alloc(process.unknown(Unknown::Outside(Number::Whole))))
}

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    callable::add(builder, &MEMORY, memory);
}

/// The GPUs of this process's machine: one a rank of it.
fn counted(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
    let process = process(eval)?;
    if let Some(gpus) = process.gpus {
        return Ok(i64::from(gpus));
    }
    let local = process.dist()?.environ("LOCAL_WORLD_SIZE");
    Ok(local.and_then(|local| local.parse().ok()).unwrap_or(1))
}

/// Waits for all that is on the device.
fn synchronized(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
    process(eval)?.dist()?.synchronize();
    Ok(NoneType)
}

/// Makes a GPU the process's own, where it is known which.
fn chosen<'v>(device: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
    let named = take::device_index(device);
    let process = process(eval)?;
    process.cuda_device = named.or(process.cuda_device);
    Ok(NoneType)
}

/// `torch.accelerator`, of 2.6: the GPUs by another name.
#[starlark_module]
pub(crate) fn accelerator(builder: &mut GlobalsBuilder) {
    fn is_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    fn current_accelerator(
        #[starlark(default = false)] check_available: bool,
    ) -> anyhow::Result<DeviceValue> {
        let _ = check_available;
        Ok(DeviceValue((Device::Cuda, None)))
    }

    fn device_count(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        counted(eval)
    }

    fn current_device_index(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        Ok(i64::from(process(eval)?.cuda_device()))
    }

    fn set_device_index<'v>(
        device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        chosen(device, eval)
    }

    fn synchronize<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        synchronized(eval)
    }
}
