//! Servers that end connections and streams before their response: the failure, and its text in the log.

use std::io::{self, ErrorKind};

use crate::failure::Failure;
use crate::forward::retry::AttemptProgress;
use crate::upstream::ServerConnection;
use transport::endpoint::MessageEndpoint;
use transport::h3_stream::HEAD_REFUSED;

/// Returns the failure of a request of which nothing could be sent.
#[cold]
pub(super) fn unsent(
    connection: &ServerConnection,
    error: &io::Error,
    progress: &mut AttemptProgress,
    wrong: &mut Option<String>,
) -> Failure {
    match error.kind() {
        // Messages that HTTP/2 and HTTP/3 cannot express.
        ErrorKind::InvalidData => Failure::BadRequest,
        // RFC 9114 §4.2.2: the server would reset the stream.
        HEAD_REFUSED => {
            *wrong = Some(error.to_string());
            Failure::UpstreamHeadLimit
        }
        _ => {
            *wrong = Some(ended(connection, Some(error)));
            broken_off(connection, Some(error), progress)
        }
    }
}

/// Describes how a server has ended a connection or a stream, for the log.
#[cold]
pub(super) fn ended(connection: &ServerConnection, error: Option<&io::Error>) -> String {
    if let MessageEndpoint::Fastcgi(application) = &connection.socket
        && let Some(refusal) = application.refusal()
    {
        return format!("it ended the request with {refusal}");
    }
    match (connection.socket.reset_code(), error.filter(|error| error.raw_os_error().is_some())) {
        (Some(code), _) => format!("it reset the stream with {code}"),
        (None, Some(error)) => format!("the connection broke: {error}"),
        (None, None) => "it closed the connection".to_owned(),
    }
}

/// Returns the failure if there is no response. Without an error, the connection was closed.
#[cold]
pub(super) fn broken_off(
    connection: &ServerConnection,
    error: Option<&io::Error>,
    progress: &mut AttemptProgress,
) -> Failure {
    progress.is_untouched = error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    progress.is_stale = connection.has_ended() && (connection.is_reused || progress.is_untouched);
    match error.map(io::Error::kind) {
        // RFC 8446 §6.1: an end without close_notify, treated as a close.
        None | Some(ErrorKind::UnexpectedEof) => Failure::UpstreamClosed,
        // The whole connection of the stream has ended.
        Some(_) if connection.socket.frames_itself() && connection.socket.reset_code().is_none() => {
            Failure::UpstreamClosed
        }
        Some(_) => Failure::UpstreamReset,
    }
}
