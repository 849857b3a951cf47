//! Combines the results of several machines for one measurement: counts are added, histograms merged.

use std::collections::BTreeMap;

use report::latency::LatencyHistogram;
use report::results::{MeasuredFigures, MeasurementOutcome, Network, Usage, UsageSample, WatchedUsage};

use crate::agent::words::MachineResults;
use crate::error::Error;

/// Command line of the load, and the combined outcome.
pub(super) fn outcome(seen: Vec<MachineResults>) -> Result<(String, MeasurementOutcome), Error> {
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

#[derive(Default)]
struct Meanwhile {
    proxy: Option<WatchedUsage>,
    origins: Option<WatchedUsage>,
    generators: Vec<WatchedUsage>,
    origins_cpu_seconds: Option<f64>,
    origin_connections: Option<u64>,
    machine_cpu_seconds: Vec<Option<f64>>,
    network: Network,
}

impl Meanwhile {
    fn beside(self, mut outcome: MeasurementOutcome) -> MeasurementOutcome {
        if let MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. } =
            &mut outcome
        {
            if let Some(watched) = self.proxy {
                measured.usage = Some(watched.usage);
                measured.samples = watched.samples;
            }
            measured.origins = self.origins;
            measured.load = self.generators.into_iter().reduce(watched_together);
            measured.origin_connections = self.origin_connections;
            measured.origins_cpu_seconds = self.origins_cpu_seconds;
            // If one machine does not report it, the total is unknown.
            measured.machine_cpu_seconds = self.machine_cpu_seconds.into_iter().sum();
            measured.network = Some(self.network);
        }
        outcome
    }
}

/// Invalid outcome for a load whose proxy ended during it: keeps the figures, and gives this reason.
fn spoiled(outcome: MeasurementOutcome, reason: String) -> MeasurementOutcome {
    match outcome {
        MeasurementOutcome::Failed { .. } => MeasurementOutcome::Failed { reason },
        MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. } => {
            MeasurementOutcome::Invalid { reason, measured, is_generators: false }
        }
    }
}

/// Combines two loads. The result is valid only if both are, and has figures only if both have.
fn both(one: MeasurementOutcome, other: MeasurementOutcome) -> MeasurementOutcome {
    match (one, other) {
        (MeasurementOutcome::Failed { reason }, _) | (_, MeasurementOutcome::Failed { reason }) => {
            MeasurementOutcome::Failed { reason }
        }
        (MeasurementOutcome::Measured(one), MeasurementOutcome::Measured(other)) => {
            MeasurementOutcome::Measured(merged(one, other))
        }
        (
            MeasurementOutcome::Invalid { reason, measured: one, is_generators },
            MeasurementOutcome::Measured(other) | MeasurementOutcome::Invalid { measured: other, .. },
        )
        | (
            MeasurementOutcome::Measured(one),
            MeasurementOutcome::Invalid { reason, measured: other, is_generators },
        ) => MeasurementOutcome::Invalid { reason, measured: merged(one, other), is_generators },
    }
}

fn merged(one: MeasuredFigures, other: MeasuredFigures) -> MeasuredFigures {
    let mut errors: BTreeMap<String, u64> = one.errors;
    for (cause, count) in other.errors {
        *errors.entry(cause).or_default() += count;
    }
    MeasuredFigures {
        // They began together.
        seconds: one.seconds.max(other.seconds),
        requests: one.requests + other.requests,
        received_bytes: one.received_bytes + other.received_bytes,
        errors,
        latency: LatencyHistogram::merged([&one.latency, &other.latency]),
        first_byte: LatencyHistogram::merged([&one.first_byte, &other.first_byte]),
        connect: LatencyHistogram::merged([&one.connect, &other.connect]),
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
fn watched_together(one: WatchedUsage, other: WatchedUsage) -> WatchedUsage {
    let samples = one.samples.into_iter().zip(other.samples).map(|(one, other)| {
        let mut others = one.other_connections;
        for (state, count) in other.other_connections {
            *others.entry(state).or_default() += count;
        }
        UsageSample {
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
    WatchedUsage {
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
