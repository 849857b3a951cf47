//! Instructions per message, counted by valgrind. The figures do not depend on the load of the machine.
//!
//! Each case runs under callgrind for two numbers of rounds; the difference is the cost of the additional rounds.
//! `cargo bench -p http1 -- NAME` runs the cases whose names contain NAME.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::{Command, ExitCode};

use http1::{
    ChunkLimits, ChunkedDecoder, ClientConnection, ConnectionOptions, ForwardedSender, HeadLimits, Parsed,
    RequestHead, RequestRewrite, RequestTarget, ResponseHead, ResponseRewrite,
};

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 };

const WRK: &[u8] = b"GET /tiny HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2024/on-proxies?page=2 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.com/articles/\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=0123456789abcdef0123456789abcdef0123456789abcdef; \
    seen=2024-06-01T08:49:37Z; visits=17\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    If-None-Match: \"66a2b3c4-80\"\r\n\
    Priority: u=0, i\r\n\
    Cache-Control: max-age=0\r\n\r\n";

const NGINX: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.22.1\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/html\r\n\
    Content-Length: 128\r\n\
    Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Connection: keep-alive\r\n\
    ETag: \"66a2b3c4-80\"\r\n\
    Cache-Control: max-age=3600\r\n\
    Accept-Ranges: bytes\r\n\r\n";

/// Parses a head, without any further step.
macro_rules! parsed {
    ($head:ty, $bytes:expr, $rounds:expr) => {{
        let mut head = <$head>::default();
        for _ in 0..$rounds {
            let bytes = black_box($bytes);
            head.clear();
            assert_eq!(head.parse(bytes, &LIMITS), Ok(Parsed::Complete));
            black_box(&head);
        }
    }};
}

/// A case's name, and its function, which gets the number of rounds.
type Case = (&'static str, fn(usize));

const CASES: [Case; 8] = [
    ("request_of_wrk", |rounds| requests(WRK, rounds)),
    ("request_of_wrk_parsed", |rounds| parsed!(RequestHead, WRK, rounds)),
    ("request_of_a_browser", |rounds| requests(BROWSER, rounds)),
    ("request_of_a_browser_parsed", |rounds| parsed!(RequestHead, BROWSER, rounds)),
    ("response_of_nginx", responses),
    ("response_of_nginx_parsed", |rounds| parsed!(ResponseHead, NGINX, rounds)),
    ("chunks_of_16_bytes", |rounds| chunks(16, rounds)),
    ("chunks_of_4096_bytes", |rounds| chunks(4096, rounds)),
];

/// Everything that a proxy does with a request's head.
fn requests(bytes: &[u8], rounds: usize) {
    let mut head = RequestHead::default();
    let mut out = Vec::with_capacity(4096);
    let client = ForwardedSender { address: [127, 0, 0, 1].into(), scheme: "http", chain: None };
    for _ in 0..rounds {
        let client = black_box(client);
        let bytes = black_box(bytes);
        head.clear();
        out.clear();
        assert_eq!(head.parse(bytes, &LIMITS), Ok(Parsed::Complete));
        let target = RequestTarget::from_head(&head, bytes).expect("a valid target");
        let connection = ConnectionOptions::from_head(&head, bytes).expect("valid options");
        let rewrite = RequestRewrite {
            path_and_query: None,
            trace: None,
            edits: None,
            added: b"",
            target: &target,
            connection,
            framing: http1::request_framing(&head, bytes).expect("a clear framing"),
            expects: true,
            wants_upgrade: http1::wants_upgrade(&head, bytes, connection),
            client,
            via: http1::Via::Own,
            host: None,
        };
        http1::write_request(&mut out, &head, bytes, &rewrite);
        black_box(&out);
    }
}

/// Everything that a proxy does with a response's head.
fn responses(rounds: usize) {
    let mut head = ResponseHead::default();
    let mut out = Vec::with_capacity(4096);
    for _ in 0..rounds {
        let bytes = black_box(NGINX);
        head.clear();
        out.clear();
        assert_eq!(head.parse(bytes, &LIMITS), Ok(Parsed::Complete));
        let rewrite = ResponseRewrite {
            passes_alt_svc: false,
            edits: None,
            added: b"",
            connection: ConnectionOptions::from_head(&head, bytes).expect("valid options"),
            framing: http1::response_framing(&head, bytes, false).expect("a clear framing"),
            client_connection: ClientConnection::Persist,
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
            via: http1::Via::Own,
        };
        http1::write_response(&mut out, &head, bytes, &rewrite);
        black_box(&out);
    }
}

/// Decodes 16 KiB of body in chunks of this size.
fn chunks(size: usize, rounds: usize) {
    let mut body = Vec::new();
    for _ in 0..16 * 1024 / size {
        let (prefix, start) = http1::chunk_prefix(size);
        body.extend_from_slice(&prefix[start..]);
        body.resize(body.len() + size, b'x');
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    let mut buffer = body.clone();
    let mut chunked = ChunkedDecoder::default();
    for _ in 0..rounds {
        buffer.copy_from_slice(&body);
        chunked.clear();
        let decoded = chunked.decode(black_box(&mut buffer), &ChunkLimits::default()).expect("a valid body");
        assert!(decoded.done);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).expect("a known case");
        case(rounds.parse().expect("a number of rounds"));
        return ExitCode::SUCCESS;
    }
    for (name, _) in CASES {
        if !arguments.is_empty() && !arguments.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        match (instructions(name, 100), instructions(name, 1100)) {
            (Ok(few), Ok(many)) => println!("{name:28} {:>8} instructions", (many - few) / 1000),
            (Err(error), _) | (_, Err(error)) => {
                println!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Counts the instructions of a whole run of this program with this many rounds of a case.
fn instructions(name: &str, rounds: usize) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--rounds-of", name, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start ({error}); install it to count instructions"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    count.and_then(|(_, count)| count.trim().parse().ok()).ok_or_else(|| format!("valgrind said: {said}"))
}
