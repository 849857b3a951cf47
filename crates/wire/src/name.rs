//! The names of fields that decide something in a proxy.
//!
//! Every other name is `Other` and is passed on as it came.

macro_rules! names {
    ($($variant:ident $text:literal $doc:literal,)*) => {
        /// A field name that the proxy has to know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = $doc] $variant,)*
            /// Another name that begins like `X-Forwarded-`, or one of the three above with an underscore for a hyphen,
            /// which CGI-like servers read as the real one.
            XForwardedOther,
            /// Any other.
            Other,
        }

        impl Name {
            /// The name in its usual spelling; empty for the two that stand for many.
            pub fn text(self) -> &'static str {
                match self { $(Name::$variant => $text,)* Name::XForwardedOther | Name::Other => "" }
            }

            const ALL: &'static [Name] = &[$(Name::$variant),*];
        }
    };
}

names! {
    Host "Host" "RFC 9110 §7.2.",
    ContentLength "Content-Length" "RFC 9110 §8.6.",
    TransferEncoding "Transfer-Encoding" "RFC 9112 §6.1.",
    DisguisedContentLength "Content_Length" "Read as Content-Length by CGI-like servers: refused.",
    DisguisedTransferEncoding "Transfer_Encoding" "Read as Transfer-Encoding by CGI-like servers: refused.",
    Connection "Connection" "RFC 9110 §7.6.1.",
    KeepAlive "Keep-Alive" "Hop-by-hop.",
    ProxyConnection "Proxy-Connection" "Hop-by-hop.",
    ProxyAuthenticate "Proxy-Authenticate" "Meant for one hop, RFC 9110 §11.7.1.",
    ProxyAuthorization "Proxy-Authorization" "Meant for one hop, RFC 9110 §11.7.2.",
    Te "TE" "RFC 9110 §10.1.4.",
    Trailer "Trailer" "RFC 9110 §6.6.2.",
    Upgrade "Upgrade" "RFC 9110 §7.8.",
    Http2Settings "HTTP2-Settings" "Of the abandoned upgrade to h2c.",
    Via "Via" "RFC 9110 §7.6.3.",
    Forwarded "Forwarded" "RFC 7239.",
    XForwardedFor "X-Forwarded-For" "The de-facto ancestor of Forwarded.",
    XForwardedProto "X-Forwarded-Proto" "The de-facto ancestor of Forwarded.",
    XForwardedHost "X-Forwarded-Host" "The de-facto ancestor of Forwarded.",
    Expect "Expect" "RFC 9110 §10.1.1.",
    MaxForwards "Max-Forwards" "RFC 9110 §7.6.2.",
    Date "Date" "RFC 9110 §6.6.1.",
    Referer "Referer" "For the access log.",
    UserAgent "User-Agent" "For the access log.",
}

impl Name {
    /// Recognises a name, whatever its case.
    #[inline]
    pub fn of(name: &[u8]) -> Name {
        // The length and the first letter leave one or two candidates.
        let first = name.first().map_or(0, |byte| byte | 0x20);
        let candidate = match (name.len(), first) {
            (2, b't') => Name::Te,
            (3, b'v') => Name::Via,
            (4, b'h') => Name::Host,
            (4, b'd') => Name::Date,
            (6, b'e') => Name::Expect,
            (7, b't') => Name::Trailer,
            (7, b'u') => Name::Upgrade,
            (7, b'r') => Name::Referer,
            (9, b'f') => Name::Forwarded,
            (10, b'c') => Name::Connection,
            (10, b'k') => Name::KeepAlive,
            (10, b'u') => Name::UserAgent,
            (12, b'm') => Name::MaxForwards,
            (14, b'c') if name[7] == b'_' => Name::DisguisedContentLength,
            (14, b'c') => Name::ContentLength,
            (14, b'h') => Name::Http2Settings,
            (15, b'x') => Name::XForwardedFor,
            (16, b'x') => Name::XForwardedHost,
            (16, b'p') => Name::ProxyConnection,
            (17, b't') if name[8] == b'_' => Name::DisguisedTransferEncoding,
            (17, b't') => Name::TransferEncoding,
            (17, b'x') => Name::XForwardedProto,
            (18, b'p') => Name::ProxyAuthenticate,
            (19, b'p') => Name::ProxyAuthorization,
            (13.., b'x') => Name::XForwardedOther,
            _ => return Name::Other,
        };
        if name.eq_ignore_ascii_case(candidate.text().as_bytes()) {
            candidate
        } else if first == b'x' && is_forwarded_like(name) {
            Name::XForwardedOther
        } else {
            Name::Other
        }
    }
}

#[cold]
fn is_forwarded_like(name: &[u8]) -> bool {
    name.iter().zip(b"x-forwarded-").all(|(&byte, &expected)| match byte {
        b'_' => expected == b'-',
        _ => byte.to_ascii_lowercase() == expected,
    })
}

/// Names, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameSet(u32);

// One bit each.
const _: () = assert!(Name::ALL.len() + 2 <= 32);

impl NameSet {
    pub(crate) const NONE: NameSet = NameSet(0);

    /// Fields that end at this hop whatever Connection says (RFC 9110 §7.6.1), and TE and Upgrade, which are sent
    /// on only as the proxy itself means them.
    pub(crate) const HOP_BY_HOP: NameSet = NameSet::NONE
        .with(Name::Connection)
        .with(Name::KeepAlive)
        .with(Name::ProxyConnection)
        .with(Name::ProxyAuthenticate)
        .with(Name::ProxyAuthorization)
        .with(Name::Te)
        .with(Name::TransferEncoding)
        .with(Name::Upgrade)
        .with(Name::Http2Settings);

    #[inline]
    pub(crate) const fn with(self, name: Name) -> NameSet {
        NameSet(self.0 | 1 << name as u8)
    }

    #[inline]
    pub(crate) const fn has(self, name: Name) -> bool {
        self.0 & 1 << name as u8 != 0
    }

    #[inline]
    pub(crate) const fn has_any_of(self, names: NameSet) -> bool {
        self.0 & names.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognised_in_any_case_and_nothing_near_it() {
        for &name in Name::ALL {
            let text = name.text();
            assert_eq!(Name::of(text.as_bytes()), name, "{text}");
            assert_eq!(Name::of(text.to_ascii_lowercase().as_bytes()), name, "{text}");
            assert_eq!(Name::of(text.to_ascii_uppercase().as_bytes()), name, "{text}");
            let neighbour =
                if text.starts_with("X-Forwarded-") { Name::XForwardedOther } else { Name::Other };
            assert_eq!(Name::of(format!("{text}x").as_bytes()), neighbour, "{text}x");
            let mut near = text.as_bytes().to_vec();
            *near.last_mut().unwrap() ^= 0x02;
            assert_eq!(Name::of(&near), neighbour, "{text} with its last letter changed");
        }
        for (text, name) in [
            ("X_Forwarded_For", Name::XForwardedOther),
            ("x-forwarded_proto", Name::XForwardedOther),
            ("X-FORWARDED-Port", Name::XForwardedOther),
            ("X-Forwarded-X", Name::XForwardedOther),
            ("X-Forwarded", Name::Other),
            ("X-Forwarded-", Name::Other),
            ("X-Forwarding-For", Name::Other),
            ("Xx-Forwarded-For", Name::Other),
        ] {
            assert_eq!(Name::of(text.as_bytes()), name, "{text}");
        }
        assert_eq!(Name::of(b""), Name::Other);
    }
}
