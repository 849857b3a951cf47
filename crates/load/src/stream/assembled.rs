//! A known number of bytes that arrive in pieces. A single piece is not copied. No I/O.

#[derive(Debug, Default)]
pub(crate) struct Assembled {
    length: usize,
    taken: usize,
    kept: Vec<u8>,
}

impl Assembled {
    pub(crate) fn from_length(length: usize) -> Self {
        Self { length, taken: 0, kept: Vec::new() }
    }

    /// Whether nothing has arrived yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.taken == 0 || self.is_done()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.taken == self.length
    }

    /// Takes its bytes from the input. Returns all of them once they are complete.
    pub(crate) fn take<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<&'s [u8]> {
        let (now, rest) = input.split_at(input.len().min(self.length - self.taken));
        *input = rest;
        self.taken += now.len();
        if self.kept.is_empty() && self.is_done() {
            return Some(now);
        }
        self.kept.extend_from_slice(now);
        self.is_done().then_some(&self.kept)
    }
}
