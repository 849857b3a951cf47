//! Checks relations between the options of upstreams, and converts them to settings and back.

use std::collections::HashMap;

use balance::{AddressPrefixes, CheckSettings, SERVERS_MAX, Settings, Source};

use crate::consul_options;
use crate::kind::{Located, located};
use crate::matching::FieldName;
use crate::negotiation::TlsVersion;
use crate::pairs::pair;
use crate::reader::{Reader, Span};
use crate::retry_options::RetryWritten;
use crate::settings::{
    Bandwidths, Check, Probe, Protocol, Scheme, Server, SharedSecret, Statuses, StickyCookie, StickySessions,
    StickyTable, Upstream,
};
use crate::sticky_options::{SESSIONS, StickyWritten, TTL, attributes};
use crate::table::{Element, element};
use crate::tls_resolve::{upstream_tls, written_tls};
use crate::upstream_options::UpstreamWritten;
use crate::watch_options::{CheckType, CheckWritten};

/// Adds mistakes about relations between the options of an upstream.
pub(crate) fn check_upstream(at: &Span, written: &UpstreamWritten, reader: &mut Reader<'_>) {
    check_servers(at, written, reader);
    check_hash(written, reader);
    if let Some(sticky) = &written.sticky {
        check_sticky(sticky, written, reader);
    }
    if let Some(check) = &written.check {
        check_check(check, written, reader);
    }
    if let Some(Element { value: eject, at, .. }) = &written.eject
        && eject.longest < eject.base
    {
        refuse(at, "eject: longest is shorter than base", "the same or more", reader);
    }
    if let Some(Element { value: breaker, at, .. }) = &written.breaker
        && breaker.open_max < breaker.open
    {
        refuse(at, "breaker: open_max is shorter than open", "the same or more", reader);
    }
    if let Some(Located { at, .. }) = &written.send_proxy_protocol
        && written.protocol.is_multiplexed()
    {
        let protocol = if written.protocol == Protocol::Http3 { "h3" } else { "h2" };
        let message = format!(
            "send_proxy_protocol says who the one client of a connection is; with protocol = \"{protocol}\" there are many"
        );
        refuse(at, &message, "protocol = \"http/1.1\"", reader);
    }
    if written.protocol == Protocol::Http3 {
        check_http3(written, reader);
    }
}

/// Refuses what HTTP/3 does not have.
fn check_http3(written: &UpstreamWritten, reader: &mut Reader<'_>) {
    for Located { value, at } in written.servers.iter().filter(|server| server.value.scheme != Scheme::Https)
    {
        // RFC 9114 §3.1, RFC 9001: QUIC is encrypted always.
        let message = format!("servers: {value} has no TLS, which protocol = \"h3\" needs");
        refuse(at, &message, "an https:// URL, or protocol = \"h2\" or \"http/1.1\"", reader);
    }
    if let Some(tls) = &written.tls
        && let Some(Located { value: TlsVersion::Tls12, at }) = &tls.value.negotiation.max_version
    {
        let message = "max_version: protocol = \"h3\" needs TLS 1.3, which QUIC is based on";
        refuse(at, message, "\"1.3\", or no max_version", reader);
    }
    if let Some(Element { value: CheckWritten { kind: Some(CheckType::Tcp), .. }, at, .. }) = &written.check {
        let message =
            "check: type = \"tcp\" does not reach servers with protocol = \"h3\", which listen at UDP";
        refuse(at, message, "type = \"tls\", which does a handshake of QUIC, or \"http\"", reader);
    }
}

fn check_servers(at: &Span, written: &UpstreamWritten, reader: &mut Reader<'_>) {
    if written.servers.len() > SERVERS_MAX {
        refuse(at, "servers: there are too many", &format!("at most {SERVERS_MAX}"), reader);
    }
    let is_out = |server: &Located<Server>| server.value.down || server.value.weight == 0;
    if !written.servers.is_empty() && written.servers.iter().all(is_out) {
        let warning = reader.mistake(at, "servers: all have weight 0 or are down, so nothing is answered");
        reader.warn(warning);
    }
    let has_name =
        written.tls.as_ref().is_some_and(|tls| tls.value.name.is_some() || !tls.value.verify.value);
    let mut urls = HashMap::new();
    let mut names = HashMap::new();
    for Located { value, at } in &written.servers {
        if let Some(name) = &value.name
            && let Some(first) = names.insert(name, at)
        {
            let line = reader.line(first);
            let expected = format!("a name other than that of {line}");
            refuse(at, &format!("servers: the name {name:?} is there twice"), &expected, reader);
        }
        consul_options::check_name((&value.host, at), (value.scheme, has_name), reader);
        let first = *urls.entry(value.to_string()).or_insert(at);
        // With names of their own, both are meant.
        if first != at && value.name.is_none() {
            let warning = reader.mistake(at, format!("servers: {value} is there twice"));
            let line = reader.line(first);
            reader.warn(warning.expecting(format!("a weight on the one of {line}")));
        }
    }
}

fn check_hash(written: &UpstreamWritten, reader: &mut Reader<'_>) {
    let policy = written.balance.name;
    let by_key = "balance = \"consistent-hash\"";
    if let Some(Located { value, at }) = &written.hash_key {
        if !written.balance.hashes {
            refuse(at, &format!("hash_key: balance = {policy:?} has no use for it"), by_key, reader);
        } else if policy == "client-address" && !matches!(value, Source::ClientAddress(_)) {
            let message = "hash_key: balance = \"client-address\" goes by the client";
            refuse(at, message, &format!("client or client/24, or {by_key}"), reader);
        }
    }
    if let Some(Located { at, .. }) = written.load_bound.as_ref().filter(|_| policy != "consistent-hash") {
        refuse(at, &format!("load_bound: balance = {policy:?} has no use for it"), by_key, reader);
    }
}

fn check_sticky(
    Element { value: sticky, .. }: &Element<StickyWritten>,
    written: &UpstreamWritten,
    reader: &mut Reader<'_>,
) {
    let Some(Located { value: by, at }) = &sticky.by else { return };
    let policy = written.balance.name;
    if written.balance.hashes {
        let message = format!("sticky: balance = {policy:?} keeps clients on servers by itself");
        refuse(at, &message, "another balance, or no sticky sessions", reader);
    }
    let is_bytes = |server: &Located<crate::settings::Server>| server.value.scheme == Scheme::Tcp;
    if written.servers.iter().any(is_bytes) && !matches!(by, Some(Source::ClientAddress(_))) {
        refuse(
            at,
            "sticky: of what goes to a tcp:// server only the client is known",
            "by = \"client\"",
            reader,
        );
    }
    crate::sticky_options::check(sticky, reader);
}

fn check_check(
    Element { value: check, at, .. }: &Element<CheckWritten>,
    written: &UpstreamWritten,
    reader: &mut Reader<'_>,
) {
    let Some(kind) = check.kind else { return };
    let options = [
        ("path", check.path.as_ref().map(|it| &it.at), CheckType::Http),
        ("host", check.host.as_ref().map(|it| &it.at), CheckType::Http),
        ("status", check.status.as_ref().map(|it| &it.at), CheckType::Http),
        ("headers", check.headers.as_ref().map(|it| &it.at), CheckType::Http),
        ("body", check.body.as_ref().map(|it| &it.at), CheckType::Http),
        ("service", check.service.as_ref().map(|it| &it.at), CheckType::Grpc),
        ("command", check.command.as_ref().map(|it| &it.at), CheckType::Command),
    ];
    for (option, at, of) in options {
        if let Some(at) = at.filter(|_| kind != of) {
            let message = format!("check: {option} is not for type = {:?}", kind.word());
            refuse(at, &message, &format!("type = {:?}", of.word()), reader);
        }
    }
    match (kind, &check.command) {
        (CheckType::Command, None) if reader.is_whole() => {
            refuse(at, "check has no command", "a program and its arguments", reader);
        }
        (CheckType::Command, Some(Located { value, at })) if value.first().is_some_and(String::is_empty) => {
            refuse(at, "command: the program is empty", "a program and its arguments", reader);
        }
        _ => {}
    }
    if check.interval_in_doubt.is_some_and(|in_doubt| in_doubt > check.interval) {
        refuse(at, "check: interval_in_doubt is longer than interval", "the same or less", reader);
    }
    let is_unix = |server: &Located<crate::settings::Server>| {
        matches!(server.value.host, crate::settings::ServerHost::Unix(_))
    };
    if check.port.is_some() && written.servers.iter().any(is_unix) {
        refuse(at, "check: port is of no use for a Unix socket", "no port", reader);
    }
}

fn refuse(at: &Span, message: &str, expected: &str, reader: &mut Reader<'_>) {
    let mistake = reader.mistake(at, message);
    reader.add(mistake.expecting(expected));
}

/// Converts an upstream without mistakes. `secret` is that of `[redis]`.
pub(crate) fn upstream(
    name: String,
    written: UpstreamWritten,
    secret: Option<&SharedSecret>,
) -> Option<Upstream> {
    let settings = Settings {
        load_bound_percent: match written.load_bound {
            Some(bound) => bound.value,
            None => Settings::default().load_bound_percent,
        },
        breaker: written.breaker.map(|breaker| breaker.value),
        ejection: written.eject.map(|eject| eject.value),
        ..written.settings
    };
    let client = Source::ClientAddress(AddressPrefixes::default());
    let sticky = match written.sticky {
        Some(sticky) => Some(sticky_sessions(&name, sticky.value, secret)?),
        None => None,
    };
    let check = match written.check {
        Some(check) => Some(self::check(check.value)?),
        None => None,
    };
    Some(Upstream {
        name,
        servers: written.servers.into_iter().map(|server| server.value).collect(),
        dns: written.dns,
        balance: written.balance,
        hash_key: written.hash_key.map_or(client, |key| key.value),
        settings,
        sticky,
        queue: written.queue,
        check,
        retry: written.retry.retry,
        retry_budget: written.retry.budget,
        host: written.host,
        protocol: written.protocol,
        send_proxy_protocol: written.send_proxy_protocol.map(|version| version.value),
        tls: upstream_tls(written.tls),
        pool: written.pool,
        bandwidths: Bandwidths { down: written.rate, up: written.upload_rate },
        link: written.link,
    })
}

fn sticky_sessions(
    upstream: &str,
    written: StickyWritten,
    secret: Option<&SharedSecret>,
) -> Option<StickySessions> {
    let ttl = written.ttl.as_ref().map(|ttl| ttl.value);
    Some(match written.by.as_ref()?.value.clone() {
        None => StickySessions::Cookie(StickyCookie {
            attributes: attributes(&written),
            name: written.name.map_or_else(|| format!("vanward_{upstream}"), |name| name.value),
            ttl: ttl.flatten(),
            secrets: written.secret_file.map(|secrets| secrets.value),
        }),
        Some(source) => StickySessions::Table(StickyTable {
            source,
            ttl: ttl.flatten().unwrap_or(TTL),
            sessions_max: written.sessions.map_or(SESSIONS, |sessions| sessions.value),
            shared: secret.filter(|_| written.shared.is_some_and(|shared| shared.value)).cloned(),
        }),
    })
}

fn check(written: CheckWritten) -> Option<Check> {
    let CheckWritten { interval, rise, fall, jitter_percent, timeout, port, .. } = written;
    let interval_in_doubt = written.interval_in_doubt.unwrap_or(interval / 2);
    let probe = match written.kind? {
        CheckType::Http => Probe::Http {
            path: written.path.map_or_else(|| "/".to_owned(), |path| path.value),
            host: written.host.map(|host| host.value),
            status: written.status.map_or_else(Statuses::successful, |status| status.value),
            headers: written
                .headers
                .map(|headers| headers.value.into_iter().map(|pair| (pair.name.0, pair.value)).collect())
                .unwrap_or_default(),
            body: written.body.map(|body| body.value),
        },
        CheckType::Tcp => Probe::Tcp,
        CheckType::Tls => Probe::Tls,
        CheckType::Grpc => {
            Probe::Grpc { service: written.service.map(|service| service.value).unwrap_or_default() }
        }
        CheckType::Command => Probe::Command { command: written.command?.value },
    };
    let settings = CheckSettings { interval, interval_in_doubt, jitter_percent, rise, fall };
    Some(Check { settings, timeout, port, probe })
}

/// Converts back to parsed options, for printing.
impl From<&Upstream> for UpstreamWritten {
    fn from(upstream: &Upstream) -> Self {
        let bound = upstream.settings.load_bound_percent;
        Self {
            servers: upstream.servers.iter().cloned().map(located).collect(),
            dns: upstream.dns,
            balance: upstream.balance,
            hash_key: upstream.balance.hashes.then(|| located(upstream.hash_key.clone())),
            load_bound: (upstream.balance.name == "consistent-hash").then(|| located(bound)),
            settings: upstream.settings,
            sticky: upstream.sticky.as_ref().map(|sticky| element(StickyWritten::from(sticky))),
            queue: upstream.queue,
            check: upstream.check.as_ref().map(|check| element(CheckWritten::from(check))),
            eject: upstream.settings.ejection.map(element),
            breaker: upstream.settings.breaker.map(element),
            retry: RetryWritten { retry: upstream.retry.clone(), budget: upstream.retry_budget },
            send_proxy_protocol: upstream.send_proxy_protocol.map(located),
            host: upstream.host.clone(),
            protocol: upstream.protocol,
            tls: written_tls(upstream),
            pool: upstream.pool,
            rate: upstream.bandwidths.down.clone(),
            upload_rate: upstream.bandwidths.up.clone(),
            link: upstream.link.clone(),
        }
    }
}

impl From<&StickySessions> for StickyWritten {
    fn from(sticky: &StickySessions) -> Self {
        match sticky {
            StickySessions::Cookie(StickyCookie { name, ttl, attributes, secrets }) => Self {
                by: Some(located(None)),
                ttl: Some(located(*ttl)),
                sessions: None,
                shared: None,
                name: Some(located(name.clone())),
                path: Some(located(attributes.path.clone())),
                domain: attributes.domain.clone().map(located),
                secure: attributes.secure.map(located),
                same_site: Some(located(attributes.same_site)),
                secret_file: secrets.clone().map(located),
            },
            StickySessions::Table(StickyTable { source, ttl, sessions_max, shared }) => Self {
                by: Some(located(Some(source.clone()))),
                ttl: Some(located(Some(*ttl))),
                sessions: Some(located(*sessions_max)),
                shared: Some(located(shared.is_some())),
                ..Self::default()
            },
        }
    }
}

impl From<&Check> for CheckWritten {
    fn from(check: &Check) -> Self {
        let CheckSettings { interval, interval_in_doubt, jitter_percent, rise, fall } = check.settings;
        let written = Self {
            interval,
            interval_in_doubt: Some(interval_in_doubt),
            jitter_percent,
            rise,
            fall,
            timeout: check.timeout,
            port: check.port,
            ..Self::default()
        };
        match check.probe.clone() {
            Probe::Http { path, host, status, headers, body } => {
                let headers: Vec<_> =
                    headers.into_iter().map(|(name, value)| pair(FieldName(name), value)).collect();
                Self {
                    kind: Some(CheckType::Http),
                    path: Some(located(path)),
                    host: host.map(located),
                    status: Some(located(status)),
                    headers: (!headers.is_empty()).then(|| located(headers)),
                    body: body.map(located),
                    ..written
                }
            }
            Probe::Tcp => Self { kind: Some(CheckType::Tcp), ..written },
            Probe::Tls => Self { kind: Some(CheckType::Tls), ..written },
            Probe::Grpc { service } => {
                Self { kind: Some(CheckType::Grpc), service: Some(located(service)), ..written }
            }
            Probe::Command { command } => {
                Self { kind: Some(CheckType::Command), command: Some(located(command)), ..written }
            }
        }
    }
}
