//! Collects what the next process takes over from a plan.

use balance::{Inherited, Time};

use crate::context::plan::{Plan, SPLITS};
use crate::shared::handover_state::{HandoverPart, HandoverState, Hidden};

/// Maximum number of sessions that are handed over, for all upstreams together: those used last. 6 MiB.
const SESSIONS_MAX: usize = 256 * 1024;

impl HandoverState {
    pub fn new(plan: &Plan, now: Time) -> Self {
        let mut handover_state = Self::default();
        for (listener, configured) in plan.listeners.iter().zip(&plan.config.listeners) {
            if let Some(tls) = &listener.tls {
                let keys = Hidden::new(tls.ticket_keys().as_bytes().to_vec());
                handover_state
                    .push(HandoverPart::TicketKeys { listener: configured.address.to_string(), keys });
            }
        }
        let secret = Hidden::new(plan.split_secret.to_vec());
        handover_state.push(HandoverPart::CookieSecret { upstream: SPLITS.to_owned(), secret });
        let secret = Hidden::new(plan.quic.secret.to_vec());
        handover_state.push(HandoverPart::Quic { secret, generation: plan.quic.generation });
        let mut room = SESSIONS_MAX;
        for upstream in &plan.upstreams {
            let name = &upstream.config.name;
            if let Some(stickiness) = &upstream.stickiness {
                room -= stickiness.hand_over(name, &mut handover_state, room, now);
            }
            for member in upstream.fleet.members() {
                let stands = member.health.handover(now);
                // A server without history needs no message.
                if stands != Inherited::default() {
                    handover_state.push(HandoverPart::health(name, member.id, stands));
                }
            }
        }
        handover_state
    }
}
