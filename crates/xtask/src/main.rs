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
/// Instructions of a request in twenty cases.
mod cost;
/// The order of functions in the program.
mod functions;
/// Runs the fuzz targets.
mod fuzz;
/// Compares load generators.
mod generators;
/// Pages of the stored results.
mod results;
/// Packages of a release.
mod package;
/// The arm64 program and tests under an emulator.
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
    command: XtaskCommand,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask tidy                        structure, sizes and words, in a second
  cargo xtask ci                          all checks that must pass before a commit
  cargo xtask ci --only clippy            one step of it
  cargo xtask bench                       microbenchmarks, changes of large configurations, the demo
  cargo xtask bench --edits               only the cost of changes of large configurations
  cargo xtask bench --fastcgi             php-fpm behind Vanward, nginx and Caddy
  cargo xtask cost                        instructions of a request in twenty cases
  cargo xtask cost --bisect log           the commit since which a case is dearer
  cargo xtask generators                  `vanward load` beside wrk, h2load and oha
  cargo xtask fuzz --runs 1000000         every fuzz target, a million inputs each; or --seconds 60
  cargo xtask results                     rebuild the pages of docs/results
  cargo xtask arm64                       tests and a demo for arm64, under qemu-user
  cargo xtask package                     a tarball and a Debian package of a static program
  cargo xtask h2spec                      HTTP/2 conformance, over TLS and in the clear
  cargo xtask grpc                        gRPC and gRPC-Web clients and server through the proxy
  cargo xtask http3                       HTTP/3 with aioquic, quic-go and Chromium
  cargo xtask qpack                       QPACK with ls-qpack, each decoding the other
  cargo xtask testssl --against nginx     findings of a TLS scanner, here in another proxy
  cargo xtask acme                        certificates of a test authority
  cargo xtask traces                      traces, as OpenTelemetry's collector receives them
  cargo xtask logs                        the access log, as rsyslog and GoAccess read it
  cargo xtask fleet                       three instances with one configuration in etcd
  cargo xtask kubernetes                  gateways and Ingresses with a real API server
  cargo xtask discovery                   servers from SRV records, and from Consul
  cargo xtask prometheus                  metrics, rules and the board, as Prometheus sees them
  cargo xtask toxiproxy                   the chaos proxy with the clients of Toxiproxy
  cargo xtask caches                      the requirements for caches, case by case
  cargo xtask pages                       the pages of lab and load generator, as axe-core judges them
  cargo xtask dashboard                   the dashboard, driven in Chromium
  cargo xtask deny                        licences and sources of the libraries
  cargo xtask book                        the pages as a book with search, in target/book
  cargo xtask examples                    resilience runs as tests, by go test and pytest; live lists of addresses
  cargo xtask adapt                       adapted configurations beside Traefik
  cargo xtask adapt --prove               the corpus of configurations beside nginx, HAProxy, Caddy and Varnish
  cargo xtask adapt --prove --tenth 3     a tenth of it, as CI has it in turn
  cargo xtask adapt --planted             mistakes planted in `adapt`, which the corpus finds";

#[derive(Subcommand)]
enum XtaskCommand {
    /// Check structure, sizes and words.
    Tidy,
    /// Run every check of CI and stop at the first that fails.
    Ci(ci::CiArgs),
    /// Measure the cost of a request, and of changes of large configurations.
    Bench(bench::BenchArgs),
    /// Count the instructions of a request in twenty cases, beside those of the last commit.
    Cost(cost::CostArgs),
    /// Compare load generators.
    Generators(generators::GeneratorsArgs),
    /// Write the order of functions in the program, by what a start and requests call.
    Functions(functions::Args),
    /// Run the fuzz targets.
    Fuzz(fuzz::FuzzArgs),
    /// Render the pages of docs/results from their results.
    Results,
    /// Build the packages of a release, or test them.
    Package(package::PackageArgs),
    /// Build for arm64, and run the tests of the pure crates and a demo under qemu-user.
    Arm64,
    /// Check HTTP/2 with the conformance suite h2spec.
    H2spec(strangers::StrangersArgs),
    /// Check gRPC with the interoperability client and server of the Go stack.
    Grpc(strangers::GrpcArgs),
    /// Check HTTP/3 of the proxy, the origin and the load generator with aioquic.
    Http3,
    /// Check QPACK with the encoder and the decoder of ls-qpack.
    Qpack,
    /// Measure streams of the Go stack's servers with `vanward load`, and with a client of that stack
    Streams,
    /// Check TLS with the scanner testssl.sh.
    Testssl(strangers::StrangersArgs),
    /// Check automatic certificates with the test authority Pebble.
    Acme,
    /// Check traces with the collector of OpenTelemetry.
    Traces,
    /// Check the access log with rsyslog and GoAccess.
    Logs,
    /// Check three instances with one configuration in etcd, whose nodes are killed or stopped in turn.
    Fleet(strangers::FleetArgs),
    /// Check servers from SRV records with BIND.
    Discovery,
    /// Check gateways and Ingresses with the API server of Kubernetes, or with the conformance suite of the Gateway API.
    Kubernetes(strangers::KubernetesArgs),
    /// Check the chart for Kubernetes with Helm.
    Helm,
    /// Check metrics, rules and the board with Prometheus, and how six faults appear.
    Prometheus,
    /// Check the chaos proxy with the clients of Toxiproxy.
    Toxiproxy,
    /// Check the cache with the suite http-cache-tests.
    Caches(strangers::StrangersArgs),
    /// Check the pages of the lab and of the load generator with axe-core, for accessibility.
    Pages,
    /// Drive the dashboard in Chromium, and check it with axe-core.
    Dashboard(strangers::DashboardArgs),
    /// Check licences and sources of the libraries with cargo-deny.
    Deny,
    /// Build the book of the pages with mdBook, and check its links.
    Book,
    /// Run the examples: resilience runs as tests, with go test and pytest, and live lists of addresses.
    Examples,
    /// Compare Traefik and Vanward with adapted configurations, or other proxies with the corpus.
    Adapt(strangers::AdaptArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        XtaskCommand::Tidy => tidy::run(),
        XtaskCommand::Ci(arguments) => ci::run(&arguments),
        XtaskCommand::Bench(arguments) => bench::run(&arguments),
        XtaskCommand::Cost(arguments) => cost::run(&arguments),
        XtaskCommand::Generators(arguments) => generators::run(&arguments),
        XtaskCommand::Functions(arguments) => functions::run(&arguments),
        XtaskCommand::Fuzz(arguments) => fuzz::run(&arguments),
        XtaskCommand::Results => results::run(),
        XtaskCommand::Package(arguments) => package::run(&arguments),
        XtaskCommand::Arm64 => arm64::run(),
        XtaskCommand::H2spec(arguments) => strangers::run_h2spec(&arguments),
        XtaskCommand::Streams => strangers::run_streams(),
        XtaskCommand::Grpc(arguments) => strangers::run_grpc(&arguments),
        XtaskCommand::Http3 => strangers::run_http3(),
        XtaskCommand::Qpack => strangers::run_qpack(),
        XtaskCommand::Testssl(arguments) => strangers::run_testssl(&arguments),
        XtaskCommand::Acme => strangers::run_acme(),
        XtaskCommand::Traces => strangers::run_traces(),
        XtaskCommand::Logs => strangers::run_logs(),
        XtaskCommand::Fleet(arguments) => strangers::run_fleet(&arguments),
        XtaskCommand::Kubernetes(arguments) => strangers::run_kubernetes(&arguments),
        XtaskCommand::Helm => strangers::run_helm(),
        XtaskCommand::Discovery => strangers::run_discovery(),
        XtaskCommand::Prometheus => strangers::run_prometheus(),
        XtaskCommand::Toxiproxy => strangers::run_toxiproxy(),
        XtaskCommand::Caches(arguments) => strangers::run_caches(&arguments),
        XtaskCommand::Pages => strangers::run_pages(),
        XtaskCommand::Dashboard(arguments) => strangers::run_dashboard(&arguments),
        XtaskCommand::Deny => strangers::run_deny(),
        XtaskCommand::Book => strangers::run_book(),
        XtaskCommand::Examples => strangers::run_examples(),
        XtaskCommand::Adapt(arguments) => strangers::run_adapt(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(format_args!("xtask: {problem}"));
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "this tool's only output is for a person")]
fn say(line: impl std::fmt::Display) {
    eprintln!("{line}");
}
