//! The debugger of programs, in headless Chromium against the real binary: a text becomes a plan in
//! the browser, each rank has a cursor, stops are reached, an address brings everything back; and
//! what is no program is answered with its line.

use anyhow::{Context, Result};
use lockstep_core::stop::{Direction, Stop, find};
use lockstep_core::trace::{CallLog, What};
use lockstep_diagnosis::diagnose_trace;
use lockstep_program::compile;
use lockstep_scenarios::program::Options;
use lockstep_sim::explore::Verdict;
use lockstep_sim::{Bounds, Devices, Session, SimConfig, explore};
use lockstep_tests::Page;
use serde_json::{Value, json};

const SKIPS: &str = r#"
import torch.distributed as dist

def main():
    dist.init_process_group("gloo", timeout = seconds(5))
    rank = dist.get_rank()
    pair = dist.new_group([0, 2])
    grad = tensor(64, fill = rank)
    for step in range(4):
        compute("forward", us = 50 * (rank + 1))
        print("step", step)
        if rank != 2 or step != 1:
            dist.all_reduce(grad)
        if rank in [0, 2]:
            dist.broadcast(grad, src = 0, group = pair)
    print("done", rank)
    dist.barrier()

run(main, world_size = 3)
"#;

/// Two groups whose calls nothing orders.
const UNORDERED: &str = r#"
def main():
    dist.init_process_group("nccl", timeout = seconds(5))
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    works = [dist.all_reduce(tensor(8), group = group, async_op = True) for group in groups]
    for work in works:
        work.wait()
    dist.barrier()

run(main, world_size = 2)
"#;

async fn ready(page: &Page) -> Result<()> {
    page.until("debugger", "data-state", "ready").await?;
    page.browser
        .until("a moment", "return !!document.querySelector('[data-test=one-rank]')")
        .await?;
    Ok(())
}

/// Writes a program into the page and runs it.
async fn write(page: &Page, text: &str) -> Result<()> {
    let open = "return !!document.querySelector('[data-test=program-text]')";
    if page.browser.run(open).await? != json!(true) {
        page.click("edit").await?;
    }
    page.browser.until("the editor", open).await?;
    let script = format!(
        "const area = document.querySelector('[data-test=program-text]');
         area.value = {}; area.dispatchEvent(new InputEvent('input', {{ bubbles: true }}))",
        json!(text)
    );
    page.browser.run(&script).await?;
    page.click("run-program").await
}

/// The ranks whose cursors stand on a line.
async fn ranks_at(page: &Page, line: u32) -> Result<Value> {
    let script =
        format!("return document.querySelector('[data-line=\"{line}\"]')?.dataset.ranks ?? null");
    page.browser.run(&script).await
}

/// The line of `SKIPS` that contains `what`.
fn line_of(what: &str) -> Result<u32> {
    let at = SKIPS.lines().position(|line| line.contains(what)).context("no such line")?;
    Ok(at as u32 + 1)
}

/// The native engine's session of a program.
fn native(text: &str) -> Result<Session> {
    let compiled = compile("train.py", text, &Options::default())?;
    let mut session = Session::new(&compiled.plan, SimConfig::default())?;
    session.run_to_end()?;
    Ok(session)
}

/// The first moment at which a stop is met, counted from a number of events.
fn moment_of(session: &Session, stop: Stop, from: usize) -> Result<(usize, usize)> {
    let trace = session.trace();
    let plan = trace.header.plan.as_deref().context("a plan")?;
    let (event, _) =
        find(plan, &trace.events, &[stop], from, Direction::Forward).context("none")?;
    let moment = session.moments().iter().position(|moment| moment.events > event);
    Ok((moment.context("a moment")?, event))
}

#[tokio::test]
async fn a_program_is_written_run_stopped_and_sent_to_somebody() -> Result<()> {
    let page = Page::open("#/program").await?;
    ready(&page).await?;
    write(&page, SKIPS).await?;
    page.until("findings", "data-verdict", "findings").await?;
    ready(&page).await?;
    // The same code as natively: the same finding.
    let session = native(SKIPS)?;
    let report = diagnose_trace(&session.trace());
    let first = report.findings.first().context("a finding")?;
    assert_eq!(page.attribute("finding", "data-kind").await?, json!(first.kind.name()));
    let blamed: Vec<String> = first.culprits.iter().map(ToString::to_string).collect();
    assert_eq!(page.attribute("finding", "data-culprits").await?, json!(blamed.join(",")));
    let last = session.moments().len() - 1;
    assert_eq!(page.attribute("transport", "data-last").await?, json!(last.to_string()));
    // What a rank prints stands there from the moment at which it gets there.
    let printed = compile("train.py", SKIPS, &Options::default())?.printed;
    let ended = CallLog::of(&session.trace()).ended_ops();
    let by_then = printed.iter().filter(|print| print.is_reached(&ended)).count();
    assert!(0 < by_then && by_then < printed.len());
    page.scrub(last).await?;
    page.until("printed", "data-lines", &by_then.to_string()).await?;
    page.scrub(0).await?;
    page.until("transport", "data-moment", "0").await?;
    page.until("printed", "data-lines", "0").await?;
    // Stops: a line by its gutter, then on to it twice; each time a cursor stands there.
    let line = line_of("dist.broadcast")?;
    page.click(&format!("gutter-{line}")).await?;
    page.until("stops", "data-stops", &format!("line:{line}")).await?;
    let (mut from, mut at) = (0, 0);
    for _ in 0..2 {
        page.click("stop-on").await?;
        let (moment, _) = moment_of(&session, Stop::Line { line, rank: None }, from)?;
        page.until("transport", "data-moment", &moment.to_string()).await?;
        page.until("one-rank", "data-rank", "0").await?;
        (from, at) = (session.moments()[moment].events, moment);
    }
    assert!(page.text("stopped").await?.contains(&format!("line {line}")));
    let stands =
        format!("return document.querySelector('[data-line=\"{line}\"]').dataset.ranks !== ''");
    page.browser.until("a cursor on the line", &stands).await?;
    // Another rank, by its cursor; the address brings all of it back.
    page.click("cursor-2").await?;
    page.until("one-rank", "data-rank", "2").await?;
    page.browser.screenshot("program").await?;
    let does = page.text("rank-does").await?;
    let address = page.browser.run("return location.hash").await?;
    let address = address.as_str().context("an address")?.to_owned();
    page.go("#/step").await?;
    page.go(&address).await?;
    ready(&page).await?;
    page.until("transport", "data-moment", &at.to_string()).await?;
    page.until("one-rank", "data-rank", "2").await?;
    assert_eq!(page.text("rank-does").await?, does);
    page.until("stops", "data-stops", &format!("line:{line}")).await?;
    // And back to the stop before.
    page.click("stop-back").await?;
    let (first, _) = moment_of(&session, Stop::Line { line, rank: None }, 0)?;
    page.until("transport", "data-moment", &first.to_string()).await?;
    page.close().await
}

#[tokio::test]
async fn the_first_disagreement_is_where_the_native_engine_finds_it() -> Result<()> {
    let page = Page::open("#/program?stop=differ").await?;
    ready(&page).await?;
    // Without the pair, rank 2 comes to the barrier while the others reduce.
    let text = SKIPS.replace("rank in [0, 2]", "False");
    write(&page, &text).await?;
    let session = native(&text)?;
    let last = session.moments().len() - 1;
    page.until("transport", "data-last", &last.to_string()).await?;
    ready(&page).await?;
    page.scrub(0).await?;
    page.until("transport", "data-moment", "0").await?;
    page.click("add-stop").await?;
    page.click("stop-add").await?;
    page.until("stops", "data-stops", "differ").await?;
    page.press('c').await?;
    let (moment, event) = moment_of(&session, Stop::Differ, 0)?;
    page.until("transport", "data-moment", &moment.to_string()).await?;
    let trace = session.trace();
    assert!(matches!(trace.events[event].what, What::Scheduled { .. }));
    // The rank that made the call is a call ahead of the others in the table of numbers.
    page.click("cursor-2").await?;
    page.until("one-rank", "data-rank", "2").await?;
    let apart = "return document.querySelectorAll('[data-test=numbers] tr.apart').length";
    assert_eq!(page.browser.run(apart).await?, json!(1));
    page.close().await
}

#[tokio::test]
async fn an_order_that_hangs_is_found_and_stepped_through() -> Result<()> {
    let page = Page::open("#/program").await?;
    ready(&page).await?;
    write(&page, UNORDERED).await?;
    let session = native(UNORDERED)?;
    let last = session.moments().len() - 1;
    page.until("transport", "data-last", &last.to_string()).await?;
    page.until("findings", "data-verdict", "healthy").await?;
    page.click("explore-start").await?;
    page.click("show-order").await?;
    page.until("findings", "data-verdict", "findings").await?;
    // The same search as natively finds the same order, and the same moments come of it.
    let plan = compile("train.py", UNORDERED, &Options::default())?.plan;
    let bounds = Bounds { devices: Devices::OneAtATime, ..Bounds::default() };
    let explored = explore(&plan, &SimConfig::default(), bounds)?;
    let Verdict::Fails { order, .. } = explored.verdict else { anyhow::bail!("{explored:?}") };
    let mut session =
        Session::new(&plan, SimConfig { order: Some(order), ..SimConfig::default() })?;
    session.run_to_end()?;
    let last = session.moments().len() - 1;
    page.until("transport", "data-last", &last.to_string()).await?;
    let address = page.browser.run("return location.hash.includes('order=one')").await?;
    assert_eq!(address, json!(true));
    page.click("own-order").await?;
    page.until("findings", "data-verdict", "healthy").await?;
    page.close().await
}

#[tokio::test]
async fn what_is_no_program_is_answered_with_its_line_and_the_page_goes_on() -> Result<()> {
    let page = Page::open("#/program").await?;
    ready(&page).await?;
    let wrong = "def main():\n    dist.init_process_group(\"gloo\")\n    dist.all_redcue(tensor(4))\n\nrun(main, world_size = 2)\n";
    write(&page, wrong).await?;
    page.until("program-wrong", "data-line", "3").await?;
    let said = page.text("program-wrong").await?;
    assert!(said.contains("all_redcue"), "{said}");
    // No end, and no ground: each is one answer, and the next program runs.
    write(&page, "def main():\n    while True:\n        pass\n\nrun(main, world_size = 2)\n")
        .await?;
    page.until("debugger", "data-state", "wrong").await?;
    let deep = format!("x = {}1{}\n", "(".repeat(200_000), ")".repeat(200_000));
    write(&page, &deep).await?;
    page.until("debugger", "data-state", "wrong").await?;
    write(&page, SKIPS).await?;
    page.until("debugger", "data-state", "ready").await?;
    assert_eq!(ranks_at(&page, 1).await?, json!(""));
    // An address that was cut off says so, and an unknown stop is named.
    page.go("#/program?code=AAAA").await?;
    let said = "return document.querySelector('[data-test=unread]')?.innerText ?? null";
    let said = page.browser.until("an answer", said).await?;
    assert!(said.as_str().unwrap_or_default().contains("not complete"), "{said}");
    page.go("#/program?stop=lime:3").await?;
    let said = "return document.querySelector('[data-test=wrong-stop]')?.innerText ?? null";
    let said = page.browser.until("an answer", said).await?;
    assert!(said.as_str().unwrap_or_default().contains("lime:3"), "{said}");
    page.close().await
}

/// On a phone what drives the debugger is in sight wherever the page stands.
#[tokio::test]
async fn a_phone_has_the_buttons_in_reach() -> Result<()> {
    let page = Page::open("#/hangs/checkpoint-on-rank-0?ask=false").await?;
    page.browser.client.set_window_size(500, 844).await?;
    ready(&page).await?;
    for place in ["0", "document.documentElement.scrollHeight"] {
        let script = format!(
            "window.scrollTo(0, {place}); const button = document.querySelector('[data-test=\"stop-on\"]'); \
             const at = button.getBoundingClientRect(); \
             const there = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2); \
             return at.bottom <= innerHeight && button.contains(there)"
        );
        page.browser.until("Continue in sight", &script).await?;
    }
    page.close().await
}
