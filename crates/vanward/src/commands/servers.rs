//! `vanward drain`, `restore`, `weigh`, `add` and `remove`: change servers of the running proxy, without a reload.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use api::status::{Changed, ServerNamed, ServerOrder, StatusReport};

use super::address::{ServerFlags, hint, quoted_word};
use super::reach::ProxySelection;

/// Interval between checks for running requests.
const LOOK: Duration = Duration::from_millis(200);

/// Stops sending new requests to a server; running requests finish.
///
/// The change survives reloads and upgrades, until `vanward restore`; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = DRAIN_EXAMPLES, override_usage = "vanward drain --server <SERVER> [OPTIONS]")]
pub(crate) struct Drain {
    #[command(flatten)]
    target: ServerFlags,
    /// Wait until the server has no running requests
    #[arg(long)]
    wait: bool,
    /// Fail if --wait takes longer: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = config::duration, default_value = "10m", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    reach: ProxySelection,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  vanward drain --server http://10.0.0.1:9000          in every upstream that has it
  vanward drain --server 10.0.0.1:9000 --upstream app
  vanward drain --server 10.0.0.1:9000 --wait && ssh 10.0.0.1 systemctl restart app && vanward restore --server 10.0.0.1:9000";

/// Puts a drained or `down` server back into service.
#[derive(clap::Args)]
#[command(after_help = RESTORE_EXAMPLES, override_usage = "vanward restore --server <SERVER> [OPTIONS]")]
pub(crate) struct Restore {
    #[command(flatten)]
    target: ServerFlags,
    #[command(flatten)]
    reach: ProxySelection,
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  vanward restore --server 10.0.0.1:9000
  vanward restore --server http://10.0.0.1:9000 --upstream app";

/// Changes the weight of a server. With 0 it gets only requests of its sticky sessions.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = WEIGH_EXAMPLES, override_usage = "vanward weigh --server <SERVER> --weight <N> [OPTIONS]")]
pub(crate) struct Weigh {
    #[command(flatten)]
    target: ServerFlags,
    /// Weight relative to the other servers, 0 to 1000
    #[arg(long, value_name = "N", required_unless_present = "old_weight")]
    weight: Option<u32>,
    #[arg(hide = true, value_name = "N", requires = "old_server", conflicts_with = "weight")]
    old_weight: Option<u32>,
    #[command(flatten)]
    reach: ProxySelection,
}

const WEIGH_EXAMPLES: &str = "\
Examples:
  vanward weigh --server 10.0.0.1:9000 --weight 5
  vanward weigh --server canary --upstream app --weight 1       by its name in the file";

/// Adds a server to an upstream.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = ADD_EXAMPLES, override_usage = "vanward add --server <URL> [OPTIONS]")]
pub(crate) struct Add {
    /// `http://HOST[:PORT]` or `https://HOST[:PORT]`
    #[arg(long, value_name = "URL", required_unless_present = "old_server")]
    server: Option<String>,
    #[arg(hide = true, value_name = "URL", conflicts_with = "server")]
    old_server: Option<String>,
    /// Name of the upstream; optional if there is only one
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// Weight relative to the other servers, 1 to 1000
    #[arg(long, value_name = "N", default_value = "1")]
    weight: u32,
    #[command(flatten)]
    reach: ProxySelection,
}

const ADD_EXAMPLES: &str = "\
Examples:
  vanward add --server http://10.0.0.3:9000
  vanward add --server http://10.0.0.3:9000 --upstream app --weight 2";

/// Removes a server: running requests finish, then its connections are closed.
///
/// The change survives reloads and upgrades; a restart forgets it.
#[derive(clap::Args)]
#[command(after_help = REMOVE_EXAMPLES, override_usage = "vanward remove --server <SERVER> [OPTIONS]")]
pub(crate) struct Remove {
    #[command(flatten)]
    target: ServerFlags,
    #[command(flatten)]
    reach: ProxySelection,
}

const REMOVE_EXAMPLES: &str = "\
Examples:
  vanward remove --server 10.0.0.3:9000
  vanward remove --server http://10.0.0.3:9000 --upstream app";

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
    // clap requires one of both.
    let weight = arguments.weight.or(arguments.old_weight).unwrap_or_default();
    let what = format!("has weight {weight}");
    done(order(&arguments.reach, "weigh", &arguments.target.order(Some(weight)), &what))
}

pub(crate) fn add(arguments: &Add) -> ExitCode {
    let Add { server, old_server, upstream, weight, reach } = arguments;
    if let Some(server) = old_server {
        hint(&[Some(format!("--server {}", quoted_word(server)))]);
    }
    let server = server.as_ref().or(old_server.as_ref()).cloned().unwrap_or_default();
    let wanted = ServerOrder { server, upstream: upstream.clone(), weight: Some(*weight) };
    done(order(reach, "add", &wanted, &format!("is added with weight {weight}")))
}

pub(crate) fn remove(arguments: &Remove) -> ExitCode {
    done(order(&arguments.reach, "remove", &arguments.target.order(None), "is removed"))
}

fn done(outcome: Result<Vec<ServerNamed>, ExitCode>) -> ExitCode {
    outcome.map_or_else(|code| code, |_| ExitCode::SUCCESS)
}

fn order(
    reach: &ProxySelection,
    what: &str,
    order: &ServerOrder,
    now: &str,
) -> Result<Vec<ServerNamed>, ExitCode> {
    let Changed { servers } = reach.post(&format!("/servers/{what}"), order)?.told()?;
    for ServerNamed { upstream, server } in &servers {
        super::say(format_args!("{server} of {upstream} {now}"));
    }
    Ok(servers)
}

fn wait(reach: &ProxySelection, servers: &[ServerNamed], patience: Duration) -> ExitCode {
    let began = Instant::now();
    loop {
        let status: StatusReport = match reach.get("/status").and_then(|answer| answer.told()) {
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
