//! Framing of a request for its server, and of the server's response.

use config::Protocol;
use http1::{BodyFraming, ConnectionOptions, Method};

use super::{Attempt, switch};
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::failure::Failure;
use crate::upstream::ServerConnection;
use transport::endpoint::MessageEndpoint;

impl Attempt<'_> {
    /// Returns the framing of the request's body for the server.
    pub(super) fn framing(&self, request: &CurrentRequest) -> BodyFraming {
        match &request.replay {
            Some(replay) => replay.framing(self.upstream.plan.config.protocol == Protocol::Fastcgi),
            None => self.routed.framing,
        }
    }

    /// Reads the framing and persistence of a response from its head.
    pub(super) fn read_framing(
        &self,
        connection: &mut ServerConnection,
        request: &CurrentRequest,
        response: &CurrentResponse,
    ) -> Result<(), Failure> {
        let bytes = response.buffer.filled();
        let head = &response.head;
        let options = ConnectionOptions::of_response(head, bytes).map_err(|_| Failure::UpstreamFraming)?;
        connection.framing = if head.start.status == 101 {
            let made_key = self.ctx.client.socket.frames_itself();
            if !switch::is_asked_for(request, response, options, made_key) {
                return Err(Failure::UpstreamSwitch);
            }
            BodyFraming::None
        } else {
            http1::response_framing(head, bytes, self.routed.method == Method::Head)
                .map_err(|_| Failure::UpstreamFraming)?
        };
        connection.persists = match &connection.socket {
            // A stream carries one exchange only.
            MessageEndpoint::Stream(_) | MessageEndpoint::Http3(_) => false,
            // The end of a response does not end the connection.
            MessageEndpoint::Fastcgi(_) => true,
            MessageEndpoint::Connection(_) | MessageEndpoint::Detached => {
                options.persists(head.start.version) && connection.framing != BodyFraming::UntilClose
            }
        };
        connection.options = options;
        (connection.upstream, connection.server) = (self.routed.upstream.get(), self.index);
        Ok(())
    }
}
