//! Rewrites the configuration of Vanward for a proof: addresses, servers, networks and files.

use std::net::SocketAddr;

use toml_edit::{DocumentMut, Item, TableLike, Value};

use crate::OldProxy;
use crate::old::{OldConfiguration, OldFileKind, address_of, default_of, split_port};
use crate::request::MARK;
use crate::stand_in::{self, Replaced, StandIns};

/// Options at the top, and tables, for the service around the proxy.
const OF_THE_SERVICE: [&str; 12] = [
    "admin",
    "metrics",
    "dashboard",
    "dashboard_write",
    "dashboard_token_file",
    "dashboard_hosts",
    "quic_key_file",
    "acme",
    "tracing",
    "redis",
    "consul",
    "messages",
];

/// The candidate's log, below the folder of a proof.
pub const OUR_LOG: &str = "logged-by-vanward.log";

#[derive(Debug, Clone)]
pub struct ProofCandidate {
    pub text: String,
    pub replaced: Vec<Replaced>,
    /// Doors of the old configuration on which the candidate does not listen.
    pub closed: Vec<usize>,
    /// Stand-ins of files of users.
    pub users: Vec<String>,
    /// Whether it writes an access log.
    pub has_log: bool,
}

/// Rewrites a configuration of Vanward. `spare` is an address for listeners that the old configuration lacks.
pub fn candidate(
    old: &OldConfiguration,
    stand_ins: &StandIns,
    text: &str,
    spare: &[SocketAddr],
) -> Result<ProofCandidate, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    if document.contains_key("include") {
        let instead = "make it one file first: vanward check --print vanward.toml";
        return Err(format!("`include` is not followed; {instead}"));
    }
    let mut writer = CandidateWriter {
        old,
        stand_ins,
        replaced: Vec::new(),
        open: Vec::new(),
        users: Vec::new(),
        spare: spare.iter(),
    };
    for key in OF_THE_SERVICE {
        if document.remove(key).is_some() {
            writer.replaced(format!("`{key}` of vanward.toml"), "left out");
        }
    }
    let has_log = writer.log(&mut document);
    document["workers"] = toml_edit::value(1_i64);
    writer.listeners(&mut document);
    writer.upstreams(&mut document);
    let cache = document.get_mut("cache").and_then(Item::as_table_like_mut);
    let disk = cache.and_then(|cache| cache.get_mut("disk")).and_then(Item::as_table_like_mut);
    if let Some(path) = disk.and_then(|disk| disk.get_mut("path")) {
        // Its own, so that nothing from earlier runs answers.
        *path = toml_edit::value(format!("{}/stored", stand_ins.folder));
    }
    for (key, item) in document.iter_mut() {
        if !matches!(key.get(), "listen" | "upstream") {
            writer.texts(key.get(), item);
        }
    }
    let closed = (0..old.doors.len()).filter(|door| !writer.open.contains(door)).collect();
    let CandidateWriter { replaced, users, .. } = writer;
    Ok(ProofCandidate { text: document.to_string(), replaced, closed, users, has_log })
}

struct CandidateWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    replaced: Vec<Replaced>,
    /// Doors with a listener.
    open: Vec<usize>,
    users: Vec<String>,
    spare: std::slice::Iter<'w, SocketAddr>,
}

impl CandidateWriter<'_> {
    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        let replaced = Replaced::new(old, new);
        if replaced.old != replaced.new && !self.replaced.contains(&replaced) {
            self.replaced.push(replaced);
        }
    }

    /// Writes the numbers of logged requests to a file. Returns whether there is a log.
    fn log(&mut self, document: &mut DocumentMut) -> bool {
        let Some(log) = document.remove("log") else { return false };
        let is_on = |log: &dyn TableLike| log.get("target").and_then(Item::as_str) != Some("off");
        let has_log = match &log {
            Item::ArrayOfTables(tables) => tables.iter().any(|table| is_on(table)),
            log => log.as_table_like().is_some_and(is_on),
        };
        if has_log {
            let target = format!("{}/{OUR_LOG}", self.stand_ins.folder);
            self.replaced("`log` of vanward.toml", target.clone());
            let mut table = toml_edit::Table::new();
            table["target"] = toml_edit::value(target);
            table["format"] = toml_edit::value(format!("proof ${{header.{MARK}}}"));
            document["log"] = Item::Table(table);
        }
        has_log
    }

    /// Moves listeners to the doors, and the routes that name them.
    fn listeners(&mut self, document: &mut DocumentMut) {
        let mut moved = Vec::new();
        if let Some(listeners) = document.get_mut("listen").and_then(Item::as_array_of_tables_mut) {
            let mut twice = Vec::new();
            for (index, listener) in listeners.iter_mut().enumerate() {
                let Some(address) = listener.get("address").and_then(Item::as_str).map(str::to_owned) else {
                    continue;
                };
                let door = self.door(&address);
                let new = match door {
                    Some(door) if self.open.contains(&door) => {
                        twice.push(index);
                        self.stand_ins.doors.get(door).copied()
                    }
                    Some(door) => {
                        self.open.push(door);
                        self.stand_ins.doors.get(door).copied()
                    }
                    None => self.spare.next().copied(),
                };
                let new = new.map_or_else(|| "127.0.0.1:0".to_owned(), |new| new.to_string());
                self.replaced(format!("listener {address}"), new.clone());
                listener["address"] = toml_edit::value(new.clone());
                self.certificates(listener);
                moved.push((address, new));
            }
            for index in twice.into_iter().rev() {
                listeners.remove(index);
            }
        }
        let routes = document.get_mut("route").and_then(Item::as_array_of_tables_mut);
        for route in routes.into_iter().flat_map(|routes| routes.iter_mut()) {
            let Some(named) = route.get_mut("listener") else { continue };
            let new = |text: &str| moved.iter().find(|(old, _)| old == text).map(|(_, new)| new.clone());
            if let Some(new) = named.as_str().and_then(new) {
                *named = toml_edit::value(new);
            } else if let Some(list) = named.as_array_mut() {
                let mut all: Vec<String> = list
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|text| new(text).unwrap_or_else(|| text.to_owned()))
                    .collect();
                all.dedup();
                *named = toml_edit::value(toml_edit::Array::from_iter(all));
            }
        }
    }

    /// The door of a listener's address.
    fn door(&self, address: &str) -> Option<usize> {
        let (host, port) = split_port(address);
        let host = if matches!(host, "" | "*" | "0.0.0.0" | "[::]") { "*" } else { host };
        self.old.doors.iter().position(|door| door.host == host && Some(door.port) == port)
    }

    /// Replaces the certificates of a listener.
    fn certificates(&mut self, listener: &mut dyn TableLike) {
        let Some(tls) = listener.get_mut("tls").and_then(Item::as_table_like_mut) else { return };
        for of_clients in ["client_certificates", "client_certificates_by_name"] {
            if tls.remove(of_clients).is_some() {
                self.replaced(format!("`{of_clients}` of a listener"), "left out");
            }
        }
        if self.old.peer == OldProxy::Traefik && tls.remove("unknown_names").is_some() {
            // As `sniStrict` of the old configuration: the certificate of the proof has one name.
            self.replaced("`unknown_names` of a listener", "left out");
        }
        let (cert, key) = (self.stand_ins.certificate.as_str(), self.stand_ins.key.as_str());
        for (name, new) in [("cert", cert), ("key", key)] {
            if tls.contains_key(name) {
                tls.insert(name, toml_edit::value(new));
            }
        }
        // A list, or `"auto"` with options of automatic certificates.
        if tls.contains_key("certificates") || tls.contains_key("self_signed") {
            for of_automatic in ["names", "one_certificate", "self_signed"] {
                tls.remove(of_automatic);
            }
            let mut one = toml_edit::InlineTable::new();
            one.insert("cert", cert.into());
            one.insert("key", key.into());
            tls.insert("certificates", toml_edit::value(toml_edit::Array::from_iter([one])));
        }
        self.replaced("certificates of listeners", cert);
    }

    fn upstreams(&mut self, document: &mut DocumentMut) {
        let Some(upstreams) = document.get_mut("upstream").and_then(Item::as_table_like_mut) else { return };
        for (_, upstream) in upstreams.iter_mut() {
            let Some(upstream) = upstream.as_table_like_mut() else { continue };
            // Stand-ins of servers have no TLS.
            upstream.remove("tls");
            if self.old.peer == OldProxy::Traefik {
                // As in the old configuration. Stand-ins are always healthy, and speak HTTP/1.1.
                for option in ["check", "eject", "protocol"] {
                    upstream.remove(option);
                }
            }
            let scripts = upstream.get_mut("fastcgi").and_then(Item::as_table_like_mut);
            if let Some(root) =
                scripts.and_then(|scripts| scripts.get_mut("root")).and_then(Item::as_value_mut)
            {
                self.value("root", root);
            }
            let Some(servers) = upstream.get_mut("servers") else { continue };
            if let Some(list) = servers.as_array_mut() {
                for server in list.iter_mut() {
                    match server.as_inline_table_mut().and_then(|table| table.get_mut("url")) {
                        Some(url) => self.server(url),
                        None => self.server(server),
                    }
                }
            }
            let tables = servers.as_array_of_tables_mut().into_iter();
            for server in tables.flat_map(|tables| tables.iter_mut()) {
                if let Some(url) = server.get_mut("url").and_then(Item::as_value_mut) {
                    self.server(url);
                }
            }
        }
    }

    fn server(&mut self, url: &mut Value) {
        let Some(written) = url.as_str().map(str::to_owned) else { return };
        let address = match written.split_once("+unix:") {
            Some((_, path)) => address_of(&format!("unix:{path}"), 0),
            None => {
                let (scheme, rest) = written.split_once("://").unwrap_or(("http", written.as_str()));
                let authority = default_of(rest).split('/').next().unwrap_or_default();
                address_of(authority, if scheme == "https" { 443 } else { 80 })
            }
        };
        let place = self.old.servers.iter().position(|server| server.address == address);
        let new = place.and_then(|place| self.stand_ins.servers.get(place));
        // Nothing leaves the machine, so a server without a stand-in refuses connections.
        let new = new.map_or_else(|| stand_in::NOWHERE.to_owned(), ToString::to_string);
        let scheme = match written.split_once("://").map_or("", |(scheme, _)| scheme) {
            _ if written.starts_with("fcgi") => "fcgi",
            scheme @ ("tcp" | "tls") => scheme,
            _ => "http",
        };
        let made = format!("{scheme}://{new}");
        self.replaced(written, made.clone());
        set(url, &made);
    }

    /// Replaces networks and files in all texts of an item.
    fn texts(&mut self, key: &str, item: &mut Item) {
        match item {
            Item::Value(value) => self.value(key, value),
            Item::Table(table) => table.iter_mut().for_each(|(key, item)| self.texts(key.get(), item)),
            Item::ArrayOfTables(tables) => {
                for table in tables.iter_mut() {
                    table.iter_mut().for_each(|(key, item)| self.texts(key.get(), item));
                }
            }
            Item::None => {}
        }
    }

    fn value(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|value| self.value(key, value)),
            Value::InlineTable(table) => table.iter_mut().for_each(|(inner, value)| {
                // Files of error pages and folders of `accel` are values of tables.
                let key = if matches!(key, "error_pages" | "accel") { key } else { inner.get() };
                self.value(key, value);
            }),
            Value::String(_) => {
                let text = value.as_str().unwrap_or_default().to_owned();
                let new = match key {
                    "root" | "file" | "error_pages" | "accel" | "page" => self.file(&text),
                    "users" => {
                        let stand_in = self.stand_ins.file(&text);
                        self.users.push(stand_in.clone());
                        stand_in
                    }
                    "path" if text.starts_with("/var/") => self.file(&text),
                    "path" | "prefix" | "host" => text.clone(),
                    _ => self.networks(&text),
                };
                if new != text {
                    self.replaced(text, new.clone());
                    set(value, &new);
                }
            }
            _ => {}
        }
    }

    /// The stand-in of a file, or of a file in a known folder.
    fn file(&self, path: &str) -> String {
        let is_known = |known: &str| {
            let known = known.trim_end_matches('/');
            path == known || path.strip_prefix(known).is_some_and(|rest| rest.starts_with('/'))
        };
        let folders = self.old.files.iter().filter(|file| file.kind != OldFileKind::Page);
        let known = folders.filter(|file| is_known(&file.path)).max_by_key(|file| file.path.len());
        let Some(known) = known else {
            return if path.starts_with('/') || path.contains('/') {
                self.stand_ins.file(path)
            } else {
                path.to_owned()
            };
        };
        let (start, rest) = path.split_at(known.path.trim_end_matches('/').len());
        self.stand_ins.file(start).trim_end_matches('/').to_owned() + rest
    }

    /// Replaces networks that stand alone in a text.
    fn networks(&self, text: &str) -> String {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "./:".contains(letter);
        let mut made = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let length = rest.find(|letter: char| !is_part(letter)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            made += &stand_in::network(self.old, word).unwrap_or_else(|| word.to_owned());
            let other = behind.find(is_part).unwrap_or(behind.len());
            made += &behind[..other];
            rest = &behind[other..];
        }
        made
    }
}

/// Replaces a text, and keeps the comment behind it.
fn set(value: &mut Value, text: &str) {
    let decor = value.decor().clone();
    *value = text.into();
    *value.decor_mut() = decor;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::old::OldDoor;

    #[test]
    fn addresses_servers_networks_and_files_have_their_stand_ins() {
        let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        old.door(OldDoor::plain(80));
        old.server("10.0.0.1:8080", 80, None);
        old.application("unix:/run/a.sock", 80);
        old.network("10.0.0.0/8");
        old.file("/srv/www", OldFileKind::Folder);
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let stand_ins = StandIns {
            folder: "/tmp/p".to_owned(),
            doors: vec![address("127.0.0.3:4000")],
            servers: vec![address("127.0.0.1:5000"), address("127.0.0.1:5001")],
            existing: BTreeSet::new(),
            certificate: "/tmp/p/cert.pem".to_owned(),
            key: "/tmp/p/key.pem".to_owned(),
            rejected: BTreeSet::new(),
        };
        let text = "admin = \"/run/a.sock\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n[[listen]]\naddress = \"[::]:80\"  # a\n\
                    [[listen]]\naddress = \"0.0.0.0:8443\"\ntls = { certificates = \"auto\", names = [\"a\"] }\n[[route]]\nlistener = \"[::]:80\"\n\
                    path = \"/srv/www\"\nfiles = { root = \"/srv/www/a\" }\nwhen = 'client in [\"10.0.0.0/8\"]'\n\
                    [upstream.a]\nservers = [{ url = \"https://10.0.0.1:8080\" }, \"http://127.0.0.1:1\"]\n\
                    [upstream.b]\nservers = [\"fcgi+unix:/run/a.sock\"]\nfastcgi = { root = \"/srv/www\" }\n";
        let made = candidate(&old, &stand_ins, text, &[address("127.0.0.3:4001")]).expect("TOML");
        assert_eq!(
            made.text,
            "trusted_proxies = [\"127.100.0.0/16\"]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.3:4000\"\n\
             [[listen]]\naddress = \"127.0.0.3:4001\"\n\
             tls = { certificates = [{ cert = \"/tmp/p/cert.pem\", key = \"/tmp/p/key.pem\" }] }\n\
             [[route]]\nlistener = \"127.0.0.3:4000\"\npath = \"/srv/www\"\nfiles = { root = \"/tmp/p/files/srv/www/a\" }\n\
             when = 'client in [\"127.100.0.0/16\"]'\n[upstream.a]\n\
             servers = [{ url = \"http://127.0.0.1:5000\" }, \"http://127.0.0.1:1\"]\n\
             [upstream.b]\nservers = [\"fcgi://127.0.0.1:5001\"]\nfastcgi = { root = \"/tmp/p/files/srv/www\" }\n"
        );
        assert!(candidate(&old, &stand_ins, "include = \"a\"", &[]).is_err());
        let closed = candidate(&old, &stand_ins, "workers = 2", &[]).expect("TOML").closed;
        assert_eq!(closed, [0]);
    }

    #[test]
    fn options_of_servers_and_names_are_left_out_as_in_files_of_traefik() {
        let mut old = OldConfiguration::new(OldProxy::Traefik, Vec::new());
        old.server("10.0.0.1:80", 80, None);
        let stand_ins = crate::nginx::tests::stand_ins(&old);
        let text = "[[listen]]\naddress = \":443\"\ntls = { certificates = \"auto\", unknown_names = \"refuse\" }\n\
                    [upstream.a]\nservers = [\"http://10.0.0.1:80\"]\nprotocol = \"h2\"\ncheck = { path = \"/\" }\neject = { failures = 3 }\n";
        let made = candidate(&old, &stand_ins, text, &[]).expect("TOML");
        for word in ["unknown_names", "protocol", "check", "eject"] {
            assert!(!made.text.contains(word), "{word}: {}", made.text);
        }
        old.peer = OldProxy::Caddy;
        let made = candidate(&old, &stand_ins, text, &[]).expect("TOML");
        assert!(made.text.contains("unknown_names") && made.text.contains("eject"), "{}", made.text);
    }

    #[test]
    fn the_folder_of_a_cache_and_files_of_users_are_those_of_the_proof() {
        let old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        let stand_ins = StandIns {
            folder: "/tmp/p".to_owned(),
            doors: Vec::new(),
            servers: Vec::new(),
            existing: BTreeSet::new(),
            certificate: String::new(),
            key: String::new(),
            rejected: BTreeSet::new(),
        };
        let text = "workers = 1\n[[listen]]\ntls = { client_certificates = { mode = \"required\" } }\n\
                    [cache]\ndisk = { path = \"/srv/cache\", size = \"1GiB\" }\n[[route]]\nauth = { users = \"/etc/u\" }\n";
        let made = candidate(&old, &stand_ins, text, &[]).expect("TOML");
        assert!(
            made.text.contains("\"/tmp/p/stored\"") && !made.text.contains("/srv/cache"),
            "{}",
            made.text
        );
        assert_eq!(made.users, ["/tmp/p/files/etc/u"]);
    }
}
