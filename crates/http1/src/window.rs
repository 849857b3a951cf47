//! Sixteen bytes in a vector register: the few operations that a search needs.
//!
//! Uses SSE2 on x86-64, where every processor has it. Elsewhere it uses loops over bytes, which the compiler turns into
//! vectors, except for the bit mask.

pub(crate) const WIDTH: usize = 16;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::Window;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::Window;

/// Windows in SSE2, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::ops::{BitOr, Not, Sub};

    use safe_arch::{
        cmp_eq_mask_i8_m128i, m128i, min_u8_m128i, move_mask_i8_m128i, set_splat_i8_m128i, sub_i8_m128i,
    };

    use super::WIDTH;

    /// Sixteen bytes to compare, or a mask in which each byte is 0x00 or 0xff.
    #[derive(Clone, Copy)]
    pub(crate) struct Window(m128i);

    impl Window {
        #[inline(always)]
        pub(crate) fn new(bytes: [u8; WIDTH]) -> Self {
            Self(m128i::from(bytes))
        }

        #[inline(always)]
        pub(crate) fn splat(byte: u8) -> Self {
            Self(set_splat_i8_m128i(byte.cast_signed()))
        }

        /// Returns a mask: 0xff where the bytes are equal, 0 elsewhere.
        #[inline(always)]
        pub(crate) fn equal(self, other: Self) -> Self {
            Self(cmp_eq_mask_i8_m128i(self.0, other.0))
        }

        #[inline(always)]
        pub(crate) fn min(self, other: Self) -> Self {
            Self(min_u8_m128i(self.0, other.0))
        }

        /// The highest bit of each byte; the first byte's is the lowest.
        #[inline(always)]
        pub(crate) fn bits(self) -> u32 {
            move_mask_i8_m128i(self.0).cast_unsigned()
        }
    }

    impl BitOr for Window {
        type Output = Self;

        #[inline(always)]
        fn bitor(self, other: Self) -> Self {
            Self(self.0 | other.0)
        }
    }

    impl Not for Window {
        type Output = Self;

        #[inline(always)]
        fn not(self) -> Self {
            Self(!self.0)
        }
    }

    impl Sub for Window {
        type Output = Self;

        /// Subtracts byte by byte, and wraps around.
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(sub_i8_m128i(self.0, other.0))
        }
    }
}

/// Windows without vector instructions. Tests compare them with SSE2.
#[cfg(any(not(target_arch = "x86_64"), test))]
mod portable {
    use std::array::from_fn;
    use std::ops::{BitOr, Not, Sub};

    use super::WIDTH;

    /// Sixteen bytes to compare, or a mask in which each byte is 0x00 or 0xff.
    #[derive(Clone, Copy)]
    pub(crate) struct Window([u8; WIDTH]);

    impl Window {
        #[inline(always)]
        pub(crate) fn new(bytes: [u8; WIDTH]) -> Self {
            Self(bytes)
        }

        #[inline(always)]
        pub(crate) fn splat(byte: u8) -> Self {
            Self([byte; WIDTH])
        }

        /// Returns a mask: 0xff where the bytes are equal, 0 elsewhere.
        #[inline(always)]
        pub(crate) fn equal(self, other: Self) -> Self {
            self.with(other, |one, other| if one == other { 0xff } else { 0 })
        }

        #[inline(always)]
        pub(crate) fn min(self, other: Self) -> Self {
            self.with(other, u8::min)
        }

        /// The highest bit of each byte; the first byte's is the lowest.
        #[inline(always)]
        pub(crate) fn bits(self) -> u32 {
            // The multiplication gathers the lowest bits of eight bytes in the highest byte.
            let of_half =
                |half: u64| ((half >> 7) & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            let both = u128::from_le_bytes(self.0);
            of_half(both as u64) as u32 | (of_half((both >> 64) as u64) as u32) << 8
        }

        #[inline(always)]
        fn with(self, other: Self, each: impl Fn(u8, u8) -> u8) -> Self {
            Self(from_fn(|index| each(self.0[index], other.0[index])))
        }
    }

    impl BitOr for Window {
        type Output = Self;

        #[inline(always)]
        fn bitor(self, other: Self) -> Self {
            self.with(other, |one, other| one | other)
        }
    }

    impl Not for Window {
        type Output = Self;

        #[inline(always)]
        fn not(self) -> Self {
            Self(self.0.map(|byte| !byte))
        }
    }

    impl Sub for Window {
        type Output = Self;

        /// Subtracts byte by byte, and wraps around.
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            self.with(other, u8::wrapping_sub)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::array::from_fn;

    use super::*;

    #[test]
    fn bytes_and_vectors_agree() {
        for first in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                let bytes = from_fn(|index| first.wrapping_mul(index as u8 + 1));
                // Compares the bits of masks, and of results that leave arbitrary low bits.
                macro_rules! bits {
                    ($window:ty) => {{
                        let (one, two) = (<$window>::new(bytes), <$window>::splat(other));
                        [one, one.equal(two), one.min(two), one | two, !one, one - two].map(<$window>::bits)
                    }};
                }
                assert_eq!(bits!(Window), bits!(portable::Window), "{first} {other}");
            }
        }
        let bytes = from_fn(|index| if index % 3 == 0 { 0x80 } else { 0x7f });
        assert_eq!(Window::new(bytes).bits(), 0b1001_0010_0100_1001, "the first byte is the lowest bit");
    }
}
