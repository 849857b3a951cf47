//! Several generators as one: divides a plan, and merges the outcomes. Counts are added and histograms are merged, so
//! percentiles are those of all requests together.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::outcome::{BrokenDown, BrokenDownRow, Cpu, Distribution, RunOutcome, ScheduleKept, TlsMade};
use crate::plan::{Arrival, Breakdown, LoadPlan, RateStage};
use crate::record::TimeHistogram;
use crate::summary::{distribution, ratio};

impl LoadPlan {
    /// The part of one of `of` generators: a share of connections, requests and rates, with different random numbers.
    pub fn part(&self, number: usize, of: usize) -> Self {
        let of = of.max(1);
        let whole = |count: usize| count / of + usize::from(number < count % of);
        let long = |count: u64| count / of as u64 + u64::from((number as u64) < count % of as u64);
        let own_seed = |seed: u64| seed.wrapping_add(number as u64);
        let arrival = match scaled(&self.arrival, 1.0 / of as f64) {
            Arrival::Poisson { requests_per_second, seed } => {
                Arrival::Poisson { requests_per_second, seed: own_seed(seed) }
            }
            Arrival::Stages { stages, seed } => Arrival::Stages { stages, seed: seed.map(own_seed) },
            other => other,
        };
        let connections = whole(self.connections);
        Self {
            connections,
            threads: self.threads.min(connections.max(1)),
            requests: self.requests.map(long),
            arrival,
            values_seed: own_seed(self.values_seed),
            ..self.clone()
        }
    }
}

fn scaled(arrival: &Arrival, factor: f64) -> Arrival {
    let stage = |stage: &RateStage| RateStage {
        seconds: stage.seconds,
        from_per_second: stage.from_per_second * factor,
        to_per_second: stage.to_per_second * factor,
    };
    match arrival {
        Arrival::Closed => Arrival::Closed,
        Arrival::Constant { requests_per_second } => {
            Arrival::Constant { requests_per_second: requests_per_second * factor }
        }
        Arrival::Poisson { requests_per_second, seed } => {
            Arrival::Poisson { requests_per_second: requests_per_second * factor, seed: *seed }
        }
        Arrival::Stages { stages, seed } => {
            Arrival::Stages { stages: stages.iter().map(stage).collect(), seed: *seed }
        }
    }
}

impl RunOutcome {
    /// Merges the outcomes of generators that ran together; `None` without any. Leaves out the figures of slots and
    /// streams, and those of seconds, which [`crate::seconds_together`] merges.
    ///
    /// # Errors
    /// If a histogram does not decode.
    pub fn together(parts: Vec<Self>) -> Result<Option<Self>, Error> {
        let count = parts.len();
        let mut parts = parts.into_iter();
        let Some(mut all) = parts.next() else { return Ok(None) };
        for part in parts {
            all.add(part)?;
        }
        all.settings.arrival = scaled(&all.settings.arrival, count as f64);
        for table in all.breakdowns.iter_mut().filter(|table| table.by == Breakdown::Stage) {
            // Their names have numbers, and the rates of a part.
            for row in &mut table.rows {
                let number = row.name.split(':').next().and_then(|number| number.parse::<usize>().ok());
                let stage =
                    number.and_then(|number| all.settings.arrival.stages().get(number.checked_sub(1)?));
                if let (Some(number), Some(stage)) = (number, stage) {
                    row.name = format!("{number}: {stage}");
                }
            }
        }
        let responses: u64 = all.statuses.values().sum();
        all.requests_per_second = ratio(all.requests as f64, all.measured_seconds);
        all.cpu.us_per_request = ratio(all.cpu.total_seconds * 1e6, responses as f64);
        all.cpu.utilisation =
            ratio(all.cpu.total_seconds, all.measured_seconds * all.settings.threads as f64);
        (all.stream, all.server) = (None, None);
        (all.seconds, all.slots) = (Vec::new(), Vec::new());
        Ok(Some(all))
    }

    fn add(&mut self, other: Self) -> Result<(), Error> {
        self.started_unix_ms = self.started_unix_ms.min(other.started_unix_ms);
        self.measured_seconds = self.measured_seconds.max(other.measured_seconds);
        self.interrupted |= other.interrupted;
        self.server_gone = self.server_gone.take().or(other.server_gone);
        let (own, others) = (&mut self.settings, other.settings);
        own.connections += others.connections;
        own.threads += others.threads;
        own.requests = own.requests.zip(others.requests).map(|(one, more)| one + more);
        self.requests += other.requests;
        self.bytes_received += other.bytes_received;
        self.body_bytes += other.body_bytes;
        self.bytes_sent += other.bytes_sent;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.errors.add(&other.errors);
        self.checks_missed.add(other.checks_missed);
        for (class, example) in other.error_examples {
            self.error_examples.entry(class).or_insert(example);
        }
        self.unfinished += other.unfinished;
        self.oldest_unfinished_us = self.oldest_unfinished_us.max(other.oldest_unfinished_us);
        self.connections_opened += other.connections_opened;
        self.streams_refused += other.streams_refused;
        self.redirects += other.redirects;
        let [latency, service, first_byte, connect] =
            [&other.latency, &other.service, &other.first_byte, &other.connect];
        self.latency = self.latency.with(latency)?;
        self.service = self.service.with(service)?;
        self.first_byte = self.first_byte.with(first_byte)?;
        self.connect = self.connect.with(connect)?;
        self.tls = pair(self.tls.take(), other.tls, handshakes)?;
        self.schedule = pair(self.schedule.take(), other.schedule, schedules)?;
        for table in other.breakdowns {
            match self.breakdowns.iter_mut().find(|known| known.by == table.by) {
                Some(known) => rows(known, table)?,
                None => self.breakdowns.push(table),
            }
        }
        let Cpu { total_seconds, waited_seconds, .. } = other.cpu;
        self.cpu.total_seconds += total_seconds;
        self.cpu.waited_seconds += waited_seconds;
        self.problems.extend(other.problems);
        Ok(())
    }
}

impl Distribution {
    fn with(&self, other: &Self) -> Result<Self, Error> {
        // The new histogram can hold everything that a valid one contains.
        let mut times = TimeHistogram::new();
        for one in [self, other] {
            times.merge(&one.times()?);
        }
        Ok(distribution(&times))
    }
}

fn pair<T>(
    one: Option<T>,
    other: Option<T>,
    both: impl FnOnce(T, T) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    match (one, other) {
        (Some(one), Some(other)) => both(one, other).map(Some),
        (one, other) => Ok(one.or(other)),
    }
}

fn handshakes(mut one: TlsMade, other: TlsMade) -> Result<TlsMade, Error> {
    one.full += other.full;
    one.resumed += other.resumed;
    one.handshakes_per_second += other.handshakes_per_second;
    one.handshake = one.handshake.with(&other.handshake)?;
    one.agreed.extend(other.agreed);
    one.agreed.sort();
    one.agreed.dedup();
    Ok(one)
}

fn schedules(mut one: ScheduleKept, other: ScheduleKept) -> Result<ScheduleKept, Error> {
    one.due += other.due;
    one.sent_in_window += other.sent_in_window;
    one.unsent += other.unsent;
    one.slip_us = one.slip_us.max(other.slip_us);
    one.sent_per_second += other.sent_per_second;
    one.waited_for_connection += other.waited_for_connection;
    one.lateness = one.lateness.with(&other.lateness)?;
    one.own_lateness = one.own_lateness.with(&other.own_lateness)?;
    Ok(one)
}

/// Adds the rows of a table to those of the same names.
fn rows(known: &mut BrokenDown, more: BrokenDown) -> Result<(), Error> {
    let places: BTreeMap<String, usize> =
        known.rows.iter().enumerate().map(|(place, row)| (row.name.clone(), place)).collect();
    for row in more.rows {
        let Some(place) = places.get(&row.name) else {
            known.rows.push(row);
            continue;
        };
        let BrokenDownRow { requests, failed, requests_per_second, latency, .. } = row;
        let own = &mut known.rows[*place];
        own.requests += requests;
        own.failed += failed;
        own.requests_per_second += requests_per_second;
        own.latency = own.latency.with(&latency)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn from_times_ms(times_ms: impl IntoIterator<Item = u64>) -> Distribution {
        let mut times = TimeHistogram::new();
        times_ms.into_iter().for_each(|time| times.record(Duration::from_millis(time)));
        distribution(&times)
    }

    /// An average of percentiles would be wrong: 1 ms and 1000 ms have no median of 500 ms.
    #[test]
    fn percentiles_are_those_of_all_times_together() {
        let (quick, slow, none) =
            (from_times_ms([1; 99]), from_times_ms((0..101).map(|_| 1000)), from_times_ms([]));
        let both = quick.with(&slow).expect("they decode").with(&none).expect("it decodes");
        assert_eq!(both, from_times_ms([1; 99].into_iter().chain([1000; 101])));
        // The histograms of tables are as large as their times need.
        let mut small = TimeHistogram::growing();
        small.record_growing(Duration::from_micros(3));
        let all = distribution(&small).with(&slow).expect("they decode");
        assert_eq!((all.count, all.min_us, all.max_us), (102, 3, slow.max_us));
        assert_eq!(none.with(&none).expect("they decode"), Distribution::default());
    }

    #[test]
    fn times_without_an_end_stay_such() {
        let mut times = TimeHistogram::new();
        (0..80).for_each(|_| times.record(Duration::from_millis(1)));
        (1..=20).for_each(|time| times.record_censored(Duration::from_millis(time * 100)));
        let one = distribution(&times);
        assert_eq!((one.count, one.censored, one.min_us), (100, 20, 1_000));
        let names = ["mean_us", "p90_us", "p95_us", "p99_us", "p99_9_us", "p99_99_us", "max_us"];
        assert_eq!(one.at_least, names);
        let both = one.with(&from_times_ms([1; 900])).expect("they decode");
        assert_eq!((both.count, both.censored), (1_000, 20));
        assert_eq!(both.at_least, ["mean_us", "p99_us", "p99_9_us", "p99_99_us", "max_us"]);
        assert_eq!(
            both,
            serde_json::from_str(&serde_json::to_string(&both).expect("JSON")).expect("the same")
        );
        // A few requests that had just been sent say nothing about the others.
        let mut fresh = TimeHistogram::new();
        fresh.record_censored(Duration::from_micros(3));
        let healthy = distribution(&fresh).with(&from_times_ms(1..=100)).expect("they decode");
        assert_eq!((healthy.at_least.len(), healthy.min_us), (0, 1_000), "{healthy:?}");
        assert_eq!(healthy.percentile(0.001).expect("a histogram").time_us, 3);
        assert!(healthy.percentile(0.001).expect("a histogram").is_at_least);
    }

    /// The lower limit of each percentile, for every share of unanswered requests.
    #[test]
    fn a_percentile_is_known_up_to_the_requests_without_an_answer() {
        for answered in 1..100 {
            let mut times = TimeHistogram::new();
            (0..answered).for_each(|_| times.record(Duration::from_millis(1)));
            (answered..100).for_each(|_| times.record_censored(Duration::from_secs(2)));
            let one = distribution(&times);
            for percent in 1..=100 {
                let found = one.percentile((f64::from(percent) - 0.5) / 100.0).expect("a histogram");
                assert_eq!(found.is_at_least, percent > answered, "{percent} of {answered}");
            }
        }
    }

    #[test]
    fn parts_are_the_whole() {
        let mut plan = LoadPlan::new("http://127.0.0.1:1/");
        plan.connections = 10;
        plan.threads = 4;
        plan.requests = Some(11);
        plan.arrival = Arrival::Poisson { requests_per_second: 300.0, seed: 7 };
        let parts: Vec<LoadPlan> = (0..3).map(|number| plan.part(number, 3)).collect();
        let told = |part: &LoadPlan| (part.connections, part.threads, part.requests, part.arrival.clone());
        let of = |connections, threads, requests, seed| {
            let arrival = Arrival::Poisson { requests_per_second: 100.0, seed };
            (connections, threads, Some(requests), arrival)
        };
        assert_eq!(
            parts.iter().map(told).collect::<Vec<_>>(),
            [of(4, 4, 4, 7), of(3, 3, 4, 8), of(3, 3, 3, 9)]
        );
    }
}
