//! Unpredictable random bytes.

/// Returns random bytes for a secret.
pub fn secret<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    if rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes).is_err() {
        // A system without randomness cannot serve TLS either; this fallback is seeded by the standard library's
        // hashes.
        fastrand::fill(&mut bytes);
    }
    bytes
}
