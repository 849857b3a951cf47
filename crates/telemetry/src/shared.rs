//! Metrics of sharing between instances through Redis.

use crate::text::{MetricsText, Type};

/// The state of sharing, when the metrics are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedSample {
    /// Whether Redis answers.
    pub is_up: bool,
    /// The number of instances that share, as last reported by Redis.
    pub instances: usize,
    /// Exchanges in which limits reported their admitted requests.
    pub tells: u64,
    /// Admitted requests in these reports.
    pub requests: u64,
    /// Number of times that the connection to Redis was lost.
    pub losses: u64,
    /// Invalidations by unsafe requests that were sent to other instances.
    pub invalid_told: u64,
    /// Invalidations that were not sent, because too many waited.
    pub invalid_lost: u64,
    /// Decisions of authentication servers that were found at other instances.
    pub decisions_found: u64,
    /// Decisions that no other instance had, or not in time.
    pub decisions_missed: u64,
    /// Decisions that were shared with other instances.
    pub decisions_kept: u64,
    /// Sessions that were found at other instances.
    pub sessions_found: u64,
    /// Sessions that no other instance knew, or not in time.
    pub sessions_missed: u64,
    /// Sessions that were shared with other instances.
    pub sessions_told: u64,
}

pub(crate) fn write(sample: &SharedSample, text: &mut MetricsText) {
    let help = "Whether Redis, through which instances share, responds.";
    text.family("vanward_redis_up", Type::Gauge, help).sample(&[], u8::from(sample.is_up));
    let help = "Instances that share through Redis, by its last report.";
    text.family("vanward_redis_instances", Type::Gauge, help).sample(&[], sample.instances);
    let help = "Number of times that the connection to Redis was lost.";
    text.family("vanward_redis_losses", Type::Counter, help).sample(&[], sample.losses);
    let help = "Exchanges with Redis in which shared limits reported what they had admitted.";
    text.family("vanward_redis_limit_exchanges", Type::Counter, help).sample(&[], sample.tells);
    let help = "Requests that shared limits admitted and reported to Redis.";
    text.family("vanward_redis_limit_requests", Type::Counter, help).sample(&[], sample.requests);
    let help = "URLs that unsafe requests invalidated and that other instances were notified of.";
    text.family("vanward_redis_invalidations", Type::Counter, help).sample(&[], sample.invalid_told);
    let help = "URLs that unsafe requests invalidated and that were not reported to other instances, because too \
                many were waiting.";
    text.family("vanward_redis_invalidations_lost", Type::Counter, help).sample(&[], sample.invalid_lost);
    let help = "Decisions of authentication servers that were requested from other instances, by result.";
    let mut family = text.family("vanward_redis_decisions", Type::Counter, help);
    family.sample(&[("result", "found")], sample.decisions_found);
    family.sample(&[("result", "missed")], sample.decisions_missed);
    let help = "Decisions of authentication servers that were sent to other instances.";
    text.family("vanward_redis_decisions_kept", Type::Counter, help).sample(&[], sample.decisions_kept);
    let help = "Sessions that were requested from other instances, by result.";
    let mut family = text.family("vanward_redis_sessions", Type::Counter, help);
    family.sample(&[("result", "found")], sample.sessions_found);
    family.sample(&[("result", "missed")], sample.sessions_missed);
    let help = "Reports to other instances about the place of a session.";
    text.family("vanward_redis_sessions_told", Type::Counter, help).sample(&[], sample.sessions_told);
}
