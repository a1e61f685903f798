//! A request: reads its head and makes the answer.

use super::{LONGEST_HEAD, Pages};
use std::fmt::Write as _;

const TEXT: &str = "text/plain; charset=utf-8";

/// Whether the head ends in `head`.
pub(super) fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

/// The content of a page.
struct Page {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Page {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: TEXT, body: body.into() }
    }
}

/// The whole answer to the request that starts with `head`, any bytes.
pub(super) fn answer(head: &[u8], pages: &Pages<'_>) -> Vec<u8> {
    if !is_complete(head) && head.len() > LONGEST_HEAD {
        let problem = format!("a request has at most {LONGEST_HEAD} bytes before its body\n");
        return write(&Page::text("431 Request Header Fields Too Large", problem), true);
    }
    let Some((method, path)) = first_line(head) else {
        return write(&Page::text("400 Bad Request", "this is not an HTTP/1 request\n"), true);
    };
    match method {
        "GET" | "HEAD" => write(&page(path, pages), method == "GET"),
        _ => write(&Page::text("405 Method Not Allowed", "allowed are GET and HEAD\n"), true),
    }
}

/// Method and path of a request.
fn first_line(head: &[u8]) -> Option<(&str, &str)> {
    let end = head.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&head[..end]).ok()?.trim_end_matches('\r');
    let mut parts = line.split(' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let well_formed = parts.next().is_none()
        && is_complete(head)
        && version.starts_with("HTTP/1.")
        && target.starts_with('/')
        && !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_alphabetic());
    well_formed.then(|| (method, target.split_once('?').map_or(target, |(path, _)| path)))
}

fn page(path: &str, pages: &Pages<'_>) -> Page {
    match path {
        "/metrics" => {
            Page { status: "200 OK", kind: "text/plain; version=0.0.4; charset=utf-8", body: pages.metrics() }
        }
        "/health" => {
            let health = pages.source.health();
            let status = if health.serving { "200 OK" } else { "503 Service Unavailable" };
            Page { status, kind: "application/json", body: format!("{}\n", health.page) }
        }
        _ => Page::text("404 Not Found", "there are /metrics and /health\n"),
    }
}

fn write(page: &Page, with_body: bool) -> Vec<u8> {
    let mut text = String::with_capacity(256 + page.body.len());
    let (length, allow) = (page.body.len(), if page.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" });
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        page.status, page.kind
    );
    if with_body {
        text.push_str(&page.body);
    }
    text.into_bytes()
}
