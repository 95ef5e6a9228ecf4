//! The page without its server, and its traces beside ours.

use anyhow::{Result, ensure};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_program::scenario_plan;
use lockstep_scenarios::ScenarioOptions;
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use lockstep_tests::{Page, lockstep};
use serde_json::json;

/// The page has no server to ask: everything but real runs still works.
#[tokio::test]
async fn without_a_server_all_but_real_runs_works() -> Result<()> {
    let page = Page::open("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    // The page that is open, and a service that has gone.
    let Page { service, browser } = page;
    assert_eq!(service.stop(), Some(0));
    browser.run("location.hash = '#/step?collective=broadcast&world=8'").await?;
    let simulated = "return location.hash.includes('collective=broadcast')
                         && location.hash.includes('moment=')";
    browser.until("a broadcast", simulated).await?;
    // What executes programs was not fetched before: that is said, and nothing waits for it.
    browser.run("location.hash = '#/hangs/skipped-all-reduce?ask=false'").await?;
    let said = "return document.querySelector('[data-test=sentence]')?.innerText
                    .includes('could not be loaded')";
    browser.until("what is missing", said).await?;
    browser.close().await
}

#[tokio::test]
async fn the_browser_and_we_make_the_same_trace() -> Result<()> {
    let page = Page::open("#/step").await?;
    let ready = "return typeof window.lockstep_trace_of === 'function'";
    page.browser.until("the page's door for tests", ready).await?;
    let nodes = |plan: Plan| Plan { ranks_per_node: 2, ..plan };
    let fast = Link { latency_ps: 9_000_000, ..Link::DEFAULT };
    let mut cases: Vec<(Plan, Option<&str>, Topology)> =
        plans()?.into_iter().map(|plan| (plan, None, Topology::default())).collect();
    let Some((first, ..)) = cases.first().cloned() else { return page.close().await };
    cases.push((nodes(first.clone()), None, Topology::nodes(2)));
    cases.push((first, Some("latency=9000"), Topology::Uniform(fast)));
    for (plan, network, topology) in cases {
        let made = trace_of(&page, &plan, network).await?;
        let config = SimConfig { topology, ..SimConfig::default() };
        let native = hexadecimal(&simulate(&plan, &config)?.to_bytes());
        ensure!(made == native, "{}: {} and {} digits", plan.name, made.len(), native.len());
    }
    page.close().await
}

/// On a named cluster the page's trace is the one that the command line writes.
#[tokio::test]
async fn the_browser_and_the_command_line_agree_on_clusters() -> Result<()> {
    let page = Page::open("#/step").await?;
    let ready = "return typeof window.lockstep_trace_of === 'function'";
    page.browser.until("the page's door for tests", ready).await?;
    let folder = tempfile::tempdir()?;
    let (file, trace) = (folder.path().join("plan.json"), folder.path().join("trace.lockstep"));
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    for (call, world_size, cluster) in [
        (sum, 16, "h100x8"),
        (Collective::AllToAll, 8, "dgx-a100"),
        (Collective::Broadcast { root: GroupRank(3) }, 8, "gh200x4"),
    ] {
        let plan = CollectiveLab::new(call, world_size, 1 << 12).plan()?;
        std::fs::write(&file, plan.to_json())?;
        let made = trace_of(&page, &plan, Some(&format!("cluster={cluster}"))).await?;
        let (file, trace) = (file.to_string_lossy(), trace.to_string_lossy());
        let arguments = ["sim", &*file, "--cluster", cluster, "-o", &*trace, "--force"];
        let run = lockstep(arguments);
        ensure!(run.code == 0, "{}", run.err);
        let native = hexadecimal(&std::fs::read(&*trace)?);
        ensure!(made == native, "{call} on {cluster}: {} and {}", made.len(), native.len());
    }
    page.close().await
}

/// The trace that the page makes of a plan on a machine, in hexadecimal digits.
async fn trace_of(page: &Page, plan: &Plan, machine: Option<&str>) -> Result<String> {
    let script = "const [plan, machine, done] = arguments;
        window.lockstep_trace_of(plan, machine ?? undefined).then(bytes => {
            let text = '';
            for (const byte of bytes) text += byte.toString(16).padStart(2, '0');
            done(text);
        }, error => done('error: ' + error));";
    let given = vec![plan.to_json().into(), json!(machine)];
    let made = page.browser.client.execute_async(script, given).await?;
    Ok(made.as_str().unwrap_or_default().to_owned())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every collective, and every scenario with its repair.
fn plans() -> Result<Vec<Plan>> {
    let average = Collective::AllReduce { op: ReduceOp::Avg };
    let collectives = Collective::every(ReduceOp::Sum, GroupRank(1)).into_iter().chain([average]);
    let mut plans = Vec::new();
    for collective in collectives {
        for world_size in [2, 5, 16] {
            let lab = CollectiveLab::new(collective, world_size, 37);
            plans.push(CollectiveLab { fill: Fill::Seeded { seed: 9 }, ..lab }.plan()?);
        }
    }
    // Chunks of 8 GiB: more than a 32-bit address, which the browser's memory has.
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plans.push(CollectiveLab::new(sum, 8, 1 << 34).plan()?);
    for scenario in lockstep_scenarios::all() {
        for repaired in [false, true] {
            let world_size = scenario.min_world_size.max(4);
            let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
            plans.push(scenario_plan(scenario, &options)?);
        }
    }
    Ok(plans)
}
