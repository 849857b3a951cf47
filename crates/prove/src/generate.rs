//! Generates requests from the conditions of the old configuration: each met, and each nearly met.
//!
//! Requests that exceed limits come last, so that no other request meets them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{OldCondition, OldConfiguration, OldRule, Site, StatementPlace};
use crate::pattern::{Random, TextPattern};
use crate::request::{OriginBehaviour, ProofRequest, RequestRow};
use crate::stand_in;

/// Networks of a condition whose clients ask, besides the first.
const NETWORKS_MAX: usize = 8;
/// Hosts of a site for which the rules of all hosts are met, besides the first.
const HOSTS_MAX: usize = 8;
/// Rules of a site whose responses are asked for several times, for a cache.
const STORED_RULES_MAX: usize = 8;
/// Longer bodies are not sent.
pub(crate) const BODY_MAX: u64 = 2 << 20;
/// At most this part of all requests is for limits.
const BURST_SHARE: usize = 4;

const METHODS: [&str; 6] = ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
const PATHS: [&str; 12] = [
    "/",
    "/index.html",
    "/a/b/c",
    "/style.css",
    "/image.png",
    "/page.php",
    "/.git/config",
    "/%2e%2e/etc/passwd",
    "/a%20b/%C3%A4",
    "//double//slash",
    "/a/../b",
    "/?a=1&b=%2F&empty=",
];
const FIELDS: [(&str, &str); 14] = [
    ("Range", "bytes=0-3"),
    ("Range", "bytes=90000-"),
    ("If-Modified-Since", "Thu, 01 Jan 2099 00:00:00 GMT"),
    ("If-None-Match", "\"proof\""),
    ("If-None-Match", "\"other\""),
    ("Accept-Encoding", "gzip"),
    ("Cookie", "session=1; theme=dark"),
    ("Authorization", "Bearer token"),
    ("X-Forwarded-For", "203.0.113.9"),
    ("X-Forwarded-Proto", "https"),
    ("Origin", "https://other.example.org"),
    ("User-Agent", "Mozilla/5.0 (proof)"),
    ("Pragma", "no-cache"),
    ("Cache-Control", "no-cache"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedRequests {
    pub requests: Vec<ProofRequest>,
    /// Statements that too few requests were asked for, with the reason.
    pub left_out: Vec<(StatementPlace, String)>,
}

/// Returns up to `count` requests, the same for the same seed. `first` is the number of the first one.
pub fn generate(old: &OldConfiguration, seed: u64, count: usize, first: usize) -> GeneratedRequests {
    let mut made = RequestGenerator {
        old,
        random: Random::new(seed),
        known: BTreeSet::new(),
        requests: Vec::new(),
        left_out: Vec::new(),
    };
    made.aimed();
    let aimed = made.requests.len();
    made.around();
    made.usual();
    let bursts = made.bursts(count / BURST_SHARE);
    let room = count.saturating_sub(bursts.len());
    made.leave_out(room..aimed, bursts.len());
    // Combinations rarely repeat; a configuration without conditions has few.
    let mut attempts = 0;
    while made.requests.len() < room && attempts < count * 4 {
        attempts += 1;
        made.combined();
    }
    let mut requests = made.requests;
    requests.truncate(room);
    requests.extend(bursts);
    let (has_cache, mut share) = (old.has_cache(), first);
    for (number, request) in (first..).zip(&mut requests) {
        request.number = number;
        share = if request.follows { share } else { number };
        request.share = has_cache.then_some(share);
        if request.row == RequestRow::Alone {
            // Each has its own client, so that limits of clients meet only those that are for them.
            let inside =
                request.network.as_ref().and_then(|network| stand_in::client_in(old, network, number));
            request.client = inside.unwrap_or_else(|| stand_in::stranger(number));
        }
    }
    GeneratedRequests { requests, left_out: made.left_out }
}

struct RequestGenerator<'o> {
    old: &'o OldConfiguration,
    random: Random,
    /// Requests without their numbers.
    known: BTreeSet<String>,
    requests: Vec<ProofRequest>,
    left_out: Vec<(StatementPlace, String)>,
}

impl RequestGenerator<'_> {
    /// Requests that meet the conditions of each rule, then those that nearly do, and each host.
    fn aimed(&mut self) {
        let old = self.old;
        for site in &old.sites {
            for rule in &site.rules {
                let request = self.meeting(site, rule, None);
                self.add(request);
            }
        }
        for site in &old.sites {
            for rule in &site.rules {
                self.elsewhere(site, rule);
            }
            for host in &site.hosts {
                for text in host.matching(&mut self.random).into_iter().chain(host.nearly(&mut self.random)) {
                    self.plain(site, &text, "/");
                }
            }
            self.plain(site, "unknown.example", "/");
            for rule in &site.rules {
                for place in 0..rule.conditions.len() {
                    self.near(site, rule, place);
                }
            }
        }
    }

    /// Requests to the place of each rule that differ in one respect, and repeated ones for a cache.
    fn around(&mut self) {
        let old = self.old;
        for site in &old.sites {
            for rule in &site.rules {
                self.variants(site, rule);
            }
            for rule in site.rules.iter().take(STORED_RULES_MAX).filter(|_| old.has_cache()) {
                let mut request = self.meeting(site, rule, None);
                self.set_method(&mut request, "GET");
                self.stored(ProofRequest { behaviour: OriginBehaviour::Cacheable, ..request });
            }
        }
    }

    /// A router of Traefik without a host is for all of them, beside other routers.
    fn elsewhere(&mut self, site: &Site, rule: &OldRule) {
        let has_host = rule.conditions.iter().any(|condition| matches!(condition, OldCondition::Host(_)));
        if self.old.peer != OldProxy::Traefik || has_host {
            return;
        }
        for host in site.hosts.iter().skip(1).take(HOSTS_MAX) {
            let mut request = self.meeting(site, rule, None);
            self.meet(&mut request, &OldCondition::Host(host.clone()), None);
            self.add(request);
        }
    }

    /// Usual requests, for each site.
    fn usual(&mut self) {
        let old = self.old;
        for site in &old.sites {
            let host = self.host(site);
            for path in PATHS {
                self.plain(site, &host, path);
            }
            for (name, value) in FIELDS {
                let mut request = self.blank(site, &host, "/");
                request.fields.push((name.to_owned(), value.to_owned()));
                self.add(request);
            }
            for method in METHODS {
                let mut request = self.blank(site, &host, "/");
                self.set_method(&mut request, method);
                self.add(request);
            }
            let root = self.blank(site, &host, "/");
            let (get, post, options) = ("GET".to_owned(), "POST".to_owned(), "OPTIONS".to_owned());
            let body = Some(8);
            self.add(ProofRequest { method: get, body, ..root.clone() });
            self.add(ProofRequest { method: post, body, is_chunked: true, ..root.clone() });
            self.add(ProofRequest { method: options, target: "*".to_owned(), ..root });
            for (behaviour, _) in OriginBehaviour::usual() {
                let mut request = self.blank(site, &host, "/page");
                request.behaviour = *behaviour;
                self.stored(request);
            }
            for path in PATHS {
                let request = self.blank(site, &host, path);
                self.add_http2(request);
            }
        }
    }

    /// Adds a request twice, for a cache, and a third time for other users.
    fn stored(&mut self, request: ProofRequest) {
        self.requests.push(request.clone());
        let again = ProofRequest { follows: true, ..request };
        self.requests.push(again.clone());
        if self.old.has_cache() {
            for (name, value) in [("Authorization", "Bearer token"), ("Cookie", "session=1")] {
                let mut other = again.clone();
                set_field(&mut other, name, Some(value.to_owned()));
                self.requests.push(other);
            }
        }
    }

    /// Adds a request as HTTP/2, if its door takes that.
    fn add_http2(&mut self, request: ProofRequest) {
        if self.old.doors.get(request.door).is_some_and(|door| door.has_http2) {
            self.add(ProofRequest { is_http2: true, ..request });
        }
    }

    /// Requests to the place of a rule that differ in one respect.
    fn variants(&mut self, site: &Site, rule: &OldRule) {
        let request = self.meeting(site, rule, None);
        for method in METHODS {
            let mut request = request.clone();
            self.set_method(&mut request, method);
            self.add(request);
        }
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path.to_owned(), format!("?{query}")),
            None => (request.target.clone(), String::new()),
        };
        let bare = path.trim_end_matches('/');
        let encoded = path.char_indices().nth(1).map(|(at, letter)| {
            let rest = &path[at + letter.len_utf8()..];
            format!("/%{:02X}{rest}", u32::from(letter).min(255))
        });
        let targets = [
            format!("{bare}{query}"),
            format!("{bare}/{query}"),
            format!("{bare}/more{query}"),
            format!("{bare}more{query}"),
            format!("{path}?a=1&b=2"),
            format!("/{path}{query}"),
            format!("{bare}//x{query}"),
            format!("{bare}/../x{query}"),
        ];
        // Matchers of Caddy ignore the case of paths.
        let is_any_case = |condition: &OldCondition| match condition {
            OldCondition::Path(TextPattern::Regex { any_case, .. }) => *any_case,
            OldCondition::Path(_) => self.old.peer == OldProxy::Caddy,
            _ => false,
        };
        let capitals = rule.conditions.iter().any(is_any_case).then(|| path.to_ascii_uppercase() + &query);
        for target in targets.into_iter().chain(encoded).chain(capitals) {
            if target.starts_with('/') {
                self.add(ProofRequest { target, ..request.clone() });
            }
        }
        for behaviour in [
            OriginBehaviour::Missing,
            OriginBehaviour::Unavailable,
            OriginBehaviour::Redirect,
            OriginBehaviour::Moved,
            OriginBehaviour::Cookie,
        ] {
            self.add(ProofRequest { behaviour, ..request.clone() });
        }
        if self.asks_for_agents() {
            let mut browser = request.clone();
            set_field(&mut browser, "User-Agent", Some("Mozilla/5.0 (proof)".to_owned()));
            self.add(browser);
        }
        self.add(request.clone().upgraded());
        for method in ["GET", "POST"] {
            let mut request = request.clone();
            self.set_method(&mut request, method);
            self.add_http2(request);
        }
    }

    /// Whether clients without User-Agent may be refused, before other conditions are asked.
    fn asks_for_agents(&self) -> bool {
        let is_agent = |statement: &Statement| {
            statement.name == "map" && statement.word(0).eq_ignore_ascii_case("$http_user_agent")
        };
        self.old.peer == OldProxy::Nginx && self.old.any(&is_agent)
    }

    /// Meets all conditions of a rule but one, which it nearly meets.
    fn near(&mut self, site: &Site, rule: &OldRule, place: usize) {
        let texts = match &rule.conditions[place] {
            OldCondition::Host(pattern)
            | OldCondition::Path(pattern)
            | OldCondition::Field(_, pattern)
            | OldCondition::Cookie(_, pattern)
            | OldCondition::Argument(_, pattern)
            | OldCondition::Query(pattern) => pattern.nearly(&mut self.random),
            OldCondition::Methods(_) => vec!["PROPFIND".to_owned()],
            // A stranger, and clients in the other networks: exceptions are among them.
            OldCondition::Clients(networks) => {
                let others = networks.iter().skip(1).take(NETWORKS_MAX).cloned();
                std::iter::once(String::new()).chain(others).collect()
            }
            OldCondition::Credentials | OldCondition::Body(_) => vec![String::new()],
            OldCondition::Burst(_) | OldCondition::AtOnce(_) | OldCondition::ServerError => Vec::new(),
        };
        for text in texts {
            let request = self.meeting(site, rule, Some((place, &text)));
            self.add(request);
        }
    }

    /// A request that combines two rules, and usual parts.
    fn combined(&mut self) {
        let old = self.old;
        let Some(site) = self.random.one(&old.sites) else { return };
        let Some(rule) = self.random.one(&site.rules) else { return };
        let mut request = self.meeting(site, rule, None);
        if let Some(other) = self.random.one(&site.rules) {
            for condition in &other.conditions {
                if !matches!(condition, OldCondition::Path(_) | OldCondition::Body(_)) {
                    self.meet(&mut request, condition, None);
                }
            }
        }
        if self.random.below(3) == 0
            && let Some((name, value)) = self.random.one(&FIELDS)
            && !request.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            request.fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        if self.random.below(3) == 0
            && let Some(method) = self.random.one(&METHODS)
        {
            self.set_method(&mut request, method);
        }
        if self.random.below(4) == 0
            && let Some((behaviour, _)) = self.random.one(OriginBehaviour::usual())
        {
            request.behaviour = *behaviour;
        }
        if self.random.below(3) == 0 && !request.target.contains('?') {
            let word = self.random.word();
            request.target += &format!("?q={word}");
        }
        self.add(request);
    }

    /// Many requests of one client in a row, or at once, for each limit.
    fn bursts(&mut self, most: usize) -> Vec<ProofRequest> {
        let old = self.old;
        let mut all = Vec::new();
        let mut client = 0_u16;
        for site in &old.sites {
            for rule in &site.rules {
                let burst = rule.conditions.iter().find_map(|condition| match condition {
                    OldCondition::Burst(count) => Some((RequestRow::InARow, *count)),
                    OldCondition::AtOnce(count) => Some((RequestRow::AtOnce, *count)),
                    _ => None,
                });
                let Some((row, count)) = burst else { continue };
                if all.len() + count > most {
                    let enough = (all.len() + count) * BURST_SHARE;
                    let why = format!("its limit needs more requests: `--requests {enough}`");
                    self.left_out.push((rule.place.clone(), why));
                    continue;
                }
                client += 1;
                let [high, low] = client.to_be_bytes();
                let mut request = self.meeting(site, rule, None);
                request.client = Ipv4Addr::new(127, 65, high, low);
                request.network = None;
                request.row = row;
                if row == RequestRow::AtOnce {
                    request.behaviour = OriginBehaviour::Late;
                }
                all.extend(std::iter::repeat_n(request, count));
            }
        }
        all
    }

    /// Notes the statements of aimed requests for which there is no room beside so many `bursts`.
    fn leave_out(&mut self, beyond: std::ops::Range<usize>, bursts: usize) {
        let enough = beyond.end + bursts;
        let beyond = self.requests.get(beyond).unwrap_or_default();
        let places: BTreeSet<_> = beyond.iter().filter_map(|request| request.aim.clone()).collect();
        let why = format!("more requests are needed for its conditions: `--requests {enough}`");
        self.left_out.extend(places.into_iter().map(|place| (place, why.clone())));
    }

    fn host(&mut self, site: &Site) -> String {
        let first = site.hosts.first().map(|host| host.matching(&mut self.random));
        first.and_then(|hosts| hosts.into_iter().next()).unwrap_or_else(|| "unknown.example".to_owned())
    }

    fn plain(&mut self, site: &Site, host: &str, target: &str) {
        let request = self.blank(site, host, target);
        self.add(request);
    }

    fn blank(&mut self, site: &Site, host: &str, target: &str) -> ProofRequest {
        ProofRequest::plain(self.random.one(&site.doors).copied().unwrap_or(0), host, target)
    }

    /// A request that meets the conditions of a rule; one of them may have a text that nearly does.
    fn meeting(&mut self, site: &Site, rule: &OldRule, near: Option<(usize, &str)>) -> ProofRequest {
        let host = self.host(site);
        let mut request = self.blank(site, &host, "/");
        request.aim = Some(StatementPlace::clone(&rule.place));
        for (place, condition) in rule.conditions.iter().enumerate() {
            let text = near.filter(|(near, _)| *near == place).map(|(_, text)| text);
            self.meet(&mut request, condition, text);
        }
        request
    }

    /// Changes a request so that it meets a condition, or nearly does with `near`.
    fn meet(&mut self, request: &mut ProofRequest, condition: &OldCondition, near: Option<&str>) {
        let mut text = |pattern: &TextPattern| match near {
            Some(near) => Some(near.to_owned()),
            None => {
                let texts = pattern.matching(&mut self.random);
                self.random.one(&texts).cloned()
            }
        };
        match condition {
            OldCondition::Host(pattern) => {
                request.host = text(pattern).unwrap_or_default().replace([' ', '/'], "");
            }
            OldCondition::Path(pattern) => {
                let path = text(pattern).unwrap_or_default();
                let path = match path.chars().next() {
                    Some('/') => path,
                    Some('.') => format!("/page{path}"),
                    _ => format!("/{path}"),
                };
                request.target = as_target(&path);
            }
            OldCondition::Methods(methods) => {
                let method = near.map(str::to_owned).or_else(|| self.random.one(methods).cloned());
                if let Some(method) = method {
                    self.set_method(request, &method);
                }
            }
            OldCondition::Field(name, pattern) => {
                let value = text(pattern);
                set_field(request, name, value);
            }
            OldCondition::Cookie(name, pattern) => {
                let value = text(pattern).map(|value| format!("{name}={value}"));
                set_field(request, "Cookie", value);
            }
            OldCondition::Argument(name, pattern) => {
                let value = text(pattern).unwrap_or_default();
                let sign = if request.target.contains('?') { '&' } else { '?' };
                request.target += &format!("{sign}{name}={}", as_target(&value));
            }
            OldCondition::Query(pattern) => {
                let query = text(pattern).unwrap_or_default();
                let sign = if request.target.contains('?') { '&' } else { '?' };
                request.target += &format!("{sign}{}", as_target(&query));
            }
            OldCondition::Clients(networks) => {
                let is_wanted = |network: &&String| near.is_none_or(|near| near == network.as_str());
                let inside = networks
                    .iter()
                    .filter(is_wanted)
                    .find_map(|network| Some((network.clone(), stand_in::client_in(self.old, network, 0)?)));
                if let Some((network, client)) = inside {
                    (request.network, request.client) = (Some(network), client);
                }
            }
            OldCondition::Credentials => {
                // alice:secret, and another password.
                let value = if near.is_none() { "Basic YWxpY2U6c2VjcmV0" } else { "Basic YWxpY2U6d3Jvbmc=" };
                set_field(request, "Authorization", Some(value.to_owned()));
            }
            OldCondition::Body(most) => {
                let length = if near.is_some() { most.saturating_add(1) } else { *most };
                if length <= BODY_MAX && *most > 0 {
                    self.set_method(request, "POST");
                    request.body = Some(length as usize);
                }
            }
            OldCondition::Burst(_) | OldCondition::AtOnce(_) => {}
            OldCondition::ServerError => request.behaviour = OriginBehaviour::Unavailable,
        }
    }

    fn set_method(&mut self, request: &mut ProofRequest, method: &str) {
        method.clone_into(&mut request.method);
        request.body = match method {
            "POST" | "PUT" | "PATCH" => Some(request.body.unwrap_or(8)),
            _ => None,
        };
    }

    /// Adds a request, unless there is the same one.
    fn add(&mut self, request: ProofRequest) {
        let bare = ProofRequest { aim: None, ..request.clone() };
        if self.known.insert(format!("{bare:?}")) {
            self.requests.push(request);
        }
    }
}

fn set_field(request: &mut ProofRequest, name: &str, value: Option<String>) {
    let Some(value) = value else { return };
    if name.eq_ignore_ascii_case("Content-Length") {
        // The body has this length.
        if let Ok(length @ 1..=BODY_MAX) = value.parse::<u64>() {
            "POST".clone_into(&mut request.method);
            request.body = Some(length as usize);
        }
        return;
    }
    let value: String = value.chars().filter(|letter| (' '..='~').contains(letter)).collect();
    match request.fields.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, known)) if name == "Cookie" => *known += &format!("; {value}"),
        Some((_, known)) => *known = value,
        None => request.fields.push((name.to_owned(), value)),
    }
}

/// Encodes what cannot stand in a target.
fn as_target(path: &str) -> String {
    let mut target = String::new();
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'#' => target.push(char::from(byte)),
            _ => target += &format!("%{byte:02X}"),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::old::OldDoor;

    fn old(rules: &[(usize, &[OldCondition])]) -> OldConfiguration {
        let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        old.door(OldDoor::plain(80));
        old.network("10.0.0.0/8");
        let rule = |(line, conditions): &(usize, &[OldCondition])| OldRule {
            place: StatementPlace { file: "n".to_owned(), line: *line, text: String::new() },
            conditions: conditions.to_vec(),
        };
        let hosts = vec![TextPattern::Exact("a.example".to_owned())];
        old.sites = vec![Site { doors: vec![0], hosts, rules: rules.iter().map(rule).collect() }];
        old
    }

    #[test]
    fn clients_of_each_network_of_a_condition_ask() {
        let networks = ["10.0.0.0/8", "10.1.0.0/16"].map(str::to_owned);
        let mut old = old(&[(1, &[OldCondition::Clients(networks.to_vec())])]);
        old.network("10.1.0.0/16");
        let made = generate(&old, 1, 100, 0).requests;
        for network in [None, Some(&networks[0]), Some(&networks[1])] {
            assert!(made.iter().any(|request| request.network.as_ref() == network), "{network:?}");
        }
    }

    #[test]
    fn each_condition_is_met_and_nearly_met() {
        let text = |text: &str| TextPattern::Exact(text.to_owned());
        let path = OldCondition::Path(TextPattern::Regex { pattern: r"\.php$".to_owned(), any_case: false });
        let conditions = [
            path,
            OldCondition::Methods(vec!["PURGE".to_owned()]),
            OldCondition::Field("X-A".to_owned(), text("b")),
            OldCondition::Cookie("c".to_owned(), text("d")),
            OldCondition::Argument("e".to_owned(), text("f")),
            OldCondition::Query(text("<g>")),
            OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]),
        ];
        let made = generate(&old(&[(1, &conditions)]), 1, 1000, 0).requests;
        let first = &made[0];
        let fields =
            [("X-A", "b"), ("Cookie", "c=d")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert!(first.path().ends_with(".php") && first.target.ends_with("?e=f&<g>"), "{first:?}");
        assert_eq!((first.method.as_str(), &first.fields[..]), ("PURGE", &fields[..]));
        assert_eq!(first.network.as_deref(), Some("10.0.0.0/8"));
        let near: [fn(&ProofRequest) -> bool; 5] = [
            |request| request.method == "PROPFIND",
            |request| request.network.is_none() && request.method == "PURGE",
            |request| request.fields.iter().any(|(_, value)| value == "bx"),
            |request| request.fields.iter().any(|(_, value)| value == "c=D"),
            |request| request.target.contains(".phpx"),
        ];
        for (index, near) in near.into_iter().enumerate() {
            assert!(made.iter().any(near), "{index}");
        }
    }

    #[test]
    fn rules_of_traefik_without_a_host_are_met_for_each_host() {
        let host = |text: &str| TextPattern::Exact(text.to_owned());
        let mut old = old(&[(1, &[OldCondition::Path(TextPattern::Exact("/x".to_owned()))])]);
        old.sites[0].hosts.push(host("b.example"));
        let is_it = |request: &ProofRequest| request.host == "b.example" && request.target == "/x";
        assert!(!generate(&old, 1, 30, 0).requests.iter().any(is_it));
        old.peer = OldProxy::Traefik;
        assert!(generate(&old, 1, 30, 0).requests.iter().any(is_it));
    }

    #[test]
    fn a_seed_gives_the_same_requests_and_limits_come_last() {
        let old = old(&[(1, &[OldCondition::Burst(8)]), (2, &[OldCondition::Body(100)])]);
        let made = generate(&old, 7, 200, 0);
        assert_eq!(made, generate(&old, 7, 200, 0));
        assert_ne!(made, generate(&old, 8, 200, 0));
        assert_eq!(made.left_out, Vec::new());
        let made = made.requests;
        assert_eq!(made.len(), 200);
        assert!(made.iter().enumerate().all(|(index, request)| request.number == index));
        let bursts: Vec<usize> = made
            .iter()
            .filter(|request| request.row == RequestRow::InARow)
            .map(|request| request.number)
            .collect();
        assert_eq!(bursts, (192..200).collect::<Vec<_>>());
        let bodies: BTreeSet<_> = made.iter().filter_map(|request| request.body).collect();
        assert!(bodies.contains(&100) && bodies.contains(&101), "{bodies:?}");
    }

    #[test]
    fn statements_without_room_are_named() {
        let paths = ["/a", "/b", "/c"].map(|path| OldCondition::Path(TextPattern::Exact(path.to_owned())));
        let limit = [OldCondition::Burst(8)];
        let old = old(&[(1, &paths[..1]), (2, &paths[1..2]), (3, &paths[2..]), (4, &limit)]);
        let lines = |count: usize| {
            let left_out = generate(&old, 1, count, 0).left_out;
            left_out.into_iter().map(|(place, why)| (place.line, why)).collect::<Vec<_>>()
        };
        let few = lines(2);
        assert!(few.iter().any(|(line, _)| *line == 3), "{few:?}");
        assert!(few.iter().any(|(line, why)| *line == 4 && why.ends_with("`--requests 32`")), "{few:?}");
        let told = few.iter().find(|(line, _)| *line == 3).and_then(|(_, why)| why.rsplit(' ').next());
        let enough: usize = told.and_then(|told| told.trim_end_matches('`').parse().ok()).expect("a number");
        assert!(lines(enough.max(32)).is_empty());
    }
}
