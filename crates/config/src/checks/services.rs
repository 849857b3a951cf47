//! Checks Redis, Consul, the instances of a cache, the dashboard and link profiles.

use std::collections::HashMap;

use mistake::nearest;

use crate::checks::tls::check_pair;
use crate::document::reader::Reader;
use crate::option::kind::Located;
use crate::option::server::{Scheme, ServerHost};
use crate::option::table::one_of;
use crate::tables::cache::CachePeers;
use crate::tables::cache::peers::{PeersWritten, written_member};
use crate::tables::consul::{Consul, ConsulWritten};
use crate::tables::file::File;
use crate::tables::jwt::options::is_loopback;
use crate::tables::profile::PROFILES;
use crate::tables::redis::RedisWritten;

/// Refuses what would show the proxy to everybody, and what would have no effect.
pub(crate) fn check_dashboard(file: &File, reader: &mut Reader<'_>) {
    let Some(Located { value: address, at }) = &file.dashboard else {
        let others = [
            ("dashboard_write", file.dashboard_write.as_ref().map(|is_on| &is_on.at)),
            ("dashboard_token_file", file.dashboard_token_file.as_ref().map(|tokens| &tokens.at)),
            ("dashboard_hosts", file.dashboard_hosts.as_ref().map(|hosts| &hosts.at)),
        ];
        for (name, at) in others.into_iter().filter_map(|(name, at)| Some((name, at?))) {
            let mistake = reader.mistake(at, format!("{name}: dashboard is not set"));
            reader.add(mistake.expecting("dashboard = \"127.0.0.1:9901\" as well".to_owned()));
        }
        return;
    };
    if !address.ip().is_loopback() && file.dashboard_token_file.is_none() && reader.is_whole() {
        let problem = format!("dashboard: other machines can reach {address}, but it has no token");
        let mistake = reader.mistake(at, problem);
        reader.add(
            mistake
                .expecting("a loopback address such as 127.0.0.1:9901, or dashboard_token_file".to_owned()),
        );
    } else if address.ip().is_unspecified() {
        let warning = reader.mistake(
            at,
            format!(
                "dashboard: {address} is every address of this machine, and browsers send tokens to it in \
                 the clear"
            ),
        );
        let expected =
            "an address in the operators' network, or a loopback address behind a [[listen]] with tls";
        reader.warn(warning.expecting(expected.to_owned()));
    }
}

/// Adds mistakes about options that have no effect, and about limits that are shared through nothing.
pub(crate) fn check_redis(file: &File, reader: &mut Reader<'_>) {
    check_sealed(file, reader);
    let Some(redis) = &file.redis else {
        let rates = file.routes.iter().flat_map(|route| &route.value.rate_limit);
        let rates = rates.filter_map(|limit| limit.value.shared.as_ref());
        let concurrency = file.routes.iter().flat_map(|route| &route.value.concurrency);
        let concurrency = concurrency.filter_map(|limit| limit.value.shared.as_ref());
        for shared in rates.chain(concurrency) {
            if reader.is_whole() {
                let what = "shared: instances share through [redis], which is missing";
                let mistake = reader.mistake(&shared.at, what);
                reader.add(mistake.expecting("[redis] with its url as well, or no shared".to_owned()));
            }
        }
        return;
    };
    let RedisWritten { url, user, password_file, ca, .. } = &redis.value;
    let is_plain = url.as_ref().is_some_and(|url| url.server.scheme != Scheme::Https);
    if let Some(ca) = ca.as_ref().filter(|_| is_plain) {
        let mistake = reader.mistake(&ca.at, "ca: Redis is reached without TLS");
        reader.add(mistake.expecting("a url with rediss://, or no ca"));
    }
    if user.is_some() && password_file.is_none() && redis.is_intact {
        let mistake = reader.mistake(&redis.at, "user: a Redis user needs a password");
        reader.add(mistake.expecting("password_file as well, or no user"));
    }
}

/// Decisions of authentication servers, and sessions, are shared through Redis, sealed with the secret.
pub(crate) fn check_sealed(file: &File, reader: &mut Reader<'_>) {
    let is_sealed = match &file.redis {
        Some(redis) if redis.value.secret_file.is_none() && !redis.is_intact => return,
        Some(redis) => redis.value.secret_file.is_some(),
        None => false,
    };
    if is_sealed || !reader.is_whole() {
        return;
    }
    let decisions = file.routes.iter().filter_map(|route| route.value.forward_auth.as_ref()?.value.shared());
    let sessions =
        file.upstreams.iter().filter_map(|(_, _, upstream)| upstream.sticky.as_ref()?.value.shared());
    for (at, what) in decisions.map(|at| (at, "decisions")).chain(sessions.map(|at| (at, "sessions"))) {
        let what = match &file.redis {
            None => "shared: instances share through [redis], which is missing".to_owned(),
            Some(_) => format!("shared: [redis] has no secret_file to encrypt {what} with"),
        };
        let mistake = reader.mistake(at, what);
        reader.add(mistake.expecting("[redis] with its url and secret_file as well, or no shared"));
    }
}

/// Adds mistakes about options that have no effect, and a warning of a token that others can read on its way.
pub(crate) fn check_consul(file: &File, reader: &mut Reader<'_>) {
    let ConsulWritten { address, token_file, ca, cert, key, name } = &file.consul;
    check_pair(cert, key, reader);
    let server = &address.value.server;
    if server.scheme == Scheme::Https {
        return;
    }
    let paths = [("ca", ca), ("cert", cert), ("key", key)];
    let written = paths.into_iter().filter_map(|(option, path)| Some((option, &path.as_ref()?.at)));
    for (option, at) in written.chain(name.as_ref().map(|name| ("name", &name.at))) {
        let mistake = reader.mistake(at, format!("{option}: Consul is reached without TLS"));
        reader.add(mistake.expecting(format!("an address with https://, or no {option}")));
    }
    if let Some(token) = token_file.as_ref().filter(|_| !is_loopback(&server.host)) {
        let warning = reader
            .mistake(&token.at, "token_file: without TLS, an attacker on the network can read the token");
        reader.warn(warning.expecting("an address with https://"));
    }
}

/// Warns of a table that no server makes use of.
pub(crate) fn warn_of_unused_consul(file: &File, reader: &mut Reader<'_>) {
    let mut servers = file.upstreams.iter().flat_map(|(.., upstream)| &upstream.servers);
    if servers.any(|server| matches!(server.value.host, ServerHost::Catalog(_))) {
        return;
    }
    let ConsulWritten { address, token_file, ca, cert, key, name } = &file.consul;
    let paths = [token_file, ca, cert, key].into_iter().flatten().map(|path| &path.at);
    // The default is what is printed of a file without it.
    let address = (address.value != Consul::default().address).then_some(&address.at);
    let written = paths.chain(address).chain(name.iter().map(|name| &name.at));
    if let Some(at) = written.min_by_key(|at| at.start) {
        let warning = reader.mistake(at, "[consul]: no upstream uses a service from Consul");
        reader.warn(warning.expecting("servers such as http+consul://web, or no [consul]"));
    }
}

/// Adds mistakes about the instances, and about names that belong to the cache.
pub(crate) fn check_peers(file: &File, reader: &mut Reader<'_>) {
    let peers = file.cache.as_ref().and_then(|cache| cache.value.peers.as_ref());
    let Some(peers) = peers else { return };
    let PeersWritten { address, members, .. } = &peers.value;
    let mut places = HashMap::new();
    for Located { value, at } in members.iter().flatten() {
        let first = *places.entry(value.to_string()).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("members: {} appears twice", written_member(value)));
            reader.add(mistake.expecting("each instance once"));
        }
    }
    if let Some(Located { value, at }) = address
        // One that cannot be read may be it.
        && peers.is_intact
        && members.is_some()
        && !places.contains_key(&value.to_string())
    {
        let what = format!("address: {} is not among the members", written_member(value));
        reader.add(reader.mistake(at, what).expecting("one of members"));
    }
    let caches = file.routes.iter().filter_map(|route| route.value.cache.as_ref());
    for Located { at, .. } in caches.filter_map(|cache| cache.value.key_values.first()) {
        let what =
            "key_values: other instances do not know all that values may depend on, such as the connection";
        reader.add(reader.mistake(at, what).expecting("key_headers or key_cookies, or no [cache.peers]"));
    }
    let upstreams = file.upstreams.iter().map(|(at, name, _)| (name.as_str(), at));
    let names = file.listen.iter().filter_map(|listen| listen.value.name.as_ref());
    let listeners = names.map(|Located { value, at }| (value.as_str(), at));
    for (_, at) in upstreams.chain(listeners).filter(|(name, _)| *name == CachePeers::NAME) {
        let what = format!("{:?} is reserved for the instances in [cache.peers]", CachePeers::NAME);
        reader.add(reader.mistake(at, what).expecting("another name"));
    }
}

/// Adds a mistake for each listener with an unknown profile, and warns of profiles that no listener has or could get.
pub(crate) fn check_profiles(file: &File, reader: &mut Reader<'_>) {
    let own = file.profiles.iter().map(|(_, name, _)| name.as_str());
    let known: Vec<&str> = own.chain(PROFILES.iter().map(|profile| profile.name)).collect();
    let wanted: Vec<&Located<String>> =
        file.listen.iter().filter_map(|listen| listen.value.profile.as_ref()).collect();
    for Located { value, at } in wanted.iter().filter(|name| !known.contains(&name.value.as_str())) {
        // What is missing may have been lost with a line that is no TOML.
        if reader.is_whole() {
            let mistake = reader.mistake(at, format!("profile: no link is named {value:?}"));
            let near = nearest(value, known.iter().copied()).map(str::to_owned);
            reader.add(mistake.meaning(near).expecting(one_of(&known)));
        }
    }
    // `vanward shape` can give a listener any of them.
    if reader.has_mistakes() || file.admin.is_some() || file.dashboard_write.is_some() {
        return;
    }
    for (at, name, _) in &file.profiles {
        if !wanted.iter().any(|wanted| wanted.value == *name) {
            let warning = reader.mistake(at, format!("no listener has profile {name:?}"));
            reader.warn(warning);
        }
    }
}
