//! Options of retries, of an upstream and of a route, declared once.

use std::time::Duration;

use balance::RetrySettings;
use toml::Spanned;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Switch, quoted, refuse_type};
use crate::option::matching::unknown;
use crate::option::range::{Count, Unit, Wait};
use crate::option::statuses::{status_range, written_range};
use crate::option::table::{Inline, Table, Written, key};
use crate::tables::upstream::{Retry, RetryOn};

#[derive(Debug, Clone, Default)]
pub(crate) struct RetryWritten {
    pub(crate) retry: Retry,
    pub(crate) budget: RetrySettings,
}

const ON: &str = "Failures after which a request is retried: no connection (`connect`), closed before a \
                  response (`reset`), no response in time (`timeout`), a status, or the status of a \
                  gRPC call (`grpc-unavailable`; see [grpc.md](grpc.md)). A \
                  retry prefers servers that have not been tried. If no other server is \
                  free, the client gets the status. A request that a server may have seen \
                  is retried only if its method is idempotent and its body is still \
                  buffered.";
const ATTEMPTS: &str = "Attempts in total. 1: no retry.";
const ATTEMPTS_KIND: Count = Count { range: 1..=16, unit: Unit::Things };
const WITHIN: &str = "No attempt starts later than this after the first.";
const WITHIN_KIND: Wait = Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) };
const NON_IDEMPOTENT: &str =
    "Also retries POST and other methods that are not idempotent: a server may then act twice.";

pub(crate) static RETRY: Table<RetryWritten> = Table {
    options: &[
        key!("on", RetryOnKind, RetryWritten.retry.on, ON),
        key!("attempts", ATTEMPTS_KIND, RetryWritten.retry.attempts, ATTEMPTS),
        key!("within", WITHIN_KIND, RetryWritten.retry.within, WITHIN),
        key!("non_idempotent", Switch, RetryWritten.retry.non_idempotent, NON_IDEMPOTENT,),
        key!(
            "budget",
            Count { range: 0..=1000, unit: Unit::Percent },
            RetryWritten.budget.percent,
            "Retry budget: the most retries, as a share of the requests of the last ten seconds. It keeps \
             retries from multiplying an outage.",
        ),
        key!(
            "per_second_min",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            RetryWritten.budget.per_second_min,
            "Retries per second that are allowed in addition to the budget, over all workers.",
        ),
    ],
};

/// The option `retry` of a route. It has no budget: the upstream's applies.
pub(crate) const RETRY_OF_ROUTE: Inline<Retry> = Inline {
    title: "retry",
    example: "{ attempts = 1 }",
    table: &Table {
        options: &[
            key!("on", RetryOnKind, Retry.on, ON),
            key!("attempts", ATTEMPTS_KIND, Retry.attempts, ATTEMPTS),
            key!("within", WITHIN_KIND, Retry.within, WITHIN),
            key!("non_idempotent", Switch, Retry.non_idempotent, NON_IDEMPOTENT),
        ],
    },
};

/// Words and statuses.
struct RetryOnKind;

const WORDS: [&str; 3] = ["connect", "reset", "timeout"];
const EXPECTED: &str = "connect, reset, timeout, a status such as 503, \"5xx\" or \"502-504\", or a status of gRPC \
                        such as grpc-unavailable";
/// The prefix of the name of a gRPC status.
const GRPC: &str = "grpc-";

impl Described for RetryOnKind {
    fn form(&self) -> Form {
        Form::brief(format!("an array, each {EXPECTED}"), format!("array, each {EXPECTED}"))
    }
}

impl Kind<RetryOn> for RetryOnKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<RetryOn> {
        let DeValue::Array(elements) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let mut on = RetryOn::none();
        for element in elements.iter() {
            read_one(element, written, &mut on, reader);
        }
        Some(on)
    }

    fn print(&self, on: &RetryOn) -> Option<String> {
        let words = WORDS.into_iter().zip([on.connect, on.reset, on.timeout]);
        let words = words.filter(|(_, is_on)| *is_on).map(|(word, _)| quoted(word));
        let statuses = on.status.0.iter().map(|range| quoted(&written_range(range)));
        let calls = on.grpc.names().map(|name| quoted(&format!("{GRPC}{name}")));
        Some(format!("[{}]", words.chain(statuses).chain(calls).collect::<Vec<_>>().join(", ")))
    }
}

fn read_one(
    element: &Spanned<DeValue<'_>>,
    written: &Written<'_>,
    on: &mut RetryOn,
    reader: &mut Reader<'_>,
) {
    let text = match element.get_ref() {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) => number.as_str(),
        _ => {
            let written = Written { path: written.path, name: written.name, value: element };
            return refuse_type(&written, EXPECTED.to_owned(), reader);
        }
    };
    match text {
        "connect" => on.connect = true,
        "reset" => on.reset = true,
        "timeout" => on.timeout = true,
        text => match status_range(text) {
            Ok(range) => on.status.0.push(range),
            Err(_) if text.strip_prefix(GRPC).is_some_and(|name| on.grpc.add(name)) => {}
            Err(_) => {
                let calls: Vec<String> = grpc::status_names().map(|name| format!("{GRPC}{name}")).collect();
                let words = WORDS.into_iter().chain(calls.iter().map(String::as_str));
                let error = unknown(text, &words.collect::<Vec<_>>(), EXPECTED);
                reader.refuse(&element.span(), written.name, &error);
            }
        },
    }
}
