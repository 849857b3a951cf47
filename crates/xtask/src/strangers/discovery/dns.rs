//! Servers from SRV records of BIND, which the proxy queries through the machine's resolver configuration: shares
//! by weights, another priority, changing records, more than fit a datagram, and none. Requires root, for the name
//! server's port and the resolver's file.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;

use super::super::named;
use super::super::process::{Process, free_address};
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
/// More records than fit the 1232 bytes that resolvers accept over UDP.
const MANY: usize = 60;

pub(super) fn check(vanward: &Path, folder: &Path) -> Result<(), String> {
    let servers = DiscoveryServers::start(vanward, folder)?;
    let name_server = name_server()?;
    let [one, two, three] = servers.ports;
    let records = |of: &[(u16, u16, u16, &str)]| {
        let line = |(priority, weight, port, host): &(u16, u16, u16, &str)| {
            format!("_http._tcp IN SRV {priority} {weight} {port} {host}\n")
        };
        of.iter().map(line).collect::<String>()
    };
    let first = records(&[(1, 1, one, "one"), (1, 3, two, "two"), (2, 1, three, "three")]);
    let named = named::start(folder, name_server, CONFIG, &[("app.zone", &zone(1, &first))])?;
    let metrics = free_address()?;
    let proxy = DiscoveryProxy::new(proxy(vanward, folder, (name_server, metrics))?)?;
    let mut scene = DnsScene { named: Some(named), folder };

    let counts = proxy.ask(40)?;
    if counts != [10, 30, 0] {
        return Err(format!(
            "of 40 requests {counts:?} reached servers with the weights 1, 3 and another priority"
        ));
    }
    say(
        "SRV of BIND: the weights 1 and 3 are shares of 10 and 30 of 40 requests, another priority gets none",
    );

    scene.serve(2, &records(&[(1, 0, three, "three")]))?;
    proxy.until("another record is another server", |counts| counts == [0, 0, 4])?;
    let many: Vec<String> = (0..MANY).map(|number| format!("host-with-a-long-name-{number}")).collect();
    let long: String = many
        .iter()
        .map(|host| format!("{host} IN A 127.0.0.1\n_http._tcp IN SRV 3 1 {one} {host}\n"))
        .collect();
    scene.serve(3, &long)?;
    proxy.until("more records than fit a datagram", |counts| counts == [4, 0, 0])?;
    let told = get(metrics, "/metrics")?;
    if let Some(host) = many.iter().find(|host| !told.contains(&format!("({host}.app.example:"))) {
        return Err(format!("{host} is one of {MANY} records, but no server:\n{told}"));
    }
    say(format_args!("SRV of BIND: {MANY} records, which come over TCP, are {MANY} servers"));

    scene.serve(4, "")?;
    proxy.until_said("there is no such name")?;
    proxy.until("a name that is gone keeps its servers", |counts| counts == [4, 0, 0])?;
    let told = get(metrics, "/metrics")?;
    if !told.contains("vanward_discovery_failing{source=\"srv\"} 1") {
        return Err(format!("the metrics do not say that a service fails:\n{told}"));
    }
    scene.named = None;
    scene.named = Some(named::start(folder, name_server, CONFIG, &[("app.zone", &zone(5, &first))])?);
    proxy.until("records that are back count", |counts| counts == [1, 3, 0])?;
    say("SRV of BIND: a name that is gone keeps its servers until it is back");
    // BIND responds with the alias and the records of its target.
    let alias = format!("_http._tcp IN CNAME _http._tcp.eu\n_http._tcp.eu IN SRV 1 0 {two} two\n");
    scene.serve(6, &alias)?;
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

/// Starts a proxy for the service, with a private resolver file.
fn proxy(
    vanward: &Path,
    folder: &Path,
    (name_server, metrics): (SocketAddr, SocketAddr),
) -> Result<Process, String> {
    let (resolver, config) = (folder.join("resolv.conf"), folder.join("service.toml"));
    let put = |file: &Path, text: &str| {
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    put(&resolver, &format!("nameserver {}\n", name_server.ip()))?;
    put(&config, &format!("workers = 1\nmetrics = \"{metrics}\"\n{CONFIGURATION}"))?;
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" /etc/resolv.conf && exec \"$2\" run --config \"$3\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(resolver).arg(vanward).arg(config);
    Process::start("service", &mut command, folder)
}

struct DnsScene<'a> {
    named: Option<Process>,
    folder: &'a Path,
}

impl DnsScene<'_> {
    /// Makes the name server serve a zone with these records.
    fn serve(&self, number: u32, records: &str) -> Result<(), String> {
        let file = self.folder.join("named/app.zone");
        fs::write(&file, zone(number, records)).map_err(|error| format!("{}: {error}", file.display()))?;
        self.named.as_ref().map_or(Ok(()), |named| named.signal("-HUP"))
    }
}
