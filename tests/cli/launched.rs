//! Runs whose ranks a launcher starts.

use lockstep_tests::binary;
use std::process::Command;

/// mpirun ends a job as soon as one of its processes fails; by then rank 0 has told what it found, and
/// has every rank's dump.
#[test]
fn mpirun_loses_no_report() {
    let Ok(version) = Command::new("mpirun").arg("--version").output() else {
        println!("skipped: there is no mpirun on this machine");
        return;
    };
    let open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let meeting = format!("file://{}", folder.path().join("meeting").display());
        let dumps = folder.path().join("dumps");
        let mut command = Command::new("mpirun");
        if open_mpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command.args(["-n", "6"]).arg(binary());
        command.args([
            "rank",
            "--plan=skipped-all-reduce",
            "--timeout-ms=300",
            "--join-timeout=30",
        ]);
        command.args(["--rendezvous", &meeting, "--dump-dir"]).arg(&dumps);
        let ran = command.output().unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert!(out.contains("Rank 2 never called all_reduce"), "{ran:?}");
        // Of what rank 0 says, the last.
        assert!(out.contains("values: "), "{ran:?}");
        assert_eq!(std::fs::read_dir(&dumps).unwrap().count(), 6, "{ran:?}");
    }
}
