//! Stand-ins of addresses, networks and files of the old configuration, in both configurations.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use adapt::statements::Statement;
use ipnet::Ipv4Net;

use crate::OldProxy;
use crate::old::{OldConfiguration, OldFileKind, StatementPlace};
use crate::request::ProofRequest;

/// Networks that get stand-ins of their own.
const NETWORKS_MAX: u8 = 90;
/// Stand-ins of networks are `127.100.0.0/16` and so on; single addresses are in `127.99.0.0/16`.
const FIRST_NETWORK: u8 = 100;
const ADDRESSES: u8 = 99;
/// Networks within another one.
const INNER_MAX: u8 = 14;

/// A server of a protocol without a stand-in.
pub(crate) const NOWHERE: &str = "127.0.0.1:1";

/// The old program's access log, below the folder of a proof.
pub const THEIR_LOG: &str = "logged.log";

/// A folder without files, for Apache.
pub(crate) const NO_FILES: &str = "/none";

/// A user and a password that the stand-in of each file of users has: `alice` and `secret`.
pub const USERS: &str = "alice:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n";
/// As [`USERS`], with a hash that Traefik knows.
pub(crate) const TRAEFIK_USER: &str = "alice:$apr1$vanward0$yWvGlbC9i0mIiiq1RcmWV0";

/// The places that stand in for those of the old configuration, for one of the two proxies.
#[derive(Debug, Clone)]
pub struct StandIns {
    /// A folder for files, without a slash at its end.
    pub folder: String,
    /// For each door.
    pub doors: Vec<SocketAddr>,
    /// For each server.
    pub servers: Vec<SocketAddr>,
    /// Files and folders of the old configuration that can be read, and are used as they are.
    pub existing: BTreeSet<String>,
    pub certificate: String,
    pub key: String,
    /// Statements that the installed program does not accept.
    pub rejected: BTreeSet<StatementPlace>,
}

/// A part of a configuration with its stand-in, for the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replaced {
    pub old: String,
    pub new: String,
}

impl Replaced {
    pub(crate) fn new(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into() }
    }
}

/// The rewritten old configuration.
#[derive(Debug, Clone)]
pub struct Original {
    pub text: String,
    /// The place of each line; none for lines without one.
    pub lines: Vec<Option<StatementPlace>>,
    /// Blocks whose use is logged, by number.
    pub marks: Vec<BlockMark>,
    pub replaced: Vec<Replaced>,
}

impl Original {
    /// Appends a text, which may have several lines, with the place that it is from.
    pub(crate) fn line(&mut self, indent: &str, text: &str, place: Option<StatementPlace>) {
        for line in format!("{indent}{text}").split('\n') {
            self.text += line;
            self.text.push('\n');
            self.lines.push(place.clone());
        }
    }

    /// Notes a replacement for the report, once.
    pub(crate) fn replace(&mut self, replaced: Replaced) {
        if replaced.old != replaced.new && !self.replaced.contains(&replaced) {
            self.replaced.push(replaced);
        }
    }
}

/// A block whose use is logged, with its statements.
#[derive(Debug, Clone)]
pub struct BlockMark {
    pub place: StatementPlace,
    pub statements: Vec<StatementPlace>,
}

impl StandIns {
    pub(crate) fn is_rejected(&self, statement: &Statement) -> bool {
        self.rejected.iter().any(|place| {
            // Places of Traefik have the path of the option before it.
            let before = || place.text.strip_suffix(&statement.text());
            place.line == statement.line
                && place.file == statement.file
                && before().is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }

    /// The stand-in of a server, by the text in the configuration.
    pub(crate) fn server(&self, old: &OldConfiguration, written: &str) -> Option<SocketAddr> {
        let index = old.servers.iter().position(|server| server.written == written)?;
        self.servers.get(index).copied()
    }

    /// The stand-in of a file or folder.
    pub fn file(&self, path: &str) -> String {
        let fixed = path.split('$').next().unwrap_or_default().trim_end_matches('/');
        if self.existing.contains(path) || self.existing.contains(fixed) {
            return path.to_owned();
        }
        format!("{}/files/{}", self.folder, path.trim_start_matches('/'))
    }

    /// Replaces texts of this proxy's stand-ins by what they stand for, so that both proxies' texts compare.
    pub(crate) fn original(&self, old: &OldConfiguration, text: &str) -> String {
        let mut text = text.to_owned();
        for (server, address) in old.servers.iter().zip(&self.servers) {
            text = text.replace(&address.to_string(), &server.written);
        }
        for (door, address) in old.doors.iter().zip(&self.doors) {
            let port = if door.is_usual() { String::new() } else { format!(":{}", door.port) };
            text = text.replace(&format!(":{}", address.port()), &port);
            if text == address.port().to_string() {
                text = door.port.to_string();
            }
            text = text.replace(&address.ip().to_string(), "127.0.0.1");
        }
        text.replace(&format!("{}/files", self.folder), "")
    }
}

/// Returns the stand-in of a network or an address of IPv4; none for what has no stand-in.
pub(crate) fn network(old: &OldConfiguration, written: &str) -> Option<String> {
    let all = networks(old);
    all.into_iter().find(|(known, _)| known == written).map(|(_, new)| shown(new))
}

/// A client in a network, outside of the networks within it. Different numbers have different clients, if there is room.
pub(crate) fn client_in(old: &OldConfiguration, written: &str, number: usize) -> Option<Ipv4Addr> {
    let (_, new) = networks(old).into_iter().find(|(known, _)| known == written)?;
    let base = u32::from(new.network());
    let last = number as u32 % 250 + 1;
    let behind = match new.prefix_len() {
        0 => return None,
        32 => 0,
        25.. => 1,
        24 => last,
        // The last block within it is never given away.
        length => ((u32::MAX >> length) & !0xff) | last,
    };
    Some(Ipv4Addr::from(base | behind))
}

/// A client of the internet: none of the networks contains it.
pub(crate) fn stranger(number: usize) -> Ipv4Addr {
    let number = number as u32 % 60_000;
    Ipv4Addr::new(127, 64, (number / 240) as u8, (number % 240 + 1) as u8)
}

/// A client of captured traffic in none of the networks. It is no [`stranger`].
pub(crate) fn visitor(number: usize) -> Ipv4Addr {
    let number = number as u32 % 60_000;
    Ipv4Addr::new(127, 66, (number / 240) as u8, (number % 240 + 1) as u8)
}

fn shown(network: Ipv4Net) -> String {
    if network.prefix_len() == 32 { network.addr().to_string() } else { network.to_string() }
}

/// Returns the stand-in of each network. Networks within others stay within them.
fn networks(old: &OldConfiguration) -> Vec<(String, Ipv4Net)> {
    let parsed = |written: &String| {
        let network: Ipv4Net = match written.parse::<Ipv4Net>() {
            Ok(network) => network.trunc(),
            Err(_) => Ipv4Net::from(written.parse::<Ipv4Addr>().ok()?),
        };
        Some((written.clone(), network))
    };
    let mut known: Vec<(String, Ipv4Net)> = old.networks.iter().filter_map(parsed).collect();
    known.sort_by_key(|(written, network)| (network.prefix_len(), written.clone()));
    let mut made: Vec<(String, Ipv4Net, Ipv4Net, u8)> = Vec::new();
    let (mut outer, mut single) = (0, 0_u16);
    for (written, network) in known {
        let same = made.iter().find(|(_, other, ..)| *other == network).map(|(_, _, new, _)| *new);
        let parent =
            made.iter_mut().rev().find(|(_, other, ..)| other.contains(&network) && other.prefix_len() > 0);
        let new = match (same, parent) {
            (Some(same), _) => Some(same),
            _ if network.prefix_len() == 0 => Some(network),
            _ if network.network().is_loopback() => {
                Ipv4Net::new(network.network(), network.prefix_len().max(16)).ok()
            }
            (None, Some((_, _, within, count))) if *count < INNER_MAX => {
                *count += 1;
                inner(*within, *count, network.prefix_len() == 32)
            }
            (None, None) if network.prefix_len() == 32 && single < 250 => {
                single += 1;
                Ipv4Net::new(Ipv4Addr::new(127, ADDRESSES, 0, single as u8), 32).ok()
            }
            (None, None) if outer < NETWORKS_MAX => {
                outer += 1;
                Ipv4Net::new(Ipv4Addr::new(127, FIRST_NETWORK - 1 + outer, 0, 0), 16).ok()
            }
            _ => None,
        };
        if let Some(new) = new {
            made.push((written, network, new, 0));
        }
    }
    made.into_iter().map(|(written, _, new, _)| (written, new)).collect()
}

/// The stand-in of a network within the stand-in of another.
fn inner(within: Ipv4Net, number: u8, is_address: bool) -> Option<Ipv4Net> {
    let length = if is_address { 32 } else { within.prefix_len() + 4 };
    let shift = if is_address { 0 } else { 32_u8.saturating_sub(length) };
    (is_address || length <= 28).then_some(())?;
    let base = u32::from(within.network()) | (u32::from(number) << shift);
    Ipv4Net::new(Ipv4Addr::from(base), length).ok()
}

/// The files that stand in for those of the old configuration, with their content. Some paths of requests have files.
pub fn files(
    old: &OldConfiguration,
    stand_ins: &StandIns,
    requests: &[ProofRequest],
) -> Vec<(String, String)> {
    let mut made: Vec<(String, String)> = Vec::new();
    let mut add = |path: String, content: &str| {
        // Longer names are not possible.
        let is_usual = path.bytes().all(|byte| byte.is_ascii_graphic()) && path.len() < 250;
        if is_usual && !path.contains("/../") && path.starts_with(&format!("{}/files/", stand_ins.folder)) {
            made.push((path, content.to_owned()));
        }
    };
    // The front controller of applications.
    let front = old.servers.iter().any(|server| server.is_fastcgi).then_some("/index.php");
    let pages = old.files.iter().filter(|file| file.kind == OldFileKind::Page).map(|file| file.path.as_str());
    let named = requests.iter().map(ProofRequest::path).filter(|path| has_file(path));
    let inside: BTreeSet<&str> =
        ["/index.html", "/404.html"].into_iter().chain(front).chain(pages).chain(named).collect();
    if old.peer == OldProxy::Apache {
        add(stand_ins.file(&format!("{NO_FILES}/.keep")), "");
    }
    for file in &old.files {
        let place = stand_ins.file(&file.path);
        match file.kind {
            OldFileKind::Users if old.peer == OldProxy::Traefik => add(place, &format!("{TRAEFIK_USER}\n")),
            OldFileKind::Users => add(place, USERS),
            OldFileKind::Folder if file.path.contains('$') => {}
            OldFileKind::Folder => {
                let folder = place.trim_end_matches('/');
                for path in &inside {
                    add(format!("{folder}{path}"), &format!("file {path}\n"));
                    // A folder without an index would be refused.
                    if let Some((within, _)) = path.rsplit_once('/').filter(|(within, _)| !within.is_empty())
                    {
                        add(format!("{folder}{within}/index.html"), &format!("file {within}/index.html\n"));
                    }
                }
            }
            OldFileKind::Page | OldFileKind::Certificate | OldFileKind::Key | OldFileKind::Patterns => {}
        }
    }
    made
}

/// Every second path with an extension has a file.
fn has_file(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_file = last.contains('.')
        && !last.starts_with('.')
        && !path.contains(['%', ';', '\\'])
        && !path.contains("//");
    is_file && path.bytes().map(usize::from).sum::<usize>() % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(networks: &[&str]) -> OldConfiguration {
        let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        networks.iter().for_each(|network| old.network(network));
        old
    }

    #[test]
    fn networks_have_stand_ins_on_loopback_that_stay_within_each_other() {
        let old = old(&[
            "10.1.0.0/16",
            "10.0.0.0/8",
            "10.1.2.3",
            "192.0.2.7",
            "127.0.0.0/8",
            "0.0.0.0/0",
            "fe80::/10",
        ]);
        let cases = [
            ("10.0.0.0/8", Some("127.100.0.0/16"), Some("127.100.255.77")),
            ("10.1.0.0/16", Some("127.100.16.0/20"), Some("127.100.31.77")),
            ("10.1.2.3", Some("127.100.16.1"), Some("127.100.16.1")),
            ("192.0.2.7", Some("127.99.0.1"), Some("127.99.0.1")),
            ("127.0.0.0/8", Some("127.0.0.0/16"), Some("127.0.255.77")),
            ("0.0.0.0/0", Some("0.0.0.0/0"), None),
            ("fe80::/10", None, None),
        ];
        for (written, stand_in, client) in cases {
            assert_eq!(network(&old, written).as_deref(), stand_in, "{written}");
            let found = client_in(&old, written, 76).map(|client| client.to_string());
            assert_eq!(found.as_deref(), client, "{written}");
        }
    }
}
