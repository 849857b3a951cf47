//! Known reasons for differences between the responses of a peer and of Vanward.

use super::asked::{Ask, Got};
use super::peers::Peer;

#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) peer: Peer,
    pub(crate) ask: &'a Ask,
    pub(crate) theirs: Got,
    pub(crate) mine: Got,
}

impl Pair<'_> {
    fn is_alike_without(&self, field: &str, with_body: bool) -> bool {
        let rest =
            |got: &Got| got.fields.iter().filter(|(name, _)| name != field).cloned().collect::<Vec<_>>();
        self.theirs.status == self.mine.status
            && rest(&self.theirs) == rest(&self.mine)
            && (!with_body || self.theirs.body == self.mine.body)
    }

    fn path(&self) -> &str {
        self.ask.target.split('?').next().unwrap_or_default()
    }

    /// Returns the reason for a difference, if one is known.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        let all = REASONS.iter().chain(match self.peer {
            Peer::Nginx => NGINX,
            Peer::Haproxy => HAPROXY,
            Peer::Caddy => CADDY,
            Peer::Varnish => VARNISH,
            Peer::Squid => SQUID,
            Peer::Pound => POUND,
            Peer::Traefik => TRAEFIK,
            Peer::Apache => APACHE,
        });
        all.into_iter().find(|(_, explains)| explains(self)).map(|(reason, _)| *reason)
    }
}

/// A reason, and whether it explains a difference.
type Reason = (&'static str, fn(&Pair<'_>) -> bool);

/// For all peers.
const REASONS: &[Reason] = &[
    ("names that begin with a dot are never sent as files", |pair| {
        pair.path().starts_with("/.") && [403, 404].contains(&pair.mine.status)
    }),
    ("an escaped slash names no file", |pair| pair.path().contains("%2F") && pair.mine.status == 400),
    ("an answer of the proxy's own has another body", |pair| {
        pair.peer.is_own(&pair.theirs) && pair.is_alike_without("", false)
    }),
    ("paths that servers may read as others, and invalid escapes, get 400", |pair| {
        let doubtful = ["..", "/./", ";", "%2e", "%00", "%zz", "\\"];
        doubtful.iter().any(|part| pair.path().contains(part)) && pair.mine.status == 400
    }),
    ("the challenge says that names and passwords are UTF-8", |pair| {
        let told =
            |got: &Got| got.field("www-authenticate").map(|told| told.replace(", charset=\"UTF-8\"", ""));
        told(&pair.mine) == told(&pair.theirs) && pair.is_alike_without("www-authenticate", false)
    }),
];

const NGINX: &[Reason] = &[
    (
        "nginx refuses paths above the root, zero bytes and invalid escapes; here a server sees them, where no route goes by them",
        |pair| {
            let doubtful = ["%2e%2e", "%00", "%zz"];
            pair.theirs.status == 400 && doubtful.iter().any(|part| pair.path().contains(part))
        },
    ),
    ("upgrades need no option", |pair| pair.ask.fields.contains("Upgrade:") && pair.mine.status == 101),
    ("If-Modified-Since with a later date is enough", |pair| {
        pair.ask.fields.contains("If-Modified-Since") && (pair.theirs.status, pair.mine.status) == (200, 304)
    }),
    ("stored responses answer ranges", |pair| {
        pair.ask.fields.contains("Range")
            && pair.theirs.status == 200
            && [206, 416].contains(&pair.mine.status)
    }),
    ("nginx says the fields of add_header twice in 416", |pair| {
        (pair.theirs.status, pair.mine.status) == (416, 416)
    }),
    ("files are only read, also those that are not there", |pair| {
        pair.ask.method == "POST" && (pair.theirs.status, pair.mine.status) == (404, 405)
    }),
    ("beside files, a server gets all methods but GET and HEAD, also where there is a file", |pair| {
        !matches!(pair.ask.method, "GET" | "HEAD")
            && pair.theirs.status == 405
            && pair.mine.body.contains("host:")
    }),
    ("redirects to a path have a path in Location", |pair| {
        let whole = pair.theirs.field("location").unwrap_or_default();
        let is_path = |path: &str| path.starts_with('/') && whole.ends_with(path);
        pair.mine.field("location").is_some_and(is_path) && pair.is_alike_without("location", false)
    }),
    ("Expires is not sent beside Cache-Control", |pair| pair.is_alike_without("expires", true)),
];

const HAPROXY: &[Reason] = &[
    ("HAProxy says that its own answers are not to be stored", |pair| {
        let plain = |got: &Got| {
            let mut got = got.clone();
            got.fields.retain(|(name, _)| name != "cache-control");
            got.fields.iter_mut().for_each(|(_, value)| *value = value.replace(", charset=\"UTF-8\"", ""));
            (got.status, got.fields)
        };
        pair.peer.is_own(&pair.theirs)
            && pair.theirs.field("cache-control") == Some("no-cache")
            && plain(&pair.theirs) == plain(&pair.mine)
    }),
    ("each response that begins a session is private, also where HAProxy leaves that out", |pair| {
        pair.mine.field("cache-control") == Some("private")
            && pair.theirs.field("cache-control").is_none()
            && pair.is_alike_without("cache-control", true)
    }),
    ("a host with a dot at its end is the one without", |pair| pair.ask.host.ends_with('.')),
];

const CADDY: &[Reason] = &[
    (
        "applications get a body of unknown length with its length; from Caddy they do not, and wait for more",
        |pair| pair.ask.fields.contains("Transfer-Encoding") && pair.theirs.body.starts_with("/504.html"),
    ),
    ("a host with a dot at its end is the one without", |pair| pair.ask.host.ends_with('.')),
    ("hosts are compared without case, also as keys of maps", |pair| pair.ask.host.starts_with("APP.")),
    ("a placeholder has the values of all fields with its name, here any of them", |pair| {
        pair.ask.fields.matches("X-Odd").count() > 1 && pair.mine.body == "odd"
    }),
    ("files are only read", |pair| {
        !matches!(pair.ask.method, "GET" | "HEAD")
            && [200, 404].contains(&pair.theirs.status)
            && pair.mine.status == 405
    }),
    ("Caddy refuses invalid escapes; here a server sees them, where no route goes by them", |pair| {
        pair.theirs.status == 400 && pair.path().contains("%zz")
    }),
    ("Caddy sends an empty page to hosts that it has no site for", |pair| {
        (pair.theirs.status, pair.mine.status) == (200, 404) && pair.theirs.body.is_empty()
    }),
];

const VARNISH: &[Reason] = &[
    ("upgrades need no option", |pair| pair.ask.fields.contains("Upgrade:") && pair.mine.status == 101),
    ("If-Modified-Since is compared with the time of the response where it has no other", |pair| {
        pair.ask.fields.contains("If-Modified-Since") && (pair.theirs.status, pair.mine.status) == (200, 304)
    }),
    ("ranges of what is not stored are cut out by Varnish; here the server does so, or not", |pair| {
        pair.ask.fields.contains("Range")
            && [206, 416].contains(&pair.theirs.status)
            && pair.mine.status == 200
    }),
    ("stored responses answer ranges, whether compressed or not", |pair| {
        pair.ask.fields.contains("Range") && (pair.theirs.status, pair.mine.status) == (200, 206)
    }),
    ("416 has no fields of the response that was asked for", |pair| {
        (pair.theirs.status, pair.mine.status) == (416, 416)
    }),
    ("Varnish takes 64 fields", |pair| pair.ask.fields.contains("X-Field-59") && pair.theirs.status == 400),
];

const SQUID: &[Reason] =
    &[("upgrades are passed on", |pair| pair.ask.fields.contains("Upgrade:") && pair.mine.status == 101)];

const POUND: &[Reason] = &[
    ("an answer of Pound's own says that it is not to be stored", |pair| {
        pair.peer.is_own(&pair.theirs)
            && pair.theirs.status == pair.mine.status
            && [403, 503].contains(&pair.mine.status)
    }),
    ("Pound passes on a few methods, as xHTTP says", |pair| {
        pair.theirs.status == 405 && !["GET", "HEAD", "POST"].contains(&pair.ask.method)
    }),
    ("Pound takes shorter lines", |pair| pair.theirs.status == 413 && pair.ask.fields.len() > 4000),
];

const APACHE: &[Reason] = &[
    (
        "Apache refuses escaped slashes, zero bytes and invalid escapes; here a server sees them, where no route goes by them",
        |pair| {
            let doubtful = ["%2F", "%00", "%zz", "%2e%2e"];
            [400, 404].contains(&pair.theirs.status) && doubtful.iter().any(|part| pair.path().contains(part))
        },
    ),
    ("redirects to a path have a path in Location", |pair| {
        let whole = pair.theirs.field("location").unwrap_or_default();
        let is_path = |path: &str| path.starts_with('/') && whole.ends_with(path);
        pair.mine.field("location").is_some_and(is_path) && pair.is_alike_without("location", false)
    }),
    ("ranges of what is not stored are cut out by Apache; here the server does so, or not", |pair| {
        pair.ask.fields.contains("Range")
            && [206, 416].contains(&pair.theirs.status)
            && pair.mine.status == 200
    }),
    ("upgrades need no option", |pair| pair.ask.fields.contains("Upgrade:") && pair.mine.status == 101),
];

const TRAEFIK: &[Reason] = &[
    ("Traefik refuses invalid escapes; here a server sees them, where no route goes by them", |pair| {
        pair.theirs.status == 400 && pair.path().contains("%zz")
    }),
    ("redirects keep the method: 308 and 307, where Traefik sends 301 and 302 for GET", |pair| {
        [(301, 308), (302, 307)].contains(&(pair.theirs.status, pair.mine.status))
            && pair.theirs.fields == pair.mine.fields
    }),
];
