//! Instructions per entry of a file that is read, and per look-up, counted by valgrind: figures that repeat.
//!
//! Each case runs under callgrind for two numbers of rounds; the difference is what the rounds between them cost.
//! `cargo bench -p maps --bench instructions -- NAME` runs the cases whose names hold NAME; `-- --time` times them.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use expression::{Value, ValueType};
use maps::{FileFormat, MapKind, MapShape, MapSnapshot, MapTable, TableBuilder};

/// The size for which the documentation states time and memory.
const MILLION: u32 = 1_000_000;
/// The numbers of rounds whose instructions are compared.
const FEW: u32 = 10_000;
const MANY: u32 = 60_000;

#[derive(Clone, Copy)]
enum Case {
    /// Reads a file; a round is an entry.
    Read(MapKind),
    /// Looks keys up among so many entries; a round is a look-up.
    LookUp(MapKind, u32),
}

const CASES: [(&str, Case); 5] = [
    ("read_a_network", Case::Read(MapKind::Network)),
    ("read_an_exact_key", Case::Read(MapKind::Exact)),
    ("find_among_10000_exact_keys", Case::LookUp(MapKind::Exact, 10_000)),
    ("find_among_a_million_keys", Case::LookUp(MapKind::Exact, MILLION)),
    ("find_among_a_million_networks", Case::LookUp(MapKind::Network, MILLION)),
];

/// The addresses of the networks lie apart, as those of countries do.
fn address(number: u32) -> u32 {
    number.wrapping_mul(4099) & !0xff
}

fn key(kind: MapKind, number: u32) -> String {
    match kind {
        MapKind::Network => format!("{}/24", Ipv4Addr::from(address(number))),
        _ => format!("user-{number}@example.com"),
    }
}

/// A file of entries with few different values.
fn file(kind: MapKind, count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let value = ["AT", "CH", "DE", "FR", "IT"][number as usize % 5];
        // Writing to a text does not fail.
        let _ = writeln!(text, "{} {value}", key(kind, number));
    }
    text
}

fn read(kind: MapKind, text: &str) -> MapTable {
    let mut builder = TableBuilder::new(MapShape { kind, values: Some(ValueType::Text) });
    FileFormat::Pairs.read(text.as_bytes(), &mut builder).expect("the file has no mistake");
    builder.build().expect("no key appears twice")
}

/// Keys in an order that no cache of the processor foresees (xorshift).
fn keys(kind: MapKind, count: u32) -> Vec<String> {
    let mut seed = 88_172_645_463_325_252_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % u64::from(count)) as u32
    };
    let asked = |number| match kind {
        MapKind::Network => Ipv4Addr::from(address(number) | 7).to_string(),
        _ => key(kind, number),
    };
    (0..65_536).map(|_| asked(next())).collect()
}

/// A map and the keys that are looked up in it.
fn look_ups(kind: MapKind, count: u32) -> (MapSnapshot, Vec<String>) {
    (MapSnapshot::new(Arc::new(read(kind, &file(kind, count)))), keys(kind, count))
}

fn look_up(map: &MapSnapshot, keys: &[Value<'_>], rounds: usize) {
    for key in keys.iter().cycle().take(rounds) {
        let found = black_box(map).lookup(*black_box(key), 1);
        assert!(found.is_some());
    }
}

fn as_value(kind: MapKind, key: &str) -> Value<'_> {
    match kind {
        MapKind::Network => Value::Address(key.parse::<IpAddr>().expect("is an address")),
        _ => Value::Text(key.as_bytes()),
    }
}

fn as_values(kind: MapKind, keys: &[String]) -> Vec<Value<'_>> {
    keys.iter().map(|key| as_value(kind, key)).collect()
}

fn run(case: Case, rounds: usize) {
    match case {
        Case::Read(kind) => {
            // The same file for each number of rounds, so that the difference is that of reading alone.
            let text = file(kind, MANY);
            let end = text.match_indices('\n').nth(rounds - 1).map_or(text.len(), |(end, _)| end);
            drop(black_box(read(kind, &text[..end])));
        }
        Case::LookUp(kind, count) => {
            let (map, keys) = look_ups(kind, count);
            look_up(&map, &as_values(kind, &keys), rounds);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).expect("a known case");
        run(*case, rounds.parse().expect("a number of rounds"));
        return ExitCode::SUCCESS;
    }
    let is_timed = arguments.iter().any(|argument| argument == "--time");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    for (name, case) in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        if is_timed {
            time(name, case);
            continue;
        }
        match (instructions(name, FEW), instructions(name, MANY)) {
            (Ok(few), Ok(many)) => {
                println!("{name:30} {:>8} instructions", (many - few) / u64::from(MANY - FEW));
            }
            (Err(error), _) | (_, Err(error)) => {
                println!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Prints the shortest time of a round, out of several runs.
fn time(name: &str, case: Case) {
    match case {
        Case::Read(kind) => {
            let text = file(kind, MILLION);
            let times = (0..5).map(|_| {
                let start = Instant::now();
                let bytes = black_box(read(kind, &text)).memory_bytes();
                (start.elapsed().as_nanos(), bytes)
            });
            let (time, bytes) = times.min().expect("there are runs");
            let (entry, all) = (time as f64 / f64::from(MILLION), time as f64 / 1e9);
            let megabytes = bytes as f64 / 1e6;
            println!("{name:30} {entry:>8.1} ns, {all:.2} s and {megabytes:.1} MB for a million");
        }
        Case::LookUp(kind, count) => {
            const ROUNDS: usize = 200_000;
            let (map, keys) = look_ups(kind, count);
            let keys = as_values(kind, &keys);
            let times = (0..20).map(|_| {
                let start = Instant::now();
                look_up(&map, &keys, ROUNDS);
                start.elapsed().as_nanos() as f64 / ROUNDS as f64
            });
            println!("{name:30} {:>8.1} ns", times.fold(f64::INFINITY, f64::min));
        }
    }
}

/// The instructions of a whole run of this program, with so many rounds of a case.
fn instructions(name: &str, rounds: u32) -> Result<u64, String> {
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
