//! A device mesh as one rank has it: where it is, its groups, and what is cut out of it.

use super::error::{DistError, ErrorKind, runtime_error};
use super::groups::Group;
use super::mesh_grid::Grid;
use super::python;

/// A mesh of ranks as one rank sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMesh {
    pub(super) device_type: String,
    pub(super) grid: Grid,
    pub(super) names: Option<Vec<String>>,
    /// Per dimension, this rank's group; absent if the groups were never made.
    pub(super) groups: Option<Vec<Group>>,
    /// Where this rank is; `None` if it is not in the mesh.
    pub(super) coordinate: Option<Vec<u32>>,
    /// Whether it was cut out of another mesh.
    pub(super) is_submesh: bool,
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
                python::repr(&format!(
                    "Invalid mesh_dim_names {} specified. Valid mesh_dim_names are {}.",
                    python::tuple(names),
                    python::list(&valid)
                )),
            ));
        };
        if dims.windows(2).any(|pair| pair[1] <= pair[0]) {
            let up_to = dims.windows(2).position(|pair| pair[1] <= pair[0]).unwrap_or(0) + 2;
            let found: Vec<String> = dims[..up_to].iter().map(|dim| format!("({dim},)")).collect();
            return Err(DistError::new(
                ErrorKind::KeyError,
                python::arguments(&[
                    &format!("Invalid mesh_dim_names {} specified. ", python::tuple(names)),
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
                return Err(runtime_error(python::arguments(&[
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
            let text = python::repr("No `mesh_dim_names` found.");
            return Err(DistError::new(ErrorKind::KeyError, text));
        };
        names.iter().position(|known| known == name).ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            DistError::new(
                ErrorKind::KeyError,
                python::arguments(&[
                    &format!("Mesh dimension '{name}' does not exist."),
                    &format!(
                        "Available mesh dimensions are: mesh_dim_names={}",
                        python::tuple(&known)
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
            write!(f, ", mesh_dim_names={}", python::tuple(&names))?;
        }
        f.write_str(")")
    }
}
