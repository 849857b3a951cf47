//! Instructions per pick, counted by valgrind. The figures do not depend on the load of the machine.
//!
//! Each case runs under callgrind for two numbers of rounds; the difference is the cost of the additional rounds.
//! `cargo bench -p balance -- NAME` runs the cases whose names contain NAME.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use balance::{
    Changes, Fleet, FleetMember, FleetSettings, HashSecret, Pick, PickInput, Picker, RequestOutcome,
    ServerHealth, ServerId, Sessions, Time,
};

#[derive(Debug, Clone, Copy)]
enum Case {
    /// A pick among this many servers, of equal or different weights.
    Pick { servers: u64, is_weighted: bool },
    /// A pick for a request that was already tried on one server.
    Again { servers: u64 },
    /// A pick, and the begin and end of its request.
    Whole { servers: u64 },
    /// A lookup among this many sessions.
    Session { sessions: u64 },
}

const CASES: [(&str, Case); 6] = [
    ("16_servers", Case::Pick { servers: 16, is_weighted: false }),
    ("16_servers_weighted", Case::Pick { servers: 16, is_weighted: true }),
    ("1000_servers_weighted", Case::Pick { servers: 1000, is_weighted: true }),
    ("16_servers_one_tried", Case::Again { servers: 16 }),
    ("16_servers_from_pick_to_end", Case::Whole { servers: 16 }),
    ("session", Case::Session { sessions: 10_000 }),
];

fn picker(policy: &str, servers: u64, is_weighted: bool) -> Picker {
    let changes: Arc<Changes> = Arc::default();
    let weight = |id: u64| if is_weighted { 1 + id as u32 % 10 } else { 1 };
    let member = |id| FleetMember::new(ServerId::from_u64(id), weight(id), &ServerHealth::new(&changes));
    let row = balance::policy(policy).expect("a policy");
    Picker::new(Arc::new(Fleet::new(row, (0..servers).map(member).collect(), FleetSettings::default())), 1)
}

fn run(policy: &str, case: Case, rounds: u64) {
    let servers = match case {
        Case::Pick { servers, is_weighted } => {
            return rounds_of(picker(policy, servers, is_weighted), &[], false, rounds);
        }
        Case::Again { servers } => return rounds_of(picker(policy, servers, false), &[3], false, rounds),
        Case::Whole { servers } => return rounds_of(picker(policy, servers, false), &[], true, rounds),
        Case::Session { sessions } => sessions,
    };
    let sessions = Sessions::new(servers as usize, Duration::from_secs(60), HashSecret::new(1));
    let key = |number: u64| sessions.key(&(number % servers).to_be_bytes());
    (0..servers).for_each(|number| sessions.bind(key(number), ServerId::from_u64(number), Time::START));
    for round in 0..rounds {
        black_box(sessions.find(key(round), Time::START));
    }
}

fn rounds_of(mut picker: Picker, tried: &[usize], is_whole: bool, rounds: u64) {
    for round in 0..rounds {
        let random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let ask = PickInput { now: Time::START, random, key: Some(random), tried: black_box(tried) };
        let Pick::Server(server) = picker.pick(&ask) else { unreachable!("a server is up") };
        if is_whole {
            let fleet = picker.fleet();
            black_box(fleet.begin(server));
            fleet.end(server, RequestOutcome::Answered(Some(Duration::from_millis(1))), ask.now);
        }
        black_box(server);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, policy, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).expect("a known case");
        run(policy, *case, rounds.parse().expect("a number of rounds"));
        return ExitCode::SUCCESS;
    }
    for (name, case) in CASES {
        for row in &balance::POLICIES {
            // Looking up a session costs the same with every policy.
            if matches!(case, Case::Session { .. }) && row.name != balance::DEFAULT.name {
                continue;
            }
            let title = format!("{}_{name}", row.name);
            if !arguments.is_empty() && !arguments.iter().any(|wanted| title.contains(wanted.as_str())) {
                continue;
            }
            match (instructions(row.name, name, 100), instructions(row.name, name, 1100)) {
                (Ok(few), Ok(many)) => println!("{title:46} {:>8} instructions", (many - few) / 1000),
                (Err(error), _) | (_, Err(error)) => {
                    println!("{title}: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// Counts the instructions of a whole run of this program with this many rounds of a case.
fn instructions(policy: &str, name: &str, rounds: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--rounds-of", policy, name, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start ({error}); install it to count instructions"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    count.and_then(|(_, count)| count.trim().parse().ok()).ok_or_else(|| format!("valgrind said: {said}"))
}
