//! Algorithms and meshes.

use anyhow::{Context, Result, ensure};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Layout, Rounds};
use lockstep_core::trace::What;
use lockstep_scenarios::GroupsLab;
use lockstep_sim::{Cost, Link, Session, SimConfig, Topology, simulate};
use lockstep_tests::{Page, lockstep};
use lockstep_torch::c10d::Job;

/// A card's link carries the nodes along: the same moments as we simulate on them, drawn as nodes.
#[tokio::test]
async fn a_card_leads_to_its_own_nodes() -> Result<()> {
    let page =
        Page::open("#/algorithms?collective=all_reduce&world=8&count=64&node=4&latency=9000")
            .await?;
    page.click("step-hierarchical").await?;
    page.until("ring", "data-nodes", "2").await?;
    let lab = CollectiveLab {
        algorithm: Algorithm::Hierarchical,
        ..CollectiveLab::new(Collective::AllReduce { op: ReduceOp::Sum }, 8, 64)
    };
    let across = Link { latency_ps: 9_000_000, ..Link::DEFAULT };
    let topology = Topology::Nodes { ranks_per_node: 4, inside: Link::NVLINK, across };
    let config = SimConfig { topology, ..SimConfig::default() };
    let mut session = Session::new(&Plan { ranks_per_node: 4, ..lab.plan()? }, config)?;
    session.run_to_end()?;
    let moments = session.moments();
    page.until("transport", "data-last", &(moments.len() - 1).to_string()).await?;
    let end = moments.last().context("an end")?.time_ps;
    page.scrub(moments.len() - 1).await?;
    page.until("transport", "data-time-ps", &end.to_string()).await?;
    page.close().await
}

/// The view of clusters says what NCCL's log on 8 H200 said, and what cannot be.
#[tokio::test]
async fn a_cluster_says_what_nccl_picks() -> Result<()> {
    let page = Page::open("#/cluster?cluster=h200x8&bytes=2097152").await?;
    page.until("cluster", "data-ready", "true").await?;
    let switches = once_told(&page, "switches").await?;
    let at = switches.strip_prefix("NCCL picks Ring with LL, then NVLS with Simple from ");
    let at = at.and_then(|at| at.rsplit_once('(')?.1.strip_suffix(" B).")?.parse::<u64>().ok());
    let at = at.with_context(|| switches.clone())?;
    // The command line says the same on both sides of that byte.
    let sizes = format!("{},{at}", at - 1);
    let asked = ["time", "all_reduce", "--cluster", "h200x8", "--bytes", &sizes, "--json"];
    let told: serde_json::Value = serde_json::from_str(&lockstep(asked).out)?;
    let picked = |point: usize| {
        let point = &told["points"][point];
        (point["algorithm"].clone(), point["protocol"].clone())
    };
    ensure!(picked(0) == ("Ring".into(), "LL".into()), "{told}");
    ensure!(picked(1) == ("NVLS".into(), "Simple".into()), "{told}");
    ensure!(page.text("why").await?.contains("NVLS (picked)"), "the reason is not told");
    page.go("#/cluster?cluster=h200x8&nodes=512").await?;
    page.until("cluster", "data-ready", "true").await?;
    ensure!(page.text("extrapolated").await?.contains("no measured table"), "it is not marked");
    page.go("#/cluster?cluster=4090x8-pcie&nodes=2").await?;
    let wrong = page.text("cluster-wrong").await?;
    ensure!(wrong.contains("without a network"), "{wrong}");
    // What was measured there is fetched, and drawn over the prediction.
    page.go("#/cluster?cluster=dgx-a100").await?;
    let file = include_str!("../../sim/clusters/data/measured/dgx-a100.csv");
    let of_it = ["collective: all_reduce\n", "nodes: 1\n", "gpus: 8\n"];
    let tables = file.split("\n\n").filter(|table| of_it.iter().all(|line| table.contains(line)));
    page.until("measured", "data-tables", &tables.count().to_string()).await?;
    page.go("#/cluster?cluster=ndv5&nodes=4").await?;
    page.until("measured", "data-tables", "0").await?;
    page.close().await
}

/// The text of a part of the page, once there is one: the worker writes it.
async fn once_told(page: &Page, test: &str) -> Result<String> {
    let script = format!("return document.querySelector('[data-test={test}]')?.innerText || null");
    let text = page.browser.until(test, &script).await?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}

/// Algorithms, Step, DDP and Meshes take a cluster by name: the times are those of NCCL there.
#[tokio::test]
async fn views_take_a_cluster_by_name() -> Result<()> {
    // An address that names a cluster alone gets the GPUs of its nodes.
    let page = Page::open("#/algorithms?cluster=h200x8&world=8&count=1048576").await?;
    page.until("algorithms", "data-ready", "true").await?;
    let hash = page.browser.run("return location.hash").await?;
    ensure!(hash.as_str().is_some_and(|hash| hash.contains("node=8")), "{hash}");
    let switches = once_told(&page, "switches").await?;
    ensure!(switches.contains("then NVLS with Simple from"), "{switches}");
    ensure!(page.text("algorithm-nvls").await?.contains("NCCL picks it"), "it is not marked");
    ensure!(page.text("algorithm-swing").await?.contains("not in NCCL"), "NCCL has no swing");
    page.go("#/step?world=8&count=1048576&cluster=h200x8&node=8").await?;
    let note = once_told(&page, "on-cluster").await?;
    ensure!(note.contains("1 node of 8; calls take what NCCL takes there"), "{note}");
    page.go("#/mesh?dims=dp%3D2%2C+tp%3D8&cluster=h100x8&node=8").await?;
    page.until("fabric", "data-links", "32").await?;
    page.until("fabric", "data-stretches", "2").await?;
    page.click("stretch-1").await?;
    let along = "return document.querySelector('[data-test=fabric-told]')?.innerText
                     .startsWith('Along dp: GPU links idle, NICs')";
    page.browser.until("the loads along dp", along).await?;
    page.go("#/ddp?model=resnet18&world=16&cluster=h100x8&node=8").await?;
    page.until("ddp", "data-ready", "true").await?;
    page.click("check-run").await?;
    let agrees = "return document.querySelector('[data-test=check]')?.innerText
                      .includes('0.0 % off')";
    page.browser.until("the simulator's word", agrees).await?;
    page.close().await
}

/// Every card says what core and sim say of its algorithm; the fastest is marked.
#[tokio::test]
async fn the_gallery_counts_what_we_count() -> Result<()> {
    let page = Page::open("#/algorithms").await?;
    let (op, root) = (ReduceOp::Sum, GroupRank(0));
    let nodes = Topology::Nodes {
        ranks_per_node: 8,
        inside: Link { latency_ps: 2_000_000, bytes_per_second: 300_000_000_000 },
        across: Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 },
    };
    let cases = [
        (Collective::AllReduce { op }, 8, 65_536, Topology::default(), ""),
        (Collective::AllReduce { op }, 64, 1000, nodes, "&node=8"),
        (Collective::AllToAll, 7, 30, Topology::default(), ""),
        (Collective::Reduce { op, root }, 16, 1 << 20, Topology::default(), ""),
        (Collective::Barrier, 12, 1, Topology::default(), ""),
    ];
    for (collective, world_size, count, topology, more) in cases {
        page.go("#/step").await?;
        page.go(&format!(
            "#/algorithms?collective={collective}&world={world_size}&count={count}{more}"
        ))
        .await?;
        page.until("algorithms", "data-ready", "true").await?;
        let mut times = Vec::new();
        for &algorithm in Algorithm::of(collective) {
            let lab = CollectiveLab::new(collective, world_size, count);
            let lab = CollectiveLab { algorithm, timeout_ms: 86_400_000, ..lab };
            let ranks_per_node = topology.ranks_per_node();
            let schedule = lab.schedule(ranks_per_node)?;
            let cost = Cost::of(&Plan { ranks_per_node, ..lab.plan()? }, topology)?;
            let steps = Rounds::of(&schedule).count();
            let tally = Layout::new(schedule, count, 4).tally();
            let expected = [
                ("steps", u64::from(steps)),
                ("messages", tally.messages),
                ("sent", tally.most_sent * 4),
                ("time-ps", cost.time_ps),
                ("latency-ps", cost.latency_ps()),
            ];
            for (name, value) in expected {
                let shown = page
                    .attribute(&format!("algorithm-{algorithm}"), &format!("data-{name}"))
                    .await?;
                assert_eq!(shown, value.to_string(), "{algorithm} {collective}: {name}");
            }
            times.push((cost.time_ps, algorithm));
        }
        let least = times.iter().map(|(time, _)| *time).min();
        for (time, algorithm) in times {
            let marked = page.attribute(&format!("algorithm-{algorithm}"), "data-fastest").await?;
            assert_eq!(marked, (Some(time) == least).to_string(), "{algorithm} {collective}");
        }
        page.browser.screenshot(&format!("algorithms-{collective}-{world_size}")).await?;
    }
    page.close().await
}

/// Two algorithms stand at the same time, or at the same step; the faster one is named.
#[tokio::test]
async fn two_algorithms_side_by_side() -> Result<()> {
    let collective = Collective::AllReduce { op: ReduceOp::Sum };
    let (world_size, count) = (8, 65_536);
    let trace = |algorithm| -> Result<lockstep_core::trace::Trace> {
        let lab = CollectiveLab::new(collective, world_size, count);
        Ok(simulate(&CollectiveLab { algorithm, ..lab }.plan()?, &SimConfig::default())?)
    };
    let traces = [trace(Algorithm::Ring)?, trace(Algorithm::Tree)?];
    let ends = traces.each_ref().map(|trace| trace.end.as_ref().map_or(0, |end| end.time_ps));
    let page = Page::open("#/algorithms?world=8&count=65536&a=ring&b=tree").await?;
    page.click("side-by-side").await?;
    page.until("side", "data-ready", "true").await?;
    page.until("difference", "data-faster", if ends[0] < ends[1] { "ring" } else { "tree" })
        .await?;
    for (half, end) in [("half-a", ends[0]), ("half-b", ends[1])] {
        page.until(half, "data-end-ps", &end.to_string()).await?;
    }
    // One scrub bar moves both to one time.
    page.scrub(5).await?;
    page.until("transport", "data-moment", "5").await?;
    let time = page.attribute("half-a", "data-time-ps").await?;
    assert_eq!(time, page.attribute("half-b", "data-time-ps").await?);
    ensure!(time != "0", "scrubbing moves the time");
    page.browser.screenshot("side-by-side").await?;
    page.click("end").await?;
    page.until("half-a", "data-done", "true").await?;
    page.until("half-b", "data-done", "true").await?;
    // By step: each side stands where its own step begins.
    page.go("#/step").await?;
    page.go("#/algorithms/side?world=8&count=65536&a=ring&b=tree&by=step&moment=4").await?;
    page.until("transport", "data-moment", "4").await?;
    for (half, trace) in ["half-a", "half-b"].into_iter().zip(&traces) {
        let begins =
            trace.events.iter().filter(|event| matches!(event.what, What::Sent { step: 4, .. }));
        let begins = begins.map(|event| event.time_ps).min().context("a fifth step")?;
        page.until(half, "data-time-ps", &begins.to_string()).await?;
    }
    // What switches add up by themselves is no step: nvls has four, and sharp two.
    page.go("#/step").await?;
    page.go("#/algorithms/side?world=8&a=sharp&b=nvls&by=step&moment=1").await?;
    page.until("transport", "data-last", "4").await?;
    page.browser
        .until(
            "the same step",
            "return document.querySelector('[data-test=place]').innerText.includes('step 2 / 4')",
        )
        .await?;
    for (half, says) in [("half-a", "Step 2 of 2"), ("half-b", "Step 2 of 4")] {
        let script = format!(
            "return document.querySelector('[data-test={half}] .told').innerText.startsWith('{says}')"
        );
        page.browser.until(says, &script).await?;
    }
    page.close().await
}

/// Cells, groups and traffic of a mesh are those of `init_device_mesh` and the simulator.
#[tokio::test]
async fn a_mesh_is_laid_out_as_pytorch_does() -> Result<()> {
    let (shape, names) = ([2u32, 2, 4], ["pp", "dp", "tp"]);
    let mut job = Job::new("mesh", 16)?;
    let (mut places, mut groups) = (Vec::new(), vec![Vec::new(); 3]);
    job.run(|dist| {
        let mesh = dist.init_device_mesh("cpu", &shape, Some(&names))?;
        places.push(mesh.get_coordinate().unwrap_or_default().to_vec());
        for (all, group) in groups.iter_mut().zip(mesh.get_all_groups()?) {
            let ranks = dist.get_process_group_ranks(group)?;
            if !all.contains(&ranks) {
                all.push(ranks);
            }
        }
        Ok(())
    });
    let page = Page::open("#/mesh?dims=pp%3D2,dp%3D2,tp%3D4&node=4&count=4096").await?;
    page.until("mesh", "data-ready", "true").await?;
    for (rank, place) in places.iter().enumerate() {
        let place = names.iter().zip(place).map(|(name, at)| format!("{name}{at}"));
        let place = place.collect::<Vec<_>>().join(",");
        assert_eq!(page.attribute(&format!("cell-{rank}"), "data-place").await?, place);
    }
    let link =
        |ns: u64, gb: u64| Link { latency_ps: ns * 1000, bytes_per_second: gb * 1_000_000_000 };
    let topology =
        Topology::Nodes { ranks_per_node: 4, inside: link(2000, 300), across: link(5000, 25) };
    for (name, groups) in names.iter().zip(groups) {
        let lab = GroupsLab {
            world_size: 16,
            ranks_per_node: 4,
            groups,
            collective: Collective::AllReduce { op: ReduceOp::Sum },
            algorithm: Algorithm::Ring,
            count: 4096,
            dtype: Dtype::Float32,
            timeout_ms: 86_400_000,
        };
        let plan = lab.plan()?;
        let trace = simulate(&plan, &SimConfig { topology, ..SimConfig::default() })?;
        let mut bytes = [0; 2];
        for event in &trace.events {
            if let What::Sent { peer, bytes: sent, .. } = event.what {
                bytes[usize::from(event.rank.0 / 4 != peer.0 / 4)] += sent;
            }
        }
        let row = format!("dim-{name}");
        assert_eq!(page.attribute(&row, "data-inside").await?, bytes[0].to_string(), "{name}");
        assert_eq!(page.attribute(&row, "data-across").await?, bytes[1].to_string(), "{name}");
        let time = Cost::of(&plan, topology)?.time_ps;
        assert_eq!(page.attribute(&row, "data-time-ps").await?, time.to_string(), "{name}");
    }
    // Choosing a rank shows its peers along every dimension.
    page.click("cell-5").await?;
    for (rank, along) in [(4, "tp"), (7, "tp"), (1, "dp"), (13, "pp"), (0, "")] {
        page.until(&format!("cell-{rank}"), "data-peer", along).await?;
    }
    page.browser.screenshot("mesh").await?;
    page.go("#/step").await?;
    page.go("#/mesh?dims=tp%3D4,tp%3D2").await?;
    let wrong = page
        .browser
        .until("a refusal", "return document.querySelector('[data-test=mesh-wrong]')?.innerText")
        .await?;
    ensure!(wrong.as_str().is_some_and(|wrong| wrong.contains("unique")), "{wrong}");
    page.close().await
}
