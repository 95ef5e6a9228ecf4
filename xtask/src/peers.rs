//! Other simulators beside ours, in one run: LogGOPSim and ASTRA-sim's analytical back end, where environment
//! variables name them. They are fetched and built by whoever wants to compare; nothing of theirs is kept here.

use crate::serve::build_server;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// LogGOPSim, and the program beside it that packs GOAL's text for it.
const LOGGOPSIM: [&str; 2] = ["LOCKSTEP_LOGGOPSIM", "LOCKSTEP_TXT2BIN"];

/// A command line of ASTRA-sim's analytical back end, inputs included and by absolute paths, that simulates one
/// ring all_reduce of 4 MiB, which are 2^20 floats, among 1,024 NPUs, not split (`preferred-dataset-splits` 1):
/// with four splits it sends four times the messages.
const ASTRA_SIM: &str = "LOCKSTEP_ASTRA_SIM";

/// Every simulator runs so often, in turn.
const ROUNDS: usize = 3;

/// A call that both simulate: the algorithm of an all_reduce of 2^20 floats, and its ranks.
const CALLS: [(&str, u32); 2] = [("ring", 1024), ("halving_doubling", 65_536)];

/// Runs the others beside ours, and prints medians and their ratios.
///
/// # Errors
/// When Lockstep does not build, or a program that is named fails.
pub(crate) fn compare() -> Result<()> {
    let loggopsim = LOGGOPSIM.map(std::env::var_os);
    let astra_sim = std::env::var(ASTRA_SIM).ok();
    if loggopsim.iter().all(Option::is_none) && astra_sim.is_none() {
        println!("no other simulator: {} or {ASTRA_SIM} name them", LOGGOPSIM.join(" with "));
        return Ok(());
    }
    let ours = build_server("release", &["--package=lockstep-server"])?;
    let folder = std::env::temp_dir().join(format!("lockstep-peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("cannot make a folder for GOAL")?;
    let compared = loggopsim_beside(&ours, &loggopsim, &folder).and_then(|()| {
        astra_sim.map_or(Ok(()), |command| astra_sim_beside(&ours, &command, &folder))
    });
    std::fs::remove_dir_all(&folder).context("cannot remove GOAL")?;
    compared
}

fn loggopsim_beside(ours: &Path, named: &[Option<OsString>; 2], folder: &Path) -> Result<()> {
    let [Some(simulator), Some(pack)] = named else {
        if named.iter().any(Option::is_some) {
            bail!("{} are needed both", LOGGOPSIM.join(" and "));
        }
        return Ok(());
    };
    for (algorithm, ranks) in CALLS {
        let [text, packed] = ["goal", "bin"].map(|kind| folder.join(format!("{algorithm}.{kind}")));
        let mut export = Command::new(ours);
        export.arg("export").args(call(algorithm, ranks)).arg("--goal").arg("-o").arg(&text);
        shell::run(export.stdout(Stdio::null()))?;
        shell::run(Command::new(pack).arg("-i").arg(&text).arg("-o").arg(&packed))?;
        let theirs = || {
            let mut command = Command::new(simulator);
            command.arg("-f").arg(&packed);
            command
        };
        let what = format!("{algorithm} all_reduce, {ranks} ranks");
        beside(&what, "LogGOPSim", &theirs, &|| simulation(ours, algorithm, ranks))?;
    }
    Ok(())
}

fn astra_sim_beside(ours: &Path, command: &str, folder: &Path) -> Result<()> {
    let theirs = || {
        let mut shell = Command::new("sh");
        // It leaves a folder of logs where it runs.
        shell.args(["-c", command]).current_dir(folder);
        shell
    };
    let [(algorithm, ranks), _] = CALLS;
    let what = format!("{algorithm} all_reduce, {ranks} ranks");
    beside(&what, "ASTRA-sim", &theirs, &|| simulation(ours, algorithm, ranks))
}

fn call(algorithm: &str, ranks: u32) -> [String; 7] {
    let ranks = ranks.to_string();
    ["all_reduce", "--algorithm", algorithm, "--world-size", &ranks, "--count", "1048576"]
        .map(str::to_owned)
}

fn simulation(ours: &Path, algorithm: &str, ranks: u32) -> Command {
    let mut command = Command::new(ours);
    command.arg("sim").args(call(algorithm, ranks));
    command
}

/// Runs both in turn and prints the medians of their times, and how many times as long the other takes.
fn beside(
    what: &str,
    other: &str,
    theirs: &dyn Fn() -> Command,
    ours: &dyn Fn() -> Command,
) -> Result<()> {
    let (mut of_theirs, mut of_ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_ours.push(seconds(ours())?);
        of_theirs.push(seconds(theirs())?);
    }
    let [own, their] = [of_ours, of_theirs].map(median);
    println!("{what}: lockstep {own:.2} s, {other} {their:.2} s: {:.1} times", their / own);
    Ok(())
}

fn seconds(mut command: Command) -> Result<f64> {
    let start = Instant::now();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = quiet.status().with_context(|| format!("could not start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(start.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
