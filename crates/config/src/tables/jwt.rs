//! Settings of tokens (JWT): keys, rules, and where requests have them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jwt::{KeySet, RequiredClaims};
use route::TokenSource;

use crate::option::server::Server;

/// The option `jwt` of routes.
pub(crate) mod options;

/// Access control by JSON Web Token (RFC 7519).
#[derive(Debug, Clone, PartialEq)]
pub struct Jwt {
    /// The keys that tokens are verified with.
    pub keys: TokenKeys,
    /// Rules that tokens must meet, and claims that are copied.
    pub rules: RequiredClaims,
    /// Where requests have their token.
    pub from: TokenSource,
    /// Whether the token is removed before a server gets the request.
    pub remove_token: bool,
}

/// The keys that tokens are verified with.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenKeys {
    /// Public keys, and the file that they were read from.
    File(PathBuf, Arc<KeySet>),
    /// A secret, and the file that it was read from.
    Secret(PathBuf, Arc<KeySet>),
    /// Public keys that are fetched.
    Fetched(KeySource),
}

/// A URL of public keys, a JWKS document (RFC 7517 §5), or of a document that says where they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeySource {
    pub url: KeyUrl,
    /// The issuer whose provider configuration is at the URL (OpenID Connect Discovery 1.0 §4); `None` means that the keys
    /// are there.
    pub issuer: Option<String>,
    /// The CA that signs the server's certificate, in PEM; `None` means the system's roots.
    pub ca: Option<PathBuf>,
    /// How long keys are used before they are fetched again, if the response does not say so.
    pub refresh: Duration,
}

/// `https://HOST[:PORT]/PATH`, or the same with `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUrl {
    pub server: Server,
    pub path: String,
}

/// Access control by HTTP Message Signatures of bots (RFC 9421, Web Bot Auth).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebBotAuth {
    /// The agents that are let in, by the directories of their keys.
    pub agents: Vec<KeySource>,
    /// The longest accepted time from `created` to `expires`, in seconds.
    pub lifetime_s: u64,
    /// How far the clocks of agent and proxy may be apart, in seconds.
    pub leeway_s: u64,
}

impl KeyUrl {
    /// The place of an issuer's provider configuration (OpenID Connect Discovery 1.0 §4): below the issuer's URL, without a
    /// slash at its end.
    pub(crate) fn of_provider(issuer: &Self) -> Self {
        let path = format!("{}/.well-known/openid-configuration", issuer.path.trim_end_matches('/'));
        Self { server: issuer.server.clone(), path }
    }

    /// The URL without its path: `https://HOST[:PORT]`.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.server.scheme.as_str(), self.server.authority())
    }
}

impl fmt::Display for KeyUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin(), self.path)
    }
}

impl std::hash::Hash for KeyUrl {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}
