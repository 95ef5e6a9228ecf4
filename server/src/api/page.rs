//! The page: the files of `dist/` that were embedded when this binary was built.

use super::ApiError;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// Path below `dist/` and bytes; written by `build.rs`.
static DIST: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dist.rs"));

static FILES: LazyLock<BTreeMap<&str, File>> = LazyLock::new(|| {
    let compressed: BTreeMap<&str, &'static [u8]> =
        DIST.iter().filter_map(|(path, bytes)| Some((path.strip_suffix(".gz")?, *bytes))).collect();
    let files = DIST.iter().filter(|(path, _)| !path.ends_with(".gz"));
    let files = files.map(|(path, bytes)| {
        let etag = format!("\"{:016x}\"", xxh3_64(bytes));
        (*path, File { bytes, gzip: compressed.get(path).copied(), etag })
    });
    files.collect()
});

struct File {
    bytes: &'static [u8],
    gzip: Option<&'static [u8]>,
    etag: String,
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
        // Asked again each time: a new version shows at once, and an old one costs no bytes.
        let mut headers = vec![
            (header::ETAG, self.etag.clone()),
            (header::CACHE_CONTROL, "no-cache".to_owned()),
            (header::VARY, "accept-encoding".to_owned()),
        ];
        if has(header::IF_NONE_MATCH, &self.etag) {
            return respond(StatusCode::NOT_MODIFIED, headers, Body::empty());
        }
        headers.push((header::CONTENT_TYPE, content_type(path).to_owned()));
        let body = match self.gzip.filter(|_| accepts_gzip(asked)) {
            Some(gzip) => {
                headers.push((header::CONTENT_ENCODING, "gzip".to_owned()));
                gzip
            }
            None => self.bytes,
        };
        respond(StatusCode::OK, headers, Body::from(body))
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

/// True unless gzip is not named, or refused with `q=0`.
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let values = asked.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !refused
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
    fn gzip_is_sent_only_to_who_takes_it() {
        for yes in ["gzip", "deflate, gzip;q=0.5", "br,GZIP"] {
            assert!(accepts_gzip(&asked(header::ACCEPT_ENCODING, yes)), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "identity, gzip; q=0"] {
            assert!(!accepts_gzip(&asked(header::ACCEPT_ENCODING, no)), "{no}");
        }
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        let file = File { bytes: b"x", gzip: None, etag: "\"7\"".into() };
        let again = file.send("a.wasm", &asked(header::IF_NONE_MATCH, "\"6\", \"7\""));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let first = file.send("a.wasm", &HeaderMap::new());
        assert_eq!(first.headers()[header::CONTENT_TYPE], "application/wasm");
    }
}
