//! Every view, on a wide window and on a phone, light and dark: nothing is cut at the side, and axe-core
//! finds nothing.

use anyhow::{Context, Result, ensure};
use lockstep_tests::{Kind, Page};
use serde_json::Value;
use std::cell::RefCell;

/// Each view with something in it, and what is there once it is shown whole.
const VIEWS: [(&str, &str, &str); 20] = [
    ("home", "#/", "[data-test=home]"),
    ("unknown", "#/nowhere", "[data-test=unknown-address]"),
    ("recording-empty", "#/recording", "[data-test=view-recording]"),
    ("recording", "#/recording?sample=moe16", "[data-test=findings]"),
    ("program", "#/program", "[data-test=debugger][data-ready=true]"),
    ("hangs", "#/hangs", "[data-test=view-hangs] a"),
    ("hang", "#/hangs/skipped-all-reduce?ask=false", "[data-test=debugger][data-ready=true]"),
    ("hang-asked", "#/hangs/skipped-all-reduce", "[data-test=question]"),
    ("lessons", "#/learn", "[data-test=lessons]"),
    ("lesson", "#/learn/ring-all-reduce", "[data-test=lesson]"),
    ("lesson-of-a-hang", "#/learn/a-skipped-call", "[data-test=lesson]"),
    ("glossary", "#/learn/glossary", "[data-test=view-learn] dl, [data-test=view-learn] h1"),
    ("step", "#/step?collective=all_reduce&world=4", "[data-test=transport]"),
    ("step-16", "#/step?collective=all_to_all&world=16", "[data-test=transport]"),
    ("algorithms", "#/algorithms", "[data-test=view-algorithms] svg"),
    ("side", "#/algorithms/side?a=ring&b=two_shot&world=8", "[data-test=side][data-ready=true]"),
    ("ddp", "#/ddp", "[data-test=ddp][data-ready=true]"),
    ("mesh", "#/mesh?dims=2x4&cluster=dgx-h100", "[data-test=view-mesh] h1"),
    ("cluster", "#/cluster", "[data-test=view-cluster] svg"),
    ("runs", "#/runs", "[data-test=no-runs], [data-test=runs]"),
];

/// Windows in CSS pixels.
const WINDOWS: [(u32, u32); 2] = [(1440, 900), (390, 844)];

/// Shows each view in each window, light or dark (true), and hands it to `check` with its name.
async fn each_view(schemes: &[bool], check: impl AsyncFn(&Page, &str) -> Result<()>) -> Result<()> {
    let page = Page::open("#/").await?;
    for (name, hash, shown) in VIEWS {
        page.browser.run(&format!("location.hash = {hash:?}")).await?;
        for window in WINDOWS {
            for &dark in schemes {
                page.browser.emulate(window, dark).await?;
                let there = format!("return !!document.querySelector({shown:?})");
                page.browser.until(&format!("{name}: {shown}"), &there).await?;
                let name = format!("{name}-{}-{}", window.0, if dark { "dark" } else { "light" });
                check(&page, &name).await?;
                page.browser.screenshot(&name).await?;
            }
        }
    }
    page.close().await
}

#[tokio::test]
async fn nothing_is_cut_at_the_side() -> Result<()> {
    if Kind::asked_for()? != Kind::Chromium {
        return Ok(());
    }
    // Colours move nothing: dark pages are shown where pictures are wanted.
    let pictures = std::env::var_os("LOCKSTEP_SCREENSHOTS").is_some();
    let schemes: &[bool] = if pictures { &[false, true] } else { &[false] };
    each_view(schemes, async |page, name| {
        let script = "return document.documentElement.scrollWidth - window.innerWidth";
        let beyond = page.browser.run(script).await?.as_i64().context("a width")?;
        ensure!(beyond <= 0, "{name} reaches {beyond} pixels beyond the window");
        let heads = page.browser.run("return document.querySelectorAll('h1').length").await?;
        ensure!(heads.as_u64() >= Some(1), "{name} has no heading");
        Ok(())
    })
    .await
}

/// Run by `LOCKSTEP_AXE=axe.min.js cargo test --test browser -- --ignored axe`, with the script of npm's
/// `axe-core`.
#[tokio::test]
#[ignore = "needs axe-core's script: LOCKSTEP_AXE"]
async fn axe_finds_nothing() -> Result<()> {
    let path = std::env::var_os("LOCKSTEP_AXE").context("LOCKSTEP_AXE names axe.min.js")?;
    let axe = std::fs::read_to_string(path)?;
    let all = RefCell::new(Vec::new());
    each_view(&[false, true], async |page, name| {
        page.browser.run(&axe).await?;
        let run = "const done = arguments[0];
            axe.run(document, { resultTypes: ['violations'] }).then(found => done(
                found.violations.flatMap(v => v.nodes.map(
                    node => `${v.id}: ${node.target.join(' ')}`))))";
        let found = page.browser.client.execute_async(run, Vec::new()).await?;
        let found: Vec<&str> =
            found.as_array().context("a list")?.iter().filter_map(Value::as_str).collect();
        all.borrow_mut().extend(found.iter().map(|found| format!("{name}: {found}")));
        Ok(())
    })
    .await?;
    let all = all.into_inner();
    ensure!(all.is_empty(), "{}", all.join("\n"));
    Ok(())
}
