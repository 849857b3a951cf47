//! Responses to requests that HTTP/1.1 text cannot express. The proxy's other parts do not see such requests.

use fields::answer::FixedAnswer;

use crate::connection::H2StateMachine;

impl H2StateMachine {
    /// Sends a fixed response, in gRPC's form if `call` is the content type of a gRPC call. Returns the status code.
    pub(crate) fn refuse(
        &mut self,
        id: u32,
        answer: &FixedAnswer,
        call: Option<&[u8]>,
        has_ended: bool,
    ) -> u16 {
        let (status, fields) = answer.form(call);
        self.answer(id, status, &fields, has_ended);
        status.parse().unwrap_or(0)
    }
}
