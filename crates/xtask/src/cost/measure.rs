//! Runs a proxy under Callgrind, and reads its counts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::cases::{CostCase, FILES_OF_CASES, ServerSide};
use super::figures::RequestCost;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers::process::{Process, free_address};

/// Requests of the short and of the long load. The difference has neither the handshake nor the first requests.
const TINY: (u64, u64) = (100, 600);
const LARGE: (u64, u64) = (10, 60);
const END_LIMIT: Duration = Duration::from_secs(60);

/// Measures a case.
pub(super) fn measure(program: &Path, case: &CostCase) -> Result<RequestCost, String> {
    let scratch = Scratch::new("cost")?;
    let folder = scratch.path();
    for (name, length) in FILES_OF_CASES {
        put(&folder.join(name), &"x".repeat(length))?;
    }
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
    run.args(["--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"]);
    // The sizes of one machine's caches, so that figures of others compare.
    run.args(["--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"]);
    run.arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
    let proxy = Process::start("proxy", run.args(["run", "--config"]).arg(&file), folder)?;
    let proxy = proxy.listening_on(address)?;
    let (few, many) = if case.is_large { LARGE } else { TINY };
    load(program, case, address, few)?;
    tell(&proxy, &["instrumentation", "on"])?;
    // Code is translated again for counting.
    load(program, case, address, few)?;
    tell(&proxy, &["zero"])?;
    load(program, case, address, few)?;
    tell(&proxy, &["dump"])?;
    load(program, case, address, many)?;
    tell(&proxy, &["dump"])?;
    proxy.signal("-TERM")?;
    proxy.finish(END_LIMIT)?;
    let of_dump = |number: u32| {
        let path = counts.with_extension(number.to_string());
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        read(&text).ok_or_else(|| format!("{} has no sums of all events", path.display()))
    };
    let (first, second) = (of_dump(1)?, of_dump(2)?);
    let each = |event: usize| second[event].saturating_sub(first[event]) as f64 / (many - few) as f64;
    Ok(RequestCost { instructions: each(0), misses: [each(1), each(2), each(3)] })
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
    command.args(case.flags).arg(format!("{scheme}://{address}{}", case.path));
    let output = command.output().map_err(|error| format!("`{}`: {error}", step::shown(&command)))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if told["requests"].as_u64() != Some(requests) || told["errors"] != 0 {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: `{}`: {errors}{told}", case.name, step::shown(&command)));
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
