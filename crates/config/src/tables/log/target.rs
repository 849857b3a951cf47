//! The option `target` of access logs, and the options of some targets.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mistake::nearest;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::host_and_port;
use crate::option::kind::{Located, Maybe, Text, Word};
use crate::option::path::PATH_KIND;
use crate::option::range::{Count, Unit, Wait};
use crate::option::server::ServerHost;
use crate::option::table::{Element, Inline, Table, key};
use crate::tables::log::{LogRotation, LogTarget, SyslogOptions, SyslogReceiver, SyslogTransport};

const TARGET: &str = "\"stdout\", \"journald\", \"syslog\", \"syslog:tls://HOST\", or a path with a /, such as \
                      /var/log/vanward.log or ./access.log";
const RECEIVER: &str = "\"syslog\", \"syslog:/dev/log\", \"syslog:udp://HOST:514\", \"syslog:tcp://HOST:601\" or \
                        \"syslog:tls://HOST:6514\"";
pub(crate) const TARGET_KIND: Text<LogTarget> =
    Text { expected: TARGET, read: log_target, print: LogTarget::to_string };

/// The socket of syslog on this machine.
const LOCAL: &str = "/dev/log";

/// A path has a slash, so that `"stdot"` doesn't become a file.
fn log_target(text: &str) -> Result<LogTarget, ValueError> {
    match text {
        "stdout" => Ok(LogTarget::Stdout),
        "journald" => Ok(LogTarget::Journal),
        "syslog" => Ok(LogTarget::Syslog(SyslogReceiver::Unix(LOCAL.into()))),
        _ if text.starts_with("syslog:") => receiver(&text["syslog:".len()..]).map(LogTarget::Syslog),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            Ok(LogTarget::File(PathBuf::from(path)))
        }
        other => {
            let nearest = nearest(other, ["stdout", "off", "syslog", "journald"]);
            Err(ValueError {
                fault: ValueFault::NotAPath { written: other.to_owned(), nearest },
                expected: TARGET,
            })
        }
    }
}

/// `/dev/log` or `tls://HOST:PORT`.
fn receiver(text: &str) -> Result<SyslogReceiver, ValueError> {
    let refuse = |fault| ValueError { fault, expected: RECEIVER };
    if text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
        return Ok(SyslogReceiver::Unix(text.into()));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(refuse(ValueFault::NoScheme(text.to_owned())));
    };
    let known = SyslogTransport::NAMED.into_iter().find(|(name, ..)| *name == scheme);
    let Some((_, transport, usual)) = known else {
        return Err(refuse(ValueFault::UnknownScheme(scheme.to_owned())));
    };
    let (host, port) = host_and_port(rest).map_err(refuse)?;
    let host = match host {
        ServerHost::Address(address) => address.to_string(),
        ServerHost::Name(name) => name,
        ServerHost::Service(_) | ServerHost::Catalog(_) | ServerHost::Unix(_) => {
            return Err(refuse(ValueFault::Path(rest.to_owned())));
        }
    };
    Ok(SyslogReceiver::Host(transport, host, port.unwrap_or(usual)))
}

/// As it is written in a file of options.
impl fmt::Display for LogTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => out.write_str("stdout"),
            Self::Journal => out.write_str("journald"),
            Self::Syslog(SyslogReceiver::Unix(path)) => write!(out, "syslog:{}", path.display()),
            Self::Syslog(SyslogReceiver::Host(transport, host, port)) => {
                let named = SyslogTransport::NAMED.into_iter().find(|(_, known, _)| known == transport);
                let name = named.map_or("", |(name, ..)| name);
                if host.contains(':') {
                    write!(out, "syslog:{name}://[{host}]:{port}")
                } else {
                    write!(out, "syslog:{name}://{host}:{port}")
                }
            }
            // A flag may name a file of the working directory, which a file of options writes with a slash.
            Self::File(path) if path.components().count() == 1 && path.is_relative() => {
                write!(out, "./{}", path.display())
            }
            Self::File(path) => path.display().fmt(out),
        }
    }
}

/// Whether the target takes each line as a separate message, not as a part of a file.
pub(crate) fn is_of_messages(target: &Located<LogTarget>) -> bool {
    matches!(target.value, LogTarget::Journal | LogTarget::Syslog(_))
}

/// Rejects options of other targets, which would have no effect.
pub(crate) fn check(
    target: Option<&Located<LogTarget>>,
    rotate: Option<&Element<RotateWritten>>,
    syslog: Option<&Element<SyslogWritten>>,
    reader: &mut Reader<'_>,
) {
    let Some(target) = target else { return };
    if let Some(rotate) = rotate {
        if !matches!(target.value, LogTarget::File(_)) {
            let mistake = reader.mistake(&rotate.at, "rotate: only a file can be rotated");
            reader.add(mistake.expecting("the path of a file as the target, or no rotate"));
        } else if rotate.is_intact && rotate.value.size.is_none() && rotate.value.every.is_none() {
            let mistake = reader.mistake(&rotate.at, "rotate has neither size nor every");
            reader.add(mistake.expecting("size, every or both"));
        }
    }
    let Some(syslog) = syslog else { return };
    let LogTarget::Syslog(receiver) = &target.value else {
        let mistake = reader.mistake(&syslog.at, "syslog: the target is no syslog receiver");
        return reader.add(mistake.expecting(RECEIVER));
    };
    if syslog.value.ca.is_some() && !matches!(receiver, SyslogReceiver::Host(SyslogTransport::Tls, ..)) {
        let mistake = reader.mistake(&syslog.at, "syslog: ca is for receivers with TLS");
        reader.add(mistake.expecting("\"syslog:tls://HOST\" as the target, or no ca"));
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RotateWritten {
    size: Option<u64>,
    every: Option<Duration>,
    keep: u64,
}

pub(crate) const ROTATE: Inline<RotateWritten> = Inline {
    title: "rotate",
    example: "{ size = \"100MiB\", every = \"1d\", keep = 10 }",
    table: &Table {
        options: &[
            key!(
                "size",
                Maybe(Count { range: 1024..=1 << 50, unit: Unit::Bytes }),
                RotateWritten.size,
                "The file is renamed before it would be longer than this.",
            ),
            key!(
                "every",
                Maybe(Wait { range: Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 3600) }),
                RotateWritten.every,
                "The file is renamed with the first line of each such period, counted in UTC: with `\"1d\"` the first \
                 line after midnight.",
            ),
            key!(
                "keep",
                Count { range: 0..=1000, unit: Unit::Things },
                RotateWritten.keep,
                "How many former files are kept: `access.log.1` is the newest.",
            ),
        ],
    },
};

impl Default for RotateWritten {
    fn default() -> Self {
        Self { size: None, every: None, keep: 10 }
    }
}

impl RotateWritten {
    pub(crate) fn meaning(self) -> LogRotation {
        LogRotation { bytes: self.size, every: self.every, keep: self.keep as u32 }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SyslogWritten {
    facility: u8,
    severity: u8,
    app_name: String,
    ca: Option<Located<PathBuf>>,
}

/// RFC 5424 §6.2.1, table 1.
const FACILITIES: Word<u8> = Word {
    words: &[
        ("user", 1),
        ("daemon", 3),
        ("local0", 16),
        ("local1", 17),
        ("local2", 18),
        ("local3", 19),
        ("local4", 20),
        ("local5", 21),
        ("local6", 22),
        ("local7", 23),
    ],
};

/// RFC 5424 §6.2.1, table 2.
const SEVERITIES: Word<u8> =
    Word { words: &[("error", 3), ("warning", 4), ("notice", 5), ("info", 6), ("debug", 7)] };

const APP_NAME: &str = "1 to 48 printable characters without spaces, such as edge-1";

pub(crate) const SYSLOG: Inline<SyslogWritten> = Inline {
    title: "syslog",
    example: "{ facility = \"local0\", severity = \"info\", app_name = \"vanward\" }",
    table: &Table {
        options: &[
            key!("facility", FACILITIES, SyslogWritten.facility, "The facility of each message.",),
            key!("severity", SEVERITIES, SyslogWritten.severity, "The severity of each message.",),
            key!(
                "app_name",
                Text { expected: APP_NAME, read: app_name, print: String::clone },
                SyslogWritten.app_name,
                "APP-NAME of each message.",
            ),
            key!(
                "ca",
                PATH_KIND,
                SyslogWritten.ca,
                "The CA certificates that sign the certificate of a `tls://` receiver, in PEM. Default: those of the \
                 system.",
            ),
        ],
    },
};

impl Default for SyslogWritten {
    fn default() -> Self {
        let SyslogOptions { facility, severity, app_name, ca: _ } = SyslogOptions::default();
        Self { facility, severity, app_name, ca: None }
    }
}

impl SyslogWritten {
    /// The file with the CAs that sign the receiver's certificate.
    pub(crate) fn ca(&self) -> Option<&Located<PathBuf>> {
        self.ca.as_ref()
    }

    pub(crate) fn meaning(self) -> SyslogOptions {
        let Self { facility, severity, app_name, ca } = self;
        SyslogOptions { facility, severity, app_name, ca: ca.map(|ca| ca.value) }
    }
}

/// RFC 5424 §6: up to 48 characters of PRINTUSASCII.
fn app_name(text: &str) -> Result<String, ValueError> {
    let refuse = |fault| Err(ValueError { fault, expected: APP_NAME });
    if text.is_empty() {
        return refuse(ValueFault::Empty);
    }
    if text.len() > 48 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = "is no APP-NAME";
        return refuse(ValueFault::Unknown { written: text.to_owned(), why, nearest: None });
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_written_of_a_target_is_read_as_the_same_file() {
        for name in ["log", "stdout", "./log", "logs/access", "/var/log/vanward.log"] {
            let written = LogTarget::File(PathBuf::from(name)).to_string();
            let Ok(LogTarget::File(read)) = log_target(&written) else { panic!("{name} became {written}") };
            assert_eq!(Path::new(".").join(&read).file_name(), Path::new(name).file_name(), "{name}");
            assert!(written.contains(name) && written.contains('/'), "{name} became {written}");
        }
    }

    #[test]
    fn receivers() {
        let host = |transport, host: &str, port| {
            Some(LogTarget::Syslog(SyslogReceiver::Host(transport, host.to_owned(), port)))
        };
        let unix = |path: &str| Some(LogTarget::Syslog(SyslogReceiver::Unix(path.into())));
        for (text, meant) in [
            ("journald", Some(LogTarget::Journal)),
            ("syslog", unix("/dev/log")),
            ("syslog:/run/log", unix("/run/log")),
            ("syslog:udp://10.0.0.1", host(SyslogTransport::Udp, "10.0.0.1", 514)),
            ("syslog:tcp://logs.test:1601", host(SyslogTransport::Tcp, "logs.test", 1601)),
            ("syslog:tls://[2001:db8::1]", host(SyslogTransport::Tls, "2001:db8::1", 6514)),
            ("syslog:", None),
            ("syslog:logs.test", None),
            ("syslog:http://logs.test", None),
            ("syslog:udp://", None),
            ("syslog:udp://a:0", None),
            ("syslog:udp://a/b", None),
            ("sylog", None),
        ] {
            let read = log_target(text).ok();
            assert_eq!(read, meant, "{text}");
            if let Some(target) = read {
                assert_eq!(log_target(&target.to_string()).ok(), Some(target), "{text}");
            }
        }
    }
}
