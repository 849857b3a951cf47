//! HTTP/3 of the lab, as a peer of either side sends it: frames of a request's stream, the unidirectional streams, field
//! sections, and insertions into the dynamic table. Any split reads alike.

#![no_main]

use fuzz::cuts;
use h3::{Broken, Control, Decoder, Frames, Part, Side, Told};
use libfuzzer_sys::fuzz_target;

/// Name and value.
type Field = (Vec<u8>, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    for side in [Side::Client, Side::Server] {
        let whole = frames(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(frames(bytes, cuts(bytes), side), whole);
        let whole = control(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(control(bytes, cuts(bytes), side), whole);
    }
    assert_eq!(insertions(bytes, cuts(bytes)), insertions(bytes, [bytes.len()].into_iter()));
    section(bytes);
});

/// The sections and the content that come before something that may not be there, if there is that.
fn frames(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    side: Side,
) -> (Vec<Vec<u8>>, Vec<u8>, Result<bool, Broken>) {
    let (mut frames, mut sections, mut content) = (Frames::default(), Vec::new(), Vec::new());
    let mut from = 0;
    for cut in cuts {
        let read = frames.read(&bytes[from..cut], 256, side, |part| {
            match part {
                Part::Headers(section) => sections.push(section.to_vec()),
                Part::Data(piece) => content.extend_from_slice(piece),
            }
            Ok::<(), Broken>(())
        });
        from = cut;
        if let Err(broken) = read {
            return (sections, content, Err(broken));
        }
    }
    let is_between = frames.is_between();
    (sections, content, Ok(is_between))
}

/// What is said on a stream, and the bytes of it that are insertions.
fn control(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    side: Side,
) -> (Vec<Told<'static>>, Vec<u8>, Result<(), Broken>) {
    let (mut control, mut told, mut insertions, mut from) = (Control::new(side), Vec::new(), Vec::new(), 0);
    for cut in cuts {
        let read = control.read(3, &bytes[from..cut], false, |said| match said {
            Told::Settings => told.push(Told::Settings),
            Told::GoAway(id) => told.push(Told::GoAway(id)),
            Told::Insertions(bytes) => insertions.extend_from_slice(bytes),
        });
        from = cut;
        if read.is_err() {
            return (told, insertions, read);
        }
    }
    (told, insertions, Ok(()))
}

/// What a section that refers to the table says after insertions, if they are valid, and all bytes are read as sections too.
fn insertions(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Vec<Field>, Broken> {
    let (mut decoder, mut fields, mut from) = (Decoder::default(), Vec::new(), 0);
    for cut in cuts {
        decoder.insert(&bytes[from..cut])?;
        from = cut;
    }
    for section in [&b"\x02\x00\x80"[..], b"\x03\x00\x80\x81", bytes] {
        // Whatever it is, it is read or refused.
        let _ = decoder.decode(section, |name, value| fields.push((name.to_vec(), value.to_vec())));
    }
    Ok(fields)
}

/// What is a field section is one when it is written again.
fn section(bytes: &[u8]) {
    let mut fields = Vec::new();
    if h3::decode(bytes, |name, value| fields.push((name.to_vec(), value.to_vec()))).is_ok() {
        let (mut out, mut again) = (Vec::new(), Vec::new());
        h3::push_prefix(&mut out);
        fields.iter().for_each(|(name, value)| h3::push_field(&mut out, name, value));
        h3::decode(&out, |name, value| again.push((name.to_vec(), value.to_vec()))).expect("it is one");
        assert_eq!(again, fields);
    }
}
