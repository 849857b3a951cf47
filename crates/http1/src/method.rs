//! Request methods and their properties (RFC 9110 §9, RFC 5789).

/// A request method. For `Other`, the text is in `method_span` of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// Recognises a method. Methods are case-sensitive (RFC 9110 §9.1).
    #[inline]
    pub fn from_token(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// Whether the method is idempotent: sending it twice has the effect of sending it once (RFC 9110 §9.2.2).
    pub fn is_idempotent(self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
        )
    }
}
