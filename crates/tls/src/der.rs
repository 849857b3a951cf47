//! Walks through DER (ITU-T X.690) where no parser knows the structure.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const INTEGER: u8 = 0x02;

/// DER that is read element by element.
pub(crate) struct Der<'d>(pub(crate) &'d [u8]);

impl<'d> Der<'d> {
    pub(crate) fn tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The content of the next element, which must have this tag.
    pub(crate) fn inside(&mut self, tag: u8) -> Option<&'d [u8]> {
        if self.tag()? != tag {
            return None;
        }
        self.element()
    }

    /// The content of the next element.
    pub(crate) fn element(&mut self) -> Option<&'d [u8]> {
        let (&length, rest) = self.0.get(1..)?.split_first()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            // X.690 §8.1.3.5: the number of bytes of the length. Four suffice for any file within the limit.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (inside, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(inside)
    }
}
