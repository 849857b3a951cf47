//! `vanward run --config etcd://…`: one of several instances with a configuration that is kept in etcd.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;

use ::fleet::{Beginning, Location, Options};
use telemetry::message;
use tokio::sync::oneshot::Receiver;

use super::Operation;
use super::etcd_flags::EtcdFlags;

/// Flags of an instance.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of etcd")]
pub(crate) struct FleetFlags {
    #[command(flatten)]
    etcd: EtcdFlags,

    /// Name of this instance among those with the same configuration [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// Folder for the last good configuration, for a start while etcd is gone [default: the folder `fleet` in
    /// $STATE_DIRECTORY, or /var/lib/vanward/fleet]
    #[arg(long, value_name = "DIR")]
    fleet_dir: Option<PathBuf>,
}

impl FleetFlags {
    /// Whether any of them is given.
    pub(crate) fn are_used(&self) -> bool {
        self.are_of_etcd() || self.instance.is_some()
    }

    /// Whether any of them is given that only a configuration in etcd needs.
    pub(crate) fn are_of_etcd(&self) -> bool {
        self.etcd.are_used() || self.fleet_dir.is_some()
    }

    /// The name of this instance.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn name(&self) -> Result<String, String> {
        let name = self.instance.clone().unwrap_or_else(host_name);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
        if name.is_empty() || name.len() > 200 || !name.bytes().all(is_name) {
            return Err(format!("--instance: {name:?} is no name: letters, digits and -_.:@"));
        }
        Ok(name)
    }

    fn folder(&self) -> PathBuf {
        let state = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
        let default = || state.unwrap_or_else(|| PathBuf::from("/var/lib/vanward")).join("fleet");
        self.fleet_dir.clone().unwrap_or_else(default)
    }

    fn options(&self, location: &str) -> Result<Options, String> {
        Ok(Options {
            location: Location::parse(location)?,
            access: self.etcd.access(),
            name: self.name()?,
            folder: self.folder(),
            program: env!("VANWARD_VERSION").to_owned(),
            secrets: self.etcd.secrets(),
        })
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Runs an instance until a signal ends it.
pub(crate) fn run(
    location: &str,
    flags: &FleetFlags,
    operation: &Operation,
    inheritance: ::control::Inheritance,
) -> ExitCode {
    let options = match flags.options(location) {
        Ok(options) => options,
        Err(why) => return super::fail(super::USAGE, why),
    };
    if !options.location.is_secure {
        message::warn(&format!(
            "{location}: the configuration crosses the network in the clear; etcd:// uses TLS"
        ));
    }
    let (location, secrets, name) = (options.location.clone(), options.secrets, options.name.clone());
    let beginning = match on_a_thread(|| ::fleet::begin(options)) {
        Ok(beginning) => beginning,
        Err(why) => return super::not_run(&why),
    };
    beginning.remarks.iter().for_each(|remark| message::warn(remark));
    let (current, operation) = (beginning.current.clone(), operation.clone());
    let over = operation.clone();
    let reread: ::control::Reread =
        Box::new(move || super::run::with_flags(current.examine(&location, secrets), &over));
    let config = match super::run::first(reread()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let setup = ::control::Setup { reread: Some(reread), inheritance, instance: Some(name) };
    let (end, ended) = tokio::sync::oneshot::channel();
    let mut thread = None;
    let code = super::serve_with(config, setup, &operation, |running| {
        thread = follow(beginning, running.handle(), ended);
    });
    let _ = end.send(());
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    code
}

/// Follows the configuration on a thread of its own.
fn follow(beginning: Beginning, handle: ::control::Handle, ended: Receiver<()>) -> Option<JoinHandle<()>> {
    let started = std::thread::Builder::new().name("fleet".to_owned()).spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        match runtime {
            Ok(runtime) => runtime.block_on(beginning.follow(Running(handle), ended)),
            Err(error) => message::error(&format!("etcd is not watched: {error}")),
        }
    });
    started.inspect_err(|error| message::error(&format!("etcd is not watched: {error}"))).ok()
}

/// Waits for a future that stays on its thread.
pub(crate) fn on_a_thread<T, F: Future<Output = Result<T, String>>>(
    future: impl FnOnce() -> F,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.map_err(|error| error.to_string())?.block_on(async { future().await })
}

/// The proxy as an instance sees it.
struct Running(::control::Handle);

impl ::fleet::Proxy for Running {
    fn reload(&self) -> Result<(), String> {
        self.0.reload(", as etcd has a new version")
    }

    fn requests(&self) -> (u64, u64) {
        let counters = self.0.counters();
        (counters.requests, counters.responses_server_error)
    }

    fn peer_address(&self) -> Option<String> {
        self.0.peer_address()
    }

    fn take_peers(&self, addresses: &[String]) {
        if let Err(why) = self.0.take_peers(addresses) {
            message::warn(&format!("the instances of [cache.peers] stay as they were: {why}"));
        }
    }

    fn warn(&self, message: &str) {
        message::warn(message);
    }

    fn inform(&self, message: &str) {
        message::info(message);
    }
}
