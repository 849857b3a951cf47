//! Header edits of routes: options, named sets, the built-in set, and their result for a route.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use ::route::{EDIT_GROUPS_MAX, HeaderEdit, HeaderEditError, HeaderEdits, TemplateScope, TemplateStage};
use expression::{ExchangeStage, Expression};
use mistake::nearest;
use toml::Spanned;
use toml::de::DeValue;

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::{Form, OFF};
use crate::option::kind::{At, Described, Kind, Located, Maybe, Name, Template, located};
use crate::option::later_condition::LaterCondition;
use crate::option::matching::FieldName;
use crate::option::pairs::{OneOrMany, Pair, Pairs, pair};
use crate::option::table::{Declared, Element, Inline, Table, Written, key, one_of};
use crate::option::templates::expected_for;
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

/// The edits of a route: for each of its tables those of the sets that it uses, then its own. Each is tried alone first, so
/// that every mistake is found.
pub(crate) fn edits(
    written: &[Element<EditsWritten>],
    (stage, scope): (TemplateStage, TemplateScope<'_>),
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<HeaderEdits> {
    let Some(Element { value: first, .. }) = written.first() else { return Some(HeaderEdits::default()) };
    let refused_before = reader.refused();
    // The first group has no condition.
    let before = usize::from(first.when.is_some());
    let mut all: Vec<(usize, Edit<'_>)> = Vec::new();
    for (place, Element { value: own, at, .. }) in written.iter().enumerate() {
        let mut of_table = Vec::new();
        for Located { value: name, at } in &own.uses {
            if let Some(set) = set(name, at, stage, names, reader) {
                extend(&mut of_table, set);
            }
        }
        extend(&mut of_table, own);
        check_defaults(own, reader);
        if own.when.is_some() && of_table.is_empty() && own.uses.is_empty() {
            let mistake = reader.mistake(at, "when: this table edits nothing");
            reader.add(mistake.expecting("set, add, default, remove or use"));
        }
        all.extend(of_table.into_iter().map(|edit| (before + place, edit)));
    }
    for (_, edit) in &all {
        try_alone(edit, stage, scope, reader);
    }
    if let Some(Element { at, .. }) = written.get(EDIT_GROUPS_MAX) {
        let mistake = reader.mistake(at, "there are too many tables of edits");
        reader.add(mistake.expecting(format!("at most {EDIT_GROUPS_MAX}")));
    }
    if reader.refused() > refused_before {
        return None;
    }
    let conditions =
        written.iter().map(|table| table.value.when.as_ref().map(|when| Arc::clone(&when.value)));
    let groups = conditions.skip(1 - before).collect();
    let made =
        HeaderEdits::in_groups(all.iter().map(|(group, edit)| (*group, edit.edit)), groups, stage, scope);
    made.map_err(|(index, error)| refuse(&all[index].1, error, reader)).ok()
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
    let EditsWritten { uses: _, set, add, default, remove, when: _ } = written;
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

/// Edits that set fields, as the only ones. `option` is for mistakes.
pub(crate) fn set_alone(
    (option, set): (&'static str, &[Pair<FieldName, Located<String>>]),
    (stage, scope): (TemplateStage, TemplateScope<'_>),
    reader: &mut Reader<'_>,
) -> Option<HeaderEdits> {
    let edits = set.iter().map(|Pair { name, value, .. }| HeaderEdit::Set(&name.0, &value.value));
    let made = HeaderEdits::new(edits, stage, scope);
    let refused = |(index, error): (usize, _)| {
        let Pair { at, name, value } = &set[index];
        let edit = HeaderEdit::Set(&name.0, &value.value);
        refuse(&Edit { option, edit, name_at: at, value_at: &value.at }, error, reader);
    };
    made.map_err(refused).ok()
}

fn try_alone(edit: &Edit<'_>, stage: TemplateStage, scope: TemplateScope<'_>, reader: &mut Reader<'_>) {
    if let Err((_, error)) = HeaderEdits::new([edit.edit], stage, scope) {
        refuse(edit, error, reader);
    }
}

fn refuse(edit: &Edit<'_>, error: HeaderEditError, reader: &mut Reader<'_>) {
    let (at, expected) = match &error {
        HeaderEditError::Value(error) => {
            (edit.value_at, expected_for(error, "a value, with variables such as $client_address"))
        }
        _ => (edit.name_at, FieldName::EXPECTED),
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
                try_alone(edit, TemplateStage::Response, TemplateScope::default(), reader);
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
    pub(crate) when: Option<Located<Arc<Expression>>>,
}

pub(crate) const FIELDS: Pairs<FieldName, At<Template>> = Pairs {
    expected: "names with values such as { X-Tenant = \"$host\" }",
    name: FieldName::read,
    print_name: FieldName::print,
    kind: At(Template { expected: "a value, with variables such as $client_address" }),
};

/// Tables of edits: one, a list, or `"off"`.
pub(crate) struct EditTables(pub(crate) Inline<EditsWritten>);

impl Described for EditTables {
    fn form(&self) -> Form {
        Form::OrWord(Form::OneOrMany(self.0.form().into()).into(), OFF)
    }
}

impl Kind<Vec<Element<EditsWritten>>> for EditTables {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Vec<Element<EditsWritten>>> {
        match written.value.get_ref() {
            // A route can have none of what [route_defaults] has.
            DeValue::String(word) if word == OFF => Some(Vec::new()),
            DeValue::Array(elements) => {
                let element = |value: &Spanned<DeValue<'_>>| {
                    self.0.read(&Written { path: written.path, name: written.name, value }, reader)
                };
                Some(elements.iter().filter_map(element).collect())
            }
            _ => self.0.read(written, reader).map(|table| vec![table]),
        }
    }

    fn print(&self, tables: &Vec<Element<EditsWritten>>) -> Option<String> {
        let printed: Vec<String> = tables.iter().filter_map(|table| self.0.print(table)).collect();
        match printed.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}

pub(crate) const REQUEST_EDITS: EditTables = EditTables(Inline {
    title: "these headers",
    example: "{ set = { X-Tenant = \"$host\" }, remove = [\"Server\"] }",
    table: &Table {
        options: &[
            USE,
            SET,
            ADD,
            DEFAULT,
            REMOVE,
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Forward)),
                EditsWritten.when,
                "Condition under which this table applies: `'client.user == \"ann\"'`. Default: always. See \
                 [conditions](conditions.md).",
            ),
        ],
    },
});

pub(crate) const RESPONSE_EDITS: EditTables = EditTables(Inline {
    title: "these headers",
    example: "{ set = { X-Tenant = \"$host\" }, remove = [\"Server\"] }",
    table: &Table {
        options: &[
            USE,
            SET,
            ADD,
            DEFAULT,
            REMOVE,
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Response)),
                EditsWritten.when,
                "Condition under which this table applies: `'response.status >= 500'`. It sees the response \
                 before any edit. Default: always. See [conditions](conditions.md).",
            ),
        ],
    },
});

const USE: Declared<EditsWritten> = key!(
    "use",
    OneOrMany(At(Name { expected: "the name of a set: NAME of [headers.NAME], or security" })),
    EditsWritten.uses,
    "Sets of `[headers.NAME]`, in order; `\"security\"` is built in, for responses. Settings \
     here replace theirs for the same field.",
);

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
