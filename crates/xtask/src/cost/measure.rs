//! Runs a proxy under Callgrind, and reads its counts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::cases::{CostCase, ServerSide};
use super::figures::RequestCost;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers::process::{Process, free_address};

/// Requests of a short and of a long load. The difference has no handshake.
const TINY: [u64; 2] = [20, 80];
const LARGE: [u64; 2] = [10, 40];
/// How often each load is sent: the median counts.
const TIMES: usize = 5;
/// Pause of client and server before they send. Without it, data may arrive before the proxy waits for it, which saves a
/// wake-up.
const PAUSE: &str = "4ms";
/// Threads whose counts are looked at.
const THREADS_MAX: usize = 16;
const END_LIMIT: Duration = Duration::from_secs(60);

/// Measures a case.
pub(super) fn measure(program: &Path, case: &CostCase) -> Result<RequestCost, String> {
    let scratch = Scratch::new(&format!("cost-{}", case.name))?;
    let folder = scratch.path();
    let mut origin = Command::new(program);
    origin.args(["origin", "--workers", "1", "--listen", "127.0.0.1:0"]);
    if case.server != ServerSide::Http1 {
        origin.arg("--self-signed");
    }
    let mut origin = Process::start("origin", &mut origin, folder)?;
    let server = *origin.addresses()?.first().ok_or("the origin listens nowhere")?;
    let address = free_address()?;
    let file = folder.join("vanward.toml");
    put(&file, &configuration(case, address, server, folder))?;
    let counts = folder.join("counts");
    let mut run = Command::new("valgrind");
    // Counting begins with the first load, so that the start is fast.
    run.args(["--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--separate-threads=yes"]);
    // The sizes of one machine's caches, so that figures of others compare.
    run.args(["--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"]);
    run.arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
    let proxy = Process::start("proxy", run.args(["run", "--config"]).arg(&file), folder)?;
    let proxy = proxy.listening_on(address)?;
    let loads = if case.is_large { LARGE } else { TINY };
    load(program, case, address, loads[0])?;
    tell(&proxy, &["instrumentation", "on"])?;
    // Code is translated again for counting.
    load(program, case, address, loads[0])?;
    tell(&proxy, &["zero"])?;
    for requests in loads.into_iter().flat_map(|requests| [requests; TIMES]) {
        load(program, case, address, requests)?;
        tell(&proxy, &["dump"])?;
    }
    proxy.signal("-TERM")?;
    proxy.finish(END_LIMIT)?;
    let dumps = (1..=2 * TIMES).map(|number| of_dump(&counts, number)).collect::<Result<Vec<_>, String>>()?;
    let (short, long) = dumps.split_at(TIMES);
    let more = (loads[1] - loads[0]) as f64;
    let each = |event: usize| median(long, event).saturating_sub(median(short, event)) as f64 / more;
    Ok(RequestCost { instructions: each(0), misses: [each(1), each(2), each(3)] })
}

/// The sums of a dump, of the thread with the most instructions: the worker.
fn of_dump(counts: &Path, number: usize) -> Result<[u64; 4], String> {
    let of_thread = |thread: usize| {
        let path = counts.with_extension(format!("{number}-{thread:02}"));
        read(&fs::read_to_string(path).ok()?)
    };
    let busiest = (1..=THREADS_MAX).filter_map(of_thread).max();
    busiest.ok_or_else(|| format!("Callgrind has written no dump {number} with sums of all events"))
}

fn median(dumps: &[[u64; 4]], event: usize) -> u64 {
    let mut counts: Vec<u64> = dumps.iter().map(|dump| dump[event]).collect();
    counts.sort_unstable();
    counts[counts.len() / 2]
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn configuration(case: &CostCase, address: SocketAddr, server: SocketAddr, folder: &Path) -> String {
    let CostCase { listen, tables, .. } = case;
    let tables = tables.replace("{folder}", &folder.display().to_string());
    let (scheme, options) = match case.server {
        ServerSide::Http1 => ("http", ""),
        ServerSide::Tls => ("https", "tls = { verify = false }\nprotocol = \"http/1.1\"\n"),
        ServerSide::Http2 => ("https", "tls = { verify = false }\nprotocol = \"h2\"\n"),
    };
    let upstream = match tables.contains("\"origin\"") {
        true => format!("[upstream.origin]\nservers = [\"{scheme}://{server}\"]\n{options}"),
        false => String::new(),
    };
    format!("workers = 1\n[[listen]]\naddress = \"{address}\"\n{listen}{tables}{upstream}")
}

/// Sends requests on one connection, one after the other.
fn load(program: &Path, case: &CostCase, address: SocketAddr, requests: u64) -> Result<(), String> {
    let scheme = if case.listen.is_empty() { "http" } else { "https" };
    let mut command = Command::new(program);
    command.args(["load", "--json", "-c", "1", "-n", &requests.to_string(), "--timeout", "60s"]);
    command.args(["--think-time", PAUSE]).args(case.flags);
    command.arg(format!("{scheme}://{address}{}?delay={PAUSE}", case.path));
    let output = command.output().map_err(|error| format!("`{}`: {error}", step::shown(&command)))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let failed = told["errors"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64());
    if told["requests"].as_u64() != Some(requests)
        || failed.sum::<u64>() > 0
        || told["statuses"]["200"] != requests
    {
        let (errors, statuses) = (&told["errors"], &told["statuses"]);
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: `{}`: {said}{statuses} {errors}", case.name, step::shown(&command)));
    }
    Ok(())
}

/// Gives Callgrind a command, which it carries out before this returns.
fn tell(proxy: &Process, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new("vgdb");
    command.arg(format!("--pid={}", proxy.id())).args(words);
    let output = command.output().map_err(|error| format!("`{}`: {error}", step::shown(&command)))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{}` ended with {}: {errors}", step::shown(&command), output.status))
        }
    }
}

/// Instructions, and misses of the first cache of instructions, of data, and of the last cache, in a dump.
fn read(dump: &str) -> Option<[u64; 4]> {
    let line = |name: &str| dump.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let events: Vec<&str> = line("events")?.split_whitespace().collect();
    let sums = line("summary").or_else(|| line("totals"))?;
    let sums: Vec<u64> = sums.split_whitespace().filter_map(|sum| sum.parse().ok()).collect();
    let sum = |name: &str| {
        let place = events.iter().position(|event| *event == name)?;
        // Zeros at the end are left out.
        Some(sums.get(place).copied().unwrap_or(0))
    };
    let data = sum("D1mr")? + sum("D1mw")?;
    let last = sum("ILmr")? + sum("DLmr")? + sum("DLmw")?;
    Some([sum("Ir")?, sum("I1mr")?, data, last])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::cases::CASES;

    #[test]
    fn sums_of_a_dump() {
        let dump = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=(1) a\n1 2\nsummary: 900 200 100 5 6 7 1 2\n";
        assert_eq!(read(dump), Some([900, 5, 13, 3]));
        assert_eq!(read("events: Ir\nsummary: 900\n"), None);
        let of = |count: u64| [count, 0, 0, 0];
        assert_eq!(median(&[of(7), of(900), of(6), of(5), of(8)], 0), 7);
    }

    #[test]
    fn each_case_has_a_name_and_only_the_upstream_that_it_uses() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        for (index, case) in CASES.iter().enumerate() {
            assert!(CASES[..index].iter().all(|other| other.name != case.name), "{}", case.name);
            let text = configuration(case, address, address, Path::new("/tmp"));
            assert_eq!(text.contains("[upstream.origin]"), text.contains("= \"origin\""), "{text}");
            assert!(text.parse::<toml::Table>().is_ok(), "{text}");
        }
    }
}
