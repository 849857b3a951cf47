//! Options of sticky sessions, declared once, with their relations.

use std::time::Duration;

use balance::{CookieAttributes, SameSite, SessionSource};

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::declared::{count, joined};
use crate::option::host::{TLS_NAME, tls_name};
use crate::option::kind::{At, Located, Maybe, Switch, Text, Unless, Word};
use crate::option::matching::is_token;
use crate::option::named_file::{CookieSecrets, SECRETS};
use crate::option::range::{Count, Unit, Wait};
use crate::option::table::{Declared, Table, key, required};
use crate::option::value_key::StickyKind;

#[derive(Debug, Clone, Default)]
pub(crate) struct StickyWritten {
    /// The session key; `Some(None)` is the cookie that the proxy inserts.
    pub(crate) by: Option<Located<Option<SessionSource>>>,
    /// The lifetime; `Some(None)` means until the browser is closed.
    pub(crate) ttl: Option<Located<Option<Duration>>>,
    pub(crate) sessions: Option<Located<usize>>,
    /// Whether instances share them.
    pub(crate) shared: Option<Located<bool>>,
    pub(crate) name: Option<Located<String>>,
    pub(crate) path: Option<Located<String>>,
    pub(crate) domain: Option<Located<String>>,
    pub(crate) secure: Option<Located<bool>>,
    /// Whether responses with the cookie are for its client alone.
    pub(crate) private: Option<Located<bool>>,
    pub(crate) same_site: Option<Located<SameSite>>,
    pub(crate) secret_file: Option<Located<CookieSecrets>>,
}

/// The default lifetime of a remembered session without a request.
pub(crate) const TTL: Duration = Duration::from_secs(30 * 60);
/// The default number of remembered sessions.
pub(crate) const SESSIONS: usize = 65_536;

impl StickyWritten {
    /// Where it says that instances share a table of sessions, if it does.
    pub(crate) fn shared(&self) -> Option<&Span> {
        self.by.as_ref()?.value.as_ref()?;
        let shared = self.shared.as_ref()?;
        shared.value.then_some(&shared.at)
    }
}

pub(crate) static STICKY_TABLE: Table<StickyWritten> = Table {
    options: {
        const PARTS: &[Entries] = &[BY, REMEMBERED, OF_COOKIE];
        const ALL: [Declared<StickyWritten>; count(PARTS)] = joined(PARTS);
        &ALL
    },
};

/// The options of a split, which remembers nothing: the side follows from the client.
pub(crate) static SPLIT_TABLE: Table<StickyWritten> = Table {
    options: {
        const PARTS: &[Entries] = &[BY, KEPT_BY_BROWSER, OF_COOKIE];
        const ALL: [Declared<StickyWritten>; count(PARTS)] = joined(PARTS);
        &ALL
    },
};

type Entries = &'static [Declared<StickyWritten>];

const BY: Entries = &[required!(
    "by",
    Maybe(At(StickyKind)),
    StickyWritten.by,
    "How a client is recognized. `\"cookie\"`: a signed cookie that the proxy sets. \
         `\"origin-cookie:NAME\"`: a cookie that servers set. `\"client\"`: the address; \
         `\"client/24\"`: the network. `\"basic-user\"`, `\"header:NAME\"`, \
         `\"query:NAME\"`, `\"path-parameter:NAME\"` (`/path;NAME=…`), \
         `\"path-parameter\"` (everything after the last `;`), or a value: `\"${app}\"`.",
)];

const REMEMBERED: Entries = &[
    key!(
        "ttl",
        Maybe(At(Unless { word: "browser", kind: TTL_KIND })),
        StickyWritten.ttl,
        "How long a session lasts without a request. Default: 30m; for `\"cookie\"`: `\"browser\"`, \
         until the browser is closed.",
    ),
    key!(
        "sessions",
        Maybe(At(Count { range: 1..=10_000_000, unit: Unit::Things })),
        StickyWritten.sessions,
        "How many sessions are remembered, up to 200 bytes each; the least recently used are evicted. \
         Default: 65536. `\"cookie\"` needs none.",
    ),
    key!(
        "shared",
        Maybe(At(Switch)),
        StickyWritten.shared,
        "Instances share their sessions, through `[redis]` with its `secret_file`: see [several \
         instances](fleet.md#sessions). `\"cookie\"` does not need this: give all instances the same \
         `secret_file`. Default: false.",
    ),
    key!(
        "private",
        Maybe(At(Switch)),
        StickyWritten.private,
        "With `\"cookie\"`: adds `Cache-Control: private` to responses that set it, so that no cache between \
         hands the session to other clients. Default: false.",
    ),
];

const KEPT_BY_BROWSER: Entries = &[key!(
    "ttl",
    Maybe(At(Unless { word: "browser", kind: TTL_KIND })),
    StickyWritten.ttl,
    "With `\"cookie\"`: how long browsers keep it. Default: `\"browser\"`, until the browser is closed.",
)];

const OF_COOKIE: Entries = &[
    key!(
        "name",
        Maybe(At(COOKIE_NAME)),
        StickyWritten.name,
        "With `\"cookie\"`: its name. Default: `vanward_` and the upstream's name; of splits, \
         `vanward_split`.",
    ),
    key!("path", Maybe(At(COOKIE_PATH)), StickyWritten.path, "With `\"cookie\"`: its Path. Default: /.",),
    key!(
        "domain",
        Maybe(At(Text { expected: TLS_NAME, read: tls_name, print: String::clone })),
        StickyWritten.domain,
        "With `\"cookie\"`: its Domain. Default: only the requested host.",
    ),
    key!(
        "secure",
        Maybe(At(Switch)),
        StickyWritten.secure,
        "With `\"cookie\"`: its Secure attribute. Default: set if the client uses HTTPS, also as \
         reported by a trusted proxy.",
    ),
    key!(
        "same_site",
        Maybe(At(Word {
            words: &[("lax", SameSite::Lax), ("strict", SameSite::Strict), ("none", SameSite::None)],
        })),
        StickyWritten.same_site,
        "With `\"cookie\"`: its SameSite attribute. Default: `\"lax\"`; `\"none\"` needs `secure = \
         true`.",
    ),
    key!(
        "secret_file",
        Maybe(At(SECRETS)),
        StickyWritten.secret_file,
        "With `\"cookie\"`: a file of secrets, one per line, 32 bytes or more each. The first signs, all are \
         accepted. Default: a random secret at each start. Upgrades keep it, a restart ends all sessions, \
         and other proxies do not accept the cookie.",
    ),
];

const TTL_KIND: Wait = Wait { range: Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 3600) };

pub(crate) const COOKIE_NAME: Text<String> = Text {
    expected: "the name of a cookie",
    read: |text| {
        // RFC 6265 §4.1.1.
        if is_token(text) {
            Ok(text.to_owned())
        } else {
            Err(refuse(text, "cannot be the name of a cookie", COOKIE_NAME.expected))
        }
    },
    print: String::clone,
};

const COOKIE_PATH: Text<String> = Text {
    expected: "a path such as /app",
    read: |text| {
        // RFC 6265 §4.1.1: anything but control characters and a semicolon.
        let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b';');
        if text.starts_with('/') && is_plain {
            Ok(text.to_owned())
        } else {
            Err(refuse(text, "cannot be the path of a cookie", COOKIE_PATH.expected))
        }
    },
    print: String::clone,
};

fn refuse(text: &str, why: &'static str, expected: &'static str) -> ValueError {
    ValueError { fault: ValueFault::Unknown { written: text.to_owned(), why, nearest: None }, expected }
}

/// The cookie attributes, with defaults for what is not written.
pub(crate) fn attributes(written: &StickyWritten) -> CookieAttributes {
    let default = CookieAttributes::default();
    CookieAttributes {
        path: written.path.as_ref().map_or(default.path, |path| path.value.clone()),
        domain: written.domain.as_ref().map(|domain| domain.value.clone()),
        secure: written.secure.as_ref().map(|secure| secure.value),
        same_site: written.same_site.as_ref().map_or(default.same_site, |same_site| same_site.value),
        is_private: written.private.as_ref().is_some_and(|private| private.value),
    }
}

/// Checks the relations of the options, which depend on how a client is recognized.
pub(crate) fn check(sticky: &StickyWritten, reader: &mut Reader<'_>) {
    let cookie_options = [
        ("name", sticky.name.as_ref().map(|it| &it.at)),
        ("path", sticky.path.as_ref().map(|it| &it.at)),
        ("domain", sticky.domain.as_ref().map(|it| &it.at)),
        ("secure", sticky.secure.as_ref().map(|it| &it.at)),
        ("private", sticky.private.as_ref().map(|it| &it.at)),
        ("same_site", sticky.same_site.as_ref().map(|it| &it.at)),
        ("secret_file", sticky.secret_file.as_ref().map(|it| &it.at)),
    ];
    let Some(Located { value: by, .. }) = &sticky.by else { return };
    if by.is_some() {
        for (option, at) in cookie_options.into_iter().filter_map(|(option, at)| Some((option, at?))) {
            refuse_at(at, &format!("sticky: {option} is for the inserted cookie"), "by = \"cookie\"", reader);
        }
        if let Some(Located { value: None, at }) = &sticky.ttl {
            let message = "sticky: ttl = \"browser\" is for the inserted cookie";
            refuse_at(at, message, "a duration such as 30m", reader);
        }
    } else {
        if let Some(Located { at, .. }) = &sticky.sessions {
            let message = "sticky: an inserted cookie names its server, so no sessions are stored";
            refuse_at(at, message, "no sessions", reader);
        }
        if let Some(Located { at, .. }) = &sticky.shared {
            let message = "sticky: all instances with the same secret_file accept an inserted cookie";
            refuse_at(at, message, "no shared", reader);
        }
    }
    if let Some(Located { value: SameSite::None, at }) = &sticky.same_site
        && !sticky.secure.as_ref().is_some_and(|secure| secure.value)
    {
        let message = "sticky: browsers reject same_site = \"none\" without secure";
        refuse_at(at, message, "secure = true beside it", reader);
    }
}

fn refuse_at(at: &Span, message: &str, expected: &str, reader: &mut Reader<'_>) {
    let mistake = reader.mistake(at, message);
    reader.add(mistake.expecting(expected));
}
