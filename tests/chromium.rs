//! Headless Chromium, driven through chromedriver.

use crate::binary::{Killed, Patience};
use anyhow::{Context, Result};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The flags that keep a browser quiet, and let it run as root in a container.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1440,900",
];

/// The number of starts of a driver before it counts as one that does not start.
const STARTS: usize = 5;

/// A browser with a profile of its own. Both it and its driver are ended when it is closed, or
/// dropped after a failure.
#[derive(Debug)]
pub struct Chromium {
    /// The client that drives the page.
    pub client: Client,
    /// The port at which its driver listens.
    port: u16,
    // In this order: the driver takes its browser with it, then the profile can go.
    _driver: Killed,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts a browser.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start() -> Result<Chromium> {
        let profile = tempfile::tempdir()?;
        let (driver, port) = driver()?;
        let mut arguments: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let mut capabilities = Map::new();
        capabilities.insert("goog:chromeOptions".into(), json!({ "args": arguments }));
        // So that a test can say what the page complained of.
        capabilities.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .context("Chromium does not start")?;
        Ok(Chromium { client, port, _driver: driver, _profile: profile })
    }

    /// Runs a script in the page and returns its result.
    ///
    /// # Errors
    /// When it throws.
    pub async fn run(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// Runs a script until it returns something else than null or false.
    ///
    /// # Errors
    /// When it throws, or has not within [`Patience::LIMIT`].
    pub async fn until(&self, what: &str, script: &str) -> Result<Value> {
        let wait = async {
            loop {
                let value = self.run(script).await?;
                if !value.is_null() && value != Value::Bool(false) {
                    return anyhow::Ok(value);
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Patience::LIMIT, wait).await;
        waited.with_context(|| format!("waited {:?} for {what}", Patience::LIMIT))?
    }

    /// Saves a picture of the page as `name.png` in the folder that `LOCKSTEP_SCREENSHOTS` names; does
    /// nothing without it.
    ///
    /// # Errors
    /// When it cannot be taken or written.
    pub async fn screenshot(&self, name: &str) -> Result<()> {
        let Some(folder) = std::env::var_os("LOCKSTEP_SCREENSHOTS").map(PathBuf::from) else {
            return Ok(());
        };
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{name}.png")), self.client.screenshot().await?)?;
        Ok(())
    }

    /// Makes the network of the page slow: so many bytes a second, so many milliseconds to an answer.
    ///
    /// # Errors
    /// When the driver does not do that.
    pub async fn throttle(&self, bytes_a_second: u64, latency_ms: u64) -> Result<()> {
        let session = self.client.session_id().await?.context("no session")?;
        let url =
            format!("http://127.0.0.1:{}/session/{session}/chromium/network_conditions", self.port);
        let conditions = json!({ "network_conditions": {
            "offline": false,
            "latency": latency_ms,
            "download_throughput": bytes_a_second,
            "upload_throughput": bytes_a_second,
        } });
        ureq::post(url).send(conditions.to_string())?;
        Ok(())
    }

    /// Ends the session and the browser.
    ///
    /// # Errors
    /// When the driver does not answer any more.
    pub async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}

/// A driver and its port. chromedriver looks for a free port and takes it in two steps; where
/// another process takes it between them, chromedriver ends, and is started again.
fn driver() -> Result<(Killed, u16)> {
    let mut said = String::new();
    for _ in 0..STARTS {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().context(
            "chromedriver does not start; `cargo xtask test` installs it, or says what to install",
        )?;
        let out = driver.stdout.take().context("a pipe")?;
        let driver = Killed(driver);
        if let Some(port) = port_of(BufReader::new(out), &mut said)? {
            return Ok((driver, port));
        }
    }
    anyhow::bail!("chromedriver ended {STARTS} times before it said its port:\n{said}")
}

/// The port that the driver chose, from its first lines; `None` if it ended without one. The rest
/// of what it says is read and dropped, so that it never waits for us.
fn port_of(
    mut out: BufReader<std::process::ChildStdout>,
    said: &mut String,
) -> Result<Option<u16>> {
    let mut line = String::new();
    while out.read_line(&mut line)? > 0 {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            let port = port.trim().trim_end_matches('.').parse()?;
            std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
            return Ok(Some(port));
        }
        said.push_str(&line);
        line.clear();
    }
    Ok(None)
}
