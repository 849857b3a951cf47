//! Instructions per evaluation, counted by valgrind: a figure that repeats, whatever else the machine does.
//!
//! Each case runs under callgrind for two numbers of rounds; the difference is what the rounds between them cost.
//! `cargo bench -p expression --bench instructions -- NAME` runs the cases whose names hold NAME; `-- --time` times them.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Instant;

use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Facts, Key, Schema,
    Value,
};

/// A name and an expression.
type Case = (&'static str, &'static str);

const CASES: [Case; 9] = [
    ("a_header", r#"request.headers["x-beta"] == "1""#),
    ("a_header_that_is_absent", r#"request.headers["x-none"] == "1""#),
    ("a_path_prefix", r#"request.path.startsWith("/api/")"#),
    ("a_network", r#"client.address in ["10.0.0.0/8", "192.168.0.0/16", "127.0.0.0/8"]"#),
    ("a_list", r#"request.method in ["HEAD", "OPTIONS", "GET", "POST", "PUT"]"#),
    (
        "five_conditions",
        r#"request.method == "GET" && request.path.startsWith("/api/") && request.headers["x-beta"] == "1"
            && client.address in "127.0.0.0/8" && !(request.headers["user-agent"] ?? "").contains("bot")"#,
    ),
    ("a_pattern", r#"request.path.matches("^/api/v[0-9]+/users/[0-9]+$")"#),
    ("lower_case_and_search", r#"(request.headers["user-agent"] ?? "").lowerAscii().contains("browser")"#),
    ("a_joined_text", r#"request.method + " " + request.path == "GET /api/v1/users/7""#),
];

const FIELDS: [(&str, &str); 8] = [
    ("Host", "www.example.com"),
    ("User-Agent", "A Browser/1.0 (X11; Linux x86_64)"),
    ("Accept", "text/html,application/xhtml+xml"),
    ("Accept-Encoding", "gzip, br"),
    ("Accept-Language", "en"),
    ("Connection", "keep-alive"),
    ("X-Beta", "1"),
    ("Cookie", "session=0123456789abcdef"),
];

struct Request;

impl Facts for Request {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        match fact {
            Fact::RequestMethod => Some(Value::Text(b"GET")),
            Fact::RequestPath => Some(Value::Text(b"/api/v1/users/7")),
            Fact::ClientAddress => Some(Value::Address([127, 0, 0, 1].into())),
            _ => None,
        }
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        let fields = FIELDS.iter().filter(|_| family == FactFamily::RequestHeaders);
        let mut found = fields.filter(|(name, _)| name.as_bytes().eq_ignore_ascii_case(key.as_bytes()));
        found.next().map(|(_, value)| value.as_bytes())
    }
}

fn run(text: &str, rounds: usize) {
    let expression =
        Expression::new(text, &Schema::new(ExchangeStage::Request), &ExpressionLimits::default())
            .expect("is valid");
    let mut scratch = EvaluationScratch::new();
    for _ in 0..rounds {
        black_box(black_box(&expression).holds(&black_box(Request), &mut scratch));
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let (_, text) = CASES.iter().find(|(known, _)| known == name).expect("a known case");
        run(text, rounds.parse().expect("a number of rounds"));
        return ExitCode::SUCCESS;
    }
    let is_timed = arguments.iter().any(|argument| argument == "--time");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    for (name, text) in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        if is_timed {
            println!("{name:28} {:>8.1} ns", nanoseconds(text));
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

/// The shortest time of a round, out of several runs.
fn nanoseconds(text: &str) -> f64 {
    const ROUNDS: usize = 100_000;
    let times = (0..20).map(|_| {
        let start = Instant::now();
        run(text, ROUNDS);
        start.elapsed().as_nanos() as f64 / ROUNDS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// The instructions of a whole run of this program, with so many rounds of a case.
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
