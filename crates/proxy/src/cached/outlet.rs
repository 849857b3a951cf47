//! Where a response from the store leaves, no faster than bodies may pass.

use crate::exchange::{Admitted, Call};
use crate::failure::Failure;
use crate::respond::send_paced;
use crate::shaping::{Pace, Way};
use crate::tcp::Follows;

/// The way to the client.
pub(super) struct Outlet<'a> {
    call: &'a Call<'a>,
    admitted: &'a Admitted,
    pace: Pace,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(call: &'a Call<'a>, admitted: &'a Admitted) -> Self {
        Self { call, admitted, pace: Pace::new(Way::Down, call.worker) }
    }

    /// Sends a head, which is not counted, and what of the body is there.
    pub(super) async fn send(&self, head: &[u8], body: &[u8], follows: Follows) -> Result<(), Failure> {
        send_paced(self.call, self.admitted, &self.pace, (head, body), follows).await
    }
}
