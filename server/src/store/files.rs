//! Files of the store's folder that are written or taken away.

use super::error::{StoreError, at};
use std::path::Path;
use std::{fs, io};

/// The ending of a file's name that is not in the list yet.
pub(super) const INCOMING: &str = ".incoming";

pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(error)),
        _ => Ok(()),
    }
}
