//! Metrics of what instances share through Redis.

use crate::text::{Text, Type};

/// How sharing stands, when the metrics are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedSample {
    /// Whether Redis answers.
    pub is_up: bool,
    /// The instances that share, as Redis told last.
    pub instances: usize,
    /// Exchanges in which limits told what they had admitted.
    pub tells: u64,
    /// Requests that were told.
    pub requests: u64,
    /// How often Redis was lost.
    pub losses: u64,
    /// Stored responses that unsafe requests made invalid, as told to other instances.
    pub invalid_told: u64,
    /// Those that were not told, since too many waited.
    pub invalid_lost: u64,
    /// Decisions of authentication servers that other instances had.
    pub decisions_found: u64,
    /// Those that no other instance had, or not in time.
    pub decisions_missed: u64,
    /// Those that other instances were given.
    pub decisions_kept: u64,
    /// Sessions that other instances knew.
    pub sessions_found: u64,
    /// Those that no other instance knew, or not in time.
    pub sessions_missed: u64,
    /// Those that other instances were told of.
    pub sessions_told: u64,
}

/// Renders them.
pub(crate) fn write(sample: &SharedSample, text: &mut Text) {
    let help = "Whether Redis answers, through which instances share.";
    text.family("vanward_redis_up", Type::Gauge, help).sample(&[], u8::from(sample.is_up));
    let help = "Instances that share through Redis, as it told last.";
    text.family("vanward_redis_instances", Type::Gauge, help).sample(&[], sample.instances);
    let help = "How often Redis was lost.";
    text.family("vanward_redis_losses", Type::Counter, help).sample(&[], sample.losses);
    let help = "Exchanges with Redis in which shared limits told what they had admitted.";
    text.family("vanward_redis_limit_exchanges", Type::Counter, help).sample(&[], sample.tells);
    let help = "Requests that shared limits admitted and told to Redis.";
    text.family("vanward_redis_limit_requests", Type::Counter, help).sample(&[], sample.requests);
    let help = "URLs that unsafe requests made invalid and other instances were told.";
    text.family("vanward_redis_invalidations", Type::Counter, help).sample(&[], sample.invalid_told);
    let help = "URLs that unsafe requests made invalid and other instances were not told: too many waited.";
    text.family("vanward_redis_invalidations_lost", Type::Counter, help).sample(&[], sample.invalid_lost);
    let help = "Decisions of authentication servers asked of other instances, by what came of it.";
    let mut family = text.family("vanward_redis_decisions", Type::Counter, help);
    family.sample(&[("result", "found")], sample.decisions_found);
    family.sample(&[("result", "missed")], sample.decisions_missed);
    let help = "Decisions of authentication servers given to other instances.";
    text.family("vanward_redis_decisions_kept", Type::Counter, help).sample(&[], sample.decisions_kept);
    let help = "Sessions asked of other instances, by what came of it.";
    let mut family = text.family("vanward_redis_sessions", Type::Counter, help);
    family.sample(&[("result", "found")], sample.sessions_found);
    family.sample(&[("result", "missed")], sample.sessions_missed);
    let help = "How often other instances were told where a session is.";
    text.family("vanward_redis_sessions_told", Type::Counter, help).sample(&[], sample.sessions_told);
}
