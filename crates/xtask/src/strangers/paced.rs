//! Compares `vanward load --h3` with quic-go's client: both send requests for the same pages to the same server at the
//! same rate, in turn. Counts must be equal, and percentiles within 5%. The shortest time of all rounds counts, because
//! a busy machine only lengthens times. So further rounds help on a busy machine, but do not hide a wrong generator.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::process::Process;
use crate::say;
use crate::step;

/// Requests per second.
const RATE: u64 = 100;
const CONNECTIONS: u64 = 4;
/// Delays of the pages in ms. Each percentile is well inside the requests with one delay, so it shows the server's
/// time and not a moment in which the machine was busy.
const DELAYS_MS: [u64; 7] = [100, 150, 200, 250, 300, 350, 400];
/// Maximum relative difference.
const TOLERANCE: f64 = 0.05;
const TIMES: [&str; 5] = ["mean_us", "p50_us", "p75_us", "p90_us", "p99_us"];
/// Counts that must be equal.
const COUNTS: [&str; 2] = ["requests", "body_bytes"];
/// Rounds after which the times must agree, however busy the machine is.
const ROUNDS_MAX: usize = 20;
/// Time in addition to that of the schedule.
const LIMIT: Duration = Duration::from_secs(60);

/// A generator's results over all rounds: counts, which are equal in each round, and the shortest times.
struct RoundReport {
    name: &'static str,
    counts: [u64; 2],
    times: [f64; 5],
}

/// Compares them over at least this number of rounds, and over more until they agree. `quic` is the program in Go.
pub(super) fn check(
    vanward: &Path,
    quic: &Path,
    (seconds, rounds): (u64, usize),
    folder: &Path,
) -> Result<(), String> {
    let mut command = Command::new(vanward);
    command.args(["origin", "--listen", "127.0.0.1:0", "--self-signed", "--h3"]);
    let mut origin = Process::start("origin-paced", &mut command, folder)?;
    let address = origin.addresses()?.into_iter().next().ok_or("the origin listens nowhere")?;
    let urls = DELAYS_MS.map(|delay| format!("https://{address}/delay/{delay}ms"));
    let list = folder.join("paced.txt");
    super::subject::write(&list, &urls.join("\n"))?;
    let [rate, count, connections] = [RATE, RATE * seconds, CONNECTIONS].map(|number| number.to_string());
    let mut own = Command::new(vanward);
    own.args(["load", "--h3", "--insecure", "--json", "--quiet", "-m", "100"]);
    own.args(["-R", &rate, "-n", &count, "-c", &connections, "--urls"]).arg(&list);
    let mut others = Command::new(quic);
    others.args(["load", &rate, &count, &connections]).args(&urls);
    let mut seen = [("vanward load", own, Vec::new()), ("quic-go", others, Vec::new())];
    let limit = LIMIT + Duration::from_secs(seconds);
    let mut round = 0;
    loop {
        round += 1;
        for (name, command, figures) in &mut seen {
            figures.push(one_round(name, command, limit, folder)?);
        }
        let [own, others] = seen.each_ref().map(|(name, _, figures)| RoundReport::from_name(name, figures));
        own.counts_as(&others, RATE * seconds)?;
        if round < rounds {
            continue;
        }
        let times = own.times_as(&others);
        if times.is_ok() || round >= ROUNDS_MAX {
            say(format_args!("{}least of {round} rounds", table(&[&own, &others])));
            return times;
        }
    }
}

/// Runs a round. A generator that was late for its schedule is no failure, because the machine may be busy.
fn one_round(name: &str, command: &mut Command, limit: Duration, folder: &Path) -> Result<Value, String> {
    let shown = step::shown(command);
    let (status, said) = Process::start(name, command, folder)?.finish(limit)?;
    // Other lines are warnings.
    let told = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_told = status.success() || status.code() == Some(step::INVALID_RUN);
    told.filter(|_| is_told).ok_or_else(|| format!("`{shown}`: {status}; it said:\n{said}"))
}

impl RoundReport {
    /// Combines rounds. Missing values become zero, and so do counts that differ between rounds.
    fn from_name(name: &'static str, rounds: &[Value]) -> Self {
        let count = |key: &str| {
            let mut counts = rounds.iter().map(|round| round[key].as_u64().unwrap_or(0));
            let first = counts.next().unwrap_or(0);
            if counts.all(|count| count == first) { first } else { 0 }
        };
        let time = |key: &str| {
            let times = rounds.iter().map(|round| round["latency"][key].as_f64().unwrap_or(0.0) / 1000.0);
            times.min_by(f64::total_cmp).unwrap_or(0.0)
        };
        Self { name, counts: COUNTS.map(count), times: TIMES.map(time) }
    }

    fn counts_as(&self, other: &Self, requests: u64) -> Result<(), String> {
        if self.counts == other.counts && self.counts[0] == requests {
            return Ok(());
        }
        Err(format!(
            "of {requests} requests {} counts {:?} (requests, bytes), {} {:?}",
            self.name, self.counts, other.name, other.counts
        ))
    }

    fn times_as(&self, other: &Self) -> Result<(), String> {
        let differ = |(own, other): (&f64, &f64)| !((own - other).abs() <= other * TOLERANCE && *other > 0.0);
        match self.times.iter().zip(&other.times).position(differ) {
            None => Ok(()),
            Some(at) => {
                let [own, others] = [self, other].map(|told| told.times[at]);
                Err(format!("{}: {} {own} ms, {} {others} ms", TIMES[at], self.name, other.name))
            }
        }
    }
}

fn table(all: &[&RoundReport]) -> String {
    let mut table =
        "| HTTP/3 | requests | bytes | mean | p50 | p75 | p90 | p99 |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for RoundReport { name, counts: [requests, bytes], times } in all {
        let times: Vec<String> = times.iter().map(|ms| format!("{ms:.1} ms")).collect();
        // Writing to a String does not fail.
        let _ = writeln!(table, "| {name} | {requests} | {bytes} | {} |", times.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_the_same_and_times_within_five_percent() {
        let round = |requests: u64, us: f64| {
            let times = json!({"mean_us": us, "p50_us": us, "p75_us": us, "p90_us": us, "p99_us": us});
            json!({"requests": requests, "body_bytes": 24, "latency": times})
        };
        let told = |rounds: &[Value]| RoundReport::from_name("it", rounds);
        let fixed = told(&[round(2, 100_000.0)]);
        let agree = |own: &RoundReport, others: &RoundReport, requests| {
            own.counts_as(others, requests).and_then(|()| own.times_as(others)).is_ok()
        };
        for (rounds, agrees) in [
            (vec![round(2, 104_900.5)], true),
            (vec![round(2, 95_100.0)], true),
            (vec![round(2, 105_200.0)], false),
            (vec![round(2, 94_000.0)], false),
            (vec![round(1, 100_000.0)], false),
            (vec![json!({"requests": 2, "body_bytes": 24})], false),
            (vec![], false),
            // A single round on a busy machine changes nothing.
            (vec![round(2, 900_000.0), round(2, 100_000.0), round(2, 107_000.0)], true),
            (vec![round(2, 100_000.0), round(1, 100_000.0), round(2, 100_000.0)], false),
        ] {
            assert_eq!(agree(&told(&rounds), &fixed, 2), agrees, "{rounds:?}");
        }
        assert!(!agree(&fixed, &fixed, 3), "neither has sent what was asked for");
        assert!(!agree(&told(&[]), &told(&[]), 0), "nothing was measured");
        assert!(
            table(&[&fixed])
                .ends_with("| it | 2 | 24 | 100.0 ms | 100.0 ms | 100.0 ms | 100.0 ms | 100.0 ms |\n")
        );
    }
}
