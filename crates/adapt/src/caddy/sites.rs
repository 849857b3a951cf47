//! Sites: their addresses, listeners, certificates and routes.

use super::directives::{CaddyDraft, sorted};
use super::matchers::{self, Named};
use super::texts::Texts;
use super::{CaddyAdapter, from, php};
use crate::RemarkKind;
use crate::definitions::Definitions;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, HostIs, RegionOutcome, Test};
use crate::sheet::one_or_list;
use crate::source::Directive;

#[derive(Debug, Clone, PartialEq)]
struct SiteAddress {
    host: Option<String>,
    port: u16,
    has_tls: bool,
}

/// A site with TLS at one address, for its redirect from HTTP.
#[derive(Debug)]
pub(super) struct SecuredSite {
    address: String,
    hosts: Vec<String>,
    origins: Vec<StatementOrigin>,
}

struct CaddySite<'s> {
    head: &'s Directive,
    block: &'s [Directive],
    addresses: Vec<SiteAddress>,
}

impl<'s> CaddyAdapter<'s> {
    pub(super) fn all(&mut self, tree: &'s [Directive]) {
        for options in tree.iter().filter(|directive| directive.name == "{") {
            self.options(options);
        }
        let is_site = |directive: &&Directive| {
            !matches!(directive.name.as_str(), "{" | "import") && !directive.name.starts_with('(')
        };
        let has_blocks = tree
            .iter()
            .filter(is_site)
            .any(|directive| directive.block.is_some() && looks_like_address(&directive.name));
        let mut sites = Vec::new();
        if has_blocks || tree.iter().filter(is_site).count() == 0 {
            for head in tree.iter().filter(is_site) {
                sites.push(self.site(head, head.inner()));
            }
        } else if let Some(place) = tree.iter().position(|directive| is_site(&directive)) {
            // A file with one site needs no braces: the first line has its addresses.
            sites.push(self.site(&tree[place], &tree[place + 1..]));
        }
        let mut made: Vec<(String, Vec<DraftTable>)> = Vec::new();
        for site in &sites {
            self.routes(site, &mut made);
        }
        made.extend(self.redirects(&made));
        let needs_names = made.iter().any(|(address, _)| *address != made[0].0);
        for (address, tables) in made {
            for mut table in tables {
                if needs_names {
                    table.set_first("listener", address.as_str());
                }
                self.sheet.routes.push(table);
            }
        }
    }

    fn site(&mut self, head: &'s Directive, block: &'s [Directive]) -> CaddySite<'s> {
        let words = std::iter::once(&head.name).chain(&head.words);
        let mut addresses = Vec::new();
        for word in words.map(|word| word.trim_end_matches(',')).filter(|word| !word.is_empty()) {
            match self.address(word, block.iter().any(|directive| directive.name == "tls")) {
                Ok(address) => addresses.push(address),
                Err(why) => self.sheet.refuse(
                    head.number,
                    &format!("{word}: {why}"),
                    "write a [[listen]] and a `host` for it",
                ),
            }
        }
        CaddySite { head, block, addresses }
    }

    fn address(&self, word: &str, has_certificate: bool) -> Result<SiteAddress, &'static str> {
        let (scheme, rest) =
            word.split_once("://").map_or((None, word), |(scheme, rest)| (Some(scheme), rest));
        if rest.contains('/') {
            return Err("a site for a path is a route");
        }
        if rest.contains(['{', '$']) {
            return Err("an address has no variables here");
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') => {
                (host, Some(port.parse::<u16>().map_err(|_| "it has no port")?))
            }
            _ => (rest, None),
        };
        let has_tls = match (scheme, port) {
            (Some("http"), _) => false,
            (Some("https"), _) => true,
            (Some(_), _) => return Err("its scheme is unknown"),
            (None, Some(port)) if port == self.ports.0 => false,
            (None, Some(_)) => has_certificate || !host.is_empty() && self.has_automatic_tls,
            (None, None) => has_certificate || self.has_automatic_tls,
        };
        let port = port.unwrap_or(if has_tls { self.ports.1 } else { self.ports.0 });
        let host = match host {
            "" | "*" => None,
            host => Some(HostIs::named(host.trim_matches(['[', ']'])).ok_or("it is no host")?.written()),
        };
        Ok(SiteAddress { host, port, has_tls })
    }

    /// Builds the routes of a site, once for each of its listeners.
    fn routes(&mut self, site: &CaddySite<'s>, made: &mut Vec<(String, Vec<DraftTable>)>) {
        self.check_block(site.block);
        let binds: Vec<&Directive> = site.block.iter().filter(|directive| directive.name == "bind").collect();
        let hosts: Vec<&str> = binds.iter().flat_map(|bind| bind.words.iter().map(String::as_str)).collect();
        let hosts = if hosts.is_empty() { vec!["*"] } else { hosts };
        let mut listeners: Vec<(String, bool, Vec<String>)> = Vec::new();
        for address in &site.addresses {
            for host in &hosts {
                let bare = host.trim_matches(['[', ']']);
                let written = match bare.parse::<std::net::IpAddr>() {
                    Ok(std::net::IpAddr::V6(_)) => format!("[{bare}]:{}", address.port),
                    Ok(_) => format!("{bare}:{}", address.port),
                    Err(_) if *host == "*" => format!("*:{}", address.port),
                    Err(_) => {
                        self.sheet.refuse(
                            site.head.number,
                            "it is bound to a name",
                            "write a [[listen]] with the address",
                        );
                        continue;
                    }
                };
                let names = address.host.clone();
                match listeners.iter_mut().find(|(known, ..)| *known == written) {
                    Some((.., known)) => known.extend(names),
                    None => listeners.push((written, address.has_tls, names.into_iter().collect())),
                }
            }
        }
        for (address, has_tls, names) in listeners {
            self.listener(site.head, site.block, &address, has_tls, &binds);
            if has_tls && self.has_redirects {
                let origins = from(site.head);
                self.secured.push(SecuredSite { address: address.clone(), hosts: names.clone(), origins });
            }
            let tables = self.routes_at(site, has_tls);
            let named = tables.into_iter().filter_map(|table| within(table, &names));
            made.push((address, reached(named)));
        }
    }

    fn routes_at(&mut self, site: &CaddySite<'s>, has_tls: bool) -> Vec<DraftTable> {
        let definitions = &mut self.sheet.definitions;
        let named = matchers::named(site.block, &Named::default(), definitions);
        let mut tests: Vec<Test> = Vec::new();
        gather(site.block, &named, &mut tests, definitions);
        for test in &tests {
            for origin in &test.from {
                let StatementOrigin::Directive(number) = origin else { continue };
                self.sheet.met.insert(*number);
            }
        }
        let steps = sorted(site.block, &named);
        let schema = self.sheet.definitions.schema();
        let is_unlogged = self.has_access_logs && !is_logged(site.block);
        let found = rules::routes(&tests, &schema, &mut |holds| {
            let outcome = RegionOutcome { from: from(site.head), options: DraftTable::default() };
            let mut made = CaddyDraft {
                outcome,
                root: None,
                tried: None,
                application: None,
                strip: String::new(),
                texts: Texts::new(),
                early_fields: Vec::new(),
                files_first: None,
                groups: None,
                has_tls,
                is_done: false,
            };
            if is_unlogged {
                let why = vec![StatementOrigin::Default("the site has no `log`")];
                made.outcome.options.set("access_log", false, why);
            }
            self.go(&steps, &named, holds, &mut made);
            if let Some(application) = made.application.take() {
                php::answer(application, &mut made);
            }
            self.errors_elsewhere(site.block, &mut made);
            self.errors_as_pages(site.block, &mut made);
            if !made.is_done {
                let why = StatementOrigin::Default("nothing answers: Caddy sends an empty page");
                made.outcome.options.set("respond", rules::answer(200, None), vec![why]);
            }
            made.outcome
        });
        self.sheet.report(&found);
        found.tables
    }

    fn listener(
        &mut self,
        head: &'s Directive,
        block: &'s [Directive],
        address: &str,
        has_tls: bool,
        binds: &[&Directive],
    ) {
        let mut origins = from(head);
        origins.extend(binds.iter().map(|bind| StatementOrigin::Directive(bind.number)));
        let wanted = DraftValue::from(address);
        let place = self.sheet.listeners.iter().position(|listener| listener.get("address") == Some(&wanted));
        let place = place.unwrap_or_else(|| {
            let mut table = DraftTable::new("[[listen]]", Vec::new());
            table.set("address", address, Vec::new());
            self.sheet.listeners.push(table);
            self.sheet.listeners.len() - 1
        });
        for origin in origins {
            self.sheet.listeners[place].cite("address", origin);
        }
        if has_tls {
            self.certificates(head, block, place);
        }
    }

    /// Builds the routes and listeners of automatic HTTPS, which redirects from the port of HTTP. Sites of that port
    /// come first; one for all hosts gets only what is for no site with TLS.
    fn redirects(&mut self, made: &[(String, Vec<DraftTable>)]) -> Vec<(String, Vec<DraftTable>)> {
        let mut redirects: Vec<(String, Vec<DraftTable>)> = Vec::new();
        let secured = std::mem::take(&mut self.secured);
        // Of several ports of a host, the usual one gets the redirect.
        let usual_end = format!(":{}", self.ports.1);
        let usual: Vec<String> = secured
            .iter()
            .filter(|site| site.address.ends_with(&usual_end))
            .flat_map(|site| site.hosts.clone())
            .collect();
        for SecuredSite { address, hosts, origins } in secured {
            let Some((bound, port)) = address.rsplit_once(':') else { continue };
            let plain = format!("{bound}:{}", self.ports.0);
            let of_plain = made.iter().filter(|(known, _)| *known == plain).flat_map(|(_, tables)| tables);
            let served: Vec<Option<&DraftValue>> = of_plain.map(|table| table.get("host")).collect();
            let wanted = DraftValue::from(plain.as_str());
            if !self.sheet.listeners.iter().any(|listener| listener.get("address") == Some(&wanted)) {
                let mut table = DraftTable::new("[[listen]]", Vec::new());
                table.set("address", plain.as_str(), origins.clone());
                self.sheet.listeners.push(table);
            }
            let is_usual = port == self.ports.1.to_string();
            let place = redirects.iter().position(|(known, _)| *known == plain).unwrap_or_else(|| {
                redirects.push((plain, Vec::new()));
                redirects.len() - 1
            });
            let tables = &mut redirects[place].1;
            let has_all = served.contains(&None);
            let hosts: Vec<String> = hosts
                .into_iter()
                .filter(|host| !served.iter().any(|served| is_served(*served, host)))
                .filter(|host| is_usual || !usual.contains(host))
                .collect();
            if (has_all || !is_usual) && !hosts.is_empty() {
                let port = if is_usual { String::new() } else { format!(":{port}") };
                let mut table = redirect_to_https(&port, origins);
                table.set_first("host", one_or_list(&hosts));
                tables.push(table);
            }
            if !has_all && !tables.iter().any(|table| table.get("host").is_none()) {
                tables.push(redirect_to_https("", Vec::new()));
            }
        }
        let all = redirects.iter_mut().flat_map(|(_, tables)| tables).filter(|_| self.has_access_logs);
        for table in all {
            let why = vec![StatementOrigin::Default("redirects of automatic HTTPS have no log")];
            table.set("access_log", false, why);
        }
        redirects
    }

    fn certificates(&mut self, head: &'s Directive, block: &'s [Directive], place: usize) {
        let tls = block.iter().find(|directive| directive.name == "tls");
        let listener = &mut self.sheet.listeners[place];
        let known = listener.inner("tls", "certificates").cloned();
        match tls.map(|tls| (tls, tls.words.as_slice())) {
            Some((tls, [cert, key])) => {
                let pair =
                    [("cert".to_owned(), cert.as_str().into()), ("key".to_owned(), key.as_str().into())];
                let mut list = match known {
                    Some(DraftValue::List(known)) => known,
                    Some(_) => {
                        let why = "a listener has either certificate files or automatic certificates";
                        return self.sheet.refuse(tls.number, why, "give the sites separate addresses");
                    }
                    None => Vec::new(),
                };
                let pair = DraftValue::Table(pair.into());
                if !list.contains(&pair) {
                    list.push(pair);
                }
                listener.extend("tls", ("certificates", DraftValue::List(list)), from(tls));
            }
            Some((tls, [word])) if word == "internal" => {
                listener.extend("tls", ("self_signed", true.into()), from(tls));
                let why = "the certificate is new at each start, and signed by no CA";
                self.sheet.differs(
                    tls.number,
                    why,
                    "name one that a CA of yours has signed in `certificates`",
                );
            }
            found => {
                let mut origins = from(head);
                if let Some((tls, words)) = found {
                    origins.extend(from(tls));
                    if let [mail] = words {
                        self.sheet.once("[acme]", "contact", mail.as_str(), tls.number);
                    }
                }
                let listener = &mut self.sheet.listeners[place];
                match known {
                    Some(DraftValue::List(_)) => {
                        let why = "a listener has either certificate files or automatic certificates";
                        self.sheet.refuse(head.number, why, "give the sites separate addresses");
                    }
                    Some(_) => {}
                    None => listener.extend("tls", ("certificates", "auto".into()), origins),
                }
            }
        }
        for inner in tls.iter().flat_map(|tls| tls.inner()) {
            self.tls_option(inner, place);
        }
    }

    fn tls_option(&mut self, inner: &'s Directive, place: usize) {
        let listener = &mut self.sheet.listeners[place];
        match (inner.name.as_str(), inner.word(0)) {
            ("protocols", version) => {
                let version = if version.ends_with("1.3") { "1.3" } else { "1.2" };
                listener.extend("tls", ("min_version", version.into()), from(inner));
            }
            ("client_auth", _) => {
                let word = |name: &str| inner.inner().iter().find(|option| option.name == name);
                let ca = word("trusted_ca_cert_file").or_else(|| word("trust_pool"));
                let Some(ca) = ca.filter(|ca| ca.name == "trusted_ca_cert_file") else {
                    let instead = "write `client_certificates = { mode = \"required\", ca = \"FILE\" }`";
                    return self.sheet.refuse(inner.number, "its CA is not a file", instead);
                };
                let mode = word("mode").map_or("require_and_verify", |mode| mode.word(0));
                let mode = if mode == "require_and_verify" { "required" } else { "optional" };
                let pairs = [("mode".to_owned(), mode.into()), ("ca".to_owned(), ca.word(0).into())];
                let mut origins = from(inner);
                origins.extend(inner.inner().iter().map(|option| StatementOrigin::Directive(option.number)));
                listener.extend("tls", ("client_certificates", DraftValue::Table(pairs.into())), origins);
            }
            ("ciphers" | "curves" | "alpn", _) => {
                self.sheet.needless(inner.number, "the defaults are secure");
            }
            _ => self.sheet.refuse(
                inner.number,
                "certificates have separate options",
                "see [acme] and [listen.tls]: docs/certificates.md",
            ),
        }
    }

    fn options(&mut self, options: &'s Directive) {
        self.sheet.needless(options.number, "its options are at the top of vanward.toml");
        for option in options.inner() {
            let word = option.word(0);
            match option.name.as_str() {
                "http_port" | "https_port" => match word.parse::<u16>() {
                    Ok(port) => {
                        let place =
                            if option.name == "http_port" { &mut self.ports.0 } else { &mut self.ports.1 };
                        *place = port;
                        self.sheet.needless(option.number, "it is in the addresses of listeners");
                    }
                    Err(_) => self.unread(option),
                },
                "auto_https" if word == "off" => {
                    (self.has_automatic_tls, self.has_redirects) = (false, false);
                    self.sheet.needless(option.number, "only listeners with `tls` use TLS");
                }
                "auto_https" if word == "disable_redirects" => {
                    self.has_redirects = false;
                    self.sheet.needless(option.number, "only routes with `redirect` redirect");
                }
                "email" => self.sheet.once("[acme]", "contact", word, option.number),
                "acme_ca" => self.sheet.once("[acme]", "directory", word, option.number),
                "grace_period" | "shutdown_delay" => match super::milliseconds(word) {
                    Some(time) => self.sheet.once(
                        "[timeouts]",
                        "drain",
                        crate::values::duration(time.min(86_400_000)),
                        option.number,
                    ),
                    None => self.unread(option),
                },
                "servers" => option.inner().iter().for_each(|inner| self.option_of_servers(inner)),
                "log" if self.has_access_logs => self.log(option),
                "log" => {
                    let why = "it is the log of the process, and no site has an access log";
                    self.sheet.needless(option.number, why);
                    option.inner().iter().for_each(|inner| self.sheet.needless(inner.number, why));
                }
                _ => {}
            }
        }
    }

    fn option_of_servers(&mut self, option: &'s Directive) {
        if option.name == "trusted_proxies" && option.word(0) == "static" {
            for word in option.words.iter().skip(1) {
                let networks =
                    if word == "private_ranges" { matchers::PRIVATE.to_vec() } else { vec![word.as_str()] };
                for network in networks.into_iter().filter(|network| crate::values::is_network(network)) {
                    self.sheet.top.push("trusted_proxies", network.into(), from(option));
                }
            }
        }
        for inner in option.inner().iter().filter(|_| option.name == "timeouts") {
            let key = match inner.name.as_str() {
                "read_header" => "client_header",
                "read_body" => "client_body",
                "write" => "client_write",
                "idle" => "keep_alive",
                _ => continue,
            };
            match super::milliseconds(inner.word(0)) {
                Some(time) => self.sheet.once(
                    "[timeouts]",
                    key,
                    crate::values::duration(time.min(86_400_000)),
                    inner.number,
                ),
                None => self.unread(inner),
            }
        }
    }

    pub(super) fn log(&mut self, log: &'s Directive) {
        let option = |name: &str| log.inner().iter().find(|inner| inner.name == name);
        let output = option("output");
        let target = match output.map(|output| (output.word(0), output.word(1))) {
            None | Some(("stderr" | "stdout", _)) => "stdout".to_owned(),
            Some(("file", path)) if path.contains('/') => path.to_owned(),
            Some(("file", path)) => format!("./{path}"),
            Some(_) => {
                let instead = "`target` of [log] names receivers: docs/logging.md";
                return self.sheet.refuse(log.number, "this target is written in another way", instead);
            }
        };
        self.sheet.once("[log]", "target", target, log.number);
        let format = option("format").map_or("json", |format| format.word(0));
        let format = if format == "console" { "extended" } else { "json" };
        self.sheet.table("[log]").set("format", format, from(log));
        for inner in log.inner() {
            self.sheet.note(
                inner.number,
                RemarkKind::Differs,
                "the fields of a line have other names",
                "docs/logging.md lists them",
            );
        }
    }
}

/// Whether requests of some site are logged.
pub(super) fn have_access_logs(tree: &[Directive]) -> bool {
    let mut sites = tree.iter().filter(|directive| directive.name != "{" && !directive.name.starts_with('('));
    sites.any(|directive| directive.name == "log" || is_logged(directive.inner()))
}

fn is_logged(block: &[Directive]) -> bool {
    block.iter().any(|directive| directive.name == "log")
}

/// The redirect of automatic HTTPS.
fn redirect_to_https(port: &str, mut origins: Vec<StatementOrigin>) -> DraftTable {
    origins.push(StatementOrigin::Default("automatic HTTPS"));
    let to = DraftValue::from(format!("https://$host{port}$path_and_query"));
    let pairs = vec![("to".to_owned(), to), ("status".to_owned(), DraftValue::Number(308))];
    let mut table = DraftTable::new("[[route]]", Vec::new());
    table.set("redirect", DraftValue::Table(pairs), origins);
    table
}

/// Restricts a route to the hosts of its site. `None` if its own hosts are none of them: no request reaches it.
fn within(mut table: DraftTable, names: &[String]) -> Option<DraftTable> {
    if names.is_empty() {
        return Some(table);
    }
    let own = match table.get("host") {
        None => names.to_vec(),
        Some(DraftValue::Text(host)) => vec![host.clone()],
        Some(DraftValue::List(hosts)) => {
            let text = |host: &DraftValue| match host {
                DraftValue::Text(host) => Some(host.clone()),
                _ => None,
            };
            hosts.iter().filter_map(text).collect()
        }
        Some(_) => return Some(table),
    };
    let mut both: Vec<String> = Vec::new();
    for (name, own) in names.iter().flat_map(|name| own.iter().map(move |own| (name, own))) {
        // The narrower of both.
        let host = if is_served(Some(&name.as_str().into()), own) {
            own
        } else if is_served(Some(&own.as_str().into()), name) {
            name
        } else {
            continue;
        };
        if !both.contains(host) {
            both.push(host.clone());
        }
    }
    let from = table.option("host").map(|(_, from)| from).unwrap_or_default();
    table.without("host");
    table.set_first("host", one_or_list(&both));
    from.into_iter().for_each(|origin| table.cite("host", origin));
    (!both.is_empty()).then_some(table)
}

/// Leaves out routes behind one with the same conditions.
fn reached(tables: impl Iterator<Item = DraftTable>) -> Vec<DraftTable> {
    const CONDITIONS: [&str; 7] = ["host", "path", "methods", "headers", "query", "clients", "when"];
    let mut reached: Vec<DraftTable> = Vec::new();
    for table in tables {
        let is_same = |known: &DraftTable| CONDITIONS.iter().all(|key| known.get(key) == table.get(key));
        if !reached.iter().any(is_same) {
            reached.push(table);
        }
    }
    reached
}

/// Whether the `host` of a route takes a host, also by a pattern such as `*.example.com`.
fn is_served(written: Option<&DraftValue>, host: &str) -> bool {
    match written {
        Some(DraftValue::Text(known)) => {
            let domain = known.strip_prefix('*');
            known == host || domain.is_some_and(|domain| host.ends_with(domain))
        }
        Some(DraftValue::List(all)) => all.iter().any(|known| is_served(Some(known), host)),
        _ => false,
    }
}

fn looks_like_address(name: &str) -> bool {
    name.contains(['.', ':']) || matches!(name.trim_end_matches(','), "localhost" | "*")
}

/// Collects the conditions of all directives in a block and its inner blocks.
fn gather(block: &[Directive], named: &Named<'_>, tests: &mut Vec<Test>, definitions: &mut Definitions) {
    for directive in block {
        if directive.name.starts_with('@') {
            continue;
        }
        if let (Some(expression), _) = matchers::expression(directive, named) {
            expression.tests(tests);
        }
        // The host of a redirect becomes a condition, whose map has to be known before.
        let is_in = |name: &String| directive.words.iter().any(|word| word.contains(&format!("{{{name}}}")));
        for (_, text) in named.texts.iter().filter(|(name, _)| directive.name == "redir" && is_in(name)) {
            let _ = text.as_ref().map(|text| text.written(definitions));
        }
        if super::directives::has_directives(&directive.name) {
            let named = matchers::named(directive.inner(), named, definitions);
            let mut inner = Vec::new();
            gather(directive.inner(), &named, &mut inner, definitions);
            if let Some(prefix) = super::directives::stripped(directive) {
                // The inner conditions see the rest of the path.
                for test in &mut inner {
                    let Atom::Path(path) = &test.atom else { continue };
                    test.atom = Atom::Path(path.behind(&prefix).unwrap_or_else(|| path.clone()));
                }
            }
            tests.extend(inner);
        }
    }
}
