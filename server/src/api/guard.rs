//! Access to the service. It starts processes, so neither another user of this machine nor a foreign page
//! that is open in the same browser may reach it.
//!
//! - Every request of the API has to carry the token (`token.rs`) in a header, which no page of another
//!   origin can know. A browser's WebSocket has no headers of its own: it sends the token in its first
//!   message.
//! - DNS rebinding: a foreign name that resolves to this machine arrives as a `Host` that is not ours. Names
//!   must be known; an address is as good as the one that the service listens on.
//! - Cross-site requests: a request that changes something, a WebSocket, and one that costs more than reading
//!   must come from our own origin, or from a client that is no browser and sends none.

use super::ApiError;
use crate::token::Token;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// The sources that the page may load from; no other page may frame it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; \
    script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data: blob:; worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; \
    form-action 'none'";

/// The names under which the service may be asked.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The host that the service listens on.
    listens_on: String,
    /// Further names, given by the user.
    allowed: Vec<String>,
    /// The token that a request must carry; `None` if everybody may ask.
    token: Option<Token>,
}

/// The token that a WebSocket sends in its first message, because its request carried none.
#[derive(Clone, Debug)]
pub(crate) struct Unproven(Token);

impl Unproven {
    /// True if the first message carries the token.
    pub(crate) fn is(&self, word: &[u8]) -> bool {
        self.0.is(word)
    }
}

/// The answer to a request without a token.
pub(crate) const NO_TOKEN: &str = "this service answers only with its token: open the address that `lockstep serve` printed, \
    or send the header `authorization: Bearer TOKEN` with what `lockstep data token` prints";

impl Guard {
    /// For a service that listens on a host, is also known by other names, and answers to a token.
    pub(crate) fn new(listens_on: &str, allowed: Vec<String>, token: Option<Token>) -> Guard {
        Guard { listens_on: listens_on.to_owned(), allowed, token }
    }

    /// The proof that a request still owes: none, or a WebSocket's first message.
    fn unproven(&self, request: &Request) -> Result<Option<Unproven>, ApiError> {
        let path = request.uri().path();
        let Some(token) =
            self.token.as_ref().filter(|_| path == "/api" || path.starts_with("/api/"))
        else {
            return Ok(None);
        };
        let said = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        match said {
            Some(said) => match said.strip_prefix(b"Bearer ").is_some_and(|word| token.is(word)) {
                true => Ok(None),
                false => Err(ApiError::unauthorized(NO_TOKEN)),
            },
            None if request.headers().contains_key(header::UPGRADE)
                && path.ends_with("/events") =>
            {
                Ok(Some(Unproven(token.clone())))
            }
            None => Err(ApiError::unauthorized(NO_TOKEN)),
        }
    }

    fn refusal(&self, method: &Method, headers: &HeaderMap) -> Option<ApiError> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let Some(host) = text(header::HOST) else {
            return Some(ApiError::bad_request("the request has no Host header"));
        };
        if !self.knows(name_of(host)) {
            return Some(ApiError::forbidden(format!(
                "this service does not answer to the name {host:?}; start it with --allow-host if \
                 that is meant"
            )));
        }
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let is_socket = headers.contains_key(header::UPGRADE);
        if reads && !is_socket {
            return None;
        }
        foreign_site(headers)
    }

    fn knows(&self, name: &str) -> bool {
        let own = [self.listens_on.as_str(), "localhost"];
        let allowed = self.allowed.iter().map(String::as_str);
        if own.into_iter().chain(allowed).any(|own| own.eq_ignore_ascii_case(name)) {
            return true;
        }
        match (address(name), address(&self.listens_on)) {
            (Some(asked), _) if asked.is_loopback() => true,
            // Listening on every address: which one a client used is not known, and no rebinding
            // can make a browser send an address that its user did not type.
            (Some(asked), Some(own)) => own.is_unspecified() || asked == own,
            _ => false,
        }
    }
}

/// The refusal of a request that another site's page sends.
fn foreign_site(headers: &HeaderMap) -> Option<ApiError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let foreign = match headers.get(header::ORIGIN) {
        None => false,
        Some(origin) => {
            let own = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            let host = text(header::HOST).unwrap_or_default();
            !own.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
        }
    };
    let cross_site = matches!(
        text(header::HeaderName::from_static("sec-fetch-site")),
        Some("cross-site" | "same-site")
    );
    (foreign || cross_site).then(|| {
        let refused = "another site's page may not start, stop, upload, diagnose or watch here";
        ApiError::forbidden(refused)
    })
}

/// For routes on which reading is work: refuses other sites there, too.
pub(crate) async fn own_site(request: Request, next: Next) -> Response {
    match foreign_site(request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

/// The address that a host is, with or without the brackets of IPv6. Different spellings of an address
/// (`[::ffff:7f00:1]` for `::ffff:127.0.0.1`) compare equal.
fn address(host: &str) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}

/// Refuses requests without permission, and sends browsers the page's security headers.
pub(crate) async fn check(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let refusal = guard.refusal(request.method(), request.headers());
    let mut response = match refusal.map_or_else(|| guard.unproven(&request), Err) {
        Err(refusal) => refusal.into_response(),
        Ok(unproven) => {
            if let Some(unproven) = unproven {
                request.extensions_mut().insert(unproven);
            }
            next.run(request).await
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(listens_on: &str, method: Method, headers: &[(&'static str, &str)]) -> u16 {
        let guard = Guard::new(listens_on, vec!["box.lan".into()], None);
        let headers = headers.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        let refusal = guard.refusal(&method, &HeaderMap::from_iter(headers));
        refusal.map_or(200, |refusal| refusal.into_response().status().as_u16())
    }

    #[test]
    fn only_known_names_are_answered() {
        for host in
            ["127.0.0.1:7077", "localhost", "LOCALHOST:1", "[::1]:7077", "[::1]", "box.lan:80"]
        {
            assert_eq!(status("127.0.0.1", Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:7077", "192.168.1.7:7077", "127.0.0.1.evil.example", ""] {
            assert_eq!(status("127.0.0.1", Method::GET, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status("127.0.0.1", Method::GET, &[]), 400);
        assert_eq!(status("0.0.0.0", Method::GET, &[("host", "192.168.1.7:7077")]), 200);
        assert_eq!(status("0.0.0.0", Method::GET, &[("host", "evil.example")]), 403);
    }

    #[test]
    fn an_address_is_known_however_it_is_written() {
        for (listens_on, host) in [
            ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]:7393"),
            ("::ffff:127.0.0.1", "[::ffff:7f00:1]:7393"),
            ("fd00::7", "[fd00::7]:7393"),
            ("[fd00::7]", "[fd00:0::7]:7393"),
            ("::ffff:192.168.1.7", "192.168.1.7:7393"),
        ] {
            assert_eq!(status(listens_on, Method::GET, &[("host", host)]), 200, "{listens_on}");
        }
        for host in ["[fd00::8]:7393", "192.168.1.7:7393", "evil.example"] {
            assert_eq!(status("fd00::7", Method::GET, &[("host", host)]), 403, "{host}");
        }
    }

    #[test]
    fn another_sites_page_changes_nothing_and_opens_no_socket() {
        let host = ("host", "127.0.0.1:7077");
        let own = ("origin", "http://127.0.0.1:7077");
        for foreign in ["http://evil.example", "null", "http://127.0.0.1:8000"] {
            let foreign = ("origin", foreign);
            assert_eq!(status("127.0.0.1", Method::POST, &[host, foreign]), 403);
            let socket = ("upgrade", "websocket");
            assert_eq!(status("127.0.0.1", Method::GET, &[host, foreign, socket]), 403);
            assert_eq!(status("127.0.0.1", Method::GET, &[host, foreign]), 200);
        }
        assert_eq!(status("127.0.0.1", Method::POST, &[host, own]), 200);
        assert_eq!(status("127.0.0.1", Method::POST, &[host]), 200);
        let site = ("sec-fetch-site", "cross-site");
        assert_eq!(status("127.0.0.1", Method::POST, &[host, site]), 403);
    }
}
