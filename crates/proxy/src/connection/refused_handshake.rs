//! Failed TLS handshakes of clients: counts and reports them, and makes sure that the client can read the alert.

use config::written_duration;
use rustls::{AlertDescription, CertificateError, Error};
use telemetry::message;
use telemetry::{ClientTls, Entry, More};

use crate::connection::client;
use crate::context::client::Client;
use crate::context::failure::Failure;
use crate::context::worker::Worker;
use transport::buffer::SMALL;
use transport::tls::HandshakeError;

/// Handles a failed handshake. An `error` of `None` means that it timed out.
#[cold]
pub(crate) async fn failed(worker: &Worker, client: &mut Client, error: Option<HandshakeError>) {
    worker.counters.handshake_failures.increment();
    let (failure, reason, refused_handshake) = match error {
        // Nothing was said that there is anything to be told of.
        Some(HandshakeError::Io | HandshakeError::InTheClear(_)) => return,
        Some(HandshakeError::Refused(error, refused_handshake)) => {
            (failure_of(&error), reason(&error), Some(*refused_handshake))
        }
        Some(HandshakeError::TooLong) => {
            (Failure::ClientHandshake, "it is longer than any handshake".to_owned(), None)
        }
        None => {
            let limit = worker.snapshot().plan.config.timeouts.client_header;
            let reason = format!("it did not end within timeouts.client_header, {}", written_duration(limit));
            (Failure::ClientHandshake, reason, None)
        }
    };
    worker.counters.failure(failure as usize);
    let server_name =
        refused_handshake.as_ref().and_then(|refused_handshake| refused_handshake.server_name.as_deref());
    tell(worker, client, failure, &reason, server_name.unwrap_or_default());
    if let Some(refused_handshake) = refused_handshake {
        // The client may go on sending, and a close with something unread would be a reset, behind which the alert is lost.
        client.socket = refused_handshake.tcp.into();
        client::linger_briefly(worker, client, &mut worker.buffers.take(SMALL)).await;
    }
}

/// Reports a failed handshake in the access log, or on standard error if there is none.
pub(crate) fn tell(worker: &Worker, client: &Client, failure: Failure, reason: &str, server_name: &str) {
    let Some(more) = worker.handshake_notices.next(worker.deadlines.second()) else { return };
    let mut detail = reason.to_owned();
    if more > 0 {
        detail += &format!("; {more} more handshakes failed before and are not told of");
    }
    let word = failure.facts().word;
    match worker.log.borrow_mut().as_mut() {
        Some(log) => {
            let entry = Entry {
                cause: Some(word),
                detail: Some(&detail),
                more: &More { tls: ClientTls { server_name, ..ClientTls::default() }, ..More::NONE },
                ..Entry::new(client.address)
            };
            log.record(&entry, worker.wall_clock_at(std::time::Instant::now()));
        }
        None => {
            let name = http1::quote(server_name.as_bytes());
            message::warn(&format!(
                "{}: {word}: TLS handshake failed, server name {name}: {detail}",
                client.address
            ));
        }
    }
}

fn failure_of(error: &Error) -> Failure {
    match error {
        Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Failure::ClientCertificate,
        _ => Failure::ClientHandshake,
    }
}

/// What it means to whoever looks for the client that is at fault; "it" is the client.
fn reason(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "it has no certificate, and one is required".to_owned(),
        Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is signed by none of the CAs that are trusted for clients".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet".to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not for clients".to_owned()
            }
            CertificateError::Revoked => "its certificate is revoked".to_owned(),
            CertificateError::UnknownRevocationStatus => {
                "there is no revocation list of the CA that signed its certificate, or an intermediate one; add it \
                 to crls"
                    .to_owned()
            }
            CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => {
                "the revocation list of its CA was to be replaced by now; renew it".to_owned()
            }
            other => format!("its certificate is not valid: {other}"),
        },
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError,
        ) => "it does not accept the certificate that it was shown".to_owned(),
        Error::NoApplicationProtocol => "it speaks none of the protocols of this listener (ALPN)".to_owned(),
        Error::InvalidMessage(_) => "what it sends is no TLS".to_owned(),
        // What is chosen by is the name.
        Error::General(_) => "there is no certificate for the name that it asks for".to_owned(),
        other => tls::reason(other, "tls"),
    }
}
