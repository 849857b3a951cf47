//! Header edits of routes: options, named sets, the built-in set, and their result for a route.

use std::collections::HashSet;
use std::sync::OnceLock;

use ::route::{BytePattern, HeaderEdit, HeaderEditError, HeaderEdits, TemplateStage};
use mistake::nearest;

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Name, Template, located};
use crate::option::matching::FieldName;
use crate::option::pairs::{OneOrMany, Pair, Pairs, pair};
use crate::option::table::{Declared, Element, Inline, Table, key, one_of};
use crate::tables::names::Names;

/// The name of the set that is built in.
const SECURITY: &str = "security";

/// Defaults that the OWASP Secure Headers Project recommends for every site. Its fuller
/// Content-Security-Policy and Cross-Origin-Embedder-Policy depend on the site; Strict-Transport-Security is `hsts`.
const SECURITY_FIELDS: [(&str, &str); 8] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    (
        "Permissions-Policy",
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), \
         microphone=(), midi=(), payment=(), usb=()",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Permitted-Cross-Domain-Policies", "none"),
];

/// Fields that name the software of servers.
const TELLING_FIELDS: [&str; 3] = ["Server", "X-Powered-By", "X-AspNet-Version"];

fn security() -> &'static EditsWritten {
    static EDITS: OnceLock<EditsWritten> = OnceLock::new();
    EDITS.get_or_init(|| EditsWritten {
        default: SECURITY_FIELDS
            .map(|(name, value)| pair(FieldName(name.to_owned()), located(value.to_owned())))
            .into(),
        remove: TELLING_FIELDS.map(|name| located(name.to_owned())).into(),
        ..EditsWritten::default()
    })
}

/// An edit, the option that it comes from, and the places of its name and value.
struct Edit<'w> {
    option: &'static str,
    edit: HeaderEdit<'w>,
    name_at: &'w Span,
    value_at: &'w Span,
}

impl Edit<'_> {
    fn name(&self) -> &str {
        let (HeaderEdit::Set(name, _)
        | HeaderEdit::Add(name, _)
        | HeaderEdit::Default(name, _)
        | HeaderEdit::Remove(name)) = self.edit;
        name
    }
}

/// The edits of a route: those of the sets that it uses, then its own. Each is tried alone first, so that every mistake is
/// found.
pub(crate) fn edits(
    written: Option<&Element<EditsWritten>>,
    (stage, pattern): (TemplateStage, Option<&BytePattern>),
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<HeaderEdits> {
    let Some(Element { value: own, .. }) = written else { return Some(HeaderEdits::default()) };
    let refused_before = reader.refused();
    let mut all: Vec<Edit<'_>> = Vec::new();
    for Located { value: name, at } in &own.uses {
        if let Some(set) = set(name, at, stage, names, reader) {
            extend(&mut all, set);
        }
    }
    extend(&mut all, own);
    check_defaults(own, reader);
    for edit in &all {
        try_alone(edit, stage, pattern, reader);
    }
    if reader.refused() > refused_before {
        return None;
    }
    let made = HeaderEdits::new(all.iter().map(|edit| edit.edit), stage, pattern);
    made.map_err(|(index, error)| refuse(&all[index], error, reader)).ok()
}

fn set<'w>(
    name: &str,
    at: &Span,
    stage: TemplateStage,
    names: &Names<'w>,
    reader: &mut Reader<'_>,
) -> Option<&'w EditsWritten> {
    if let Some(set) = names.header_sets.get(name) {
        return Some(set);
    }
    if name == SECURITY {
        if stage == TemplateStage::Response {
            return Some(security());
        }
        let mistake = reader.mistake(at, format!("use: {SECURITY:?} is for responses"));
        reader.add(mistake.expecting("it in response_headers"));
    } else if reader.is_whole() {
        let mut known: Vec<&str> = names.header_sets.keys().copied().chain([SECURITY]).collect();
        known.sort_unstable();
        let mistake = reader.mistake(at, format!("use: no set of headers is named {name:?}"));
        let near = nearest(name, known.iter().copied()).map(str::to_owned);
        reader.add(mistake.meaning(near).expecting(one_of(&known)));
    }
    None
}

/// Adds the edits of a table. They replace what was said of the same fields before.
fn extend<'w>(all: &mut Vec<Edit<'w>>, written: &'w EditsWritten) {
    let EditsWritten { uses: _, set, add, default, remove } = written;
    let fields = |option, fields: &'w [Pair<FieldName, Located<String>>], edit: EditOf| {
        fields.iter().map(move |Pair { at, name, value }| Edit {
            option,
            edit: edit(&name.0, &value.value),
            name_at: at,
            value_at: &value.at,
        })
    };
    let mut own: Vec<Edit<'w>> = fields("set", set, |name, value| HeaderEdit::Set(name, value)).collect();
    own.extend(fields("default", default, |name, value| HeaderEdit::Default(name, value)));
    own.extend(remove.iter().map(|name| Edit {
        option: "remove",
        edit: HeaderEdit::Remove(&name.value),
        name_at: &name.at,
        value_at: &name.at,
    }));
    own.extend(fields("add", add, |name, value| HeaderEdit::Add(name, value)));
    all.retain(|before| !own.iter().any(|edit| edit.name().eq_ignore_ascii_case(before.name())));
    all.append(&mut own);
    // As it is printed.
    all.sort_by_key(|edit| match edit.edit {
        HeaderEdit::Set(..) => 0,
        HeaderEdit::Add(..) => 1,
        HeaderEdit::Default(..) => 2,
        HeaderEdit::Remove(_) => 3,
    });
}

type EditOf = for<'e> fn(&'e str, &'e str) -> HeaderEdit<'e>;

/// Rejects a default for a field that is set anyway.
fn check_defaults(written: &EditsWritten, reader: &mut Reader<'_>) {
    let is_set = |name: &str| written.set.iter().any(|set| set.name.0.eq_ignore_ascii_case(name));
    for Pair { at, name, .. } in written.default.iter().filter(|default| is_set(&default.name.0)) {
        let mistake = reader.mistake(at, format!("default: {} is set, so it is never missing", name.0));
        reader.add(mistake.expecting("one of set and default"));
    }
}

fn try_alone(edit: &Edit<'_>, stage: TemplateStage, pattern: Option<&BytePattern>, reader: &mut Reader<'_>) {
    if let Err((_, error)) = HeaderEdits::new([edit.edit], stage, pattern) {
        refuse(edit, error, reader);
    }
}

fn refuse(edit: &Edit<'_>, error: HeaderEditError, reader: &mut Reader<'_>) {
    let is_value = matches!(error, HeaderEditError::Value(_));
    let (at, expected) = if is_value {
        (edit.value_at, "a value, with variables such as $client_address")
    } else {
        (edit.name_at, FieldName::EXPECTED)
    };
    reader.refuse(at, edit.option, &ValueError { fault: ValueFault::HeaderEdit(error), expected });
}

/// Checks the sets that no route uses, and warns of them.
pub(crate) fn check_header_sets(
    sets: &[(Span, String, EditsWritten)],
    used: &HashSet<&str>,
    reader: &mut Reader<'_>,
) {
    for (at, name, written) in sets {
        check_defaults(written, reader);
        if name == SECURITY {
            let mistake = reader.mistake(at, format!("[headers.{SECURITY}] is built in"));
            reader.add(mistake.expecting("another name"));
        } else if !used.contains(name.as_str()) {
            let warning = reader.mistake(at, format!("no route uses the headers {name:?}"));
            reader.warn(warning);
            let mut all = Vec::new();
            extend(&mut all, written);
            // Groups of a path may be those of any route.
            let has_variables = |edit: &&Edit<'_>| match edit.edit {
                HeaderEdit::Set(_, value) | HeaderEdit::Add(_, value) | HeaderEdit::Default(_, value) => {
                    value.contains('$')
                }
                HeaderEdit::Remove(_) => false,
            };
            for edit in all.iter().filter(|edit| !has_variables(edit)) {
                try_alone(edit, TemplateStage::Response, None, reader);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EditsWritten {
    pub(crate) uses: Vec<Located<String>>,
    pub(crate) default: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) set: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) add: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) remove: Vec<Located<String>>,
}

pub(crate) const FIELDS: Pairs<FieldName, At<Template>> = Pairs {
    expected: "names with values such as { X-Tenant = \"$host\" }",
    name: FieldName::read,
    print_name: FieldName::print,
    kind: At(Template { expected: "a value, with variables such as $client_address" }),
};

pub(crate) const EDITS: Inline<EditsWritten> = Inline {
    title: "these headers",
    example: "{ set = { X-Tenant = \"$host\" }, remove = [\"Server\"] }",
    table: &Table {
        options: &[
            key!(
                "use",
                OneOrMany(At(Name { expected: "the name of a set: NAME of [headers.NAME], or security" })),
                EditsWritten.uses,
                "Sets of `[headers.NAME]`, in order; `\"security\"` is built in, for responses. Settings \
                 here replace theirs for the same field.",
            ),
            SET,
            ADD,
            DEFAULT,
            REMOVE,
        ],
    },
};

/// The table `[headers.NAME]`.
pub(crate) static HEADER_SET: Table<EditsWritten> = Table { options: &[SET, ADD, DEFAULT, REMOVE] };

pub(crate) const SET: Declared<EditsWritten> = key!(
    "set",
    FIELDS,
    EditsWritten.set,
    "Fields that get this value and no other. If the value is empty, the field is removed.",
);

pub(crate) const ADD: Declared<EditsWritten> =
    key!("add", FIELDS, EditsWritten.add, "Fields that are added to those that exist.",);

pub(crate) const DEFAULT: Declared<EditsWritten> =
    key!("default", FIELDS, EditsWritten.default, "Fields that get this value if the message has none.",);

pub(crate) const REMOVE: Declared<EditsWritten> = key!(
    "remove",
    OneOrMany(At(Name { expected: FieldName::EXPECTED })),
    EditsWritten.remove,
    "Fields that are removed, from trailers too.",
);
