//! Texts that differ only in a time, or in counts.

/// Whether both texts are those of nginx's `stub_status`, with counts of their own.
pub(super) fn are_counts(theirs: &[u8], ours: &[u8]) -> bool {
    let form = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let words = text.split(' ').map(|word| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true if !word.is_empty() => "0".to_owned(),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>()
    };
    theirs.starts_with(b"Active connections: ") && form(theirs) == form(ours)
}

/// Whether both fields have a time in the same form, such as `t=1796107142.071`, and nearly the same one: both proxies get
/// a request within a minute.
pub(super) fn is_same_time(theirs: &[String], ours: &[String]) -> bool {
    const APART_MAX_MS: u64 = 60_000;
    let ([their], [our]) = (theirs, ours) else { return false };
    let (Some((their_before, their_form, their_ms)), Some((our_before, our_form, our_ms))) =
        (time_of(their), time_of(our))
    else {
        return false;
    };
    their_before == our_before && their_form == our_form && their_ms.abs_diff(our_ms) <= APART_MAX_MS
}

/// The text before a time in seconds with milliseconds, or in milliseconds; whether it has a dot; its milliseconds.
fn time_of(text: &str) -> Option<(&str, bool, u64)> {
    let is_of_time = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    // Behind the last byte of a character.
    let start = text.bytes().rposition(|byte| !is_of_time(byte)).map_or(0, |at| at + 1);
    let (before, time) = text.split_at(start);
    let ms = time.replace('.', "");
    let has_dot = time.len() == 14 && time.as_bytes().get(10) == Some(&b'.');
    (ms.len() == 13 && (has_dot || time.len() == 13)).then(|| Some((before, has_dot, ms.parse().ok()?)))?
}
