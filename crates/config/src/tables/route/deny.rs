//! The option `deny` of a route: networks of clients, and conditions on requests.

use std::sync::Arc;

use expression::{ExchangeStage, Expression};
use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::host::NETWORK_KIND;
use crate::option::kind::{At, Described, Kind, Located, Maybe, refuse_type};
use crate::option::later_condition::LaterCondition;
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, Written, key, required};
use crate::tables::route::DenyRule;

/// The most conditions of a route: each request may evaluate them all.
const RULES_MAX: usize = 64;

/// The parsed option.
#[derive(Debug, Clone, Default)]
pub(crate) struct DenyWritten {
    pub(crate) networks: Vec<IpNet>,
    pub(crate) rules: Vec<Element<DenyRuleWritten>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DenyRuleWritten {
    pub(crate) when: Option<Located<Arc<Expression>>>,
    status: Option<Located<u16>>,
}

/// The status of a denied request.
const STATUS: u16 = 403;

/// Statuses whose responses need another field (RFC 9110 §15.5.2, §15.5.6, §15.5.8, §15.5.22).
const NEED_A_FIELD: [u16; 4] = [401, 405, 407, 426];

impl DenyWritten {
    /// The conditions, in order.
    pub(crate) fn rules(&self) -> Vec<DenyRule> {
        let rule = |Element { value: DenyRuleWritten { when, status }, .. }: &Element<DenyRuleWritten>| {
            let status = status.as_ref().map_or(STATUS, |status| status.value);
            Some(DenyRule { when: Arc::clone(&when.as_ref()?.value), status })
        };
        self.rules.iter().filter_map(rule).collect()
    }
}

const RULE: Inline<DenyRuleWritten> = Inline {
    title: "deny",
    example: "{ when = 'request.headers[\"x-a\"] == \"1\"', status = 404 }",
    table: &Table {
        options: &[
            required!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Request)),
                DenyRuleWritten.when,
                "Condition under which a request is denied, before its client is authenticated: \
                 `'request.path.endsWith(\".php\")'`. See [conditions](conditions.md).",
            ),
            key!(
                "status",
                Maybe(At(Count { range: 400..=599, unit: Unit::Things })),
                DenyRuleWritten.status,
                "Status of the response. Default: 403.",
            ),
        ],
    },
};

/// An array of networks and tables, or one table.
pub(crate) struct DenyKind;

const EXPECTED: &str = "an array of networks such as \"10.0.0.0/8\" and of tables such as { when = \
                        'request.path.endsWith(\".php\")' }, or one such table";

impl Described for DenyKind {
    fn form(&self) -> Form {
        let brief = "array, each an IP address or a network such as 10.0.0.0/8, or a table";
        Form::WordsOrTable { expected: EXPECTED, brief, table: RULE.table }
    }
}

impl Kind<DenyWritten> for DenyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<DenyWritten> {
        let mut deny = DenyWritten::default();
        let mut element = |value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>| {
            let written = Written { path: written.path, name: written.name, value };
            match value.get_ref() {
                DeValue::Table(_) => deny.rules.extend(RULE.read(&written, reader)),
                _ => deny.networks.extend(NETWORK_KIND.read(&written, reader)),
            }
        };
        match written.value.get_ref() {
            DeValue::Array(elements) => elements.iter().for_each(|value| element(value, reader)),
            DeValue::Table(_) => element(written.value, reader),
            _ => {
                refuse_type(written, self.expected(), reader);
                return None;
            }
        }
        let statuses = deny.rules.iter().filter_map(|rule| rule.value.status.as_ref());
        for Located { value, at } in statuses.filter(|status| NEED_A_FIELD.contains(&status.value)) {
            let mistake =
                reader.mistake(at, format!("status: {value} needs a field that deny does not send"));
            reader.add(mistake.expecting("another status, such as 403 or 404"));
        }
        if let Some(Element { at, .. }) = deny.rules.get(RULES_MAX) {
            let mistake = reader.mistake(at, "deny: there are too many conditions");
            reader.add(mistake.expecting(format!("at most {RULES_MAX}; join some with ||")));
        }
        Some(deny)
    }

    fn print(&self, deny: &DenyWritten) -> Option<String> {
        let networks = deny.networks.iter().filter_map(|network| NETWORK_KIND.print(network));
        let all: Vec<String> =
            networks.chain(deny.rules.iter().filter_map(|rule| RULE.print(rule))).collect();
        Some(format!("[{}]", all.join(", ")))
    }
}
