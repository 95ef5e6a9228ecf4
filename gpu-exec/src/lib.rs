//! The native executor.
