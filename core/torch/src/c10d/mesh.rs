//! `DeviceMesh`: ranks laid out in as many dimensions as parallelism has, with a process group for every line
//! of every dimension (`torch/distributed/device_mesh.py`). Here meshes are made; `device_mesh` is the
//! result.

use super::args::{InitProcessGroup, NewGroup};
use super::device_mesh::{DeviceMesh, MeshDim};
use super::dist::Dist;
use super::error::{DistError, assertion_error, runtime_error, value_error};
use super::mesh_grid::Grid;
use super::process_group::Group;
use super::python;
use std::collections::BTreeSet;

impl Dist<'_> {
    /// `init_device_mesh(device_type, mesh_shape, mesh_dim_names)`: ranks 0 to the product of the
    /// shape, row by row. Makes the default group if there is none.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn init_device_mesh(
        &mut self,
        device_type: &str,
        mesh_shape: &[u32],
        mesh_dim_names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        if let Some(names) = mesh_dim_names {
            let mut unique = names.to_vec();
            unique.sort_unstable();
            unique.dedup();
            if unique.len() != names.len() {
                return Err(runtime_error(python::arguments(&[
                    "Each mesh_dim_name must be unique.",
                    &format!(
                        "Found repeated mesh_dim_name in mesh_dim_names {}",
                        python::tuple(names)
                    ),
                ])));
            }
            if names.len() != mesh_shape.len() {
                return Err(runtime_error(python::arguments(&[
                    "mesh_shape and mesh_dim_names should have same length!",
                    &format!(
                        "Found len(mesh_dim_names): {} and len(mesh_shape):{}.",
                        names.len(),
                        mesh_shape.len()
                    ),
                ])));
            }
        }
        if !device_type.is_empty() && !device_type.chars().all(char::is_alphabetic) {
            return Err(runtime_error(python::arguments(&[
                &format!("Device type with index is not supported but got {device_type}. "),
                "If you maintained a 'torch.device' object, it's recommended to pass in \
                 'device.type'.",
            ])));
        }
        let grid = Grid::arange(mesh_shape);
        self.mesh_with_groups(device_type, grid, mesh_dim_names)
    }

    /// `DeviceMesh(device_type, mesh, mesh_dim_names=…)`: ranks as given, `shape` by `shape`.
    ///
    /// # Errors
    /// PyTorch's refusals; ours if `ranks` does not fill the shape.
    pub fn device_mesh(
        &mut self,
        device_type: &str,
        ranks: &[u32],
        shape: &[u32],
        mesh_dim_names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        let grid = explicit(ranks, shape)?;
        self.mesh_with_groups(device_type, grid, mesh_dim_names)
    }

    fn mesh_with_groups(
        &mut self,
        device_type: &str,
        grid: Grid,
        names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        if !self.is_initialized() {
            self.state.without_gpus = device_type == "cpu";
            self.init_process_group(InitProcessGroup::default())?;
        }
        let world_size = self.get_world_size(None)?;
        if grid.numel() > world_size as u64 {
            return Err(runtime_error(format!(
                "Mesh should not be bigger than default world size {world_size}, but found {} \
                 ranks!",
                grid.numel()
            )));
        }
        let is_world = grid.shape().len() == 1 && grid.numel() == world_size as u64;
        if !is_world {
            self.lines_of_a_rank_twice(&grid)?;
        }
        let mut mesh = self.mesh_without_groups(device_type, grid, names)?;
        let mut groups = Vec::new();
        let dims = mesh.grid.shape().len();
        let default = self.world().unwrap_or(Group::NonMember);
        if is_world {
            let both = self.shared.machine.cuda_devices > 0 && self.get_backend(None)? == "gloo";
            let group = match both {
                true => {
                    let backend = Some("cpu:gloo,cuda:nccl".to_owned());
                    let desc = Some("mesh_default".to_owned());
                    let options = NewGroup { backend, group_desc: desc, ..NewGroup::default() };
                    self.new_group_as(None, &options, false)?.unwrap_or(default)
                }
                false => default,
            };
            groups.push(group);
        } else {
            for dim in 0..dims {
                let desc = match &mesh.names {
                    Some(names) => format!("mesh_{}", names[dim]),
                    None => format!("mesh_dim_{dim}"),
                };
                groups.extend(self.line_group(&mesh, dim, &desc)?);
            }
        }
        mesh.groups = Some(groups);
        Ok(mesh)
    }

    /// Makes the groups of a rank that is in the mesh twice, before anybody asserts that it is not:
    /// its lines along the first dimension are made all the same, and one that lists it twice
    /// hangs.
    fn lines_of_a_rank_twice(&mut self, grid: &Grid) -> Result<(), DistError> {
        let rank = self.get_rank(None)?;
        let places = u32::try_from(rank).map(|rank| grid.find(rank)).unwrap_or_default();
        if places.len() < 2 {
            return Ok(());
        }
        let numbers: BTreeSet<u64> = places.iter().map(|at| grid.line_of(0, at)).collect();
        for (had, number) in numbers.into_iter().enumerate() {
            let ranks: Vec<i64> = grid.line(0, number).into_iter().map(i64::from).collect();
            self.new_group_as(Some(&ranks), &NewGroup::default(), false)?;
            if had > 0 {
                return Err(runtime_error(format!(
                    "Each device mesh dimension should get only one process group, but got {rank} \
                     in {ranks:?}!"
                )));
            }
        }
        Ok(())
    }

    /// The groups of all lines along one dimension, of which this rank is in one at most. Every
    /// rank makes all of them; only its own is more than a number.
    fn line_group(
        &mut self,
        mesh: &DeviceMesh,
        dim: usize,
        desc: &str,
    ) -> Result<Option<Group>, DistError> {
        let lines = mesh.grid.lines(dim);
        let own = mesh.coordinate.as_ref().map(|at| mesh.grid.line_of(dim, at));
        let default = self.default_group()?;
        let bound = self.pg(default).device_id.is_some();
        let options = NewGroup { group_desc: Some(desc.to_owned()), ..NewGroup::default() };
        if bound && self.shared.machine.cuda_devices > 0 {
            // split_group: one call, and a name only for the ranks that get a group.
            let Some(own) = own else { return Ok(None) };
            let ranks: Vec<i64> = mesh.grid.line(dim, own).into_iter().map(i64::from).collect();
            return self.split_group(None, Some(&[ranks]), None, Some(desc));
        }
        // Every rank makes the groups of all lines, so that one with a rank that is not there is
        // refused on all of them.
        let world_size = self.shared.world_size;
        let absent = |line: &u64| mesh.grid.line(dim, *line).into_iter().any(|r| r >= world_size);
        if let Some(line) = (0..lines).find(absent) {
            if let Some(own) = own.filter(|own| *own < line) {
                let ranks: Vec<i64> = mesh.grid.line(dim, own).into_iter().map(i64::from).collect();
                self.new_group_as(Some(&ranks), &options, false)?;
            }
            let ranks: Vec<i64> = mesh.grid.line(dim, line).into_iter().map(i64::from).collect();
            self.new_group_as(Some(&ranks), &options, false)?;
        }
        let mut made = None;
        let skipped_names = |dist: &mut Self, names: u64| {
            dist.state.world.group_count += names as u32;
        };
        match own {
            None => skipped_names(self, lines),
            Some(own) => {
                skipped_names(self, own);
                let ranks: Vec<i64> = mesh.grid.line(dim, own).into_iter().map(i64::from).collect();
                // The other lines are made by their own ranks here: only their names count.
                made = self.new_group_as(Some(&ranks), &options, false)?;
                skipped_names(self, lines - own - 1);
            }
        }
        Ok(made)
    }

    fn mesh_without_groups(
        &self,
        device_type: &str,
        grid: Grid,
        names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        let rank = self.get_rank(None)?;
        let mut places = u32::try_from(rank).map(|rank| grid.find(rank)).unwrap_or_default();
        if places.len() > 1 {
            return Err(assertion_error("").with_help(format!("Rank {rank} is in the mesh twice.")));
        }
        let coordinate = places.pop();
        // An empty tuple of names counts as none.
        let names = names.filter(|names| !names.is_empty());
        Ok(DeviceMesh {
            device_type: device_type.to_owned(),
            grid,
            names: names.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            groups: None,
            coordinate,
            is_submesh: false,
        })
    }

    /// `DeviceMesh.from_group(group, device_type)`: a mesh of one dimension.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn mesh_from_group(
        &self,
        group: Group,
        device_type: &str,
        mesh: Option<&[u32]>,
        mesh_dim_names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        let ranks: Vec<u32> =
            self.get_process_group_ranks(group)?.iter().map(|rank| rank.0).collect();
        if let Some(mesh) = mesh.filter(|mesh| *mesh != ranks) {
            return Err(value_error(format!(
                "Invalid mesh {mesh:?} for ProcessGroup with ranks {ranks:?}"
            )));
        }
        let grid = explicit(&ranks, &[ranks.len() as u32])?;
        let mesh = self.mesh_without_groups(device_type, grid, mesh_dim_names)?;
        Ok(DeviceMesh { groups: Some(vec![group]), ..mesh })
    }

    /// `DeviceMesh.from_group([…], device_type, mesh, mesh_dim_names=…)`: a mesh whose groups are
    /// there already, one for each dimension.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn mesh_from_groups(
        &self,
        groups: &[Group],
        device_type: &str,
        mesh: Option<(&[u32], &[u32])>,
        mesh_dim_names: Option<&[&str]>,
    ) -> Result<DeviceMesh, DistError> {
        if groups.is_empty() {
            return Err(value_error("Expects at least one ProcessGroup to be passed"));
        }
        let (ranks, shape) =
            mesh.ok_or_else(|| value_error("Must pass mesh if passing multiple ProcessGroups"))?;
        if mesh_dim_names.is_none() {
            return Err(value_error("Must pass mesh_dim_names if passing multiple ProcessGroups"));
        }
        let grid = explicit(ranks, shape)?;
        if shape.len() != groups.len() {
            return Err(value_error(format!(
                "Expects mesh with ndim equal to number of ProcessGroups but got mesh {} and {} \
                 ProcessGroups",
                grid.to_list(),
                groups.len()
            )));
        }
        let mesh = self.mesh_without_groups(device_type, grid, mesh_dim_names)?;
        Ok(DeviceMesh { groups: Some(groups.to_vec()), ..mesh })
    }

    /// `mesh.get_local_rank(mesh_dim)`: this rank's place along a dimension.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn mesh_local_rank<'a>(
        &self,
        mesh: &DeviceMesh,
        dim: impl Into<Option<MeshDim<'a>>>,
    ) -> Result<i64, DistError> {
        let dim = dim.into();
        if mesh.ndim() > 1 && dim.is_none() {
            return Err(runtime_error(python::arguments(&[
                &format!("Found the DeviceMesh have {} dimensions", mesh.ndim()),
                "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
            ])));
        }
        let group = mesh.get_group(dim.or(Some(MeshDim::Index(0))))?;
        self.get_rank(Some(group))
    }

    /// `mesh._flatten(name)`: the mesh's ranks in one dimension, with a group of their own. `mesh`
    /// is `root` or cut out of it.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn mesh_flatten(
        &mut self,
        root: &DeviceMesh,
        mesh: &DeviceMesh,
        name: Option<&str>,
    ) -> Result<DeviceMesh, DistError> {
        let (Some(names), Some(root_names)) = (&mesh.names, &root.names) else {
            return Err(runtime_error("Cannot flatten a DeviceMesh without mesh_dim_names!"));
        };
        let dims: Option<Vec<usize>> =
            names.iter().map(|name| root_names.iter().position(|known| known == name)).collect();
        let dims = dims.ok_or_else(|| {
            value_error("the mesh is not of this root").with_help("Pass the mesh it was cut from.")
        })?;
        let name = name.map_or_else(|| names.join("_"), str::to_owned);
        let (own, count) = root.grid.block_of(&dims, root.coordinate.as_deref());
        let mut flat = None;
        for block in 0..count {
            if Some(block) != own {
                // Blocks of other ranks only take a name of this rank's numbering; a block that
                // is the whole world takes none.
                let whole = root.grid.block_numel(&dims) == self.get_world_size(None)? as u64;
                self.state.world.group_count += u32::from(!whole);
                continue;
            }
            let ranks = root.grid.block(&dims, block);
            let grid = explicit(&ranks, &[ranks.len() as u32])?;
            let made = self.mesh_with_groups(&root.device_type, grid, Some(&[&name]))?;
            flat = Some(DeviceMesh { is_submesh: true, ..made });
        }
        flat.ok_or_else(|| {
            runtime_error("this rank is not in the mesh")
                .with_help("PyTorch fails here with an UnboundLocalError.")
        })
    }
}

fn explicit(ranks: &[u32], shape: &[u32]) -> Result<Grid, DistError> {
    Grid::explicit(ranks, shape).ok_or_else(|| {
        runtime_error(format!("shape '{shape:?}' is invalid for input of size {}", ranks.len()))
    })
}
