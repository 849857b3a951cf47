//! `vanward capture`: reads captured traffic from logs, HAR files and packets, and masks its secrets.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::capture::{Capture, CaptureError, LogReader, LogSource, Mask};
use rustls::crypto::aws_lc_rs;

use super::capture_live::{self, Captured, LiveFlags};

/// Longer files are rejected.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Mode of capture files: they have addresses of clients.
const OWNER_ONLY: u32 = 0o600;
/// Length of the key of masks.
const KEY_BYTES: usize = 32;

/// Reads captured traffic and writes it as a capture file.
///
/// Sources are access logs, HAR files of browsers, packets of plain HTTP/1 (pcap, pcapng), and the running proxy: `vanward
/// capture live` writes its next requests. `vanward adapt --prove
/// --capture` sends a capture's requests to the other proxy and to Vanward. Compressed logs come through a pipe, as in
/// `zcat access.log.gz | vanward capture nginx -`.
///
/// Secrets are replaced: passwords, tokens, values of cookies, secret fields and parameters, and bodies. Equal secrets
/// have equal replacements. Addresses of clients and paths stay. The first line of the file says what the source lacks for a
/// faithful replay.
///
/// The exit code is 0, or 1 if the source has no request that can be read.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CaptureArgs {
    /// Form of the source.
    #[arg(value_name = "SOURCE")]
    source: CaptureSource,

    /// File of the source; `-` is standard input. `live` has none
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Write the capture to this file, which only its owner can read.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file of --output.
    #[arg(long, requires = "output")]
    force: bool,

    /// Format of the log: nginx's `log_format`, or Apache's `LogFormat`.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Names of the request fields that HAProxy captures, in the order of its configuration.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    fields: Vec<String>,

    /// Read only connections to these ports from packets.
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,

    /// Keep the values of fields, cookies and parameters with this name.
    #[arg(long, value_name = "NAME")]
    keep: Vec<String>,

    /// File with the key of replacements, at least 32 bytes. Captures with the same key have the same replacements.
    /// Default: a random key.
    #[arg(long, value_name = "FILE", conflicts_with = "unmasked")]
    mask_key: Option<PathBuf>,

    /// har, pcap, live: keep bodies, with the secrets in them. The running proxy has those that it buffers.
    #[arg(long)]
    bodies: bool,

    /// Keep secrets, also those in bodies.
    #[arg(long, conflicts_with_all = ["keep", "bodies"])]
    unmasked: bool,

    /// Print what was read as JSON on standard output.
    #[arg(long, requires = "output")]
    json: bool,

    #[command(flatten)]
    live: LiveFlags,
}

const EXAMPLES: &str = "\
Examples:
  vanward capture nginx /var/log/nginx/access.log -o monday.capture
  vanward capture nginx access.log --format '$remote_addr $host \"$request\" $status' -o monday.capture
  vanward capture haproxy haproxy.log --fields Host,User-Agent -o monday.capture
  vanward capture caddy access.json -o monday.capture
  vanward capture har session.har --bodies -o session.capture
  vanward capture live --route shop --requests 5000 --for 10m -o shop.capture
  tcpdump -i any -w web.pcap tcp port 80       then: vanward capture pcap web.pcap --port 80 -o web.capture
  vanward adapt nginx /etc/nginx/nginx.conf --prove --capture monday.capture";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CaptureSource {
    /// Access log of nginx
    Nginx,
    /// Access log of Apache httpd
    Apache,
    /// Log of HAProxy (`option httplog`)
    Haproxy,
    /// Access log of Caddy (JSON)
    Caddy,
    /// Access log of Traefik (JSON or common)
    Traefik,
    /// Access log of Vanward (JSON or combined)
    Vanward,
    /// Recording of a browser
    Har,
    /// Packets, as tcpdump writes them (pcap, pcapng)
    Pcap,
    /// Next requests of the running proxy
    Live,
}

impl CaptureSource {
    fn log(self) -> Option<LogSource> {
        Some(match self {
            Self::Nginx => LogSource::Nginx,
            Self::Apache => LogSource::Apache,
            Self::Haproxy => LogSource::Haproxy,
            Self::Caddy => LogSource::Caddy,
            Self::Traefik => LogSource::Traefik,
            Self::Vanward => LogSource::Vanward,
            Self::Har | Self::Pcap | Self::Live => return None,
        })
    }
}

pub(crate) fn run(arguments: &CaptureArgs) -> ExitCode {
    let mask = match mask(arguments) {
        Ok(mask) => mask,
        Err(why) => return super::fail(super::FAILED, why),
    };
    let file = match (arguments.source, &arguments.file, arguments.live.given()) {
        (CaptureSource::Live, None, _) => return live(arguments, mask.as_ref()),
        (CaptureSource::Live, Some(_), _) => return super::fail(super::USAGE, "live reads no file"),
        (_, _, Some(flag)) => return super::fail(super::USAGE, format_args!("{flag} is for live")),
        (_, None, _) => return super::fail(super::USAGE, "a file is missing; - is standard input"),
        (_, Some(file), None) => file,
    };
    let shown = match file.as_path() {
        path if path == Path::new("-") => "standard input".to_owned(),
        path => path.display().to_string(),
    };
    let reader = match Reader::of(arguments) {
        Ok(reader) => reader,
        Err(why) => return super::fail(super::USAGE, why),
    };
    let bytes = match bytes_of(file) {
        Ok(bytes) => bytes,
        Err(why) => return super::fail(super::FAILED, format_args!("{shown}: {why}")),
    };
    let mut capture = match reader.read(&bytes) {
        Ok(capture) => capture,
        Err(error) => return super::fail(super::FAILED, format_args!("{shown}: {error}")),
    };
    if let Some(mask) = &mask {
        mask.apply(&mut capture);
    }
    let text = ::capture::write(&capture);
    let Some(output) = &arguments.output else {
        return printed(&text, &summary(&capture, &shown));
    };
    if let Err(why) = super::adapt::write_to(output, &text, arguments.force, OWNER_ONLY) {
        return super::fail(super::FAILED, format_args!("{}: {why}", output.display()));
    }
    if arguments.json {
        let object = serde_json::json!({
            "source": capture.source, "requests": capture.requests.len(), "skipped": capture.skipped.count,
            "first_skipped": capture.skipped.first, "masked": capture.is_masked, "lacks": capture.lacks,
        });
        return printed(&format!("{object:#}\n"), "");
    }
    printed("", &summary(&capture, &shown))
}

/// Captures the next requests of the running proxy.
fn live(arguments: &CaptureArgs, mask: Option<&Mask>) -> ExitCode {
    let refused = match (&arguments.format, &arguments.fields[..], &arguments.port[..]) {
        (Some(_), ..) => Some("--format is for access logs of nginx and Apache"),
        (_, [_, ..], _) => Some("--fields is for logs of HAProxy"),
        (.., [_, ..]) => Some("--port is for pcap"),
        (None, [], []) => None,
    };
    if let Some(refused) = refused {
        return super::fail(super::USAGE, refused);
    }
    let has_bodies = arguments.bodies || arguments.unmasked;
    let captured = match &arguments.output {
        None => capture_live::run(&arguments.live, mask, has_bodies, || Ok(std::io::stdout().lock())),
        Some(output) => capture_live::run(&arguments.live, mask, has_bodies, || {
            let failed = |why| super::fail(super::FAILED, format_args!("{}: {why}", output.display()));
            super::adapt::create(output, arguments.force, OWNER_ONLY).map_err(failed)
        }),
    };
    let Captured { requests, lost, lacks } = match captured {
        Ok(captured) => captured,
        Err(code) => return code,
    };
    if requests == 0 {
        return super::fail(super::FAILED, "no request came in this time, so the capture is empty");
    }
    if arguments.json {
        let is_masked = mask.is_some();
        let object = serde_json::json!({
            "source": "vanward", "requests": requests, "lost": lost, "masked": is_masked, "lacks": lacks,
        });
        return printed(&format!("{object:#}\n"), "");
    }
    let mut text = format!("the running proxy: {}", counted(requests as usize));
    told_of(&mut text, mask.is_some(), &lacks);
    printed("", &text)
}

/// Reads one form of sources.
enum Reader {
    Log(LogReader),
    Har,
    #[cfg(feature = "packets")]
    Packets(Vec<u16>),
}

impl Reader {
    fn of(arguments: &CaptureArgs) -> Result<Self, String> {
        let CaptureArgs { source, format, fields, port, bodies, .. } = arguments;
        let refused = |flag: &str, sources: &str| Err(format!("{flag} is for {sources}"));
        if !port.is_empty() && *source != CaptureSource::Pcap {
            return refused("--port", "pcap");
        }
        if let (CaptureSource::Pcap, Some(missing)) = (source, super::features::PACKETS.missing()) {
            return Err(missing);
        }
        if *bodies && source.log().is_some() {
            return Err("--bodies is for har, pcap and live: access logs have no bodies".to_owned());
        }
        let Some(log) = source.log() else {
            return match source {
                _ if format.is_some() => refused("--format", "access logs of nginx and Apache"),
                _ if !fields.is_empty() => refused("--fields", "logs of HAProxy"),
                #[cfg(feature = "packets")]
                CaptureSource::Pcap => Ok(Self::Packets(port.clone())),
                _ => Ok(Self::Har),
            };
        };
        let mut reader = LogReader::new(log);
        if let Some(format) = format {
            reader = reader.with_format(format).map_err(|error| format!("--format: {error}"))?;
        }
        let reader = reader.with_captured(fields).map_err(|error| format!("--fields: {error}"))?;
        Ok(Self::Log(reader))
    }

    fn read(&self, bytes: &[u8]) -> Result<Capture, CaptureError> {
        match self {
            Self::Log(reader) => reader.read(bytes),
            Self::Har => ::capture::har(bytes),
            #[cfg(feature = "packets")]
            Self::Packets(ports) => ::capture::pcap(bytes, ports),
        }
    }
}

/// The mask; none with `--unmasked`.
fn mask(arguments: &CaptureArgs) -> Result<Option<Mask>, String> {
    if arguments.unmasked {
        return Ok(None);
    }
    let mut key = [0; KEY_BYTES];
    match &arguments.mask_key {
        None => aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut key)
            .map_err(|_| "the system gives no random numbers for the key of masks".to_owned())?,
        Some(file) => {
            let failed = |why: String| format!("{}: {why}", file.display());
            let bytes = std::fs::read(file).map_err(|error| failed(format!("it cannot be read: {error}")))?;
            let bytes = bytes.first_chunk::<KEY_BYTES>();
            let short = || failed(format!("a key has at least {KEY_BYTES} bytes: openssl rand -out FILE 32"));
            key = *bytes.ok_or_else(short)?;
        }
    }
    Ok(Some(Mask::new(key).keeping(&arguments.keep).keeping_bodies(arguments.bodies)))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("it is longer than 1 GiB: split it".to_owned());
    }
    Ok(bytes)
}

fn summary(capture: &Capture, name: &str) -> String {
    let mut text = format!("{name}: {}", counted(capture.requests.len()));
    if let (count @ 1.., Some(first)) = (capture.skipped.count, &capture.skipped.first) {
        let _ = write!(text, ", {count} skipped ({first})");
    }
    told_of(&mut text, capture.is_masked, &capture.lacks);
    text
}

fn counted(requests: usize) -> String {
    match requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

fn told_of(text: &mut String, is_masked: bool, lacks: &[String]) {
    *text += if is_masked { "; secrets are masked\n" } else { "; secrets are NOT masked\n" };
    for lack in lacks {
        let _ = writeln!(text, "missing for a faithful replay: {lack}");
    }
}

/// Prints a text on standard output, and another on standard error.
fn printed(text: &str, aside: &str) -> ExitCode {
    let _ = std::io::stderr().write_all(aside.as_bytes());
    match super::demo::print(text) {
        Err(why) => super::fail(super::FAILED, why),
        Ok(()) => ExitCode::SUCCESS,
    }
}
