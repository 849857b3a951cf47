//! Facts: what expressions can ask about a connection, a request and its response.
//!
//! The caller implements [`Facts`] on its own data, so that nothing is copied.

use crate::memory::ValueMemory;
use crate::value::{Value, ValueType};

/// The stage of an exchange. Later stages know more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeStage {
    /// A connection is accepted; no request is known.
    Connection,
    /// A request has arrived.
    Request,
    /// The client is authenticated.
    Authenticated,
    /// A server is chosen.
    Forward,
    /// The response has arrived.
    Response,
}

impl ExchangeStage {
    /// When names of this stage are known, for messages.
    pub fn since(self) -> &'static str {
        match self {
            Self::Connection => "as soon as a connection is accepted",
            Self::Request => "once a request has arrived",
            Self::Authenticated => "once the client is authenticated",
            Self::Forward => "once a server is chosen",
            Self::Response => "once the response has arrived",
        }
    }
}

/// Declares the facts: variant, name, type, whether it may be absent, stage, docs.
macro_rules! facts {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $of:ident, $presence:ident, $stage:ident;)+) => {
        /// A name with one value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fact {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fact {
            /// All facts.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in expressions.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The type of the value. [`Facts::value`] must give a value of this type.
            pub fn value_type(self) -> ValueType {
                match self {
                    $(Self::$variant => ValueType::$of,)+
                }
            }

            /// Whether the value may be absent.
            pub fn is_optional(self) -> bool {
                match self {
                    $(Self::$variant => FactPresence::$presence == FactPresence::Optional,)+
                }
            }

            /// The first stage at which the value is known.
            pub fn stage(self) -> ExchangeStage {
                match self {
                    $(Self::$variant => ExchangeStage::$stage,)+
                }
            }
        }
    };
}

#[derive(PartialEq)]
enum FactPresence {
    Always,
    Optional,
}

facts! {
    /// The client's IP address.
    ClientAddress = "client.address", Address, Always, Connection;
    /// The client's port.
    ClientPort = "client.port", Integer, Always, Connection;
    /// The TLS version, such as `TLSv1.3`. Absent without TLS, as are all facts of TLS.
    ClientTlsVersion = "client.tls.version", Text, Optional, Connection;
    /// The cipher suite.
    ClientTlsCipher = "client.tls.cipher", Text, Optional, Connection;
    /// The server name that the client asked for (SNI).
    ClientTlsSni = "client.tls.sni", Text, Optional, Connection;
    /// The subject of the client's certificate.
    ClientTlsSubject = "client.tls.subject", Text, Optional, Connection;
    /// The issuer of the client's certificate.
    ClientTlsIssuer = "client.tls.issuer", Text, Optional, Connection;
    /// The SHA-256 fingerprint of the client's certificate, in lower-case hexadecimal digits.
    ClientTlsFingerprint = "client.tls.fingerprint", Text, Optional, Connection;
    /// Listener that has accepted the connection, by its name.
    ListenerName = "listener.name", Text, Always, Connection;
    /// The current time.
    Time = "time", Time, Always, Connection;
    /// The authenticated user.
    ClientUser = "client.user", Text, Optional, Authenticated;
    /// HTTP method, such as `GET`.
    RequestMethod = "request.method", Text, Always, Request;
    /// The path without the query, as routes compare it: escapes decoded once, repeated slashes merged.
    RequestPath = "request.path", Text, Always, Request;
    /// The path without the query as it was sent: routes of other proxies compare it so.
    RequestRawPath = "request.raw_path", Text, Always, Request;
    /// The query as it was sent, without its `?`. Absent without a `?`.
    RequestQuery = "request.query", Text, Optional, Request;
    /// The host in lower case, without port.
    RequestHost = "request.host", Text, Always, Request;
    /// `http` or `https`.
    RequestScheme = "request.scheme", Text, Always, Request;
    /// The HTTP version: `1.0`, `1.1`, `2` or `3`.
    RequestVersion = "request.version", Text, Always, Request;
    /// The length of the body in bytes. Absent while it is unknown.
    RequestSize = "request.size", Integer, Optional, Request;
    /// Upstream that the route leads to, by its name. Absent if the route needs none.
    UpstreamName = "upstream.name", Text, Optional, Forward;
    /// Server that gets the request, by its name. Absent if none was asked.
    ServerName = "server.name", Text, Optional, Forward;
    /// The status code; 0 if the client got no response.
    ResponseStatus = "response.status", Integer, Always, Response;
    /// The length of the response's body in bytes. Absent while it is unknown.
    ResponseSize = "response.size", Integer, Optional, Response;
    /// The time from the end of the request's head to the response's head.
    ResponseTime = "response.time", Duration, Always, Response;
    /// Result of the cache lookup, such as `hit` or `miss`. Absent without a cache.
    CacheStatus = "cache.status", Text, Optional, Response;
}

/// A group of texts with names: `request.headers["accept"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FactFamily {
    /// Fields of the request, by name in lower case.
    RequestHeaders,
    /// Pairs in all Cookie fields.
    RequestCookies,
    /// Parameters of the query, as they were sent: an expression decodes them.
    RequestQuery,
    /// Claims of the verified token, as texts.
    JwtClaims,
    /// Fields of the response, by name in lower case.
    ResponseHeaders,
}

impl FactFamily {
    /// All families.
    pub const ALL: [Self; 5] = [
        Self::RequestHeaders,
        Self::RequestCookies,
        Self::RequestQuery,
        Self::JwtClaims,
        Self::ResponseHeaders,
    ];

    /// The name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestHeaders => "request.headers",
            Self::RequestCookies => "request.cookies",
            Self::RequestQuery => "request.query",
            Self::JwtClaims => "jwt.claims",
            Self::ResponseHeaders => "response.headers",
        }
    }

    /// The first stage at which the texts are known.
    pub fn stage(self) -> ExchangeStage {
        match self {
            Self::JwtClaims => ExchangeStage::Authenticated,
            Self::ResponseHeaders => ExchangeStage::Response,
            Self::RequestHeaders | Self::RequestCookies | Self::RequestQuery => ExchangeStage::Request,
        }
    }

    /// Whether names ignore case, so that keys are in lower case.
    pub(crate) fn ignores_case(self) -> bool {
        matches!(self, Self::RequestHeaders | Self::ResponseHeaders)
    }
}

/// The name of a text in a family, as a constant of the expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    text: Box<str>,
    number: u32,
}

impl Key {
    pub(crate) fn new(text: &str, number: u32) -> Self {
        Self { text: text.into(), number }
    }

    /// The name; in lower case where the family ignores case.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The number that [`Schema::with_numbers`](crate::Schema::with_numbers) gave this name, else 0.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// The facts of one exchange.
///
/// During one evaluation the answers must not change. The texts of one name should not have more bytes together than
/// [`Limits::value_bytes`](crate::ExpressionLimits::value_bytes): longer ones are handled, but cost more than declared.
pub trait Facts {
    /// The value of a fact; `None` if absent. A value of another type than [`Fact::value_type`] counts as absent.
    fn value(&self, fact: Fact) -> Option<Value<'_>>;

    /// The first text with this name.
    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]>;

    /// Whether `test` accepts any text with this name. Tests only the first one unless implemented.
    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.field(family, key).is_some_and(test)
    }

    /// The value of a key in a map, by the number in [`Schema::with_map`](crate::Schema::with_map).
    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        let _ = (map, key);
        None
    }

    /// The values of named expressions that the exchange has computed so far. Without it, each is computed wherever it is
    /// used.
    fn memory(&self) -> Option<&ValueMemory> {
        None
    }

    /// The last stage whose facts are known and do not change any more. Values that ask for later ones are not kept in the
    /// memory.
    fn settled(&self) -> ExchangeStage {
        ExchangeStage::Request
    }
}
