//! The option `jwt` of routes: its declaration, and its relations.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::route::{ClaimRules, HeaderEdit, HeaderEdits, TemplateStage, TokenSource, ValueRule};
use jwt::{Algorithm, Audience, KeySet, RequiredClaims};

use crate::document::reader::{Reader, Span, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::keys::TOKEN_SOURCE;
use crate::option::kind::{At, Located, Maybe, Name, Switch, Text, Word};
use crate::option::matching::{FieldName, parameter_name};
use crate::option::named_file::FileKind;
use crate::option::pairs::{OneOrMany, Pair, Pairs};
use crate::option::path::PATH_KIND;
use crate::option::range::{Count, Unit, Wait};
use crate::option::server::{Scheme, Server, ServerHost};
use crate::option::table::{Element, Inline, Table, key};
use crate::tables::jwt::{Jwt, KeySource, KeyUrl, TokenKeys};

/// The value that stands for any value of a claim, and for any audience.
const ANY: &str = "*";
/// How long fetched keys may be used. Shorter times would be a burden for issuers, longer ones keep revoked keys.
pub(crate) const REFRESH: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct JwtWritten {
    keys: Option<Located<KeysFile>>,
    secret: Option<Located<KeysFile>>,
    jwks: Option<Located<KeyUrl>>,
    discovery: Option<Located<(String, KeyUrl)>>,
    allow_http: bool,
    ca: Option<Located<PathBuf>>,
    refresh: Duration,
    algorithms: Vec<Located<Algorithm>>,
    issuer: Vec<String>,
    audience: Vec<String>,
    leeway: Duration,
    allow_no_expiry: bool,
    require: Vec<Pair<String, Vec<String>>>,
    from: TokenSource,
    token_bytes: usize,
    remove_token: bool,
    user: String,
    claims: Vec<Pair<FieldName, String>>,
}

impl Default for JwtWritten {
    fn default() -> Self {
        Self {
            keys: None,
            secret: None,
            jwks: None,
            discovery: None,
            allow_http: false,
            ca: None,
            refresh: Duration::from_secs(60 * 60),
            algorithms: Vec::new(),
            issuer: Vec::new(),
            audience: Vec::new(),
            leeway: Duration::from_secs(30),
            allow_no_expiry: false,
            require: Vec::new(),
            from: TokenSource::Bearer,
            token_bytes: 8192,
            remove_token: false,
            user: "sub".to_owned(),
            claims: Vec::new(),
        }
    }
}

/// Keys, and the path of their file.
type KeysFile = (PathBuf, Arc<KeySet>);

const KEYS: FileKind<KeysFile> = FileKind {
    expected: "the path of a file of public keys, in PEM or as a JSON Web Key Set",
    make: |path, bytes| keys_file(path, KeySet::parse(&bytes)),
    path: |(path, _)| path,
};

const SECRET: FileKind<KeysFile> = FileKind {
    expected: "the path of a file with a secret of 32 bytes or more",
    make: |path, bytes| keys_file(path, KeySet::secret(&bytes)),
    path: |(path, _)| path,
};

fn keys_file(path: &Path, read: Result<KeySet, jwt::KeyFault>) -> Result<KeysFile, String> {
    read.map(|keys| (path.to_path_buf(), Arc::new(keys))).map_err(|fault| fault.to_string())
}

const URL: &str = "the URL of a JSON Web Key Set such as https://id.example.com/.well-known/jwks.json";

/// The kind of value for a URL of keys.
const KEY_URL: Text<KeyUrl> = Text { expected: URL, read: key_url, print: ToString::to_string };

/// Parses the URL of keys.
///
/// # Errors
/// Why it is none.
pub fn key_url(text: &str) -> Result<KeyUrl, ValueError> {
    let refuse = |fault| ValueError { fault, expected: URL };
    let unknown = |why| refuse(ValueFault::Unknown { written: text.to_owned(), why, nearest: None });
    let Some(authority) = text.find("://").map(|at| at + 3) else {
        let (written, nearest) = (text.to_owned(), Some(format!("https://{text}")));
        return Err(refuse(ValueFault::Unknown { written, why: "has no scheme", nearest }));
    };
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
    let (server, path) = text.split_at(end);
    let server: Server = server.parse().map_err(|error: ValueError| refuse(error.fault))?;
    let is_host = matches!(server.host, ServerHost::Address(_) | ServerHost::Name(_));
    if !matches!(server.scheme, Scheme::Http | Scheme::Https) || !is_host {
        return Err(unknown("is not an https:// URL"));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['#', '\\', '"', '<', '>']) {
        return Err(unknown("has characters that are invalid in a URL"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(KeyUrl { server, path })
}

const ISSUER_URL: &str = "the URL of an issuer such as https://id.example.com/realms/shop";

/// The kind of value for an issuer: the text of its URL, and the URL of its provider configuration.
const ISSUER: Text<(String, KeyUrl)> =
    Text { expected: ISSUER_URL, read: issuer_url, print: |(issuer, _)| issuer.clone() };

fn issuer_url(text: &str) -> Result<(String, KeyUrl), ValueError> {
    let refuse = |fault| ValueError { fault, expected: ISSUER_URL };
    let url = key_url(text).map_err(|error| refuse(error.fault))?;
    // OpenID Connect Discovery 1.0 §3: an issuer has no query. Its documents are below it (§4).
    let why = match &url.path {
        path if path.contains('?') => "has a query, and an issuer has none",
        path if path.ends_with("/.well-known/openid-configuration") => {
            let nearest = text.strip_suffix("/.well-known/openid-configuration").map(str::to_owned);
            let (written, why) = (text.to_owned(), "is the URL of the issuer's document");
            return Err(refuse(ValueFault::Unknown { written, why, nearest }));
        }
        _ => return Ok((text.to_owned(), KeyUrl::of_provider(&url))),
    };
    Err(refuse(ValueFault::Unknown { written: text.to_owned(), why, nearest: None }))
}

const ALGORITHM: Word<Algorithm> = Word {
    words: &[
        ("RS256", Algorithm::Rs256),
        ("RS384", Algorithm::Rs384),
        ("RS512", Algorithm::Rs512),
        ("PS256", Algorithm::Ps256),
        ("PS384", Algorithm::Ps384),
        ("PS512", Algorithm::Ps512),
        ("ES256", Algorithm::Es256),
        ("ES384", Algorithm::Es384),
        ("ES512", Algorithm::Es512),
        ("EdDSA", Algorithm::EdDsa),
        ("HS256", Algorithm::Hs256),
        ("HS384", Algorithm::Hs384),
        ("HS512", Algorithm::Hs512),
    ],
};

pub(crate) const JWT: Inline<JwtWritten> = Inline {
    title: "jwt",
    example: "{ jwks = \"https://id.example.com/.well-known/jwks.json\", issuer = \"https://id.example.com/\" }",
    table: &Table {
        options: &[
            key!(
                "keys",
                Maybe(At(KEYS)),
                JwtWritten.keys,
                "File of public keys: PEM (`PUBLIC KEY`), or a JSON Web Key Set. Read at the start and at each \
                 reload. Exactly one of `keys`, `jwks`, `discovery` and `secret` is required.",
            ),
            key!(
                "jwks",
                Maybe(At(KEY_URL)),
                JwtWritten.jwks,
                "URL of a JSON Web Key Set. It is fetched at the start, and again when it expires or a token \
                 names an unknown key. If that fails, the last keys stay in use. Until there are keys, \
                 requests get 503.",
            ),
            key!(
                "discovery",
                Maybe(At(ISSUER)),
                JwtWritten.discovery,
                "URL of an issuer, whose keys are found by OpenID Connect Discovery: `jwks_uri` of \
                 `/.well-known/openid-configuration` below it. Tokens must be from this issuer (`iss`), \
                 unless `issuer` names others.",
            ),
            key!(
                "secret",
                Maybe(At(SECRET)),
                JwtWritten.secret,
                "File with a secret of 32 bytes or more, for the algorithms HS256, HS384 and HS512.",
            ),
            key!(
                "allow_http",
                Switch,
                JwtWritten.allow_http,
                "Permits an `http://` URL in `jwks` or `discovery` that leads to another machine. Then an \
                 attacker on the network can replace the keys.",
            ),
            key!(
                "ca",
                PATH_KIND,
                JwtWritten.ca,
                "The CA certificates that sign the certificates of the servers of `jwks` and `discovery`, in PEM. Default: those of the \
                 system.",
            ),
            key!(
                "refresh",
                Wait { range: REFRESH },
                JwtWritten.refresh,
                "How long fetched keys are used before they are fetched again, if the response has no `Cache-Control: \
                 max-age`; that counts from 1m to 1d.",
            ),
            key!(
                "algorithms",
                OneOrMany(At(ALGORITHM)),
                JwtWritten.algorithms,
                "Accepted signature algorithms. Default: all with a public key; with `secret`, HS256.",
            ),
            key!(
                "issuer",
                OneOrMany(Name { expected: "an issuer such as https://id.example.com/" }),
                JwtWritten.issuer,
                "Accepted issuers (`iss`), compared as text. Default: any that the keys belong to.",
            ),
            key!(
                "audience",
                OneOrMany(Name { expected: "an audience such as https://api.example.com, or \"*\" for any" }),
                JwtWritten.audience,
                "Accepted audiences (`aud`); a token must have one of them. `\"*\"`: any or none. Default: only tokens \
                 without `aud`.",
            ),
            key!(
                "leeway",
                Wait { range: Duration::ZERO..=Duration::from_secs(600) },
                JwtWritten.leeway,
                "How far the clocks of issuer and proxy may be apart, for `exp` and `nbf`.",
            ),
            key!("allow_no_expiry", Switch, JwtWritten.allow_no_expiry, "Accepts tokens without `exp`.",),
            key!(
                "require",
                Pairs {
                    expected: "claims with values such as { role = \"admin\" }",
                    name: parameter_name,
                    print_name: String::clone,
                    kind: OneOrMany(Name { expected: "a value, or \"*\" for any" }),
                },
                JwtWritten.require,
                "Required claims; otherwise 403. One of several values is enough. If a claim is a list, one \
                 item has to match; `scope` is a list separated by spaces. `\"*\"`: any value. \
                 `realm_access.roles` is a claim inside another one.",
            ),
            key!(
                "from",
                TOKEN_SOURCE,
                JwtWritten.from,
                "Where requests have their token: `bearer` (`Authorization: Bearer`), `header:NAME`, `cookie:NAME`, or \
                 `query:NAME` for WebSockets of browsers, which cannot set fields. The log hides the value of that \
                 parameter.",
            ),
            key!(
                "token_bytes",
                Count { range: 256..=65_536, unit: Unit::Bytes },
                JwtWritten.token_bytes,
                "Longest accepted token.",
            ),
            key!(
                "remove_token",
                Switch,
                JwtWritten.remove_token,
                "Removes the token before a server gets the request.",
            ),
            key!(
                "user",
                Name { expected: "the name of a claim such as sub" },
                JwtWritten.user,
                "Claim with the name of the user, for the log and `$user`.",
            ),
            key!(
                "claims",
                Pairs {
                    expected: "fields with claims such as { X-User = \"sub\" }",
                    name: FieldName::read,
                    print_name: FieldName::print,
                    kind: Name { expected: "the name of a claim such as sub" },
                },
                JwtWritten.claims,
                "Request fields that servers get, each with the value of a claim; lists are separated by \
                 commas. Fields with these names from clients are removed.",
            ),
        ],
    },
};

/// Checks the relations of the options; `None` if there is a mistake.
pub(crate) fn jwt(
    Element { value: written, at, is_intact, .. }: &Element<JwtWritten>,
    reader: &mut Reader<'_>,
) -> Option<Jwt> {
    let refused_before = reader.refused();
    let keys = keys(written, (at, *is_intact), reader);
    let algorithms = algorithms(written, reader);
    for Pair { at, name, .. } in &written.claims {
        if let Err((_, error)) = HeaderEdits::new([HeaderEdit::Remove(&name.0)], TemplateStage::Forward, None)
        {
            let fault = ValueFault::HeaderEdit(error);
            reader.refuse(at, "claims", &ValueError { fault, expected: FieldName::EXPECTED });
        }
    }
    let audience = match written.audience.as_slice() {
        [] => Audience::Nobody,
        known if known.iter().any(|name| name == ANY) => Audience::Anybody,
        known => Audience::Of(known.to_vec()),
    };
    let required = written.require.iter().map(|Pair { name, value, .. }| {
        let is_any = value.iter().any(|value| value == ANY);
        (name.clone(), if is_any { Vec::new() } else { value.clone() })
    });
    if let Some(Pair { at, .. }) = written.require.iter().find(|pair| pair.value.is_empty()) {
        refuse(at, "require: a claim without a value to require", "a value, or \"*\" for any", reader);
    }
    // OpenID Connect Discovery 1.0 §4.3: `iss` is the issuer that was asked.
    let discovered = written.discovery.iter().map(|discovery| discovery.value.0.clone());
    let issuers = if written.issuer.is_empty() { discovered.collect() } else { written.issuer.clone() };
    let rules = RequiredClaims {
        algorithms,
        issuers,
        audience,
        leeway_s: written.leeway.as_secs(),
        accepts_no_expiry: written.allow_no_expiry,
        required: required.collect(),
        user: written.user.clone(),
        passed: written.claims.iter().map(|pair| (pair.name.0.clone(), pair.value.clone())).collect(),
        // Set once the conditions of the route are known.
        kept: Vec::new(),
        token_bytes_max: written.token_bytes,
    };
    let keys = keys?;
    (*is_intact && reader.refused() == refused_before).then(|| Jwt {
        keys,
        rules,
        from: written.from.clone(),
        remove_token: written.remove_token,
    })
}

fn keys(written: &JwtWritten, (at, is_intact): (&Span, bool), reader: &mut Reader<'_>) -> Option<TokenKeys> {
    const ONE: &str = "keys, jwks, discovery or secret";
    let JwtWritten { keys, secret, jwks, discovery, .. } = written;
    let places = [
        ("keys", keys.as_ref().map(|keys| &keys.at)),
        ("jwks", jwks.as_ref().map(|jwks| &jwks.at)),
        ("discovery", discovery.as_ref().map(|discovery| &discovery.at)),
        ("secret", secret.as_ref().map(|secret| &secret.at)),
    ];
    let mut there = places.iter().filter_map(|(option, at)| at.map(|at| (*option, at)));
    match (there.next(), there.next()) {
        (Some((first, _)), Some((second, at))) => {
            refuse(at, &format!("jwt has {first} and {second}"), "one of them", reader);
        }
        (None, _) if is_intact && reader.is_whole() => refuse(at, "jwt has no keys", ONE, reader),
        _ => {}
    }
    let fetched = match (jwks, discovery) {
        (Some(Located { value: url, at }), _) => Some(("jwks", at, url, None)),
        (None, Some(Located { value: (issuer, url), at })) => {
            Some(("discovery", at, url, Some(issuer.clone())))
        }
        (None, None) => None,
    };
    if let (Some(ca), None) = (&written.ca, &fetched) {
        refuse(&ca.at, "jwt has ca without jwks", "an https:// URL in jwks or discovery, or no ca", reader);
    }
    if let Some(Located { value: (path, set), .. }) = keys {
        for reason in set.skipped() {
            let warning = reader.mistake(at, format!("keys: in {}, {reason}", path.display()));
            reader.warn(warning);
        }
        Some(TokenKeys::File(path.clone(), Arc::clone(set)))
    } else if let Some((option, at, url, issuer)) = fetched {
        if url.server.scheme == Scheme::Http && !is_loopback(&url.server.host) && !written.allow_http {
            let message = format!("{option}: over http, an attacker on the network can replace the keys");
            refuse(at, &message, "an https:// URL, or allow_http = true", reader);
        }
        let (url, ca) = (url.clone(), written.ca.as_ref().map(|ca| ca.value.clone()));
        Some(TokenKeys::Fetched(KeySource { url, issuer, ca, refresh: written.refresh }))
    } else {
        let (path, set) = &secret.as_ref()?.value;
        Some(TokenKeys::Secret(path.clone(), Arc::clone(set)))
    }
}

pub(crate) fn is_loopback(host: &ServerHost) -> bool {
    match host {
        ServerHost::Address(address) => address.is_loopback(),
        ServerHost::Name(name) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        ServerHost::Service(_) | ServerHost::Catalog(_) => false,
        ServerHost::Unix(_) => true,
    }
}

/// RFC 8725 §3.1: the algorithms follow from the kind of keys, not from tokens. A secret and public keys never mix: a
/// public key, which everybody knows, would do as the secret.
fn algorithms(written: &JwtWritten, reader: &mut Reader<'_>) -> Vec<Algorithm> {
    let has_secret = written.secret.is_some();
    for Located { value: algorithm, at } in &written.algorithms {
        if algorithm.is_symmetric() != has_secret {
            let (what, expected) = if has_secret {
                ("verifies with a public key, and jwt has a secret", "HS256, HS384 or HS512, or keys")
            } else {
                (
                    "verifies with a secret, and jwt has public keys",
                    "an algorithm such as RS256 or ES256, or secret",
                )
            };
            refuse(at, &format!("algorithms: {} {what}", algorithm.name()), expected, reader);
        }
    }
    let keys = [&written.keys, &written.secret].into_iter().flatten().next();
    if let (Some(keys), [first, ..]) = (keys, written.algorithms.as_slice())
        && !written.algorithms.iter().any(|algorithm| keys.value.1.takes(algorithm.value))
        && first.value.is_symmetric() == has_secret
    {
        refuse(
            &first.at,
            "algorithms: no key works with any of them",
            "an algorithm that fits the keys",
            reader,
        );
    }
    match written.algorithms.as_slice() {
        [] if has_secret => vec![Algorithm::Hs256],
        [] => Algorithm::ASYMMETRIC.to_vec(),
        some => some.iter().map(|algorithm| algorithm.value).collect(),
    }
}

impl JwtWritten {
    /// Conditions on the claims of these tokens.
    pub(crate) fn claim_rules(&self, values: Vec<(String, ValueRule)>) -> ClaimRules {
        ClaimRules { from: self.from.clone(), token_bytes_max: self.token_bytes, values }
    }

    /// Whether requests have the token in Authorization.
    pub(crate) fn is_bearer(&self) -> bool {
        self.from == TokenSource::Bearer
    }

    /// The fields that claims are passed on in, and where they are written.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&Span, &str)> {
        self.claims.iter().map(|pair| (&pair.at, pair.name.0.as_str()))
    }

    /// Whether a claim is passed on in the field of this name.
    pub(crate) fn passes(&self, name: &str) -> bool {
        self.claims.iter().any(|pair| pair.name == FieldName(name.to_owned()))
    }
}
