//! The program's own classes: their construction, the state and answers of their objects, and the special
//! methods that Python calls implicitly.

pub(crate) mod construction;
pub(crate) mod hashed_keys;
pub(crate) mod members;
pub(crate) mod method_resolution;
pub(crate) mod missing_attribute;
pub(crate) mod object_protocol;
pub(crate) mod object_text;
pub(crate) mod objects;
pub(crate) mod operators;
pub(crate) mod special_methods;
