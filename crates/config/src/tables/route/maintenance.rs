//! The option `maintenance` of routes, declared once.

use crate::option::host::NETWORK_KIND;
use crate::option::kind::{List, Maybe, Switch, Switchable};
use crate::option::named_file::PAGE;
use crate::option::range::UP_TO_A_YEAR;
use crate::option::table::{Inline, Table, key};
use crate::tables::route::Maintenance;

/// `true`, `false`, or a table with the details.
pub(crate) const MAINTENANCE: Switchable<Maintenance> = Switchable(Inline {
    title: "maintenance",
    example: "{ page = \"maintenance.html\", retry_after = \"10m\" }",
    table: &Table {
        options: &[
            key!(
                "on",
                Switch,
                Maintenance.is_on,
                "`false`: only sets defaults for the flags of `vanward maintenance on`.",
            ),
            key!(
                "page",
                Maybe(PAGE),
                Maintenance.page,
                "Page that clients get. Default: the error page for 503.",
            ),
            key!(
                "retry_after",
                UP_TO_A_YEAR,
                Maintenance.retry_after,
                "Retry-After: when clients may try again.",
            ),
            key!(
                "allow",
                List { kind: NETWORK_KIND, may_be_empty: true },
                Maintenance.allow,
                "Networks of clients that are served as usual.",
            ),
        ],
    },
});
