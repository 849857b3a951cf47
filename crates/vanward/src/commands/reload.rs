//! `vanward reload`: reloads the configuration of the running proxy.

use std::process::ExitCode;

use api::status::ReloadResult;

use super::reach::ProxySelection;

/// Reloads the configuration of the running proxy.
///
/// The file is the one that the proxy was started with. If it has a mistake, nothing changes, and the exit code is
/// 78. Unchanged parts keep their connections, pools and health states; running requests continue.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward reload                             the proxy whose `admin` socket vanward.toml names
  vanward reload --socket /run/vanward.sock
  vanward check && vanward reload            reports mistakes without contacting the proxy";

pub(crate) fn run(arguments: &ReloadArgs) -> ExitCode {
    let told = arguments.reach.post("/reload", &()).and_then(|answer| answer.told());
    let ReloadResult { warnings, remarks } = match told {
        Ok(told) => told,
        Err(code) => return code,
    };
    for warning in &warnings {
        super::say(format_args!("warning: {}", warning.text));
    }
    for remark in &remarks {
        super::say(remark);
    }
    super::say("reloaded");
    ExitCode::SUCCESS
}
