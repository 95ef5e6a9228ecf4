//! A headless browser, driven through its WebDriver: Chromium, or Firefox where
//! `LOCKSTEP_BROWSER=firefox` asks for it.

use crate::binary::{Killed, Patience};
use anyhow::{Context, Result, ensure};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The flags that keep Chromium quiet, and let it run as root in a container.
const CHROMIUM_FLAGS: &[&str] = &[
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

/// The flags that give Firefox the same window.
const FIREFOX_FLAGS: &[&str] = &["-headless", "--width=1440", "--height=900"];

/// The number of starts of a driver before it counts as one that does not start.
const STARTS: usize = 5;

/// The browsers that the page is tested in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Chromium, through chromedriver.
    Chromium,
    /// Firefox, through geckodriver.
    Firefox,
}

impl Kind {
    /// The browser that `LOCKSTEP_BROWSER` names; Chromium without it.
    ///
    /// # Errors
    /// When it names another one.
    pub fn asked_for() -> Result<Kind> {
        match std::env::var("LOCKSTEP_BROWSER").as_deref() {
            Err(_) | Ok("chromium") => Ok(Kind::Chromium),
            Ok("firefox") => Ok(Kind::Firefox),
            Ok(other) => anyhow::bail!("LOCKSTEP_BROWSER is {other:?}: take chromium or firefox"),
        }
    }

    /// The driver's program.
    fn driver(self) -> &'static str {
        match self {
            Kind::Chromium => "chromedriver",
            Kind::Firefox => "geckodriver",
        }
    }

    /// The text before the port in the line that the driver writes when it listens.
    fn before_port(self) -> &'static str {
        match self {
            Kind::Chromium => "started successfully on port ",
            Kind::Firefox => "Listening on 127.0.0.1:",
        }
    }

    fn capabilities(self, profile: &Path) -> Map<String, Value> {
        let mut capabilities = Map::new();
        let texts = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect();
        match self {
            Kind::Chromium => {
                let mut arguments: Vec<String> = texts(CHROMIUM_FLAGS);
                arguments.push(format!("--user-data-dir={}", profile.display()));
                capabilities.insert("goog:chromeOptions".into(), json!({ "args": arguments }));
                // So that a test can say what the page complained of.
                capabilities.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
            }
            // geckodriver makes a profile of its own, and removes it.
            Kind::Firefox => {
                let arguments: Vec<String> = texts(FIREFOX_FLAGS);
                // Tests open windows, which Firefox blocks outside of a click.
                let preferences = json!({ "dom.disable_open_during_load": false });
                let options = json!({ "args": arguments, "prefs": preferences });
                capabilities.insert("moz:firefoxOptions".into(), options);
            }
        }
        capabilities
    }
}

/// A browser with a profile of its own. Both it and its driver are ended when it is closed, or
/// dropped after a failure.
#[derive(Debug)]
pub struct Browser {
    /// The client that drives the page.
    pub client: Client,
    kind: Kind,
    /// The port at which its driver listens.
    port: u16,
    // In this order: the browser goes with its driver, then the profile can go.
    _driver: Driver,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub async fn start() -> Result<Browser> {
        let kind = Kind::asked_for()?;
        let profile = tempfile::tempdir()?;
        let (driver, port) = driver(kind)?;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(kind.capabilities(profile.path()))
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .with_context(|| format!("{kind:?} does not start"))?;
        Ok(Browser { client, kind, port, _driver: driver, _profile: profile })
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
    /// When the driver does not do that: Firefox's never does.
    pub async fn throttle(&self, bytes_a_second: u64, latency_ms: u64) -> Result<()> {
        let conditions = json!({ "network_conditions": {
            "offline": false,
            "latency": latency_ms,
            "download_throughput": bytes_a_second,
            "upload_throughput": bytes_a_second,
        } });
        self.chromium("network_conditions", &conditions).await
    }

    /// Shows the page in a window of that size, and to a reader who prefers a dark page or a light one
    /// and no motion.
    ///
    /// # Errors
    /// When the driver does not do that: Firefox's never does.
    pub async fn emulate(&self, (width, height): (u32, u32), dark: bool) -> Result<()> {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        for (command, parameters) in
            [("Emulation.setDeviceMetricsOverride", metrics), ("Emulation.setEmulatedMedia", media)]
        {
            let sent = json!({ "cmd": command, "params": parameters });
            self.chromium("send_command_and_get_result", &sent).await?;
        }
        Ok(())
    }

    /// Sends what WebDriver has no word for to Chromium's driver.
    async fn chromium(&self, command: &str, parameters: &Value) -> Result<()> {
        ensure!(self.kind == Kind::Chromium, "only Chromium's driver knows {command}");
        let session = self.client.session_id().await?.context("no session")?;
        let url = format!("http://127.0.0.1:{}/session/{session}/chromium/{command}", self.port);
        ureq::post(url).send(parameters.to_string())?;
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

/// A driver's process, which is killed with all that it has started: geckodriver alone would leave its browser
/// behind.
#[derive(Debug)]
struct Driver(Killed);

impl Driver {
    fn start(kind: Kind) -> Result<Driver> {
        let mut driver = Command::new(kind.driver());
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own, which its children are in.
        let driver = driver.process_group(0).spawn().with_context(|| {
            format!(
                "{} does not start; `cargo xtask test` installs it, or says what to install",
                kind.driver()
            )
        })?;
        Ok(Driver(Killed(driver)))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Fails only when all of them are gone already. The driver has not been waited for, so its number is
        // still its own.
        let _ = kill_process_group(Pid::from_child(&self.0.0), Signal::KILL);
    }
}

/// A driver and its port. chromedriver looks for a free port and takes it in two steps; where
/// another process takes it between them, chromedriver ends, and is started again.
fn driver(kind: Kind) -> Result<(Driver, u16)> {
    let mut said = String::new();
    for _ in 0..STARTS {
        let mut driver = Driver::start(kind)?;
        let out = driver.0.0.stdout.take().context("a pipe")?;
        if let Some(port) = port_of(kind, BufReader::new(out), &mut said)? {
            return Ok((driver, port));
        }
    }
    anyhow::bail!("{} ended {STARTS} times before it said its port:\n{said}", kind.driver())
}

/// The port that the driver chose, from its first lines; `None` if it ended without one. The rest
/// of its output is read and dropped, so that it never waits for us.
fn port_of(
    kind: Kind,
    mut out: BufReader<std::process::ChildStdout>,
    said: &mut String,
) -> Result<Option<u16>> {
    let mut line = String::new();
    while out.read_line(&mut line)? > 0 {
        if let Some((_, port)) = line.split_once(kind.before_port()) {
            let port = port.trim().trim_end_matches('.').parse()?;
            std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
            return Ok(Some(port));
        }
        said.push_str(&line);
        line.clear();
    }
    Ok(None)
}
