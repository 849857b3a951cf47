//! Compares load generators: `vanward load`, wrk, h2load and oha send to the same nginx in turn, in a closed loop.
//! Prints a table of requests per second, and of each generator's CPU time per request.
//!
//! nginx and the generators have a core each, if there are two. Figures are medians over the rounds. Over HTTP/3,
//! which only quic-go's client supports, counts and times at a fixed rate are compared with it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers;
use crate::workspace::Workspace;

/// Connections over HTTP/1.1; connections and streams of each over HTTP/2.
const CONNECTIONS: usize = 64;
const SESSIONS: usize = 8;
const STREAMS: usize = 8;
const START_LIMIT: Duration = Duration::from_secs(30);
/// Unit of CPU times in /proc: 100 on every Linux platform of Vanward.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(clap::Args)]
pub(crate) struct GeneratorsArgs {
    /// Duration of each measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Measurements of each generator
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A built program in place of target/dist/vanward
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// A kind of load: its name, URL, and whether it is HTTP/2.
struct GeneratorWay {
    name: String,
    url: String,
    is_http2: bool,
}

/// A generator: its name, program, arguments for a load, and parser of its output.
struct Generator {
    name: &'static str,
    program: PathBuf,
    arguments: fn(&GeneratorWay, u64) -> Option<Vec<String>>,
    /// Requests and seconds.
    read: fn(&str) -> Option<(f64, f64)>,
}

pub(crate) fn run(arguments: &GeneratorsArgs) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => {
            let mut build = Command::new("cargo");
            build.args(["build", "--profile", "dist", "-p", "vanward"]).current_dir(&workspace.root);
            step::run(&mut build)?;
            workspace.target_directory()?.join("dist/vanward")
        }
    };
    let scratch = Scratch::new("generators")?;
    let (_nginx, ways) = nginx(scratch.path())?;
    let generators: Vec<Generator> = all(program.clone()).into_iter().filter(is_there).collect();
    for generator in &generators {
        say(format_args!("{}: {}", generator.name, version(generator)));
    }
    let mut table =
        "| | generator | requests/s | of the best | CPU per request |\n|---|---|---|---|---|\n".to_owned();
    for way in &ways {
        let mut seen: Vec<Vec<(f64, f64)>> = generators.iter().map(|_| Vec::new()).collect();
        for round in 0..arguments.rounds {
            for turn in 0..generators.len() {
                // Each comes first equally often.
                let number = (turn + round) % generators.len();
                if let Some(figures) = measured(&generators[number], way, arguments.seconds)? {
                    seen[number].push(figures);
                }
            }
        }
        let medians: Vec<_> = generators
            .iter()
            .zip(seen)
            .filter(|(_, seen)| !seen.is_empty())
            .map(|(generator, seen)| {
                let (rates, costs): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
                (generator.name, median(rates), median(costs))
            })
            .collect();
        let best = medians.iter().map(|(_, rate, _)| *rate).fold(0.0, f64::max);
        for (name, rate, cost) in medians {
            let way = &way.name;
            let (share, cost_us) = (100.0 * rate / best, cost * 1e6);
            table += &format!("| {way} | {name} | {rate:.0} | {share:.0}% | {cost_us:.2} µs |\n");
        }
    }
    say(table);
    strangers::paced(&workspace, &program, (arguments.seconds, arguments.rounds), scratch.path())
}

fn all(program: PathBuf) -> [Generator; 4] {
    [
        Generator {
            name: "vanward load",
            program,
            arguments: |way, seconds| {
                let load = if way.is_http2 {
                    format!("load --json --quiet -t1 --h2 -c{SESSIONS} -m{STREAMS} -d{seconds}s")
                } else {
                    format!("load --json --quiet -t1 -c{CONNECTIONS} -d{seconds}s")
                };
                Some(words(&format!("{load} --insecure {}", way.url)))
            },
            read: |said| {
                let told: Value = serde_json::from_str(said).ok()?;
                Some((told["requests"].as_f64()?, told["measured_seconds"].as_f64()?))
            },
        },
        Generator {
            name: "wrk",
            program: "wrk".into(),
            arguments: |way, seconds| {
                (!way.is_http2).then(|| words(&format!("-t1 -c{CONNECTIONS} -d{seconds}s {}", way.url)))
            },
            read: |said| {
                let line = said.lines().find(|line| line.contains(" requests in "))?;
                let mut parts = line.split_whitespace();
                let requests = parts.next()?.parse().ok()?;
                Some((requests, parts.nth(2)?.trim_end_matches("s,").parse().ok()?))
            },
        },
        Generator {
            name: "h2load",
            program: "h2load".into(),
            arguments: |way, seconds| {
                let load = if way.is_http2 {
                    format!("-t1 -c{SESSIONS} -m{STREAMS} -D{seconds}")
                } else {
                    format!("-t1 --h1 -c{CONNECTIONS} -m1 -D{seconds}")
                };
                Some(words(&format!("{load} {}", way.url)))
            },
            read: |said| {
                let line = said.lines().find(|line| line.starts_with("requests:"))?;
                let succeeded = line.split(", ").find(|part| part.ends_with(" succeeded"))?;
                let finished = said.lines().find_map(|line| line.strip_prefix("finished in "))?;
                let seconds = finished.split("s,").next()?;
                Some((succeeded.split(' ').next()?.parse().ok()?, seconds.parse().ok()?))
            },
        },
        Generator {
            name: "oha",
            program: "oha".into(),
            arguments: |way, seconds| {
                let load = if way.is_http2 {
                    format!("--http2 -c{SESSIONS} -p{STREAMS}")
                } else {
                    format!("-c{CONNECTIONS}")
                };
                let rest = "--no-tui --output-format json --worker-threads 1 --insecure";
                Some(words(&format!("{load} -z{seconds}s {rest} {}", way.url)))
            },
            read: |said| {
                let told: Value = serde_json::from_str(said).ok()?;
                let seconds = told["summary"]["total"].as_f64()?;
                Some((told["summary"]["requestsPerSec"].as_f64()? * seconds, seconds))
            },
        },
    ]
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn is_there(generator: &Generator) -> bool {
    let mut command = Command::new(&generator.program);
    let is_there = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        say(format_args!("{} is not installed, so it is left out", generator.name));
    }
    is_there
}

fn version(generator: &Generator) -> String {
    let told = Command::new(&generator.program).arg("--version").output();
    let told = told.map(|told| String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned());
    told.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Returns requests per second, and CPU seconds per request; `None` if the generator does not support the protocol.
fn measured(generator: &Generator, way: &GeneratorWay, seconds: u64) -> Result<Option<(f64, f64)>, String> {
    let Some(arguments) = (generator.arguments)(way, seconds) else { return Ok(None) };
    let mut command = on_core(1, &generator.program);
    command.args(arguments).stdin(Stdio::null());
    let before = cpu_of_children()?;
    let told = command.output().map_err(|error| format!("{} cannot be run: {error}", generator.name))?;
    let cpu_seconds = cpu_of_children()? - before;
    let said = String::from_utf8_lossy(&told.stdout);
    let (requests, seconds) = (generator.read)(&said)
        .filter(|(requests, _)| *requests > 0.0)
        .ok_or_else(|| format!("{} said: {said}{}", generator.name, String::from_utf8_lossy(&told.stderr)))?;
    Ok(Some((requests / seconds, cpu_seconds / requests)))
}

/// User and system time of all ended children.
fn cpu_of_children() -> Result<f64, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // cutime and cstime: fields 16 and 17; field 2 ends with the parenthesis.
    let ticks = rest.split_whitespace().skip(13).take(2).map(|field| field.parse::<f64>().unwrap_or(0.0));
    Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Runs a program on a separate core, if there is more than one.
fn on_core(core: usize, program: &Path) -> Command {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts nginx with one worker, which responds with 128 bytes, over HTTP and HTTPS.
fn nginx(folder: &Path) -> Result<(Nginx, Vec<GeneratorWay>), String> {
    let mut openssl = Command::new("openssl");
    openssl.args(words(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost",
    ));
    openssl.arg("-keyout").arg(folder.join("key.pem")).arg("-out").arg(folder.join("cert.pem"));
    let made = openssl.stderr(Stdio::null()).status();
    made.map_err(|error| format!("openssl cannot be run: {error}"))?;
    let [plain, tls] = [free_port()?, free_port()?];
    let here = folder.display();
    let conf = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {here}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n  http2 on;\n  keepalive_requests 1000000000;\n\
         \x20 ssl_certificate {here}/cert.pem;\n  ssl_certificate_key {here}/key.pem;\n  ssl_protocols TLSv1.3;\n\
         \x20 server {{\n    listen 127.0.0.1:{plain};\n    listen 127.0.0.1:{tls} ssl;\n\
         \x20   location / {{ default_type text/plain; return 200 '{}'; }}\n  }}\n}}\n",
        "x".repeat(128)
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, conf).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = on_core(0, Path::new("nginx"));
    command.arg("-c").arg(&file).arg("-p").arg(folder).stdin(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("nginx cannot be run: {error}"))?;
    let nginx = Nginx(child);
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, tls)).is_err() {
        if began.elapsed() > START_LIMIT {
            return Err("nginx does not listen; it has to be 1.25.1 or later".to_owned());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let mut ways = Vec::new();
    for (scheme, port) in [("http", plain), ("https", tls)] {
        let url = format!("{scheme}://127.0.0.1:{port}/");
        let over = if scheme == "https" { " over TLS" } else { "" };
        ways.push(GeneratorWay {
            name: format!("HTTP/1.1{over}, {CONNECTIONS} connections"),
            url: url.clone(),
            is_http2: false,
        });
        let name = format!("HTTP/2{over}, {SESSIONS} connections with {STREAMS} streams");
        ways.push(GeneratorWay { name, url, is_http2: true });
    }
    Ok((nginx, ways))
}

fn free_port() -> Result<u16, String> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no port: {error}"))?;
    listener.local_addr().map(|address| address.port()).map_err(|error| format!("no port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_each_generator_is_parsed() {
        let said = [
            r#"{"requests": 20, "measured_seconds": 2.5}"#,
            "  20 requests in 2.50s, 12.21MB read\nRequests/sec: 8\n",
            "finished in 2.50s, 8 req/s, 1KB/s\nrequests: 21 total, 21 started, 20 done, 20 succeeded, 1 failed\n",
            r#"{"summary": {"total": 2.5, "requestsPerSec": 8.0}}"#,
        ];
        for (generator, said) in all("vanward".into()).iter().zip(said) {
            assert_eq!((generator.read)(said), Some((20.0, 2.5)), "{}", generator.name);
            assert_eq!((generator.read)("nothing"), None);
        }
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![])), (2.0, 0.0));
        assert!(cpu_of_children().is_ok_and(|seconds| seconds >= 0.0));
    }
}
