//! Opens the configured access logs.

use std::io;

use config::{LogTarget, Server, SyslogOptions, SyslogReceiver, SyslogTransport, Upstream, UpstreamTls};
use telemetry::{AccessLog, LogDestination, LogLines, Rotation, Syslog};
use tls::ClientSide;

use crate::StartError;

/// Opens the access logs; `None` if none is configured. A file must be writable; a syslog receiver may be unreachable.
pub(crate) fn open_logs(configs: &[config::AccessLog]) -> Result<Option<AccessLog>, StartError> {
    if configs.is_empty() {
        return Ok(None);
    }
    let failed = |place: usize, error| StartError::Log { target: configs[place].target.to_string(), error };
    let mut targets = Vec::with_capacity(configs.len());
    for (place, config) in configs.iter().enumerate() {
        let lines = LogLines::new(config.format.clone(), config.masks.clone());
        targets.push((target(config).map_err(|error| failed(place, error))?, lines));
    }
    AccessLog::open(targets).map(Some).map_err(|(place, error)| failed(place, error))
}

fn target(config: &config::AccessLog) -> io::Result<LogDestination> {
    let rotation = config.rotation.map(|rotation| Rotation {
        bytes: rotation.bytes,
        every: rotation.every,
        keep: rotation.keep,
    });
    match &config.target {
        LogTarget::Stdout => Ok(LogDestination::Stdout),
        LogTarget::File(path) => Ok(LogDestination::File(path.clone(), rotation)),
        LogTarget::Journal => Ok(LogDestination::Journal(None)),
        LogTarget::Syslog(receiver) => syslog(receiver, &config.syslog),
    }
}

fn syslog(receiver: &SyslogReceiver, options: &SyslogOptions) -> io::Result<LogDestination> {
    let receiver = match receiver {
        SyslogReceiver::Unix(path) => telemetry::SyslogReceiver::Unix(path.clone()),
        SyslogReceiver::Host(transport, host, port) => {
            let (host, port) = (host.clone(), *port);
            match transport {
                SyslogTransport::Udp => telemetry::SyslogReceiver::Udp { host, port },
                SyslogTransport::Tcp => telemetry::SyslogReceiver::Tcp { host, port, tls: None },
                SyslogTransport::Tls => {
                    let tls = Some(secured(&host, port, options)?);
                    telemetry::SyslogReceiver::Tcp { host, port, tls }
                }
            }
        }
    };
    let SyslogOptions { facility, severity, app_name, .. } = options.clone();
    Ok(LogDestination::Syslog(Syslog { receiver, facility, severity, app_name }))
}

/// Prepares TLS to a receiver, as to a server with that name.
fn secured(host: &str, port: u16, options: &SyslogOptions) -> io::Result<telemetry::SyslogTls> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let server = format!("https://{host}:{port}").parse::<Server>().map_err(io::Error::other)?;
    let tls = UpstreamTls { ca: options.ca.clone(), ..UpstreamTls::default() };
    let upstream = Upstream { tls, ..Upstream::from_name("syslog", vec![server]) };
    let side = ClientSide::load(&upstream).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        io::Error::other(problems.join("; "))
    })?;
    let name = side.as_ref().and_then(|side| side.name(0)).cloned();
    match (side, name) {
        (Some(side), Some(name)) => Ok((side.config(), name)),
        _ => Err(io::Error::other("there is no name to verify")),
    }
}
