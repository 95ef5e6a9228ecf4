//! Reading the paths that users give, within bounds: no device, no endless folder, no file past the limit.

use anyhow::{Context, Result, bail};
use lockstep_core::trace::rank_of_file_name;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

/// No file of any kind is read past this.
pub(crate) const MAX_FILE_BYTES: u64 = 2 << 30;

/// Files in a folder and the folders below it.
const MAX_FILES: usize = 100_000;

/// Folders within folders.
const MAX_DEPTH: usize = 8;

/// Some editors put this byte-order mark in front of a text in UTF-8. No format of ours begins with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The file's bytes, without a byte-order mark.
///
/// # Errors
/// When it is not a file, is larger than `limit`, or cannot be read.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let shown = path.display();
    let too_large =
        |bytes: u64| format!("cannot read {shown}: it has {bytes} bytes, and the limit is {limit}");
    let (file, length) = open(path)?;
    if length > limit {
        bail!(too_large(length));
    }
    let mut bytes = Vec::new();
    // A file can grow while it is read, and some say that they are empty when they are not.
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() as u64 > limit {
        bail!(too_large(bytes.len() as u64));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Opens a file, and says how long it is.
///
/// # Errors
/// When it is not a file, or cannot be read.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    let shown = path.display();
    // Asked before it is opened: opening a named pipe waits for a writer.
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    if !metadata.is_file() {
        bail!("cannot read {shown}: it is not a file");
    }
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    Ok((file, metadata.len()))
}

/// The first bytes of a file, without a byte-order mark, and the byte at which they begin.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn head(file: &mut (impl Read + Seek), bytes: u64) -> std::io::Result<(Vec<u8>, u64)> {
    let mut head = Vec::new();
    file.rewind()?;
    file.by_ref().take(bytes).read_to_end(&mut head)?;
    let start = match head.starts_with(BYTE_ORDER_MARK) {
        true => BYTE_ORDER_MARK.len(),
        false => 0,
    };
    head.drain(..start);
    Ok((head, start as u64))
}

/// The files that paths name, in name order: a file itself; a folder's own files, or, when it has
/// none, those of the folders in it; beside a log, the dumps in a folder below it. Hidden ones are left out.
///
/// # Errors
/// When a path is not there, cannot be listed, or holds more than can be meant.
pub(crate) fn below(paths: &[impl AsRef<Path>]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if metadata.is_dir() {
            let before = files.len();
            walk(path, 0, &mut files)?;
            if files.len() == before {
                bail!("{} holds no files", path.display());
            }
        } else {
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

/// The folders among some paths in which files are read and other folders are not.
pub(crate) fn passed_over(paths: &[impl AsRef<Path>]) -> Vec<&Path> {
    let leaves_out = |path: &&Path| {
        let (folders, own) = listed(path).unwrap_or_default();
        !own.is_empty() && folders.iter().any(|folder| !is_read_beside(&own, folder))
    };
    paths.iter().map(AsRef::as_ref).filter(leaves_out).collect()
}

/// Ends of names of texts.
const TEXTS: [&str; 8] = ["log", "txt", "out", "err", "md", "py", "sh", "yaml"];

/// True of a file that is a rank's recording, as far as its name tells.
fn names_a_dump(path: &Path) -> bool {
    let is_text = path.extension().is_some_and(|end| TEXTS.iter().any(|text| end == *text));
    let name = path.file_name().map(|name| name.to_string_lossy());
    !is_text && name.is_some_and(|name| rank_of_file_name(&name).is_ok())
}

/// True if a folder holds the dumps of the job whose log lies beside it: `job.log` and `dumps/rank_0`. Where
/// the dumps lie above, it holds something else: other forms of them, another job.
fn is_read_beside(own: &[PathBuf], folder: &Path) -> bool {
    let (_, inside) = listed(folder).unwrap_or_default();
    !own.iter().any(|path| names_a_dump(path)) && inside.iter().any(|path| names_a_dump(path))
}

/// The folders and the files in a folder, each in name order. Hidden ones are left out.
fn listed(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let shown = folder.display();
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {shown}"))? {
        let entry = entry.with_context(|| format!("cannot list {shown}"))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
        if paths.len() > MAX_FILES {
            bail!(
                "{shown} holds more than {MAX_FILES} files; name the folder that holds the dumps"
            );
        }
    }
    paths.sort();
    // A link to a folder is not followed: it may lead back up.
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
    Ok(paths.into_iter().partition(is_folder))
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let shown = folder.display();
    if depth > MAX_DEPTH {
        bail!(
            "{shown} is more than {MAX_DEPTH} folders deep; name the folder that holds the dumps"
        );
    }
    let (folders, own) = listed(folder)?;
    if files.len() + own.len() > MAX_FILES {
        bail!("{shown} holds more than {MAX_FILES} files; name the folder that holds the dumps");
    }
    let read = folders.iter().filter(|folder| own.is_empty() || is_read_beside(&own, folder));
    read.into_iter().try_for_each(|folder| walk(folder, depth + 1, files))?;
    files.extend(own);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_past_the_limit_is_refused_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        fs::write(&path, [0; 11]).unwrap();
        assert_eq!(read(&path, 11).unwrap().len(), 11);
        let refused = read(&path, 10).unwrap_err().to_string();
        assert!(refused.contains("11 bytes") && refused.contains("limit is 10"), "{refused}");
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        assert!(read(Path::new("/dev/zero"), 10).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn a_folder_is_its_own_files_or_those_of_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["job/rank_1", "job/rank_0", "job/.hidden", "job/json/rank_0.json"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("job/loop")).unwrap();
        let found = below(&[root.to_path_buf()]).unwrap();
        let names: Vec<_> = found.iter().map(|it| it.strip_prefix(root).unwrap()).collect();
        assert_eq!(names, ["job/loop", "job/rank_0", "job/rank_1"].map(Path::new));
        let paths = ["job", "job/json", "job/rank_0"].map(|name| root.join(name));
        assert_eq!(passed_over(&paths), [&paths[0]]);
    }

    #[test]
    fn dumps_in_a_folder_beside_their_log_are_read_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let files = ["job.log", "dumps/rank_0", "dumps/rank_1", "src/train.py", "logs/rank0.log"];
        for name in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        let found = below(&[root.to_path_buf()]).unwrap();
        let names: Vec<_> = found.iter().map(|it| it.strip_prefix(root).unwrap()).collect();
        assert_eq!(names, ["dumps/rank_0", "dumps/rank_1", "job.log"].map(Path::new));
        assert_eq!(passed_over(&[root]), [root], "sources and other logs are not read");
    }
}
