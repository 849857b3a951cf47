//! Translates calls of gRPC-Web to gRPC, and their responses back.
//!
//! The head of a request is exchanged before the route acts on it, so all else, copies and retries too, sees a call of
//! gRPC. A response goes the way of coded ones.

use grpc::{ContentType, Form, WebBody, web_content_type};
use http1::{ConnectionOptions, Framing, Method, Target};

use crate::body::transform::{fields, values};
use crate::body::upload;
use crate::context::client::Next;
use crate::context::coders::Transform;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::Failure;
use crate::context::seen;
use crate::context::web_call::WebCall;
use crate::forward::{Reply, coded, grpc as answers};

/// Fields of a request that are about gRPC-Web or about this hop, and are written anew or left out.
const OF_REQUESTS: [&[u8]; 5] =
    [b"content-type", b"te", b"accept", b"x-grpc-web", b"content-transfer-encoding"];
/// Those about the length of a body that changes.
const OF_LENGTH: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Makes a call of gRPC from one of gRPC-Web. Leaves all other requests as they are.
#[cold]
pub(crate) fn translate(
    ctx: &ExchangeContext<'_>,
    routed: &mut RoutedRequest,
    request: &mut Request,
) -> Result<(), Failure> {
    let bytes = request.head_bytes();
    let Some(content_type) = seen::line(&request.head, bytes, b"content-type") else { return Ok(()) };
    let Some(found) = ContentType::of(content_type).filter(|found| found.form != Form::Grpc) else {
        return Ok(());
    };
    if routed.method != Method::Post || routed.wants_upgrade {
        return Ok(());
    }
    let is_text = found.form == Form::WebText;
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
        !(OF_REQUESTS.iter().any(is_named) || is_text && OF_LENGTH.iter().any(is_named))
    };
    for field in request.head.fields.iter().filter(|field| is_kept(field.name.of(bytes))) {
        push_line(&mut text, field.name.of(bytes), field.value.of(bytes));
    }
    push_line(&mut text, b"Content-Type", &web_content_type(Form::Grpc, found.suffix));
    push_line(&mut text, b"TE", b"trailers");
    if is_text && routed.framing != Framing::None {
        push_line(&mut text, b"Transfer-Encoding", b"chunked");
        routed.framing = Framing::Chunked;
    }
    text.extend_from_slice(b"\r\n");
    request.replace_head(&text)?;
    routed.target = Target::of(&request.head, &text)?;
    routed.connection = ConnectionOptions::of(&request.head, &text).map_err(|_| Failure::BadFraming)?;
    request.web = Some(Box::new(call));
    // A request that is answered here ends with its body.
    upload::begin(ctx, routed, request, false);
    Ok(())
}

/// The form of the response that the client asks for.
fn wanted(request: &Request, bytes: &[u8]) -> Option<Form> {
    let accepted =
        values(&request.head, bytes, b"accept").flat_map(|value| value.split(|byte| *byte == b','));
    let mut forms = accepted.filter_map(|range| Some(ContentType::of(range.trim_ascii())?.form));
    forms.find(|form| *form != Form::Grpc)
}

/// Whether a response to a call of gRPC-Web is one of gRPC. What something else says passes as it is.
#[cold]
pub(crate) fn is_translated(response: &Response) -> bool {
    answers::is_call(&response.head, response.buffer.filled())
}

/// Sends a response of gRPC in gRPC-Web.
pub(crate) async fn respond(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    form: Form,
) -> Result<Next, Failure> {
    let response = &exchange.memory.response;
    let bytes = response.buffer.filled();
    // Trailers-Only: the head has the status, and there is no body.
    let has_body = !matches!(reply.framing, Framing::None | Framing::Length(0));
    let start = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = bytes[..start].to_vec();
    for (name, value) in fields(&response.head, bytes) {
        if name.eq_ignore_ascii_case(b"content-type") {
            let suffix = ContentType::of(value).map_or(b"".as_slice(), |found| found.suffix);
            push_line(&mut text, b"Content-Type", &web_content_type(form, suffix));
        } else if !has_body || !(is_of_length(name) || name.eq_ignore_ascii_case(b"trailer")) {
            push_line(&mut text, name, value);
        }
    }
    let has_status = seen::line(&response.head, bytes, b"grpc-status").is_some();
    let transform = has_body.then(|| Transform::Web(WebBody::new(form, has_status)));
    coded::pass(exchange, reply, text, (transform, true)).await
}

fn is_of_length(name: &[u8]) -> bool {
    OF_LENGTH.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn push_line(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        text.extend_from_slice(part);
    }
}
