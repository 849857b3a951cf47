//! Instructions per lookup, counted by valgrind. The figures do not depend on the load of the machine.
//!
//! Each case runs under callgrind for two numbers of rounds; the difference is the cost of the additional rounds.
//! `cargo bench -p route -- NAME` runs the cases whose names contain NAME.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::{Command, ExitCode};

use route::{
    BytePattern, ClaimRules, HostRule, PathRule, Rate, RateKey, RateKeyPart, RateLimiter, RequestParts,
    RouteRule, RouteTable, ValueRule,
};

/// A case's name, and its function, which gets the number of rounds.
type Case = (&'static str, fn(usize));

const CASES: [Case; 11] = [
    ("one_route", |rounds| find(&one(), "127.0.0.1", "/tiny", rounds)),
    ("few_prefixes", |rounds| find(&few(), "www.example.com", "/api/v1/users/7", rounds)),
    ("few_hosts", |rounds| find(&hosts(), "www.example.com", "/articles/2024/on-proxies", rounds)),
    ("few_hosts_none_fits", |rounds| {
        find(&hosts(), "other.example.net", "/articles/2024/on-proxies", rounds);
    }),
    ("ten_thousand_hosts", |rounds| find(&many_hosts(), "host-7777.example.com", "/p/q", rounds)),
    ("ten_thousand_prefixes", |rounds| find(&many_prefixes(), "www.example.com", "/p/77/q/77/x", rounds)),
    ("escaped_path", |rounds| find(&few(), "www.example.com", "/api/v1/us%65rs/7", rounds)),
    ("every_condition", |rounds| choose(&conditions(), "/api/v1/users/7", rounds)),
    ("a_pattern_that_matches", |rounds| choose(&patterns(2), "/files/1/a/picture.jpg", rounds)),
    ("fifty_patterns_none_matches", |rounds| choose(&patterns(50), "/articles/2024/on-proxies", rounds)),
    ("a_rate_limit", rate_limit),
];

fn one() -> RouteTable {
    RouteTable::new([(None, "/")])
}

fn few() -> RouteTable {
    RouteTable::new([
        (None, "/"),
        (None, "/api"),
        (None, "/api/v1"),
        (None, "/static"),
        (None, "/api/v2/users"),
    ])
}

fn hosts() -> RouteTable {
    RouteTable::new([
        (None, "/"),
        (Some("www.example.com"), "/"),
        (Some("api.example.com"), "/"),
        (Some("static.example.com"), "/"),
    ])
}

fn many_hosts() -> RouteTable {
    let texts: Vec<String> = (0..10_000).map(|number| format!("host-{number}.example.com")).collect();
    RouteTable::new(texts.iter().map(|host| (Some(host.as_str()), "/")))
}

fn many_prefixes() -> RouteTable {
    let texts: Vec<String> =
        (0..10_000).map(|number| format!("/p/{}/q/{}", number / 100, number % 100)).collect();
    RouteTable::new(texts.iter().map(|path| (None, path.as_str())))
}

fn find(table: &RouteTable, host: &str, path: &str, rounds: usize) {
    for _ in 0..rounds {
        assert!(table.find(black_box(host.as_bytes()), black_box(path.as_bytes())).is_some());
    }
}

fn conditions() -> RouteTable {
    let value = ValueRule::Exact("1".to_owned());
    RouteTable::compile(vec![
        RouteRule::default(),
        RouteRule {
            listeners: vec![0],
            host: HostRule::from_text("*.example.com"),
            path: PathRule::Prefix("/api".to_owned()),
            methods: vec!["GET".to_owned()],
            headers: vec![("X-Beta".to_owned(), value.clone())],
            cookies: Vec::new(),
            query: vec![("beta".to_owned(), value)],
            claims: ClaimRules::default(),
            when: None,
            clients: vec!["127.0.0.0/8".parse().expect("a network")],
        },
    ])
}

fn patterns(count: usize) -> RouteTable {
    let pattern = |number| BytePattern::new(&format!("/files/{number}/.*\\.jpg")).expect("a pattern");
    let rules = (0..count)
        .map(|number| RouteRule { path: PathRule::Pattern(pattern(number)), ..RouteRule::default() });
    RouteTable::compile(rules.chain([RouteRule::default()]).collect())
}

const FIELDS: [(&str, &str); 4] =
    [("Host", "www.example.com"), ("User-Agent", "a browser"), ("Accept", "*/*"), ("X-Beta", "1")];

fn request(path: &str) -> RequestParts<'_, [(&'static str, &'static str)]> {
    RequestParts {
        listener: 0,
        host: b"www.example.com",
        path: path.as_bytes(),
        query: Some(b"page=2&beta=1"),
        method: b"GET",
        client: [127, 0, 0, 1].into(),
        fields: &FIELDS,
        conditions: &route::NoConditions,
    }
}

fn choose(table: &RouteTable, path: &str, rounds: usize) {
    for _ in 0..rounds {
        assert!(table.choose(&black_box(request(path))).is_some());
    }
}

fn rate_limit(rounds: usize) {
    let number = |number| std::num::NonZeroU32::new(number).expect("not zero");
    let rate = Rate::new(number(1_000_000), std::time::Duration::from_secs(1), number(10)).expect("a rate");
    let key = RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 }]);
    let limiter = RateLimiter::new(rate, key, 1000, [1, 2]);
    for round in 0..rounds as u64 {
        black_box(limiter.admit(&black_box(request("/")), "", round * 2000));
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
