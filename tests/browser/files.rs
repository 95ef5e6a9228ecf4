//! Files that are dropped or chosen.

use anyhow::{Context, Result, bail, ensure};
use fantoccini::Locator;
use lockstep_core::collective::Collective;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, ProvedTable, Schedule, ScheduleError};
use lockstep_formats::msccl;
use lockstep_tests::{Kind, Page, data};
use serde_json::{Value, json};
use std::sync::Arc;

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
        let input = page.browser.client.find(Locator::Css("[data-test=pick-schedule]")).await?;
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
    let input = page.browser.client.find(Locator::Css("[data-test=pick-schedule]")).await?;
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
    page.browser.run(&drop("a2a.xml", &xml)).await?;
    page.until("schedule-verdict", "data-proved", "true").await?;
    page.go("#/step").await?;
    page.until("transport", "data-moment", "1").await?;
    page.browser.run(&drop("rank_0", "this is no dump")).await?;
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
        ("t291_healthy", "inconclusive", ""),
    ];
    for (folder, verdict, culprits) in cases {
        let input = page.browser.client.find(Locator::Css("[data-test=pick-files]")).await?;
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
        page.browser.screenshot(&format!("recording-{folder}")).await?;
        page.go("#/step").await?;
        page.go("#/recording").await?;
    }
    page.close().await
}

/// The calls stand side by side where ranks first disagree, and the repair is tried in the page.
#[tokio::test]
async fn a_recording_is_repaired() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let folder = data("flight-recorder").join("t215_skip_allreduce_diff_size");
    let files: Vec<_> = (0..4).map(|rank| folder.join(format!("rank_{rank}"))).collect();
    page.choose("pick-files", &files).await?;
    page.until("finding", "data-culprits", "2").await?;
    let rows = "document.querySelectorAll('[data-test=ladder] tr.differs').length";
    assert_eq!(page.browser.run(&format!("return {rows}")).await?, 1);
    page.click("try-repair").await?;
    page.until("repaired", "data-verified", "true").await?;
    // Rank 2 alone calls something else, and both jobs are on one scale.
    page.until("repaired-lanes", "data-changed", "1").await?;
    let lengths = "const shown = [...document.querySelectorAll('[data-test=timeline]')];
        const long = shown.map(lane => lane.dataset.to - lane.dataset.from);
        return long.length === 2 && long[0] > 0 && long[0] === long[1]";
    page.browser.until("two timelines of one length", lengths).await?;
    page.browser.screenshot("recording-repaired").await?;
    page.click("as-program").await?;
    let written =
        "const text = document.querySelector('[data-test=program-written]')?.innerText ?? '';
        return text.includes('def main():') && text.includes('if rank != 2:')";
    page.browser.until("the program", written).await?;
    page.browser.screenshot("recording-as-program").await?;
    page.click("debug-program").await?;
    page.until("debugger", "data-ready", "true").await?;
    page.browser.screenshot("recording-debugged").await?;
    page.close().await
}

/// A message's first sentence is a line of its own on the page.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        (profiles.clone(), "inconclusive", "", "2 of the job's 4 ranks have a profile"),
        (
            with(dumps("t215_ddp_uneven_inputs"), &said),
            "findings",
            "ddp_uneven_inputs",
            "1 message of PyTorch's own",
        ),
        (with(healthy, &nccl), "inconclusive", "", "NCCL's log tells of"),
    ] {
        let input = page.browser.client.find(Locator::Css("[data-test=pick-files]")).await?;
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        input.send_keys(&names.join("\n")).await?;
        page.until("findings", "data-verdict", verdict).await?;
        let text = in_one_line(&page.text("findings").await?);
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
        // What comes next is no part of this.
        page.click("close-recording").await?;
        page.until("recording", "data-stage", "empty").await?;
    }
    page.close().await
}

/// Evidence from a log names its file and line; a click shows that line with those around it, as the file has it.
#[tokio::test]
async fn evidence_of_a_log_opens_its_line() -> Result<()> {
    let name = "two-ranks-at-different-numbers.log";
    let log = data("job-log-reports").join(name);
    let text = std::fs::read_to_string(&log)?;
    let page = Page::open("#/recording").await?;
    page.choose("pick-files", &[log]).await?;
    page.until("findings", "data-verdict", "findings").await?;
    let told = page.text("go-log").await?;
    let line = told.split(&format!("{name}:")).nth(1).context("the evidence names no line")?;
    let line: usize = line.trim().parse()?;
    page.click("go-log").await?;
    page.until("dropped-source", "data-test", "dropped-source").await?;
    let here = "return document.querySelector('[data-test=dropped-source] li.here code').innerText";
    let shown = page.browser.run(here).await?;
    let wanted = text.lines().nth(line - 1).context("no such line")?;
    ensure!(shown.as_str().is_some_and(|shown| wanted.starts_with(shown.trim())), "{shown}");
    // The button keeps the focus, and the line fits into the finding.
    let fits = "const of = (test) => document.querySelector(`[data-test=${test}]`);
        const evidence = of('go-log').closest('ul');
        return document.activeElement === of('go-log') && evidence.scrollWidth <= evidence.clientWidth
            && of('dropped-source').getBoundingClientRect().width > evidence.clientWidth * 0.9";
    ensure!(page.browser.run(fits).await? == true, "the line takes the focus or the room");
    page.click("go-log").await?;
    let gone = "return !document.querySelector('[data-test=dropped-source]')";
    page.browser.until("the line closed", gone).await?;
    page.close().await
}

/// Files of so many bytes together that other workers read some of them; what follows a pickle's end
/// is not looked at. A log is among them, which those leave to the first worker.
#[tokio::test]
async fn large_recordings_come_to_the_same_as_small_ones() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for rank in 0..4 {
        let name = format!("rank_{rank}");
        let from = data("flight-recorder").join("t215_ddp_uneven_inputs").join(&name);
        let mut bytes = std::fs::read(from)?;
        bytes.resize(9 << 20, 0);
        files.push(folder.path().join(name));
        std::fs::write(&files[rank], bytes)?;
    }
    files.insert(1, folder.path().join("train.log"));
    std::fs::write(&files[1], "RuntimeError: Rank 3 exhausted all inputs.\n")?;
    let input = page.browser.client.find(Locator::Css("[data-test=pick-files]")).await?;
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    input.send_keys(&names.join("\n")).await?;
    page.until("finding", "data-kind", "ddp_uneven_inputs").await?;
    assert_eq!(page.attribute("open-trace", "data-world").await?, "4");
    let text = in_one_line(&page.text("findings").await?);
    let output = lockstep_tests::lockstep(
        ["diagnose".to_owned(), "--json".to_owned()].into_iter().chain(names),
    );
    let report: Value = serde_json::from_str(&output.out)?;
    let notes = report["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let messages = report["findings"].as_array().into_iter().flatten();
    for said in messages.filter_map(|finding| finding["message"].as_str()).chain(notes) {
        ensure!(text.contains(said), "{said:?} is not in {text}");
    }
    page.close().await
}

/// A cancelled reading is over at once, and no part of the next drop, although the worker is too
/// deep in it to hear so.
#[tokio::test]
async fn what_was_cancelled_is_not_read_again() -> Result<()> {
    let page = Page::open("#/recording").await?;
    let folder = tempfile::tempdir()?;
    let large = folder.path().join("core.bin");
    std::fs::File::create(&large)?.set_len(400 << 20)?;
    let pick = async |names: &str| -> Result<()> {
        let input = page.browser.client.find(Locator::Css("[data-test=pick-files]")).await?;
        Ok(input.send_keys(names).await?)
    };
    pick(&large.display().to_string()).await?;
    page.until("recording", "data-stage", "reading").await?;
    page.click("cancel-reading").await?;
    assert_eq!(page.attribute("recording", "data-stage").await?, "empty");
    let case = data("flight-recorder").join("t215_type_mismatch");
    let names: Vec<String> =
        (0..4).map(|rank| case.join(format!("rank_{rank}")).display().to_string()).collect();
    pick(&names.join("\n")).await?;
    page.until("findings", "data-verdict", "findings").await?;
    page.until("finding", "data-culprits", "1").await?;
    let text = in_one_line(&page.text("recording").await?);
    ensure!(text.contains("4 files so far. Files of other names"), "{text}");
    page.close().await
}

/// A file that is dropped before the program is there is kept for it. The page is opened from
/// another one, which drops a file as soon as it can be kept: while the program is still on its
/// way.
#[tokio::test]
async fn a_file_that_is_dropped_early_is_kept() -> Result<()> {
    if Kind::asked_for()? == Kind::Firefox {
        // It slows the timers of a window behind another one: the drop would come after the page.
        return Ok(());
    }
    let page = Page::open("#/runs").await?;
    page.browser
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
    let kept = page.browser.until("the file to be kept", "return window.kept").await?;
    assert_eq!(kept, json!(1));
    assert_eq!(page.browser.run("return window.early").await?, json!(true));
    let read = "return child.document.querySelector('[data-test=recording-error]')?.innerText";
    let said = page.browser.until("the file to be read", read).await?;
    assert!(said.as_str().unwrap_or_default().contains("rank_0"), "{said}");
    assert_eq!(page.browser.run("return child.lockstep_early").await?, json!(null));
    page.close().await
}
