//! Tests of the proxy with programs of other projects: conformance suites, clients and servers, a scanner, log
//! readers, test runners and more.
//!
//! The tests of the crate `proxy` use curl and nginx.

/// A running program: its addresses, output and end.
pub(crate) mod process;
/// A request over plain HTTP.
mod http;
/// Programs of other projects: found on the system, or built in pinned versions.
pub(crate) mod programs;
/// The tested proxy: Vanward, or nginx for comparison.
mod subject;
/// HTTP/2 conformance with h2spec.
mod h2spec;
/// gRPC interoperability through the proxy.
mod grpc;
/// Streams of the load generator, with servers and a client of the Go stack.
mod streams;
/// TLS scan with testssl.sh.
mod testssl;
/// QPACK with ls-qpack.
mod qpack;
/// HTTP/3 with aioquic, quic-go and Chromium.
mod http3;
/// Compares the load generator over HTTP/3 with quic-go's client.
mod paced;
/// HTTP/3 to other servers.
mod http3_servers;
/// Automatic certificates with Pebble.
mod acme;
/// Traces with OpenTelemetry's collector.
mod traces;
/// The access log with rsyslog and GoAccess.
mod logs;
/// Several instances with etcd and Redis.
mod fleet;
/// Gateways and Ingresses with the API server of Kubernetes.
mod kubernetes;
/// The chart for Kubernetes with Helm.
mod helm;
/// BIND's name server.
mod named;
/// Service discovery with Consul and BIND.
mod discovery;
/// Metrics, rules and the board with Prometheus.
mod prometheus;
/// Chaos proxy with Toxiproxy's clients.
mod toxiproxy;
/// HTTP cache tests.
mod caches;
/// Accessibility of the report pages.
mod pages;
/// The dashboard in a browser.
mod dashboard;
/// Examples of resilience runs as tests.
mod examples;
/// Examples of live lists of addresses.
mod ip_lists;
/// Adapted configurations compared with Traefik.
mod adapt;
/// Adapted configurations of the corpus compared with their programs.
mod corpus;
/// Licences and sources of the libraries with cargo-deny.
mod deny;
/// The pages as a book with mdBook.
mod book;

use std::path::{Path, PathBuf};

pub(crate) use corpus::AdaptStrangerArgs as AdaptArgs;
pub(crate) use grpc::GrpcStrangerArgs as GrpcArgs;
pub(crate) use kubernetes::ClusterStrangerArgs as KubernetesArgs;
pub(crate) use programs::build_vanward;
pub(crate) use subject::Against;

use crate::fuzz;
use crate::say;
use crate::scratch::Scratch;
use crate::step::Steps;
use crate::workspace::Workspace;

/// Compares `vanward load --h3` with quic-go's client, in rounds of some seconds; does nothing without Go.
pub(crate) fn paced(
    workspace: &Workspace,
    vanward: &Path,
    extent: (u64, usize),
    folder: &Path,
) -> Result<(), String> {
    if let Err(missing) = programs::GO.find() {
        say(format_args!("HTTP/3 is left out: {missing}"));
        return Ok(());
    }
    let [quic] = programs::build_quic(workspace)?;
    paced::check(vanward, &quic, extent, folder)
}

/// Flags of `h2spec`, `testssl` and `caches`.
#[derive(clap::Args)]
pub(crate) struct StrangersArgs {
    /// The tested program; others show how significant a finding is, and that the check itself works.
    #[arg(long, value_enum, value_name = "PROXY", default_value = "vanward")]
    against: Against,
}

/// Flags of `dashboard`.
#[derive(clap::Args)]
pub(crate) struct DashboardArgs {
    /// Save screenshots of the page in this folder.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

pub(crate) fn run_h2spec(arguments: &StrangersArgs) -> Result<(), String> {
    alone(|workspace, steps| h2spec_step(workspace, arguments.against, steps))
}

pub(crate) fn run_testssl(arguments: &StrangersArgs) -> Result<(), String> {
    alone(|workspace, steps| testssl_step(workspace, arguments.against, steps))
}

pub(crate) fn run_caches(arguments: &StrangersArgs) -> Result<(), String> {
    alone(|workspace, steps| caches_step(workspace, arguments.against, steps))
}

pub(crate) fn run_toxiproxy() -> Result<(), String> {
    alone(toxiproxy_step)
}

pub(crate) fn run_qpack() -> Result<(), String> {
    alone(qpack_step)
}

pub(crate) fn run_http3() -> Result<(), String> {
    alone(http3_step)
}

pub(crate) fn run_acme() -> Result<(), String> {
    alone(acme_step)
}

pub(crate) fn run_traces() -> Result<(), String> {
    alone(traces_step)
}

pub(crate) fn run_logs() -> Result<(), String> {
    alone(logs_step)
}

#[derive(clap::Args)]
pub(crate) struct FleetArgs {
    /// Measure memory and traffic of many instances and many routes instead; requires root and takes minutes
    #[arg(long)]
    sizes: bool,
    /// Runs in a separate network namespace already
    #[arg(long, hide = true, requires = "sizes")]
    inside: bool,
}

pub(crate) fn run_fleet(arguments: &FleetArgs) -> Result<(), String> {
    if arguments.sizes { fleet::measure(&Workspace::find()?, arguments.inside) } else { alone(fleet_step) }
}

pub(crate) fn run_kubernetes(arguments: &KubernetesArgs) -> Result<(), String> {
    alone(|workspace, steps| kubernetes_step(workspace, arguments, steps))
}

pub(crate) fn run_helm() -> Result<(), String> {
    alone(helm_step)
}

pub(crate) fn run_discovery() -> Result<(), String> {
    alone(discovery_step)
}

pub(crate) fn run_prometheus() -> Result<(), String> {
    alone(prometheus_step)
}

pub(crate) fn run_streams() -> Result<(), String> {
    alone(streams_step)
}

pub(crate) fn run_pages() -> Result<(), String> {
    alone(pages_step)
}

pub(crate) fn run_dashboard(arguments: &DashboardArgs) -> Result<(), String> {
    alone(|workspace, steps| dashboard_step(workspace, arguments.pictures.as_deref(), steps))
}

pub(crate) fn run_examples() -> Result<(), String> {
    alone(examples_step)
}

pub(crate) fn run_adapt(arguments: &AdaptArgs) -> Result<(), String> {
    if arguments.is_plain() { alone(adapt_step) } else { corpus::run(&Workspace::find()?, arguments) }
}

pub(crate) fn run_deny() -> Result<(), String> {
    alone(deny_step)
}

pub(crate) fn run_book() -> Result<(), String> {
    alone(book_step)
}

pub(crate) fn run_grpc(arguments: &GrpcArgs) -> Result<(), String> {
    alone(|workspace, steps| grpc_step(workspace, arguments.through(), steps))
}

/// Runs all tests on Vanward, for CI. Elsewhere, tests whose program is not installed are left out.
pub(crate) fn run_all(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    if may_run("h2spec", &[programs::GO]) {
        h2spec_step(workspace, Against::Vanward, steps)?;
    }
    if may_run("grpc", &[programs::GO, programs::OPENSSL, programs::NODE, programs::NPM]) {
        grpc_step(workspace, grpc::Through::Proxy(Against::Vanward), steps)?;
    }
    if may_run("qpack", &[programs::PYTHON]) {
        qpack_step(workspace, steps)?;
    }
    if may_run("http3", &http3::NEEDED) {
        http3_step(workspace, steps)?;
    }
    let needs =
        [programs::GO, programs::CURL, programs::OPENSSL, programs::NAMED, programs::DIG, programs::REDIS];
    if may_run("acme", &needs) {
        acme_step(workspace, steps)?;
    }
    if may_run("streams", &[programs::GO, programs::OPENSSL]) {
        streams_step(workspace, steps)?;
    }
    if may_run("traces", &[programs::GO, programs::CURL]) {
        traces_step(workspace, steps)?;
    }
    if may_run("logs", &[programs::RSYSLOGD, programs::GOACCESS, programs::CURL, programs::OPENSSL]) {
        logs_step(workspace, steps)?;
    }
    if may_run("fleet", &fleet::NEEDED) {
        fleet_step(workspace, steps)?;
    }
    kubernetes_if_built(workspace, steps)?;
    if may_run("helm", &[programs::GO]) {
        helm_step(workspace, steps)?;
    }
    if may_run("discovery", &[programs::NAMED, programs::OPENSSL]) {
        discovery_step(workspace, steps)?;
    }
    if may_run("prometheus", &[programs::PROMETHEUS, programs::PROMTOOL, programs::OPENSSL, programs::TMUX]) {
        prometheus_step(workspace, steps)?;
    }
    if may_run("toxiproxy", &[programs::GO, programs::NODE, programs::NPM, programs::PYTHON]) {
        toxiproxy_step(workspace, steps)?;
    }
    if may_run("caches", &[programs::NODE, programs::NPM]) {
        caches_step(workspace, Against::Vanward, steps)?;
    }
    if may_run("pages", &[programs::NODE, programs::NPM, programs::CHROMIUM]) {
        pages_step(workspace, steps)?;
    }
    if may_run("dashboard", &[programs::NODE, programs::NPM, programs::CHROMIUM]) {
        dashboard_step(workspace, None, steps)?;
    }
    if may_run("examples", &[programs::GO, programs::PYTHON]) {
        examples_step(workspace, steps)?;
    }
    adapt_steps(workspace, steps)?;
    if may_run("deny", &[programs::PYTHON]) {
        deny_step(workspace, steps)?;
    }
    if may_run("book", &[programs::PYTHON]) {
        book_step(workspace, steps)?;
    }
    if may_run("testssl", &[programs::TESTSSL]) {
        testssl_step(workspace, Against::Vanward, steps)?;
    }
    Ok(())
}

fn adapt_steps(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    if may_run("adapt", &[programs::PYTHON]) {
        adapt_step(workspace, steps)?;
    }
    if may_run("corpus", &corpus::NEEDED) {
        corpus_step(workspace, steps)?;
    }
    Ok(())
}

fn may_run(name: &str, needed: &[programs::Needed]) -> bool {
    let on_ci = std::env::var_os("CI").is_some();
    let missing = needed.iter().find_map(|needed| needed.find().err());
    match missing {
        Some(missing) if !on_ci => {
            say(format_args!("\n=== {name}: left out: {missing}"));
            false
        }
        // On CI the check itself reports what is missing, and fails.
        _ => true,
    }
}

fn alone(check: impl FnOnce(&Workspace, &mut Steps) -> Result<(), String>) -> Result<(), String> {
    let mut steps = Steps::default();
    check(&Workspace::find()?, &mut steps)
}

fn h2spec_step(workspace: &Workspace, against: Against, steps: &mut Steps) -> Result<(), String> {
    let heading = format!("HTTP/2 conformance of {against}, over TLS and in the clear");
    steps.run("h2spec", &heading, || h2spec::check(workspace, &Scratch::new("h2spec")?, against))
}

fn grpc_step(workspace: &Workspace, through: grpc::Through, steps: &mut Steps) -> Result<(), String> {
    let heading = format!("the Go stack's interoperability cases and clients of gRPC-Web, {through}");
    steps.run("grpc", &heading, || grpc::check(workspace, &Scratch::new("grpc")?, through))
}

fn testssl_step(workspace: &Workspace, against: Against, steps: &mut Steps) -> Result<(), String> {
    let heading = format!("TLS of {against}, as a scanner sees it; takes about a minute");
    steps.run("testssl", &heading, || testssl::check(workspace, &Scratch::new("testssl")?, against))
}

fn qpack_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "QPACK with ls-qpack: each encodes what the other decodes";
    steps.run("qpack", heading, || qpack::check(workspace, Scratch::new("qpack")?.path()))
}

fn http3_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "HTTP/3 with aioquic, quic-go and Chromium";
    steps.run("http3", heading, || http3::check(workspace, &Scratch::new("http3")?))
}

fn acme_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "certificates of the test authority Pebble";
    steps.run("acme", heading, || acme::check(workspace, &Scratch::new("acme")?))
}

fn traces_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "traces, as OpenTelemetry's collector receives them";
    steps.run("traces", heading, || traces::check(workspace, &Scratch::new("traces")?))
}

fn logs_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "the access log, as rsyslog and GoAccess read it";
    steps.run("logs", heading, || logs::check(workspace, &Scratch::new("logs")?))
}

fn fleet_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading =
        "three instances with three nodes of etcd and with Redis, which are killed, silent and slow in turn";
    steps.run("fleet", heading, || fleet::check(workspace, &Scratch::new("fleet")?))
}

/// Building the API server takes minutes, so the check runs only if it is built already.
fn kubernetes_if_built(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    match programs::apiserver(workspace)? {
        Some(_) if may_run("kubernetes", &kubernetes::NEEDED) => {
            kubernetes_step(workspace, &KubernetesArgs::default(), steps)?;
        }
        Some(_) => {}
        None => say(
            "\n=== kubernetes: left out: the API server is not built, which takes minutes; `cargo xtask kubernetes` builds it",
        ),
    }
    Ok(())
}

fn kubernetes_step(
    workspace: &Workspace,
    arguments: &KubernetesArgs,
    steps: &mut Steps,
) -> Result<(), String> {
    let heading = "gateways and Ingresses with the API server of Kubernetes, which is killed, and etcd";
    steps.run("kubernetes", heading, || kubernetes::check(workspace, &Scratch::new("kubernetes")?, arguments))
}

fn helm_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "the chart for Kubernetes, as Helm checks and renders it";
    steps.run("helm", heading, || helm::check(workspace, &Scratch::new("helm")?))
}

fn discovery_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "servers from SRV records of BIND, and from Consul where it is installed";
    steps.run("discovery", heading, || discovery::check(workspace, &Scratch::new("discovery")?))
}

fn prometheus_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "metrics, rules and the board, as Prometheus sees them, and six faults";
    steps.run("prometheus", heading, || prometheus::check(workspace, &Scratch::new("prometheus")?))
}

fn toxiproxy_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "the chaos proxy with Toxiproxy's command line and its clients for Go, Node.js and Python";
    steps.run("toxiproxy", heading, || toxiproxy::check(workspace, &Scratch::new("toxiproxy")?))
}

fn caches_step(workspace: &Workspace, against: Against, steps: &mut Steps) -> Result<(), String> {
    let heading = format!("requirements for caches, tested on {against}");
    steps.run("caches", &heading, || caches::check(workspace, &Scratch::new("caches")?, against))
}

fn streams_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "streams of the load generator, with servers and a client of the Go stack";
    steps.run("streams", heading, || streams::check(workspace, &Scratch::new("streams")?))
}

fn pages_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "the pages of the lab and of the load generator, as axe-core judges them in Chromium";
    steps.run("pages", heading, || pages::check(workspace, &Scratch::new("pages")?))
}

fn dashboard_step(workspace: &Workspace, pictures: Option<&Path>, steps: &mut Steps) -> Result<(), String> {
    let heading = "the dashboard, driven in Chromium and judged by axe-core";
    steps.run("dashboard", heading, || dashboard::check(workspace, &Scratch::new("dashboard")?, pictures))
}

fn deny_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "licences and sources of the libraries, judged by cargo-deny";
    steps.run("deny", heading, || deny::check(workspace, Scratch::new("deny")?.path()))
}

fn book_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "the pages as a book, by mdBook, and its links";
    steps.run("book", heading, || book::check(workspace, Scratch::new("book")?.path()))
}

fn examples_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading =
        "the examples of resilience runs as tests, by go test and pytest, and of live lists of addresses";
    steps.run("examples", heading, || examples::check(workspace, &Scratch::new("examples")?))
}

fn adapt_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "adapted configurations beside Traefik";
    steps.run("adapt", heading, || adapt::check(workspace, &Scratch::new("adapt")?))
}

/// Proves a tenth of the corpus: the next one with each commit.
fn corpus_step(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let heading = "a tenth of the corpus of adapted configurations beside their programs";
    let commits = fuzz::commits(workspace).unwrap_or_default();
    steps.run("corpus", heading, || corpus::check(workspace, commits))
}
