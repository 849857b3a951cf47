//! The option `forward_auth` of a route: its declaration, relations and settings.

use std::time::Duration;

use route::{AuthKeyPart, NamedValues, RETURN_PARAMETER, SignIn};

use crate::document::reader::{Reader, Span, refuse};
use crate::option::form::OFF;
use crate::option::keys::AUTH_KEY;
use crate::option::kind::{At, Located, Maybe, Name, Switch, UPSTREAM_NAME, Unless};
use crate::option::matching::FieldName;
use crate::option::pairs::{OneOrMany, Pair, Pairs};
use crate::option::range::{Count, UP_TO_A_DAY, UP_TO_A_YEAR, Unit};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::option::templates::{field_name, template};
use crate::tables::names::Names;

/// Forward authentication: another server decides who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The upstream with the server, an index into `Settings::upstreams`.
    pub upstream: usize,
    /// The path that is asked, with its query.
    pub path: String,
    /// The time from the question to the whole answer.
    pub timeout: Duration,
    /// The client's fields that the server gets; `None` is all that make sense.
    pub request_headers: Option<Vec<String>>,
    /// Fields of a 2xx answer for the route's server.
    pub copy_headers: Vec<CopiedField>,
    /// The field of a 2xx answer that names the user.
    pub user_header: Option<String>,
    /// Whether the client gets the cookies of a 2xx answer.
    pub sets_cookies: bool,
    /// Whether clients get any other answer than 2xx as a whole. Otherwise they get 401, 403 or 500 from the proxy.
    pub passes_answer: bool,
    /// The page that a client is redirected to after a 401; `None` forwards the response.
    pub sign_in: Option<SignIn>,
    /// Whether a client is redirected to the Location of a 401.
    pub follows_location: bool,
    /// Remembered decisions; `None` remembers none.
    pub cache: Option<AuthCache>,
}

/// A field of an answer that a server gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedField {
    /// Its name in the answer.
    pub from: String,
    /// Its name in requests.
    pub to: String,
}

/// Remembered decisions of forward authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthCache {
    /// The parts of a request that a decision is for.
    pub key: Vec<AuthKeyPart>,
    /// How long a permission counts at most.
    pub ttl: Duration,
    /// How long a refusal counts at most; `None` remembers none.
    pub negative_ttl: Option<Duration>,
    /// The most decisions, over all workers.
    pub entries_max: usize,
    /// Whether instances share them through Redis.
    pub is_shared: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct ForwardAuthWritten {
    upstream: Option<Located<String>>,
    path: Option<Located<String>>,
    timeout: Duration,
    request_headers: Option<Vec<Located<String>>>,
    copy_headers: Vec<Located<String>>,
    copy_headers_as: Vec<Pair<FieldName, Located<String>>>,
    user_header: Option<Located<String>>,
    set_cookie: bool,
    pass_answer: bool,
    sign_in: Option<Located<String>>,
    sign_in_parameter: Option<Located<Option<String>>>,
    cache: Option<Element<AuthCacheWritten>>,
}

#[derive(Debug, Clone)]
pub(crate) struct AuthCacheWritten {
    key: Vec<Located<AuthKeyPart>>,
    ttl: Duration,
    negative_ttl: Option<Duration>,
    entries: usize,
    shared: Option<Located<bool>>,
}

impl Default for ForwardAuthWritten {
    fn default() -> Self {
        Self {
            upstream: None,
            path: None,
            timeout: Duration::from_secs(5),
            request_headers: None,
            copy_headers: Vec::new(),
            copy_headers_as: Vec::new(),
            user_header: None,
            set_cookie: false,
            pass_answer: true,
            sign_in: None,
            sign_in_parameter: None,
            cache: None,
        }
    }
}

impl Default for AuthCacheWritten {
    fn default() -> Self {
        let ttl = Duration::from_secs(30);
        Self { key: Vec::new(), ttl, negative_ttl: None, entries: 10_000, shared: None }
    }
}

pub(crate) const PATH: &str = "a path such as /verify, with a query if needed";

pub(crate) const SIGN_IN: &str =
    "a URL such as https://$host/oauth2/start, a path, or \"location\" for that of the answer";

/// Stands for the Location of the answer.
const LOCATION: &str = "location";

const PARAMETER: &str = "the name of a parameter such as next, or \"off\"";

pub(crate) const FORWARD_AUTH: Inline<ForwardAuthWritten> = Inline {
    title: "forward_auth",
    example: "{ upstream = \"auth\", path = \"/verify\" }",
    table: &Table {
        options: &[
            required!(
                "upstream",
                Maybe(At(UPSTREAM_NAME)),
                ForwardAuthWritten.upstream,
                "The upstream with the authentication server.",
            ),
            key!(
                "path",
                Maybe(At(Name { expected: PATH })),
                ForwardAuthWritten.path,
                "Path of the question, with a query if needed. Default: `/`.",
            ),
            key!(
                "timeout",
                UP_TO_A_DAY,
                ForwardAuthWritten.timeout,
                "From the question to the complete answer, including the connect; then 504.",
            ),
            key!(
                "request_headers",
                Maybe(OneOrMany(At(Name { expected: FieldName::EXPECTED }))),
                ForwardAuthWritten.request_headers,
                "Fields of the client that the authentication server gets, besides `X-Forwarded-…` and \
                 `X-Original-…`. Default: all, except those about the connection and the \
                 content, conditions and ranges.",
            ),
            key!(
                "copy_headers",
                OneOrMany(At(Name { expected: FieldName::EXPECTED })),
                ForwardAuthWritten.copy_headers,
                "Fields of a 2xx answer that the server gets. Fields with these names from clients are \
                 always removed.",
            ),
            key!(
                "copy_headers_as",
                Pairs {
                    expected: "fields with fields of the answer such as { X-User = \"Remote-User\" }",
                    name: FieldName::read,
                    print_name: FieldName::print,
                    kind: At(Name { expected: FieldName::EXPECTED }),
                },
                ForwardAuthWritten.copy_headers_as,
                "As `copy_headers`, for fields that the server gets with another name: `{ X-User = \"Remote-User\" }`.",
            ),
            key!(
                "user_header",
                Maybe(At(Name { expected: FieldName::EXPECTED })),
                ForwardAuthWritten.user_header,
                "Field of a 2xx answer with the name of the user, for the log and `$user`. The server gets \
                 it only if `copy_headers` names it.",
            ),
            key!(
                "set_cookie",
                Switch,
                ForwardAuthWritten.set_cookie,
                "Adds Set-Cookie of a 2xx answer to the client's response, so that sessions can be renewed. \
                 Such an answer is for one request only.",
            ),
            key!(
                "pass_answer",
                Switch,
                ForwardAuthWritten.pass_answer,
                "Forwards any answer but 2xx to the client as a whole. With `false`, 401 and 403 become responses of the \
                 proxy, with the `WWW-Authenticate` of the answer and `error_pages`, and any other answer becomes 500.",
            ),
            key!(
                "sign_in",
                Maybe(At(Name { expected: SIGN_IN })),
                ForwardAuthWritten.sign_in,
                "Redirects clients (302) to this URL if the authentication server answers 401: a path or a \
                 URL, with variables as in `redirect`. The parameter `rd` with the complete requested URL is \
                 added, unless the URL has one: `/oauth2/start?rd=$path_and_query`. `\"location\"` is the \
                 `Location` of the 401; without it, the answer is forwarded. Cookies and challenges of the 401 are \
                 kept. Default: the answer is forwarded.",
            ),
            key!(
                "sign_in_parameter",
                Maybe(At(Unless { word: OFF, kind: Name { expected: PARAMETER } })),
                ForwardAuthWritten.sign_in_parameter,
                "Parameter of `sign_in` with the complete requested URL. `\"off\"` adds none, so that clients get \
                 exactly the URL of `sign_in`. Default: `rd`.",
            ),
            key!(
                "cache",
                Maybe(AUTH_CACHE),
                ForwardAuthWritten.cache,
                "Remembers decisions. Simultaneous requests with the same key share one question. \
                 Default: every request is asked about.",
            ),
        ],
    },
};

pub(crate) const AUTH_CACHE: Inline<AuthCacheWritten> = Inline {
    title: "cache of forward_auth",
    example: "{ key = [\"cookie:session\", \"path\"], ttl = \"30s\" }",
    table: &Table {
        options: &[
            required!(
                "key",
                OneOrMany(At(AUTH_KEY)),
                AuthCacheWritten.key,
                "The parts of a request that a decision depends on: everything that the authentication \
                 server examines. Requests without any of the client's parts are always asked about.",
            ),
            key!(
                "ttl",
                UP_TO_A_YEAR,
                AuthCacheWritten.ttl,
                "How long a 2xx answer counts. `max-age` in its Cache-Control makes that shorter; `no-store` \
                 and `no-cache` are obeyed.",
            ),
            key!(
                "negative_ttl",
                Maybe(UP_TO_A_DAY),
                AuthCacheWritten.negative_ttl,
                "How long an answer 401 or 403 without Set-Cookie counts, in the same way. Default: such \
                 answers are not remembered.",
            ),
            key!(
                "entries",
                Count { range: 16..=10_000_000, unit: Unit::Things },
                AuthCacheWritten.entries,
                "How many decisions are remembered, over all workers; the oldest are evicted.",
            ),
            key!(
                "shared",
                Maybe(At(Switch)),
                AuthCacheWritten.shared,
                "Instances share their decisions, through `[redis]` with its `secret_file`: see \
                 [several instances](fleet.md#decisions-of-authentication-servers). Default: each remembers its own.",
            ),
        ],
    },
};

/// Converts the option; `None` if there is a mistake.
pub(crate) fn forward_auth(
    Element { value: written, .. }: &Element<ForwardAuthWritten>,
    values: &NamedValues,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<ForwardAuth> {
    let upstream = written.upstream.as_ref()?;
    let refused_before = reader.refused();
    let path = match &written.path {
        None => "/".to_owned(),
        Some(Located { value, at }) => {
            let is_path = value.starts_with('/') && value.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_path || value.contains('#') {
                refuse(at, &format!("path: {value:?} is no path"), PATH, reader);
            }
            value.clone()
        }
    };
    let upstream = names.http_upstream("upstream", &upstream.value, &upstream.at, reader);
    let copy_headers = copied_fields(written, reader);
    let user_header = written.user_header.as_ref().and_then(|name| field_name("user_header", name, reader));
    let request_headers =
        written.request_headers.as_ref().map(|names| fields("request_headers", names, reader));
    let follows_location = written.sign_in.as_ref().is_some_and(|page| page.value == LOCATION);
    let sign_in = written.sign_in.as_ref().filter(|_| !follows_location);
    let parameter = sign_in_parameter(written, sign_in.is_some(), reader);
    let sign_in = sign_in.and_then(|page| {
        let made = SignIn::new(&page.value, parameter, values);
        template(made, "sign_in", &page.at, SIGN_IN, reader)
    });
    let cache = match &written.cache {
        Some(element) => Some(cache(element, reader)?),
        None => None,
    };
    (reader.refused() == refused_before).then_some(ForwardAuth {
        upstream: upstream?,
        path,
        timeout: written.timeout,
        request_headers,
        copy_headers,
        user_header,
        sets_cookies: written.set_cookie,
        passes_answer: written.pass_answer,
        sign_in,
        follows_location,
        cache,
    })
}

/// The fields of both options. Rejects two for one field.
fn copied_fields(written: &ForwardAuthWritten, reader: &mut Reader<'_>) -> Vec<CopiedField> {
    let same = fields("copy_headers", &written.copy_headers, reader);
    let mut copied: Vec<CopiedField> =
        same.into_iter().map(|name| CopiedField { from: name.clone(), to: name }).collect();
    let same_count = copied.len();
    for Pair { at, name, value } in &written.copy_headers_as {
        let to = Located { value: name.0.clone(), at: at.clone() };
        if copied[..same_count].iter().any(|known| known.to.eq_ignore_ascii_case(&to.value)) {
            let message = format!("copy_headers_as: {} is in copy_headers, too", to.value);
            refuse(at, &message, "each field once", reader);
        }
        let from = field_name("copy_headers_as", value, reader);
        if let (Some(from), Some(to)) = (from, field_name("copy_headers_as", &to, reader)) {
            copied.push(CopiedField { from, to });
        }
    }
    copied
}

/// The parameter with the requested URL. Rejects a wrong name, and one without an effect.
fn sign_in_parameter<'w>(
    written: &'w ForwardAuthWritten,
    has_page: bool,
    reader: &mut Reader<'_>,
) -> Option<&'w str> {
    let Some(Located { value, at }) = &written.sign_in_parameter else { return Some(RETURN_PARAMETER) };
    if !has_page {
        let message = "sign_in_parameter: there is no URL in sign_in that would get it";
        refuse(at, message, "sign_in with a URL or a path", reader);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if let Some(name) = value
        && !name.bytes().all(is_plain)
    {
        refuse(at, &format!("sign_in_parameter: {name:?} is no plain name"), PARAMETER, reader);
    }
    value.as_deref()
}

pub(crate) fn fields(option: &str, names: &[Located<String>], reader: &mut Reader<'_>) -> Vec<String> {
    names.iter().filter_map(|name| field_name(option, name, reader)).collect()
}

pub(crate) fn cache(element: &Element<AuthCacheWritten>, reader: &mut Reader<'_>) -> Option<AuthCache> {
    let Element { value: AuthCacheWritten { key, ttl, negative_ttl, entries, shared }, .. } = element;
    let first = key.first()?;
    let key: Vec<AuthKeyPart> = key.iter().map(|part| part.value.clone()).collect();
    if !key.iter().any(AuthKeyPart::is_of_client) {
        let message = "key: it does not distinguish clients, so one client's permission would hold for all";
        refuse(&first.at, message, "a part of the client as well, such as cookie:NAME or client", reader);
        return None;
    }
    let is_shared = shared.as_ref().is_some_and(|shared| shared.value);
    Some(AuthCache { key, ttl: *ttl, negative_ttl: *negative_ttl, entries_max: *entries, is_shared })
}

impl ForwardAuthWritten {
    /// Whether a field with this name comes from the authentication server.
    pub(crate) fn copies(&self, name: &str) -> bool {
        let same = self.copy_headers.iter().map(|copied| copied.value.as_str());
        let renamed = self.copy_headers_as.iter().map(|copied| copied.name.0.as_str());
        same.chain(renamed).any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Where it says that instances share decisions, if it does.
    pub(crate) fn shared(&self) -> Option<&Span> {
        let shared = self.cache.as_ref()?.value.shared.as_ref()?;
        shared.value.then_some(&shared.at)
    }

    /// Whether an answer may name a user.
    pub(crate) fn names_user(&self) -> bool {
        self.user_header.is_some()
    }
}
