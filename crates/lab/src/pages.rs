//! Pages of `vanward origin`: the properties of the responses to a path that any proxy must preserve. An origin in this
//! process is asked twice for each page. Only properties that both responses share are expected.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::Error;
use crate::start;

/// A page that takes longer has no known body: then the first responses of a measurement are the pattern.
const PATIENCE: Duration = Duration::from_secs(2);
/// Fields of two requests for a page: as a client sends them, and as a proxy may. HTTP/1.0 has no chunks to decode.
const FIELDS: [&str; 2] =
    ["Host: one\r\n", "Host: other:81\r\nVia: 1.1 proxy\r\nX-Forwarded-For: 127.0.0.1\r\n"];

/// The checks of responses for these paths. A path without a page is left out.
pub(crate) async fn of_origin<'p>(
    paths: impl Iterator<Item = &'p str>,
) -> Result<BTreeMap<String, load::Check>, Error> {
    let failed = |source| Error::System { action: "start an origin to look at its pages", source };
    let origin = origin::start(origin::OriginOptions::default()).map_err(failed)?;
    let mut pages = BTreeMap::new();
    let Some(&address) = origin.addresses().first() else { return Ok(pages) };
    for path in paths {
        if !pages.contains_key(path)
            && let Ok(Ok(Some(check))) = timeout(PATIENCE, page(address, path)).await
        {
            pages.insert(path.to_owned(), check);
        }
    }
    Ok(pages)
}

/// The check of the responses for a path. `None` if they are not successes.
async fn page(address: SocketAddr, path: &str) -> io::Result<Option<load::Check>> {
    let (one, other) = tokio::try_join!(seen(address, path, FIELDS[0]), seen(address, path, FIELDS[1]))?;
    if !(200..400).contains(&one.status) || one.status != other.status {
        return Ok(None);
    }
    let is_alike = one.body == other.body;
    let body = one.body.filter(|_| is_alike);
    Ok(Some(load::Check {
        status: vec![(one.status, one.status)],
        header: one.media_type.iter().map(|one| ("Content-Type".to_owned(), format!("{one}*"))).collect(),
        contains: Vec::new(),
        size: body.as_ref().map(|body| (body.len() as u64, body.len() as u64)),
        digest: body.map(|body| load::digest(&body)),
    }))
}

struct SeenResponse {
    status: u16,
    media_type: Option<String>,
    /// `None` if it was cut off.
    body: Option<Vec<u8>>,
}

async fn seen(address: SocketAddr, path: &str, fields: &str) -> io::Result<SeenResponse> {
    let stream = TcpStream::connect(address).await?;
    let response = start::closed(stream, &format!("GET {path} HTTP/1.0\r\n{fields}\r\n")).await?;
    let (head, body) = start::head_and_body(response)?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let field = |wanted: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim());
        values.next()
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let is_whole = field("Content-Length").is_none_or(|length| length.parse() == Ok(body.len()));
    Ok(SeenResponse {
        status: status.ok_or_else(|| io::Error::other("not an HTTP response"))?,
        media_type: field("Content-Type").and_then(|value| value.split(';').next()).map(str::to_owned),
        body: is_whole.then_some(body),
    })
}

pub(crate) fn flags(check: &load::Check) -> impl Iterator<Item = String> {
    let status = check.status.iter().map(|(first, last)| match first == last {
        true => format!("status {first}"),
        false => format!("status {}xx", first / 100),
    });
    let size = check.size.map(|(least, most)| format!("size {least}..{most}"));
    let digest = check.digest.map(|digest| format!("digest crc32:{digest:08x}"));
    let header = check.header.iter().map(|(name, pattern)| format!("header {name} {pattern}"));
    let all: Vec<String> = status.chain(size).chain(digest).chain(header).collect();
    all.into_iter().flat_map(|check| ["--check".to_owned(), check])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_page_is_what_is_alike_in_its_responses() {
        let paths = ["/tiny", "/large", "/blank/0", "/delay/9s", "/echo", "/status/503"];
        let pages = of_origin(paths.into_iter()).await.expect("an origin");
        let body = |bytes: u64| (0..bytes).map(origin::body_byte).collect::<Vec<u8>>();
        for (path, bytes) in [("/tiny", 128), ("/large", 165_854), ("/blank/0", 0)] {
            let check = &pages[path];
            assert_eq!((&check.status[..], check.size), (&[(200, 200)][..], Some((bytes, bytes))), "{path}");
            assert_eq!(check.digest, Some(load::digest(&body(bytes))), "{path}");
            assert!(check.header[0].1.ends_with('*'), "{path}: {check:?}");
        }
        // An echo has no fixed body. A slow response or an error is not a page.
        assert!(pages.get("/echo").is_none_or(|check| check.digest.is_none()), "{pages:?}");
        assert!(!pages.contains_key("/delay/9s") && !pages.contains_key("/status/503"));
        let told: Vec<String> = flags(&pages["/tiny"]).collect();
        let digest = load::digest(&body(128));
        let expected = ["--check", "status 200", "--check", "size 128..128", "--check"].map(str::to_owned);
        assert_eq!(told[..5], expected);
        assert_eq!(told[5], format!("digest crc32:{digest:08x}"));
        assert!(told[7].starts_with("header Content-Type text/"), "{told:?}");
    }
}
