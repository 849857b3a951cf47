//! The digits of crypt(3) hashes: six bits each, the lowest first.

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Writes groups of three bytes, as four digits each. The last group may have fewer.
pub(super) fn write_groups(text: &mut [u8], groups: impl Iterator<Item = [u8; 3]>) {
    for (to, [high, middle, low]) in text.chunks_mut(4).zip(groups) {
        let bits = u32::from_be_bytes([0, high, middle, low]);
        for (place, digit) in to.iter_mut().enumerate() {
            *digit = DIGITS[(bits >> (6 * place)) as usize & 63];
        }
    }
}
