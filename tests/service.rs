//! `lockstep serve`, spoken to over HTTP like any client does.

use crate::binary::{Killed, Patience, command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use tungstenite::Message;
use ureq::Agent;
use ureq::http::{HeaderMap, Request, Response};

/// The service on a free port, with a folder of its own. Killed when dropped.
#[derive(Debug)]
pub struct Service {
    process: Killed,
    url: String,
    token: String,
    agent: Agent,
    folder: Option<tempfile::TempDir>,
}

/// The answer of the service.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(json) => json,
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&self.body)),
        }
    }

    /// The sentence of an error.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

impl Service {
    /// Starts it with a folder that is thrown away.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Service {
        Service::start_in(Path::new(""))
    }

    /// Starts it with a folder that stays; an empty path is a fresh one.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_in(folder: &Path) -> Service {
        Service::start_marked(folder, &[])
    }

    /// The same with variables in its environment, and so in that of all that it starts.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_marked(folder: &Path, variables: &[(&str, &str)]) -> Service {
        Service::start_as(command(), folder, variables)
    }

    /// The same where no file can have more than so many KiB, as on a disk that is full.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_on_full_disk(folder: &Path, kib: u32) -> Service {
        let binary = command().get_program().to_owned();
        let mut shell = std::process::Command::new("bash");
        // Ignored, the signal becomes an error of the write.
        let limited = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\"");
        shell.arg("-c").arg(limited).arg(binary);
        Service::start_as(shell, folder, &[])
    }

    fn start_as(
        mut serve: std::process::Command,
        folder: &Path,
        variables: &[(&str, &str)],
    ) -> Service {
        let own = folder.as_os_str().is_empty();
        let own = own.then(|| tempfile::tempdir().expect("a temporary folder"));
        let folder = own.as_ref().map_or(folder, tempfile::TempDir::path);
        serve.args(["serve", "--port", "0", "--data-dir"]).arg(folder);
        serve.envs(variables.iter().copied());
        serve.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = serve.spawn().expect("lockstep starts");
        let out = process.stdout.take().expect("a pipe");
        let process = Killed(process);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("it says where it is");
        let url = line.trim().trim_start_matches("Lockstep is at ");
        let (url, token) = url.split_once("#token=").expect("a token");
        let (url, token) = (url.to_owned(), token.to_owned());
        assert!(url.starts_with("http://127.0.0.1:"), "{line:?}");
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Patience::LIMIT))
            .build()
            .into();
        Service { process, url, token, agent, folder: own }
    }

    /// The address: `http://127.0.0.1:12345/`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The token that every request of the API carries.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The page's address with the token and, behind it, a fragment of the page's: `#/step`.
    pub fn page(&self, hash: &str) -> String {
        let hash = hash.trim_start_matches('#');
        let and = if hash.is_empty() { "" } else { "&" };
        format!("{}#token={}{and}{hash}", self.url, self.token)
    }

    /// The header that says the token.
    fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// The folder it keeps runs in, unless the test gave one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(tempfile::TempDir::path)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// GETs a path: `api/runs`.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn get(&self, path: &str) -> Answer {
        let request = Request::get(format!("{}{path}", self.url)).body(());
        self.send(request.expect("a request"))
    }

    /// POSTs JSON.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, "application/json", body.to_string().into_bytes())
    }

    /// POSTs JSON and waits for no answer: the connection, which is to be held as long as the
    /// service shall answer.
    ///
    /// # Panics
    /// When nobody takes it.
    pub fn post_unheard(&self, path: &str, body: &Value) -> std::net::TcpStream {
        let mut stream = std::net::TcpStream::connect(self.address()).expect("a connection");
        let (address, body) = (self.address(), body.to_string());
        let head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Authorization: {}\r\nContent-Length: {}\r\n\r\n",
            self.authorization(),
            body.len()
        );
        std::io::Write::write_all(&mut stream, (head + &body).as_bytes()).expect("a request");
        stream
    }

    /// POSTs bytes.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn post_bytes(&self, path: &str, content_type: &str, body: Vec<u8>) -> Answer {
        let request =
            Request::post(format!("{}{path}", self.url)).header("content-type", content_type);
        self.send(request.body(body).expect("a request"))
    }

    /// Sends any request, with the token.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn send(&self, mut request: Request<impl ureq::AsSendBody>) -> Answer {
        let token = self.authorization().parse().expect("a header");
        request.headers_mut().insert("authorization", token);
        self.send_as_it_is(request)
    }

    /// Sends any request.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn send_as_it_is(&self, request: Request<impl ureq::AsSendBody>) -> Answer {
        let response: Response<ureq::Body> = self.agent.run(request).expect("an answer");
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type =
            content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let headers = response.headers().clone();
        let mut body = response.into_body();
        let body = body.with_config().limit(1 << 30).read_to_vec().expect("a body");
        Answer { status, content_type, headers, body }
    }

    /// Follows the events of a run until the service closes the connection, and returns the bytes
    /// of each message.
    ///
    /// # Panics
    /// When the connection breaks.
    pub fn events(&self, run: u64) -> Vec<Vec<u8>> {
        let url = format!("{}api/runs/{run}/events", self.url.replace("http:", "ws:"));
        let stream = std::net::TcpStream::connect(self.address()).expect("a connection");
        stream.set_read_timeout(Some(Patience::LIMIT)).expect("a timeout");
        let (mut socket, _) = tungstenite::client(url, stream).expect("a WebSocket");
        socket.send(Message::text(self.token.as_str())).expect("its first message");
        let mut messages = Vec::new();
        loop {
            match socket.read() {
                Ok(Message::Binary(bytes)) => messages.push(bytes.to_vec()),
                Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => {
                    return messages;
                }
                other => {
                    other.expect("a message");
                }
            }
        }
    }

    /// `127.0.0.1:12345`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    /// Tells it to stop, and returns its exit code once it has.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.process.0.id() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).expect("a signal");
        Patience::until("the service to stop", || self.process.0.try_wait().ok().flatten()).code()
    }

    /// Kills it, as a crash would.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn crash(mut self) {
        self.process.0.kill().expect("a signal");
        self.process.0.wait().expect("its end");
    }
}
