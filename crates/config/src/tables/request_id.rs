//! The table `[request_id]`.

use crate::document::reader::Reader;
use crate::option::kind::{Located, Name, Word};
use crate::option::table::{Placed, Table, key};
use crate::option::templates::field_name;
use crate::tables::tracing::{FOLLOW, FollowCallers};

pub(crate) static REQUEST_ID: Table<RequestIds> = Table {
    options: &[
        key!(
            "header",
            Name { expected: "the name of a header field such as X-Correlation-Id" },
            RequestIds.header,
            "Header field in which callers send the ID of a request.",
        ),
        key!(
            "follow",
            FOLLOW,
            RequestIds.follow,
            "Callers whose ID is accepted: `\"trusted\"` (`trusted_proxies`), `\"all\"`, or `\"nobody\"`. An \
             ID has 1 to 128 visible ASCII characters; another one is replaced.",
        ),
        key!(
            "form",
            Word {
                words: &[
                    ("hex", IdForm::Hex),
                    ("uuid", IdForm::Uuid),
                    ("uuid7", IdForm::Uuid7),
                    ("trace", IdForm::Trace),
                ],
            },
            RequestIds.form,
            "Form of new IDs: `\"hex\"` (32 random digits), `\"uuid\"` (version 4, random), `\"uuid7\"` \
             (version 7, which sorts by time), or `\"trace\"` (the trace ID; needs `[tracing]`).",
        ),
    ],
};

/// Checks the name of the field, and that there are traces to take IDs from.
pub(crate) fn check(ids: &Placed<RequestIds>, has_traces: bool, reader: &mut Reader<'_>) {
    if let Some(at) = ids.at("header") {
        let header = Located { value: ids.value.header.clone(), at: at.clone() };
        field_name("header", &header, reader);
    }
    if let Some(at) = ids.at("form")
        && ids.value.form == IdForm::Trace
        && !has_traces
    {
        let mistake = reader.mistake(at, "form: without [tracing] requests have no trace ID");
        reader.add(mistake.expecting("[tracing], or another form"));
    }
}

/// The IDs of requests, for `$request_id` and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    /// The field in which callers send the ID of a request.
    pub header: String,
    /// The clients whose ID is used.
    pub follow: FollowCallers,
    /// The form of those that are made here.
    pub form: IdForm,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self { header: "X-Request-Id".to_owned(), follow: FollowCallers::Trusted, form: IdForm::Hex }
    }
}

/// The form of a request ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdForm {
    /// 32 random hexadecimal digits.
    #[default]
    Hex,
    /// A random UUID (RFC 9562 §5.4).
    Uuid,
    /// A UUID that begins with the time (RFC 9562 §5.7).
    Uuid7,
    /// The ID of the request's trace.
    Trace,
}
