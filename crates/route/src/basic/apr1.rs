//! `$apr1$`, Apache's variant of the MD5-based crypt, which `htpasswd` writes by default.
//!
//! A thousand rounds of MD5 are quickly tried out today; `Users::weak` lists users with such a hash. Hashes are read
//! here, never created.

use md5::{Digest, Md5};

const MAGIC: &[u8] = b"$apr1$";
const ROUNDS: usize = 1000;
/// The length of a hash as text.
pub(super) const TEXT_BYTES: usize = 22;
/// The longest salt; the rest of a longer one is ignored.
pub(super) const SALT_BYTES_MAX: usize = 8;

const MD5_BYTES: usize = 16;

/// The text of a password's hash, without prefix and salt.
pub(super) fn hash(password: &[u8], salt: &[u8]) -> [u8; TEXT_BYTES] {
    let digest = |parts: &[&[u8]]| -> [u8; MD5_BYTES] {
        let mut hasher = Md5::new();
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize().into()
    };
    let inner = digest(&[password, salt, password]);
    let mut first = Md5::new();
    first.update(password);
    first.update(MAGIC);
    first.update(salt);
    for piece in password.chunks(MD5_BYTES) {
        first.update(&inner[..piece.len()]);
    }
    // A bit of the length at a time: a zero or the first byte.
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &[0] } else { &password[..1] });
        length >>= 1;
    }
    let mut state: [u8; MD5_BYTES] = first.finalize().into();
    for round in 0..ROUNDS {
        let (odd, by_three, by_seven) = (round % 2 == 1, round % 3 != 0, round % 7 != 0);
        let or_nothing = |wanted: bool, part| if wanted { part } else { &[][..] };
        state = digest(&[
            if odd { password } else { &state },
            or_nothing(by_three, salt),
            or_nothing(by_seven, password),
            if odd { &state } else { password },
        ]);
    }
    text_of(&state)
}

/// Six bits a character, from groups of three bytes in an order of their own.
fn text_of(state: &[u8; MD5_BYTES]) -> [u8; TEXT_BYTES] {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut text = [0; TEXT_BYTES];
    let groups = GROUPS.map(|group| group.map(|index| state[index])).into_iter();
    for (to, group) in text.chunks_mut(4).zip(groups.chain([[0, 0, state[11]]])) {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for (place, digit) in to.iter_mut().enumerate() {
            *digit = DIGITS[(bits >> (6 * place)) as usize & 63];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `openssl passwd -apr1` makes them.
    #[test]
    fn hashes() {
        for (password, salt, text) in [
            ("secret", "abcdefgh", "h9FWgUz3n9YxylKLlR5SQ/"),
            ("", "x", "tMwYqBfQwi3FYAr0aJc8M/"),
            ("a longer password than sixteen bytes: caf\u{e9}", "r31.....", "jPHKXQcSRnf/ZHJqQWg1q1"),
        ] {
            assert_eq!(String::from_utf8(hash(password.as_bytes(), salt.as_bytes()).to_vec()).unwrap(), text);
        }
    }
}
