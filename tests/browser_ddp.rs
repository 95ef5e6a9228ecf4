//! The DDP lab on the page, in headless Chromium against the real binary: PyTorch's buckets, a step
//! at a time, why a gradient waits, two settings side by side, sweeps; and what strangers drop.

use anyhow::{Context, Result, ensure};
use fantoccini::key::Key;
use lockstep_tests::Page;
use lockstep_torch::ddp::BucketCap;
use lockstep_torch::ddp::RingLink;
use lockstep_torch::ddp::lab::{LabModel, LabRun, Setting};
use lockstep_torch::ddp::model::{Device, named};
use lockstep_torch::ddp::plan::Training;
use serde_json::{Value, json};

/// The page's default: 8 A100s on equal links.
fn default_setting() -> Result<Setting> {
    let device = Device::named("A100").context("a device")?;
    let link = RingLink { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };
    Ok(Setting { training: Training::new(8, device), links: link.into() })
}

async fn ready(page: &Page) -> Result<()> {
    page.until("ddp", "data-ready", "true").await
}

/// Points at the middle of what `find` finds on the canvas, by its column.
async fn hover(page: &Page, across: f64, down: f64) -> Result<()> {
    let script = format!(
        "const shelf = document.querySelector('[data-test=blocks-A] .shelf');
         const area = shelf.getBoundingClientRect();
         const at = {{ clientX: area.left + {across}, clientY: area.top + {down}, bubbles: true }};
         shelf.dispatchEvent(new PointerEvent('pointermove', at))"
    );
    page.browser.run(&script).await?;
    Ok(())
}

#[tokio::test]
async fn resnet18_fills_pytorchs_buckets_step_by_step() -> Result<()> {
    let page = Page::open("#/ddp").await?;
    ready(&page).await?;
    let bytes = page.text("bytes-A").await?;
    assert!(bytes.contains("46,758,048 bytes at first"), "{bytes}");
    assert!(bytes.contains("2,052,000 / 28,852,224 / 15,853,824 bytes"), "{bytes}");
    // Every sentence is the core's, forwards and backwards.
    let (model, setting) = (named("resnet18").context("a model")?, default_setting()?);
    let run = LabRun::of(&model, &setting)?;
    let (shown, pass) = (LabModel::of(&model), run.pass(2).context("a pass")?);
    assert_eq!(
        page.attribute("transport", "data-last").await?,
        json!((pass.moments.len() - 1).to_string())
    );
    page.press(Key::Home.into()).await?;
    page.until("transport", "data-moment", "0").await?;
    for moment in 0..5 {
        page.until("blocks-A", "data-moment", &moment.to_string()).await?;
        assert_eq!(page.text("sentence").await?, pass.sentence(&shown, &setting, moment));
        page.press(Key::Right.into()).await?;
        page.until("transport", "data-moving", "false").await?;
        page.until("transport", "data-moment", &(moment + 1).to_string()).await?;
    }
    page.press(Key::Left.into()).await?;
    page.until("transport", "data-moment", "4").await?;
    let scrubbed = pass.moments.len() / 2;
    page.scrub(scrubbed).await?;
    page.until("blocks-A", "data-moment", &scrubbed.to_string()).await?;
    assert_eq!(page.text("sentence").await?, pass.sentence(&shown, &setting, scrubbed));
    page.browser.screenshot("ddp").await?;
    // The address holds where it stands.
    let address =
        "return location.hash.includes('moment=') && location.hash.includes('model=resnet18')";
    page.browser.until("the moment in the address", address).await?;
    // The first pass: one bucket, the constructor's.
    page.click("pass-1").await?;
    let first = run.pass(0).context("a pass")?;
    page.until("transport", "data-last", &(first.moments.len() - 1).to_string()).await?;
    page.until("ddp", "data-ready", "true").await?;
    let rows = "return document.querySelectorAll('[data-test=bucket-table-A] tbody tr').length";
    assert_eq!(page.browser.run(rows).await?, json!(1));
    page.close().await
}

#[tokio::test]
async fn a_gradient_says_why_it_waits() -> Result<()> {
    let page = Page::open("#/ddp?model=resnet18").await?;
    ready(&page).await?;
    let shown = "return document.querySelector('[data-test=blocks-A]').dataset.shown";
    assert_eq!(page.browser.until("blocks", shown).await?, json!("62"));
    // The first block of the first shelf, behind the bucket's number: fc.bias.
    hover(&page, 33.0, 10.0).await?;
    page.until("param-card", "data-param", "61").await?;
    let card = page.text("param-card").await?;
    for said in
        ["fc.bias", "float32 [1000]", "4,000 bytes", "in bucket 0, gradient 1 of 2", "fc.weight"]
    {
        assert!(card.contains(said), "{said}: {card}");
    }
    // By keyboard: the next one, and it stays in the address.
    let focus = "document.querySelector('[data-test=blocks-A] .shelf').dispatchEvent(new PointerEvent('pointerleave'));
        document.querySelector('[data-test=blocks-A] .shelf').focus()";
    page.browser.run(focus).await?;
    page.press(Key::Down.into()).await?;
    page.press(Key::Down.into()).await?;
    page.browser
        .until("the gradient in the address", "return location.hash.includes('param=60')")
        .await?;
    // Its card can be closed, as a phone has no Escape.
    page.browser.run("document.querySelector('[data-test=param-close]').click()").await?;
    let closed = "return !location.hash.includes('param=')
        && !document.querySelector('[data-test=param-card]')";
    page.browser.until("the card closed", closed).await?;
    // All of GPT-2 XL's 580 and ResNet-152's 467 have room.
    for (model, count) in [("gpt2-xl", "580"), ("resnet152", "467")] {
        page.go(&format!("#/ddp?model={model}&world=1024")).await?;
        ready(&page).await?;
        page.until("blocks-A", "data-shown", count).await?;
    }
    page.close().await
}

#[tokio::test]
async fn two_settings_side_by_side_say_what_each_option_changed() -> Result<()> {
    let page = Page::open("#/ddp").await?;
    ready(&page).await?;
    page.click("compare").await?;
    page.until("changes", "data-rows", "0").await?;
    assert!(page.text("changes-none").await?.contains("the same so far"));
    let choose = |name: &str, value: &str| {
        format!(
            "const select = document.querySelector('[data-test=choose-{name}]'); select.value = '{value}';
             select.dispatchEvent(new Event('change', {{ bubbles: true }}))"
        )
    };
    page.browser.run(&choose("known-cap", "25")).await?;
    page.until("changes", "data-rows", "1").await?;
    page.browser.run(&choose("hook", "fp16")).await?;
    page.until("changes", "data-rows", "2").await?;
    ready(&page).await?;
    page.until("changes", "data-ready", "true").await?;
    page.browser.screenshot("ddp-compare").await?;
    // An explicit 25 is not the default.
    let (a, b) = (page.text("bytes-A").await?, page.text("bytes-B").await?);
    assert!(
        a.contains("2,052,000 / 28,852,224") && b.contains("rebuilt: 30,904,224 / 15,853,824"),
        "{a} | {b}"
    );
    let table = page.text("changes").await?;
    let setting = default_setting()?;
    let model = named("resnet18").context("a model")?;
    let mut capped = setting.clone();
    capped.training.options.bucket_cap = BucketCap::from_mb(25.0)?;
    let summary = LabRun::of(&model, &capped)?.summary();
    assert_eq!(summary.buckets, 2);
    for said in [
        "bucket_cap_mb",
        "default (1 MiB, then 25 MiB) → 25 MiB",
        "comm_hook",
        "none → float16 compress",
    ] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let exposed = page.attribute("streams", "data-exposed").await?;
    let exposed = exposed.as_str().context("a text")?;
    let pass = LabRun::of(&model, &setting)?.pass(2).context("a pass")?;
    ensure!(exposed.starts_with(&format!("{},", pass.exposed_ps)), "{exposed}");
    page.click("compare-end").await?;
    page.browser.until("A alone", "return !document.querySelector('[data-test=blocks-B]')").await?;
    page.close().await
}

#[tokio::test]
async fn a_sweep_names_the_best_cap_and_ddp_prints_its_log() -> Result<()> {
    let page = Page::open("#/ddp?tab=sweep&world=64").await?;
    page.until("sweep", "data-ready", "true").await?;
    page.until("sweep", "data-points", "40").await?;
    let best = page.text("best").await?;
    assert!(best.starts_with("Best: ") && best.contains("a step with"), "{best}");
    for (chart, lines) in [("step", "5"), ("exposed", "5"), ("efficiency", "5")] {
        page.until(&format!("chart-{chart}"), "data-lines", lines).await?;
    }
    // Ten points on each of five curves, three times.
    let drawn = "return document.querySelectorAll('.charts svg circle').length";
    assert_eq!(page.browser.until("curves", drawn).await?, json!(150));
    page.browser.screenshot("ddp-sweep").await?;
    for over in ["worlds", "links"] {
        page.go(&format!("#/ddp?tab=sweep&sweep={over}&lines=caps")).await?;
        page.until("sweep", "data-ready", "true").await?;
        assert!(page.text("best").await?.len() > 20);
    }
    page.click("tab-log").await?;
    let log = page.text("ddp-log").await?;
    for said in [
        "'rebuilt_bucket_sizes': '2052000, 28852224, 15853824'",
        "'world_size': 8",
        "'has_rebuilt_buckets': 1",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    page.close().await
}

/// The features around DDP are chosen on the form, drawn for the rank that is asked for, and in the
/// address.
#[tokio::test]
async fn what_stands_around_ddp_is_chosen_and_shown_by_rank() -> Result<()> {
    let page = Page::open("#/ddp?world=4").await?;
    ready(&page).await?;
    let set = |name: &str, value: &str| {
        format!(
            "document.querySelector('[data-test=around]').open = true;
             const field = document.querySelector('[data-test=choose-{name}]'); field.value = '{value}';
             field.dispatchEvent(new Event('change', {{ bubbles: true }}))"
        )
    };
    let said = |words: &str| {
        format!(
            "return document.querySelector('[data-test=sentence]')?.innerText.includes('{words}')"
        )
    };
    page.browser.run(&set("join", "5,3")).await?;
    page.browser.until("the address", "return location.hash.includes('join=5%2C3')").await?;
    page.until("role", "data-role", "0").await?;
    assert_eq!(page.text("role").await?, "5 inputs");
    // Rank 1 has three inputs: in pass 4 it shadows rank 0.
    page.browser.run(&set("role", "1")).await?;
    page.until("role", "data-role", "1").await?;
    page.click("pass-4").await?;
    ready(&page).await?;
    page.press(Key::Home.into()).await?;
    page.browser.until("the shadow", &said("Rank 1 has no inputs left")).await?;
    assert!(page.text("pass-words").await?.contains("shadows the others"));
    page.browser.screenshot("ddp-join").await?;
    for (hash, test, words) in [
        ("#/ddp?nograd=fc", "raised", "Expected to have finished reduction"),
        ("#/ddp?averager=periodic%3A4%3A0", "pass-words", "averages the parameters"),
        ("#/ddp?version=1.x&devices=2&rank=3&world=4", "role", "another device"),
        // Figures are those of whole passes.
        (
            "#/ddp?join=3,2,4,1&throw=1&world=4",
            "bytes-A",
            "not rebuilt before DDP raises · a step takes",
        ),
        ("#/ddp?join=0,1&throw=1&world=2", "bytes-A", "a step, up to where DDP raises, takes"),
        ("#/ddp?mixed=bfloat16", "bytes-A", "2,052,000"),
        ("#/ddp?zero=interleaved&shard=1", "bytes-A", "2,052,000"),
    ] {
        page.go("#/mesh").await?;
        page.go(hash).await?;
        ready(&page).await.with_context(|| hash.to_owned())?;
        let text = page.text(test).await?;
        assert!(text.contains(words), "{hash}: {text}");
    }
    // The simulator goes as far as DDP does.
    page.go("#/ddp?nograd=fc&world=2").await?;
    ready(&page).await?;
    page.click("check-run").await?;
    let told = "return document.querySelector('[data-test=check]').innerText.includes('Simulated on 2 ranks')";
    page.browser.until("what the simulator says", told).await?;
    page.close().await
}

#[tokio::test]
async fn the_plan_is_simulated_and_can_be_run() -> Result<()> {
    let page = Page::open("#/ddp?model=mlp:64,128,10&world=2&cap=0.01").await?;
    ready(&page).await?;
    page.click("simulate").await?;
    page.until("ddp-simulate", "data-ready", "true").await?;
    page.until("transport", "data-moment", "1").await?;
    page.click("end").await?;
    page.click("run-real").await?;
    page.until("real-run", "data-stage", "ended").await?;
    // Value by value as simulated.
    page.until("comparison", "data-equal", "true").await?;
    page.browser.screenshot("ddp-simulate").await?;
    page.close().await
}

/// Hands the page a file by its picker.
async fn pick(page: &Page, name: &str, contents: &str) -> Result<()> {
    let script = format!(
        "const input = document.querySelector('[data-test=pick-model]');
         const files = new DataTransfer(); files.items.add(new File([{contents}], '{name}'));
         input.files = files.files; input.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    );
    page.browser.run(&script).await?;
    Ok(())
}

#[tokio::test]
async fn a_model_from_a_file_is_read_or_refused_with_reasons() -> Result<()> {
    let page = Page::open("#/ddp").await?;
    ready(&page).await?;
    for (name, contents, said) in [
        ("empty.json", "''", "is empty"),
        ("garbage.json", "'{\"params\": [1, 2'", "not a model"),
        ("garbage.csv", "'a,b\\nc'", "no shape"),
        ("picture.json", "new Uint8Array([255, 216, 255, 0])", "is no text"),
        ("large.json", "new Uint8Array(500 * 1024 * 1024)", "500 MiB"),
    ] {
        pick(&page, name, contents).await?;
        let wrong = format!(
            "return document.querySelector('[data-test=ddp-wrong]')?.innerText.includes({})",
            Value::from(said)
        );
        page.browser.until(&format!("{name} to be refused"), &wrong).await?;
    }
    // A small one of three parameters, and what DDP does with it.
    pick(&page, "three.csv", "'w1,256x1024\\nw2,1024x256\\nw3,8'").await?;
    page.browser
        .until("the model of the file", "return location.hash.includes('model=file')")
        .await?;
    ready(&page).await?;
    page.until("blocks-A", "data-shown", "3").await?;
    assert!(page.text("bytes-A").await?.contains("2,097,184 bytes at first"));
    // A hundred thousand parameters: drawn as far as there is room, and stepped.
    let many = "Array.from({ length: 100000 }, (_, i) => `p${i}.weight,16`).join('\\n')";
    pick(&page, "many.csv", many).await?;
    let drawn =
        "return Number(document.querySelector('[data-test=blocks-A]')?.dataset.shown) > 10000";
    page.browser.until("many blocks", drawn).await?;
    ready(&page).await?;
    page.press(Key::End.into()).await?;
    page.until("transport", "data-moving", "false").await?;
    // A name without a place to break does not push the page off its screen.
    pick(&page, "long.csv", "'a'.repeat(3000) + '.weight,8x8'").await?;
    page.until("blocks-A", "data-shown", "1").await?;
    page.go("#/ddp?model=file&moment=2").await?;
    let fits = "return document.querySelector('[data-test=sentence]')?.innerText.includes('aaaa')
        && document.documentElement.scrollWidth <= innerWidth";
    page.browser.until("a long name on the page", fits).await?;
    page.close().await
}

#[tokio::test]
async fn worlds_and_caps_at_their_ends_are_answered() -> Result<()> {
    let page = Page::open("#/ddp?world=1").await?;
    ready(&page).await?;
    page.until("streams", "data-exposed", "0").await?;
    for (hash, ready_or_said) in [
        ("#/ddp?world=100000&model=gpt2-small", None),
        ("#/ddp?world=131072&model=mlp:8,8", None),
        ("#/ddp?world=4294967295&model=mlp:8,8", Some("131,072")),
        ("#/ddp?model=resnet19&hook=power-sgdd", Some("hook=powersgd")),
        ("#/ddp?join=5,x", Some("no number of inputs")),
        ("#/ddp?hook=localsgd&subgroup=3", Some("must be divisible by")),
        ("#/ddp?nograd=layer9", Some("did you mean layer")),
        ("#/ddp?ignore=fc.wieght", Some("did you mean fc.weight")),
        ("#/ddp?cap=0", None),
        ("#/ddp?cap=-1", None),
        ("#/ddp?cap=99999999999", None),
        ("#/ddp?cap=-1&unused=1", Some("DDP raises")),
        ("#/ddp?cap=1e300", Some("no number of bytes")),
        ("#/ddp?cap=x", Some("no number of MiB")),
        ("#/ddp?model=mlp:0,1", Some("no size of a layer")),
        ("#/ddp?model=file", Some("drop it here again")),
        ("#/ddp/simulate?world=100", Some("too many messages")),
    ] {
        page.go("#/mesh").await?;
        page.go(hash).await?;
        match ready_or_said {
            None => ready(&page).await.with_context(|| hash.to_owned())?,
            Some(said) => {
                let wrong = format!(
                    "return document.querySelector('main.ddp')?.innerText.includes('{said}')"
                );
                page.browser.until(hash, &wrong).await?;
            }
        }
    }
    page.close().await
}

/// A hook's state is PyTorch's, which is said where it comes behind what is followed.
#[tokio::test]
async fn a_hook_begins_where_pytorchs_does() -> Result<()> {
    let page = Page::open("#/ddp?model=mlp:64,64,10&world=4&hook=powersgd").await?;
    ready(&page).await?;
    let note = page.text("hook-note").await?;
    ensure!(note.contains("begins in iteration 1001"), "{note}");
    page.go("#/ddp?model=mlp:64,64,10&world=4&hook=powersgd&psgd_start=2").await?;
    let gone = "return !document.querySelector('[data-test=hook-note]')
        && document.querySelector('main.ddp')?.innerText.includes('start_powerSGD_iter')";
    page.browser.until("no note", gone).await?;
    page.close().await
}
