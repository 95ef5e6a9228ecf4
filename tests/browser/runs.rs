//! Real runs, live streams and hangs.

use anyhow::{Context, Result, ensure};
use fantoccini::Locator;
use lockstep_tests::{Page, lockstep};
use serde_json::{Value, json};
use ureq::http::Request;

const ENTER: char = '\u{e007}';

/// The first connection breaks after its first bytes, while the run waits for its watchdog: the
/// stream is taken up again, and no byte is counted twice.
#[tokio::test]
async fn a_live_stream_survives_a_lost_connection() -> Result<()> {
    let page = Page::open("#/hangs/skipped-all-reduce?ask=false").await?;
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
    page.browser.run(breaks).await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    assert_eq!(page.browser.run("return window.sockets").await?, 2);
    let script = "return [...document.querySelectorAll('[data-test=real-run] [data-test=finding]')]
        .map(finding => finding.dataset.culprits)[0]";
    assert_eq!(page.browser.until("the real run's finding", script).await?, simulated);
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
    page.browser.screenshot("run").await?;
    // Another plan takes the card away: it tells of a run that is no longer this page's.
    page.browser.run("location.hash = location.hash.replace('count=1000', 'count=1200')").await?;
    page.until("real-run", "data-stage", "idle").await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    // It is in the list, and can be opened from there.
    page.click("run-link").await?;
    page.until("comparison", "data-equal", "true").await?;
    page.go("#/runs").await?;
    page.until("runs", "data-count", "2").await?;
    let row = page.text("run-1").await?;
    ensure!(row.contains("completed") && !row.contains("ended"), "{row:?}");
    page.browser.screenshot("runs").await?;
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
    page.browser.screenshot("hangs").await?;
    // Found by words of the title, the program or the log; the choice is in the address.
    let cards = "return document.querySelectorAll('[data-test^=scenario-]').length || null";
    let all = page.browser.until("the cards", cards).await?.as_u64().unwrap_or_default();
    let line = page.browser.client.find(Locator::Css("[data-test=find-hang]")).await?;
    line.send_keys("BARRIER checkpoint").await?;
    let few = format!(
        "const few = document.querySelectorAll('[data-test^=scenario-]').length; return few > 0 && few < {all}"
    );
    page.browser.until("fewer cards", &few).await?;
    page.click("hang-quiz").await?;
    let titles = "return [...document.querySelectorAll('.card h2')].every(title => /^Hang \\d+$/.test(title.innerText)) && location.hash";
    let address = page.browser.until("hidden titles", titles).await?;
    assert_eq!(address, "#/hangs?find=BARRIER%20checkpoint&quiz=true");
    let cut = "return [...document.querySelectorAll('.card pre')].some(code => code.scrollHeight > code.clientHeight)";
    assert_eq!(page.browser.run(cut).await?, false, "a card cuts a line in half");
    let cases = [
        ("skipped-all-reduce", json!([2])),
        ("mismatched-collectives", Value::Null),
        ("opposite-group-order", Value::Null),
    ];
    for (scenario, culprits) in cases {
        page.go("#/hangs").await?;
        // Only once the gallery is there is nothing of the scenario before left.
        page.click(&format!("scenario-{scenario}")).await?;
        // The question comes before the answer.
        page.until("debugger", "data-state", "ready").await?;
        let told = "return document.querySelectorAll('.verdicts [data-test=finding], [data-test=story]').length";
        ensure!(page.browser.run(told).await? == 0, "{scenario}: the answer is shown");
        let title = page.browser.run("return document.title").await?;
        assert_eq!(title, "Hangs · Lockstep", "the name of a hang tells its answer");
        page.click("guess").await?;
        ensure!(page.text("guessed").await?.len() > 5, "{scenario}: the guess is not judged");
        page.click("show-answer").await?;
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
        let real = page.browser.until("the real run's finding", script).await?;
        ensure!(real == found, "{scenario}: simulated {found}, ran {real}");
        page.browser.screenshot(&format!("hang-{scenario}")).await?;
    }
    page.close().await
}

/// A run that goes on is watched and steered by whoever opens it, also when the page is loaded again; its
/// end shows by itself.
#[tokio::test]
async fn a_run_that_goes_on_is_opened_live() -> Result<()> {
    let page = Page::open("#/runs").await?;
    let hanging = json!({ "scenario": "skipped-all-reduce", "timeout_ms": 60_000 });
    let run = page.service.post("api/runs", &hanging).json();
    let address = format!("#/runs/{}", run["id"]);
    page.go(&address).await?;
    // Its calls are found and looked at while it goes on.
    page.click("find").await?;
    let line = page.browser.client.find(Locator::Css("[data-test=find]")).await?;
    line.send_keys("rank:1 op:all_reduce unfinished").await?;
    let hit = "return document.querySelector('[data-test=hit]')?.innerText";
    page.browser.until("a call that goes on", hit).await?;
    line.send_keys(&ENTER.to_string()).await?;
    page.until("details", "data-rank", "1").await?;
    let judged = "return document.querySelectorAll('[data-test=finding]').length";
    assert_eq!(page.browser.run(judged).await?, 0, "nobody is blamed while it goes on");
    page.browser.screenshot("run-investigated-live").await?;
    page.click("run-pause").await?;
    let stands = "return document.querySelector('[data-test=run-pause]')?.innerText === 'Go on'";
    page.browser.until("a run that stands", stands).await?;
    let told = "return fetch('api/runs', { headers: { authorization: 'Bearer ' + sessionStorage.getItem('lockstep.token') } }).then(runs => runs.json()).then(runs => runs[0].paused)";
    page.browser.until("the server to know", told).await?;
    page.browser.client.refresh().await?;
    page.browser.until("the same after a reload", stands).await?;
    page.browser.screenshot("run-live").await?;
    page.go("#/runs").await?;
    page.until("runs", "data-count", "1").await?;
    let row = page.text("run-1").await?;
    ensure!(row.contains("paused"), "{row:?}");
    page.go(&address).await?;
    page.click("run-cancel").await?;
    page.until("finding", "data-culprits", "2").await?;
    page.close().await
}

/// Runs are renamed, compared and deleted in their list; one that its user ended says so.
#[tokio::test]
async fn runs_are_kept_in_order() -> Result<()> {
    let page = Page::open("#/runs").await?;
    let slow = json!({ "scenario": "skipped-all-reduce", "timeout_ms": 60_000 });
    page.service.post("api/runs", &slow);
    page.service.post("api/runs/1/cancel", &json!({}));
    let again = json!({ "scenario": "skipped-all-reduce", "timeout_ms": 300 });
    page.service.post("api/runs", &again);
    page.browser.client.refresh().await?;
    let ended = "document.querySelector('[data-test=refresh]')?.click();
        return document.querySelector('[data-test=runs]')?.innerText.includes('timed out')";
    page.browser.until("both to end", ended).await?;
    let row = page.text("run-1").await?;
    ensure!(row.contains("ended by its user"), "{row:?}");

    page.click("rename-2").await?;
    let field =
        page.browser.client.find(fantoccini::Locator::Css("[data-test=rename-field]")).await?;
    field.clear().await?;
    field.send_keys("the one that hangs\u{e007}").await?;
    let named = "return document.querySelector('[data-test=run-2]')?.innerText.includes('the one that hangs')";
    page.browser.until("the name", named).await?;

    page.click("tick-1").await?;
    page.click("tick-2").await?;
    page.browser.screenshot("runs").await?;
    page.click("compare-runs").await?;
    let both = "const text = document.querySelector('[data-test=two-runs]')?.innerText ?? '';
        return text.includes('ended by its user') && text.includes('timed out')";
    page.browser.until("both side by side", both).await?;
    page.browser.screenshot("two-runs").await?;
    page.go("#/runs/1").await?;
    let told = "return document.querySelector('[data-test=ended-by-user]')?.innerText
        .includes('Its user ended this run')";
    page.browser.until("who ended it", told).await?;

    page.go("#/runs").await?;
    page.click("delete-1").await?;
    page.click("delete-keep").await?;
    page.click("delete-1").await?;
    page.click("delete-sure").await?;
    page.browser
        .until(
            "the other",
            "return document.querySelector('[data-test=runs]')?.dataset.count === '1'",
        )
        .await?;
    page.close().await
}

/// A rank is broken on purpose by a form, and the run's finding names it.
#[tokio::test]
async fn a_fault_is_chosen_in_a_form() -> Result<()> {
    let page = Page::open("#/step?collective=all_reduce&world=3&count=1000").await?;
    page.until("transport", "data-moment", "1").await?;
    page.browser.run("document.querySelector('.faults').open = true").await?;
    page.click("fault-add").await?;
    // A call that rank 2 does not make is told before the run.
    let second = "const field = document.querySelector('[data-test=choose-fault-call]');
        const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
        set.call(field, VALUE); field.dispatchEvent(new Event('change', { bubbles: true }))";
    page.browser.run(&second.replace("VALUE", "2")).await?;
    page.until("run-faults-wrong", "role", "alert").await?;
    page.browser.run(&second.replace("VALUE", "1")).await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    page.until("finding", "data-culprits", "2").await?;
    // It is run again with the same fault, or without it.
    page.click("run-link").await?;
    page.browser
        .until("the run's own page", "return document.querySelector('.one-run .again')")
        .await?;
    page.until("real-run", "data-stage", "idle").await?;
    let faults = "return document.querySelectorAll('[data-test=fault]').length";
    assert_eq!(page.browser.run(faults).await?, 1);
    page.click("fault-remove").await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    let healthy = "return document.querySelector('.real-run [data-test=run-outcome]')?.innerText";
    let told = page.browser.until("the end", healthy).await?;
    ensure!(told.as_str().is_some_and(|told| told.contains("every rank finished")), "{told}");
    page.close().await
}

/// A real job that a `lockstep watch` shows here: what its ranks do, its calls, and at the end what is wrong.
#[tokio::test]
async fn a_watched_job_is_shown_while_it_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("job.lks");
    let trace = trace.to_str().context("a path")?;
    assert_eq!(lockstep(["sim", "skipped-all-reduce", "-o", trace]).code, 1);
    let page = Page::open("#/runs").await?;
    page.until("no-runs", "class", "muted").await?;
    let service = &page.service;
    let command = json!({ "command": "torchrun --nproc-per-node 4 train.py" });
    let job = service.post("api/watched", &command).json();
    assert_eq!(job["id"], 1, "{job}");
    let put = |path: &str, body: Vec<u8>| {
        let request = Request::put(format!("{}api/watched/1{path}", service.url())).body(body);
        Ok::<_, anyhow::Error>(service.send(request?).status)
    };
    let rank =
        |rank: u32, still_ms: u64| json!({ "rank": rank, "still_ms": still_ms, "doing": "runs" });
    let news = |still_ms: u64, ended: Option<&str>| {
        let ranks: Vec<_> = (0..3).map(|nth| rank(nth, 100)).chain([rank(3, still_ms)]).collect();
        let report = ended.map(|_| "1 finding among 4 ranks.");
        let news = json!({ "world_size": 4, "ranks": ranks, "ended": ended, "report": report });
        news.to_string().into_bytes()
    };
    assert_eq!(put("", news(14_000, None))?, 204);
    assert_eq!(put("/trace", std::fs::read(trace)?)?, 204);
    page.click("refresh").await?;
    page.until("watched-jobs", "class", "watched-jobs").await?;
    page.click("watched-1").await?;
    page.until("watched-job", "data-traces", "1").await?;
    let told = page.text("watched-told").await?;
    ensure!(told.contains("ranks 0–2 make calls; rank 3 has made no call for 14 s"), "{told}");
    page.until("open-trace", "data-world", "4").await?;
    // The job moves: its unfinished calls are no hang yet.
    page.until("not-judged", "class", "muted").await?;
    ensure!(page.attribute("findings", "data-verdict").await?.is_null(), "judged too early");
    page.browser.screenshot("watched-job").await?;
    assert_eq!(put("", news(20_000, Some("exit code 1")))?, 204);
    page.until("watched-job", "data-ended", "true").await?;
    page.until("findings", "data-verdict", "findings").await?;
    ensure!(page.text("watched-report").await?.contains("1 finding"), "no report");
    page.close().await
}
