//! Sets, adds and removes header fields of requests and responses.
//!
//! Fields for framing and connection management belong to the proxy, and cannot be edited.

use std::sync::Arc;

use expression::Expression;

use crate::named_values::{TemplateScope, is_of_user};
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
///
/// Edits may be in several groups, each with a condition. Each group sees the result of those before: it replaces or
/// removes what they write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    written: Box<[WrittenField]>,
    removed: RemovedFields,
    /// The lengths of the names that have a default, as bits; see `Names::lengths`.
    default_lengths: u64,
    /// The conditions of all groups but the first; `None` if there is only that.
    // A thin pointer, because every route has two of these.
    groups: Option<Arc<Vec<GroupCondition>>>,
}

/// The condition of a group of edits; `None` if the group always applies.
pub type GroupCondition = Option<Arc<Expression>>;

/// The most groups of edits besides the first: a bit each.
pub const EDIT_GROUPS_MAX: usize = 63;

/// The groups of edits that apply to a message, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveEdits(u64);

impl ActiveEdits {
    /// The first group, which has no condition.
    pub const FIRST: Self = Self(1);
    /// All groups, whatever their conditions.
    pub const ALL: Self = Self(u64::MAX);

    fn has_any(self, groups: u64) -> bool {
        self.0 & groups != 0
    }
}

impl Default for ActiveEdits {
    fn default() -> Self {
        Self::FIRST
    }
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
    names: Box<[Box<[u8]>]>,
    /// For each name, the groups that remove it, as bits; empty if there is only one group.
    groups: Box<[u64]>,
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
    /// The number of its group.
    group: u8,
    /// Later groups that set or remove the field, as bits.
    replaced_by: u64,
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
    /// Parses edits. `stage` is `Forward` for requests, `Response` for responses. Groups in values refer to the pattern of
    /// the scope.
    ///
    /// # Errors
    /// The first rejected edit, with its position in the list.
    pub fn new<'a, 's>(
        edits: impl IntoIterator<Item = HeaderEdit<'a>>,
        stage: TemplateStage,
        scope: impl Into<TemplateScope<'s>>,
    ) -> Result<Self, (usize, HeaderEditError)> {
        Self::in_groups(edits.into_iter().map(|edit| (0, edit)), Vec::new(), stage, scope)
    }

    /// Parses edits in groups. Each edit has the number of its group: 0 is the first, which has no condition, and `n` has
    /// the condition `groups[n - 1]`. There are at most [`EDIT_GROUPS_MAX`] conditions.
    ///
    /// # Errors
    /// The first rejected edit, with its position in the list.
    pub fn in_groups<'a, 's>(
        edits: impl IntoIterator<Item = (usize, HeaderEdit<'a>)>,
        groups: Vec<GroupCondition>,
        stage: TemplateStage,
        scope: impl Into<TemplateScope<'s>>,
    ) -> Result<Self, (usize, HeaderEditError)> {
        let scope = scope.into();
        let (mut written, mut removed) = (Vec::new(), Vec::new());
        for (index, (group, edit)) in edits.into_iter().enumerate() {
            let group = group.min(EDIT_GROUPS_MAX) as u8;
            push(&mut written, &mut removed, (group, edit), stage, scope).map_err(|error| (index, error))?;
        }
        for field in &mut written {
            let is_same = |(name, _): &&RemovedName| name.eq_ignore_ascii_case(field.name.as_bytes());
            let bits = removed.iter().filter(is_same).fold(0, |bits, (_, group)| bits | group);
            // Groups after its own: the bits above.
            field.replaced_by = bits & (u64::MAX << field.group << 1);
        }
        let removed = FieldNames::new(removed, !groups.is_empty(), stage == TemplateStage::Forward);
        let defaults = written.iter().filter(|written| matches!(written.mode, EditMode::Default(_)));
        let default_lengths = defaults.fold(0, |bits, written| bits | length_bit(written.name.len()));
        let groups = (!groups.is_empty()).then(|| Arc::new(groups));
        Ok(Self {
            // There may be 100,000 routes with one edit each, and a vector has room for four.
            written: written.into(),
            removed: RemovedFields(Arc::new(removed)),
            default_lengths,
            groups,
        })
    }

    /// A copy that also removes these request fields, which only the proxy may write.
    #[must_use]
    pub fn removing<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = &self.removed.0;
        let group = |place| known.groups.get(place).copied().unwrap_or(ActiveEdits::FIRST.0);
        let before = known.names.iter().enumerate().map(|(place, name)| (name.clone(), group(place)));
        let mut removed: Vec<RemovedName> = before.collect();
        let of_edits = removed.len();
        let own = names.into_iter().map(|name| (lower_case(name), ActiveEdits::FIRST.0));
        removed.extend(own);
        if removed.len() == of_edits {
            return self;
        }
        let removed = FieldNames::new(removed, self.groups.is_some(), true);
        Self { removed: RemovedFields(Arc::new(removed)), ..self }
    }

    /// The groups that apply to a message, where `holds` evaluates their conditions.
    #[inline]
    pub fn active(&self, holds: impl FnMut(&Expression) -> bool) -> ActiveEdits {
        match &self.groups {
            None => ActiveEdits::FIRST,
            Some(groups) => active(groups, holds),
        }
    }

    /// Whether any group has a condition.
    #[inline]
    pub fn has_conditions(&self) -> bool {
        self.groups.is_some()
    }

    /// The conditions of the groups, in order.
    pub fn conditions(&self) -> impl Iterator<Item = &Arc<Expression>> {
        self.groups.iter().flat_map(|groups| groups.iter().flatten())
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
        let written = self.written.iter().map(|WrittenField { name, value, mode, .. }| match mode {
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

    /// Whether values have variables.
    pub fn has_variables(&self) -> bool {
        self.written.iter().any(|written| written.value.has_variables())
    }

    /// Whether values refer to groups of a pattern.
    pub fn has_groups(&self) -> bool {
        self.written.iter().any(|written| written.value.has_groups())
    }

    /// The first variable that depends on who the client is: `$user`, or a value such as `values.plan`.
    pub fn user_variable(&self) -> Option<&str> {
        self.written.iter().find_map(|written| written.value.user_variable())
    }

    /// The values that fields get.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Expression>> {
        self.written.iter().flat_map(|written| written.value.values())
    }

    /// Whether the result depends on the user or on the claims of a token.
    pub fn tells_user(&self) -> bool {
        self.user_variable().is_some() || self.conditions().any(|when| is_of_user(when))
    }

    /// Whether the value that a field gets may differ by client: it has variables, or its edit has a condition.
    pub fn varies(&self, name: &[u8]) -> bool {
        let is_of_group = |place: usize| self.removed.0.groups.get(place).is_some_and(|groups| *groups > 1);
        let mut removed = self.removed.0.names.iter().enumerate();
        removed.any(|(place, known)| is_of_group(place) && known.eq_ignore_ascii_case(name))
            || self.written.iter().any(|field| {
                (field.group > 0 || field.value.as_str().contains('$'))
                    && field.name.as_bytes().eq_ignore_ascii_case(name)
            })
    }

    /// Whether fields with this name are removed. In requests, `_` and `-` are equal.
    #[inline]
    pub fn remove(&self, name: &[u8], active: ActiveEdits) -> bool {
        self.removed.has(name, active)
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
        mut present: Present,
        active: ActiveEdits,
        out: &mut Vec<u8>,
    ) {
        for field in &self.written {
            let WrittenField { name, value, mode, group, replaced_by } = field;
            let is_present = matches!(mode, EditMode::Default(bit) if present.0 & (1 << bit) != 0);
            if is_present || !active.has_any(1 << group) || active.has_any(*replaced_by) {
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
                if self.groups.is_some() {
                    self.note_written(field, &mut present);
                }
            }
        }
    }

    /// Notes a written field as present for the defaults of later groups.
    fn note_written(&self, field: &WrittenField, present: &mut Present) {
        for WrittenField { name, mode, group, .. } in &self.written {
            if let EditMode::Default(bit) = mode
                && *group > field.group
                && name.eq_ignore_ascii_case(&field.name)
            {
                present.0 |= 1 << bit;
            }
        }
    }
}

fn active(groups: &[GroupCondition], mut holds: impl FnMut(&Expression) -> bool) -> ActiveEdits {
    let mut active = ActiveEdits::FIRST;
    for (place, when) in groups.iter().enumerate() {
        if when.as_deref().is_none_or(&mut holds) {
            active.0 |= 2 << place;
        }
    }
    active
}

/// A removed name in lower case, and the groups that remove it.
type RemovedName = (Box<[u8]>, u64);

fn lower_case(name: &str) -> Box<[u8]> {
    name.to_ascii_lowercase().into_bytes().into()
}

impl RemovedFields {
    /// Whether fields with this name are removed. In requests, `_` and `-` are equal.
    #[inline]
    pub fn has(&self, name: &[u8], active: ActiveEdits) -> bool {
        let FieldNames { names, groups, lengths, .. } = &*self.0;
        lengths & length_bit(name.len()) != 0
            && names.iter().enumerate().any(|(place, removed)| {
                self.0.is_same(removed, name)
                    && groups.get(place).is_none_or(|groups| active.has_any(*groups))
            })
    }
}

impl FieldNames {
    fn new(mut removed: Vec<RemovedName>, has_groups: bool, is_of_requests: bool) -> Self {
        removed.sort_unstable();
        removed.dedup_by(|(later, also), (name, groups)| {
            let is_same = later == name;
            if is_same {
                *groups |= *also;
            }
            is_same
        });
        let (names, groups): (Vec<Box<[u8]>>, Vec<u64>) = removed.into_iter().unzip();
        Self {
            lengths: names.iter().fold(0, |bits, name| bits | length_bit(name.len())),
            // Without names the flag has no meaning, and must not make empty edits differ.
            ignores_underscores: is_of_requests && !names.is_empty(),
            groups: if has_groups { groups.into() } else { [].into() },
            names: names.into(),
        }
    }

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
    removed: &mut Vec<RemovedName>,
    (group, edit): (u8, HeaderEdit<'_>),
    stage: TemplateStage,
    scope: TemplateScope<'_>,
) -> Result<(), HeaderEditError> {
    let (HeaderEdit::Set(name, _)
    | HeaderEdit::Add(name, _)
    | HeaderEdit::Default(name, _)
    | HeaderEdit::Remove(name)) = edit;
    check_name(name)?;
    if let HeaderEdit::Set(..) | HeaderEdit::Remove(_) = edit {
        removed.push((lower_case(name), 1 << group));
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
    let value = RouteTemplate::new(value, TemplateUse::FieldValue, stage, scope)?;
    written.push(WrittenField { name: name.into(), value, mode, group, replaced_by: 0 });
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
    use expression::{ExchangeStage, ExpressionLimits, Schema};

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
            assert_eq!(edits.remove(name.as_bytes(), ActiveEdits::FIRST), removed, "{name}");
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
        edits.write(&values, Present::default(), ActiveEdits::FIRST, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "X-Client: 192.0.2.1\r\nX-Tag: a\r\nx-tag: b  X-Evil: 1\r\nX-Status: 200\r\nX-Note: []\r\n"
        );
        assert!(!edits.is_empty() && HeaderEdits::default().is_empty() && !edits.has_groups());
        let listed: Vec<HeaderEdit<'_>> = edits.edits().collect();
        assert_eq!(listed.first(), Some(&Set("X-Client", "$client_address")));
        assert_eq!(listed.last(), Some(&Remove("server")));
        assert_eq!(HeaderEdits::new(listed, TemplateStage::Response, None), Ok(edits));
        assert!(!HeaderEdits::default().remove(b"Server", ActiveEdits::FIRST));
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
            edits.write(&values, present, ActiveEdits::FIRST, &mut out);
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
            assert_eq!(
                of(TemplateStage::Forward).remove(name.as_bytes(), ActiveEdits::FIRST),
                removed,
                "{name}"
            );
        }
        assert!(
            !of(TemplateStage::Response).remove(b"X_User", ActiveEdits::FIRST),
            "nobody is to be deceived by a server"
        );
    }

    /// Each group of edits applies to the result of those before.
    #[test]
    fn groups_apply_one_after_the_other() {
        let limits = ExpressionLimits::default();
        let schema = Schema::new(ExchangeStage::Response);
        let when = |text| Some(Arc::new(Expression::new(text, &schema, &limits).unwrap()));
        let list = [
            (0, Set("X-Mode", "plain")),
            (0, HeaderEdit::Default("X-Kept", "first")),
            (0, Add("X-Tag", "0")),
            (1, Set("x-mode", "one")),
            (1, Add("X-Tag", "1")),
            (1, Remove("X-Gone")),
            (2, HeaderEdit::Default("X-Mode", "never")),
            (2, HeaderEdit::Default("X-Kept", "second")),
            (2, HeaderEdit::Default("X-Empty", "$tls.subject")),
            (3, HeaderEdit::Default("X-Empty", "third")),
            (3, Remove("X-Tag")),
        ];
        let groups = vec![when("response.status == 1"), when("response.status == 2"), None];
        let edits = HeaderEdits::in_groups(list, groups, TemplateStage::Response, None).unwrap();
        let of_none =
            HeaderEdits::in_groups(list[..10].to_vec(), vec![None; 3], TemplateStage::Response, None);
        assert!(edits.has_conditions() && edits.conditions().count() == 2 && of_none.is_ok());
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
        for (holding, expected, removes_gone) in [
            ("", "X-Mode: plain\r\nX-Kept: first\r\nX-Empty: third\r\n", false),
            ("1", "X-Kept: first\r\nx-mode: one\r\nX-Empty: third\r\n", true),
            ("2", "X-Mode: plain\r\nX-Kept: first\r\nX-Empty: third\r\n", false),
            ("12", "X-Kept: first\r\nx-mode: one\r\nX-Empty: third\r\n", true),
        ] {
            let active = edits.active(|when| holding.contains(&when.as_str()[19..]));
            let (mut present, mut out) = (Present::default(), Vec::new());
            edits.write(&values, present, active, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{holding}");
            assert_eq!(edits.remove(b"x-gone", active), removes_gone, "{holding}");
            assert!(edits.remove(b"X-Mode", active) && edits.remove(b"x-tag", active), "{holding}");
            // What the message has already gets no default.
            edits.note(b"X-Kept", &mut present);
            let mut out = Vec::new();
            edits.write(&values, present, active, &mut out);
            assert!(!String::from_utf8(out).unwrap().contains("X-Kept"), "{holding}");
        }
        for (name, varies) in [("x-mode", true), ("x-gone", true), ("X-Kept", true), ("X-Other", false)] {
            assert_eq!(edits.varies(name.as_bytes()), varies, "{name}");
        }
        let own = edits.clone().removing(["X-Own"]);
        assert!(own.remove(b"x_own", ActiveEdits::FIRST) && !own.remove(b"x_gone", ActiveEdits::FIRST));
        assert!(!edits.tells_user() && edits.user_variable().is_none());
        let by_user = HeaderEdits::in_groups(
            [(1, Set("X-Plan", "gold"))],
            vec![when("client.user == \"ann\"")],
            TemplateStage::Forward,
            None,
        );
        assert!(by_user.unwrap().tells_user());
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
