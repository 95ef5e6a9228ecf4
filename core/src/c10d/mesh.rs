//! `DeviceMesh`: ranks laid out in as many dimensions as parallelism has, with a process group for
//! every line of every dimension (`torch/distributed/device_mesh.py`).

use super::args::{InitProcessGroup, NewGroup};
use super::dist::Dist;
use super::error::{DistError, ErrorKind, assertion_error, runtime_error, value_error};
use super::groups::Group;
use super::mesh_grid::Grid;

/// A mesh of ranks as one rank sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMesh {
    device_type: String,
    grid: Grid,
    names: Option<Vec<String>>,
    /// Per dimension, this rank's group; absent if the groups were never made.
    groups: Option<Vec<Group>>,
    /// Where this rank is; `None` if it is not in the mesh.
    coordinate: Option<Vec<u32>>,
    /// Whether it was cut out of another mesh.
    is_submesh: bool,
}

/// A dimension of a mesh, by index or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshDim<'a> {
    /// By index.
    Index(usize),
    /// By name.
    Name(&'a str),
}

impl From<usize> for MeshDim<'_> {
    fn from(index: usize) -> Self {
        MeshDim::Index(index)
    }
}

impl<'a> From<&'a str> for MeshDim<'a> {
    fn from(name: &'a str) -> Self {
        MeshDim::Name(name)
    }
}

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
                return Err(runtime_error(python_arguments(&[
                    "Each mesh_dim_name must be unique.",
                    &format!(
                        "Found repeated mesh_dim_name in mesh_dim_names {}",
                        python_tuple(names)
                    ),
                ])));
            }
            if names.len() != mesh_shape.len() {
                return Err(runtime_error(python_arguments(&[
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
            return Err(runtime_error(python_arguments(&[
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
        let mut mesh = self.mesh_without_groups(device_type, grid, names)?;
        let mut groups = Vec::new();
        let dims = mesh.grid.shape().len();
        let default = self.world().unwrap_or(Group::NonMember);
        if dims == 1 && mesh.grid.numel() == world_size as u64 {
            let both = self.shared.machine.cuda_devices > 0 && self.get_backend(None)? == "gloo";
            let group = match both {
                true => {
                    let backend = Some("cpu:gloo,cuda:nccl".to_owned());
                    let desc = Some("mesh_default".to_owned());
                    let options = NewGroup { backend, group_desc: desc, ..NewGroup::default() };
                    self.new_group(None, &options)?.unwrap_or(default)
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
        let mut made = None;
        let skipped_names = |dist: &mut Self, names: u64| {
            dist.state.world.group_count += names as u32;
        };
        match own {
            None => skipped_names(self, lines),
            Some(own) => {
                skipped_names(self, own);
                let ranks: Vec<i64> = mesh.grid.line(dim, own).into_iter().map(i64::from).collect();
                made = self.new_group(Some(&ranks), &options)?;
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
            return Err(runtime_error(python_arguments(&[
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
            flat = Some(self.mesh_with_groups(&root.device_type, grid, Some(&[&name]))?);
        }
        flat.ok_or_else(|| {
            runtime_error("this rank is not in the mesh")
                .with_help("PyTorch fails here with an UnboundLocalError.")
        })
    }
}

impl DeviceMesh {
    /// `mesh.device_type`.
    pub fn device_type(&self) -> &str {
        &self.device_type
    }

    /// `mesh.mesh_dim_names`.
    pub fn mesh_dim_names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// `mesh.ndim`.
    pub fn ndim(&self) -> usize {
        self.grid.shape().len()
    }

    /// `mesh.shape`.
    pub fn shape(&self) -> &[u32] {
        self.grid.shape()
    }

    /// `mesh.size()`: how many ranks it has.
    pub fn size(&self) -> u64 {
        self.grid.numel()
    }

    /// The ranks, row by row: `mesh.mesh.flatten().tolist()`.
    pub fn ranks(&self) -> Vec<u32> {
        self.grid.ranks()
    }

    /// `mesh.get_coordinate()`: where this rank is; `None` if it is not in the mesh.
    pub fn get_coordinate(&self) -> Option<&[u32]> {
        self.coordinate.as_deref()
    }

    /// `mesh[names]`: the mesh of the lines through this rank along those dimensions, which must
    /// come in the order of the mesh. Of a name that a sub-mesh of several has, `mesh["dp", "tp"]`.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn submesh(&self, names: &[&str]) -> Result<DeviceMesh, DistError> {
        let Some(own) = &self.names else {
            return Err(runtime_error("Cannot slice a DeviceMesh without mesh_dim_names!"));
        };
        if own.iter().map(String::as_str).eq(names.iter().copied()) {
            return Ok(self.clone());
        }
        if self.is_submesh {
            return Err(runtime_error("Cannot create a submesh from a submesh."));
        }
        let dims: Option<Vec<usize>> =
            names.iter().map(|name| own.iter().position(|known| known == name)).collect();
        let Some(dims) = dims else {
            let valid: Vec<&str> = own.iter().map(String::as_str).collect();
            return Err(DistError::new(
                ErrorKind::KeyError,
                python_repr(&format!(
                    "Invalid mesh_dim_names {} specified. Valid mesh_dim_names are {}.",
                    python_tuple(names),
                    python_list(&valid)
                )),
            ));
        };
        if dims.windows(2).any(|pair| pair[1] <= pair[0]) {
            let up_to = dims.windows(2).position(|pair| pair[1] <= pair[0]).unwrap_or(0) + 2;
            let found: Vec<String> = dims[..up_to].iter().map(|dim| format!("({dim},)")).collect();
            return Err(DistError::new(
                ErrorKind::KeyError,
                python_arguments(&[
                    &format!("Invalid mesh_dim_names {} specified. ", python_tuple(names)),
                    &format!("Found mesh dim indices to slice: [{}]. ", found.join(", ")),
                    "Mesh dim indices should be in ascending order.",
                ]),
            ));
        }
        let Some(at) = &self.coordinate else {
            return Err(runtime_error("this rank is not in the mesh")
                .with_help("PyTorch fails here with an UnboundLocalError."));
        };
        let groups = self
            .groups
            .as_ref()
            .map(|groups| dims.iter().filter_map(|dim| groups.get(*dim)).copied().collect());
        Ok(DeviceMesh {
            device_type: self.device_type.clone(),
            grid: self.grid.cut(&dims, at),
            names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            groups,
            coordinate: Some(dims.iter().filter_map(|dim| at.get(*dim)).copied().collect()),
            is_submesh: true,
        })
    }

    /// `mesh.get_group(mesh_dim)`: this rank's group along a dimension; may be left out for a mesh
    /// of one dimension.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn get_group<'a>(&self, dim: impl Into<Option<MeshDim<'a>>>) -> Result<Group, DistError> {
        let Some(groups) = &self.groups else {
            return Err(runtime_error("DeviceMesh process groups not initialized!"));
        };
        let index = match dim.into() {
            None if self.ndim() > 1 => {
                return Err(runtime_error(python_arguments(&[
                    &format!("Found the DeviceMesh have {} dimensions", self.ndim()),
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                    "If you want to get the list of all the ProcessGroups in the DeviceMesh,please \
                     use `get_all_groups()` instead.",
                ])));
            }
            None => 0,
            Some(MeshDim::Index(index)) => index,
            Some(MeshDim::Name(name)) => self.dim_by_name(name)?,
        };
        groups.get(index).copied().ok_or_else(|| {
            DistError::new(ErrorKind::IndexError, "list index out of range").with_help(format!(
                "The mesh has {} dimensions, and this rank is {}in it.",
                self.ndim(),
                if self.coordinate.is_some() { "" } else { "not " }
            ))
        })
    }

    /// `mesh.get_all_groups()`: by dimension.
    ///
    /// # Errors
    /// Those of [`DeviceMesh::get_group`].
    pub fn get_all_groups(&self) -> Result<Vec<Group>, DistError> {
        (0..self.ndim()).map(|dim| self.get_group(Some(MeshDim::Index(dim)))).collect()
    }

    fn dim_by_name(&self, name: &str) -> Result<usize, DistError> {
        let Some(names) = &self.names else {
            let text = python_repr("No `mesh_dim_names` found.");
            return Err(DistError::new(ErrorKind::KeyError, text));
        };
        names.iter().position(|known| known == name).ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            DistError::new(
                ErrorKind::KeyError,
                python_arguments(&[
                    &format!("Mesh dimension '{name}' does not exist."),
                    &format!(
                        "Available mesh dimensions are: mesh_dim_names={}",
                        python_tuple(&known)
                    ),
                ]),
            )
        })
    }
}

impl std::fmt::Display for DeviceMesh {
    /// As Python prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceMesh('{}', {}", self.device_type, self.grid.to_list())?;
        if let Some(names) = &self.names {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            write!(f, ", mesh_dim_names={}", python_tuple(&names))?;
        }
        f.write_str(")")
    }
}

fn explicit(ranks: &[u32], shape: &[u32]) -> Result<Grid, DistError> {
    Grid::explicit(ranks, shape).ok_or_else(|| {
        runtime_error(format!("shape '{shape:?}' is invalid for input of size {}", ranks.len()))
    })
}

/// `str()` of an exception that was raised with several arguments: their tuple.
fn python_arguments(arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|text| python_repr(text)).collect();
    format!("({})", arguments.join(", "))
}

/// `repr()` of a string without control characters.
fn python_repr(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    match text.contains('\'') && !text.contains('"') {
        true => format!("\"{text}\""),
        false => format!("'{}'", text.replace('\'', "\\'")),
    }
}

fn python_list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| python_repr(name)).collect();
    format!("[{}]", names.join(", "))
}

fn python_tuple(names: &[&str]) -> String {
    let shown: Vec<_> = names.iter().map(|name| python_repr(name)).collect();
    match names.len() {
        1 => format!("({},)", shown[0]),
        _ => format!("({})", shown.join(", ")),
    }
}
