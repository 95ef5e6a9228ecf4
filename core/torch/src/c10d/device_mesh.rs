//! A device mesh as one rank has it: the rank's position, its groups, and the meshes that are cut out of it.

use super::error::{DistError, ErrorKind, runtime_error};
use super::mesh_grid::Grid;
use super::process_group::Group;
use super::python;

/// A mesh of ranks as one rank sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMesh {
    pub(super) device_type: String,
    pub(super) grid: Grid,
    pub(super) names: Option<Vec<String>>,
    /// Per dimension, this rank's group; absent if the groups were never made.
    pub(super) groups: Option<Vec<Group>>,
    /// The place of this rank; `None` if it is not in the mesh.
    pub(super) coordinate: Option<Vec<u32>>,
    /// True if the mesh is a slice of another mesh.
    pub(super) is_submesh: bool,
}

/// The result of `_flatten` on several dimensions of a mesh: one more of its names.
#[derive(Clone, Debug, PartialEq)]
pub struct Flattened {
    name: String,
    /// Its dimensions in the mesh, ascending.
    dims: Vec<usize>,
    mesh: DeviceMesh,
}

impl Flattened {
    /// `flat`, made of `cut`, which is `root` or cut out of it; `None` if it is not.
    pub fn new(root: &DeviceMesh, cut: &DeviceMesh, flat: DeviceMesh) -> Option<Flattened> {
        let (all, own) = (root.names.as_ref()?, cut.names.as_ref()?);
        let place = |name: &String| all.iter().position(|known| known == name);
        let dims = own.iter().map(place).collect::<Option<Vec<usize>>>()?;
        let name = flat.names.as_ref()?.first()?.clone();
        Some(Flattened { name, dims, mesh: flat })
    }

    /// The name that it has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mesh of one dimension.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.mesh
    }
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

    /// `mesh == other`: the same ranks at the same places, under the same names.
    pub fn is_like(&self, other: &DeviceMesh) -> bool {
        (&self.device_type, &self.grid, &self.names)
            == (&other.device_type, &other.grid, &other.names)
    }

    /// `mesh.get_coordinate()`: where this rank is; `None` if it is not in the mesh.
    pub fn get_coordinate(&self) -> Option<&[u32]> {
        self.coordinate.as_deref()
    }

    /// `mesh[names]`: the mesh of the lines through this rank along those dimensions, which must
    /// come in the order of the mesh. Of a name that a sub-mesh of several has, `mesh["dp", "tp"]`.
    /// Dimensions that have been flattened can be asked for by their names too.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn submesh_with(
        &self,
        names: &[&str],
        flattened: &[Flattened],
    ) -> Result<DeviceMesh, DistError> {
        let Some(own) = &self.names else {
            return Err(runtime_error("Cannot slice a DeviceMesh without mesh_dim_names!"));
        };
        if own.iter().map(String::as_str).eq(names.iter().copied()) {
            return Ok(self.clone());
        }
        if self.is_submesh {
            return Err(runtime_error("Cannot create a submesh from a submesh."));
        }
        let sliced = |name: &&str| -> Option<Sliced<'_>> {
            match flattened.iter().find(|flat| flat.name == **name) {
                Some(flat) => Some(Sliced::Flat(flat)),
                None => own.iter().position(|known| known == name).map(Sliced::Own),
            }
        };
        let Some(parts) = names.iter().map(sliced).collect::<Option<Vec<_>>>() else {
            let valid = own.iter().map(String::as_str);
            let valid: Vec<&str> = valid.chain(flattened.iter().map(Flattened::name)).collect();
            return Err(DistError::new(
                ErrorKind::KeyError,
                python::repr(&format!(
                    "Invalid mesh_dim_names {} specified. Valid mesh_dim_names are {}.",
                    python::tuple(names),
                    python::list(&valid)
                )),
            ));
        };
        let unordered = |pair: &[Sliced<'_>]| pair[1].last() <= pair[0].last();
        if let Some(at) = parts.windows(2).position(unordered) {
            let found: Vec<String> = parts[..at + 2].iter().map(Sliced::to_python).collect();
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
        let dims: Vec<usize> = parts.iter().flat_map(|part| part.dims()).collect();
        if dims.windows(2).any(|pair| pair[1] <= pair[0]) || !parts.iter().all(Sliced::is_whole) {
            return Err(runtime_error("the flattened dimensions do not lie beside each other")
                .with_help(
                    "PyTorch 2.7 slices such a mesh wrongly (it says so in a comment of \
                     create_sub_mesh): use what _flatten returned.",
                ));
        }
        let merged = |dims: &[usize], of: &[u32]| {
            dims.iter().fold((0, 1), |(at, size), dim| {
                let (i, of_dim) = (at_of(of, *dim), at_of(self.grid.shape(), *dim));
                (at * of_dim + i, size * of_dim)
            })
        };
        let groups = self.groups.as_ref().map(|groups| {
            parts.iter().filter_map(|part| part.group(groups)).collect::<Vec<Group>>()
        });
        let (coordinate, shape): (Vec<u32>, Vec<u32>) =
            parts.iter().map(|part| merged(&part.dims(), at)).unzip();
        let cut = self.grid.cut(&dims, at);
        let grid = match parts.len() == dims.len() {
            true => cut,
            false => Grid::explicit(&cut.ranks(), &shape).unwrap_or(cut),
        };
        Ok(DeviceMesh {
            device_type: self.device_type.clone(),
            grid,
            names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            groups,
            coordinate: Some(coordinate),
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

fn at_of(of: &[u32], dim: usize) -> u32 {
    of.get(dim).copied().unwrap_or_default()
}

/// The meaning of a name in a slice.
enum Sliced<'f> {
    /// A dimension of the mesh.
    Own(usize),
    /// Several that have been flattened.
    Flat(&'f Flattened),
}

impl Sliced<'_> {
    fn dims(&self) -> Vec<usize> {
        match self {
            Sliced::Own(dim) => vec![*dim],
            Sliced::Flat(flat) => flat.dims.clone(),
        }
    }

    /// The dimension by which slices are ordered.
    fn last(&self) -> usize {
        match self {
            Sliced::Own(dim) => *dim,
            Sliced::Flat(flat) => flat.dims.last().copied().unwrap_or_default(),
        }
    }

    /// True if the mesh's dimensions are adjacent.
    fn is_whole(&self) -> bool {
        self.dims().windows(2).all(|pair| pair[1] == pair[0] + 1)
    }

    fn group(&self, groups: &[Group]) -> Option<Group> {
        match self {
            Sliced::Own(dim) => groups.get(*dim).copied(),
            Sliced::Flat(flat) => flat.mesh.groups.as_ref()?.first().copied(),
        }
    }

    /// As Python prints its indices.
    fn to_python(&self) -> String {
        let dims: Vec<String> = self.dims().iter().map(usize::to_string).collect();
        match &dims[..] {
            [one] => format!("({one},)"),
            several => format!("({})", several.join(", ")),
        }
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
