//! The option `response` of a fault: the response of an injected status.

use ::route::{FixedResponse, FixedResponseError, HeaderEdit, HeaderEdits, TemplateStage};
use shape::Fault;

use crate::document::reader::{Reader, refuse};
use crate::option::kind::{At, Located, Maybe, Name, located};
use crate::option::matching::FieldName;
use crate::option::pairs::{Pair, Pairs, pair};
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, element, key};
use crate::tables::fault::InjectedResponse;

#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseWritten {
    body: Option<Located<String>>,
    content_type: Option<Located<String>>,
    headers: Vec<Pair<FieldName, Located<String>>>,
    grpc_status: Option<u8>,
    grpc_message: Option<String>,
}

pub(crate) const RESPONSE: Inline<ResponseWritten> = Inline {
    title: "response",
    example: "{ body = \"down\", headers = { Retry-After = \"5\" } }",
    table: &Table {
        options: &[
            key!(
                "body",
                Maybe(At(Name { expected: "text" })),
                ResponseWritten.body,
                "Body of the response. Default: a line that says that the response was injected.",
            ),
            key!(
                "content_type",
                Maybe(At(Name { expected: "a media type such as application/json" })),
                ResponseWritten.content_type,
                "Content-Type. Default: text/plain.",
            ),
            key!(
                "headers",
                Pairs {
                    expected: "names with values such as { Retry-After = \"5\" }",
                    name: FieldName::read,
                    print_name: FieldName::print,
                    kind: At(Name { expected: "a value" }),
                },
                ResponseWritten.headers,
                "Fields of the response.",
            ),
            key!(
                "grpc_status",
                Maybe(Count { range: 0..=16, unit: Unit::Things }),
                ResponseWritten.grpc_status,
                "gRPC status, for calls. Default: the one that corresponds to the HTTP status.",
            ),
            key!(
                "grpc_message",
                Maybe(Name { expected: "text" }),
                ResponseWritten.grpc_message,
                "gRPC message, for calls. Default: the words of the HTTP status.",
            ),
        ],
    },
};

/// Converts the option; `None` if there is a mistake.
pub(crate) fn response(
    Element { value: written, at, .. }: &Element<ResponseWritten>,
    fault: &Fault,
    reader: &mut Reader<'_>,
) -> Option<InjectedResponse> {
    let ResponseWritten { body, content_type, headers, grpc_status, grpc_message } = written;
    let Fault::Answer { status } = fault else {
        refuse(
            at,
            "response: only an injected status has one",
            "inject = \"503\", or another status",
            reader,
        );
        return None;
    };
    let refused_before = reader.refused();
    let media_type = content_type.as_ref().map_or("text/plain", |content_type| &content_type.value);
    let bytes = body.as_ref().map(|body| body.value.clone().into_bytes()).unwrap_or_default();
    if let Err(error) = FixedResponse::new(*status, media_type, bytes) {
        let (option, of) = match &error {
            FixedResponseError::Status(_) | FixedResponseError::Body(_) => ("body", body),
            FixedResponseError::ContentType(_) => ("content_type", content_type),
        };
        let mistake = reader.mistake(of.as_ref().map_or(at, |of| &of.at), format!("{option}: {error}"));
        reader.add(mistake);
    }
    for Pair { at, name, value } in headers {
        if name.0.eq_ignore_ascii_case("content-type") {
            refuse(at, "headers: Content-Type is a separate option", "content_type", reader);
        }
        // Values are as they are written: nothing is filled in.
        let literal = value.value.replace('$', "$$");
        if let Err((_, error)) =
            HeaderEdits::new([HeaderEdit::Set(&name.0, &literal)], TemplateStage::Response, None)
        {
            let mistake = reader.mistake(at, format!("headers: {error}"));
            reader.add(mistake);
        }
    }
    (reader.refused() == refused_before).then(|| InjectedResponse {
        body: body.as_ref().map(|body| body.value.clone()),
        content_type: content_type.as_ref().map(|content_type| content_type.value.clone()),
        headers: headers.iter().map(|field| (field.name.0.clone(), field.value.value.clone())).collect(),
        grpc_status: *grpc_status,
        grpc_message: grpc_message.clone(),
    })
}

/// Converts the settings back to the option, for printing.
pub(crate) fn written(response: &InjectedResponse) -> Element<ResponseWritten> {
    let InjectedResponse { body, content_type, headers, grpc_status, grpc_message } = response.clone();
    let field = |(name, value)| pair(FieldName(name), located(value));
    element(ResponseWritten {
        body: body.map(located),
        content_type: content_type.map(located),
        headers: headers.into_iter().map(field).collect(),
        grpc_status,
        grpc_message,
    })
}
