//! `vanward chaos`: flags, the line with the API's address, and signals. The crate `chaos` has the proxies and the API.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use ::chaos::{Chaos, ChaosOptions, Config, Mistake};
use telemetry::message;
use tokio::signal::unix::{SignalKind, signal};

/// Runs TCP proxies with faults (latency, rate limits, cuts, resets and more), controlled through an HTTP API.
///
/// The API is that of Toxiproxy, on its usual port, so its client libraries and command line work unchanged. Changes
/// of toxics close no connection. Anyone who can reach the API can open ports and connections on this machine, so
/// keep it on loopback. SIGINT and SIGTERM end it, with all its connections.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChaosArgs {
    /// Address of the API; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8474)))]
    listen: SocketAddr,

    /// Proxies and toxics to start with: a JSON list of objects as for POST /proxies, like Toxiproxy's -config.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Seed of random decisions: the same seed and connections give the same faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    messages: super::MessageFlags,
}

const EXAMPLES: &str = r#"Examples:
  vanward chaos                              the API on 127.0.0.1:8474, no proxies yet
  vanward chaos --listen 127.0.0.1:0 --seed 7
  vanward chaos --config chaos.json          with the proxies of a file

A configuration file, with a toxic:
  [{"name": "redis", "listen": "127.0.0.1:26379", "upstream": "127.0.0.1:6379",
    "toxics": [{"type": "latency", "attributes": {"latency": 200, "jitter": 50}}]},
   {"name": "web", "listen": "127.0.0.1:18080", "upstream": "127.0.0.1:8080", "enabled": false}]
With a mistake in the file, the program exits with 78.

A proxy from port 26379 to a server on 6379, and then a delay of 200 ± 50 ms for its responses:
  curl http://127.0.0.1:8474/proxies --json \
    '{"name": "redis", "listen": "127.0.0.1:26379", "upstream": "127.0.0.1:6379"}'
  curl http://127.0.0.1:8474/proxies/redis/toxics --json \
    '{"type": "latency", "attributes": {"latency": 200, "jitter": 50}}'
  curl http://127.0.0.1:8474/proxies         lists proxies and toxics
  curl http://127.0.0.1:8474/metrics         traffic counters, for Prometheus
  curl -X POST http://127.0.0.1:8474/reset   removes all toxics, enables all proxies

Toxics and their attributes (stream: downstream by default, or upstream; toxicity: share of connections):
  latency       latency, jitter (ms)         slicer        average_size, size_variation, delay (µs)
  bandwidth     rate (kB/s)                  limit_data    bytes until it is closed
  slow_close    delay (ms)                   reset_data    bytes until it is reset
  slow_start    delay (ms)                   reset_peer    timeout (ms) after the first byte
  timeout       timeout (ms)                 reset_after   timeout (ms) after its start
  half_open     bytes until it blocks        corrupt       every: one byte in so many changes
  packet_loss   percent, delay (ms) until a lost packet is sent again"#;

pub(crate) fn run(arguments: &ChaosArgs) -> ExitCode {
    arguments.messages.speak();
    let config = match arguments.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load) {
        Ok(config) => config,
        Err(mistakes) => return mistaken(&mistakes, arguments.messages.are_json()),
    };
    let running =
        match ::chaos::start(ChaosOptions { listen: arguments.listen, seed: arguments.seed, config }) {
            Ok(running) => running,
            Err(error) => return super::not_run(&error.to_string()),
        };
    if running.address().ip().is_unspecified() {
        message::warn(&format!(
            "the API listens on every address of this machine ({}): any client that reaches it can open ports and connections here; \
             --listen 127.0.0.1:{} keeps it on loopback",
            running.address(),
            running.address().port()
        ));
    }
    match wait(&running, arguments.seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::not_run(&format!("cannot wait for signals: {error}")),
    }
}

fn mistaken(mistakes: &[Mistake], is_json: bool) -> ExitCode {
    if is_json {
        mistakes.iter().for_each(|mistake| message::error(&mistake.to_string()));
    } else {
        let lines: String =
            mistakes.iter().map(|mistake| format!("{mistake}\n{}", mistake.shown())).collect();
        // The exit code says the same if standard error is closed.
        let _ = io::stderr().lock().write_all(lines.as_bytes());
    }
    ExitCode::from(super::BAD_CONFIGURATION)
}

fn wait(running: &Chaos, seed: u64) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Installed before the address is printed: a signal right after that must be handled.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        message::info(&format!("chaos: listening on {}, seed {seed}", running.address()));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}
