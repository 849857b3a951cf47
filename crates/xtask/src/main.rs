//! `cargo xtask`: automation of the workspace. CI runs only `cargo xtask ci`, so its checks can be run locally.

/// Finds the workspace, its packages and text files.
mod workspace;
/// Rules of the project that no compiler checks.
mod tidy;
/// Temporary directory that is removed at the end.
mod scratch;
/// Step of a longer run: a named, timed command.
mod step;
/// All checks of CI, in order.
mod ci;
/// Repeatable measurements of the cost per request.
mod bench;
/// Runs the fuzz targets.
mod fuzz;
/// Load generators beside each other.
mod generators;
/// Pages of the kept results.
mod results;
/// What a release consists of.
mod package;
/// The program and tests of arm64 under an emulator.
mod arm64;
/// Tests of the proxy with programs of other projects.
mod strangers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automation of the Vanward workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask tidy                        structure, sizes and words, in a second
  cargo xtask ci                          all that has to pass before a commit
  cargo xtask ci --only clippy            one step of it
  cargo xtask bench                       microbenchmarks, then the demo
  cargo xtask generators                  `vanward load` beside wrk, h2load and oha
  cargo xtask fuzz --runs 1000000         every fuzz target, a million inputs each; or --seconds 60
  cargo xtask results                     the pages of docs/results anew
  cargo xtask arm64                       tests and a demo of arm64, under qemu-user
  cargo xtask package                     a tarball and a Debian package of a static program
  cargo xtask h2spec                      HTTP/2 conformance, over TLS and in the clear
  cargo xtask grpc                        gRPC and gRPC-Web clients and server, the proxy between
  cargo xtask http3                       HTTP/3 with aioquic, quic-go and Chromium
  cargo xtask qpack                       QPACK with ls-qpack, each decoding the other
  cargo xtask testssl --against nginx     what a scanner finds, here in another proxy
  cargo xtask acme                        certificates of a test authority
  cargo xtask traces                      traces, as OpenTelemetry's collector gets them
  cargo xtask logs                        the access log, as rsyslog and GoAccess read it
  cargo xtask fleet                       three instances with one configuration in etcd
  cargo xtask kubernetes                  gateways and Ingresses with a real API server
  cargo xtask discovery                   servers from SRV records, and from Consul
  cargo xtask prometheus                  metrics, rules and the board, as Prometheus sees them
  cargo xtask toxiproxy                   the chaos proxy, by the clients of Toxiproxy
  cargo xtask caches                      what is expected of caches, case by case
  cargo xtask pages                       the pages of lab and load generator, as axe-core judges them
  cargo xtask dashboard                   the dashboard, driven in Chromium
  cargo xtask deny                        licences and sources of the libraries
  cargo xtask book                        the pages as a book with search, in target/book
  cargo xtask examples                    resilience runs as tests, by go test and pytest
  cargo xtask adapt                       adapted configurations beside Traefik";

#[derive(Subcommand)]
enum Command {
    /// Check structure, sizes and words.
    Tidy,
    /// Run every check of CI and stop at the first that fails.
    Ci(ci::Args),
    /// Measure what a request costs.
    Bench,
    /// Measure load generators beside each other.
    Generators(generators::Args),
    /// Run the fuzz targets.
    Fuzz(fuzz::Args),
    /// Make the pages of docs/results anew from their results.
    Results,
    /// Make the packages of a release, or try them.
    Package(package::Args),
    /// Build for arm64, and run the tests of the pure crates and a demo under qemu-user.
    Arm64,
    /// Check HTTP/2 with the conformance suite h2spec.
    H2spec(strangers::Args),
    /// Check gRPC with the interoperability client and server of the Go stack.
    Grpc(strangers::GrpcArgs),
    /// Check HTTP/3 of the proxy, the origin and the load generator with aioquic.
    Http3,
    /// Check QPACK with the encoder and the decoder of ls-qpack.
    Qpack,
    /// Measure streams of the Go stack's servers with `vanward load`, and have a client of that stack count them
    Streams,
    /// Check TLS with the scanner testssl.sh.
    Testssl(strangers::Args),
    /// Check automatic certificates with the test authority Pebble.
    Acme,
    /// Check traces with the collector of OpenTelemetry.
    Traces,
    /// Check the access log with rsyslog and GoAccess.
    Logs,
    /// Check three instances with one configuration in etcd, whose nodes are killed and silent in turn.
    Fleet(strangers::FleetArgs),
    /// Check servers from SRV records with BIND.
    Discovery,
    /// Check gateways and Ingresses with the API server of Kubernetes, or with the conformance suite of the Gateway API.
    Kubernetes(strangers::KubernetesArgs),
    /// Check metrics, rules and the board with Prometheus, and what six faults look like.
    Prometheus,
    /// Check the chaos proxy with the clients of Toxiproxy.
    Toxiproxy,
    /// Check the cache with the suite http-cache-tests.
    Caches(strangers::Args),
    /// Check the pages of the lab and of the load generator with axe-core, for accessibility.
    Pages,
    /// Drive the dashboard in Chromium, and check it with axe-core.
    Dashboard(strangers::DashboardArgs),
    /// Check licences and sources of the libraries with cargo-deny.
    Deny,
    /// Make the book of the pages with mdBook, and check its links.
    Book,
    /// Run the examples of resilience runs as tests, with go test and pytest.
    Examples,
    /// Run Traefik and Vanward with adapted configurations beside each other.
    Adapt,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Ci(arguments) => ci::run(&arguments),
        Command::Bench => bench::run(),
        Command::Generators(arguments) => generators::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Results => results::run(),
        Command::Package(arguments) => package::run(&arguments),
        Command::Arm64 => arm64::run(),
        Command::H2spec(arguments) => strangers::run_h2spec(&arguments),
        Command::Streams => strangers::run_streams(),
        Command::Grpc(arguments) => strangers::run_grpc(&arguments),
        Command::Http3 => strangers::run_http3(),
        Command::Qpack => strangers::run_qpack(),
        Command::Testssl(arguments) => strangers::run_testssl(&arguments),
        Command::Acme => strangers::run_acme(),
        Command::Traces => strangers::run_traces(),
        Command::Logs => strangers::run_logs(),
        Command::Fleet(arguments) => strangers::run_fleet(&arguments),
        Command::Kubernetes(arguments) => strangers::run_kubernetes(&arguments),
        Command::Discovery => strangers::run_discovery(),
        Command::Prometheus => strangers::run_prometheus(),
        Command::Toxiproxy => strangers::run_toxiproxy(),
        Command::Caches(arguments) => strangers::run_caches(&arguments),
        Command::Pages => strangers::run_pages(),
        Command::Dashboard(arguments) => strangers::run_dashboard(&arguments),
        Command::Deny => strangers::run_deny(),
        Command::Book => strangers::run_book(),
        Command::Examples => strangers::run_examples(),
        Command::Adapt => strangers::run_adapt(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(format_args!("xtask: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line for the person who runs the command.
#[allow(clippy::print_stderr, reason = "this tool's only output is for a person")]
fn say(line: impl std::fmt::Display) {
    eprintln!("{line}");
}
