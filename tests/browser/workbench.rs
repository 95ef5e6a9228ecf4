//! The first view, and the workbench on a recording: findings lead to calls, calls are found, and nothing that was
//! opened is lost.

use anyhow::{Result, ensure};
use fantoccini::Locator;
use lockstep_tests::{Kind, Page, data, lockstep};
use serde_json::Value;

const ENTER: char = '\u{e007}';
const LEFT: char = '\u{e012}';
const ESCAPE: char = '\u{e00c}';

/// From the first view to a call of the rank that is to blame, through the search, another view, and a reload.
#[tokio::test]
async fn a_hang_is_investigated() -> Result<()> {
    let page = Page::open("#/").await?;
    page.until("view-home", "class", "view home").await?;
    page.click("try-sample").await?;
    page.until("finding", "data-culprits", "10").await?;
    assert_eq!(page.attribute("open-trace", "data-world").await?, "16");
    // The rank that is blamed stands first.
    page.until("timeline", "data-first", "10").await?;
    page.click("go-culprit").await?;
    page.until("details", "data-rank", "10").await?;
    page.browser.screenshot("workbench").await?;

    page.click("find").await?;
    let input = page.browser.client.find(Locator::Css("[data-test=find]")).await?;
    input.send_keys("rank:10 unfinished").await?;
    page.until("find-count", "data-total", "1").await?;
    page.press(ENTER).await?;
    page.until("details", "data-call", "all_reduce #5").await?;
    let members =
        "return document.querySelectorAll('[data-test=member][data-state=missing]').length";
    // The world's all_reduce: ranks 2, 6 and 14 have not come.
    assert_eq!(page.browser.run(members).await?, 3);

    // The calls before, by keys in the timeline.
    page.browser.run("document.querySelector('.trace-grid .stage').focus()").await?;
    page.press(LEFT).await?;
    let before =
        "return document.querySelector('[data-test=details]')?.dataset.call !== 'all_reduce #5'";
    page.browser.until("the call before", before).await?;
    let called = page.attribute("details", "data-call").await?;

    // Another view, and back.
    page.browser.run("location.hash = '#/step'").await?;
    page.until("transport", "data-moment", "1").await?;
    let shown =
        "return [...document.querySelectorAll('main')].filter(main => main.offsetParent).length";
    assert_eq!(page.browser.run(shown).await?, 1, "the recording is kept, and not shown");
    page.browser.run("location.hash = '#/recording'").await?;
    page.until("view-recording", "class", "view recording").await?;
    assert_eq!(page.attribute("details", "data-call").await?, called);

    // The address alone leads back to the call.
    let in_address =
        "return location.hash.includes('sample=moe16') && location.hash.includes('call=10.')";
    page.browser.until("the call in the address", in_address).await?;
    page.browser.client.refresh().await?;
    page.until("details", "data-call", called.as_str().unwrap_or_default()).await?;
    page.browser.run("document.querySelector('.details').focus()").await?;
    // Out of the details, and then out of the call.
    page.press(ESCAPE).await?;
    let in_timeline = "return document.activeElement?.classList.contains('stage')";
    page.browser.until("the focus in the timeline", in_timeline).await?;
    page.press(ESCAPE).await?;
    page.browser
        .until("no details", "return !document.querySelector('[data-test=details]')")
        .await?;

    // A word that cannot be read is told, and so is what nobody calls.
    let input = page.browser.client.find(Locator::Css("[data-test=find]")).await?;
    input.send_keys(&ESCAPE.to_string()).await?;
    let empty = "return document.querySelector('[data-test=find]').value === ''";
    page.browser.until("an empty query", empty).await?;
    input.send_keys("slower:10").await?;
    page.until("find-error", "role", "alert").await?;
    ensure!(page.text("find-error").await?.contains("slower:10ms"));
    input.send_keys("s").await?;
    page.browser
        .until("hits", "return document.querySelector('[data-test=find-count]')?.dataset.total")
        .await?;
    page.close().await
}

/// A recording is one file that opens without a server, at the call that was looked at.
#[tokio::test]
async fn a_recording_is_saved_as_a_page() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.click("go-culprit").await?;
    page.until("details", "data-rank", "10").await?;
    let called = page.attribute("details", "data-call").await?;
    // The page hands it to the browser as a download; here it is taken on its way.
    let take = "const url = URL.createObjectURL;
        URL.createObjectURL = blob => { window.saved = blob; return url(blob); }";
    page.browser.run(take).await?;
    page.click("save-page").await?;
    page.browser.until("the page", "return !!window.saved").await?;
    let text = page.browser.client.execute_async(
        "const done = arguments[0]; window.saved.text().then(done, error => done(`${error}`))",
        Vec::new(),
    );
    let text = text.await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("saved.html");
    std::fs::write(&file, text.as_str().unwrap_or_default())?;
    let Page { service, browser } = page;
    assert_eq!(service.stop(), Some(0));
    browser.client.goto(&format!("file://{}", file.display())).await?;
    let opened = "return document.querySelector('[data-test=details]')?.dataset.call";
    assert_eq!(browser.until("the call", opened).await?, called);
    let again = "return document.querySelector('[data-test=save-page]')";
    assert_eq!(browser.run(again).await?, Value::Null, "it has nothing to save itself with");
    browser.screenshot("saved").await?;
    browser.close().await
}

/// Waits are told by their cause; a note on a call is kept over a reload, and is in the copied report.
#[tokio::test]
async fn causes_are_told_and_notes_are_kept() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.until("finding", "data-culprits", "10").await?;
    let root = "return document.querySelector('[data-test=wait-group].culprit')?.dataset.depth";
    assert_eq!(page.browser.until("the culprit", root).await?, "0");
    let counted = "return [...document.querySelectorAll('[data-test=wait-group]')]
        .reduce((sum, group) => sum + Number(group.dataset.count), 0)";
    assert_eq!(page.browser.run(counted).await?, 16, "every rank is in one group");
    page.click("go-culprit").await?;
    page.until("details", "data-rank", "10").await?;
    // N goes to the note's line, Enter keeps it.
    page.press('n').await?;
    let typing = "return document.activeElement?.dataset.test === 'note-text'";
    page.browser.until("the note's line", typing).await?;
    let line = page.browser.client.find(Locator::Css("[data-test=note-text]")).await?;
    line.send_keys("skips the router's step").await?;
    line.send_keys(&ENTER.to_string()).await?;
    let note = "return document.querySelector('[data-test=note]')?.innerText";
    let told = page.browser.until("the note", note).await?;
    ensure!(told.as_str().is_some_and(|told| told.contains("skips the router's step")), "{told}");
    page.browser.client.refresh().await?;
    page.browser.until("the note after a reload", note).await?;
    // The report is caught on its way to the clipboard.
    let take = "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }";
    page.browser.run(take).await?;
    page.click("copy-report").await?;
    let copied = page.browser.until("the report", "return window.copied").await?;
    let copied = copied.as_str().unwrap_or_default();
    ensure!(
        copied.contains("## Notes of the reader") && copied.contains("skips the router's step")
    );
    page.browser.screenshot("notes").await?;
    page.click("drop-note").await?;
    page.browser.until("no note", "return !document.querySelector('[data-test=note]')").await?;
    page.close().await
}

/// A program has the tools of a recording: the search, the details of a call, notes and pins; going to a call
/// moves the program to it.
#[tokio::test]
async fn a_program_is_investigated_as_a_recording_is() -> Result<()> {
    let page = Page::open("#/hangs/skipped-all-reduce?ask=false&moment=0").await?;
    page.until("debugger", "data-ready", "true").await?;
    page.click("find").await?;
    let line = page.browser.client.find(Locator::Css("[data-test=find]")).await?;
    line.send_keys("rank:2 op:all_reduce").await?;
    let found = "return document.querySelector('[data-test=find-count]')?.dataset.total";
    let count = page.browser.until("the hits", found).await?;
    ensure!(count.as_str().is_some_and(|count| count != "0"), "{count}");
    line.send_keys(&ENTER.to_string()).await?;
    page.until("details", "data-rank", "2").await?;
    page.until("one-rank", "data-rank", "2").await?;
    let address = "const address = new URLSearchParams(location.hash.split('?')[1]);
        return address.get('call')?.startsWith('2.') && address.get('rank') === '2'
            && Number(address.get('moment')) > 0 && address.get('find')";
    page.browser.until("call, rank, moment and query in the address", address).await?;
    page.click("pin-rank").await?;
    let first = "return document.querySelector('[data-test=timeline]')?.dataset.first";
    assert_eq!(page.browser.until("the pinned rank", first).await?, "2");
    let line = page.browser.client.find(Locator::Css("[data-test=note-text]")).await?;
    line.send_keys("why twice?").await?;
    line.send_keys(&ENTER.to_string()).await?;
    let note = "return document.querySelector('[data-test=note]')?.innerText";
    page.browser.until("the note", note).await?;
    page.browser.screenshot("program-investigated").await?;
    page.browser.client.refresh().await?;
    page.until("details", "data-rank", "2").await?;
    let told = page.browser.until("the note after a reload", note).await?;
    ensure!(told.as_str().is_some_and(|told| told.contains("why twice?")), "{told}");
    // A victim's chip leads to it, and the culprit's back to where it is to blame.
    page.click("go-victim").await?;
    page.until("one-rank", "data-rank", "0").await?;
    page.until("details", "data-rank", "0").await?;
    page.click("go-culprit").await?;
    page.until("one-rank", "data-rank", "2").await?;
    page.until("details", "data-rank", "2").await?;
    // Back leads to the call before as it was, with its rank.
    page.browser.client.back().await?;
    page.until("details", "data-rank", "0").await?;
    page.until("one-rank", "data-rank", "0").await?;
    page.close().await
}

/// A call of the ladder leads to it, and a row that stands for several ranks is measured as all of them.
#[tokio::test]
async fn ladders_lead_on_and_shared_rows_are_measured_whole() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16&together=waits").await?;
    page.until("finding", "data-culprits", "10").await?;
    let press = "const goes = document.querySelector('[data-test=ladder] td .goes'); goes.click();
        return goes.innerText.split(' of ')[0]";
    let pressed = page.browser.run(press).await?;
    let opened = "return document.querySelector('[data-test=details]')?.dataset.call";
    assert_eq!(page.browser.until("the call", opened).await?, pressed);
    page.click("details-close").await?;
    page.click("measure").await?;
    let drag = "const stage = document.querySelector('.timeline .stage');
        const box = stage.getBoundingClientRect();
        const at = (name, x, y) => stage.dispatchEvent(new PointerEvent(name,
            { pointerId: 1, clientX: box.left + x, clientY: box.top + y, bubbles: true }));
        at('pointerdown', 120, 30); at('pointermove', 300, box.height - 20); at('pointerup', 300, box.height - 20);";
    page.browser.run(drag).await?;
    page.until("measured", "data-ranks", "16").await?;
    // The same by keyboard: what is in sight.
    page.click("measured-close").await?;
    let closed = "return !document.querySelector('[data-test=measured]')";
    page.browser.until("the figures to be closed", closed).await?;
    page.browser.run("document.querySelector('.timeline .stage').focus()").await?;
    page.press('m').await?;
    page.until("measured", "data-ranks", "16").await?;
    page.close().await
}

/// From a recording to the copied report by keyboard alone: F, arrows, Enter, Esc, R.
#[tokio::test]
async fn a_hang_is_investigated_by_keyboard() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.until("finding", "data-culprits", "10").await?;
    let take = "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }";
    page.browser.run(take).await?;
    page.press('f').await?;
    page.until("details", "data-rank", "10").await?;
    let in_timeline = "return document.activeElement?.classList.contains('stage')";
    page.browser.until("the focus in the timeline", in_timeline).await?;
    let called = page.attribute("details", "data-call").await?;
    page.press(LEFT).await?;
    let other =
        format!("return document.querySelector('[data-test=details]')?.dataset.call !== {called}");
    page.browser.until("the call before", &other).await?;
    page.press(ENTER).await?;
    let in_details = "return document.activeElement?.classList.contains('details')";
    page.browser.until("the focus in the details", in_details).await?;
    page.press(ESCAPE).await?;
    page.browser.until("the focus back", in_timeline).await?;
    ensure!(page.attribute("details", "data-call").await?.is_string(), "Esc lost the call");
    page.press('r').await?;
    page.browser.until("the report", "return window.copied?.startsWith('# 1 finding')").await?;
    page.close().await
}

/// No calls mend a slow rank, and links that no call fits are not told as fitted.
#[tokio::test]
async fn nothing_is_offered_that_does_not_hold() -> Result<()> {
    let page = Page::open("#/recording?sample=straggler").await?;
    page.until("finding", "data-kind", "straggler").await?;
    let offered = "return document.querySelectorAll('[data-test=try-repair]').length";
    ensure!(page.browser.run(offered).await? == 0, "a slow rank is to be repaired");
    page.browser.run("location.hash = '#/recording?sample=gpu-profile'").await?;
    page.until("findings", "data-verdict", "healthy").await?;
    page.click("analyse").await?;
    page.click("ask-what-if").await?;
    // The calls of this profile fit no links.
    let told = "const told = document.querySelector('[data-test=what-if-told]')?.innerText ?? '';
        return told.includes('As it is') && !told.includes('fitted from')";
    page.browser.until("an answer that tells of no fitted links", told).await?;
    page.close().await
}

/// On a phone the timeline is far above the evidence: the call that it leads to comes in sight.
#[tokio::test]
async fn on_a_phone_the_call_that_is_gone_to_comes_in_sight() -> Result<()> {
    if Kind::asked_for()? != Kind::Chromium {
        return Ok(());
    }
    let page = Page::open("#/recording?sample=moe16").await?;
    page.browser.emulate((390, 844), false).await?;
    page.until("finding", "data-culprits", "10").await?;
    let far = "document.querySelector('[data-test=go-evidence]').scrollIntoView(); return window.scrollY > 600";
    ensure!(page.browser.run(far).await? == true, "the evidence is not far below");
    page.click("go-evidence").await?;
    let seen = "const box = document.querySelector('[data-test=details]')?.getBoundingClientRect();
        return box && box.top >= 0 && box.top < window.innerHeight";
    page.browser.until("the call's details in sight", seen).await?;
    page.close().await
}

/// A trace leaves in the forms of other tools.
#[tokio::test]
async fn a_recording_is_saved_for_other_tools() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.until("finding", "data-culprits", "10").await?;
    let take = "window.saved = []; const url = URL.createObjectURL;
        URL.createObjectURL = blob => { window.saved.push(blob.size); return url(blob); }";
    page.browser.run(take).await?;
    let forms = ["perfetto", "kineto", "chakra", "flight-recorder", "binary", "json"];
    for (at, form) in forms.into_iter().enumerate() {
        // Those of other tools are folded.
        let press = format!("document.querySelector('[data-test=export-{form}]').click()");
        page.browser.run(&press).await?;
        page.browser.until(form, &format!("return window.saved[{at}] > 100")).await?;
    }
    page.close().await
}

/// Under the pointer, a collective shows which member the others waited for.
#[tokio::test]
async fn what_belongs_together_is_linked() -> Result<()> {
    let page = Page::open("#/step?call=isend&world=4").await?;
    page.until("transport", "data-moment", "1").await?;
    // Every place of the timeline, until one lies on a call that has another end.
    let hover = "const stage = document.querySelector('.timeline .stage');
        const box = stage.getBoundingClientRect();
        window.tried = (window.tried ?? 0) + 1;
        const at = { clientX: box.x + box.width * (0.2 + 0.1 * (window.tried % 7)),
                     clientY: box.y + box.height * (0.1 + 0.04 * (window.tried % 23)) };
        stage.dispatchEvent(new PointerEvent('pointermove', { ...at, bubbles: true }));
        const links = document.querySelector('[data-test=timeline]').dataset.links;
        return links > 0 ? links : null";
    let links = page.browser.until("a link", hover).await?;
    assert_eq!(links, "1");
    page.browser.screenshot("links").await?;
    page.close().await
}

/// Every sample that ships opens.
#[tokio::test]
async fn every_sample_opens() -> Result<()> {
    let page = Page::open("#/").await?;
    for line in include_str!("../../web-ui/samples.txt").lines() {
        let id = line.split(" | ").next().unwrap_or_default();
        page.go(&format!("#/recording?sample={id}")).await?;
        page.browser.client.refresh().await?;
        page.until("recording", "data-stage", "open").await?;
        let problems = "return document.querySelectorAll('[data-test=file-problem]').length";
        assert_eq!(page.browser.run(problems).await?, 0, "{id}");
        let verdict = page.attribute("findings", "data-verdict").await?;
        let right = match id {
            "straggler" => verdict != "healthy",
            "gpu-profile" => verdict != "findings",
            _ => verdict == "findings",
        };
        ensure!(right, "{id}: {verdict}");
    }
    page.close().await
}

/// A dropped recording is there again after a reload, until it is closed.
#[tokio::test]
async fn a_reload_loses_nothing() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let folder = data("flight-recorder").join("t215_skip_allreduce_diff_size");
    let files: Vec<_> = (0..4).map(|rank| folder.join(format!("rank_{rank}"))).collect();
    page.choose("pick-files", &files).await?;
    page.until("finding", "data-culprits", "2").await?;
    page.browser.until("the files in the browser", &kept(true)).await?;
    page.browser.client.refresh().await?;
    page.until("finding", "data-culprits", "2").await?;
    page.click("close-recording").await?;
    page.until("recording", "data-stage", "empty").await?;
    page.browser.until("no files in the browser", &kept(false)).await?;
    page.browser.client.refresh().await?;
    page.until("recording", "data-stage", "empty").await?;
    page.close().await
}

/// Files that come while a sample is open are another job's; the stretch that is shown survives, and an address
/// whose files are missing says so.
#[tokio::test]
async fn a_sample_gives_way_to_the_job_that_is_dropped() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.until("finding", "data-culprits", "10").await?;
    let folder = data("flight-recorder").join("t215_skip_allreduce_diff_size");
    let files: Vec<_> = (0..4).map(|rank| folder.join(format!("rank_{rank}"))).collect();
    page.choose("pick-files", &files).await?;
    page.until("finding", "data-culprits", "2").await?;
    page.until("open-trace", "data-world", "4").await?;
    page.browser.until("the files in the browser", &kept(true)).await?;
    page.click("zoom-in").await?;
    page.browser
        .until("the stretch in the address", "return location.hash.includes('shown=')")
        .await?;
    // In nanoseconds: the address has whole picoseconds.
    let shown =
        "return Math.round(document.querySelector('[data-test=timeline]').dataset.from / 1000)";
    let before = page.browser.run(shown).await?;
    page.browser.client.refresh().await?;
    page.until("finding", "data-culprits", "2").await?;
    let after = page.browser.run(shown).await?;
    ensure!(after == before && before != 0, "the zoom is lost: {before} became {after}");
    page.click("close-recording").await?;
    page.until("recording", "data-stage", "empty").await?;
    page.browser.run("location.hash = '#/recording?call=2.7'").await?;
    page.browser
        .until(
            "a word on missing files",
            "return !!document.querySelector('[data-test=missing-files]')",
        )
        .await?;
    page.close().await
}

/// An area is measured by a button and a drag.
#[tokio::test]
async fn an_area_is_measured() -> Result<()> {
    let page = Page::open("#/recording?sample=moe16").await?;
    page.until("finding", "data-culprits", "10").await?;
    page.click("measure").await?;
    let drag = "const stage = document.querySelector('.timeline .stage');
        const box = stage.getBoundingClientRect();
        const at = (x, y) => ({ pointerId: 1, bubbles: true, clientX: box.x + box.width * x, clientY: box.y + y });
        stage.dispatchEvent(new PointerEvent('pointerdown', at(0.3, 20)));
        for (let x = 0.3; x < 0.7; x += 0.1) stage.dispatchEvent(new PointerEvent('pointermove', at(x, 24)));
        stage.dispatchEvent(new PointerEvent('pointerup', at(0.7, 24)));";
    page.browser.run(drag).await?;
    page.browser
        .until(
            "measured ranks",
            "return +document.querySelector('[data-test=measured]')?.dataset.ranks >= 1",
        )
        .await?;
    page.close().await
}

/// A script that returns true once the browser keeps files, or none. It asks again each time it runs.
fn kept(wanted: bool) -> String {
    format!(
        "const opening = indexedDB.open('lockstep', 1);
         opening.onsuccess = () => {{
             const store = opening.result.transaction('recording').objectStore('recording');
             const asked = store.count();
             asked.onsuccess = () => {{ window.kept = asked.result; opening.result.close(); }};
         }};
         return (window.kept > 0) === {wanted} && window.kept !== undefined"
    )
}

/// The analysis of a trace's time, its critical path, and the job without its straggler: in the
/// page the same times as on the command line.
#[tokio::test]
async fn a_slow_job_is_analysed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("slow.trace");
    let asked = trace.display().to_string();
    // A slow rank is a finding.
    ensure!(lockstep(["sim", "throttled-gpu", "-o", &asked]).code == 1);
    let native = lockstep(["whatif", &asked, "--without-straggler", "2", "--json"]);
    let native: Value = serde_json::from_str(&native.out)?;

    let page = Page::open("#/recording").await?;
    page.choose("pick-files", &[trace]).await?;
    page.click("analyse").await?;
    page.until("analysis", "data-steps", "true").await?;
    let late = page.text("late").await?;
    ensure!(late.contains("Rank 2 came last in 12 of 12"), "{late}");
    page.click("draw-path").await?;
    // The rank that came last most is proposed.
    page.click("ask-what-if").await?;
    let times = ["before", "after"].map(|side| native[side]["time_ps"].to_string());
    page.until("what-if-told", "data-after", &times[1]).await?;
    assert_eq!(page.attribute("what-if-told", "data-before").await?, times[0].as_str());
    page.browser.screenshot("analysis").await?;
    page.close().await
}
