//! HTTP/3 of the lab, as a peer of either side sends it: frames of a request's stream, the unidirectional streams, field
//! sections. Any split reads alike.

#![no_main]

use fuzz::cuts;
use h3::{Broken, Control, Frames, Part, Side, Told};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for side in [Side::Client, Side::Server] {
        let whole = frames(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(frames(bytes, cuts(bytes), side), whole);
        let whole = control(bytes, [bytes.len()].into_iter(), side);
        assert_eq!(control(bytes, cuts(bytes), side), whole);
    }
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

/// What is said on a stream.
fn control(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    side: Side,
) -> (Vec<Told>, Result<(), Broken>) {
    let (mut control, mut told, mut from) = (Control::new(side), Vec::new(), 0);
    for cut in cuts {
        let read = control.read(3, &bytes[from..cut], false, |said| told.push(said));
        from = cut;
        if read.is_err() {
            return (told, read);
        }
    }
    (told, Ok(()))
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
