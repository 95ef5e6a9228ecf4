//! `lockstep time`: its answers, in JSON and in words.

use super::{assert_refused, json};
use lockstep_core::group::BackendName;
use lockstep_sim::calibrate::{Point, Probe};
use lockstep_sim::{Link, Topology};
use lockstep_tests::{Output, lockstep};

#[test]
fn a_size_has_a_time_and_a_choice() {
    let sizes = ["time", "all_reduce", "--cluster", "h200x8", "--bytes", "1M,2M", "--json"];
    let answer = json(&lockstep(sizes));
    assert_eq!(answer["schema"], "lockstep.time/1");
    let points = &answer["points"];
    assert_eq!((&points[0]["bytes"], &points[0]["algorithm"]), (&1_048_576.into(), &"Ring".into()));
    assert_eq!(
        (&points[1]["algorithm"], &points[1]["protocol"]),
        (&"NVLS".into(), &"Simple".into())
    );
    assert!(points[1]["predicted_us"].as_f64().unwrap() > 10.0, "{answer}");
    assert_eq!(answer["extrapolated"], false);
}

#[test]
fn a_table_is_compared_and_its_errors_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.csv");
    let table = "# collective: all_reduce\n# gpus: 8\n# nodes: 1\n# kind: H100-SXM-NVSwitch\n\
                 bytes,time_us\n1048576,30\n268435456,1100\n";
    std::fs::write(&file, table).unwrap();
    let answer = json(&lockstep(["time", "--table", file.to_str().unwrap(), "--json"]));
    assert_eq!(answer["points"][1]["measured_us"], 1100.0);
    assert!(answer["mean_error"].as_f64().unwrap() < 0.3, "{answer}");
    let told = lockstep(["time", "--table", folder.path().to_str().unwrap()]);
    assert!(told.code == 0 && told.out.contains("mine") && told.out.contains("median"), "{told:?}");
}

/// A measured table and its given points, as text and as JSON: given sizes come out as given, to 3%, and are
/// not judged.
#[test]
fn a_table_is_corrected_by_given_points() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.csv");
    let rows = "65536,40\n1048576,90\n16777216,400\n268435456,3300\n";
    let head = "# collective: all_reduce\n# gpus: 8\n# nodes: 1\n# kind: H100-SXM-NVSwitch\n";
    std::fs::write(&file, format!("{head}bytes,time_us\n{rows}")).unwrap();
    let table = ["time", "--table", file.to_str().unwrap()];
    let plain = json(&lockstep(table.iter().chain(&["--json"])));
    assert_eq!(plain["points"].as_array().unwrap().len(), 4);
    let error = |answer: &serde_json::Value, at: usize| {
        answer["points"][at]["error"].as_f64().unwrap().abs()
    };
    assert!((0..4).all(|at| error(&plain, at) > 0.2), "{plain}");
    let given = ["--given", "1M=90us", "--given", "256M=3.3ms"];
    let corrected = json(&lockstep(table.iter().chain(&given).chain(&["--json"])));
    for at in [1, 3] {
        assert_eq!(corrected["points"][at]["given"], true, "{corrected}");
        assert!(error(&corrected, at) <= 0.03, "{corrected}");
    }
    assert!(corrected["points"][0].get("given").is_none(), "{corrected}");
    assert!(error(&corrected, 2) < error(&plain, 2), "{corrected}");
    let judged = (error(&corrected, 0) + error(&corrected, 2)) / 2.0;
    assert!((corrected["mean_error"].as_f64().unwrap() - judged).abs() < 1e-9, "{corrected}");
    let told = lockstep(table.iter().chain(&given));
    assert_eq!(told.out.lines().filter(|line| line.ends_with("given")).count(), 2, "{told:?}");
    assert!(told.out.contains("mean error"), "{told:?}");
    let faster = lockstep(table.iter().chain(&["--given", "1G=1us"]));
    assert_refused(&faster, "--given");
}

#[test]
fn a_relative_is_taken_and_told_of() {
    let told = lockstep(["time", "all_reduce", "--cluster", "H20-SXM", "--bytes", "1M"]);
    assert!(told.out.contains("H20-SXM is not known, and taken for h200x8"), "{told:?}");
    assert!(told.out.contains("extrapolated"), "{told:?}");
}

#[test]
fn contradicting_channels_are_told_once() {
    let channels = ["--env", "NCCL_MIN_NCHANNELS=8", "--env", "NCCL_MAX_NCHANNELS=4"];
    let refused = lockstep(["time", "all_reduce"].iter().chain(&channels));
    assert_refused(&refused, "NCCL_MIN_NCHANNELS=8 is more than NCCL_MAX_NCHANNELS=4");
    assert_eq!(refused.err.matches("NCCL_MAX_NCHANNELS").count(), 1, "{refused:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.csv");
    let table = "# collective: all_reduce\n# gpus: 8\n# nodes: 1\n# kind: h100x8\n\
                 # settings: NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=4 NCCL_MAX_NCHANNELS=4\n\
                 bytes,time_us\n1048576,30\n";
    std::fs::write(&file, table).unwrap();
    let told = lockstep(["time", "--table", file.to_str().unwrap()]);
    assert_eq!(told.out.matches("is more than NCCL_MAX_NCHANNELS=4").count(), 1, "{told:?}");
}

#[test]
fn a_shipped_file_says_where_its_numbers_come_from() {
    let shown = lockstep(["cluster", "show", "p5"]);
    for part in
        ["sources = [", "# rates of the card h100: ", "# rates of the network efa: ", "# NICs: "]
    {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_the_nearest() {
    let cluster = |name| lockstep(["time", "all_reduce", "--cluster", name]);
    assert_refused(&cluster("h100x9"), "h100x8");
    assert_refused(&lockstep(["time", "all_reduce", "--nodes", "1000000000"]), "--nodes 65536");
    let setting = lockstep(["time", "all_reduce", "--env", "NCCL_ALG=Ring"]);
    assert_refused(&setting, "did you mean NCCL_ALGO?");
}

#[test]
fn a_plan_on_a_cluster_takes_what_time_says() {
    let asked = ["time", "all_reduce", "--nodes", "2", "--bytes", "4M", "--json"];
    let said = json(&lockstep(asked))["points"][0]["predicted_us"].as_f64().unwrap();
    let plan = ["sim", "all_reduce", "--world-size", "16", "--count", "1048576"];
    let simulated = lockstep(plan.iter().chain(&["--cluster", "h100x8", "--json"]));
    assert_eq!(json(&simulated)["time_ps"].as_f64().unwrap(), (said * 1e6).round());
    let told = lockstep(plan.iter().chain(&["--cluster", "h100x8", "--nodes", "16"]));
    assert!(told.out.contains("cluster h100x8") && told.out.contains("16 nodes of 1"), "{told:?}");
    let both = plan.iter().chain(&["--cluster", "h100x8", "--link-latency-ns", "5"]);
    assert_refused(&lockstep(both), "leave --cluster or the options of links out");
    assert_refused(&lockstep(plan.iter().chain(&["--nodes", "2"])), "--cluster");
}

#[test]
fn a_step_of_ddp_on_a_cluster_waits_for_its_reductions() {
    let model = ["ddp", "--model", "resnet18", "--world-size", "1024", "--simulate", "--json"];
    let took = |cluster| {
        let answer = json(&lockstep(model.iter().chain(&["--cluster", cluster])));
        answer["simulated"][1]["exposed_ps"].as_u64().unwrap()
    };
    assert!(took("p4d") > took("h100x8"));
    let closed = model.iter().chain(&["--cluster", "p4d", "--sweep", "1,25"]);
    assert_refused(&lockstep(closed), "give --cluster with --simulate");
}

/// Eight ranks whose all_reduces take twice as long as on the shipped cluster.
fn slow_log() -> String {
    let mut log = "# Collective test starting: all_reduce_perf\n# Using devices\n".to_owned();
    for rank in 0..8 {
        log += &format!(
            "#  Rank  {rank} Group  0 Pid  {rank}7 on  node-1 device  {rank} [0x18] NVIDIA H100 80GB HBM3\n"
        );
    }
    log += "#       size         count      type   redop    root     time   algbw   busbw  #wrong     \
            time   algbw   busbw  #wrong\n";
    let asked =
        ["time", "all_reduce", "--bytes", "1K,4K,16K,64K,256K,1M,4M,16M,64M,256M,1G", "--json"];
    for point in json(&lockstep(asked))["points"].as_array().unwrap() {
        let (bytes, us) =
            (point["bytes"].as_u64().unwrap(), point["predicted_us"].as_f64().unwrap());
        let (us, rate) = (2.0 * us, bytes as f64 / us / 2000.0);
        let columns = format!("{us:7.2}  {rate:6.2}  {:6.2}  0", rate * 1.75);
        log += &format!("  {bytes}  {}  float  sum  -1  {columns}  {columns}\n", bytes / 4);
    }
    log
}

#[test]
fn a_cluster_is_made_of_what_nccl_tests_print() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, mine) = (path("log.txt"), path("mine.toml"));
    std::fs::write(&log, slow_log()).unwrap();
    let made =
        lockstep(["calibrate", "--from", &log, "--cluster", "h100x8", "-o", &mine, "--json"]);
    let made = json(&made);
    let table = &made["tables"][0];
    assert!((table["error_before"].as_f64().unwrap() - 0.5).abs() < 0.01, "{made}");
    assert!(table["error_held_back"].as_f64().unwrap() < 0.15, "{made}");
    let takes = |cluster: &str| {
        let asked = ["time", "all_reduce", "--cluster", cluster, "--bytes", "4M", "--json"];
        json(&lockstep(asked))["points"][0]["predicted_us"].as_f64().unwrap()
    };
    let ratio = takes(&mine) / takes("h100x8");
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
    // The GPUs that the log names choose the cluster; what is there is kept.
    let found = lockstep(["calibrate", "--from", &log]);
    assert!(found.code == 0 && found.out.contains("[[given]]"), "{found:?}");
    assert_refused(&lockstep(["calibrate", "--from", &log, "-o", &log]), "what is read");
    let sum =
        ["sim", "all_reduce", "--world-size", "8", "--count", "1048576", "--json", "--cluster"];
    let simulated = json(&lockstep(sum.iter().chain(&[mine.as_str()])));
    assert_eq!(simulated["time_ps"].as_f64().unwrap(), (takes(&mine) * 1e6).round());
    std::fs::write(&log, "nothing").unwrap();
    assert_refused(&lockstep(["calibrate", "--from", &log]), "no row of nccl-tests");
}

/// The simulator's own times over a link of gloo's kind, as a table: the link is found again, sizes that were held
/// back take as long, and the topology is one that a simulation takes.
#[test]
fn links_of_gloo_are_found_in_a_table() {
    let link = Link { latency_ps: 90_000_000, bytes_per_second: 1_250_000_000 };
    let mut table = String::new();
    for probe in Probe::ALL {
        table += &format!(
            "# collective: {}\n# gpus: 4\n# nodes: 4\n# kind: gloo over 10 GbE\nbytes,time_us\n",
            probe.name()
        );
        for shift in (2..27).step_by(3) {
            let bytes = 1 << shift;
            let ps =
                Point { probe, bytes }.simulated_ps(Topology::Uniform(link), BackendName::Gloo, 4);
            table += &format!("{bytes},{}\n", ps.unwrap() as f64 / 1e6);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, topology) = (path("gloo.csv"), path("gloo.json"));
    std::fs::write(&file, &table).unwrap();
    let fit = ["calibrate", "--backend", "gloo", "--from", &file];
    let found = json(&lockstep(fit.iter().chain(&["--check", "--json", "-o", &topology])));
    let uniform = &found["topology"]["uniform"];
    for (name, truth) in
        [("latency_ps", link.latency_ps), ("bytes_per_second", link.bytes_per_second)]
    {
        let ratio = uniform[name].as_f64().unwrap() / truth as f64;
        assert!((0.98..1.02).contains(&ratio), "{name}: {found}");
    }
    assert!(found["held_back_off"].as_f64().unwrap() < 0.02, "{found}");
    let sum = ["sim", "all_reduce", "--dist-backend", "gloo", "--topology", &topology];
    assert_eq!(lockstep(sum).code, 0);
    assert_refused(&lockstep(fit.iter().chain(&["-o", &file])), "what is read");
    assert_refused(&lockstep(["calibrate", "--python", "python3"]), "gloo and mpi");
    assert_refused(&lockstep(["calibrate", "--backend", "gloo", "--mpirun", "x"]), "backend mpi");
    let nobody = ["calibrate", "--backend", "mpi", "--mpirun", "no-such-mpirun"];
    assert_refused(&lockstep(nobody), "cannot start no-such-mpirun");
    let without = ["calibrate", "--backend", "gloo", "--python", "false"];
    assert_refused(&lockstep(without), "gloo through the torch of false could not be measured");
}

#[test]
fn a_machine_becomes_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (matrix, mine) = (path("topo.txt"), path("mine.toml"));
    let text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV18\tPIX\t0-31\n\
                GPU1\tNV18\t X \tPIX\t0-31\nNIC0\tPIX\tPIX\t X\n\nNIC Legend:\n\n  NIC0: rdmap0\n";
    std::fs::write(&matrix, text).unwrap();
    let made = lockstep(["cluster", "import", &matrix, "--card", "h200", "-o", &mine]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("transport is taken to be efa"), "{made:?}");
    let shown = lockstep(["cluster", "show", &mine]).out;
    assert!(shown.contains("card = \"h200\"") && shown.contains("name = \"mine\""), "{shown}");
    let asked = lockstep(["time", "all_reduce", "--cluster", &mine, "--bytes", "1M"]);
    assert!(asked.code == 0 && asked.out.contains("extrapolated"), "{asked:?}");
    std::fs::write(&matrix, text.replace("NV18", "N/A")).unwrap();
    assert_refused(&lockstep(["cluster", "import", &matrix]), "no path between GPU0 and GPU1");
}

#[test]
fn faults_of_the_fabric_slow_a_job() {
    let takes = |faults: &[&str]| {
        let plan = ["sim", "all_reduce", "--world-size", "16", "--count", "67108864", "--json"];
        let plan = plan.iter().chain(&["--no-messages", "--cluster", "h100x8"]);
        let simulated = lockstep(plan.chain(faults));
        json(&simulated)["time_ps"].as_f64().unwrap()
    };
    let [healthy, half, quarter] =
        [&[][..], &["--cluster-fault", "spine:rate=0.5"], &["--cluster-fault", "spine:rate=0.25"]]
            .map(takes);
    // At half its rate the spine is what holds up the call: half of that takes twice as long.
    assert!(half > healthy * 1.2, "{healthy} {half}");
    assert!((1.8..2.1).contains(&(quarter / half)), "{half} {quarter}");
    let wrong = ["sim", "all_reduce", "--cluster", "h100x8", "--cluster-fault"];
    assert_refused(&lockstep(wrong.iter().chain(&["nic:node=7"])), "1 node, numbered");
    assert_refused(
        &lockstep(wrong.iter().chain(&["cable:node=7"])),
        "link, nic, gpu, plane and spine",
    );
}

/// A trace is simulated again on the cluster that it was made on, with what was slow there, unless another is named.
#[test]
fn a_trace_is_simulated_on_its_own_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let time = |output: &Output| json(output)["time_ps"].as_u64().unwrap();
    let plan = ["sim", "all_reduce", "--world-size", "12", "--count", "1048576", "--json"];
    let on = |more: &[&str]| lockstep(plan.iter().chain(&["--cluster", "h100x8"]).chain(more));
    for name in ["trace.json", "trace.lks"] {
        let (trace, fault) = (path(name), "link:node=0,rate=0.5");
        let made = on(&["--nodes", "3", "--cluster-fault", fault, "-o", &trace]);
        let again = |more: &[&str]| lockstep(["sim", trace.as_str(), "--json"].iter().chain(more));
        let own = again(&[]);
        assert_eq!(time(&own), time(&made));
        assert!(own.err.contains(&format!("trace's own cluster, h100x8 with {fault}")), "{own:?}");
        // Other nodes keep the fault, and the cluster that is named has none.
        let two = again(&["--nodes", "2"]);
        assert_eq!(time(&two), time(&on(&["--nodes", "2", "--cluster-fault", fault])));
        let named = again(&["--cluster", "h100x8", "--nodes", "3"]);
        assert_eq!(time(&named), time(&on(&["--nodes", "3"])));
        assert!(time(&named) < time(&own) && !named.err.contains("own cluster"), "{named:?}");
        let links = again(&["--link-latency-ns", "5000"]);
        let plain = lockstep(plan.iter().chain(&["--link-latency-ns", "5000"]));
        assert_eq!(time(&links), time(&plain));
    }
    // So are all its orders, and its repair.
    let explored = lockstep(["explore", path("trace.lks").as_str()]);
    assert!(explored.err.contains("trace's own cluster, h100x8 with link:node=0"), "{explored:?}");
    let hung = path("hung.lks");
    lockstep(["sim", "skipped-all-reduce", "--cluster", "h100x8", "-o", &hung]);
    let repaired =
        |more: &[&str]| lockstep(["sim", hung.as_str(), "--repaired", "--json"].iter().chain(more));
    let (own, plain) = (repaired(&[]), repaired(&["--link-latency-ns", "5000"]));
    assert!(own.err.contains("trace's own cluster, h100x8"), "{own:?}");
    assert_ne!(time(&own), time(&plain));
}

/// The faults of ranks are operations of a trace's plan; its links are not in the trace. Both are told.
#[test]
fn what_a_trace_does_not_hold_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json").to_str().unwrap().to_owned();
    let made = ["sim", "all_reduce", "--fault", "delay:rank=1,call=1,by_ms=7", "-o", &trace];
    let made = lockstep(made.iter().chain(&["--link-latency-ns", "70000", "--json"]));
    let again = lockstep(["sim", &trace, "--json"]);
    assert_eq!(json(&again)["findings"]["verdict"], json(&made)["findings"]["verdict"]);
    assert!(json(&again)["time_ps"].as_u64() >= Some(7_000_000_000), "{again:?}");
    assert!(again.err.contains("happen again"), "{again:?}");
    assert!(again.err.contains("simulated on other links (latency 70"), "{again:?}");
    assert_eq!(lockstep(["sim", "all_reduce", "-o", &trace, "--force"]).code, 0);
    assert_eq!(lockstep(["sim", &trace]).err, "");
}
