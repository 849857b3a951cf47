//! Captured traffic as requests of a proof.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use capture::{Capture, CapturedBody, CapturedRequest, CapturedScheme};
use ipnet::Ipv4Net;

use crate::generate::BODY_MAX;
use crate::old::{OldConfiguration, split_port};
use crate::request::{MARK, OriginBehaviour, ProofRequest, RequestRow, SHARE};
use crate::stand_in;

/// Fields of one connection, and fields that a proof sets itself.
const LEFT_OUT: [&str; 11] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "expect",
    "host",
];

/// Returns up to `count` captured requests, in their order. Clients of the old configuration's networks have addresses
/// in the stand-ins of these, and each client has one address.
pub fn captured(old: &OldConfiguration, capture: &Capture, count: usize) -> Vec<ProofRequest> {
    let mut clients = BTreeMap::new();
    let requests = capture.requests.iter().filter(|request| request.target.starts_with('/'));
    let share = old.has_cache().then_some(0);
    let first = capture.requests.iter().find_map(|request| request.time_ms);
    requests
        .flat_map(|request| behaviours_of(request).iter().map(move |behaviour| (request, *behaviour)))
        .take(count)
        .enumerate()
        .map(|(number, (captured, behaviour))| {
            let network = captured.client.and_then(|client| network_of(old, client));
            let next = clients.len();
            let place = *clients.entry(captured.client).or_insert(next);
            let inside = network.as_ref().and_then(|network| stand_in::client_in(old, network, place));
            let client = inside.unwrap_or_else(|| stand_in::visitor(place));
            // All may get what is stored for the others, as in the traffic itself.
            let request = of_captured(old, captured);
            let since = first.zip(captured.time_ms).map(|(first, time)| time.saturating_sub(first));
            let due = since.map(Duration::from_millis);
            ProofRequest { number, client, network, share, behaviour, due, ..request }
        })
        .collect()
}

fn of_captured(old: &OldConfiguration, captured: &CapturedRequest) -> ProofRequest {
    let authority = captured.host.as_deref().unwrap_or_default();
    let (host, port) = split_port(authority);
    let door = door_of(old, captured.scheme, host, port);
    let version = captured.version.as_deref();
    let has_http2 = old.doors.get(door).is_some_and(|door| door.has_http2);
    let field = |name: &str| captured.field(name).unwrap_or_default().to_ascii_lowercase();
    let is_upgrade = field("upgrade") == "websocket";
    let is_sent = |name: &str| {
        let own = [MARK, SHARE].iter().any(|own| own.eq_ignore_ascii_case(name));
        !own && !LEFT_OUT.iter().any(|left_out| left_out.eq_ignore_ascii_case(name))
    };
    let visible = |value: &str| value.chars().filter(|letter| (' '..='~').contains(letter)).collect();
    let fields = captured.fields.iter().filter(|(name, _)| is_sent(name));
    let content =
        captured.body.as_ref().and_then(CapturedBody::content).filter(|content| !content.is_empty());
    let request = ProofRequest {
        number: 0,
        door,
        client: Ipv4Addr::LOCALHOST,
        network: None,
        method: captured.method.clone(),
        host: if host.is_empty() { usual_host(old, door) } else { host.to_owned() },
        target: captured.target.clone(),
        fields: fields.map(|(name, value)| (name.clone(), visible(value))).collect(),
        body: content.as_ref().map(Vec::len).or_else(|| body_of(captured)),
        content,
        is_chunked: field("transfer-encoding") == "chunked",
        behaviour: OriginBehaviour::Page,
        aim: None,
        row: RequestRow::Alone,
        is_http2: has_http2 && matches!(version, Some("2" | "3")) && !is_upgrade,
        follows: false,
        share: None,
        due: None,
    };
    if is_upgrade { request.upgraded() } else { request }
}

/// Chooses the door that a request came to: by its port, else by its host and scheme.
fn door_of(old: &OldConfiguration, scheme: Option<CapturedScheme>, host: &str, port: Option<u16>) -> usize {
    let is_tls = scheme.map(|scheme| scheme == CapturedScheme::Https);
    let serves = |door: usize| {
        let has_host = |site: &crate::old::Site| {
            site.doors.contains(&door) && site.hosts.iter().any(|pattern| pattern.holds(host) == Some(true))
        };
        old.sites.iter().any(has_host)
    };
    let fits = |door: usize| {
        let known = &old.doors[door];
        let port_fits = port.map(|port| port == known.port);
        let scheme_fits = is_tls.map(|is_tls| is_tls == known.is_tls);
        // Without a scheme, a door with TLS is likelier: the other one often redirects to it.
        (
            port_fits == Some(true),
            scheme_fits != Some(false),
            serves(door),
            scheme_fits.is_none() && known.is_tls,
        )
    };
    // The first one of the best.
    (0..old.doors.len()).rev().max_by_key(|door| fits(*door)).unwrap_or(0)
}

/// A host of a door, for requests whose host is not known.
fn usual_host(old: &OldConfiguration, door: usize) -> String {
    let mut random = crate::pattern::Random::new(1);
    let hosts = old.sites.iter().filter(|site| site.doors.contains(&door)).flat_map(|site| &site.hosts);
    let found = hosts.filter_map(|host| host.matching(&mut random).into_iter().next()).next();
    found.unwrap_or_else(|| "unknown.example".to_owned())
}

/// The narrowest network of the old configuration that a client is in.
fn network_of(old: &OldConfiguration, client: IpAddr) -> Option<String> {
    let IpAddr::V4(client) = client.to_canonical() else { return None };
    let parsed = old.networks.iter().filter_map(|written| {
        let address = || written.parse::<Ipv4Addr>().ok().map(Ipv4Net::from);
        Some((written, written.parse::<Ipv4Net>().ok().or_else(address)?))
    });
    let around = parsed.filter(|(_, network)| network.prefix_len() > 0 && network.contains(&client));
    around.max_by_key(|(_, network)| network.prefix_len()).map(|(written, _)| written.clone())
}

fn body_of(captured: &CapturedRequest) -> Option<usize> {
    let usual = matches!(captured.method.as_str(), "POST" | "PUT" | "PATCH").then_some(0);
    let length = captured.body.as_ref().map(|body| body.bytes.min(BODY_MAX) as usize);
    length.or(usual)
}

/// The answers of the server that are closest to the captured one. The proxy may have answered 401 itself: a server that
/// refuses the request, too, would hide that another proxy does not.
fn behaviours_of(captured: &CapturedRequest) -> &'static [OriginBehaviour] {
    let Some(response) = &captured.response else { return &[OriginBehaviour::Page] };
    let stored = response.field("cache-control").unwrap_or_default().to_ascii_lowercase();
    match response.status {
        301 | 302 | 303 | 307 | 308 => &[OriginBehaviour::Moved],
        401 => &[OriginBehaviour::Page, OriginBehaviour::Unauthorized],
        404 | 410 => &[OriginBehaviour::Missing],
        500.. => &[OriginBehaviour::Unavailable],
        _ if stored.contains("private") || stored.contains("no-store") => &[OriginBehaviour::Private],
        _ if response.field("set-cookie").is_some() => &[OriginBehaviour::Cookie],
        _ if stored.contains("max-age") || stored.contains("public") => &[OriginBehaviour::Cacheable],
        _ => &[OriginBehaviour::Page],
    }
}

#[cfg(test)]
mod tests {
    use capture::CapturedResponse;

    use super::*;
    use crate::OldProxy;
    use crate::old::{OldDoor, Site};
    use crate::pattern::TextPattern;

    /// A redirect to HTTPS on port 80, a site on 443, and another on 8080.
    fn old() -> OldConfiguration {
        let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
        old.door(OldDoor::plain(80));
        old.door(OldDoor { is_tls: true, has_http2: true, ..OldDoor::plain(443) });
        old.door(OldDoor::plain(8080));
        ["10.0.0.0/8", "10.1.0.0/16"].iter().for_each(|network| old.network(network));
        let site = |doors: &[usize], host: &str| Site {
            doors: doors.to_vec(),
            hosts: vec![TextPattern::Exact(host.to_owned())],
            rules: Vec::new(),
        };
        old.sites = vec![site(&[0, 1], "a.example"), site(&[2], "b.example")];
        old
    }

    fn request(target: &str) -> CapturedRequest {
        CapturedRequest { method: "GET".to_owned(), target: target.to_owned(), ..Default::default() }
    }

    #[test]
    fn requests_go_where_they_came() {
        let with = |scheme, host: Option<&str>| CapturedRequest {
            scheme,
            host: host.map(str::to_owned),
            version: Some("2".to_owned()),
            ..request("/x?y")
        };
        for (scheme, host, door, name) in [
            (None, Some("a.example"), 1, "a.example"),
            (Some(CapturedScheme::Http), Some("a.example"), 0, "a.example"),
            (Some(CapturedScheme::Https), Some("a.example:443"), 1, "a.example"),
            (None, Some("a.example:80"), 0, "a.example"),
            (None, Some("b.example"), 2, "b.example"),
            (Some(CapturedScheme::Http), Some("b.example:8080"), 2, "b.example"),
            (None, None, 1, "a.example"),
        ] {
            let made = of_captured(&old(), &with(scheme, host));
            assert_eq!((made.door, made.host.as_str()), (door, name), "{scheme:?} {host:?}");
            assert_eq!((made.is_http2, made.target.as_str()), (door == 1, "/x?y"), "{scheme:?} {host:?}");
        }
    }

    #[test]
    fn clients_keep_their_addresses_and_networks() {
        let from = |client: &str| CapturedRequest { client: client.parse().ok(), ..request("/") };
        let requests = ["10.1.2.3", "10.2.2.3", "192.0.2.7", "::ffff:10.2.2.3", "192.0.2.7", "2001:db8::1"]
            .map(from)
            .to_vec();
        let made = captured(&old(), &Capture { requests, ..Default::default() }, 100);
        let networks: Vec<_> = made.iter().map(|request| request.network.as_deref().unwrap_or("-")).collect();
        assert_eq!(networks, ["10.1.0.0/16", "10.0.0.0/8", "-", "10.0.0.0/8", "-", "-"]);
        assert_eq!(made[2].client, made[4].client);
        assert_ne!(made[2].client, made[5].client);
        assert!(made.iter().all(|request| request.client.is_loopback()));
        let numbers: Vec<_> = made.iter().map(|request| request.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        assert_eq!(captured(&old(), &Capture::default(), 3), Vec::new());
    }

    #[test]
    fn requests_are_due_as_long_after_the_first_one_as_they_came() {
        let at = |time_ms: Option<u64>| CapturedRequest { time_ms, ..request("/") };
        let requests = [None, Some(5_000), Some(6_500), Some(4_000)].map(at).to_vec();
        let made = captured(&old(), &Capture { requests, ..Default::default() }, 100);
        let due: Vec<_> = made.iter().map(|request| request.due.map(|due| due.as_millis())).collect();
        assert_eq!(due, [None, Some(0), Some(1_500), Some(0)]);
    }

    #[test]
    fn fields_bodies_and_answers() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let post = CapturedRequest {
            fields: vec![
                field("Connection", "close"),
                field("X-Vanward-Proof", "9 page"),
                field("Cookie", "a=b"),
                field("X-A", "b\r\nX-C: d"),
            ],
            body: Some(CapturedBody { bytes: 7, base64: None }),
            ..request("/")
        };
        let made = of_captured(&old(), &CapturedRequest { method: "POST".to_owned(), ..post });
        assert_eq!(made.fields, [field("Cookie", "a=b"), field("X-A", "bX-C: d")]);
        assert_eq!((made.method.as_str(), made.body), ("POST", Some(7)));
        let body = CapturedBody { bytes: 9, base64: Some("YT1i".to_owned()) };
        let made = of_captured(&old(), &CapturedRequest { body: Some(body), ..request("/") });
        assert_eq!((made.body, made.content.as_deref()), (Some(3), Some(&b"a=b"[..])));
        let upgrade = CapturedRequest { fields: vec![field("upgrade", "WebSocket")], ..request("/") };
        assert!(of_captured(&old(), &upgrade).is_upgrade());
        for (status, fields, behaviour) in [
            (200, Vec::new(), OriginBehaviour::Page),
            (404, Vec::new(), OriginBehaviour::Missing),
            (401, Vec::new(), OriginBehaviour::Unauthorized),
            (302, Vec::new(), OriginBehaviour::Moved),
            (502, Vec::new(), OriginBehaviour::Unavailable),
            (200, vec![field("Set-Cookie", "a=b")], OriginBehaviour::Cookie),
            (200, vec![field("cache-control", "Private")], OriginBehaviour::Private),
            (200, vec![field("cache-control", "max-age=60")], OriginBehaviour::Cacheable),
        ] {
            let response = Some(CapturedResponse { status, fields, body_bytes: None });
            let made = captured(
                &old(),
                &Capture {
                    requests: vec![CapturedRequest { response, ..request("/") }],
                    ..Default::default()
                },
                9,
            );
            assert_eq!(made.last().map(|request| request.behaviour), Some(behaviour), "{status}");
            assert_eq!(made.len(), if status == 401 { 2 } else { 1 }, "{status}");
        }
    }
}
