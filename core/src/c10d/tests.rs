//! Properties of groups, meshes and lowering that need no simulation.
