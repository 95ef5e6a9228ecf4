//! `DeviceMesh.mesh`: the ranks of a mesh as a tensor.

use crate::dist::mesh::MeshValue;
use crate::tensor::indexing::of_data;
use crate::tensor::made::On;
use lockstep_torch::c10d::Device;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::{Heap, Value, ValueLike};

/// The ranks as lists in each other.
fn nested<'v>(ranks: &[u32], shape: &[u32], heap: Heap<'v>) -> Value<'v> {
    let [_, inner @ ..] = shape else {
        return heap.alloc(ranks.first().copied().unwrap_or(0));
    };
    let size = inner.iter().map(|size| *size as usize).product::<usize>().max(1);
    let rows: Vec<Value<'v>> = ranks.chunks(size).map(|row| nested(row, inner, heap)).collect();
    heap.alloc(AllocList(rows))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `mesh.mesh`; for a value that is not a mesh, its attribute.
    fn _mesh_of<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let Some(own) = of.downcast_ref::<MeshValue>() else {
            return of.get_attr_error("mesh", heap);
        };
        let (ranks, shape) = own.ranks();
        let data = nested(&ranks, &shape, heap);
        let dtype = heap.alloc("int32");
        let made = of_data(eval, data, dtype, On::Device(Device::Cpu, None));
        Ok(heap.alloc(made.map_err(starlark::Error::new_native)?))
    }
}

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
