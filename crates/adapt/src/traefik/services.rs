//! Services: load balancing, weighted services, mirroring, failover.

use super::middlewares::MiddlewareDraft as Way;
use super::{TraefikAdapter, find, from, is_on, numbers, of_file, text};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules;
use crate::sheet::name_of;
use crate::source::Directive;

/// Maximum depth of services that refer to services.
const DEPTH_MAX: usize = 8;

#[derive(Clone)]
pub(super) struct ServiceDraft {
    shares: Vec<(String, u64)>,
    pub(super) options: DraftTable,
}

impl ServiceDraft {
    /// The upstream, if there is only one, without options of a route.
    pub(super) fn only(&self) -> Option<&str> {
        match self.shares.as_slice() {
            [(upstream, _)] if self.options.is_empty() => Some(upstream),
            _ => None,
        }
    }
}

impl<'s> TraefikAdapter<'s> {
    /// Sets the service of a router as its content.
    pub(super) fn serve(&mut self, router: &'s Directive, way: &mut Way<'_>) {
        let Some((name, place)) = text(router, "service") else {
            let why = "it names no service, and has no middleware that answers";
            self.sheet.refuse(router.number, why, "write `upstream` in the [[route]]");
            return way.refuse(from(router));
        };
        match name {
            "noop@internal" => return way.done("respond", rules::answer(418, None), from(place)),
            "ping@internal" => {
                return way.done("respond", rules::answer(200, Some(("OK", "text/plain"))), from(place));
            }
            _ if name.ends_with("@internal") => {
                let instead = "`dashboard = \"127.0.0.1:8081\"`, `metrics = \"127.0.0.1:9090\"` at the top";
                self.sheet.refuse(place.number, "it has a separate address, apart from routes", instead);
                return way.refuse(from(place));
            }
            _ => {}
        }
        let Some(made) = self.service(name, place, 0) else { return way.refuse(from(place)) };
        match made.shares.as_slice() {
            [(upstream, _)] => way.outcome.options.set("upstream", upstream.as_str(), from(place)),
            shares => {
                let pairs = shares.iter().map(|(name, weight)| (name.clone(), DraftValue::Number(*weight)));
                way.outcome.options.set("split", DraftValue::Table(pairs.collect()), from(place));
            }
        }
        let copied = made.options.clone();
        way.for_servers.append(&copied);
    }

    /// Translates a service; `None` with a note if it is unsupported.
    pub(super) fn service(&mut self, name: &str, place: &'s Directive, depth: usize) -> Option<ServiceDraft> {
        let Some(definition) = self.definition("http", "services", name) else {
            let why = match of_file(name) {
                Some(_) => format!("there is no service {name} in the files"),
                None => format!("{name} is of another provider"),
            };
            self.sheet.refuse(place.number, &why, "write an [upstream.NAME] with its servers");
            return None;
        };
        if let Some(known) = self.upstreams.get(&definition.number) {
            return Some(known.clone());
        }
        if depth >= DEPTH_MAX {
            self.sheet.refuse(
                definition.number,
                "services are more than 8 deep",
                "name the servers themselves",
            );
            return None;
        }
        let kind = definition.inner().first()?;
        let made = match kind.name.to_ascii_lowercase().as_str() {
            "loadbalancer" => self.balanced(definition, kind),
            "weighted" => self.weighted(definition, kind, depth),
            "highestrandomweight" => self.weighted(definition, kind, depth).map(|mut made| {
                let by = vec![("by".to_owned(), DraftValue::from("client"))];
                made.options.set("sticky", DraftValue::Table(by), from(definition));
                made
            }),
            "mirroring" => self.mirrored(kind, depth),
            "failover" => self.failover(definition, kind, depth),
            _ => {
                let instead = "write an [upstream.NAME] with its servers";
                self.refuse_all(definition, "there is no such kind of service", instead);
                None
            }
        }?;
        self.upstreams.insert(definition.number, made.clone());
        Some(made)
    }

    fn balanced(&mut self, definition: &'s Directive, kind: &'s Directive) -> Option<ServiceDraft> {
        let (table, options) = self.balancer(definition, kind)?;
        let name = self.sheet.upstream(&name_of(&definition.name), table);
        Some(ServiceDraft { shares: vec![(name, 1)], options })
    }

    /// Translates `weighted`: services with weights.
    fn weighted(
        &mut self,
        definition: &'s Directive,
        kind: &'s Directive,
        depth: usize,
    ) -> Option<ServiceDraft> {
        let mut shares: Vec<(String, u64)> = Vec::new();
        let mut options = DraftTable::default();
        for item in find(kind, "services").map_or(&[][..], Directive::inner) {
            let (name, place) = text(item, "name")?;
            let weight = text(item, "weight").and_then(|(word, _)| word.parse::<u64>().ok()).unwrap_or(1);
            let inner = self.service(name, place, depth + 1)?;
            if inner.shares.len() > 1 {
                let instead = "name all services in one `split`";
                self.sheet.refuse(place.number, "a split cannot contain another split", instead);
                return None;
            }
            for (upstream, _) in inner.shares {
                match shares.iter_mut().find(|(known, _)| *known == upstream) {
                    Some((_, known)) => *known += weight,
                    None => shares.push((upstream, weight)),
                }
            }
            if !inner.options.is_empty() && options.is_empty() {
                options = inner.options;
            }
            let origins = numbers(item);
            definition_cites(&mut self.sheet, &origins);
        }
        if shares.is_empty() {
            self.sheet.refuse(
                definition.number,
                "it has no services",
                "write an [upstream.NAME] with servers",
            );
            return None;
        }
        if let Some(sticky) = find(kind, "sticky") {
            let (value, origins) = self.cookie(sticky);
            options.set("sticky", value, origins);
        }
        self.checks(kind);
        Some(ServiceDraft { shares, options })
    }

    /// Translates `mirroring`: a service, and copies to another one.
    fn mirrored(&mut self, kind: &'s Directive, depth: usize) -> Option<ServiceDraft> {
        let (name, place) = text(kind, "service")?;
        let mut made = self.service(name, place, depth + 1)?;
        self.sheet.needless(place.number, "it is the upstream of the route");
        let mut mirrors = find(kind, "mirrors").map_or(&[][..], Directive::inner).iter();
        if let Some(mirror) = mirrors.next() {
            let (name, place) = text(mirror, "name")?;
            let copy = self.service(name, place, depth + 1)?;
            let mut pairs = vec![("upstream".to_owned(), DraftValue::from(copy.shares.first()?.0.as_str()))];
            let mut origins = from(place);
            let (percent, place) = text(mirror, "percent").unwrap_or(("0", mirror));
            pairs.push(("share".to_owned(), format!("{percent}%").into()));
            origins.extend(from(place));
            let most =
                text(kind, "maxBodySize").and_then(|(word, place)| Some((word.parse::<i64>().ok()?, place)));
            let bodies = match most {
                Some((most @ 0.., place)) => {
                    origins.extend(from(place));
                    most.unsigned_abs().min(16 << 20)
                }
                Some((_, place)) => {
                    self.sheet.differs(place.number, "bodies of up to 16 MiB are copied", "");
                    16 << 20
                }
                None => 16 << 20,
            };
            let bodies = match text(kind, "mirrorBody") {
                Some((word, place)) => {
                    origins.extend(from(place));
                    if word.eq_ignore_ascii_case("false") {
                        let why = "requests with a body are not copied at all";
                        self.sheet.differs(place.number, why, "");
                        0
                    } else {
                        bodies
                    }
                }
                None => bodies,
            };
            pairs.push(("bodies".to_owned(), crate::values::size(bodies).into()));
            if percent != "0" {
                made.options.set("mirror", DraftValue::Table(pairs), origins);
            }
        }
        for further in mirrors {
            let instead = "have the first one copy them further";
            self.refuse_all(further, "requests are copied to one upstream", instead);
        }
        self.checks(kind);
        Some(made)
    }

    /// Translates `failover`: another service's servers, used if none of the first is up.
    fn failover(
        &mut self,
        definition: &'s Directive,
        kind: &'s Directive,
        depth: usize,
    ) -> Option<ServiceDraft> {
        let names = [text(kind, "service")?, text(kind, "fallback")?];
        let mut joined: Option<(DraftTable, DraftTable)> = None;
        for (priority, (name, place)) in names.into_iter().enumerate() {
            let inner = self.definition("http", "services", name);
            let balancer = inner.and_then(|inner| Some((inner, find(inner, "loadBalancer")?)));
            let Some((inner, balancer)) = balancer.filter(|_| depth < DEPTH_MAX) else {
                let instead = "write an [upstream.NAME] whose servers have a `priority`";
                self.sheet.refuse(
                    place.number,
                    "only services with servers stand in for each other",
                    instead,
                );
                return None;
            };
            let (table, options) = self.balancer(inner, balancer)?;
            self.sheet.needless(place.number, "its servers are those of the upstream");
            joined = Some(match joined {
                None => (table, options),
                Some((mut first, options)) => {
                    if let Some((DraftValue::List(servers), origins)) = table.option("servers") {
                        for server in servers {
                            first.push("servers", with_priority(server, priority as u64), origins.clone());
                        }
                    }
                    (first, options)
                }
            });
        }
        self.checks(kind);
        let (table, options) = joined?;
        let name = self.sheet.upstream(&name_of(&definition.name), table);
        Some(ServiceDraft { shares: vec![(name, 1)], options })
    }

    /// Handles `healthCheck: {}` of services that refer to others.
    fn checks(&mut self, kind: &'s Directive) {
        if let Some(check) = find(kind, "healthCheck") {
            self.needless_all(check, "the state of each server is known");
        }
    }

    pub(super) fn cookie(&mut self, sticky: &'s Directive) -> (DraftValue, Vec<StatementOrigin>) {
        let mut pairs = vec![("by".to_owned(), DraftValue::from("cookie"))];
        let mut origins = from(sticky);
        let Some(cookie) = find(sticky, "cookie") else { return (DraftValue::Table(pairs), origins) };
        origins = from(cookie);
        for option in cookie.inner() {
            let word = option.word(0);
            let pair = match (option.name.to_ascii_lowercase().as_str(), word.parse::<u64>()) {
                ("name", _) => ("name", word.into()),
                ("path", _) => ("path", word.into()),
                ("domain", _) => ("domain", word.into()),
                ("secure", _) => ("secure", word.eq_ignore_ascii_case("true").into()),
                ("samesite", _) if matches!(word, "lax" | "strict" | "none") => ("same_site", word.into()),
                ("maxage", Ok(seconds @ 1..)) => {
                    ("ttl", crate::values::duration(seconds.min(365 * 86_400) * 1000).into())
                }
                ("httponly", _) => {
                    self.sheet.needless(option.number, "scripts cannot read the cookie");
                    continue;
                }
                _ => {
                    self.sheet.needless(option.number, "that is the default");
                    continue;
                }
            };
            pairs.push((pair.0.to_owned(), pair.1));
            origins.extend(from(option));
        }
        self.sheet.differs(cookie.number, "the cookie has another value: sessions start again", "");
        // Browsers reject such a cookie unless it is secure.
        let is_none = pairs.iter().any(|(key, value)| key == "same_site" && *value == "none".into());
        if is_none && !is_on(cookie, "secure") {
            pairs.retain(|(key, _)| key != "secure");
            pairs.push(("secure".to_owned(), true.into()));
        }
        (DraftValue::Table(pairs), origins)
    }
}

/// Notes that statements became a part of a split.
fn definition_cites(sheet: &mut crate::sheet::Sheet<'_>, numbers: &[usize]) {
    for number in numbers {
        sheet.needless(*number, "it is in the `split` of the routes");
    }
}

/// Sets the priority of a server: it is used if no server with a lower number is up.
fn with_priority(server: DraftValue, priority: u64) -> DraftValue {
    let mut pairs = match server {
        DraftValue::Table(pairs) => pairs,
        url => vec![("url".to_owned(), url)],
    };
    pairs.push(("priority".to_owned(), DraftValue::Number(priority)));
    DraftValue::Table(pairs)
}
