//! Checks the options of upstreams, and converts them to settings.

use std::collections::HashMap;

use balance::{AddressPrefixes, CheckSettings, FleetSettings, SessionSource};

use crate::document::reader::{Reader, Span, refuse};
use crate::option::kind::Located;
use crate::option::server::Server;
use crate::option::statuses::Statuses;
use crate::option::table::Element;
use crate::tables::redis::SharedSecret;
use crate::tables::tls::negotiation::TlsVersion;
use crate::tables::tls::resolve::upstream_tls;
use crate::tables::upstream::options::UpstreamWritten;
use crate::tables::upstream::relations::{Broken, CheckRelations, Relations, UpstreamPlace};
use crate::tables::upstream::sticky::{SESSIONS, StickyWritten, TTL, attributes};
use crate::tables::upstream::watch::{CheckType, CheckWritten};
use crate::tables::upstream::{
    Check, Probe, StickyCookie, StickySessions, StickyTable, Upstream, fastcgi, sticky,
};

/// Adds mistakes about relations between the options of an upstream.
pub(crate) fn check_upstream(at: &Span, written: &UpstreamWritten, reader: &mut Reader<'_>) {
    warn_of_servers(at, written, reader);
    if let Some(Located { at, .. }) =
        written.load_bound.as_ref().filter(|_| written.balance.name != "consistent-hash")
    {
        let message = format!("load_bound: balance = {:?} does not use it", written.balance.name);
        refuse(at, &message, "balance = \"consistent-hash\"", reader);
    }
    if let Some(sticky) = &written.sticky
        && sticky.value.by.is_some()
    {
        sticky::check(&sticky.value, reader);
    }
    if let Some(check) = &written.check {
        check_check(check, reader);
    }
    if let Some(scripts) = &written.fastcgi {
        fastcgi::check(scripts, reader);
    }
    let place = |of: UpstreamPlace| match of {
        UpstreamPlace::Server(index) => &written.servers[index].at,
        UpstreamPlace::HashKey => written.hash_key.as_ref().map_or(at, |key| &key.at),
        UpstreamPlace::Sticky => {
            written.sticky.as_ref().and_then(|sticky| sticky.value.by.as_ref()).map_or(at, |by| &by.at)
        }
        UpstreamPlace::Check => written.check.as_ref().map_or(at, |check| &check.at),
        UpstreamPlace::Eject => written.eject.as_ref().map_or(at, |eject| &eject.at),
        UpstreamPlace::Breaker => written.breaker.as_ref().map_or(at, |breaker| &breaker.at),
        UpstreamPlace::ProxyProtocol => {
            written.send_proxy_protocol.as_ref().map_or(at, |version| &version.at)
        }
        UpstreamPlace::Fastcgi => written.fastcgi.as_ref().map_or(at, |fastcgi| &fastcgi.at),
        UpstreamPlace::MaxVersion => max_version(written).map_or(at, |version| &version.at),
        UpstreamPlace::Upstream => at,
    };
    for Broken { at, message, expected, first } in relations(written).broken() {
        let expected = match first {
            Some(first) => {
                format!("a name other than the one in {}", reader.line(&written.servers[first].at))
            }
            None => expected,
        };
        refuse(place(at), &message, &expected, reader);
    }
}

/// The options that depend on each other.
fn relations(written: &UpstreamWritten) -> Relations<'_> {
    let tls = written.tls.as_ref().map(|tls| &tls.value);
    let check = |check: &CheckWritten| {
        Some(CheckRelations {
            kind: check.kind?,
            has_port: check.port.is_some(),
            is_slower_in_doubt: check.interval_in_doubt.is_some_and(|in_doubt| in_doubt > check.interval),
        })
    };
    Relations {
        servers: written.servers.iter().map(|server| &server.value).collect(),
        balance: written.balance,
        hash_key: written.hash_key.as_ref().map(|key| &key.value),
        sticky: (written.sticky.as_ref())
            .and_then(|sticky| sticky.value.by.as_ref().map(|by| by.value.as_ref())),
        check: written.check.as_ref().and_then(|written| check(&written.value)),
        eject: written.eject.as_ref().map(|eject| &eject.value),
        breaker: written.breaker.as_ref().map(|breaker| &breaker.value),
        protocol: written.protocol,
        has_fastcgi: written.fastcgi.is_some(),
        sends_proxy_protocol: written.send_proxy_protocol.is_some(),
        permits_tls13: max_version(written).is_none_or(|version| version.value != TlsVersion::Tls12),
        is_name_known: tls.is_some_and(|tls| tls.name.is_some() || !tls.verify.value),
    }
}

fn max_version(written: &UpstreamWritten) -> Option<&Located<TlsVersion>> {
    written.tls.as_ref()?.value.negotiation.max_version.as_ref()
}

/// Warns of servers that get no requests, and of duplicates.
fn warn_of_servers(at: &Span, written: &UpstreamWritten, reader: &mut Reader<'_>) {
    let is_out = |server: &Located<Server>| server.value.down || server.value.weight == 0;
    if !written.servers.is_empty() && written.servers.iter().all(is_out) {
        let warning = reader.mistake(at, "servers: all have weight 0 or are down, so every request fails");
        reader.warn(warning);
    }
    let mut urls = HashMap::new();
    for Located { value, at } in &written.servers {
        let first = *urls.entry(value.to_string()).or_insert(at);
        // With separate names, both are intended.
        if first != at && value.name.is_none() {
            let warning = reader.mistake(at, format!("servers: {value} appears twice"));
            let line = reader.line(first);
            reader.warn(warning.expecting(format!("a weight on the one of {line}")));
        }
    }
}

fn check_check(Element { value: check, at, .. }: &Element<CheckWritten>, reader: &mut Reader<'_>) {
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
}

/// Converts an upstream without mistakes. `secret` is that of `[redis]`.
pub(crate) fn upstream(
    name: String,
    written: UpstreamWritten,
    secret: Option<&SharedSecret>,
) -> Option<Upstream> {
    let protocol = written.spoken();
    let settings = FleetSettings {
        load_bound_percent: match written.load_bound {
            Some(bound) => bound.value,
            None => FleetSettings::default().load_bound_percent,
        },
        breaker: written.breaker.map(|breaker| breaker.value),
        ejection: written.eject.map(|eject| eject.value),
        ..written.settings
    };
    let client = SessionSource::ClientAddress(AddressPrefixes::default());
    let sticky = match written.sticky {
        Some(sticky) => Some(sticky_sessions(&name, sticky.value, secret)?),
        None => None,
    };
    let check = match written.check {
        Some(check) => Some(self::check(check.value)?),
        None => None,
    };
    let fastcgi = match written.fastcgi {
        Some(scripts) => Some(fastcgi::settings(scripts.value)?),
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
        protocol,
        fastcgi,
        send_proxy_protocol: written.send_proxy_protocol.map(|version| version.value),
        tls: upstream_tls(written.tls),
        pool: written.pool,
        bandwidths: written.bandwidths,
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
