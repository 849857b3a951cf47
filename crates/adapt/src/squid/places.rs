//! Listeners and servers.

use super::SquidAdapter;
use super::syntax::SquidLine;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::name_of;

impl<'s> SquidAdapter<'s> {
    pub(super) fn listeners(&mut self) {
        let lines = self.lines;
        for line in lines.iter().filter(|line| matches!(line.word(0), "http_port" | "https_port")) {
            let from = vec![StatementOrigin::Directive(line.number)];
            if !line.has("accel") && !line.has("vhost") && line.option("defaultsite").is_none() {
                let instead = "leave it to Squid: Vanward is a reverse proxy";
                self.sheet.refuse(line.number, "it is for a forward proxy", instead);
                continue;
            }
            let word = line.word(1);
            let address = match word.rsplit_once(':') {
                _ if word.parse::<u16>().is_ok() => format!("*:{word}"),
                Some((host, port))
                    if host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
                        && port.parse::<u16>().is_ok() =>
                {
                    word.to_owned()
                }
                _ => {
                    self.sheet.refuse(
                        line.number,
                        "it has no address with a port",
                        "write a [[listen]] with the address",
                    );
                    continue;
                }
            };
            if self.sheet.listeners.iter().any(|known| known.get("address") == Some(&address.as_str().into()))
            {
                self.sheet.refuse(
                    line.number,
                    "another line has this address already",
                    "leave one of them out",
                );
                continue;
            }
            let mut table = DraftTable::new("[[listen]]", Vec::new());
            table.set("address", address, from.clone());
            let cert = line.option("tls-cert").or_else(|| line.option("cert"));
            if let Some(cert) = cert.filter(|_| line.word(0) == "https_port") {
                let key = line.option("tls-key").or_else(|| line.option("key")).unwrap_or(cert);
                let pair = [("cert".to_owned(), cert.into()), ("key".to_owned(), key.into())];
                table.extend(
                    "tls",
                    ("certificates", DraftValue::List(vec![DraftValue::Table(pair.into())])),
                    Vec::new(),
                );
            } else if line.word(0) == "https_port" {
                self.sheet.refuse(
                    line.number,
                    "it has no certificate",
                    "name one in `certificates` of [listen.tls]",
                );
                continue;
            }
            self.sheet.listeners.push(table);
        }
    }

    /// Returns the upstream of a request's servers, creating it if necessary.
    pub(super) fn upstream(&mut self, peers: &[&'s SquidLine]) -> Option<String> {
        let numbers: Vec<usize> = peers.iter().map(|line| line.number).collect();
        if let Some(name) = self.upstreams.get(&numbers) {
            return Some(name.clone());
        }
        let mut made = DraftTable::new("", Vec::new());
        let in_turn =
            peers.iter().any(|line| line.has("round-robin") || line.has("sourcehash") || line.has("carp"));
        for (index, line) in peers.iter().enumerate() {
            let from = vec![StatementOrigin::Directive(line.number)];
            let has_tls = line.has("tls") || line.has("ssl");
            let scheme = if has_tls { "https" } else { "http" };
            let mut pairs = vec![(
                "url".to_owned(),
                DraftValue::from(format!("{scheme}://{}:{}", line.word(1), line.word(3))),
            )];
            if let Some(weight) = line.option("weight").and_then(|weight| weight.parse::<u64>().ok()) {
                pairs.push(("weight".to_owned(), DraftValue::Number(weight.min(1000))));
            }
            if let Some(most @ 1..) = line.option("max-conn").and_then(|most| most.parse::<u64>().ok()) {
                pairs.push(("max_requests".to_owned(), DraftValue::Number(most.min(1_000_000))));
            }
            // Without a policy Squid selects the first server that is up.
            if !in_turn && index > 0 {
                pairs.push(("priority".to_owned(), DraftValue::Number(index as u64)));
            }
            let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
            made.push("servers", value, from.clone());
            if line.has("sourcehash") {
                made.set("balance", "client-address", from.clone());
            } else if line.has("round-robin") {
                made.set("balance", "round-robin", from.clone());
            } else if line.has("carp") {
                made.set("balance", "consistent-hash", from.clone());
                made.set("hash_key", "path", Vec::new());
            }
            if let Some(host) = line.option("forceddomain") {
                made.set("host", DraftValue::Table(vec![("set".to_owned(), host.into())]), from.clone());
            }
            if has_tls {
                let verify = line
                    .option("tls-flags")
                    .or_else(|| line.option("sslflags"))
                    .is_some_and(|flags| flags.contains("DONT_VERIFY_PEER"));
                if verify {
                    made.extend("tls", ("verify", false.into()), from.clone());
                }
                if let Some(ca) = line.option("tls-cafile").or_else(|| line.option("sslcafile")) {
                    made.extend("tls", ("ca", ca.into()), from.clone());
                }
            }
            if line.option("login").is_some_and(|login| login != "PASS" && login != "PASSTHRU") {
                let why = "a password for the server is a field of requests";
                self.sheet.differs(line.number, why, "set Authorization in `request_headers`");
            }
        }
        made.get("servers")?;
        let first = peers[0];
        let base = name_of(first.option("name").unwrap_or_else(|| first.word(1)));
        let name = self.sheet.upstream(&base, made);
        self.upstreams.insert(numbers, name.clone());
        Some(name)
    }
}
