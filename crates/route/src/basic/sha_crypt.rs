//! SHA-256 and SHA-512 crypt (`$5$`, `$6$`): the library computes the digest, and this is its text.

use sha_crypt::{Params, sha256_crypt, sha512_crypt};
use subtle::ConstantTimeEq;

use super::crypt_text::write_groups;

/// Rounds of a hash that does not name them.
pub(super) const ROUNDS: u32 = 5000;

/// The fields of a hash: `$5$rounds=10000$SALT$TEXT`.
struct Hash<'a> {
    is_sha512: bool,
    rounds: u32,
    salt: &'a str,
    text: &'a str,
}

impl<'a> Hash<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let fields: Vec<&str> = text.split('$').skip(1).collect();
        let (kind, rounds, salt, text) = match fields[..] {
            [kind, salt, text] => (kind, ROUNDS, salt, text),
            [kind, rounds, salt, text] => (kind, rounds.strip_prefix("rounds=")?.parse().ok()?, salt, text),
            _ => return None,
        };
        Some(Self { is_sha512: kind == "6", rounds, salt, text })
    }
}

/// Whether a hash is that of the password. The time does not depend on how much of it is right.
pub(super) fn verify(password: &[u8], hash: &str) -> bool {
    let Some(Hash { is_sha512, rounds, salt, text }) = Hash::parse(hash) else { return false };
    let Ok(params) = Params::new(rounds) else { return false };
    let computed = match is_sha512 {
        true => text_of(&sha512_crypt(password, salt.as_bytes(), params)),
        false => text_of(&sha256_crypt(password, salt.as_bytes(), params)),
    };
    computed.ct_eq(text.as_bytes()).into()
}

/// The text of a digest: groups of one byte from each third, whose order rotates from group to group, and then the rest.
fn text_of(digest: &[u8]) -> Vec<u8> {
    let (third, is_sha512) = (digest.len() / 3, digest.len() == 64);
    let groups = (0..third).map(|group| {
        let mut bytes = [group, group + third, group + 2 * third].map(|index| digest[index]);
        bytes.rotate_left(if is_sha512 { group % 3 } else { 2 * group % 3 });
        bytes
    });
    let rest = if is_sha512 { [0, 0, digest[63]] } else { [0, digest[31], digest[30]] };
    let mut text = vec![0; (digest.len() * 8).div_ceil(6)];
    write_groups(&mut text, groups.chain([rest]));
    text
}
