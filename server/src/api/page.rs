//! The page: the files of `dist/` that were embedded when this binary was built.

use super::ApiError;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use flate2::read::MultiGzDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// Path below `dist/` and bytes; written by `build.rs`.
static DIST: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dist.rs"));

static FILES: LazyLock<BTreeMap<&str, File>> = LazyLock::new(|| files_of(DIST));

/// Files below this have a digest of their bytes in their names: they never change.
const ASSETS: &str = "assets/";

/// A file in the forms that are embedded. Where it is compressed, it is embedded in no other form.
#[derive(Default)]
struct File {
    plain: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
    /// Weak: all forms have the same.
    etag: String,
}

fn files_of(dist: &[(&'static str, &'static [u8])]) -> BTreeMap<&'static str, File> {
    let mut files: BTreeMap<&'static str, File> = BTreeMap::new();
    for (path, bytes) in dist {
        if let Some(path) = path.strip_suffix(".gz") {
            let file = files.entry(path).or_default();
            file.gzip = Some(bytes);
            file.etag = format!("W/\"{:016x}\"", xxh3_64(bytes));
        } else if let Some(path) = path.strip_suffix(".br") {
            files.entry(path).or_default().brotli = Some(bytes);
        } else {
            let file = files.entry(path).or_default();
            file.plain = Some(bytes);
            file.etag = format!("W/\"{:016x}\"", xxh3_64(bytes));
        }
    }
    files
}

/// Shown when the binary was built without the page.
const PLACEHOLDER: &str = "<!doctype html><meta charset=\"utf-8\"><title>Lockstep</title>\
    <p>This lockstep was built without its page. In the repository, <code>cargo xtask serve</code> \
    builds everything and opens it. The API under <code>/api</code> works.";

/// The file at a path; `index.html` at the root.
pub(crate) async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    if path.starts_with("api/") || path == "api" {
        return ApiError::not_found(format!("there is no {} in the API", uri.path()))
            .into_response();
    }
    if method != Method::GET && method != Method::HEAD {
        return super::method_not_allowed(method, uri).await.into_response();
    }
    let path = if path.is_empty() { "index.html" } else { path };
    match FILES.get(path) {
        Some(file) => file.send(path, &headers),
        None if path == "index.html" => Html(PLACEHOLDER).into_response(),
        None => ApiError::not_found(format!("there is no file {path:?}")).into_response(),
    }
}

impl File {
    fn send(&self, path: &str, asked: &HeaderMap) -> Response {
        let has = |name, wanted: &str| {
            let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).any(|value| value.trim() == wanted)
        };
        // Files that may change are asked for again each time: a new version shows at once, and an old one
        // costs no bytes.
        let kept = match path.starts_with(ASSETS) {
            true => "public, max-age=31536000, immutable",
            false => "no-cache",
        };
        let mut headers = vec![
            (header::ETAG, self.etag.clone()),
            (header::CACHE_CONTROL, kept.to_owned()),
            (header::VARY, "accept-encoding".to_owned()),
        ];
        if has(header::IF_NONE_MATCH, &self.etag) {
            return respond(StatusCode::NOT_MODIFIED, headers, Body::empty());
        }
        headers.push((header::CONTENT_TYPE, content_type(path).to_owned()));
        let (coding, body) = self.body(asked);
        if let Some(coding) = coding {
            headers.push((header::CONTENT_ENCODING, coding.to_owned()));
        }
        respond(StatusCode::OK, headers, body)
    }

    /// The smallest form that the browser takes, and the name of its coding.
    fn body(&self, asked: &HeaderMap) -> (Option<&'static str>, Body) {
        for (coding, bytes) in [("br", self.brotli), ("gzip", self.gzip)] {
            if let Some(bytes) = bytes.filter(|_| accepts(asked, coding)) {
                return (Some(coding), Body::from(bytes));
            }
        }
        let mut plain = self.plain.unwrap_or_default().to_vec();
        if let (None, Some(gzip)) = (self.plain, self.gzip) {
            // They are our own bytes, and memory holds what they unpack to.
            let _ = MultiGzDecoder::new(gzip).read_to_end(&mut plain);
        }
        (None, Body::from(plain))
    }
}

fn respond(status: StatusCode, headers: Vec<(header::HeaderName, String)>, body: Body) -> Response {
    let mut response = (status, body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// True unless a coding is not named, or refused with `q=0`.
fn accepts(asked: &HeaderMap, wanted: &str) -> bool {
    let values = asked.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case(wanted) && !refused
    })
}

/// A module that is not sent as JavaScript, or wasm that is not sent as such, is refused by
/// browsers.
fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_coding_is_sent_only_to_who_takes_it() {
        for yes in ["gzip", "deflate, gzip;q=0.5", "br,GZIP"] {
            assert!(accepts(&asked(header::ACCEPT_ENCODING, yes), "gzip"), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "identity, gzip; q=0"] {
            assert!(!accepts(&asked(header::ACCEPT_ENCODING, no), "gzip"), "{no}");
        }
    }

    #[tokio::test]
    async fn a_file_is_the_same_in_every_coding() {
        // "lockstep" by gzip, and some bytes in place of brotli's.
        const GZIP: &[u8] = &[
            31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 201, 79, 206, 46, 46, 73, 45, 0, 0, 25, 76, 231,
            157, 8, 0, 0, 0,
        ];
        let files = files_of(&[
            ("assets/a-1.js.gz", GZIP),
            ("assets/a-1.js.br", b"br"),
            ("index.html", b"<p>"),
        ]);
        assert_eq!(files.keys().copied().collect::<Vec<_>>(), ["assets/a-1.js", "index.html"]);
        let sent = async |path: &str, codings: &str| {
            let sent = files[path].send(path, &asked(header::ACCEPT_ENCODING, codings));
            let header = |name| sent.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
            let about = (header(header::CONTENT_ENCODING), header(header::CACHE_CONTROL));
            let body = axum::body::to_bytes(sent.into_body(), 100).await.unwrap();
            (about.0.unwrap_or_default(), about.1.unwrap(), body.to_vec())
        };
        let kept = "public, max-age=31536000, immutable".to_owned();
        let expected =
            |coding: &str, bytes: &[u8]| (coding.to_owned(), kept.clone(), bytes.to_vec());
        let asset = "assets/a-1.js";
        assert_eq!(sent(asset, "gzip, deflate, br, zstd").await, expected("br", b"br"));
        assert_eq!(sent(asset, "gzip, br;q=0").await, expected("gzip", GZIP));
        assert_eq!(sent(asset, "").await, expected("", b"lockstep"));
        let page = ("".to_owned(), "no-cache".to_owned(), b"<p>".to_vec());
        assert_eq!(sent("index.html", "gzip, br").await, page);
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        let file = File { plain: Some(b"x"), etag: "\"7\"".into(), ..File::default() };
        let again = file.send("a.wasm", &asked(header::IF_NONE_MATCH, "\"6\", \"7\""));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let first = file.send("a.wasm", &HeaderMap::new());
        assert_eq!(first.headers()[header::CONTENT_TYPE], "application/wasm");
    }
}
