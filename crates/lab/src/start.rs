//! Starts processes: addresses, commands and probes. A process counts as started when it answers.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use report::results::{ClientVersion, StartedProcess};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

use crate::error::Error;
use crate::group::ProcessGroup;
use crate::plan::OriginPayload;
use crate::proxies::{Installed, Launch, OriginVerification, Service, Setting};

/// Timeout of a start: long enough for the slowest program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_PROBES: Duration = Duration::from_millis(5);
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// Maximum size of a response head of a probe.
const HEAD_BYTES_MOST: usize = 16 * 1024;
/// Maximum size of a response body: an origin's counters by path may be megabytes.
const BODY_BYTES_MOST: u64 = 64 * 1024 * 1024;

/// Loopback address with a port that is chosen later.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Number of attempts to start on a free port, because another process can take the port before the proxy.
const ATTEMPTS: usize = 3;

/// A started proxy that answers.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) group: ProcessGroup,
    pub(crate) address: SocketAddr,
    pub(crate) process: StartedProcess,
}

/// Writes the proxy's files, starts it on its cores on a free port, and waits until it serves `payload`. `None` if
/// there is nothing to start.
pub(crate) async fn proxy(
    installed: &Installed,
    service: &Service,
    cores: &[usize],
    folder: &Path,
    payload: &OriginPayload,
) -> Result<Option<Started>, Error> {
    let launch = |service: &Service| installed.configure(service, folder);
    launched(&installed.name, service, cores, folder, payload, launch).await
}

/// As [`proxy`], for a proxy that `launch` describes.
pub(crate) async fn launched(
    name: &str,
    service: &Service,
    cores: &[usize],
    folder: &Path,
    payload: &OriginPayload,
    launch: impl Fn(&Service) -> Result<Launch, Error>,
) -> Result<Option<Started>, Error> {
    let mut attempt = 1;
    loop {
        let service = Service { listen: free_address(service.listen.ip())?, ..service.clone() };
        let launch = launch(&service)?;
        if launch.command.is_empty() {
            return Ok(None);
        }
        for file in &launch.files {
            let path = folder.join(&file.name);
            fs::write(&path, &file.text).map_err(|source| Error::Write { path, source })?;
        }
        let mut group = ProcessGroup::start(name, &launch.command, cores, folder)?;
        for setting in &launch.settings {
            until_it_is_set(&mut group, setting).await?;
        }
        match until_it_answers(&mut group, &service, &payload.path, payload.bytes).await {
            Ok(()) => {
                let process = StartedProcess { command: typed(&launch.command), files: launch.files };
                return Ok(Some(Started { group, address: service.listen, process }));
            }
            Err(Error::Ended { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The ports that programs of the lab listen on. Linux gives outgoing connections ports from 32768 on, so none of them
/// takes such a port after the check that it is free.
const PORTS: Range<u16> = 16_384..32_768;
/// After this many ports that are in use, the kernel chooses one.
const PORTS_TRIED: usize = 256;

/// An address with a port that was just free. Most programs cannot take over a bound socket.
pub(crate) fn free_address(ip: IpAddr) -> Result<SocketAddr, Error> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different ports.
    let first = process::id().wrapping_mul(97) as u16;
    let ports = PORTS.map(|_| {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + place % (PORTS.end - PORTS.start)
    });
    let is_free = |port: &u16| TcpListener::bind((ip, *port)).is_ok();
    // If none is free, or the address does not belong to this machine, the kernel reports the reason.
    let port = ports.take(PORTS_TRIED).find(is_free).unwrap_or(0);
    let address = TcpListener::bind((ip, port)).and_then(|listener| listener.local_addr());
    address.map_err(|source| Error::System { action: "find a free port at the proxy's address", source })
}

/// Writes a new file that only its owner may read.
pub(crate) fn put_private(path: &Path, text: &str) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Repeats an attempt until it succeeds, the program ends, or time is up. A failure returns a text for the error.
async fn until<T>(
    group: &mut ProcessGroup,
    patience: Duration,
    mut attempt: impl AsyncFnMut(&ProcessGroup) -> Result<T, String>,
) -> Result<T, Error> {
    let deadline = Instant::now() + patience;
    loop {
        let last = match attempt(group).await {
            Ok(value) => return Ok(value),
            Err(last) => last,
        };
        if let Some(error) = group.ended() {
            return Err(error);
        }
        if Instant::now() >= deadline {
            return Err(silent(group, last));
        }
        sleep(BETWEEN_PROBES).await;
    }
}

/// Status and Content-Length of a response, or the reason why there is none within the limit.
async fn response(
    request: &str,
    limit: Duration,
    response: impl Future<Output = io::Result<(u16, Option<u64>)>>,
) -> Result<(u16, Option<u64>), String> {
    match timeout(limit, response).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(format!("{request}: {error}")),
        Err(_) => Err(format!("{request}: no response within {limit:?}")),
    }
}

/// Waits until a GET request for `path` is answered with 200 and a body of this size, if it is known.
async fn until_it_answers(
    group: &mut ProcessGroup,
    service: &Service,
    path: &str,
    body_bytes: Option<u64>,
) -> Result<(), Error> {
    // Requested delays and rate limits extend the time-out.
    let asked = service.features.delay.unwrap_or_default()
        + match (service.features.rate_bytes_per_second, body_bytes) {
            (Some(rate), Some(bytes)) => Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64),
            _ => Duration::ZERO,
        };
    let limit = PROBE_LIMIT + asked;
    let get = format!("GET {path}");
    until(group, PATIENCE + asked, async |_| {
        let probed = async {
            match (service.trusted(), service.version) {
                (None, ClientVersion::Http1) => probe(service.listen, path).await,
                _ => probe_by_load(service, path, limit).await,
            }
        };
        match response(&get, limit, probed).await? {
            (200, length) if body_bytes.is_none() || length == body_bytes => Ok(()),
            (200, length) => Err(format!("{get}: {length:?} bytes instead of {body_bytes:?}")),
            (status, _) => Err(format!("{get}: status {status}")),
        }
    })
    .await
}

/// Waits until a server that the lab has started answers a GET request for `path` with 200.
pub(crate) async fn until_a_server_answers(
    group: &mut ProcessGroup,
    address: SocketAddr,
    path: &str,
) -> Result<(), Error> {
    let get = format!("GET {path}");
    until(group, PATIENCE, async |_| match response(&get, PROBE_LIMIT, probe(address, path)).await? {
        (200, _) => Ok(()),
        (status, _) => Err(format!("{get}: status {status}")),
    })
    .await
}

/// The address of a server that runs already, as `HOST:PORT`. It must answer a GET request for `path`, with any status.
pub(crate) async fn running_server(
    server: &str,
    path: &str,
    verified: Option<&OriginVerification>,
) -> Result<SocketAddr, Error> {
    let scheme = if verified.is_some() { "https" } else { "http" };
    let refused = |reason: String| Error::NoServer { server: format!("{scheme}://{server}"), reason };
    let mut found = lookup_host(server).await.map_err(|error| refused(error.to_string()))?;
    let address = found.next().ok_or_else(|| refused("its name has no address".to_owned()))?;
    let probed = async {
        match verified {
            None => probe(address, path).await,
            Some(OriginVerification { authority, name }) => {
                let tls = load::Tls {
                    ca: Some(authority.clone()),
                    server_name: Some(name.clone()),
                    ..load::Tls::default()
                };
                probe_plan(
                    load::LoadPlan { tls, ..load::LoadPlan::new(format!("https://{address}{path}")) },
                    PROBE_LIMIT,
                )
                .await
            }
        }
    };
    match timeout(PROBE_LIMIT, probed).await {
        Ok(Ok(_)) => Ok(address),
        Ok(Err(error)) => Err(refused(error.to_string())),
        Err(_) => Err(refused(format!("no response within {PROBE_LIMIT:?}"))),
    }
}

/// Waits until a program accepts connections at an address.
pub(crate) async fn until_it_listens(group: &mut ProcessGroup, address: SocketAddr) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last = match timeout(PROBE_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {PROBE_LIMIT:?}"),
        };
        if let Some(error) = group.ended() {
            return Err(error);
        }
        if Instant::now() >= deadline {
            return Err(silent(group, last));
        }
        sleep(BETWEEN_PROBES).await;
    }
}

/// Waits until a setting request succeeds.
async fn until_it_is_set(group: &mut ProcessGroup, setting: &Setting) -> Result<(), Error> {
    let Setting { address, path, body } = setting;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let post = format!("POST {path}");
    until(group, PATIENCE, async |_| match response(&post, PROBE_LIMIT, asked(*address, &request)).await? {
        (200..300, _) => Ok(()),
        (status, _) => Err(format!("{post}: status {status}")),
    })
    .await
}

/// Waits for this many lines with an address on standard output: an origin writes one per listening address.
pub(crate) async fn until_it_says_where(
    group: &mut ProcessGroup,
    count: usize,
) -> Result<Vec<SocketAddr>, Error> {
    until(group, PATIENCE, async |group| {
        let said: Vec<SocketAddr> = group.output().lines().filter_map(address_in).collect();
        if said.len() >= count { Ok(said) } else { Err("no line with an address".to_owned()) }
    })
    .await
}

fn silent(group: &ProcessGroup, last: String) -> Error {
    Error::Silent { name: group.name().to_owned(), limit: PATIENCE, last, log: group.log_tail() }
}

/// The first address in a line of words, bare or in a URL.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_whitespace().find_map(|word| {
        let word = word.strip_prefix("http://").or_else(|| word.strip_prefix("https://")).unwrap_or(word);
        word.trim_end_matches(['/', ',', '.', ';']).parse().ok()
    })
}

/// A command as a person would type it in a shell.
pub(crate) fn typed(command: &[String]) -> String {
    let plain = |word: &String| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@%+,[]".contains(c))
    };
    let words: Vec<String> = command
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) })
        .collect();
    words.join(" ")
}

/// Sends a GET request. Returns the status and Content-Length of the response. This is not `http_client`: the lab uses no
/// crate of the proxy, so that it notices what both ends of ours get wrong.
pub(crate) async fn probe(address: SocketAddr, path: &str) -> io::Result<(u16, Option<u64>)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    asked(address, &request).await
}

/// Sends a GET request to a server that closes the connection afterwards. Returns the body.
pub(crate) async fn body(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    head_and_body(closed(TcpStream::connect(address).await?, &request).await?).map(|(_, body)| body)
}

/// Sends any request to a server that closes the connection after its response. Returns all bytes of the response.
pub(crate) async fn closed(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(BODY_BYTES_MOST).read_to_end(&mut response).await?;
    Ok(response)
}

/// Splits a response after the empty line behind its head.
pub(crate) fn head_and_body(mut response: Vec<u8>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n");
    let end =
        end.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "closed before the end of the head"))?;
    let body = response.split_off(end + 4);
    Ok((response, body))
}

/// Sends any request. Returns the status and Content-Length of the response.
async fn asked(address: SocketAddr, request: &str) -> io::Result<(u16, Option<u64>)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MOST {
            return Err(io::Error::other(format!("a head of more than {HEAD_BYTES_MOST} bytes")));
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before the end of the head"));
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    Ok((status.ok_or_else(|| io::Error::other("not an HTTP response"))?, length))
}

/// Probes over TLS or HTTP/2 with the load generator, because this module supports only plain HTTP/1.1.
async fn probe_by_load(service: &Service, path: &str, limit: Duration) -> io::Result<(u16, Option<u64>)> {
    let trusted = service.trusted().map(Path::to_owned);
    let scheme = if trusted.is_some() { "https" } else { "http" };
    let plan = load::LoadPlan {
        tls: load::Tls { ca: trusted, ..load::Tls::default() },
        http2: service.version == ClientVersion::Http2,
        http3: service.version == ClientVersion::Http3,
        ..load::LoadPlan::new(format!("{scheme}://{}{path}", service.listen))
    };
    probe_plan(plan, limit).await
}

/// Sends one request of a plan.
async fn probe_plan(plan: load::LoadPlan, limit: Duration) -> io::Result<(u16, Option<u64>)> {
    let plan = load::LoadPlan {
        connections: 1,
        requests: Some(1),
        duration_seconds: None,
        timeout_seconds: limit.as_secs_f64(),
        ..plan
    };
    let told = tokio::task::spawn_blocking(move || load::run(&plan)).await.map_err(io::Error::other)?;
    let told = told.map_err(io::Error::other)?;
    match told.statuses.first_key_value() {
        Some((status, _)) => Ok((*status, Some(told.body_bytes))),
        None => {
            let example = told.error_examples.into_values().next();
            Err(io::Error::other(example.unwrap_or_else(|| "no response".to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use report::results::{Layer, OriginProtocol};

    use super::*;

    #[test]
    fn addresses_are_found_in_what_is_written_for_people() {
        let cases = [
            ("listening on 127.0.0.1:9000", Some("127.0.0.1:9000")),
            ("origin: http://127.0.0.1:41234/ (2 workers)", Some("127.0.0.1:41234")),
            ("ready at http://[::1]:80, and more", Some("[::1]:80")),
            ("starting", None),
        ];
        for (line, expected) in cases {
            assert_eq!(address_in(line).map(|address| address.to_string()).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn nobody_else_can_read_what_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        put_private(&path, "secret").expect("it can be written");
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!((mode & 0o777, fs::read_to_string(&path).expect("text").as_str()), (0o600, "secret"));
        assert!(put_private(&path, "again").is_err(), "it is there already");
    }

    #[test]
    fn commands_can_be_typed_again() {
        let command = ["load", "-H", "a: b", "it's", ""].map(str::to_owned);
        assert_eq!(typed(&command), r"load -H 'a: b' 'it'\''s' ''");
    }

    #[tokio::test]
    async fn a_program_that_ends_is_not_waited_for_and_its_words_are_passed_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = ["sh", "-c", "echo no such luck >&2; exit 3"].map(str::to_owned);
        let cores = crate::cores::assign_all().expect("the kernel tells");
        let mut group = ProcessGroup::start("short", &command, &cores.load, folder.path()).expect("a shell");
        let service = Service {
            listen: free_address(ANY_PORT.ip()).expect("a port"),
            tls: None,
            version: ClientVersion::Http1,
            origins: Vec::new(),
            upstream: OriginProtocol::Http,
            origins_certificate: None,
            layer: Layer::Seven,
            workers: std::num::NonZeroUsize::MIN,
            keep_alive: true,
            access_log: false,
            features: crate::plan::Features::default(),
            target: None,
            streams: None,
        };
        let error =
            until_it_answers(&mut group, &service, "/tiny", Some(1)).await.expect_err("it ends").to_string();
        assert!(error.contains("short") && error.contains("no such luck"), "{error}");
    }
}
