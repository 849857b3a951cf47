//! `vanward run`: runs a proxy from a configuration file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mistake::repeated;
use telemetry::message;

use super::features;
use super::fleet_flags::FleetFlags;
use super::kubernetes_flags::KubernetesFlags;

/// Runs a reverse proxy from a configuration file.
///
/// SIGTERM or Ctrl-C drains: running requests finish; a second one stops at once. SIGHUP reloads the file, SIGUSR1
/// reopens the log, and SIGUSR2 upgrades to the installed program without losing a request.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{SMALLEST_FILE}"))]
pub(crate) struct RunArgs {
    /// The configuration file; or etcd://HOST:PORT,HOST:PORT/PREFIX for one that several instances share; or
    /// kubernetes:// for the Gateway API of a cluster
    #[arg(long, short, value_name = "FILE", default_value = "vanward.toml")]
    config: PathBuf,

    #[command(flatten)]
    fleet: FleetFlags,

    #[command(flatten)]
    kubernetes: KubernetesFlags,

    #[command(flatten)]
    operation: super::Operation,
}

const EXAMPLES: &str = "\
Examples:
  vanward run                               with vanward.toml in this directory
  vanward run --config /etc/vanward.toml --admin /run/vanward.sock --pid-file /run/vanward.pid
  vanward run --config etcd://etcd1:2379,etcd2:2379/edge --instance edge-1
  vanward run --config kubernetes:// --gateway-address 192.0.2.1
  vanward check vanward.toml                only validates it";

const SMALLEST_FILE: &str = "\
The smallest file:
  [[listen]]
  address = \"127.0.0.1:8080\"

  [[route]]
  upstream = \"app\"

  [upstream.app]
  servers = [\"http://127.0.0.1:9000\"]";

/// Warns about a cache without peers: instances learn of each other only through etcd or from the file.
fn warn_of_loneliness(config: &config::Config) {
    let peers = config.cache.as_ref().and_then(|cache| cache.peers.as_ref());
    if peers.is_some_and(|peers| peers.members.is_none()) {
        message::warn(
            "[cache.peers] has no members, and the configuration is not in etcd: this instance shares with no other",
        );
    }
}

pub(crate) fn run(arguments: &RunArgs) -> ExitCode {
    arguments.operation.messages.speak();
    let inheritance = match super::inheritance() {
        Ok(inheritance) => inheritance,
        Err(code) => return code,
    };
    let text = arguments.config.to_str();
    let in_etcd = text.filter(|text| features::is_in_etcd(text));
    let in_kubernetes = text.filter(|text| features::is_in_kubernetes(text));
    for (location, feature) in [(in_etcd, &features::FLEET), (in_kubernetes, &features::KUBERNETES)] {
        if let (Some(location), Some(missing)) = (location, feature.missing()) {
            return super::fail(super::USAGE, format_args!("{location}: {missing}"));
        }
    }
    #[cfg(feature = "fleet")]
    if let Some(location) = in_etcd {
        return super::run_fleet::run(location, &arguments.fleet, &arguments.operation, inheritance);
    }
    #[cfg(feature = "kubernetes")]
    if let Some(url) = in_kubernetes {
        return super::run_kubernetes::run(
            url,
            (&arguments.kubernetes, &arguments.fleet),
            &arguments.operation,
            inheritance,
        );
    }
    if arguments.kubernetes.are_used() {
        let why = "flags of Kubernetes are for a cluster: --config kubernetes://";
        return super::fail(super::USAGE, why);
    }
    if arguments.fleet.are_used() {
        let why = "flags of etcd are for a configuration in etcd: --config etcd://HOST:PORT/PREFIX";
        return super::fail(super::USAGE, why);
    }
    let reading = read(&arguments.config, &arguments.operation);
    if reading.config.is_none() && arguments.operation.messages.are_json() {
        repeated(&reading.mistakes).iter().for_each(|mistake| message::error(&mistake.to_string()));
        return ExitCode::from(super::BAD_CONFIGURATION);
    }
    if reading.config.is_none() {
        // The exit code says the same if standard error is closed.
        let remarks = message::marked(message::Level::Error, &super::check::remarks(&reading));
        let _ = std::io::stderr().lock().write_all(&remarks);
    }
    match reading.config {
        Some(config) => {
            ::control::speak(&config.messages);
            repeated(&reading.warnings).iter().for_each(|warning| message::warn(&warning.to_string()));
            warn_of_loneliness(&config);
            let (file, operation) = (arguments.config.clone(), arguments.operation.clone());
            let reread: control::Reread = Box::new(move || read(&file, &operation));
            let setup = control::Setup { reread: Some(reread), inheritance, ..Default::default() };
            super::serve(config, setup, &arguments.operation)
        }
        None if is_missing(&arguments.config) => super::fail(super::BAD_CONFIGURATION, without_a_file()),
        None => ExitCode::from(super::BAD_CONFIGURATION),
    }
}

/// Returns the first configuration that is not from a file, and reports its warnings; or the exit code for mistakes.
#[cfg(any(feature = "fleet", feature = "kubernetes"))]
pub(super) fn first(reading: config::Reading) -> Result<config::Config, ExitCode> {
    let Some(config) = reading.config else {
        repeated(&reading.mistakes).iter().for_each(|mistake| message::error(&mistake.to_string()));
        return Err(ExitCode::from(super::BAD_CONFIGURATION));
    };
    ::control::speak(&config.messages);
    repeated(&reading.warnings).iter().for_each(|warning| message::warn(&warning.to_string()));
    Ok(config)
}

fn read(file: &Path, operation: &super::Operation) -> config::Reading {
    with_flags(config::examine_file(file), operation)
}

/// Adds problems of the files that a configuration refers to, and applies the flags.
pub(crate) fn with_flags(reading: config::Reading, operation: &super::Operation) -> config::Reading {
    // Problems that do not prevent use are reported by the proxy when it applies the configuration.
    let mut reading = super::check::with_files(reading, |problem| !problem.is_usable());
    if let Some(config) = reading.config.take() {
        match config.edit(|settings| operation.over(settings)) {
            Ok(config) => reading.config = Some(config),
            Err(mistakes) => reading.mistakes = mistakes,
        }
    }
    reading
}

fn is_missing(file: &Path) -> bool {
    file.try_exists().is_ok_and(|exists| !exists)
}

fn without_a_file() -> String {
    format!(
        "run needs a configuration file: vanward.toml of this folder, or another by --config FILE.\n\
         `vanward check FILE` says whether one is valid; `vanward proxy --from ADDR --to URL` needs none.\n\n\
         {SMALLEST_FILE}"
    )
}
