//! Names of the fields that a proxy treats specially.
//!
//! Every other name is `Other`, and its field is forwarded unchanged.

macro_rules! names {
    ($($variant:ident $text:literal $doc:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = $doc] $variant,)*
            /// `X-Real-IP`, or an unknown name that starts with `X-Forwarded-`.
            XForwardedOther,
            /// A forwarding field spelt with underscores instead of hyphens. CGI-like servers take it for the real one.
            DisguisedForwarded,
            /// `Client-Cert`, `Client-Cert-Chain` (RFC 9440), `ssl-client-cert`, and names that start with
            /// `X-Client-Cert-`: a proxy reports the client's certificate in such fields.
            XClientCert,
            /// `b3`, and names that start with `X-B3-`: the trace context of Zipkin.
            B3,
            Other,
        }

        impl Name {
            /// The usual spelling of the name; empty for variants that stand for several names.
            pub fn text(self) -> &'static str {
                match self { $(Name::$variant => $text,)* Name::XForwardedOther | Name::DisguisedForwarded | Name::XClientCert | Name::B3 | Name::Other => "" }
            }

            #[cfg(test)]
            const ALL: &'static [Name] = &[$(Name::$variant),*];

            pub(crate) const COUNT: usize = Name::Other as usize + 1;
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
    ProxyAuthenticate "Proxy-Authenticate" "And Proxy-Authentication-Info: meant for one hop, RFC 9110 §11.7.1, §11.7.3.",
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
    Traceparent "traceparent" "W3C Trace Context §3.2.",
    Tracestate "tracestate" "W3C Trace Context §3.3.",
    AltSvc "Alt-Svc" "Ports of the sender, RFC 7838 §3.",
}

impl Name {
    /// Recognises a name, ignoring case.
    #[inline(always)]
    pub fn from_name(name: &[u8]) -> Name {
        // The length and the first letter leave one or two candidates.
        let first = name.first().map_or(0, |byte| byte | 0x20);
        match (name.len(), first) {
            (2, b't') if is(name, b"te") => Name::Te,
            (2, b'b') if is(name, b"b3") => Name::B3,
            (3, b'v') if is(name, b"via") => Name::Via,
            (4, b'h') if is(name, b"host") => Name::Host,
            (4, b'd') if is(name, b"date") => Name::Date,
            (6, b'e') if is(name, b"expect") => Name::Expect,
            (7, b'a') if is(name, b"alt-svc") => Name::AltSvc,
            (7, b't') if is(name, b"trailer") => Name::Trailer,
            (7, b'u') if is(name, b"upgrade") => Name::Upgrade,
            (7, b'r') if is(name, b"referer") => Name::Referer,
            (9, b'f') if is(name, b"forwarded") => Name::Forwarded,
            (9, b'x') if begins_like(name, b"x-real-ip") => other_forwarded(name),
            (10, b'c') if is(name, b"connection") => Name::Connection,
            (10, b'k') if is(name, b"keep-alive") => Name::KeepAlive,
            (10, b'u') if is(name, b"user-agent") => Name::UserAgent,
            (10, b't') if is(name, b"tracestate") => Name::Tracestate,
            (11, b't') if is(name, b"traceparent") => Name::Traceparent,
            (11, b'c') if begins_like(name, b"client-cert") => Name::XClientCert,
            (12, b'm') if is(name, b"max-forwards") => Name::MaxForwards,
            (14, b'c') if is(name, b"content-length") => Name::ContentLength,
            (14, b'c') if is(name, b"content_length") => Name::DisguisedContentLength,
            (14, b'h') if is(name, b"http2-settings") => Name::Http2Settings,
            (15, b'x') if is(name, b"x-forwarded-for") => Name::XForwardedFor,
            (15, b's') if begins_like(name, b"ssl-client-cert") => Name::XClientCert,
            (16, b'x') if is(name, b"x-forwarded-host") => Name::XForwardedHost,
            (16, b'p') if is(name, b"proxy-connection") => Name::ProxyConnection,
            (17, b'c') if begins_like(name, b"client-cert-chain") => Name::XClientCert,
            (17, b't') if is(name, b"transfer-encoding") => Name::TransferEncoding,
            (17, b't') if is(name, b"transfer_encoding") => Name::DisguisedTransferEncoding,
            (17, b'x') if is(name, b"x-forwarded-proto") => Name::XForwardedProto,
            (18, b'p') if is(name, b"proxy-authenticate") => Name::ProxyAuthenticate,
            (19, b'p') if is(name, b"proxy-authorization") => Name::ProxyAuthorization,
            // Longer than `is` compares.
            (25, b'p') if name.eq_ignore_ascii_case(b"proxy-authentication-info") => Name::ProxyAuthenticate,
            // Behind the exact names: servers trust any other name of this form as well.
            (13.., b'x') if begins_like(name, b"x-forwarded-") => other_forwarded(name),
            (6.., b'x') if begins_like(name, b"x-b3-") => Name::B3,
            (15.., b'x') if begins_like(name, b"x-client-cert-") => Name::XClientCert,
            _ => Name::Other,
        }
    }

    /// Whether fields of this name always end at this hop (RFC 9110 §7.6.1).
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        NameSet::HOP_BY_HOP.has(self)
    }
}

/// Compares a text with a lower-case name of letters, digits, `-` and `_`, ignoring case. The length is a constant, so
/// the comparison takes whole words, which overlap if necessary.
#[inline(always)]
pub(crate) fn is<const LEN: usize>(text: &[u8], lower: &[u8; LEN]) -> bool {
    // The three words below reach no further.
    const { assert!(LEN <= 24) };
    let Ok(text) = <&[u8; LEN]>::try_from(text) else { return false };
    let eight = |at| differs(u64::from_le_bytes(word(text, at)), u64::from_le_bytes(word(lower, at)));
    let four =
        |at| differs(u32::from_le_bytes(word(text, at)).into(), u32::from_le_bytes(word(lower, at)).into());
    let difference = match LEN {
        17.. => eight(0) | eight(8) | eight(LEN - 8),
        8.. => eight(0) | eight(LEN - 8),
        4.. => four(0) | four(LEN - 4),
        _ => (0..LEN).fold(0, |sum, at| sum | differs(text[at].into(), lower[at].into())),
    };
    difference == 0
}

#[inline(always)]
fn word<const LEN: usize>(text: &[u8], at: usize) -> [u8; LEN] {
    // Every caller is in range; the default replaces a panic path in code that is inlined everywhere.
    text[at..].first_chunk().copied().unwrap_or([0; LEN])
}

/// Returns zero if a word equals `lower`, ignoring case. Only letters have both 0x40 and 0x20 set in `lower`. For these
/// the text's 0x20 is set too: this lowers the letter, and makes no other byte equal.
#[inline(always)]
fn differs(text: u64, lower: u64) -> u64 {
    (text | (lower >> 1 & lower & 0x2020_2020_2020_2020)) ^ lower
}

#[cold]
fn other_forwarded(name: &[u8]) -> Name {
    if name.contains(&b'_') { Name::DisguisedForwarded } else { Name::XForwardedOther }
}

/// Whether a name starts with `lower`, which consists of lower-case letters and hyphens. An underscore counts as a
/// hyphen.
#[cold]
fn begins_like(name: &[u8], lower: &[u8]) -> bool {
    name.iter().zip(lower).all(|(&byte, &expected)| match byte {
        b'_' => expected == b'-',
        _ => byte.to_ascii_lowercase() == expected,
    })
}

/// A set of names, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameSet(u32);

// A 33rd name would silently share the bit of another in a release build.
const _: () = assert!(Name::COUNT <= 32);

impl NameSet {
    pub(crate) const NONE: NameSet = NameSet(0);

    /// Fields that always end at this hop (RFC 9110 §7.6.1), and TE and Upgrade, which the proxy writes itself.
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
    pub(crate) const fn union(self, names: NameSet) -> NameSet {
        NameSet(self.0 | names.0)
    }

    /// The bit position of the only name in the set. `None` unless the set has exactly one name.
    #[inline]
    pub(crate) const fn only(self) -> Option<usize> {
        if self.0.is_power_of_two() { Some(self.0.trailing_zeros() as usize) } else { None }
    }

    #[inline]
    pub(crate) const fn intersection(self, names: NameSet) -> NameSet {
        NameSet(self.0 & names.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognised_in_any_case_and_nothing_near_it() {
        for &name in Name::ALL {
            let text = name.text();
            assert_eq!(Name::from_name(text.as_bytes()), name, "{text}");
            assert_eq!(Name::from_name(text.to_ascii_lowercase().as_bytes()), name, "{text}");
            assert_eq!(Name::from_name(text.to_ascii_uppercase().as_bytes()), name, "{text}");
            let neighbour =
                if text.starts_with("X-Forwarded-") { Name::XForwardedOther } else { Name::Other };
            assert_eq!(Name::from_name(format!("{text}x").as_bytes()), neighbour, "{text}x");
            let mut near = text.as_bytes().to_vec();
            *near.last_mut().unwrap() ^= 0x02;
            assert_eq!(Name::from_name(&near), neighbour, "{text} with its last letter changed");
        }
        // One changed bit makes it another name, except for the bit that is a letter's case.
        for &name in Name::ALL {
            for at in 0..name.text().len() {
                for bit in 0..8 {
                    let mut near = name.text().as_bytes().to_vec();
                    near[at] ^= 1 << bit;
                    let is_case = bit == 5 && name.text().as_bytes()[at].is_ascii_alphabetic();
                    assert_eq!(Name::from_name(&near) == name, is_case, "{}", near.escape_ascii());
                }
            }
        }
        for (text, name) in [
            ("X_Forwarded_For", Name::DisguisedForwarded),
            ("x-forwarded_proto", Name::DisguisedForwarded),
            ("X-FORWARDED-Port", Name::XForwardedOther),
            ("X-Real-IP", Name::XForwardedOther),
            ("x_real_ip", Name::DisguisedForwarded),
            ("X-Real-IPs", Name::Other),
            ("X-Forwarded-X", Name::XForwardedOther),
            ("X-Forwarded", Name::Other),
            ("X-Forwarded-", Name::Other),
            ("X-Forwarding-For", Name::Other),
            ("Xx-Forwarded-For", Name::Other),
            ("Proxy-Authentication-Info", Name::ProxyAuthenticate),
            ("Proxy-Authentication-Infos", Name::Other),
            ("Alt-Used", Name::Other),
        ] {
            assert_eq!(Name::from_name(text.as_bytes()), name, "{text}");
        }
        assert_eq!(Name::from_name(b""), Name::Other);
    }
}
