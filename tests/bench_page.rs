//! The page's speed, in headless Chromium with software drawing: time to a page that answers,
//! frame time while a 64-rank ring all_reduce plays, and simulated messages a second beside the
//! native figure. `cargo xtask bench --only page` runs it; it prints a Markdown table.

use anyhow::{Context, Result};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::reduce::ReduceOp;
use lockstep_sim::{SimConfig, simulate};
use lockstep_tests::{Browser, Service};
use serde_json::Value;
use std::time::Instant;

/// Ranks of the simulation that is timed: 130,560 messages.
const TIMED_WORLD: u32 = 256;
const ROUNDS: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let service = Service::start();
    if let Some(folder) = std::env::var_os("LOCKSTEP_DUMPS") {
        return recording(&service, folder.as_ref()).await;
    }
    println!("| what | figure |\n| --- | --- |");
    first_view(&service).await?;
    println!(
        "| from navigation to the first step drawn | {:.0} ms |",
        until_drawn(&service).await?
    );
    println!(
        "| all algorithms of a 64-rank all_reduce counted, and timed at 15 sizes | {:.0} ms |",
        until_compared(&service).await?
    );
    let ring = "#/step?collective=all_reduce&algorithm=ring&world=64&count=1024";
    let both = "#/algorithms/side?collective=all_reduce&a=ring&b=two_shot&world=64&count=1024";
    for (what, address) in [("a 64-rank ring plays", ring), ("two play side by side", both)] {
        let frames = frames(&service, address).await?;
        let at = |share: f64| frames[((frames.len() - 1) as f64 * share) as usize];
        println!(
            "| frame time while {what} (median, 95th percentile, worst of {}) | \
             {:.1} ms, {:.1} ms, {:.1} ms |",
            frames.len(),
            at(0.5),
            at(0.95),
            at(1.0)
        );
    }
    ddp(&service).await?;
    let messages = 2 * u64::from(TIMED_WORLD) * u64::from(TIMED_WORLD - 1);
    let rate = |seconds: f64| messages as f64 / seconds / 1e6;
    let (wasm, native) = (in_wasm(&service).await?, natively()?);
    println!(
        "| messages simulated, recorded and encoded, {TIMED_WORLD} ranks | {:.2} M/s in the page, \
         {:.2} M/s natively: {:.2} times |",
        rate(wasm),
        rate(native),
        wasm / native
    );
    Ok(())
}

/// 10 Mbit/s, and the way to a server in the same country and back.
const SLOW_BYTES_A_SECOND: u64 = 10_000_000 / 8;
const SLOW_LATENCY_MS: u64 = 40;

/// Medians from navigation on with an empty cache over a slow network: until there is something to
/// read, until the page answers, and until its engine has simulated what the home shows. And how
/// often each file was asked for.
async fn first_view(service: &Service) -> Result<()> {
    let (mut painted, mut answers, mut simulated) = (Vec::new(), Vec::new(), Vec::new());
    let mut asked = Value::Null;
    for _ in 0..ROUNDS {
        // A browser of its own, so that nothing is kept.
        let browser = Browser::start().await?;
        browser.client.goto("about:blank").await?;
        browser.throttle(SLOW_BYTES_A_SECOND, SLOW_LATENCY_MS).await?;
        browser.client.goto(&service.page("")).await?;
        let home = "return document.querySelector('#page .boot') ? null : performance.now()";
        let number = |value: Value| value.as_f64().context("a number");
        answers.push(number(browser.until("the home", home).await?)?);
        let first =
            "return document.querySelector('.moving .now')?.textContent ? performance.now() : null";
        simulated.push(number(browser.until("the first simulation", first).await?)?);
        let paint = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
        painted.push(number(browser.until("the first paint", paint).await?)?);
        let files = "const times = {};
            for (const { name } of performance.getEntriesByType('resource')) times[name] = (times[name] ?? 0) + 1;
            return Object.entries(times).filter(([_, times]) => times > 1)";
        asked = browser.run(files).await?;
        browser.close().await?;
    }
    println!(
        "| first view, empty cache, 10 Mbit/s and {SLOW_LATENCY_MS} ms: something to read, the page \
         answers, the engine has simulated | {:.0} ms, {:.0} ms, {:.0} ms |",
        median(painted),
        median(answers),
        median(simulated)
    );
    println!("| files that the page asked for more than once | {asked} |");
    Ok(())
}

/// Median milliseconds until the first step is on the screen, with a warm cache.
async fn until_drawn(service: &Service) -> Result<f64> {
    let browser = Browser::start().await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        browser.client.goto("about:blank").await?;
        let start = Instant::now();
        browser.client.goto(&service.page("#/step?world=8")).await?;
        let drawn =
            "return document.querySelector('[data-test=transport]')?.dataset.moment === '1'";
        browser.until("the first step", drawn).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    browser.close().await?;
    Ok(median(times))
}

/// Median milliseconds until every card and curve of the gallery is there, with a warm cache.
async fn until_compared(service: &Service) -> Result<f64> {
    let browser = Browser::start().await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        browser.client.goto("about:blank").await?;
        let start = Instant::now();
        browser.client.goto(&service.page("#/algorithms?world=64")).await?;
        let ready =
            "return document.querySelector('[data-test=algorithms]')?.dataset.ready === 'true'";
        browser.until("every algorithm", ready).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    browser.close().await?;
    Ok(median(times))
}

/// Milliseconds between frames while the page plays, sorted.
async fn frames(service: &Service, address: &str) -> Result<Vec<f64>> {
    let browser = Browser::start().await?;
    browser.client.goto(&service.page(address)).await?;
    let drawn = "return document.querySelector('[data-test=transport]')?.dataset.moment === '1'";
    browser.until("the first step", drawn).await?;
    browser
        .run(
            "window.frames_ms = []; let last = performance.now();
             const tick = now => {
                 window.frames_ms.push(now - last); last = now;
                 const at = document.querySelector('[data-test=transport]').dataset;
                 if (at.playing === 'true' || window.frames_ms.length < 30) requestAnimationFrame(tick);
                 else window.frames_done = true;
             };
             document.querySelector('[data-test=play]').click();
             requestAnimationFrame(tick)",
        )
        .await?;
    let done = "return window.frames_done || window.frames_ms.length > 600";
    browser.until("the end of the playing", done).await?;
    let frames = browser.run("return window.frames_ms").await?;
    let frames = frames.as_array().context("a list")?.iter().filter_map(Value::as_f64);
    // The first interval holds the click.
    let mut frames: Vec<f64> = frames.skip(1).collect();
    frames.sort_by(f64::total_cmp);
    browser.close().await?;
    Ok(frames)
}

/// The dumps of a large job, from the choice of the files to the findings, with the longest time in
/// which the page drew nothing. Instead of all else where `LOCKSTEP_DUMPS` names their folder, as
/// `cargo xtask bench --only diagnosis` does.
async fn recording(service: &Service, folder: &std::path::Path) -> Result<()> {
    let mut files: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
        .collect();
    files.sort();
    let browser = Browser::start().await?;
    browser.client.goto(&service.page("#/recording")).await?;
    let place = fantoccini::Locator::Css("[data-test=pick-files]");
    let input = browser.client.wait().for_element(place).await?;
    browser
        .run(
            "window.worst_ms = 0; window.took = null; let last = performance.now(), start = null;
             document.querySelector('[data-test=pick-files]')
                 .addEventListener('change', () => start = performance.now(), true);
             const look = now => {
                 if (start !== null) window.worst_ms = Math.max(window.worst_ms, now - last);
                 last = now;
                 const stage = document.querySelector('[data-test=recording]').dataset.stage;
                 const over = stage === 'open' || stage === 'failed';
                 if (start !== null && over) { window.took = now - start; window.stage = stage; }
                 else requestAnimationFrame(look);
             };
             requestAnimationFrame(look)",
        )
        .await?;
    input.send_keys(&files.join("\n")).await?;
    let took = browser.until("the findings", "return window.took").await?;
    anyhow::ensure!(browser.run("return window.stage").await? == "open", "the dumps do not open");
    let worst = browser.run("return window.worst_ms").await?;
    println!(
        "in the page: {} dumps opened, diagnosed and drawn in {:.1} s; the longest that it drew nothing: \
         {:.0} ms",
        files.len(),
        took.as_f64().context("a number")? / 1e3,
        worst.as_f64().context("a number")?
    );
    browser.close().await
}

/// The DDP lab: GPT-2 XL on 1,024 ranks, in closed form and simulated; a sweep; frames.
async fn ddp(service: &Service) -> Result<()> {
    let browser = Browser::start().await?;
    browser.client.goto(&service.page("#/ddp?model=gpt2-xl&world=512")).await?;
    let ready = "return document.querySelector('[data-test=ddp]')?.dataset.ready === 'true'";
    browser.until("the lab", ready).await?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        // Another batch each time, so that nothing is known already.
        let script = format!(
            "window.took = null; const start = performance.now();
             location.hash = '#/ddp?model=gpt2-xl&world=1024&batch={}';
             let left = false;
             const look = () => {{
                 const ready = document.querySelector('[data-test=ddp]').dataset.ready === 'true';
                 left = left || !ready;
                 if (left && ready) window.took = performance.now() - start;
                 else requestAnimationFrame(look);
             }};
             requestAnimationFrame(look)",
            round + 8
        );
        browser.run(&script).await?;
        let took = browser.until("the pass", "return window.took").await?;
        times.push(took.as_f64().context("a number")?);
    }
    println!(
        "| three passes of GPT-2 XL on 1,024 ranks planned, timed in closed form, the last told \
         gradient by gradient and drawn | {:.0} ms |",
        median(times)
    );
    browser.run("document.querySelector('[data-test=check-run]').click()").await?;
    let checked = "return document.querySelector('[data-test=check]')?.dataset.ms";
    let ms = browser.until("the simulator", &format!("{checked} || null")).await?;
    println!(
        "| the same three passes simulated on all 1,024 ranks | {:.1} s |",
        ms.as_str().context("a text")?.parse::<f64>()? / 1e3
    );
    for model in ["resnet18", "gpt2-xl"] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            browser.client.goto("about:blank").await?;
            let address = service.page(&format!("#/ddp?model={model}&world=64&tab=sweep"));
            browser.client.goto(&address).await?;
            let swept = "const sweep = document.querySelector('[data-test=sweep]');
                return sweep?.dataset.ready === 'true' && sweep.dataset.ms !== '0' ? sweep.dataset.ms : null";
            let ms = browser.until("the sweep", swept).await?;
            times.push(ms.as_str().context("a text")?.parse::<f64>()?);
        }
        println!(
            "| sweep of 40 points, {model} on 64 ranks, from the question to the curves | {:.0} ms |",
            median(times)
        );
    }
    browser.close().await?;
    let frames = frames(service, "#/ddp?model=gpt2-xl&world=1024&moment=1").await?;
    let at = |share: f64| frames[((frames.len() - 1) as f64 * share) as usize];
    println!(
        "| frame time while a pass of GPT-2 XL plays, 732 moments (median, 95th percentile, worst of \
         {}) | {:.1} ms, {:.1} ms, {:.1} ms |",
        frames.len(),
        at(0.5),
        at(0.95),
        at(1.0)
    );
    Ok(())
}

fn timed_plan() -> Result<lockstep_core::plan::Plan> {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    Ok(CollectiveLab::new(sum, TIMED_WORLD, u64::from(TIMED_WORLD)).plan()?)
}

/// Median seconds that the page's worker takes for the plan's trace.
async fn in_wasm(service: &Service) -> Result<f64> {
    let browser = Browser::start().await?;
    browser.client.goto(&service.page("")).await?;
    browser.until("the page", "return !!window.lockstep_trace_of").await?;
    let plan = serde_json::to_string(&timed_plan()?.to_json())?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let script = format!(
            "window.took = null; const start = performance.now();
             window.lockstep_trace_of({plan}).then(() => window.took = performance.now() - start)"
        );
        browser.run(&script).await?;
        let took = browser.until("the trace", "return window.took").await?;
        times.push(took.as_f64().context("a number")? / 1e3);
    }
    browser.close().await?;
    Ok(median(times))
}

/// Median seconds for the same, natively.
fn natively() -> Result<f64> {
    let plan = timed_plan()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(simulate(&plan, &SimConfig::default())?.to_bytes());
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
