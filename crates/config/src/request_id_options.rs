//! Options of `[request_id]`, declared once.

use crate::kind::{At, Located, Name, Word, located};
use crate::reader::Reader;
use crate::route_resolve::field_name;
use crate::settings::{IdForm, RequestIds};
use crate::table::{Table, key};
use crate::tracing_options::FOLLOW;

/// The parsed table `[request_id]`.
#[derive(Debug, Clone)]
pub(crate) struct RequestIdsWritten {
    header: Located<String>,
    follow: crate::settings::FollowCallers,
    form: Located<IdForm>,
}

impl Default for RequestIdsWritten {
    fn default() -> Self {
        Self::from(&RequestIds::default())
    }
}

pub(crate) static REQUEST_ID: Table<RequestIdsWritten> = Table {
    options: &[
        &key(
            "header",
            At(Name { expected: "the name of a header field such as X-Correlation-Id" }),
            |ids: &mut RequestIdsWritten| &mut ids.header,
            "Header field in which callers send the ID of a request.",
        ),
        &key(
            "follow",
            FOLLOW,
            |ids: &mut RequestIdsWritten| &mut ids.follow,
            "Callers whose ID is taken: `\"trusted\"` (`trusted_proxies`), `\"all\"`, or `\"nobody\"`. An ID has 1 to 128 \
             visible ASCII characters; another one is replaced.",
        ),
        &key(
            "form",
            At(Word {
                words: &[
                    ("hex", IdForm::Hex),
                    ("uuid", IdForm::Uuid),
                    ("uuid7", IdForm::Uuid7),
                    ("trace", IdForm::Trace),
                ],
            }),
            |ids: &mut RequestIdsWritten| &mut ids.form,
            "Form of the IDs that are made here: `\"hex\"` (32 random digits), `\"uuid\"` (version 4, random), `\"uuid7\"` \
             (version 7, which sorts by time), or `\"trace\"` (the trace ID; needs `[tracing]`).",
        ),
    ],
};

impl RequestIdsWritten {
    /// Checks the name of the field, and that there are traces to take IDs from.
    pub(crate) fn check(&self, has_traces: bool, reader: &mut Reader<'_>) {
        field_name("header", &self.header, reader);
        if self.form.value == IdForm::Trace && !has_traces {
            let mistake = reader.mistake(&self.form.at, "form: without [tracing] requests have no trace ID");
            reader.add(mistake.expecting("[tracing], or another form"));
        }
    }

    /// The settings that the options describe.
    pub(crate) fn meaning(self) -> RequestIds {
        let Self { header, follow, form } = self;
        RequestIds { header: header.value, follow, form: form.value }
    }
}

impl From<&RequestIds> for RequestIdsWritten {
    fn from(ids: &RequestIds) -> Self {
        let RequestIds { header, follow, form } = ids.clone();
        Self { header: located(header), follow, form: located(form) }
    }
}
