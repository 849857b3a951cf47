//! The protocol that fields are of, and what its RFC calls the rules that the others share.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/2 (RFC 9113).
    #[default]
    Http2,
    /// HTTP/3 (RFC 9114).
    Http3,
}

/// Where the rules of messages stand.
pub(crate) struct Rules {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) connection: &'static str,
    pub(crate) pseudo: &'static str,
    pub(crate) authority: &'static str,
}

impl Protocol {
    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Http2 => Rules {
                name: "RFC 9113 §8.2.1",
                value: "RFC 9113 §8.2.1",
                connection: "RFC 9113 §8.2.2",
                pseudo: "RFC 9113 §8.3",
                authority: "RFC 9113 §8.3.1",
            },
            Self::Http3 => Rules {
                name: "RFC 9114 §4.2",
                value: "RFC 9114 §10.3",
                connection: "RFC 9114 §4.2",
                pseudo: "RFC 9114 §4.3",
                authority: "RFC 9114 §4.3.1",
            },
        }
    }
}
