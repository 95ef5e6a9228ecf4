//! The four uses of Lockstep, on the real page in headless Chromium against the real binary; and
//! that the browser simulates the same bytes as we do.
//!
//! What is looked at has a `data-test` attribute in the page. `LOCKSTEP_SCREENSHOTS=FOLDER` keeps
//! a picture of each use.

use anyhow::{Context, Result, bail, ensure};
use fantoccini::Locator;
use fantoccini::key::Key;
use lockstep_core::c10d::Job;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::scenario::{self, CollectiveLab, GroupsLab, ScenarioOptions, TorchCallOptions};
use lockstep_core::schedule::{
    Algorithm, Layout, ProvedTable, Rounds, Schedule, ScheduleError, msccl,
};
use lockstep_core::trace::What;
use lockstep_sim::{Cost, Link, Session, SimConfig, Topology, simulate};
use lockstep_tests::{Page, data};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn step_through_a_collective() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=4&count=8&algorithm=ring").await?;
    page.until("transport", "data-moment", "1").await?;
    page.chromium.screenshot("step").await?;
    let last: usize =
        page.attribute("transport", "data-last").await?.as_str().context("a number")?.parse()?;
    // By mouse: forward and back, and to both ends.
    page.click("forward").await?;
    page.until("transport", "data-moment", "2").await?;
    page.click("back").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("start").await?;
    page.until("transport", "data-moment", "0").await?;
    assert_eq!(page.values().await?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    page.click("end").await?;
    page.until("transport", "data-moment", &last.to_string()).await?;
    // Rank r starts with r * 8 + i: their sum is 8 * (0 + 1 + 2 + 3) + 4 * i.
    let sums: Vec<f32> = (0..8).map(|i| 48.0 + 4.0 * i as f32).collect();
    assert_eq!(page.values().await?, sums);
    // By keyboard.
    page.press(Key::Left.into()).await?;
    page.until("transport", "data-moment", &(last - 1).to_string()).await?;
    page.press(Key::Home.into()).await?;
    page.until("transport", "data-moment", "0").await?;
    page.press(Key::Right.into()).await?;
    page.until("transport", "data-moving", "false").await?;
    assert_eq!(page.moment().await?, 1);
    page.press(Key::End.into()).await?;
    page.until("transport", "data-moment", &last.to_string()).await?;
    // Scrubbed.
    page.scrub(3).await?;
    page.until("transport", "data-moment", "3").await?;
    // Played to its end.
    page.press(' ').await?;
    page.until("transport", "data-playing", "true").await?;
    page.until("transport", "data-moment", &last.to_string()).await?;
    page.until("transport", "data-playing", "false").await?;
    assert_eq!(page.values().await?, sums);
    page.close().await
}

/// At every moment, on every rank, the page shows what the simulator holds.
#[tokio::test]
async fn the_values_are_right_at_every_step() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=3&count=6&fill=seeded").await?;
    let lab = CollectiveLab::new(Collective::AllReduce { op: ReduceOp::Sum }, 3, 6);
    let lab = CollectiveLab { fill: Fill::Seeded { seed: 1 }, ..lab };
    let mut session = Session::new(&lab.plan()?, SimConfig::default())?;
    session.run_to_end()?;
    page.until("transport", "data-moment", "1").await?;
    for moment in 0..session.moments().len() {
        session.seek(moment)?;
        let (rank, tensor) = (lockstep_core::rank::GlobalRank(0), lockstep_core::plan::TensorId(0));
        let bytes = session.tensor(rank, tensor).context("values")?;
        let held: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element)).collect();
        page.scrub(moment).await?;
        page.until("transport", "data-moment", &moment.to_string()).await?;
        assert_eq!(page.values().await?, held, "moment {moment}");
    }
    page.close().await
}

/// An address without a moment, opened where another simulation stands at its end: the two must
/// not write over each other's moment for ever.
#[tokio::test]
async fn another_address_begins_at_its_own_moment() -> Result<()> {
    let page = Page::open("#/step?world=17&count=5").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("end").await?;
    // Chunks of no elements arrive sooner than others: twice 2 * 16 steps, and the start.
    page.until("transport", "data-moment", "65").await?;
    let watched = "window.writes = 0; const replace = history.replaceState;
        history.replaceState = function(...to) { writes += 1; return replace.apply(this, to) };
        location.hash = '#/step?world=64&count=5'";
    page.chromium.run(watched).await?;
    page.until("transport", "data-last", "253").await?;
    page.until("transport", "data-moment", "1").await?;
    // What would go on for ever goes on while this is asked for again and again.
    for _ in 0..20 {
        assert_eq!(page.moment().await?, 1);
    }
    let writes = page.chromium.run("return writes").await?;
    ensure!(writes.as_u64().is_some_and(|writes| writes < 10), "{writes} writes of the address");
    page.close().await
}

#[tokio::test]
async fn large_worlds_are_shown_too() -> Result<()> {
    for collective in ["all_reduce", "all_to_all", "broadcast", "barrier"] {
        let page = Page::open(&format!("#/step?collective={collective}&world=64&count=64")).await?;
        page.until("transport", "data-moment", "1").await?;
        page.click("forward").await?;
        page.until("transport", "data-moment", "2").await?;
        page.chromium.screenshot(&format!("step-64-{collective}")).await?;
        page.close().await?;
    }
    Ok(())
}

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

/// What an address asks for that cannot be is said, with ways on; it is not replaced in silence.
#[tokio::test]
async fn an_address_that_cannot_be_is_answered() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=100000").await?;
    page.until("unmet", "data-count", "1").await?;
    let address = "return location.hash";
    ensure!(
        page.chromium.run(address).await? == json!("#/step?collective=all_reduce&world=100000")
    );
    page.click("way-on").await?;
    page.until("transport", "data-moment", "1").await?;
    for (hash, says) in [
        ("#/step?call=allreduce", "all_reduce"),
        ("#/step?collective=all_reduce&algorithm=star", "no such algorithm"),
        ("#/hangs/skipped-all-reduce?world=1", "3 to 32 ranks"),
        ("#/algorithms?collective=all_redcue", "collective=all_reduce"),
        ("#/algorithms?world=1", "2 to 64 ranks"),
        ("#/algorithms?count=99999999999999999999", "count=268435456"),
        ("#/algorithms/side?a=nosuch", "no such algorithm"),
        ("#/algorithms/sdie", "algorithms/side"),
        ("#/mesh?rank=99", "no such rank"),
    ] {
        page.chromium.run(&format!("location.hash = '{hash}'")).await?;
        page.chromium
            .until(hash, &format!("return document.querySelector('[data-test=unmet]')?.innerText.includes('{says}')"))
            .await?;
    }
    for (hash, says) in [
        ("#/step?call=recv_any_source&backend=nccl", "ProcessGroupNCCL does not support"),
        ("#/step?call=all_reduce&backend=ucc", "Unknown c10d backend type UCC"),
        ("#/step?call=send&world=1", "2"),
    ] {
        page.go(hash).await?;
        page.until("step-call", "data-refused", "true").await?;
        let said = page.text("sentence").await?;
        ensure!(said.contains(says), "{hash}: {said}");
    }
    page.click("way-on").await?;
    page.until("transport", "data-moment", "1").await?;
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
        page.chromium.screenshot(&format!("algorithms-{collective}-{world_size}")).await?;
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
    page.chromium.screenshot("side-by-side").await?;
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
    page.chromium
        .until(
            "the same step",
            "return document.querySelector('[data-test=place]').innerText.includes('step 2 / 4')",
        )
        .await?;
    for (half, says) in [("half-a", "Step 2 of 2"), ("half-b", "Step 2 of 4")] {
        let script = format!(
            "return document.querySelector('[data-test={half}] .told').innerText.startsWith('{says}')"
        );
        page.chromium.until(says, &script).await?;
    }
    page.close().await
}

/// Every call of torch.distributed, on every backend that it names, is stepped through with as
/// many moments as we simulate; a refusal is PyTorch's.
#[tokio::test]
async fn every_call_can_be_stepped_through() -> Result<()> {
    let page = Page::open("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    for call in scenario::torch_calls() {
        for backend in call.backends {
            let options = TorchCallOptions { backend: (*backend).to_owned(), ..call.options() };
            let mut session = Session::new(&call.plan(&options)?, SimConfig::default())?;
            session.run_to_end()?;
            let last = session.moments().len() - 1;
            let world = options.world_size;
            let hash = format!("#/step?call={}&backend={backend}&world={world}", call.name);
            // A browser takes only so many changes of the address in a time.
            let set = format!(
                "if (!location.hash.startsWith('{hash}')) location.hash = '{hash}';
                 return location.hash.startsWith('{hash}')"
            );
            page.chromium.until(&hash, &set).await?;
            page.until("step-call", "data-call", call.name).await?;
            let ready = format!(
                "const call = document.querySelector('[data-test=step-call]');
                 return call?.dataset.ready === 'true' && call.dataset.backend === '{backend}'
                     && document.querySelector('[data-test=transport]')?.dataset.last === '{last}'
                     && location.hash.includes('moment=')"
            );
            let waited = page.chromium.until(&format!("{hash} with {last} moments"), &ready).await;
            if waited.is_err() {
                let stands = "return JSON.stringify([location.hash,
                    document.querySelector('[data-test=step-call]')?.dataset,
                    document.querySelector('[data-test=transport]')?.dataset])";
                let stands = page.chromium.run(stands).await?;
                waited.with_context(|| stands.to_string())?;
            }
        }
    }
    page.chromium.screenshot("step-call").await?;
    page.go("#/step?call=all_reduce&backend=gloo&op=AVG").await?;
    page.until("step-call", "data-refused", "true").await?;
    let said = page.text("sentence").await?;
    ensure!(said.contains("Cannot use ReduceOp.AVG with Gloo"), "{said}");
    page.close().await
}

/// What the browser did not take, since the address changed too often, is written later.
#[tokio::test]
async fn an_address_that_was_not_taken_is_written_again() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=4").await?;
    let moment = |moment: usize| format!("return location.hash.includes('moment={moment}')");
    page.chromium.until("the first moment", &moment(1)).await?;
    // Chromium takes 200 in ten seconds.
    let often = "for (let at = 0; at < 400; at++) history.replaceState(null, '', location.hash)";
    page.chromium.run(often).await?;
    let last = page.attribute("transport", "data-last").await?;
    let last: usize = last.as_str().context("no last moment")?.parse()?;
    page.click("end").await?;
    page.chromium.until("the last moment", &moment(last)).await?;
    page.click("back").await?;
    page.chromium.until("the moment before", &moment(last - 1)).await?;
    page.close().await
}

/// What works answered is listed, and a stream that waits is not a process that waits.
#[tokio::test]
async fn works_answer_and_streams_have_rows() -> Result<()> {
    let page = Page::open("#/step?call=async_op&backend=nccl").await?;
    let call = scenario::torch_call("async_op").context("async_op")?;
    let options = TorchCallOptions { backend: "nccl".to_owned(), ..call.options() };
    let trace = simulate(&call.plan(&options)?, &SimConfig::default())?;
    let answered = trace.events.iter().filter(|event| matches!(event.what, What::Answered { .. }));
    let answered = answered.count();
    ensure!(answered > 0, "the program asks");
    page.until("answers", "data-all", &answered.to_string()).await?;
    ensure!(page.text("standing").await?.contains("compute stream"), "no stream is told of");
    // The communication outlasts the computation: the compute stream is seen to wait for it.
    let waits = |from: f64, to: f64| to > 1.2 * from;
    let at = |wanted: fn(&What) -> bool| {
        let found = trace.events.iter().rfind(|event| event.rank.0 == 0 && wanted(&event.what));
        found.map_or(0.0, |event| event.time_ps as f64)
    };
    let computed = trace.events.iter().find(|event| matches!(event.what, What::StreamEnded { .. }));
    let computed = computed.context("a computation")?.time_ps as f64;
    ensure!(waits(computed, at(|what| matches!(what, What::Completed { .. }))), "nothing waits");
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
    page.chromium.screenshot("mesh").await?;
    page.go("#/step").await?;
    page.go("#/mesh?dims=tp%3D4,tp%3D2").await?;
    let wrong = page
        .chromium
        .until("a refusal", "return document.querySelector('[data-test=mesh-wrong]')?.innerText")
        .await?;
    ensure!(wrong.as_str().is_some_and(|wrong| wrong.contains("unique")), "{wrong}");
    page.close().await
}

/// The first connection breaks after its first bytes, while the run waits for its watchdog: the
/// stream is taken up again, and no byte is counted twice.
#[tokio::test]
async fn a_live_stream_survives_a_lost_connection() -> Result<()> {
    let page = Page::open("#/hangs/skipped-all-reduce").await?;
    page.until("findings", "data-verdict", "findings").await?;
    let simulated = page.attribute("finding", "data-culprits").await?;
    let breaks = "const Real = window.WebSocket; window.sockets = 0;
        window.WebSocket = class extends Real {
            constructor(...of) {
                super(...of);
                window.sockets += 1;
                if (window.sockets === 1) this.addEventListener('message', () => this.close(4000));
            }
        }";
    page.chromium.run(breaks).await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    assert_eq!(page.chromium.run("return window.sockets").await?, 2);
    let script = "return [...document.querySelectorAll('[data-test=real-run] [data-test=finding]')]
        .map(finding => finding.dataset.culprits)[0]";
    assert_eq!(page.chromium.until("the real run's finding", script).await?, simulated);
    page.close().await
}

#[tokio::test]
async fn run_it_for_real() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=3&count=1000&fill=seeded").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    page.until("comparison", "data-equal", "true").await?;
    assert_eq!(page.attribute("comparison", "data-tensors").await?, "3");
    assert_eq!(page.attribute("comparison", "data-elements").await?, "3000");
    page.chromium.screenshot("run").await?;
    // It is in the list, and can be opened from there.
    page.click("run-link").await?;
    page.until("comparison", "data-equal", "true").await?;
    page.go("#/runs").await?;
    page.until("runs", "data-count", "1").await?;
    let row = page.text("run-1").await?;
    ensure!(row.contains("completed") && !row.contains("ended"), "{row:?}");
    page.chromium.screenshot("runs").await?;
    // Another backend than the plan's carried it out: that is said.
    page.go("#/step?call=all_reduce&backend=nccl&world=2").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    let said = page.text("stand-in").await?;
    ensure!(said.contains("for nccl") && said.contains("host carried it out"), "{said:?}");
    page.close().await
}

#[tokio::test]
async fn see_a_hang() -> Result<()> {
    let page = Page::open("#/hangs").await?;
    page.chromium.screenshot("hangs").await?;
    let cases = [
        ("skipped-all-reduce", json!([2])),
        ("mismatched-collectives", Value::Null),
        ("opposite-group-order", Value::Null),
    ];
    for (scenario, culprits) in cases {
        page.go("#/hangs").await?;
        page.go(&format!("#/hangs/{scenario}")).await?;
        // Simulated: the finding names ranks, call, sequence number and group.
        page.until("findings", "data-verdict", "findings").await?;
        let found = page.attribute("finding", "data-culprits").await?;
        let named: Vec<Value> = found
            .as_str()
            .unwrap_or_default()
            .split(',')
            .filter_map(|rank| rank.parse::<u32>().ok().map(Value::from))
            .collect();
        ensure!(!named.is_empty(), "{scenario}: no culprit");
        ensure!(
            culprits.is_null() || culprits == Value::from(named.clone()),
            "{scenario}: {named:?}"
        );
        ensure!(page.attribute("finding", "data-op").await?.is_string(), "{scenario}: no call");
        ensure!(page.text("waits").await?.contains("wait"), "{scenario}: nobody waits");
        // Run for real: it ends by its watchdog, with the same finding.
        page.click("run-real").await?;
        page.until("real-run", "data-stage", "ended").await?;
        let outcome = page.text("run-outcome").await?;
        ensure!(outcome.to_lowercase().contains("time"), "{scenario}: {outcome:?}");
        let script =
            "return [...document.querySelectorAll('[data-test=real-run] [data-test=finding]')]
            .map(finding => finding.dataset.culprits)[0]";
        let real = page.chromium.until("the real run's finding", script).await?;
        ensure!(real == found, "{scenario}: simulated {found}, ran {real}");
        page.chromium.screenshot(&format!("hang-{scenario}")).await?;
    }
    page.close().await
}

/// A program whose proof fails is shown at the step of its first wrong chunk, in the words of the
/// native proof; the right one can be stepped through.
#[tokio::test]
async fn check_a_schedule_of_ones_own() -> Result<()> {
    let all_reduce = Collective::AllReduce { op: ReduceOp::Sum };
    let right = msccl::write(&Schedule::new(all_reduce, Algorithm::Ring, 4)?)?;
    let wrong = right.replacen("type=\"rrc\"", "type=\"r\"", 1);
    let table = Arc::new(msccl::read(&wrong)?);
    let error = match ProvedTable::new((*table).clone()) {
        Err(ScheduleError::Refused { error, .. }) => error,
        other => bail!("the wrong program was not refused: {other:?}"),
    };
    let refusal = error.to_string();
    let loss = ProvedTable::loss(&table, &error).context("nothing was lost")?;
    let folder = tempfile::tempdir()?;
    let page = Page::open("#/algorithms/file").await?;
    for (name, text, proved) in [("wrong.xml", &wrong, "false"), ("right.xml", &right, "true")] {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        let input = page.chromium.client.find(Locator::Css("[data-test=pick-schedule]")).await?;
        input.send_keys(&path.display().to_string()).await?;
        page.until("schedule-verdict", "data-proved", proved).await?;
        let said = page.text("schedule-verdict").await?;
        if proved == "false" {
            ensure!(said.contains(&refusal), "{said:?} is not {refusal:?}");
            ensure!(said.contains(&loss.to_string()), "{said:?} does not say {loss}");
            page.until("schedule-step", "data-step", &(loss.step + 1).to_string()).await?;
            let wrote = page.text("wrong-chunk").await?;
            ensure!(wrote == loss.wrote, "{wrote:?} is not {loss:?}");
            page.click("schedule-to-result").await?;
            let step = error.step().context("the result was never written")?;
            page.until("schedule-step", "data-step", &(step + 1).to_string()).await?;
            let held = page.text("wrong-chunk").await?;
            ensure!(refusal.contains(&held), "{held:?} is not in {refusal:?}");
        } else {
            ensure!(said.contains("24 messages"), "{said:?}");
            page.until("transport", "data-moment", "1").await?;
        }
    }
    let bad = folder.path().join("no.xml");
    std::fs::write(&bad, "<html></html>")?;
    let input = page.chromium.client.find(Locator::Css("[data-test=pick-schedule]")).await?;
    input.send_keys(&bad.display().to_string()).await?;
    page.until("schedule-error", "data-test", "schedule-error").await?;
    page.close().await
}

/// A file that is dropped on a view without a place for it goes to the one that has.
#[tokio::test]
async fn a_dropped_file_finds_its_view() -> Result<()> {
    let page = Page::open("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    let xml = std::fs::read_to_string(data("msccl/ndv4_a2a2ll.xml"))?;
    let drop = |name: &str, text: &str| {
        format!(
            "const held = new DataTransfer();
             held.items.add(new File([{}], {}));
             document.querySelector('main').dispatchEvent(
                 new DragEvent('drop', {{ dataTransfer: held, bubbles: true, cancelable: true }}))",
            json!(text),
            json!(name)
        )
    };
    page.chromium.run(&drop("a2a.xml", &xml)).await?;
    page.until("schedule-verdict", "data-proved", "true").await?;
    page.go("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    page.chromium.run(&drop("rank_0", "this is no dump")).await?;
    page.until("recording", "data-stage", "failed").await?;
    page.close().await
}

#[tokio::test]
async fn open_a_recording() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let cases = [
        ("t215_type_mismatch", "findings", "1"),
        ("t215_never_arrives", "findings", "3"),
        ("t215_cross_group_deadlock", "findings", "1,2"),
        ("t291_healthy", "healthy", ""),
    ];
    for (folder, verdict, culprits) in cases {
        let input = page.chromium.client.find(Locator::Css("[data-test=pick-files]")).await?;
        let mut files: Vec<String> = std::fs::read_dir(data("flight-recorder").join(folder))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file() && path.extension().is_none())
            .map(|path| path.display().to_string())
            .collect();
        files.sort();
        // chromedriver takes several files as lines.
        input.send_keys(&files.join("\n")).await?;
        page.until("findings", "data-verdict", verdict).await?;
        if !culprits.is_empty() {
            page.until("finding", "data-culprits", culprits).await?;
        }
        assert_eq!(page.attribute("open-trace", "data-world").await?, "4");
        page.chromium.screenshot(&format!("recording-{folder}")).await?;
        page.go("#/step").await?;
        page.go("#/recording").await?;
    }
    page.close().await
}

/// NCCL's log, PyTorch's messages and profiles, alone and with dumps: as on the command line, and it
/// is said what came from where.
#[tokio::test]
async fn logs_and_profiles_open_like_dumps() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("train.log");
    std::fs::write(&said, "RuntimeError: Rank 3 exhausted all inputs.\n")?;
    let dumps = |case: &str| -> Vec<std::path::PathBuf> {
        (0..4).map(|rank| data("flight-recorder").join(case).join(format!("rank_{rank}"))).collect()
    };
    let profiles: Vec<_> =
        (0..2).map(|rank| data("kineto").join(format!("kineto_rank{rank}.json"))).collect();
    let with = |files: Vec<std::path::PathBuf>, more: &std::path::Path| {
        files.into_iter().chain([more.to_owned()]).collect::<Vec<_>>()
    };
    let nccl = data("nccl-log/job.log");
    let healthy = dumps("t291_healthy");
    for (files, verdict, kind, note) in [
        (vec![nccl.clone()], "findings", "reduce_op_mismatch", "no clock and no end of a call"),
        (vec![said.clone()], "findings", "ddp_uneven_inputs", ""),
        (profiles.clone(), "healthy", "", "2 of the job's 4 ranks have a profile"),
        (
            with(dumps("t215_ddp_uneven_inputs"), &said),
            "findings",
            "ddp_uneven_inputs",
            "1 message of PyTorch's own",
        ),
        (with(healthy, &nccl), "healthy", "", "NCCL's log tells of"),
    ] {
        let input = page.chromium.client.find(Locator::Css("[data-test=pick-files]")).await?;
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        input.send_keys(&names.join("\n")).await?;
        page.until("findings", "data-verdict", verdict).await?;
        let text = page.text("findings").await?;
        ensure!(text.contains(note), "{names:?}: {note:?} is not in {text}");
        if !kind.is_empty() {
            page.until("finding", "data-kind", kind).await?;
        }
        // As natively.
        let output = lockstep_tests::lockstep(
            ["diagnose".to_owned(), "--json".to_owned()].into_iter().chain(names.clone()),
        );
        let report: Value = serde_json::from_str(&output.out)?;
        let messages = report["findings"].as_array().into_iter().flatten();
        for message in messages.filter_map(|finding| finding["message"].as_str()) {
            ensure!(text.contains(message), "{names:?}: {message:?} is not in {text}");
        }
        page.go("#/step").await?;
        page.go("#/recording").await?;
    }
    page.close().await
}

/// What is dropped before the program is there is kept for it. The page is opened from another one,
/// which drops a file as soon as it can be kept: while the program is still on its way.
#[tokio::test]
async fn a_file_that_is_dropped_early_is_kept() -> Result<()> {
    let page = Page::open("#/runs").await?;
    page.chromium
        .run(
            "window.child = window.open(location.origin + '/#/step');
             const timer = setInterval(() => {
                 if (!Array.isArray(child.lockstep_early)) return;
                 clearInterval(timer);
                 window.early = !child.document.querySelector('[data-test]');
                 const held = new child.DataTransfer();
                 held.items.add(new child.File(['this is no dump'], 'rank_0'));
                 child.dispatchEvent(
                     new child.DragEvent('drop', { dataTransfer: held, cancelable: true }));
                 window.kept = child.lockstep_early.length;
             }, 0)",
        )
        .await?;
    let kept = page.chromium.until("the file to be kept", "return window.kept").await?;
    assert_eq!(kept, json!(1));
    assert_eq!(page.chromium.run("return window.early").await?, json!(true));
    let read = "return child.document.querySelector('[data-test=recording-error]')?.innerText";
    let said = page.chromium.until("the file to be read", read).await?;
    assert!(said.as_str().unwrap_or_default().contains("rank_0"), "{said}");
    assert_eq!(page.chromium.run("return child.lockstep_early").await?, json!(null));
    page.close().await
}

/// The page has no server to ask: everything but real runs still works.
#[tokio::test]
async fn without_a_server_all_but_real_runs_works() -> Result<()> {
    let page = Page::open("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    // The page that is open, and a service that has gone.
    let Page { service, chromium } = page;
    assert_eq!(service.stop(), Some(0));
    chromium.run("location.hash = '#/step?collective=broadcast&world=8'").await?;
    let simulated = "return location.hash.includes('collective=broadcast')
                         && location.hash.includes('moment=')";
    chromium.until("a broadcast", simulated).await?;
    // What executes programs was not fetched before: that is said, and nothing waits for it.
    chromium.run("location.hash = '#/hangs/skipped-all-reduce'").await?;
    let said = "return document.querySelector('[data-test=sentence]')?.innerText
                    .includes('could not be loaded')";
    chromium.until("what is missing", said).await?;
    chromium.close().await
}

#[tokio::test]
async fn the_browser_and_we_make_the_same_trace() -> Result<()> {
    let page = Page::open("#/step").await?;
    let ready = "return typeof window.lockstep_trace_of === 'function'";
    page.chromium.until("the page's door for tests", ready).await?;
    let nodes = |plan: Plan| Plan { ranks_per_node: 2, ..plan };
    let fast = Link { latency_ps: 9_000_000, ..Link::DEFAULT };
    let mut cases: Vec<(Plan, Option<&str>, Topology)> =
        plans()?.into_iter().map(|plan| (plan, None, Topology::default())).collect();
    let Some((first, ..)) = cases.first().cloned() else { return page.close().await };
    cases.push((nodes(first.clone()), None, Topology::nodes(2)));
    cases.push((first, Some("latency=9000"), Topology::Uniform(fast)));
    for (plan, network, topology) in cases {
        let script = "const [plan, network, done] = arguments;
            window.lockstep_trace_of(plan, network ?? undefined).then(bytes => {
                let text = '';
                for (const byte of bytes) text += byte.toString(16).padStart(2, '0');
                done(text);
            }, error => done('error: ' + error));";
        let given = vec![plan.to_json().into(), json!(network)];
        let made = page.chromium.client.execute_async(script, given).await?;
        let config = SimConfig { topology, ..SimConfig::default() };
        let native = simulate(&plan, &config)?.to_bytes();
        let native: String = native.iter().map(|byte| format!("{byte:02x}")).collect();
        let made = made.as_str().unwrap_or_default();
        ensure!(made == native, "{}: {} and {} digits", plan.name, made.len(), native.len());
    }
    page.close().await
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
    for scenario in scenario::all() {
        for repaired in [false, true] {
            let world_size = scenario.min_world_size.max(4);
            let options = ScenarioOptions { world_size, repaired, ..ScenarioOptions::default() };
            plans.push(scenario.plan(&options)?);
        }
    }
    Ok(plans)
}

/// Between two moments of a playing simulation the page is drawn: it moves, it does not jump. How
/// fast is for `cargo xtask bench` to say.
#[tokio::test]
async fn playing_draws_between_the_moments() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=64&count=4096").await?;
    page.until("transport", "data-moment", "1").await?;
    page.press(' ').await?;
    let script = "const done = arguments[0]; let frames = 0;
        const moment = () => Number(document.querySelector('[data-test=transport]').dataset.moment);
        const frame = () => { frames += 1; moment() < 6 ? requestAnimationFrame(frame) : done(frames) };
        requestAnimationFrame(frame);";
    let frames = page.chromium.client.execute_async(script, vec![]);
    let frames = tokio::time::timeout(Duration::from_secs(60), frames).await??;
    ensure!(frames.as_u64().is_some_and(|frames| frames >= 5), "{frames} frames for 5 moments");
    page.close().await
}
