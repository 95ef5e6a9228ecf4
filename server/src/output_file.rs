//! Files that commands write to a path that the user gives: `-o`, `--plan`, `--report`.
//!
//! An existing file may be evidence: it is replaced only if it is empty or of the kind that the command
//! writes, and an input never is; `--force` replaces any other file. The new file is written beside the old
//! one and renamed, so a full disk leaves the old one intact.

use anyhow::{Context, Result, bail};
use lockstep_core::plan::Plan;
use lockstep_formats::{chakra, kineto, perfetto};
use lockstep_replay::python_program;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The beginning of a written report.
pub(crate) const REPORT_MARK: &str = "<!-- Written by lockstep diagnose --report. -->";

/// The bytes of a file that are enough to recognise its kind.
const BEGINNING: u64 = 4096;

/// The kind of file that a command writes, and so may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `lockstep.trace`, binary or JSON.
    Trace,
    /// `lockstep.plan`, binary or JSON.
    Plan,
    /// `lockstep.topology`.
    Topology,
    /// A written report.
    Report,
    /// GOAL.
    Goal,
    /// MSCCL's XML.
    Msccl,
    /// A trace for Perfetto that Lockstep wrote.
    Perfetto,
    /// A profile that Lockstep wrote.
    Kineto,
    /// An execution trace of Chakra's that Lockstep wrote.
    Chakra,
    /// The groups beside execution traces.
    CommGroups,
    /// A cluster's TOML.
    Cluster,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            FileKind::Trace => "trace",
            FileKind::Plan => "plan",
            FileKind::Topology => "topology",
            FileKind::Report => "report of lockstep",
            FileKind::Goal => "GOAL file",
            FileKind::Msccl => "MSCCL file",
            FileKind::Perfetto => "Perfetto trace of lockstep",
            FileKind::Kineto => "profile that lockstep wrote",
            FileKind::Chakra => "execution trace that lockstep wrote",
            FileKind::CommGroups => "list of groups that lockstep wrote",
            FileKind::Cluster => "cluster file",
        }
    }

    /// True if a file with these first bytes is of this kind.
    fn begins(self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let json = |schema: &str| {
            let holds = |quoted: &str| text.contains(&format!("{quoted}{schema}/"));
            text.trim_start().starts_with('{') && text.contains("\"schema\"") && holds("\"")
        };
        match self {
            FileKind::Trace => bytes.starts_with(b"LKSTRCE") || json("lockstep.trace"),
            FileKind::Plan => bytes.starts_with(b"LKSPLAN") || json("lockstep.plan"),
            FileKind::Topology => json("lockstep.topology"),
            FileKind::Report => text.starts_with(REPORT_MARK),
            FileKind::Goal => text.starts_with("num_ranks"),
            FileKind::Msccl => text.trim_start().starts_with("<algo"),
            FileKind::Perfetto => bytes.starts_with(perfetto::BEGINNING),
            FileKind::Kineto => bytes.starts_with(kineto::BEGINNING),
            FileKind::Chakra => chakra::is_written_by_lockstep(bytes),
            FileKind::CommGroups => text.starts_with("{\n  \"0\": ["),
            FileKind::Cluster => {
                let has = |key: &str| text.lines().any(|line| line.starts_with(key));
                has("card = ") && has("gpus_per_node = ")
            }
        }
    }
}

/// The option that permits replacing files of other kinds.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Overwrite {
    /// Replace the output file whatever it holds
    #[arg(long)]
    force: bool,
}

impl Overwrite {
    /// Refuses a file that may not be replaced, before any work is done. `inputs` are the files that the
    /// command reads; names that are no files are ignored.
    ///
    /// # Errors
    /// When the file is an input, or of another kind and not empty.
    pub(crate) fn check(self, path: &Path, kind: FileKind, inputs: &[&Path]) -> Result<()> {
        let shown = path.display();
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        if metadata.is_dir() {
            bail!("cannot write {shown}: it is a folder");
        }
        if !metadata.is_file() {
            return Ok(());
        }
        let same = |input: &&Path| {
            let both = fs::canonicalize(input).ok().zip(fs::canonicalize(path).ok());
            both.is_some_and(|(input, output)| input == output)
        };
        if inputs.iter().any(same) {
            bail!("{shown} is what is read: name another file to write");
        }
        if self.force || metadata.len() == 0 {
            return Ok(());
        }
        let read = holds(path, kind);
        let is_one =
            read.with_context(|| format!("cannot read {shown}, which would be replaced"))?;
        if !is_one {
            bail!(
                "{shown} is there and is no {}: name another file, or pass --force to replace it",
                kind.name()
            );
        }
        Ok(())
    }

    /// Checks and writes the whole file.
    ///
    /// # Errors
    /// Those of [`Overwrite::check`] and [`write_whole`].
    pub(crate) fn write(
        self,
        path: &Path,
        kind: FileKind,
        inputs: &[&Path],
        bytes: &[u8],
    ) -> Result<()> {
        self.check(path, kind, inputs)?;
        write_whole(path, |out| Ok(out.write_all(bytes)?))
    }
}

/// True if a file is of a kind, by its beginning.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn holds(path: &Path, kind: FileKind) -> std::io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BEGINNING).read_to_end(&mut bytes)?;
    Ok(kind.begins(&bytes))
}

/// Writes a file beside its place and renames it; something that is not a file, such as a pipe, is written
/// directly.
///
/// # Errors
/// When it cannot be written, or `content` fails: then the old file is still there.
pub(crate) fn write_whole(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let mut file = fs::OpenOptions::new().write(true).open(path).with_context(cannot)?;
        return content(&mut file);
    }
    // A link stays a link: what it names is replaced.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut beside = place.clone().into_os_string();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let file = File::create_new(&beside).with_context(cannot)?;
    if let Ok(old) = fs::metadata(&place) {
        // Permissions that the user gave the old file stay.
        file.set_permissions(old.permissions()).with_context(cannot)?;
    }
    let mut out = BufWriter::new(file);
    // An error of the content itself is no fault of the file.
    let written = content(&mut out).map_err(|error| match error.is::<std::io::Error>() {
        true => error.context(cannot()),
        false => error,
    });
    let moved = written
        .and_then(|()| out.flush().with_context(cannot))
        .and_then(|()| fs::rename(&beside, &place).with_context(cannot));
    if moved.is_err() {
        // The error above is the one to be told.
        let _ = fs::remove_file(&beside);
    }
    moved
}

/// Writes a plan: as JSON if the file is called so, else binary. Permission to replace an old file was
/// checked before.
///
/// # Errors
/// Those of [`write_whole`].
pub(crate) fn write_plan(path: &Path, plan: &Plan) -> Result<()> {
    match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("json") => write_whole(path, |out| Ok(plan.write_json(out)?)),
        Some("py") => {
            let text = python_program(plan)?;
            write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))
        }
        _ => write_whole(path, |out| Ok(plan.write_bytes(out)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_command_writes_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let write = |force, kind, bytes: &[u8]| {
            Overwrite { force }.write(&path, kind, &[], bytes).map_err(|error| format!("{error:#}"))
        };
        write(false, FileKind::Plan, b"{\"schema\": \"lockstep.plan/2\"}").unwrap();
        write(false, FileKind::Plan, b"LKSPLAN\x02").unwrap();
        let refused = write(false, FileKind::Trace, b"LKSTRCE\x02").unwrap_err();
        assert!(refused.contains("is no trace") && refused.contains("--force"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"LKSPLAN\x02");
        write(true, FileKind::Trace, b"LKSTRCE\x02").unwrap();
        fs::write(&path, "").unwrap();
        write(false, FileKind::Goal, b"num_ranks 2").unwrap();
        write(false, FileKind::Goal, b"num_ranks 3").unwrap();
        let inputs = [path.as_path()];
        let refused =
            Overwrite { force: true }.write(&path, FileKind::Goal, &inputs, b"").unwrap_err();
        assert!(refused.to_string().contains("is what is read"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_fails_half_way_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        let failed = write_whole(&path, |out| {
            out.write_all(b"half")?;
            bail!("it cannot be said in this form")
        });
        assert_eq!(failed.unwrap_err().to_string(), "it cannot be said in this form");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
