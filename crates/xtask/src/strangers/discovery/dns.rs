//! Servers from SRV records of BIND, which the proxy queries through the machine's resolver configuration: shares
//! by weights, another priority, changing records, more than fit a datagram, and none. Requires root, for the name
//! server's port and the resolver's file.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::named;
use super::super::process::{Process, free_address};
use super::super::programs::DIG;
use super::scene::{COUNT, DiscoveryProxy, DiscoveryServers, get};
use crate::say;

const CONFIG: &str = "\
options {
    directory \"DIR\"; pid-file none; listen-on port PORT { ADDRESS; }; listen-on-v6 { none; };
    recursion no; dnssec-validation no;
};
controls { };
zone \"app.example\" { type primary; file \"app.zone\"; };
";
const CONFIGURATION: &str = "\
[[listen]]
address = \"127.0.0.1:0\"

[[route]]
upstream = \"app\"

[upstream.app]
servers = [\"http+srv://_http._tcp.app.example\"]
slow_start = \"0s\"
";
/// Three names of one machine.
const HOSTS: [&str; COUNT] = ["one", "two", "three"];
const LIMIT: Duration = Duration::from_secs(30);
/// More records than fit the 1232 bytes that resolvers accept over UDP.
const MANY: usize = 60;

pub(super) fn check(vanward: &Path, folder: &Path, names: &mut NameServer<'_>) -> Result<(), String> {
    let servers = DiscoveryServers::start(vanward, folder)?;
    let [one, two, three] = servers.ports;
    let records = |of: &[(u16, u16, u16, &str)]| {
        let line = |(priority, weight, port, host): &(u16, u16, u16, &str)| {
            format!("_http._tcp IN SRV {priority} {weight} {port} {host}\n")
        };
        of.iter().map(line).collect::<String>()
    };
    let first = records(&[(1, 1, one, "one"), (1, 3, two, "two"), (2, 1, three, "three")]);
    names.serve(&first)?;
    names.until_asked("_http._tcp", "SRV", &format!("2 1 {three} three.app.example."))?;
    let metrics = free_address()?;
    let config = folder.join("service.toml");
    fs::write(&config, format!("workers = 1\nmetrics = \"{metrics}\"\n{CONFIGURATION}"))
        .map_err(|error| format!("{}: {error}", config.display()))?;
    let arguments = ["run", "--config", &config.display().to_string()];
    let proxy = DiscoveryProxy::new(names.start_resolving("service", vanward, &arguments)?)?;

    let counts = proxy.ask(40)?;
    if counts != [10, 30, 0] {
        return Err(format!(
            "of 40 requests {counts:?} reached servers with the weights 1, 3 and another priority"
        ));
    }
    say(
        "SRV of BIND: the weights 1 and 3 are shares of 10 and 30 of 40 requests, another priority gets none",
    );

    names.serve(&records(&[(1, 0, three, "three")]))?;
    proxy.until("another record is another server", |counts| counts == [0, 0, 4])?;
    let many: Vec<String> = (0..MANY).map(|number| format!("host-with-a-long-name-{number}")).collect();
    let long: String = many
        .iter()
        .map(|host| format!("{host} IN A 127.0.0.1\n_http._tcp IN SRV 3 1 {one} {host}\n"))
        .collect();
    names.serve(&long)?;
    proxy.until("more records than fit a datagram", |counts| counts == [4, 0, 0])?;
    let told = get(metrics, "/metrics")?;
    if let Some(host) = many.iter().find(|host| !told.contains(&format!("({host}.app.example:"))) {
        return Err(format!("{host} is one of {MANY} records, but no server:\n{told}"));
    }
    say(format_args!("SRV of BIND: {MANY} records, which come over TCP, are {MANY} servers"));

    names.serve("")?;
    proxy.until_said("there is no such name")?;
    proxy.until("a name that is gone keeps its servers", |counts| counts == [4, 0, 0])?;
    let told = get(metrics, "/metrics")?;
    if !told.contains("vanward_discovery_failing{source=\"srv\"} 1") {
        return Err(format!("the metrics do not say that a service fails:\n{told}"));
    }
    names.restart(&first)?;
    proxy.until("records that are back count", |counts| counts == [1, 3, 0])?;
    say("SRV of BIND: a name that is gone keeps its servers until it is back");
    // BIND responds with the alias and the records of its target.
    let alias = format!("_http._tcp IN CNAME _http._tcp.eu\n_http._tcp.eu IN SRV 1 0 {two} two\n");
    names.serve(&alias)?;
    proxy.until("a service that is an alias", |counts| counts == [0, 4, 0])?;
    say("SRV of BIND: a service that is an alias has the servers of its target");
    Ok(())
}

/// Writes a zone with these records of the service; each number is later than the one before.
fn zone(number: u32, records: &str) -> String {
    let hosts: String = HOSTS.iter().map(|host| format!("{host} IN A 127.0.0.1\n")).collect();
    format!(
        "$TTL 1\n@ IN SOA ns.invalid. admin.invalid. {number} 3600 600 86400 1\n@ IN NS ns.invalid.\n{hosts}{records}"
    )
}

/// The port of name servers is fixed in a resolver's file.
fn name_server() -> Result<SocketAddr, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], 53));
    let refused =
        |error| format!("{address} cannot be had, root can if no other name server has it: {error}");
    UdpSocket::bind(address).map(|_| address).map_err(refused)
}

/// BIND, and programs that ask it.
pub(super) struct NameServer<'a> {
    named: Option<Process>,
    address: SocketAddr,
    folder: &'a Path,
    /// The number of the zone that it serves.
    number: u32,
}

impl<'a> NameServer<'a> {
    pub(super) fn start(folder: &'a Path) -> Result<Self, String> {
        let address = name_server()?;
        let named = named::start(folder, address, CONFIG, &[("app.zone", &zone(1, ""))])?;
        let resolver = folder.join("resolv.conf");
        fs::write(&resolver, format!("nameserver {}\n", address.ip()))
            .map_err(|error| format!("{}: {error}", resolver.display()))?;
        Ok(Self { named: Some(named), address, folder, number: 1 })
    }

    /// Makes it serve a zone with these records.
    pub(super) fn serve(&mut self, records: &str) -> Result<(), String> {
        self.number += 1;
        let file = self.folder.join("named/app.zone");
        fs::write(&file, zone(self.number, records))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        self.named.as_ref().map_or(Ok(()), |named| named.signal("-HUP"))
    }

    /// Ends it, and starts it with a zone of these records.
    fn restart(&mut self, records: &str) -> Result<(), String> {
        self.named = None;
        self.number += 1;
        let zone = zone(self.number, records);
        self.named = Some(named::start(self.folder, self.address, CONFIG, &[("app.zone", &zone)])?);
        Ok(())
    }

    /// Waits until it answers a question about a name of the zone with this line, among others.
    pub(super) fn until_asked(&self, name: &str, kind: &str, answer: &str) -> Result<(), String> {
        let (server, name) = (format!("@{}", self.address.ip()), format!("{name}.app.example"));
        let began = Instant::now();
        loop {
            let asked = Command::new(DIG.find()?).args(["+short", &server, &name, kind]).output();
            let told = asked.map_err(|error| format!("dig cannot be run: {error}"))?.stdout;
            let told = String::from_utf8_lossy(&told);
            if told.lines().any(|line| line == answer) {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("named does not answer {answer} for {name} {kind}: {told}"));
            }
        }
    }

    /// Starts a program with a private resolver file, which names this server.
    pub(super) fn start_resolving(
        &self,
        name: &str,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Process, String> {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(self.folder.join("resolv.conf"));
        Process::start(name, command.arg(program).args(arguments), self.folder)
    }
}
