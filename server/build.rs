//! Embeds the page: lists the files of `dist/`, if it was built, as a table of `include_bytes!`. A
//! file that is there compressed is embedded so and in no other form.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("..").join("dist");
    // Cargo would run this again on every build if it watched a folder that is not there.
    let _ = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    list(&dist, &mut files)?;
    files.sort();
    let is_compressed = |file: &Path| {
        let mut gzip = file.as_os_str().to_owned();
        gzip.push(".gz");
        files.binary_search(&PathBuf::from(gzip)).is_ok()
    };
    let mut table = String::from("&[\n");
    for file in files.iter().filter(|file| !is_compressed(file)) {
        let name = file.strip_prefix(&dist).map_err(io::Error::other)?;
        let name = name.to_string_lossy().replace('\\', "/");
        let path = file.canonicalize()?;
        let line =
            writeln!(table, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
        line.map_err(io::Error::other)?;
    }
    table.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("dist.rs"), table)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
