//! Parses templates: texts with variables, such as `https://$host$path`. Errors have a position.
//!
//! The position of a variable decides how its value is escaped when the template is filled in (`fill`).

use std::sync::Arc;

use expression::{ExchangeStage, Expression};

use crate::named_values::{OfClient, TemplateScope, is_of_client, is_of_host, is_of_user};
use crate::variable_values::ProxyCount;

/// The longest template, as configured.
pub const TEMPLATE_BYTES_MAX: usize = 4096;

/// The names of all variables. Those ending in `.NAME` are families: `$header.User-Agent`, `$arg.page`.
pub const VARIABLES: [&str; 36] = [
    "host",
    "port",
    "path",
    "query",
    "path_and_query",
    "method",
    "scheme",
    "client_address",
    "request_id",
    "hostname",
    "proxy.accepted",
    "proxy.connections",
    "proxy.idle",
    "proxy.requests",
    "proxy.serving",
    "time.unix",
    "time.unix_ms",
    "user",
    "route",
    "upstream",
    "server",
    "status",
    "tls.sni",
    "tls.subject",
    "tls.issuer",
    "tls.serial",
    "tls.san",
    "tls.fingerprint",
    "tls.version",
    "tls.cipher",
    "tls.alpn",
    "header.NAME",
    "cookie.NAME",
    "arg.NAME",
    "capture.NAME",
    "1",
];

/// A text with variables, written `$name` or `${name}`; `$$` is a dollar sign.
///
/// `$1` to `$99` and `$capture.NAME` are the groups of a pattern; empty if the group took no part in the match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTemplate {
    text: Box<str>,
    pub(crate) pieces: Vec<TemplatePiece>,
    pub(crate) place: TemplateUse,
}

/// The use of a template. It decides what is allowed where, and how values are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateUse {
    FieldValue,
    /// A path for a server, with a query if there is a `?`.
    Path,
    /// The URL of a redirect: a path, or `http://…`, `https://…` or `$scheme://…`.
    Location,
    /// A host with optional port.
    Host,
    /// A folder below a fixed one, as a path without a slash at its ends: each value stays within a segment.
    Folder,
    /// Content, in which only `${name}` is a variable: other dollar signs are frequent there. `$${` is the text `${`.
    Content(ContentSyntax),
}

/// The syntax of content. Values are escaped so that they stay texts in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentSyntax {
    Plain,
    /// HTML and XML: the value stays outside of markup, also between quotes of an attribute.
    Markup,
    /// JSON and JavaScript: the value is a part of a string between double quotes.
    Json,
}

impl ContentSyntax {
    /// The syntax of a media type.
    pub fn of_media_type(media_type: &str) -> Self {
        let kind = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_of = |names: &[&str]| {
            names
                .iter()
                .any(|name| kind.ends_with(&format!("/{name}")) || kind.ends_with(&format!("+{name}")))
        };
        if is_of(&["html", "xml"]) {
            Self::Markup
        } else if is_of(&["json", "javascript", "ecmascript"]) {
            Self::Json
        } else {
            Self::Plain
        }
    }
}

/// The stage of an exchange at which a template is filled in, which decides what variables are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateStage {
    /// After the route is chosen.
    Route,
    /// After the client is authenticated: additionally values that ask for the user.
    Authenticated,
    /// After the server is chosen: additionally `$upstream` and `$server`.
    Forward,
    /// After the response arrived: additionally `$status`.
    Response,
}

impl TemplateStage {
    /// The stage of the same moment for expressions.
    pub fn of_exchange(self) -> ExchangeStage {
        match self {
            Self::Route => ExchangeStage::Request,
            Self::Authenticated => ExchangeStage::Authenticated,
            Self::Forward => ExchangeStage::Forward,
            Self::Response => ExchangeStage::Response,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    Text(Box<[u8]>),
    Variable(Variable, Position),
}

/// The position of a variable in a URL; a field value is one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Anywhere,
    Scheme,
    Authority,
    Path,
    /// In the query or the fragment.
    Query,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    Host,
    Port,
    Path,
    Query,
    PathAndQuery,
    Method,
    Scheme,
    ClientAddress,
    RequestId,
    Hostname,
    Proxy(ProxyCount),
    UnixSeconds,
    UnixMilliseconds,
    User,
    Route,
    Upstream,
    Server,
    Status,
    TlsServerName,
    TlsSubject,
    TlsIssuer,
    TlsSerial,
    TlsNames,
    TlsFingerprint,
    TlsVersion,
    TlsCipher,
    TlsAlpn,
    Header(Box<[u8]>),
    Cookie(Box<[u8]>),
    Argument(Box<[u8]>),
    Group(usize),
    /// A named expression.
    Value(Arc<Expression>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct TemplateError {
    /// In bytes.
    pub offset: usize,
    pub fault: TemplateFault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// The template exceeds [`TEMPLATE_BYTES_MAX`].
    #[error("the text has {0} bytes; at most {TEMPLATE_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// A control character, or a character that a URL cannot contain.
    #[error("{0:?} has no place here; in a URL, escape it as %XX")]
    Character(char),
    /// A dollar sign without a name.
    #[error("a variable's name is expected after $; write $$ for a dollar sign")]
    NameMissing,
    /// `${` without `}`.
    #[error("the }} of this ${{ is missing")]
    BraceMissing,
    /// An unknown variable; see [`VARIABLES`].
    #[error("there is no variable ${name}")]
    Unknown {
        name: String,
        /// The names of values and maps that the template could use.
        values: Vec<String>,
    },
    /// A family without a name, or with an invalid one: `$header.`.
    #[error("${0} needs the name of what is meant, such as ${0}x")]
    MemberMissing(&'static str),
    /// A variable whose value is known only later.
    #[error("${0} is not known yet where this is used")]
    TooEarly(String),
    /// A value that asks for what is known only later.
    #[error(
        "${{{name}}} is known only {}, because it asks for {asks}; this text is filled in {}",
        known.since(),
        here.since()
    )]
    LateValue {
        name: String,
        /// The name in its expression that is known so late.
        asks: &'static str,
        known: ExchangeStage,
        /// The stage at which the text is filled in.
        here: ExchangeStage,
    },
    /// A group that the pattern does not have.
    #[error("${0} is no group of the pattern")]
    NoGroup(String),
    /// A group, but there is no pattern.
    #[error("${0} is a group of a pattern, and there is no pattern here")]
    NoPattern(String),
    /// A path or location with an invalid beginning; the valid ones are given.
    #[error("it has to begin with {0}")]
    Beginning(&'static str),
    /// A variable that could lead a redirect to another host: `https://example.com$1`.
    #[error("this could change the host of the URL; put a slash before it")]
    InAuthority,
}

impl RouteTemplate {
    /// Variables whose values may differ between clients that request one URL.
    pub fn of_client(&self) -> impl Iterator<Item = OfClient<'_>> {
        self.pieces.iter().filter_map(|piece| {
            let TemplatePiece::Variable(variable, _) = piece else { return None };
            Some(match variable {
                Variable::Header(name) => OfClient::Header(name),
                Variable::Cookie(name) => OfClient::Cookie(name),
                Variable::ClientAddress => OfClient::Other("$client_address"),
                Variable::RequestId => OfClient::Other("$request_id"),
                Variable::Proxy(_) => OfClient::Other("$proxy"),
                Variable::UnixSeconds => OfClient::Other("$time.unix"),
                Variable::UnixMilliseconds => OfClient::Other("$time.unix_ms"),
                Variable::User => OfClient::Other("$user"),
                Variable::Port => OfClient::Other("$port"),
                Variable::TlsServerName => OfClient::Other("$tls.sni"),
                Variable::TlsSubject => OfClient::Other("$tls.subject"),
                Variable::TlsIssuer => OfClient::Other("$tls.issuer"),
                Variable::TlsSerial => OfClient::Other("$tls.serial"),
                Variable::TlsNames => OfClient::Other("$tls.san"),
                Variable::TlsFingerprint => OfClient::Other("$tls.fingerprint"),
                Variable::TlsVersion => OfClient::Other("$tls.version"),
                Variable::TlsCipher => OfClient::Other("$tls.cipher"),
                Variable::TlsAlpn => OfClient::Other("$tls.alpn"),
                Variable::Value(value) if is_of_client(value) => OfClient::Value(value.as_str()),
                Variable::Host
                | Variable::Hostname
                | Variable::Path
                | Variable::Query
                | Variable::PathAndQuery
                | Variable::Method
                | Variable::Scheme
                | Variable::Route
                | Variable::Upstream
                | Variable::Server
                | Variable::Status
                | Variable::Argument(_)
                | Variable::Group(_)
                | Variable::Value(_) => return None,
            })
        })
    }

    /// Parses a template. Groups refer to the pattern of the scope.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn new<'s>(
        text: &str,
        place: TemplateUse,
        stage: TemplateStage,
        scope: impl Into<TemplateScope<'s>>,
    ) -> Result<Self, TemplateError> {
        let scope = scope.into();
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError { offset: 0, fault: TemplateFault::TooLong(text.len()) });
        }
        let position = first_position(text, place)?;
        let mut reader = TemplateReader { text, offset: 0, pieces: Vec::new(), place, position };
        while let Some(character) = text[reader.offset..].chars().next() {
            let offset = reader.offset;
            let read = match character {
                '$' => reader.variable(stage, scope),
                _ => reader.character(character),
            };
            read.map_err(|fault| TemplateError { offset, fault })?;
        }
        reader.check_end().map_err(|fault| TemplateError { offset: text.len(), fault })?;
        reader.pieces.shrink_to_fit();
        Ok(Self { text: text.into(), pieces: reader.pieces, place })
    }

    /// The template as configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the template has any variable.
    pub(crate) fn has_variables(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, TemplatePiece::Variable(..)))
    }

    /// Whether the template refers to groups of a pattern, so that captures are needed to fill it in.
    pub fn has_groups(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, TemplatePiece::Variable(Variable::Group(_), _)))
    }

    /// The variable that depends on who the client is, if the template has one: `$user`, or a value that asks for the user
    /// or for a claim.
    pub(crate) fn user_variable(&self) -> Option<&str> {
        self.pieces.iter().find_map(|piece| match piece {
            TemplatePiece::Variable(Variable::User, _) => Some("$user"),
            TemplatePiece::Variable(Variable::Value(value), _) if is_of_user(value) => Some(value.as_str()),
            TemplatePiece::Variable(..) | TemplatePiece::Text(_) => None,
        })
    }

    /// The values that the template has.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Expression>> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Variable(Variable::Value(value), _) => Some(value),
            TemplatePiece::Variable(..) | TemplatePiece::Text(_) => None,
        })
    }

    /// The stage at which all its values are known.
    pub fn values_known(&self) -> ExchangeStage {
        let stages = self.values().map(|value| value.stage());
        stages.max().unwrap_or(ExchangeStage::Connection)
    }

    /// The expression of a template that is nothing but one value: `${app}`.
    pub fn only_value(&self) -> Option<&Arc<Expression>> {
        match self.pieces.as_slice() {
            [TemplatePiece::Variable(Variable::Value(value), _)] => Some(value),
            _ => None,
        }
    }

    /// The text of a template without variables; `None` if it has any.
    pub fn constant(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(b""),
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the template writes a query or fragment.
    pub(crate) fn has_query(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            TemplatePiece::Text(text) => text.iter().any(|byte| b"?#".contains(byte)),
            TemplatePiece::Variable(variable, _) => {
                matches!(variable, Variable::Query | Variable::PathAndQuery)
            }
        })
    }
}

fn first_position(text: &str, place: TemplateUse) -> Result<Position, TemplateError> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| text.starts_with(beginning));
    let fault = |beginning| TemplateError { offset: 0, fault: TemplateFault::Beginning(beginning) };
    match place {
        TemplateUse::FieldValue | TemplateUse::Folder | TemplateUse::Content(_) => Ok(Position::Anywhere),
        TemplateUse::Host => Ok(Position::Authority),
        _ if text.starts_with("//") => Err(fault("one slash")),
        _ if begins(&["/", "$path", "${path"]) => Ok(Position::Path),
        TemplateUse::Location if begins(&["http://", "https://", "$scheme://", "${scheme}://"]) => {
            Ok(Position::Scheme)
        }
        TemplateUse::Location => Err(fault("a slash, http://, https:// or $scheme://")),
        TemplateUse::Path => Err(fault("a slash")),
    }
}

struct TemplateReader<'a> {
    text: &'a str,
    offset: usize,
    pieces: Vec<TemplatePiece>,
    place: TemplateUse,
    position: Position,
}

impl TemplateReader<'_> {
    fn character(&mut self, character: char) -> Result<(), TemplateFault> {
        let is_allowed = match self.place {
            TemplateUse::FieldValue => character == '\t' || !character.is_control(),
            TemplateUse::Path => character.is_ascii_graphic() && !"\"#<>\\^`{|}".contains(character),
            TemplateUse::Location => character.is_ascii_graphic() && !"\"<>\\^`{|}".contains(character),
            TemplateUse::Host => character.is_ascii_alphanumeric() || "-._:[]".contains(character),
            TemplateUse::Folder => !character.is_control() && character != '%',
            TemplateUse::Content(_) => true,
        };
        if !is_allowed {
            return Err(TemplateFault::Character(character));
        }
        let next = self.position_after(character);
        if self.position == Position::Authority && next != Position::Authority {
            self.check_end()?;
        }
        self.position = next;
        self.offset += character.len_utf8();
        self.push_text(character);
        Ok(())
    }

    /// The part of the URL behind a character.
    fn position_after(&self, character: char) -> Position {
        match (self.position, character) {
            (Position::Scheme, '/') if self.text[..self.offset].ends_with('/') => Position::Authority,
            (Position::Authority, '/') => Position::Path,
            (Position::Authority | Position::Path, '?' | '#') => Position::Query,
            (position, _) => position,
        }
    }

    fn push_text(&mut self, character: char) {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        match self.pieces.last_mut() {
            Some(TemplatePiece::Text(text)) => *text = [text, bytes].concat().into(),
            _ => self.pieces.push(TemplatePiece::Text(bytes.into())),
        }
    }

    /// Reads `$name`, `${name}` or `$$`.
    fn variable(&mut self, stage: TemplateStage, scope: TemplateScope<'_>) -> Result<(), TemplateFault> {
        if let TemplateUse::Content(_) = self.place
            && self.content_dollars()
        {
            return Ok(());
        }
        let Some((TemplateToken::Variable(name), len)) = token(&self.text[self.offset..])? else {
            self.offset += 1;
            return self.character('$');
        };
        let variable = Variable::named(name, scope)?;
        if let Variable::Value(value) = &variable {
            check_value(name, value, stage.of_exchange())?;
        } else if variable.known_from() > stage {
            return Err(TemplateFault::TooEarly(name.to_owned()));
        }
        // The values of both always begin with a slash, and so end the host.
        if self.position == Position::Authority && matches!(variable, Variable::Path | Variable::PathAndQuery)
        {
            self.check_end()?;
            self.position = Position::Path;
        }
        self.pieces.push(TemplatePiece::Variable(variable, self.position));
        self.offset += len;
        Ok(())
    }

    /// Reads the dollar signs of content up to a variable: in pairs in front of a brace, otherwise as they are. Returns
    /// whether no variable follows.
    fn content_dollars(&mut self) -> bool {
        let rest = &self.text[self.offset..];
        let run = rest.bytes().take_while(|&byte| byte == b'$').count();
        let is_before_brace = rest[run..].starts_with('{');
        let (literal, read) = if is_before_brace { (run / 2, run - run % 2) } else { (run, run) };
        for _ in 0..literal {
            self.push_text('$');
        }
        self.offset += read;
        !is_before_brace || run % 2 == 0
    }

    /// Checks the end of a URL's host: only text, or a variable that is the whole host or all but its first labels, and
    /// that clients cannot choose freely. Of a value that is one of several constants, or in a map, clients choose no other
    /// text. One that asks for nothing but the requested host may be it, like `$host`.
    fn check_end(&self) -> Result<(), TemplateFault> {
        let (TemplateUse::Location, Position::Authority) = (self.place, self.position) else { return Ok(()) };
        match self.pieces.as_slice() {
            [
                ..,
                TemplatePiece::Text(before),
                TemplatePiece::Variable(Variable::Host | Variable::Server | Variable::TlsServerName, _),
            ] if before.ends_with(b"/") || before.ends_with(b".") => Ok(()),
            [.., TemplatePiece::Text(before), TemplatePiece::Variable(Variable::Value(value), _)]
                if before.ends_with(b"/") && (value.possible_texts().is_some() || is_of_host(value)) =>
            {
                Ok(())
            }
            [.., TemplatePiece::Variable(..)] => Err(TemplateFault::InAuthority),
            _ => Ok(()),
        }
    }
}

/// Rejects a value that is not known yet where a text is filled in.
fn check_value(name: &str, value: &Expression, here: ExchangeStage) -> Result<(), TemplateFault> {
    let known = value.stage();
    if known <= here {
        return Ok(());
    }
    let asks = value.latest_name().unwrap_or("a later fact");
    Err(TemplateFault::LateValue { name: name.to_owned(), asks, known, here })
}

/// The first part of a text with variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateToken<'t> {
    /// A character that stands for itself, also one written `$$`.
    Character(char),
    /// A variable, by its name.
    Variable(&'t str),
}

/// The first token of a text with variables, and its length in bytes; `None` at the end. The common parser of all texts
/// with variables.
///
/// # Errors
/// The name of a variable is missing, or its closing brace.
pub fn token(text: &str) -> Result<Option<(TemplateToken<'_>, usize)>, TemplateFault> {
    let Some(first) = text.chars().next() else { return Ok(None) };
    if first != '$' {
        return Ok(Some((TemplateToken::Character(first), first.len_utf8())));
    }
    let rest = &text[1..];
    if rest.starts_with('$') {
        return Ok(Some((TemplateToken::Character('$'), 2)));
    }
    let (name, len) = match rest.strip_prefix('{') {
        Some(inside) => {
            let len = inside.find('}').ok_or(TemplateFault::BraceMissing)?;
            (&inside[..len], len + 2)
        }
        None => {
            let name = bare_name(rest);
            (name, name.len())
        }
    };
    if name.is_empty() {
        return Err(TemplateFault::NameMissing);
    }
    Ok(Some((TemplateToken::Variable(name), 1 + len)))
}

/// The name at the start of a text: letters, or two digits, or a family with its member.
fn bare_name(text: &str) -> &str {
    let run = |text: &str, allowed: fn(u8) -> bool| {
        text.bytes().position(|byte| !allowed(byte)).unwrap_or(text.len())
    };
    let digits = run(text, |byte| byte.is_ascii_digit()).min(2);
    if digits > 0 {
        return &text[..digits];
    }
    let word = run(text, |byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_family = matches!(
        &text[..word],
        "tls" | "header" | "cookie" | "arg" | "capture" | "time" | "proxy" | "response_header" | "map"
    );
    match text[word..].strip_prefix('.') {
        Some(member) if is_family => {
            let member = run(member, |byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            &text[..word + 1 + member]
        }
        _ => &text[..word],
    }
}

impl Variable {
    fn named(name: &str, scope: TemplateScope<'_>) -> Result<Self, TemplateFault> {
        let TemplateScope { pattern, values } = scope;
        let group = |group: Option<usize>| match pattern {
            None => Err(TemplateFault::NoPattern(name.to_owned())),
            Some(pattern) => group
                .filter(|number| *number < pattern.groups())
                .map(Variable::Group)
                .ok_or_else(|| TemplateFault::NoGroup(name.to_owned())),
        };
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return group(name.parse().ok());
        }
        let member = |family: &'static str, member: &str| match member {
            "" => Err(TemplateFault::MemberMissing(family)),
            member => Ok(member.as_bytes().into()),
        };
        match name.split_once('.') {
            Some(("header", name)) => return member("header.", name).map(Variable::Header),
            Some(("cookie", name)) => return member("cookie.", name).map(Variable::Cookie),
            Some(("arg", name)) => return member("arg.", name).map(Variable::Argument),
            Some(("capture", name)) => return group(pattern.and_then(|pattern| pattern.group(name))),
            Some(("proxy", _)) => {
                let known = ProxyCount::NAMES.iter().find(|(known, _)| *known == name);
                if let Some((_, count)) = known {
                    return Ok(Self::Proxy(*count));
                }
            }
            _ => {}
        }
        Ok(match name {
            "host" => Self::Host,
            "port" => Self::Port,
            "path" => Self::Path,
            "query" => Self::Query,
            "path_and_query" => Self::PathAndQuery,
            "method" => Self::Method,
            "scheme" => Self::Scheme,
            "client_address" => Self::ClientAddress,
            "request_id" => Self::RequestId,
            "hostname" => Self::Hostname,
            "time.unix" => Self::UnixSeconds,
            "time.unix_ms" => Self::UnixMilliseconds,
            "user" => Self::User,
            "route" => Self::Route,
            "upstream" => Self::Upstream,
            "server" => Self::Server,
            "status" => Self::Status,
            "tls.sni" => Self::TlsServerName,
            "tls.subject" => Self::TlsSubject,
            "tls.issuer" => Self::TlsIssuer,
            "tls.serial" => Self::TlsSerial,
            "tls.san" => Self::TlsNames,
            "tls.fingerprint" => Self::TlsFingerprint,
            "tls.version" => Self::TlsVersion,
            "tls.cipher" => Self::TlsCipher,
            "tls.alpn" => Self::TlsAlpn,
            _ => {
                let value = values.and_then(|values| values.find(name)).cloned();
                return value.map(Self::Value).ok_or_else(|| TemplateFault::Unknown {
                    name: name.to_owned(),
                    values: values.iter().flat_map(|values| values.names()).map(str::to_owned).collect(),
                });
            }
        })
    }

    fn known_from(&self) -> TemplateStage {
        match self {
            Self::Upstream | Self::Server => TemplateStage::Forward,
            Self::Status => TemplateStage::Response,
            // Values have the stage of their expressions: see `check_value`.
            _ => TemplateStage::Route,
        }
    }
}

#[cfg(test)]
mod tests;
