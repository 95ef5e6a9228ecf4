//! Stepping, and its addresses.

use anyhow::{Context, Result, ensure};
use fantoccini::key::Key;
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Fill;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::What;
use lockstep_scenarios::TorchCallOptions;
use lockstep_sim::{Session, SimConfig, simulate};
use lockstep_tests::Page;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn step_through_a_collective() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=4&count=8&algorithm=ring").await?;
    page.until("transport", "data-moment", "1").await?;
    page.browser.screenshot("step").await?;
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

/// At every moment, on every rank, the page shows the simulator's values.
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
    page.browser.run(watched).await?;
    page.until("transport", "data-last", "253").await?;
    page.until("transport", "data-moment", "1").await?;
    // What would go on for ever goes on while this is asked for again and again.
    for _ in 0..20 {
        assert_eq!(page.moment().await?, 1);
    }
    let writes = page.browser.run("return writes").await?;
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
        page.browser.screenshot(&format!("step-64-{collective}")).await?;
        page.close().await?;
    }
    Ok(())
}

/// An impossible request in an address is named, with ways on; it is not replaced in silence.
#[tokio::test]
async fn an_address_that_cannot_be_is_answered() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=100000").await?;
    page.until("unmet", "data-count", "1").await?;
    let address = "return location.hash";
    ensure!(page.browser.run(address).await? == json!("#/step?collective=all_reduce&world=100000"));
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
        page.browser.run(&format!("location.hash = '{hash}'")).await?;
        page.browser
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

/// Every call of torch.distributed, on every backend that it names, is stepped through with as
/// many moments as we simulate; a refusal is PyTorch's.
#[tokio::test]
async fn every_call_can_be_stepped_through() -> Result<()> {
    let page = Page::open("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    for call in lockstep_scenarios::torch_calls() {
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
            page.browser.until(&hash, &set).await?;
            page.until("step-call", "data-call", call.name).await?;
            let ready = format!(
                "const call = document.querySelector('[data-test=step-call]');
                 return call?.dataset.ready === 'true' && call.dataset.backend === '{backend}'
                     && document.querySelector('[data-test=transport]')?.dataset.last === '{last}'
                     && location.hash.includes('moment=')"
            );
            let waited = page.browser.until(&format!("{hash} with {last} moments"), &ready).await;
            if waited.is_err() {
                let stands = "return JSON.stringify([location.hash,
                    document.querySelector('[data-test=step-call]')?.dataset,
                    document.querySelector('[data-test=transport]')?.dataset])";
                let stands = page.browser.run(stands).await?;
                waited.with_context(|| stands.to_string())?;
            }
        }
    }
    page.browser.screenshot("step-call").await?;
    page.go("#/step?call=all_reduce&backend=gloo&op=AVG").await?;
    page.until("step-call", "data-refused", "true").await?;
    let said = page.text("sentence").await?;
    ensure!(said.contains("Cannot use ReduceOp.AVG with Gloo"), "{said}");
    page.close().await
}

/// An address that the browser did not take, since it changed too often, is written later.
#[tokio::test]
async fn an_address_that_was_not_taken_is_written_again() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=4").await?;
    let moment = |moment: usize| format!("return location.hash.includes('moment={moment}')");
    page.browser.until("the first moment", &moment(1)).await?;
    // Chromium takes 200 in ten seconds.
    let often = "for (let at = 0; at < 400; at++) history.replaceState(null, '', location.hash)";
    page.browser.run(often).await?;
    let last = page.attribute("transport", "data-last").await?;
    let last: usize = last.as_str().context("no last moment")?.parse()?;
    page.click("end").await?;
    page.browser.until("the last moment", &moment(last)).await?;
    page.click("back").await?;
    page.browser.until("the moment before", &moment(last - 1)).await?;
    page.close().await
}

/// The answers of works are listed, and a stream that waits is not a process that waits.
#[tokio::test]
async fn works_answer_and_streams_have_rows() -> Result<()> {
    let page = Page::open("#/step?call=async_op&backend=nccl").await?;
    let call = lockstep_scenarios::torch_call("async_op").context("async_op")?;
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
    let frames = page.browser.client.execute_async(script, vec![]);
    let frames = tokio::time::timeout(Duration::from_secs(60), frames).await??;
    ensure!(frames.as_u64().is_some_and(|frames| frames >= 5), "{frames} frames for 5 moments");
    page.close().await
}

/// A schedule along a tree is drawn as one; a chunk is clicked, and an addition is shown where it happens.
#[tokio::test]
async fn a_tree_is_drawn_and_additions_are_shown() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=8&algorithm=tree").await?;
    page.until("ring", "data-trees", "1").await?;
    page.browser.screenshot("step-tree").await?;
    page.go("#/step?collective=all_reduce&world=4&algorithm=ring").await?;
    page.until("ring", "data-trees", "0").await?;
    page.until("transport", "data-moment", "1").await?;
    let forward = "document.activeElement.blur();
        window.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        return document.querySelector('[data-added]')?.dataset.added";
    let added = page.browser.until("an addition", forward).await?;
    let added = added.as_str().unwrap_or_default();
    let numbers: Vec<f64> =
        added.split([' ', '+', '→']).filter_map(|word| word.parse().ok()).collect();
    ensure!(numbers.len() == 3 && (numbers[0] + numbers[1] - numbers[2]).abs() < 1e-3, "{added:?}");
    page.browser.screenshot("step-addition").await?;
    page.click("chunk").await?;
    page.until("about-chunk", "data-chunk", "0").await?;
    page.close().await
}
