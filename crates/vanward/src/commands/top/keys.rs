//! Parses keys from the bytes that a terminal sends. All terminals follow xterm's sequences.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCommand {
    Char(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// F1.
    Help,
    Interrupt,
}

/// Takes the first key from the bytes. `None` for a key without effect, or an incomplete sequence.
fn next(bytes: &mut &[u8]) -> Option<KeyCommand> {
    match *take(bytes, 1) {
        [0x1b] => {}
        [b'\r' | b'\n'] => return Some(KeyCommand::Enter),
        [b'\t'] => return Some(KeyCommand::Tab),
        [0x7f | 0x08] => return Some(KeyCommand::Backspace),
        [0x03] => return Some(KeyCommand::Interrupt),
        [first] if first < 0x20 => return None,
        [first] if first < 0x80 => return Some(KeyCommand::Char(first.into())),
        [first] => {
            // UTF-8: the first byte has as many leading ones as there are bytes, and all others begin with 10.
            let wanted = (first.leading_ones() as usize).saturating_sub(1).min(3);
            let count = bytes.iter().take(wanted).take_while(|byte| byte.leading_ones() == 1).count();
            let whole = [&[first], take(bytes, count)].concat();
            return std::str::from_utf8(&whole).ok()?.chars().next().map(KeyCommand::Char);
        }
        _ => return None,
    }
    // A sequence with an escape, or the escape key itself, which no byte follows at once.
    match *take(bytes, 1) {
        [b'O'] => of_letter(take(bytes, 1).first()?),
        [b'['] => {
            // The Linux console sends another [ for function keys. An incomplete sequence includes the following bytes.
            let last = match bytes.first() {
                Some(b'[') => 1,
                _ => bytes.iter().position(|byte| (0x40..=0x7e).contains(byte)).unwrap_or(bytes.len()),
            };
            let is_whole = last < bytes.len();
            let sequence = take(bytes, last + 1);
            if !is_whole {
                return None;
            }
            match sequence {
                b"[A" => Some(KeyCommand::Help),
                [numbers @ .., b'~'] => of_number(numbers),
                [.., letter] => of_letter(letter),
                [] => None,
            }
        }
        [] => Some(KeyCommand::Esc),
        _ => None,
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    taken
}

fn of_letter(letter: &u8) -> Option<KeyCommand> {
    Some(match letter {
        b'A' => KeyCommand::Up,
        b'B' => KeyCommand::Down,
        b'C' => KeyCommand::Right,
        b'D' => KeyCommand::Left,
        b'H' => KeyCommand::Home,
        b'F' => KeyCommand::End,
        b'P' => KeyCommand::Help,
        b'Z' => KeyCommand::BackTab,
        _ => return None,
    })
}

/// Returns the key of `ESC [ NUMBER ~`. A second number may stand for Shift and other modifiers.
fn of_number(numbers: &[u8]) -> Option<KeyCommand> {
    let number = numbers.split(|byte| *byte == b';').next()?;
    Some(match number {
        b"1" | b"7" => KeyCommand::Home,
        b"4" | b"8" => KeyCommand::End,
        b"5" => KeyCommand::PageUp,
        b"6" => KeyCommand::PageDown,
        b"11" => KeyCommand::Help,
        _ => return None,
    })
}

pub(super) fn keys(mut bytes: &[u8]) -> Vec<KeyCommand> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        keys.extend(next(&mut bytes));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        for (bytes, expected) in [
            (
                &b"q/\xc3\xa4\xe2\x96\xbc"[..],
                &[KeyCommand::Char('q'), KeyCommand::Char('/'), KeyCommand::Char('ä'), KeyCommand::Char('▼')]
                    [..],
            ),
            (
                b"\r\n\t\x7f\x08\x03",
                &[
                    KeyCommand::Enter,
                    KeyCommand::Enter,
                    KeyCommand::Tab,
                    KeyCommand::Backspace,
                    KeyCommand::Backspace,
                    KeyCommand::Interrupt,
                ],
            ),
            (b"\x1b", &[KeyCommand::Esc]),
            (
                b"\x1b[A\x1b[B\x1b[C\x1b[D",
                &[KeyCommand::Up, KeyCommand::Down, KeyCommand::Right, KeyCommand::Left],
            ),
            (
                b"\x1bOA\x1bOH\x1b[F\x1bOP\x1b[[A\x1b[11~",
                &[
                    KeyCommand::Up,
                    KeyCommand::Home,
                    KeyCommand::End,
                    KeyCommand::Help,
                    KeyCommand::Help,
                    KeyCommand::Help,
                ],
            ),
            (
                b"\x1b[1~\x1b[8~\x1b[5~\x1b[6~\x1b[Z",
                &[
                    KeyCommand::Home,
                    KeyCommand::End,
                    KeyCommand::PageUp,
                    KeyCommand::PageDown,
                    KeyCommand::BackTab,
                ],
            ),
            (b"\x1b[1;5Aj\x1b[5;2~", &[KeyCommand::Up, KeyCommand::Char('j'), KeyCommand::PageUp]),
            // Without effect: F5, Alt-x, Ctrl-A, invalid UTF-8.
            (b"\x1b[15~\x1bx\x01\xffk", &[KeyCommand::Char('k')]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn pieces_of_keys_are_none() {
        for bytes in [&b""[..], b"\x1b[", b"\x1b[1;5", b"\x1bO", b"\x1b[[", b"\xe2\x96"] {
            assert_eq!(keys(bytes), [], "{bytes:?}");
        }
    }
}
