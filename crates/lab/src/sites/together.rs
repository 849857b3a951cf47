//! Combines the results of several machines for one measurement: counts are added, histograms merged.

use std::collections::BTreeMap;

use report::latency::Latency;
use report::results::{Measured, Network, Outcome, Sample, Usage, Watched};

use crate::agent::words::Seen;
use crate::error::Error;

/// Command line of the load, and the combined outcome.
pub(super) fn outcome(seen: Vec<Seen>) -> Result<(String, Outcome), Error> {
    let mut whole = Meanwhile::default();
    let (mut typed, mut outcomes, mut proxy_end) = (Vec::new(), Vec::new(), None);
    for one in seen {
        if let Some((command, outcome)) = one.load {
            typed.push(command);
            outcomes.push(outcome);
        }
        proxy_end = proxy_end.or(one.proxy_end);
        whole.proxy = whole.proxy.or(one.proxy);
        whole.origins = whole.origins.or(one.origins);
        whole.generators.extend(one.generator);
        whole.origin_connections = whole.origin_connections.or(one.origin_connections);
        whole.origins_cpu_seconds = whole.origins_cpu_seconds.or(one.origins_cpu_seconds);
        whole.machine_cpu_seconds.push(one.machine_cpu_seconds);
        whole.network = added(whole.network, one.network);
    }
    let one = outcomes.into_iter().reduce(both).ok_or(Error::Empty("client"))?;
    typed.dedup();
    let outcome = whole.beside(one);
    Ok((
        typed.join(" + "),
        match proxy_end {
            Some(reason) => spoiled(outcome, reason),
            None => outcome,
        },
    ))
}

/// Usage during the measurement.
#[derive(Default)]
struct Meanwhile {
    proxy: Option<Watched>,
    origins: Option<Watched>,
    generators: Vec<Watched>,
    origins_cpu_seconds: Option<f64>,
    origin_connections: Option<u64>,
    machine_cpu_seconds: Vec<Option<f64>>,
    network: Network,
}

impl Meanwhile {
    fn beside(self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Measured(measured) | Outcome::Invalid { measured, .. } = &mut outcome {
            if let Some(watched) = self.proxy {
                measured.usage = Some(watched.usage);
                measured.samples = watched.samples;
            }
            measured.origins = self.origins;
            measured.load = self.generators.into_iter().reduce(watched_together);
            measured.origin_connections = self.origin_connections;
            measured.origins_cpu_seconds = self.origins_cpu_seconds;
            // Of a machine that does not tell, nothing is known of the whole.
            measured.machine_cpu_seconds = self.machine_cpu_seconds.into_iter().sum();
            measured.network = Some(self.network);
        }
        outcome
    }
}

/// Invalid outcome for a load whose proxy ended during it: keeps the figures, and gives this reason.
fn spoiled(outcome: Outcome, reason: String) -> Outcome {
    match outcome {
        Outcome::Failed { .. } => Outcome::Failed { reason },
        Outcome::Measured(measured) | Outcome::Invalid { measured, .. } => {
            Outcome::Invalid { reason, measured, is_generators: false }
        }
    }
}

/// Combines two loads. The result is valid only if both are, and has figures only if both have.
fn both(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Failed { reason }, _) | (_, Outcome::Failed { reason }) => Outcome::Failed { reason },
        (Outcome::Measured(one), Outcome::Measured(other)) => Outcome::Measured(merged(one, other)),
        (
            Outcome::Invalid { reason, measured: one, is_generators },
            Outcome::Measured(other) | Outcome::Invalid { measured: other, .. },
        )
        | (Outcome::Measured(one), Outcome::Invalid { reason, measured: other, is_generators }) => {
            Outcome::Invalid { reason, measured: merged(one, other), is_generators }
        }
    }
}

fn merged(one: Measured, other: Measured) -> Measured {
    let mut errors: BTreeMap<String, u64> = one.errors;
    for (cause, count) in other.errors {
        *errors.entry(cause).or_default() += count;
    }
    Measured {
        // They began together.
        seconds: one.seconds.max(other.seconds),
        requests: one.requests + other.requests,
        received_bytes: one.received_bytes + other.received_bytes,
        errors,
        latency: Latency::merged([&one.latency, &other.latency]),
        first_byte: Latency::merged([&one.first_byte, &other.first_byte]),
        connect: Latency::merged([&one.connect, &other.connect]),
        lateness_p99_us: one.lateness_p99_us.max(other.lateness_p99_us),
        load_cpu_seconds: one.load_cpu_seconds.zip(other.load_cpu_seconds).map(|(one, other)| one + other),
        streams: match (one.streams, other.streams) {
            (Some(one), Some(other)) => Some(one.merged(&other)),
            (one, other) => one.or(other),
        },
        load_threads: one.load_threads.zip(other.load_threads).map(|(one, other)| one + other),
        ..one
    }
}

/// Combines the samples of two generators, taken at about the same moments.
fn watched_together(one: Watched, other: Watched) -> Watched {
    let samples = one.samples.into_iter().zip(other.samples).map(|(one, other)| {
        let mut others = one.other_connections;
        for (state, count) in other.other_connections {
            *others.entry(state).or_default() += count;
        }
        Sample {
            at_seconds: one.at_seconds,
            busy_cores: one.busy_cores + other.busy_cores,
            system_cores: one.system_cores + other.system_cores,
            memory_bytes: one.memory_bytes + other.memory_bytes,
            threads: one.threads + other.threads,
            connections: one.connections + other.connections,
            other_connections: others,
            switches: one.switches + other.switches,
            traffic: one.traffic.zip(other.traffic).map(|(one, other)| one + other),
        }
    });
    Watched {
        samples: samples.collect(),
        usage: Usage {
            seconds: one.usage.seconds.max(other.usage.seconds),
            user_seconds: one.usage.user_seconds + other.usage.user_seconds,
            system_seconds: one.usage.system_seconds + other.usage.system_seconds,
            by_control_group: one.usage.by_control_group && other.usage.by_control_group,
            memory_bytes: one.usage.memory_bytes + other.usage.memory_bytes,
            processes: one.usage.processes + other.usage.processes,
            threads: one.usage.threads + other.usage.threads,
            voluntary_switches: one.usage.voluntary_switches + other.usage.voluntary_switches,
            involuntary_switches: one.usage.involuntary_switches + other.usage.involuntary_switches,
        },
    }
}

fn added(one: Network, other: Network) -> Network {
    Network {
        sent_segments: one.sent_segments + other.sent_segments,
        retransmitted_segments: one.retransmitted_segments + other.retransmitted_segments,
        reset_connections: one.reset_connections + other.reset_connections,
        listen_drops: one.listen_drops + other.listen_drops,
        received_bytes: one.received_bytes + other.received_bytes,
    }
}
