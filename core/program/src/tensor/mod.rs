//! Tensors in a program's hands. Their shape and type are always known; their values only until a rank has
//! received anything. Computations on them become steps of the plan.

pub(crate) mod arithmetic;
pub(crate) mod conversions;
pub(crate) mod converted;
pub(crate) mod deferred;
pub(crate) mod element_operation;
pub(crate) mod elementwise;
pub(crate) mod fresh;
pub(crate) mod functions;
pub(crate) mod graph;
pub(crate) mod hooks;
pub(crate) mod in_place;
pub(crate) mod indexing;
pub(crate) mod known_elements;
pub(crate) mod made;
pub(crate) mod methods;
pub(crate) mod operand;
pub(crate) mod operators;
pub(crate) mod products;
pub(crate) mod promotion;
pub(crate) mod reductions;
pub(crate) mod shapes;
pub(crate) mod size;
pub(crate) mod tensor_text;
pub(crate) mod transposed;
pub(crate) mod triangles;
pub(crate) mod unknown_operators;
pub(crate) mod value;
