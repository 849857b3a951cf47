//! Unidirectional streams of the peer: control, encoder and decoder stream, and unknown ones (RFC 9114 §6.2, §7.2).

use std::fmt::Display;

use crate::code::H3Code;
use crate::connection::{
    EARLY_PRIORITIES_MAX, FlushOrder, H3Broken, H3ErrorCause, H3Event, H3Role, H3StateMachine, StreamId,
    is_unidirectional,
};
use crate::flood::Flood;
use crate::frame::{
    CANCEL_PUSH, CONTROL_STREAM, DECODER_STREAM, ENCODER_STREAM, GOAWAY, H3FrameHead, MAX_PUSH_ID,
    PRIORITY_UPDATE, PRIORITY_UPDATE_OF_PUSH, PUSH_STREAM, SETTINGS,
};
use crate::priority::Priority;
use crate::settings::H3Settings;
use crate::stream::{FrameHead, IncomingPayload, Key};
use crate::{rules, varint};

/// Bytes to read from a unidirectional stream at once.
const WANTED: usize = 4096;
/// Longest payload of a frame on the control stream.
// Frames of this stream hold settings or a number. Unknown ones are skipped, whatever their length.
const CONTROL_MAX: u64 = 4096;

#[derive(Default)]
pub(crate) struct PeerStreams {
    /// Streams whose type has not arrived completely, with its received bytes.
    fresh: Vec<(StreamId, FrameHead)>,
    control: Option<StreamId>,
    encoder: Option<StreamId>,
    decoder: Option<StreamId>,
    /// The incomplete frame header of the control stream.
    frame_head: FrameHead,
    /// The rest of the current payload. A payload of a known frame counts as a section.
    payload: IncomingPayload,
    kind: u64,
    held: Vec<u8>,
    /// An incomplete instruction of the decoder stream.
    instruction: Vec<u8>,
}

impl PeerStreams {
    pub(crate) fn accept(&mut self, id: StreamId) {
        self.fresh.push((id, FrameHead::default()));
    }

    pub(crate) fn wanted(&self, id: StreamId) -> usize {
        if self.is_critical(id) || self.fresh.iter().any(|(fresh, _)| *fresh == id) { WANTED } else { 0 }
    }

    fn is_critical(&self, id: StreamId) -> bool {
        [self.control, self.encoder, self.decoder].contains(&Some(id))
    }
}

impl H3StateMachine {
    /// Records the cause of the connection error, and the broken rule.
    #[cold]
    pub(crate) fn offended(&mut self, broken: H3Broken, by: impl Display) -> H3Broken {
        if self.offence.is_none() {
            self.offence = Some(match broken.cause {
                H3ErrorCause::Malformed(rule) => format!("{by}: {rule}").into(),
                H3ErrorCause::Flood(_) => by.to_string().into(),
            });
        }
        broken
    }

    /// Counts a frame or stream that is ignored.
    pub(crate) fn is_overhead(&mut self) -> Result<(), H3Broken> {
        Ok(self.floods.count(Flood::Overhead, 1, self.now.second)?)
    }

    /// Receives bytes of a unidirectional stream. `is_last` ends the stream behind them.
    pub(crate) fn receive_unidirectional(
        &mut self,
        id: StreamId,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<(), H3Broken> {
        let mut rest = bytes;
        if let Some(at) = self.theirs.fresh.iter().position(|(fresh, _)| *fresh == id) {
            match self.theirs.fresh[at].1.take(&mut rest, varint::read) {
                Some(kind) => {
                    self.theirs.fresh.swap_remove(at);
                    self.begin_unidirectional(id, kind)
                        .map_err(|broken| self.offended(broken, format!("a stream of type 0x{kind:x}")))?;
                }
                // RFC 9114 §6.2: a stream may end before its type has arrived.
                None if is_last => {
                    self.theirs.fresh.swap_remove(at);
                    return self
                        .is_overhead()
                        .map_err(|broken| self.offended(broken, "a stream without a type"));
                }
                None => return Ok(()),
            }
        }
        let theirs = &self.theirs;
        let name = match id {
            _ if theirs.control == Some(id) => {
                self.take_control(rest)?;
                "the control stream"
            }
            _ if theirs.encoder == Some(id) => {
                self.take_instructions(rest)?;
                "the encoder stream"
            }
            _ if theirs.decoder == Some(id) => {
                self.take_acknowledgments(rest)?;
                "the decoder stream"
            }
            _ => return Ok(()),
        };
        if is_last { Err(self.offended(rules::CRITICAL_CLOSED, name)) } else { Ok(()) }
    }

    /// Handles a reset of a unidirectional stream, or a STOP_SENDING for one of ours.
    pub(crate) fn unidirectional_closed(&mut self, id: StreamId) -> Result<(), H3Broken> {
        self.theirs.fresh.retain(|(fresh, _)| *fresh != id);
        let own = [self.own.control.0, self.own.encoder.0, self.own.decoder.0];
        if self.theirs.is_critical(id) || own.contains(&id) {
            return Err(self.offended(rules::CRITICAL_CLOSED, format!("stream {id}")));
        }
        Ok(())
    }

    /// Handles the type of a unidirectional stream (RFC 9114 §6.2).
    fn begin_unidirectional(&mut self, id: StreamId, kind: u64) -> Result<(), H3Broken> {
        let theirs = &mut self.theirs;
        let place = match kind {
            CONTROL_STREAM => &mut theirs.control,
            ENCODER_STREAM => &mut theirs.encoder,
            DECODER_STREAM => &mut theirs.decoder,
            PUSH_STREAM if self.role == H3Role::Server => return Err(rules::CLIENT_PUSHED),
            PUSH_STREAM => return Err(rules::PUSHED),
            _ => {
                // RFC 9114 §6.2.3, §9: streams of unknown types are not read.
                self.orders.push_back(FlushOrder::Stop(id, H3Code::STREAM_CREATION_ERROR));
                return self.is_overhead();
            }
        };
        if place.replace(id).is_some() { Err(rules::SECOND_STREAM) } else { Ok(()) }
    }

    /// Receives bytes of the peer's encoder stream (RFC 9204 §4.2).
    fn take_instructions(&mut self, bytes: &[u8]) -> Result<(), H3Broken> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Stops at each insertion that a section waits for, because a later one may evict it. Found by fuzzing.
            let waited_for = self.streams.all().filter_map(|(_, stream)| stream.blocked).min();
            let before = self.decoder.inserted();
            let outcome = self.decoder.instruct_until(&mut rest, waited_for.unwrap_or(u64::MAX));
            outcome.map_err(|broken| self.offended(broken, "the encoder stream"))?;
            let inserted = self.decoder.inserted();
            let times = u32::try_from(inserted - before).unwrap_or(u32::MAX);
            let counted = self.floods.count(Flood::Insertions, times, self.now.second);
            counted.map_err(|flood| self.offended(flood.into(), "the encoder stream"))?;
            self.unblock(inserted)?;
        }
        Ok(())
    }

    /// Continues the streams whose sections have waited for these insertions.
    fn unblock(&mut self, inserted: u64) -> Result<(), H3Broken> {
        let is_ready = |required: u64| required <= inserted;
        let ready: Vec<Key> = self
            .streams
            .all()
            .filter(|(_, stream)| stream.blocked.is_some_and(is_ready))
            .map(|(key, _)| key)
            .collect();
        for key in ready {
            self.unblock_stream(key)?;
        }
        Ok(())
    }

    /// Receives bytes of the peer's decoder stream (RFC 9204 §4.2).
    fn take_acknowledgments(&mut self, bytes: &[u8]) -> Result<(), H3Broken> {
        let mut held = std::mem::take(&mut self.theirs.instruction);
        // Copied in any case: an instruction may be split, and all of them are a few bytes.
        held.extend_from_slice(bytes);
        let taken = self.encoder.acknowledged(&held);
        let taken = taken.map_err(|broken| self.offended(broken, "the decoder stream"))?;
        held.drain(..taken);
        held.shrink_to(64);
        self.theirs.instruction = held;
        Ok(())
    }

    fn take_control(&mut self, bytes: &[u8]) -> Result<(), H3Broken> {
        let mut rest = bytes;
        loop {
            let theirs = &mut self.theirs;
            match theirs.payload {
                IncomingPayload::None if rest.is_empty() => return Ok(()),
                IncomingPayload::None => {
                    let Some(head) = theirs.frame_head.take(&mut rest, H3FrameHead::parse) else {
                        return Ok(());
                    };
                    self.begin_control(head).map_err(|broken| self.offended(broken, head))?;
                }
                IncomingPayload::Section(left)
                | IncomingPayload::Data(left)
                | IncomingPayload::Skipped(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    // An empty payload is complete at once, without another byte.
                    if count == 0 && left > 0 {
                        return Ok(());
                    }
                    let is_skipped = matches!(theirs.payload, IncomingPayload::Skipped(_));
                    if !is_skipped {
                        theirs.held.extend_from_slice(&rest[..count]);
                    }
                    rest = &rest[count..];
                    let left = left - count as u64;
                    if left > 0 {
                        theirs.payload = if is_skipped {
                            IncomingPayload::Skipped(left)
                        } else {
                            IncomingPayload::Section(left)
                        };
                        continue;
                    }
                    theirs.payload = IncomingPayload::None;
                    if !is_skipped {
                        let payload = std::mem::take(&mut theirs.held);
                        let head = H3FrameHead { kind: theirs.kind, len: payload.len() as u64 };
                        self.control(head.kind, &payload).map_err(|broken| self.offended(broken, head))?;
                    }
                }
            }
        }
    }

    /// Handles a frame header on the control stream.
    fn begin_control(&mut self, head: H3FrameHead) -> Result<(), H3Broken> {
        // RFC 9114 §6.2.1, §7.2.4.
        match (self.has_settings, head.kind) {
            (false, SETTINGS) => {}
            (false, _) => return Err(rules::NO_SETTINGS),
            (true, SETTINGS) => return Err(rules::SECOND_SETTINGS),
            (true, _) => {}
        }
        if head.is_of_http2() {
            return Err(rules::OF_HTTP2);
        }
        if head.is_of_message() {
            return Err(rules::NOT_ON_CONTROL);
        }
        self.theirs.kind = head.kind;
        if !head.is_of_control() {
            // RFC 9114 §7.2.8, §9: unknown frames are skipped.
            self.theirs.payload = IncomingPayload::Skipped(head.len);
            return self.is_overhead();
        }
        if head.len > CONTROL_MAX {
            return Err(rules::CONTROL_TOO_LONG);
        }
        self.theirs.payload = IncomingPayload::Section(head.len);
        Ok(())
    }

    /// Handles a complete frame on the control stream.
    fn control(&mut self, kind: u64, payload: &[u8]) -> Result<(), H3Broken> {
        let number = || varint::read_all(payload).ok_or(rules::WRONG_SIZE);
        match kind {
            SETTINGS => {
                self.peer = H3Settings::parse(payload)?;
                self.has_settings = true;
                self.encoder.allow(self.peer.table_bytes, self.peer.blocked_streams);
                self.encoder.take_instructions(&mut self.own.encoder.1.bytes);
                self.events.push_back(H3Event::Begun);
                Ok(())
            }
            GOAWAY => self.going_away(number()?),
            MAX_PUSH_ID => {
                let id = number()?;
                if self.role == H3Role::Client {
                    return Err(rules::NOT_FROM_THIS_SIDE);
                }
                if self.max_push.replace(id).is_some_and(|before| id < before) {
                    return Err(rules::PUSHES_REDUCED);
                }
                self.is_overhead()
            }
            // RFC 9114 §7.2.3: no push was promised, nor allowed.
            CANCEL_PUSH => number().and(Err(rules::UNKNOWN_PUSH)),
            PRIORITY_UPDATE | PRIORITY_UPDATE_OF_PUSH if self.role == H3Role::Client => {
                Err(rules::NOT_FROM_THIS_SIDE)
            }
            PRIORITY_UPDATE_OF_PUSH => Err(rules::UNKNOWN_PUSH),
            PRIORITY_UPDATE => self.priority_update(payload),
            _ => Ok(()),
        }
    }

    /// Handles GOAWAY (RFC 9114 §5.2, §7.2.6).
    fn going_away(&mut self, id: u64) -> Result<(), H3Broken> {
        if self.role == H3Role::Client && id & 0x3 != 0 {
            return Err(rules::GOAWAY_OF_NO_REQUEST);
        }
        if self.goaway.replace(id).is_some_and(|before| id > before) {
            return Err(rules::GOAWAY_RAISED);
        }
        // RFC 9114 §5.2 permits any number of GOAWAYs, each of which costs a look at all streams.
        self.is_overhead()?;
        if self.role == H3Role::Client {
            // Requests that the peer has not seen may be sent elsewhere.
            let unseen: Vec<Key> = self
                .streams
                .all()
                .filter(|(_, stream)| stream.id >= id && !stream.is_deaf())
                .map(|(key, _)| key)
                .collect();
            for key in unseen {
                // RFC 9114 §4.1.1: only servers reject.
                self.break_off_as(key, H3Code::REQUEST_REJECTED, H3Code::REQUEST_CANCELLED);
                self.events.push_back(H3Event::Reset(key));
            }
        }
        self.events.push_back(H3Event::GoingAway);
        Ok(())
    }

    /// Handles PRIORITY_UPDATE (RFC 9218 §7.2).
    fn priority_update(&mut self, payload: &[u8]) -> Result<(), H3Broken> {
        self.floods.count(Flood::Priorities, 1, self.now.second)?;
        let (id, len) = varint::read(payload).ok_or(rules::WRONG_SIZE)?;
        if is_unidirectional(id) || id & 0x1 != 0 {
            return Err(rules::PRIORITY_OF_NO_REQUEST);
        }
        let priority = Priority::parse(&payload[len..]);
        if let Some(key) = self.streams.find(id) {
            let stream = self.streams.change(key);
            (stream.priority, stream.is_priority_updated) = (priority, true);
            self.events.push_back(H3Event::Prioritized(key));
        } else if id >= self.next {
            // The update may arrive before its request. For a lower ID it came too late, as the request is over.
            self.early_priorities.retain(|(early, _)| *early != id);
            if self.early_priorities.len() == EARLY_PRIORITIES_MAX {
                // The oldest goes: its request may never come.
                self.early_priorities.pop_front();
            }
            self.early_priorities.push_back((id, priority));
        }
        Ok(())
    }
}
