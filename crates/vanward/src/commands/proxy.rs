//! `vanward proxy`: builds a configuration from flags and runs a proxy.

/// The text of a file for the flags.
mod text;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ::control::Setup;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use config::{Auth, Bandwidth, ListenAddress, Mistake, PROFILES, Profile, Server};
use route::{AllowedOrigin, Users};
use shape::{Delay, Fault, Occasion};

/// Runs a reverse proxy, or serves files, from flags.
///
/// The access log is off by default. SIGTERM or Ctrl-C drains: running requests finish; a second one stops at once.
/// SIGUSR1 reopens the log. SIGUSR2 upgrades to the installed program without losing a request.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArgs {
    /// Address to listen on: `127.0.0.1:8080`, `[::]:8080` for IPv6, `*:8080` or `:8080` for both families. Port 0 lets
    /// the system choose. Can be repeated.
    #[arg(long, value_name = "ADDR", required = true)]
    from: Vec<ListenAddress>,

    /// Server to forward to, `http://HOST[:PORT]` or `https://HOST[:PORT]`. If repeated, servers take turns.
    #[arg(long, value_name = "URL", required_unless_present = "files")]
    to: Vec<Server>,

    /// Serve the files of this directory, instead of forwarding: `/` is its index.html.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["to", "cache", "compress"], value_parser = directory)]
    files: Option<PathBuf>,

    /// Serve HTTPS with this certificate, in PEM, followed by the intermediate certificates.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM, without a passphrase.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Serve HTTPS with a new self-signed certificate, for tests: clients reject it unless configured to accept it.
    #[arg(long, conflicts_with_all = ["cert", "key"])]
    self_signed: bool,

    /// Serve HTTP/3 as well, on the same UDP port: browsers find it through `Alt-Svc`. On by default with `--self-signed`.
    #[arg(long, overrides_with = "no_http3")]
    http3: bool,

    /// Serve no HTTP/3.
    #[arg(long, overrides_with = "http3")]
    no_http3: bool,

    #[command(flatten)]
    automatic: super::automatic::Flags,

    /// Cache responses in this much memory, as a shared cache (RFC 9111).
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    cache: Option<u64>,

    /// Compress responses for clients that accept it: gzip, Brotli or Zstandard. Streams are flushed at once.
    #[arg(long)]
    compress: bool,

    /// Require a name and a password of this file, as `htpasswd -B` writes it.
    #[arg(long, value_name = "FILE", value_parser = users)]
    auth: Option<Auth>,

    /// Let pages of this origin read responses (CORS), such as `https://app.example.com`, or `*`. Can be repeated.
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors: Vec<AllowedOrigin>,

    /// Worker threads [default: one per CPU core that the process may use]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Write the access log to this file, or to standard output with `-`.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Format of the access log.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "extended", requires = "log")]
    log_format: ProxyLogFormat,

    /// Limit the rate of responses, all together and shared fairly: `5KB/s`, `10Mbit/s`. `burst 64KB` after it makes
    /// a token bucket; `per client`, `per client/24`, `per connection` or `per request` gives each its own limit. Can
    /// be repeated: all limits apply.
    #[arg(long, value_name = "RATE", value_parser = config::bandwidth)]
    rate: Vec<Bandwidth>,

    /// Limit the rate of request bodies, in the same way.
    #[arg(long, value_name = "RATE", value_parser = config::bandwidth)]
    upload_rate: Vec<Bandwidth>,

    /// Delay each request: `50ms`, `2s±100ms`, `50ms±10ms normal`, `50ms±10ms pareto`.
    #[arg(long, value_name = "DELAY", value_parser = config::delay)]
    delay: Option<Delay>,

    /// Emulate this kind of link to clients, with its rate, round-trip time and packet loss.
    #[arg(long, value_name = "NAME", value_parser = profiles())]
    profile: Option<&'static Profile>,

    /// Never reject requests because servers are slow. By default, excess requests get 503 while servers are overloaded.
    #[arg(long)]
    no_shed: bool,

    /// Inject a fault, `[PROBABILITY:]FAULT`: `1%:503`, `delay 2s`, `5%:cut 10KB`. Can be repeated.
    #[arg(long, value_name = "FAULT", value_parser = config::injection)]
    fail: Vec<(Occasion, Fault)>,

    /// Seed of random decisions: the same seed and requests give the same faults.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "fail")]
    seed: u64,

    #[command(flatten)]
    operation: super::Operation,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ProxyLogFormat {
    /// The Combined Log Format of Apache httpd, then all other fields as `name=value`.
    Extended,
    /// The Combined Log Format without additions.
    Combined,
    /// A JSON object per line, with timings and causes of failures.
    Json,
}

const EXAMPLES: &str = "\
Examples:
  vanward proxy --from 127.0.0.1:8080 --to http://127.0.0.1:9000
  vanward proxy --from 0.0.0.0:80 --to http://10.0.0.1:8000 --to http://10.0.0.2:8000 --log -
  vanward proxy --from 0.0.0.0:443 --cert site.pem --key site.key --to http://127.0.0.1:9000
  vanward proxy --from :443 --from :80 --domain www.example.com --to http://127.0.0.1:9000 --http3
  vanward proxy --from 127.0.0.1:8443 --self-signed --to https://www.example.com
  vanward proxy --from 127.0.0.1:8080 --to http://127.0.0.1:9000 --rate 5KB/s --delay 2s±100ms
  vanward proxy --from 127.0.0.1:8080 --to http://127.0.0.1:9000 --profile lte
  vanward proxy --from 0.0.0.0:80 --to http://127.0.0.1:9000 --cache 256M --compress
  vanward proxy --from 127.0.0.1:8080 --files ./public
  vanward proxy --from 127.0.0.1:8080 --files ./public --auth users --cors https://app.example.com
  vanward proxy --from 127.0.0.1:8080 --to http://127.0.0.1:9000 --fail 1%:503 --fail '5%:cut 10KB'
  vanward proxy --from [::1]:8080 --to http://app.internal:9000 --workers 2 --log access.json --log-format json";

pub(crate) fn run(arguments: &ProxyArgs) -> ExitCode {
    let text = match text::text(arguments) {
        Ok(text) => text,
        Err(why) => return super::fail(super::BAD_CONFIGURATION, why),
    };
    let config = match config::parse(&text, "the flags") {
        Ok(config) => config,
        Err(mistakes) => {
            let mistakes: Vec<String> = mistakes.iter().map(Mistake::sentence).collect();
            return super::fail(super::BAD_CONFIGURATION, mistakes.join("\nvanward: "));
        }
    };
    let problems: BTreeSet<String> = super::check::problems(&config)
        .into_iter()
        .filter(|(_, problem)| !problem.is_usable())
        .map(|(_, problem)| problem.to_string())
        .collect();
    if !problems.is_empty() {
        let problems: Vec<String> = problems.into_iter().collect();
        return super::fail(super::BAD_CONFIGURATION, problems.join("\nvanward: "));
    }
    match super::inheritance() {
        Ok(inheritance) => {
            super::serve(config, Setup { inheritance, ..Setup::default() }, &arguments.operation)
        }
        Err(code) => code,
    }
}

fn users(text: &str) -> Result<Auth, String> {
    let file = PathBuf::from(text);
    let written = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let users = Users::parse(&written).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    })?;
    if users.is_empty() {
        return Err("it has no users; `htpasswd -B -c FILE NAME` adds one".to_owned());
    }
    Ok(Auth { realm: "Restricted".to_owned(), file, users: Arc::new(users) })
}

fn origin(text: &str) -> Result<AllowedOrigin, String> {
    let why = |error: route::OriginError| {
        format!("it {}; write an origin as browsers do, such as https://app.example.com, or *", error.why())
    };
    text.parse().map_err(why)
}

/// A parser for names of links, with their descriptions.
fn profiles() -> impl TypedValueParser<Value = &'static Profile> {
    let names = PROFILES.iter().map(|profile| PossibleValue::new(profile.name).help(profile.doc));
    PossibleValuesParser::new(names)
        .try_map(|name| Profile::named(&name).ok_or_else(|| format!("no link is named {name}")))
}

/// Parses the path of an existing directory.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err("it is not a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn cache_size(text: &str) -> Result<u64, String> {
    match config::size(text) {
        Ok(bytes) if bytes >= CACHE_BYTES_MIN => Ok(bytes),
        Ok(_) => Err("a cache has at least 1MiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Minimum size of the cache, equal to that of `memory` in [cache].
const CACHE_BYTES_MIN: u64 = 1 << 20;
