//! Lessons: a question is answered wrongly, then rightly; the lesson goes on, and what was done is
//! still known after the page is opened again. The simulation beside the text is live.

use anyhow::{Context, Result, ensure};
use lockstep_tests::Page;

#[tokio::test]
async fn a_lesson_is_answered_and_remembered() -> Result<()> {
    let page = Page::open("#/learn").await?;
    page.until("lessons", "data-done", "0").await?;
    page.until("lesson-ring-all-reduce", "data-state", "new").await?;
    page.click("lesson-ring-all-reduce").await?;
    page.until("lesson", "data-at", "1").await?;
    let steps = page.attribute("lesson", "data-steps").await?;
    let steps: usize = steps.as_str().context("a number of steps")?.parse()?;
    // The simulation beside the text is a view of the page, and steps by its own controls.
    page.until("live", "data-view", "step").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("forward").await?;
    page.until("transport", "data-moment", "2").await?;
    let address = page.browser.run("return location.hash").await?;
    ensure!(address == "#/learn/ring-all-reduce", "the lesson's address is its own: {address}");
    // To the question, by keyboard.
    page.press('j').await?;
    page.until("lesson", "data-at", "2").await?;
    page.until("question", "data-state", "open").await?;
    page.until("transport", "data-moment", "1").await?;
    ensure!(page.attribute("then", "class").await?.is_null(), "what follows is told too early");
    page.press('1').await?;
    page.until("question", "data-state", "wrong").await?;
    ensure!(page.text("why-1").await?.starts_with("Not this one."), "a wrong answer is explained");
    ensure!(page.attribute("then", "class").await?.is_null(), "a wrong answer ends the question");
    page.click("answer-2").await?;
    page.until("question", "data-state", "right").await?;
    ensure!(page.text("why-2").await?.starts_with("Right."), "a right answer is explained");
    page.until("then", "class", "then").await?;
    // The answer is shown by the simulation.
    page.until("transport", "data-moment", "2").await?;
    page.click("next-step").await?;
    page.until("lesson", "data-at", "3").await?;
    page.browser.screenshot("learn").await?;
    // Opened again it is where it was, and the answer is known.
    page.browser.client.refresh().await?;
    page.until("lesson", "data-at", "3").await?;
    page.until("dot-2", "data-solved", "true").await?;
    page.press('k').await?;
    page.until("question", "data-state", "right").await?;
    // Every other question, by trying.
    for step in 3..=steps {
        page.click("next-step").await?;
        page.until("lesson", "data-at", &step.to_string()).await?;
        for answer in 1..=5 {
            let open = "return document.querySelector('[data-test=question]')?.dataset.state";
            let state = page.browser.run(open).await?;
            if state.is_null() || state == "right" {
                break;
            }
            page.click(&format!("answer-{answer}")).await?;
        }
    }
    page.until("lesson-end", "data-done", "true").await?;
    page.click("all-lessons").await?;
    page.until("lessons", "data-done", "1").await?;
    page.until("lesson-ring-all-reduce", "data-state", "done").await?;
    page.browser.screenshot("learn-list").await?;
    // Begun anew.
    page.click("lesson-ring-all-reduce").await?;
    page.click("reset-lesson").await?;
    page.until("dot-2", "data-solved", "false").await?;
    page.close().await
}

/// The findings are the answer to the lesson's question: they are shown after it.
#[tokio::test]
async fn a_hang_keeps_its_diagnosis_until_the_question_is_answered() -> Result<()> {
    let page = Page::open("#/learn/a-skipped-call?at=3").await?;
    page.until("debugger", "data-state", "ready").await?;
    let shown = "return document.querySelectorAll('.learn-live .findings').length";
    page.browser
        .until("an end", "return document.body.innerText.includes('the watchdog ended the job')")
        .await?;
    ensure!(page.browser.run(shown).await? == 0, "the answer is shown before the question");
    page.click("answer-2").await?;
    page.until("question", "data-state", "right").await?;
    page.browser.until("the findings", &format!("{shown} > 0")).await?;
    page.browser.screenshot("learn-hang").await?;
    page.close().await
}

/// A lesson opens recordings as the reader would, and the glossary leads to views.
#[tokio::test]
async fn dumps_are_read_and_words_are_found() -> Result<()> {
    let page = Page::open("#/learn/flight-recorder").await?;
    page.until("recording", "data-stage", "open").await?;
    page.until("open-trace", "data-world", "4").await?;
    page.browser.screenshot("learn-dump").await?;
    page.go("#/learn/glossary?word=bucket").await?;
    page.until("word-bucket", "class", "asked").await?;
    let link = "document.querySelector('[data-test=word-bucket] a').click()";
    page.browser.run(link).await?;
    page.until("ddp", "data-ready", "true").await?;
    page.go("#/learn/nothing-of-the-kind").await?;
    page.until("lesson-missing", "role", "alert").await?;
    page.close().await
}
