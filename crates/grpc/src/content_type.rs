//! Content types of calls: of gRPC (PROTOCOL-HTTP2.md), and of gRPC-Web in its two forms (PROTOCOL-WEB.md).

/// How a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `application/grpc`: messages, and the status in the trailers.
    Grpc,
    /// `application/grpc-web`: messages, and a frame with the trailers.
    Web,
    /// `application/grpc-web-text`: the same in base64.
    WebText,
}

/// The content type of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentType<'a> {
    /// How the call is written.
    pub form: Form,
    /// What follows the media type's name: the format of the messages, as in `+proto`, and parameters.
    pub suffix: &'a [u8],
}

impl<'a> ContentType<'a> {
    /// Reads the value of Content-Type; `None` if it is not that of a call.
    pub fn of(value: &'a [u8]) -> Option<Self> {
        let rest = without_prefix(value, b"application/grpc")?;
        let (form, suffix) = match without_prefix(rest, b"-web") {
            None => (Form::Grpc, rest),
            Some(rest) => match without_prefix(rest, b"-text") {
                None => (Form::Web, rest),
                Some(rest) => (Form::WebText, rest),
            },
        };
        matches!(suffix.first(), None | Some(b'+' | b';' | b' ')).then_some(Self { form, suffix })
    }
}

fn without_prefix<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_content_type() {
        for (value, expected) in [
            ("application/grpc", Some((Form::Grpc, ""))),
            ("application/grpc+proto", Some((Form::Grpc, "+proto"))),
            ("Application/gRPC; charset=utf-8", Some((Form::Grpc, "; charset=utf-8"))),
            ("application/grpc-web", Some((Form::Web, ""))),
            ("application/GRPC-Web+json", Some((Form::Web, "+json"))),
            ("application/grpc-web-text", Some((Form::WebText, ""))),
            ("application/grpc-web-text+proto;a=b", Some((Form::WebText, "+proto;a=b"))),
            ("application/grpcs", None),
            ("application/grpc-webs", None),
            ("application/grpc-web-texts", None),
            ("application/grpc-", None),
            ("application/json", None),
            ("app", None),
            ("", None),
        ] {
            let found = ContentType::of(value.as_bytes());
            let expected = expected.map(|(form, suffix)| ContentType { form, suffix: str::as_bytes(suffix) });
            assert_eq!(found, expected, "{value}");
        }
    }
}
