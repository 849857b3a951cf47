//! Translates gRPC-Web calls to gRPC, and their responses back.
//!
//! The request head is replaced before the route acts on it, so copies and retries are gRPC calls, too. A response
//! takes the path of coded ones.

use grpc::{CallForm, ContentType, WebBody, web_content_type};
use http1::{BodyFraming, ConnectionOptions, Method, RequestTarget};

use crate::answer::grpc as answers;
use crate::body::coders::Transform;
use crate::body::transform::{fields, values};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::WebCall;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::Reply;
use crate::forward::coded::{self, Changed};
use crate::forward::upload;

/// Request fields about gRPC-Web or this hop, which are replaced or dropped.
const OF_REQUESTS: [&[u8]; 5] =
    [b"content-type", b"te", b"accept", b"x-grpc-web", b"content-transfer-encoding"];
/// Fields about the length of a body, which the translation changes.
const OF_LENGTH: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Translates a gRPC-Web request to gRPC. Leaves other requests unchanged. Called before the route's action.
#[cold]
pub(crate) fn translate(
    ctx: &ExchangeContext<'_>,
    routed: &mut RoutedRequest,
    request: &mut CurrentRequest,
) -> Result<(), Failure> {
    let bytes = request.head_bytes();
    let Some(content_type) = seen::line(&request.head, bytes, b"content-type") else { return Ok(()) };
    let Some(found) = ContentType::parse(content_type).filter(|found| found.form != CallForm::Grpc) else {
        return Ok(());
    };
    if routed.method != Method::Post || routed.wants_upgrade {
        return Ok(());
    }
    let is_text = found.form == CallForm::WebText;
    let call = WebCall {
        form: wanted(request, bytes).unwrap_or(found.form),
        content_type: content_type.to_vec(),
        framing: routed.framing,
        is_text,
    };
    let start = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = bytes[..start].to_vec();
    let is_kept = |name: &[u8]| {
        let is_named = |known: &&[u8]| name.eq_ignore_ascii_case(known);
        // Base64 is decoded on the way, which changes the length of the body.
        !(OF_REQUESTS.iter().any(is_named) || is_text && OF_LENGTH.iter().any(is_named))
    };
    for field in request.head.fields.iter().filter(|field| is_kept(field.name.for_bytes(bytes))) {
        push_line(&mut text, field.name.for_bytes(bytes), field.value.for_bytes(bytes));
    }
    push_line(&mut text, b"Content-Type", &web_content_type(CallForm::Grpc, found.suffix));
    // gRPC servers detect by this field that no proxy on the way drops trailers.
    push_line(&mut text, b"TE", b"trailers");
    if is_text && routed.framing != BodyFraming::None {
        push_line(&mut text, b"Transfer-Encoding", b"chunked");
        routed.framing = BodyFraming::Chunked;
    }
    text.extend_from_slice(b"\r\n");
    request.replace_head(&text)?;
    routed.target = RequestTarget::from_head(&request.head, &text)?;
    routed.connection =
        ConnectionOptions::from_head(&request.head, &text).map_err(|_| Failure::BadFraming)?;
    request.web = Some(Box::new(call));
    // A request that is answered without a server still has to consume its body.
    upload::begin(ctx, routed, request, false);
    Ok(())
}

/// The gRPC-Web form of the response that the client accepts.
fn wanted(request: &CurrentRequest, bytes: &[u8]) -> Option<CallForm> {
    let accepted =
        values(&request.head, bytes, b"accept").flat_map(|value| value.split(|byte| *byte == b','));
    let mut forms = accepted.filter_map(|range| Some(ContentType::parse(range.trim_ascii())?.form));
    forms.find(|form| *form != CallForm::Grpc)
}

/// Whether the response to a gRPC-Web call is gRPC. Other responses pass unchanged.
#[cold]
pub(crate) fn is_translated(response: &CurrentResponse) -> bool {
    answers::is_call(&response.head, response.buffer.filled())
}

/// Translates a gRPC response to gRPC-Web, and sends it.
pub(crate) async fn respond(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    form: CallForm,
) -> Result<AfterExchange, Failure> {
    let response = &exchange.memory.response;
    let bytes = response.buffer.filled();
    // Trailers-Only: the head has the status, and there is no body.
    let has_body = !matches!(reply.framing, BodyFraming::None | BodyFraming::Length(0));
    let start = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = bytes[..start].to_vec();
    for (name, value) in fields(&response.head, bytes) {
        if name.eq_ignore_ascii_case(b"content-type") {
            let suffix = ContentType::parse(value).map_or(b"".as_slice(), |found| found.suffix);
            push_line(&mut text, b"Content-Type", &web_content_type(form, suffix));
        } else if !has_body || !(is_of_length(name) || name.eq_ignore_ascii_case(b"trailer")) {
            push_line(&mut text, name, value);
        }
    }
    // A status in the head was sent already, so the last frame must not invent another.
    let has_status = seen::line(&response.head, bytes, b"grpc-status").is_some();
    let transform = has_body.then(|| Transform::Web(WebBody::new(form, has_status)));
    let framing = if has_body { BodyFraming::Chunked } else { reply.framing };
    coded::pass(exchange, reply, text, Changed { framing, transform, is_stream: true }).await
}

fn is_of_length(name: &[u8]) -> bool {
    OF_LENGTH.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn push_line(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        text.extend_from_slice(part);
    }
}
