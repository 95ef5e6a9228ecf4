//! The Flight Recorder dumps of a simulation say the same as the simulation.

use lockstep_core::diagnosis::{Verdict, diagnose, diagnose_recording};
use lockstep_core::flight_recorder::{dumps_of, read_files};
use lockstep_core::scenario::{self, ScenarioOptions};
use lockstep_core::trace::CallLog;
use lockstep_sim::{SimConfig, simulate};

#[test]
fn dumps_of_every_scenario_blame_the_same_ranks() {
    for scenario in scenario::all() {
        for repaired in [false, true] {
            let options = ScenarioOptions { repaired, ..ScenarioOptions::default() };
            let trace = simulate(&scenario.plan(&options).unwrap(), &SimConfig::default()).unwrap();
            let log = CallLog::of(&trace);
            let simulated = diagnose(&log);
            let dumps = dumps_of(&log, trace.header.epoch_ns);
            for json in [false, true] {
                let files: Vec<(String, Vec<u8>)> = dumps
                    .iter()
                    .map(|dump| {
                        let bytes =
                            if json { dump.to_json().into_bytes() } else { dump.to_pickle() };
                        (dump.file_name.clone(), bytes)
                    })
                    .collect();
                let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
                let recording = read_files(files).unwrap();
                assert_eq!(recording.problems, []);
                let read = &recording.merged.log;
                let calls = |log: &CallLog| -> Vec<Vec<_>> {
                    let own = |log: &lockstep_core::trace::RankLog| {
                        log.calls.iter().map(|it| (it.call.op.clone(), it.seq)).collect()
                    };
                    log.logs().map(|(_, log)| own(log)).collect()
                };
                assert_eq!(calls(read), calls(&log), "{}", scenario.id);
                let report = diagnose_recording(&recording);
                let id = scenario.id;
                assert_eq!(report.culprits(), simulated.culprits(), "{id}: {}", report.to_text());
                assert_eq!(report.verdict == Verdict::Healthy, repaired, "{id}");
            }
        }
    }
}
