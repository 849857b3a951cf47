//! BIND's name server in a separate folder.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::process::Process;
use super::programs::NAMED;

/// Starts it in the folder `named` with zone files and a configuration, where `DIR`, `ADDRESS` and `PORT` are replaced.
pub(super) fn start(
    folder: &Path,
    address: SocketAddr,
    config: &str,
    zones: &[(&str, &str)],
) -> Result<Process, String> {
    let own = folder.join("named");
    fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    let put = |name: &str, text: &str| {
        let file = own.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    let config = config.replace("DIR", &own.display().to_string());
    let config = config.replace("ADDRESS", &address.ip().to_string());
    put("named.conf", &config.replace("PORT", &address.port().to_string()))?;
    zones.iter().try_for_each(|(name, text)| put(name, text))?;
    // A copy, because systems that confine programs by path restrict the original to its own folders.
    let program = own.join("named");
    fs::copy(NAMED.find()?, &program).map_err(|error| format!("named cannot be copied: {error}"))?;
    let mut command = Command::new(program);
    command.args(["-g", "-n", "1", "-c"]).arg(own.join("named.conf"));
    Process::start("named", &mut command, folder)?.listening_on(address)
}
