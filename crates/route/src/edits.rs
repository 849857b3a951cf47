//! Sets, adds and removes header fields of requests and responses.
//!
//! Fields for framing and connection management belong to the proxy, and cannot be edited.

use std::sync::Arc;

use crate::pattern::BytePattern;
use crate::request::FieldLookup;
use crate::template::{RouteTemplate, TemplateError, TemplateStage, TemplateUse};
use crate::variable_values::VariableValues;

/// Names that cannot be edited, with an alternative or the reason.
const UNTOUCHED: [(&str, &str); 11] = [
    ("connection", "connections are the proxy's own"),
    ("content-length", "bodies are framed by the proxy"),
    ("expect", "its client waits for what the server says to it"),
    ("host", "use the host rewrite"),
    ("keep-alive", "connections are the proxy's own"),
    ("proxy-connection", "connections are the proxy's own"),
    ("te", "connections are the proxy's own"),
    ("trailer", "bodies are framed by the proxy"),
    ("transfer-encoding", "bodies are framed by the proxy"),
    ("upgrade", "connections are the proxy's own"),
    ("http2-settings", "connections are the proxy's own"),
];

/// Edits of a header section.
///
/// First, all fields that are set or removed are taken out. Then the set and added fields are written, in the order of
/// the list, and defaults of missing fields. A field whose value is empty, because a variable in it has no value, is
/// not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    written: Vec<WrittenField>,
    removed: RemovedFields,
    /// The lengths of the names that have a default, as bits; see `Names::lengths`.
    default_lengths: u64,
}

/// The fields with a default that a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Present(u64);

/// Names of the fields that edits remove from the head and the trailers of a message. Clones share the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedFields(Arc<FieldNames>);

#[derive(Debug, Default, PartialEq, Eq)]
struct FieldNames {
    /// In lower case, sorted.
    names: Vec<Box<[u8]>>,
    /// The lengths of the names, as bits; the last bit stands for all longer ones.
    lengths: u64,
    /// Whether `X_User` is removed with `X-User`: many servers pass both to a program as one variable.
    ignores_underscores: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WrittenField {
    name: Box<str>,
    value: RouteTemplate,
    mode: EditMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditMode {
    /// Existing fields with this name are removed.
    Set,
    Add,
    /// Only if there is none: the bit in `Present`.
    Default(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderEdit<'a> {
    /// Sets a field to one value.
    Set(&'a str, &'a str),
    Add(&'a str, &'a str),
    /// Sets a field if there is none.
    Default(&'a str, &'a str),
    /// Removes all fields with a name.
    Remove(&'a str),
}

/// The most defaults of one list: a bit each.
const DEFAULTS_MAX: u32 = 64;

/// Why an edit is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderEditError {
    /// RFC 9110 §5.1.
    #[error("{0:?} is no name of a header field; names are letters, digits and -")]
    Name(String),
    /// Only the proxy may write the field.
    #[error("{name} cannot be edited: {because}")]
    Untouched {
        /// As configured.
        name: String,
        /// An alternative, or the reason.
        because: &'static str,
    },
    /// There are more defaults than `DEFAULTS_MAX`.
    #[error("there are more than {DEFAULTS_MAX} defaults")]
    Defaults,
    #[error("{0}")]
    Value(#[from] TemplateError),
}

impl HeaderEdits {
    /// Parses edits. `stage` is `Forward` for requests, `Response` for responses. Groups in values refer to `pattern`.
    ///
    /// # Errors
    /// The first rejected edit, with its position in the list.
    pub fn new<'a>(
        edits: impl IntoIterator<Item = HeaderEdit<'a>>,
        stage: TemplateStage,
        pattern: Option<&BytePattern>,
    ) -> Result<Self, (usize, HeaderEditError)> {
        let (mut written, mut removed) = (Vec::new(), FieldNames::default());
        for (index, edit) in edits.into_iter().enumerate() {
            push(&mut written, &mut removed, edit, stage, pattern).map_err(|error| (index, error))?;
        }
        removed.names.sort_unstable();
        removed.names.dedup();
        // A vector starts with room for four, and there may be 100,000 routes with one edit each.
        removed.names.shrink_to_fit();
        written.shrink_to_fit();
        // Without names the flag has no meaning, and must not make empty edits differ.
        removed.ignores_underscores = stage == TemplateStage::Forward && !removed.names.is_empty();
        let defaults = written.iter().filter(|written| matches!(written.mode, EditMode::Default(_)));
        let default_lengths = defaults.fold(0, |bits, written| bits | length_bit(written.name.len()));
        Ok(Self { written, removed: RemovedFields(Arc::new(removed)), default_lengths })
    }

    /// A copy that also removes these request fields, which only the proxy may write.
    #[must_use]
    pub fn removing<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut removed = FieldNames {
            names: self.removed.0.names.clone(),
            lengths: self.removed.0.lengths,
            ignores_underscores: true,
        };
        let before = removed.names.len();
        for name in names {
            removed.names.push(name.to_ascii_lowercase().into_bytes().into());
            removed.lengths |= length_bit(name.len());
        }
        if removed.names.len() == before {
            return self;
        }
        removed.names.sort_unstable();
        removed.names.dedup();
        Self { removed: RemovedFields(Arc::new(removed)), ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed().is_none()
    }

    /// The names of set and removed fields, if there are any.
    pub fn removed(&self) -> Option<&RemovedFields> {
        Some(&self.removed).filter(|removed| !removed.0.names.is_empty())
    }

    /// Edits that are equivalent to the original ones. Removed names come last, in lower case.
    pub fn edits(&self) -> impl Iterator<Item = HeaderEdit<'_>> {
        let written = self.written.iter().map(|WrittenField { name, value, mode }| match mode {
            EditMode::Set => HeaderEdit::Set(name, value.as_str()),
            EditMode::Add => HeaderEdit::Add(name, value.as_str()),
            EditMode::Default(_) => HeaderEdit::Default(name, value.as_str()),
        });
        let is_set = |removed: &str| {
            let mut set = self.written.iter().filter(|written| written.mode == EditMode::Set);
            set.any(|written| written.name.eq_ignore_ascii_case(removed))
        };
        let removed = self.removed.0.names.iter().filter_map(|name| std::str::from_utf8(name).ok());
        written.chain(removed.filter(move |name| !is_set(name)).map(HeaderEdit::Remove))
    }

    /// Whether values refer to groups of a pattern.
    pub fn has_groups(&self) -> bool {
        self.written.iter().any(|written| written.value.has_groups())
    }

    /// Whether a value refers to `$user`.
    pub fn has_user(&self) -> bool {
        self.written.iter().any(|written| written.value.has_user())
    }

    /// Whether fields with this name are removed. In requests, `_` and `-` are equal.
    #[inline]
    pub fn remove(&self, name: &[u8]) -> bool {
        self.removed.has(name)
    }

    /// Records that the message has a field with this name, which stays.
    #[inline]
    pub fn note(&self, name: &[u8], present: &mut Present) {
        if self.default_lengths & length_bit(name.len()) != 0 {
            for WrittenField { name: known, mode, .. } in &self.written {
                if let EditMode::Default(bit) = mode
                    && known.as_bytes().eq_ignore_ascii_case(name)
                {
                    present.0 |= 1 << bit;
                }
            }
        }
    }

    /// Appends the set and added field lines, and the defaults of fields that are not `present`, each with CRLF.
    pub fn write<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        present: Present,
        out: &mut Vec<u8>,
    ) {
        for WrittenField { name, value, mode } in &self.written {
            if matches!(mode, EditMode::Default(bit) if present.0 & (1 << bit) != 0) {
                continue;
            }
            let start = out.len();
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            let value_start = out.len();
            value.fill(values, out);
            if out.len() == value_start {
                out.truncate(start);
            } else {
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

impl RemovedFields {
    /// Whether fields with this name are removed. In requests, `_` and `-` are equal.
    #[inline]
    pub fn has(&self, name: &[u8]) -> bool {
        let FieldNames { names, lengths, .. } = &*self.0;
        lengths & length_bit(name.len()) != 0 && names.iter().any(|removed| self.0.is_same(removed, name))
    }
}

impl FieldNames {
    fn is_same(&self, removed: &[u8], name: &[u8]) -> bool {
        let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        removed.eq_ignore_ascii_case(name)
            || (self.ignores_underscores
                && removed.len() == name.len()
                && removed.iter().zip(name).all(|(one, other)| folded(*one) == folded(*other)))
    }
}

fn push(
    written: &mut Vec<WrittenField>,
    removed: &mut FieldNames,
    edit: HeaderEdit<'_>,
    stage: TemplateStage,
    pattern: Option<&BytePattern>,
) -> Result<(), HeaderEditError> {
    let (HeaderEdit::Set(name, _)
    | HeaderEdit::Add(name, _)
    | HeaderEdit::Default(name, _)
    | HeaderEdit::Remove(name)) = edit;
    check_name(name)?;
    if let HeaderEdit::Set(..) | HeaderEdit::Remove(_) = edit {
        removed.names.push(name.to_ascii_lowercase().into_bytes().into());
        removed.lengths |= length_bit(name.len());
    }
    let (value, mode) = match edit {
        HeaderEdit::Set(_, value) => (value, EditMode::Set),
        HeaderEdit::Add(_, value) => (value, EditMode::Add),
        HeaderEdit::Default(_, value) => {
            let defaults = written.iter().filter(|written| matches!(written.mode, EditMode::Default(_)));
            let bit = u32::try_from(defaults.count()).ok().filter(|bit| *bit < DEFAULTS_MAX);
            (value, EditMode::Default(bit.ok_or(HeaderEditError::Defaults)?))
        }
        HeaderEdit::Remove(_) => return Ok(()),
    };
    let value = RouteTemplate::new(value, TemplateUse::FieldValue, stage, pattern)?;
    written.push(WrittenField { name: name.into(), value, mode });
    Ok(())
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

fn check_name(name: &str) -> Result<(), HeaderEditError> {
    // RFC 9110 §5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(HeaderEditError::Name(name.to_owned()));
    }
    // CGI-like servers read `Content_Length` as the real one.
    let hyphened = name.replace('_', "-");
    match UNTOUCHED.iter().find(|(known, _)| known.eq_ignore_ascii_case(&hyphened)) {
        Some((_, because)) => Err(HeaderEditError::Untouched { name: name.to_owned(), because }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::HeaderEdit::{Add, Remove, Set};
    use super::*;
    use crate::request::RequestParts;

    #[test]
    fn fields_are_set_added_and_removed() {
        let edits = HeaderEdits::new(
            [
                Set("X-Client", "$client_address"),
                Add("X-Tag", "a"),
                Add("x-tag", "$header.x-tag"),
                Remove("Server"),
                Set("X-Subject", "$tls.subject"),
                Set("X-Status", "$status"),
                Set("X-Note", "[$tls.subject]"),
            ],
            TemplateStage::Response,
            None,
        )
        .unwrap();
        for (name, removed) in [
            ("x-client", true),
            ("X-CLIENT", true),
            ("SERVER", true),
            ("X-Subject", true),
            ("X-Tag", false),
            ("Servers", false),
            ("Xerver", false),
            ("", false),
        ] {
            assert_eq!(edits.remove(name.as_bytes()), removed, "{name}");
        }
        let fields = [("X-Tag", "b\r\nX-Evil: 1")];
        let request = RequestParts {
            listener: 0,
            host: b"a",
            path: b"/",
            query: None,
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &fields,
            conditions: &crate::NoConditions,
        };
        let mut out = Vec::new();
        let values = VariableValues { status: Some(200), ..VariableValues::from_request(request, "http") };
        edits.write(&values, Present::default(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "X-Client: 192.0.2.1\r\nX-Tag: a\r\nx-tag: b  X-Evil: 1\r\nX-Status: 200\r\nX-Note: []\r\n"
        );
        assert!(!edits.is_empty() && HeaderEdits::default().is_empty() && !edits.has_groups());
        let listed: Vec<HeaderEdit<'_>> = edits.edits().collect();
        assert_eq!(listed.first(), Some(&Set("X-Client", "$client_address")));
        assert_eq!(listed.last(), Some(&Remove("server")));
        assert_eq!(HeaderEdits::new(listed, TemplateStage::Response, None), Ok(edits));
        assert!(!HeaderEdits::default().remove(b"Server"));
    }

    #[test]
    fn defaults_are_for_fields_that_are_not_there() {
        let list = [
            HeaderEdit::Default("X-Frame-Options", "DENY"),
            HeaderEdit::Default("Referrer-Policy", "no-referrer"),
            HeaderEdit::Default("X-Empty", "$tls.subject"),
        ];
        let edits = HeaderEdits::new(list, TemplateStage::Response, None).unwrap();
        assert!(!edits.is_empty() && edits.removed().is_none() && edits.edits().eq(list));
        let fields: [(&str, &str); 0] = [];
        let request = RequestParts {
            listener: 0,
            host: b"a",
            path: b"/",
            query: None,
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &fields,
            conditions: &crate::NoConditions,
        };
        let values = VariableValues::from_request(request, "http");
        let with = |names: &[&str]| {
            let (mut present, mut out) = (Present::default(), Vec::new());
            names.iter().for_each(|name| edits.note(name.as_bytes(), &mut present));
            edits.write(&values, present, &mut out);
            String::from_utf8(out).unwrap()
        };
        let both = "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n";
        assert_eq!(with(&[]), both);
        assert_eq!(with(&["Server", "X-Frame-Option_", "", "Referrer_Policy"]), both);
        assert_eq!(with(&["x-frame-OPTIONS", "Server"]), "Referrer-Policy: no-referrer\r\n");
        assert_eq!(with(&["Referrer-Policy", "X-Frame-Options", "X-Frame-Options"]), "");
        let many: Vec<String> = (0..65).map(|index| format!("X-{index}")).collect();
        let defaults = |count: usize| {
            let list = many[..count].iter().map(|name| HeaderEdit::Default(name, "1"));
            HeaderEdits::new(list, TemplateStage::Response, None).map(|_| ())
        };
        assert_eq!((defaults(64), defaults(65)), (Ok(()), Err((64, HeaderEditError::Defaults))));
    }

    /// CGI (RFC 3875 §4.1.18) and its successors map both names to HTTP_X_USER.
    #[test]
    fn requests_do_not_keep_a_field_by_another_spelling() {
        let edits = [Set("X-User", "proxy"), Remove("X_Internal"), Add("X-Tag", "a")];
        let of = |stage| HeaderEdits::new(edits, stage, None).unwrap();
        for (name, removed) in [
            ("X_User", true),
            ("x_uSER", true),
            ("X-Internal", true),
            ("X_INTERNAL", true),
            ("X_Tag", false),
            ("X.User", false),
        ] {
            assert_eq!(of(TemplateStage::Forward).remove(name.as_bytes()), removed, "{name}");
        }
        assert!(!of(TemplateStage::Response).remove(b"X_User"), "nobody is to be deceived by a server");
    }

    #[test]
    fn fields_that_cannot_be_edited() {
        let refused = |edit| HeaderEdits::new([Remove("a"), edit], TemplateStage::Forward, None).unwrap_err();
        for name in [
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "HOST",
            "Upgrade",
            "TE",
            "Trailer",
            "Expect",
            "Content_Length",
            "transfer_Encoding",
        ] {
            for edit in [Set(name, "x"), Add(name, "x"), Remove(name)] {
                assert!(matches!(refused(edit), (1, HeaderEditError::Untouched { .. })), "{edit:?}");
            }
        }
        for name in ["", "a b", "a:", "caf\u{e9}", "a\r"] {
            assert!(matches!(refused(Remove(name)), (1, HeaderEditError::Name(_))), "{name:?}");
        }
        let (_, HeaderEditError::Value(error)) = refused(Set("a", "x$status")) else { panic!() };
        assert_eq!(error.offset, 1);
    }
}
