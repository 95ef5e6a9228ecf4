//! `DeviceMesh`: made, sliced and flattened by a program.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::values::{GroupValue, NamedGroup, TensorValue};
use crate::process::raised::refused;
use crate::process::state::process;
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use lockstep_torch::c10d::{DeviceMesh, DistError, ErrorKind, Flattened, MeshDim, Tensor};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::list::AllocList;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::tuple::AllocTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lists in lists that a mesh is written as.
const MAX_DIMS: usize = 16;
/// Ranks that are read from a tensor; more than any job has.
const MAX_RANKS: u64 = 1 << 20;
/// Names that one mesh's flattened dimensions have.
const MAX_FLATTENED: usize = 1000;

/// A `DeviceMesh`, and the mesh that it was cut out of.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct MeshValue {
    #[allocative(skip)]
    mesh: DeviceMesh,
    #[allocative(skip)]
    root: Arc<Root>,
}
starlark_simple_value!(MeshValue);

/// A mesh that was made, not cut out of another, and the flattened dimensions that `_flatten` has made.
#[derive(Debug)]
struct Root {
    mesh: DeviceMesh,
    flattened: Mutex<Vec<Flattened>>,
}

impl Root {
    fn flattened(&self) -> MutexGuard<'_, Vec<Flattened>> {
        self.flattened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeshValue {
    fn made(mesh: DeviceMesh) -> MeshValue {
        let root = Arc::new(Root { mesh: mesh.clone(), flattened: Mutex::default() });
        MeshValue { mesh, root }
    }

    /// The part of it along some dimensions.
    fn cut(&self, names: &[&str]) -> Result<MeshValue, DistError> {
        let flattened = match self.mesh == self.root.mesh {
            true => self.root.flattened().clone(),
            false => Vec::new(),
        };
        let mesh = self.mesh.submesh_with(names, &flattened)?;
        Ok(MeshValue { mesh, root: self.root.clone() })
    }

    /// Its ranks, row by row, and its shape.
    pub(crate) fn ranks(&self) -> (Vec<u32>, Vec<u32>) {
        (self.mesh.ranks(), self.mesh.shape().to_vec())
    }

    /// The rank's group along a dimension, which may be a flattened one of the root.
    fn group(&self, dim: Option<MeshDim<'_>>) -> Result<lockstep_torch::c10d::Group, DistError> {
        if let Some(MeshDim::Name(name)) = dim {
            let flattened = self.root.flattened();
            if let Some(flat) = flattened.iter().find(|flat| flat.name() == name) {
                return flat.mesh().get_group(None);
            }
        }
        self.mesh.get_group(dim)
    }
}

impl fmt::Display for MeshValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mesh.fmt(f)
    }
}

methods_static!(MESH_METHODS = mesh_methods);

methods_static!(CLASS_METHODS = class_methods);

#[starlark_value(type = "DeviceMesh")]
impl<'v> StarlarkValue<'v> for MeshValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(MESH_METHODS.methods())
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        gone_through(index).map_err(starlark::Error::new_native)?;
        let names = take::strings(index).map_err(starlark::Error::new_native)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let cut = self.cut(&names).map_err(|e| starlark::Error::new_native(refused(e)))?;
        Ok(heap.alloc(cut))
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<MeshValue>().is_some_and(|other| self.mesh.is_like(&other.mesh)))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "ndim" => Some(heap.alloc(self.mesh.ndim() as u64)),
            "shape" => Some(heap.alloc(AllocTuple(self.mesh.shape().iter().copied()))),
            "device_type" => Some(heap.alloc(self.mesh.device_type())),
            "mesh_dim_names" => match self.mesh.mesh_dim_names() {
                Some(names) => Some(heap.alloc(AllocTuple(names.iter().map(String::as_str)))),
                None => Some(Value::new_none()),
            },
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "ndim" | "shape" | "device_type" | "mesh_dim_names")
    }
}

/// The class: `DeviceMesh(…)`, `DeviceMesh.from_group(…)`.
#[derive(Clone, Copy, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct MeshClass;
starlark_simple_value!(MeshClass);

impl fmt::Display for MeshClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<class 'torch.distributed.device_mesh.DeviceMesh'>")
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for MeshClass {
    fn get_methods() -> Option<&'static Methods> {
        Some(CLASS_METHODS.methods())
    }

    /// `DeviceMesh(device_type, mesh, *, mesh_dim_names=None)`.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let mut positions = args.positions(heap)?;
        let (mut device_type, mut mesh) = (positions.next(), positions.next());
        let mut names = Value::new_none();
        let native = |error| starlark::Error::new_native(error);
        if positions.next().is_some() {
            let why = "DeviceMesh.__init__() takes 3 positional arguments but more were given";
            return Err(native(type_error(why)));
        }
        for (name, value) in args.names_map()? {
            match name.as_str() {
                "device_type" => device_type = Some(value),
                "mesh" => mesh = Some(value),
                "mesh_dim_names" => names = value,
                "_init_backend" => {}
                other => {
                    let why = "DeviceMesh.__init__() got an unexpected keyword argument";
                    return Err(native(type_error(format!("{why} '{other}'"))));
                }
            }
        }
        let (Some(device_type), Some(mesh)) = (device_type, mesh) else {
            let why = "DeviceMesh.__init__() missing a required argument: it takes device_type and \
                       mesh";
            return Err(native(type_error(why)));
        };
        let mut made = || -> anyhow::Result<MeshValue> {
            let device = device_type_of(device_type)?;
            let (ranks, shape) = laid_out(mesh, heap, eval)?;
            let names = names_of(names)?;
            let names: Option<Vec<&str>> =
                names.as_ref().map(|names| names.iter().map(String::as_str).collect());
            let dist = process(eval)?.dist()?;
            let mesh = dist.device_mesh(device, &ranks, &shape, names.as_deref());
            mesh.map(MeshValue::made).map_err(refused)
        };
        Ok(heap.alloc(made().map_err(native)?))
    }
}

/// A number is no list.
fn gone_through(value: Value<'_>) -> anyhow::Result<()> {
    match class_of(value) {
        class @ ("int" | "float" | "NoneType") => {
            Err(type_error(format!("'{class}' object is not iterable")))
        }
        _ => Ok(()),
    }
}

fn device_type_of<'v>(value: Value<'v>) -> anyhow::Result<&'v str> {
    value.unpack_str().ok_or_else(|| type_error("device_type is no str"))
}

fn names_of(value: Value<'_>) -> anyhow::Result<Option<Vec<String>>> {
    if value.is_none() { Ok(None) } else { take::strings(value).map(Some) }
}

/// Lists of lists of ranks, row by row, and their shape; `torch.tensor`'s words where they are not
/// of one length.
fn laid_out<'v>(
    mesh: Value<'v>,
    heap: Heap<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    if let Some(tensor) = mesh.downcast_ref::<TensorValue>() {
        return of_tensor(&tensor.0, eval);
    }
    let mut rows: Vec<Value<'v>> = vec![mesh];
    let mut shape = Vec::new();
    loop {
        let first = rows.first().and_then(|row| take::items(*row));
        if first.is_none() || shape.len() >= MAX_DIMS {
            break;
        }
        let length = first.map_or(0, |first| first.len());
        let mut next = Vec::with_capacity(rows.len().saturating_mul(length).min(1 << 16));
        for row in &rows {
            let entries = take::items(*row).filter(|entries| entries.len() == length);
            let Some(entries) = entries else {
                let got = take::items(*row).map_or(0, |entries| entries.len());
                let text = format!(
                    "expected sequence of length {length} at dim {} (got {got})",
                    shape.len()
                );
                return Err(refused(DistError::new(ErrorKind::ValueError, text)));
            };
            next.extend(entries);
        }
        shape.push(u32::try_from(length).unwrap_or(u32::MAX));
        rows = next;
        if rows.is_empty() {
            break;
        }
    }
    // `DeviceMesh("cuda", range(4))`.
    if shape.is_empty() {
        rows = take::wholes(mesh, "mesh", heap)?.into_iter().map(|rank| heap.alloc(rank)).collect();
        shape.push(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    }
    let ranks = rows.into_iter().map(|rank| {
        let rank = numbers::whole(rank, "a rank of mesh")?;
        u32::try_from(rank).map_err(|_| {
            let text =
                "The new group's rank should be within the world_size set by init_process_group";
            let help = format!("{rank} in a mesh is no rank.");
            refused(DistError::new(ErrorKind::ValueError, text).with_help(help))
        })
    });
    Ok((ranks.collect::<anyhow::Result<_>>()?, shape))
}

/// The ranks of `torch.arange(8).reshape(2, 4)`. The values of other tensors are not known here.
fn of_tensor(
    tensor: &Tensor,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    anyhow::ensure!(tensor.numel() <= MAX_RANKS, "a mesh has at most {MAX_RANKS} ranks");
    let Some(ranks) = crate::tensor::known_elements::held(process(eval)?, tensor)? else {
        anyhow::bail!(
            "a mesh's ranks cannot be read from this tensor, whose values are not known while the \
             program is recorded: write them as lists ([[0, 1], [2, 3]]), or as \
             torch.arange(4).reshape(2, 2)"
        );
    };
    let shape = tensor.shape().iter().map(|size| *size as u32).collect();
    Ok((ranks.into_iter().map(|rank| rank as u32).collect(), shape))
}

/// The mesh that a method is called on.
fn mesh<'v>(this: Value<'v>) -> anyhow::Result<&'v MeshValue> {
    let value = this.downcast_ref::<MeshValue>();
    value.ok_or_else(|| anyhow::anyhow!("{} is no mesh", class_of(this)))
}

fn dim_of(mesh_dim: NoneOr<Value<'_>>) -> anyhow::Result<Option<take::OwnedDim>> {
    mesh_dim.into_option().map(take::mesh_dim).transpose()
}

#[starlark_module]
fn mesh_methods(builder: &mut MethodsBuilder) {
    fn size(
        this: Value<'_>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<i32>,
    ) -> anyhow::Result<u64> {
        let mesh = &mesh(this)?.mesh;
        let Some(dim) = mesh_dim.into_option() else { return Ok(mesh.size()) };
        let dims = mesh.ndim() as i32;
        let at = if dim < 0 { dim + dims } else { dim };
        let size = usize::try_from(at).ok().and_then(|at| mesh.shape().get(at));
        size.map(|size| u64::from(*size)).ok_or_else(|| {
            let text = format!(
                "Dimension out of range (expected to be in range of [-{dims}, {}], but got {dim})",
                dims - 1
            );
            refused(DistError::new(ErrorKind::IndexError, text))
        })
    }

    fn get_group<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<GroupValue> {
        let dim = dim_of(mesh_dim)?;
        let dim = dim.as_ref().map(take::OwnedDim::borrow);
        let group = mesh(this)?.group(dim).map_err(refused)?;
        Ok(GroupValue(NamedGroup::of(process(eval)?.dist()?, group)))
    }

    fn get_all_groups<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let groups = mesh(this)?.mesh.get_all_groups().map_err(refused)?;
        let dist = process(eval)?.dist()?;
        let groups: Vec<GroupValue> =
            groups.into_iter().map(|group| GroupValue(NamedGroup::of(dist, group))).collect();
        Ok(heap.alloc(AllocList(groups)))
    }

    fn get_local_rank<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let dim = dim_of(mesh_dim)?;
        let dim = dim.as_ref().map(take::OwnedDim::borrow);
        let own = mesh(this)?;
        let dist = process(eval)?.dist()?;
        // With several dimensions one has to be named; the refusal is the mesh's.
        match dim {
            Some(_) => own.group(dim).and_then(|group| dist.get_rank(Some(group))),
            None => dist.mesh_local_rank(&own.mesh, None),
        }
        .map_err(refused)
    }

    fn get_coordinate<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(match mesh(this)?.mesh.get_coordinate() {
            Some(at) => heap.alloc(AllocList(at.iter().copied())),
            None => Value::new_none(),
        })
    }

    fn get_rank(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        let _ = mesh(this)?;
        process(eval)?.dist()?.get_rank(None).map_err(refused)
    }

    /// The ranks of several dimensions in one, with a group of their own.
    fn _flatten<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] mesh_dim_name: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<MeshValue> {
        let own = mesh(this)?;
        let name = mesh_dim_name.unpack_str().filter(|name| !name.is_empty());
        let root = &own.root;
        let known = {
            let default = own.mesh.mesh_dim_names().map(|names| names.join("_"));
            let name = name.map(str::to_owned).or(default).unwrap_or_default();
            let flattened = root.flattened();
            anyhow::ensure!(flattened.len() < MAX_FLATTENED, "too many dimensions are flattened");
            flattened.iter().find(|flat| flat.name() == name).map(|flat| flat.mesh().clone())
        };
        if let Some(mesh) = known {
            return Ok(MeshValue { mesh, root: root.clone() });
        }
        let flat = process(eval)?.dist()?.mesh_flatten(&root.mesh, &own.mesh, name);
        let flat = flat.map_err(refused)?;
        root.flattened().extend(Flattened::new(&root.mesh, &own.mesh, flat.clone()));
        Ok(MeshValue { mesh: flat, root: root.clone() })
    }
}

#[starlark_module]
fn class_methods(builder: &mut MethodsBuilder) {
    /// A mesh of groups that are there already.
    fn from_group<'v>(
        this: Value<'v>,
        group: Value<'v>,
        device_type: Value<'v>,
        #[starlark(default = NoneType)] mesh: Value<'v>,
        #[starlark(require = named, default = NoneType)] mesh_dim_names: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<MeshValue> {
        let _ = this;
        let heap = eval.heap();
        let device = device_type_of(device_type)?;
        let laid_out = match mesh.is_none() {
            true => None,
            false => Some(laid_out(mesh, heap, eval)?),
        };
        let names = names_of(mesh_dim_names)?;
        let names: Option<Vec<&str>> =
            names.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let dist = process(eval)?.dist()?;
        let world = || dist.world().ok_or_else(|| type_error("there is no default group"));
        let made = match take::items(group) {
            Some(groups) => {
                let groups: Vec<_> = groups
                    .into_iter()
                    .map(|group| take::group(group)?.map_or_else(world, Ok))
                    .collect::<anyhow::Result<_>>()?;
                let mesh = laid_out.as_ref().map(|(ranks, shape)| (&ranks[..], &shape[..]));
                dist.mesh_from_groups(&groups, device, mesh, names.as_deref())
            }
            None => {
                let group = take::group(group)?.map_or_else(world, Ok)?;
                let mesh = laid_out.as_ref().map(|(ranks, _)| &ranks[..]);
                dist.mesh_from_group(group, device, mesh, names.as_deref())
            }
        };
        made.map(MeshValue::made).map_err(refused)
    }
}

/// Adds the classes and functions that programs import by name.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.set("DeviceMesh", MeshClass);
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn init_device_mesh<'v>(
        device_type: Value<'v>,
        mesh_shape: Value<'v>,
        #[starlark(require = named, default = NoneType)] mesh_dim_names: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<MeshValue> {
        let heap = eval.heap();
        let device = device_type_of(device_type)?;
        gone_through(mesh_shape)?;
        let shape = take::counts(mesh_shape, "mesh_shape", heap)?.unwrap_or_default();
        let shape: Vec<u32> =
            shape.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect();
        let names = names_of(mesh_dim_names)?;
        let names: Option<Vec<&str>> =
            names.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let dist = process(eval)?.dist()?;
        let mesh = dist.init_device_mesh(device, &shape, names.as_deref());
        mesh.map(MeshValue::made).map_err(refused)
    }
}
