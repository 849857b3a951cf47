//! HTTP/3 of the lab, from peers on either side: frames of request streams, unidirectional streams, field sections,
//! and insertions into the dynamic table. Any split reads alike.

#![no_main]

use fuzz::cuts;
use lab_http3::{
    ConnectionSide, Frames, LabControl, LabPeerSettings, LabQpackDecoder, PeerViolation, StreamPart,
};
use libfuzzer_sys::fuzz_target;

type Field = (Vec<u8>, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    for side in [ConnectionSide::Client, ConnectionSide::Server] {
        let whole = frames(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(frames(bytes, cuts(bytes), side), whole);
        let whole = control(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(control(bytes, cuts(bytes), side), whole);
    }
    assert_eq!(insertions(bytes, cuts(bytes)), insertions(bytes, [bytes.len()].into_iter()));
    section(bytes);
});

fn frames(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    side: ConnectionSide,
) -> (Vec<Vec<u8>>, Vec<u8>, Result<bool, PeerViolation>) {
    let (mut frames, mut sections, mut content) = (Frames::default(), Vec::new(), Vec::new());
    let mut from = 0;
    for cut in cuts {
        let read = frames.read(&bytes[from..cut], 256, side, |part| {
            match part {
                StreamPart::Headers(section) => sections.push(section.to_vec()),
                StreamPart::Data(piece) => content.extend_from_slice(piece),
            }
            Ok::<(), PeerViolation>(())
        });
        from = cut;
        if let Err(broken) = read {
            return (sections, content, Err(broken));
        }
    }
    let is_between = frames.is_between();
    (sections, content, Ok(is_between))
}

/// Returns the values read from a control stream, and the bytes that are insertions.
fn control(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    side: ConnectionSide,
) -> (Vec<LabPeerSettings<'static>>, Vec<u8>, Result<(), PeerViolation>) {
    let (mut control, mut told, mut insertions, mut from) =
        (LabControl::new(side), Vec::new(), Vec::new(), 0);
    for cut in cuts {
        let read = control.read(3, &bytes[from..cut], false, |said| match said {
            LabPeerSettings::Settings => told.push(LabPeerSettings::Settings),
            LabPeerSettings::GoAway(id) => told.push(LabPeerSettings::GoAway(id)),
            LabPeerSettings::Insertions(bytes) => insertions.extend_from_slice(bytes),
        });
        from = cut;
        if read.is_err() {
            return (told, insertions, read);
        }
    }
    (told, insertions, Ok(()))
}

/// Decodes a section that refers to the table after valid insertions. All bytes are read as sections, too.
fn insertions(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Vec<Field>, PeerViolation> {
    let (mut decoder, mut fields, mut from) = (LabQpackDecoder::default(), Vec::new(), 0);
    for cut in cuts {
        decoder.insert(&bytes[from..cut])?;
        from = cut;
    }
    for section in [&b"\x02\x00\x80"[..], b"\x03\x00\x80\x81", bytes] {
        // Any section is accepted or rejected.
        let _ = decoder.decode(section, |name, value| fields.push((name.to_vec(), value.to_vec())));
    }
    Ok(fields)
}

/// A valid field section is valid when it is encoded again.
fn section(bytes: &[u8]) {
    let mut fields = Vec::new();
    if lab_http3::decode(bytes, |name, value| fields.push((name.to_vec(), value.to_vec()))).is_ok() {
        let (mut out, mut again) = (Vec::new(), Vec::new());
        lab_http3::push_prefix(&mut out);
        fields.iter().for_each(|(name, value)| lab_http3::push_field(&mut out, name, value));
        lab_http3::decode(&out, |name, value| again.push((name.to_vec(), value.to_vec())))
            .expect("it is one");
        assert_eq!(again, fields);
    }
}
