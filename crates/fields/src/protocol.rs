//! The protocol of a message, and the sections of its RFC that have the common rules.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageProtocol {
    /// RFC 9113.
    #[default]
    Http2,
    /// RFC 9114.
    Http3,
}

/// The sections that have these rules, for messages.
pub(crate) struct ProtocolRules {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) connection: &'static str,
    pub(crate) pseudo: &'static str,
    pub(crate) authority: &'static str,
}

impl MessageProtocol {
    pub(crate) fn rules(self) -> ProtocolRules {
        match self {
            Self::Http2 => ProtocolRules {
                name: "RFC 9113 §8.2.1",
                value: "RFC 9113 §8.2.1",
                connection: "RFC 9113 §8.2.2",
                pseudo: "RFC 9113 §8.3",
                authority: "RFC 9113 §8.3.1",
            },
            Self::Http3 => ProtocolRules {
                name: "RFC 9114 §4.2",
                value: "RFC 9114 §10.3",
                connection: "RFC 9114 §4.2",
                pseudo: "RFC 9114 §4.3",
                authority: "RFC 9114 §4.3.1",
            },
        }
    }
}
