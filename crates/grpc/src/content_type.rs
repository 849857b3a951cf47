//! Content types of calls: of gRPC (PROTOCOL-HTTP2.md), and of gRPC-Web in its two forms (PROTOCOL-WEB.md).

/// The three encodings of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// `application/grpc`: messages, and the status in the trailers.
    Grpc,
    /// `application/grpc-web`: messages, and a frame with the trailers.
    Web,
    /// `application/grpc-web-text`: the same in base64.
    WebText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentType<'a> {
    pub form: CallForm,
    /// Everything behind the media type's name: the message format, such as `+proto`, and parameters.
    pub suffix: &'a [u8],
}

impl<'a> ContentType<'a> {
    /// Parses a Content-Type value; `None` if it is not a call's.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let rest = without_prefix(value, b"application/grpc")?;
        let (form, suffix) = match without_prefix(rest, b"-web") {
            None => (CallForm::Grpc, rest),
            Some(rest) => match without_prefix(rest, b"-text") {
                None => (CallForm::Web, rest),
                Some(rest) => (CallForm::WebText, rest),
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
            ("application/grpc", Some((CallForm::Grpc, ""))),
            ("application/grpc+proto", Some((CallForm::Grpc, "+proto"))),
            ("Application/gRPC; charset=utf-8", Some((CallForm::Grpc, "; charset=utf-8"))),
            ("application/grpc-web", Some((CallForm::Web, ""))),
            ("application/GRPC-Web+json", Some((CallForm::Web, "+json"))),
            ("application/grpc-web-text", Some((CallForm::WebText, ""))),
            ("application/grpc-web-text+proto;a=b", Some((CallForm::WebText, "+proto;a=b"))),
            ("application/grpcs", None),
            ("application/grpc-webs", None),
            ("application/grpc-web-texts", None),
            ("application/grpc-", None),
            ("application/json", None),
            ("app", None),
            ("", None),
        ] {
            let found = ContentType::parse(value.as_bytes());
            let expected = expected.map(|(form, suffix)| ContentType { form, suffix: str::as_bytes(suffix) });
            assert_eq!(found, expected, "{value}");
        }
    }
}
