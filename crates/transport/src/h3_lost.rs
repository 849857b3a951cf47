//! Classifies the ends of QUIC connections: a failed handshake, a violated protocol, or a peer that is gone.

use http3::H3Code;
use quinn_proto::{ConnectionError, TransportErrorCode};
use tls::HandshakeFault;

use crate::h3_connection::{Core, H3ConnectionEnd};

/// Maps the end of a QUIC connection to [`End`].
pub(crate) fn lost(core: &Core, reason: ConnectionError) -> H3ConnectionEnd {
    if core.reach.is_some() {
        return of_server(core, reason);
    }
    match reason {
        ConnectionError::TransportError(error) if core.is_handshaking => match alert(error.code) {
            // Our own error already has a description.
            Some(alert) => H3ConnectionEnd::Handshake(HandshakeFault::of_sent(alert), error.reason),
            None => H3ConnectionEnd::Handshake(HandshakeFault::Other, error.to_string()),
        },
        ConnectionError::ConnectionClosed(close) if core.is_handshaking => {
            let words = alert(close.error_code)
                .map(|alert| tls::reason_of_client(&rustls::Error::AlertReceived(alert)));
            let words = words.unwrap_or_else(|| format!("the client ended it: {close}"));
            H3ConnectionEnd::Handshake(HandshakeFault::Alert, words)
        }
        ConnectionError::TimedOut if core.is_handshaking => {
            H3ConnectionEnd::Handshake(HandshakeFault::Other, "the client stopped responding".to_owned())
        }
        ConnectionError::TransportError(error) => H3ConnectionEnd::Violated(error.to_string()),
        reason => closed(&reason),
    }
}

fn of_server(core: &Core, reason: ConnectionError) -> H3ConnectionEnd {
    let of_handshake = |why: String| H3ConnectionEnd::Handshake(HandshakeFault::Other, why);
    match reason {
        ConnectionError::TransportError(error) => match alert(error.code) {
            // Our own error already has a description.
            Some(alert) => H3ConnectionEnd::Handshake(HandshakeFault::of_sent(alert), error.reason),
            None if core.is_handshaking => of_handshake(error.to_string()),
            None => H3ConnectionEnd::Violated(error.to_string()),
        },
        // A server may check the client's certificate after the client has finished the handshake.
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(alert) => {
                let error = rustls::Error::AlertReceived(alert);
                H3ConnectionEnd::Handshake(HandshakeFault::from_error(&error), tls::reason(&error, "tls"))
            }
            None if core.is_handshaking => of_handshake(format!("it ended the handshake: {close}")),
            None => H3ConnectionEnd::Closed,
        },
        ConnectionError::VersionMismatch => H3ConnectionEnd::Handshake(
            HandshakeFault::Protocol,
            "it does not speak version 1 of QUIC".to_owned(),
        ),
        // No answer at all: another address of the server may be tried.
        ConnectionError::TimedOut if core.is_handshaking => H3ConnectionEnd::Unreachable,
        reason => closed(&reason),
    }
}

/// The end of a connection that the peer closed, or that timed out.
fn closed(reason: &ConnectionError) -> H3ConnectionEnd {
    match reason {
        ConnectionError::ApplicationClosed(close) => match H3Code(close.error_code.into_inner()) {
            H3Code::NO_ERROR => H3ConnectionEnd::Closed,
            code => H3ConnectionEnd::Told(code),
        },
        _ => H3ConnectionEnd::Closed,
    }
}

/// The TLS alert that an error code stands for (RFC 9001 §4.8).
fn alert(code: TransportErrorCode) -> Option<rustls::AlertDescription> {
    let code = u64::from(code).checked_sub(0x100)?;
    u8::try_from(code).ok().map(rustls::AlertDescription::from)
}
