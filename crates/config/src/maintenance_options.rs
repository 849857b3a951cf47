//! The option `maintenance` of routes, declared once.

use serde_json::{Value, json};
use toml::de::DeValue;

use crate::kind::{Kind, List, Maybe, Switch, refuse_type};
use crate::named_file::PAGE;
use crate::options::{NETWORK_KIND, UP_TO_A_YEAR};
use crate::reader::Reader;
use crate::settings::Maintenance;
use crate::table::{Inline, Page, Table, Written, element, key};

/// The kind of value: `true`, `false`, or a table with the details.
pub(crate) struct MaintenanceKind;

const DETAILS: Inline<Maintenance> = Inline {
    title: "maintenance",
    example: "{ page = \"maintenance.html\", retry_after = \"10m\" }",
    table: &Table {
        options: &[
            &key(
                "on",
                Switch,
                |maintenance: &mut Maintenance| &mut maintenance.is_on,
                "`false`: prepares what `vanward maintenance on` uses where its flags say nothing else.",
            ),
            &key(
                "page",
                Maybe(PAGE),
                |maintenance: &mut Maintenance| &mut maintenance.page,
                "Page that clients get. Default: the error page for 503.",
            ),
            &key(
                "retry_after",
                UP_TO_A_YEAR,
                |maintenance: &mut Maintenance| &mut maintenance.retry_after,
                "Retry-After: when clients may come again.",
            ),
            &key(
                "allow",
                List { kind: NETWORK_KIND, may_be_empty: true },
                |maintenance: &mut Maintenance| &mut maintenance.allow,
                "Networks of clients that are served as usual.",
            ),
        ],
    },
};

impl Kind<Option<Maintenance>> for MaintenanceKind {
    fn expected(&self) -> String {
        format!("true, false, or {}", DETAILS.expected())
    }

    fn brief(&self) -> String {
        "true, false, or table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        DETAILS.document(page);
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [Switch.schema(), DETAILS.schema()] })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<Maintenance>> {
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => Some(is_on.then(Maintenance::default)),
            DeValue::Table(_) => DETAILS.read(written, reader).map(|details| Some(details.value)),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, maintenance: &Option<Maintenance>) -> Option<String> {
        DETAILS.print(&element(maintenance.clone()?))
    }
}
