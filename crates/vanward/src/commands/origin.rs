//! `vanward origin`: flags, the line with the listening addresses, and signals. The crate `origin` is the server.

use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use origin::OriginCertificate;
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  vanward origin                                      on 127.0.0.1:9000; GET / lists the pages
  vanward origin --listen 127.0.0.1:9000 --listen 127.0.0.1:9001
  vanward origin --listen 127.0.0.1:0                 the kernel chooses a port
  vanward origin --self-signed                        https, for curl --insecure
  vanward origin --self-signed --h3                   also HTTP/3, for vanward load --h3 --insecure
  curl http://127.0.0.1:9000/echo                     shows the request as it arrived
  curl --http2-prior-knowledge http://127.0.0.1:9000/echo
  curl http://127.0.0.1:9000/stats                    shows counters

It prints a line `listening http://ADDRESS` (or https) for each address when it accepts connections.
SIGINT and SIGTERM end it.";

/// Runs a test server: pages of known size, all kinds of framing, faults, counters; HTTP/1.1 and HTTP/2 with or
/// without TLS, and HTTP/3.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OriginArgs {
    /// Address to listen on. Can be repeated. Port 0 lets the kernel choose.
    #[arg(long, value_name = "ADDRESS", default_values_t = [SocketAddr::from((Ipv4Addr::LOCALHOST, 9000))])]
    listen: Vec<SocketAddr>,
    /// Number of threads [default: one per CPU core that the process may use].
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Use TLS on every address, with the certificate of this PEM file, followed by its chain.
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "self_signed")]
    cert: Option<PathBuf>,
    /// Private key of --cert, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Use TLS on every address, with a new self-signed certificate.
    #[arg(long)]
    self_signed: bool,
    /// Use TLS only on this address. Can be repeated.
    #[arg(long, value_name = "ADDRESS")]
    listen_tls: Vec<SocketAddr>,
    /// Accept HTTP/3 as well, on the same UDP port, wherever TLS is accepted.
    #[arg(long)]
    h3: bool,
    /// Only cipher suite, by its IANA name: TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "NAME")]
    cipher: Option<String>,
    /// Send `Connection: keep-alive` in HTTP/1.1 responses too, for proxies that otherwise close connections
    #[arg(long)]
    say_keep_alive: bool,
    /// Process at most this number of delayed requests (/delay/50ms, ?delay=50ms) at once; others wait. A request is
    /// processed even if its client has gone, as in a server with a thread pool
    #[arg(long, value_name = "N")]
    capacity: Option<NonZeroUsize>,
    /// Print nothing on standard output.
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &OriginArgs) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, format_args!("origin: {error}")),
    }
}

fn serve(arguments: &OriginArgs) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Installed before the address is printed: a signal right after that must be handled.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let certificate = match (&arguments.cert, &arguments.key) {
            (Some(certificate), Some(key)) => {
                Some(OriginCertificate::Files { certificate: certificate.clone(), key: key.clone() })
            }
            _ => arguments.self_signed.then_some(OriginCertificate::SelfSigned),
        };
        let everywhere = certificate.is_some() && arguments.listen_tls.is_empty();
        let options = origin::OriginOptions {
            listen: arguments.listen.clone(),
            workers: arguments.workers,
            certificate,
            listen_tls: arguments.listen_tls.clone(),
            http3: arguments.h3,
            cipher: arguments.cipher.clone(),
            says_keep_alive: arguments.say_keep_alive,
            capacity: arguments.capacity,
        };
        let running = origin::start(options)?;
        if !arguments.quiet {
            let schemes = (0..)
                .map(|place| if everywhere || place >= arguments.listen.len() { "https" } else { "http" });
            announce(schemes.zip(running.addresses()))?;
        }
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        running.stop();
        Ok(())
    })
}

fn announce<'a>(addresses: impl Iterator<Item = (&'static str, &'a SocketAddr)>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (scheme, address) in addresses {
        writeln!(out, "listening {scheme}://{address}")?;
    }
    out.flush()?;
    if out.is_terminal() {
        writeln!(out, "GET / lists what it serves. Ctrl-C ends it.")?;
    }
    Ok(())
}
