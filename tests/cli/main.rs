//! The `lockstep` command: its output and exit codes.

mod analysis;
mod bad_input;
mod ddp;
mod ddp_join;
mod explain;
mod launched;
mod never_healthy;
mod outputs;
mod plans;
mod programs;
mod recordings;
mod replay;
mod runs;
mod schedules;
mod several_files;
mod stopped;
mod time;

use lockstep_tests::Output;
use serde_json::Value;

/// Bash itself reads the script, and knows the subcommands by it.
#[test]
fn bash_takes_the_completion_script() {
    let script = lockstep_tests::lockstep(["completions", "bash"]);
    assert_eq!(script.code, 0, "{script:?}");
    let asked = format!(
        "{}\nCOMP_WORDS=(lockstep dia); COMP_CWORD=1; _lockstep lockstep dia lockstep; echo \"${{COMPREPLY[@]}}\"",
        script.out
    );
    let bash = std::process::Command::new("bash").args(["-c", &asked]).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "diagnose", "{bash:?}");
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// One clear sentence on standard error, exit code 2, nothing that smells of a panic.
fn assert_refused(output: &Output, about: &str) {
    let Output { code, out, err } = output;
    assert_eq!(*code, 2, "{output:?}");
    assert_eq!(out, "", "{output:?}");
    assert_eq!(err.trim_end().lines().count(), 1, "{output:?}");
    assert!(err.contains(about) && err.starts_with("lockstep: "), "{about:?} is not in {err:?}");
}
