//! `$apr1$`, Apache's variant of the MD5-based crypt, which `htpasswd` writes by default.
//!
//! Its thousand rounds of MD5 are quick to attack today; `Users::weak` lists users with such a hash. Hashes are only
//! verified here, never created.

use md5::{Digest, Md5};

use super::crypt_text::write_groups;

const MAGIC: &[u8] = b"$apr1$";
const ROUNDS: usize = 1000;
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
    // For each bit of the length: a zero, or the first byte.
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

/// Groups of three bytes in an order of their own.
fn text_of(state: &[u8; MD5_BYTES]) -> [u8; TEXT_BYTES] {
    const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut text = [0; TEXT_BYTES];
    let groups = GROUPS.iter().map(|group| group.map(|index| state[index]));
    write_groups(&mut text, groups.chain([[0, 0, state[11]]]));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Created by `openssl passwd -apr1`.
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
