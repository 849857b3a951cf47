//! `vanward drain`, `restore`, `weigh`, `add` and `remove`: change servers of the running proxy, without a reload.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use api::status::{Changed, ServerNamed, ServerOrder, Status};

use super::reach::Reach;

/// Interval between checks for running requests.
const LOOK: Duration = Duration::from_millis(200);

/// Stops sending new requests to a server; running requests finish.
///
/// The change survives reloads and upgrades, until `vanward restore`; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct Drain {
    #[command(flatten)]
    target: Target,
    /// Wait until the server has no running requests
    #[arg(long)]
    wait: bool,
    /// Fail if --wait takes longer: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = config::duration, default_value = "10m", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    reach: Reach,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  vanward drain http://10.0.0.1:9000          in every upstream that has it
  vanward drain 10.0.0.1:9000 --upstream app
  vanward drain 10.0.0.1:9000 --wait && ssh 10.0.0.1 systemctl restart app && vanward restore 10.0.0.1:9000";

/// Sends requests to a server again that is drained, or `down` in the file.
#[derive(clap::Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(crate) struct Restore {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    reach: Reach,
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  vanward restore 10.0.0.1:9000
  vanward restore http://10.0.0.1:9000 --upstream app";

/// Changes the weight of a server. With 0 it gets only requests of its sticky sessions.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = WEIGH_EXAMPLES)]
pub(crate) struct Weigh {
    #[command(flatten)]
    target: Target,
    /// Weight relative to the other servers, 0 to 1000
    weight: u32,
    #[command(flatten)]
    reach: Reach,
}

const WEIGH_EXAMPLES: &str = "\
Examples:
  vanward weigh 10.0.0.1:9000 5
  vanward weigh canary 1 --upstream app       by its name in the file";

/// Adds a server to an upstream.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct Add {
    /// `http://HOST[:PORT]` or `https://HOST[:PORT]`
    server: String,
    /// Name of the upstream; optional if there is only one
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// Weight relative to the other servers, 1 to 1000
    #[arg(long, value_name = "N", default_value = "1")]
    weight: u32,
    #[command(flatten)]
    reach: Reach,
}

const ADD_EXAMPLES: &str = "\
Examples:
  vanward add http://10.0.0.3:9000
  vanward add http://10.0.0.3:9000 --upstream app --weight 2";

/// Removes a server: running requests finish, then its connections are closed.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct Remove {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    reach: Reach,
}

const REMOVE_EXAMPLES: &str = "\
Examples:
  vanward remove 10.0.0.3:9000
  vanward remove http://10.0.0.3:9000 --upstream app";

/// Flags that select a server.
#[derive(clap::Args)]
struct Target {
    /// URL, HOST:PORT, or name in the file
    server: String,
    /// Only in this upstream, instead of all that have the server
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
}

impl Target {
    fn order(&self, weight: Option<u32>) -> ServerOrder {
        ServerOrder { server: self.server.clone(), upstream: self.upstream.clone(), weight }
    }
}

pub(crate) fn drain(arguments: &Drain) -> ExitCode {
    let changed = order(&arguments.reach, "drain", &arguments.target.order(None), "is drained");
    match changed {
        Ok(servers) if arguments.wait => wait(&arguments.reach, &servers, arguments.timeout),
        Ok(_) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

pub(crate) fn restore(arguments: &Restore) -> ExitCode {
    done(order(&arguments.reach, "restore", &arguments.target.order(None), "gets requests again"))
}

pub(crate) fn weigh(arguments: &Weigh) -> ExitCode {
    let what = format!("has weight {}", arguments.weight);
    done(order(&arguments.reach, "weigh", &arguments.target.order(Some(arguments.weight)), &what))
}

pub(crate) fn add(arguments: &Add) -> ExitCode {
    let Add { server, upstream, weight, reach } = arguments;
    let wanted = ServerOrder { server: server.clone(), upstream: upstream.clone(), weight: Some(*weight) };
    done(order(reach, "add", &wanted, &format!("is added with weight {weight}")))
}

pub(crate) fn remove(arguments: &Remove) -> ExitCode {
    done(order(&arguments.reach, "remove", &arguments.target.order(None), "is removed"))
}

fn done(outcome: Result<Vec<ServerNamed>, ExitCode>) -> ExitCode {
    outcome.map_or_else(|code| code, |_| ExitCode::SUCCESS)
}

/// Sends the change to the proxy, and reports the servers that it affected.
fn order(reach: &Reach, what: &str, order: &ServerOrder, now: &str) -> Result<Vec<ServerNamed>, ExitCode> {
    let Changed { servers } = reach.post(&format!("/servers/{what}"), order)?.told()?;
    for ServerNamed { upstream, server } in &servers {
        super::say(format_args!("{server} of {upstream} {now}"));
    }
    Ok(servers)
}

/// Waits until these servers have no running requests.
fn wait(reach: &Reach, servers: &[ServerNamed], patience: Duration) -> ExitCode {
    let began = Instant::now();
    loop {
        let status: Status = match reach.get("/status").and_then(|answer| answer.told()) {
            Ok(status) => status,
            Err(code) => return code,
        };
        let under_way: u32 = status
            .upstreams
            .iter()
            .flat_map(|upstream| upstream.servers.iter().map(move |server| (&upstream.name, server)))
            .filter(|(upstream, server)| {
                servers.iter().any(|named| named.upstream == **upstream && named.server == server.url)
            })
            .map(|(_, server)| server.requests)
            .sum();
        if under_way == 0 {
            super::say("the server has no running requests");
            return ExitCode::SUCCESS;
        }
        if began.elapsed() >= patience {
            let what = if under_way == 1 { "1 request is" } else { &format!("{under_way} requests are") };
            return super::fail(super::FAILED, format_args!("{what} still running on it after {patience:?}"));
        }
        std::thread::sleep(LOOK);
    }
}
