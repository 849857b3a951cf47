//! The results of a made-up run.

/// Reads markup.
pub(crate) mod markup;

use std::collections::BTreeMap;

use report::judge::Trait;
use report::latency::LatencyHistogram;
use report::results::*;

/// A proxy's figures in one round: requests, user and system CPU seconds, memory in MiB, lowest latency.
pub(crate) type Figures = (u64, f64, f64, u64, u64);

pub(crate) fn measured(
    (requests, user_seconds, system_seconds, memory_mib, lowest_us): Figures,
    is_direct: bool,
) -> MeasuredFigures {
    // A long tail: each further bucket has a third of the requests, and takes half as long again.
    let counts = (0..18)
        .map(|step| (lowest_us * 3u64.pow(step) / 2u64.pow(step), requests * 6 / 10 / 3u64.pow(step).max(1)));
    MeasuredFigures {
        seconds: 1.0,
        requests,
        received_bytes: requests * 300,
        errors: BTreeMap::new(),
        latency: LatencyHistogram::from_counts(counts),
        lateness_p99_us: None,
        usage: (!is_direct).then_some(Usage {
            seconds: 1.01,
            user_seconds,
            system_seconds,
            by_control_group: false,
            memory_bytes: memory_mib << 20,
            processes: 1,
            threads: 2,
            voluntary_switches: 30,
            involuntary_switches: 2,
        }),
        first_byte: LatencyHistogram::default(),
        connect: LatencyHistogram::default(),
        load_cpu_seconds: None,
        load_threads: None,
        origins_cpu_seconds: None,
        origin_connections: None,
        machine_cpu_seconds: None,
        samples: Vec::new(),
        load: None,
        origins: None,
        network: None,
        streams: None,
    }
}

pub(crate) fn proxy(name: &str, role: ProxyRole) -> ComparedProxy {
    ComparedProxy {
        name: name.to_owned(),
        role,
        version: "1.2.3 <test>".to_owned(),
        started: vec![Started {
            given: vec!["1 worker".to_owned()],
            cases: vec!["tiny-closed".to_owned(), "tiny-constant".to_owned()],
            process: StartedProcess {
                command: format!("{name} -f /tmp/{name}.conf"),
                files: vec![File { name: format!("{name}.conf"), text: "global\n  nbthread 1\n".to_owned() }],
            },
            setup: BTreeMap::from([(Trait::Logging, "off".to_owned())]),
        }],
    }
}

pub(crate) fn run(proxy: &ComparedProxy, case: &Case, round: usize, outcome: MeasurementOutcome) -> Run {
    Run {
        proxy: proxy.name.clone(),
        case: case.name.clone(),
        round,
        began_seconds: 0.0,
        command: "vanward load -c 32 http://127.0.0.1:1/tiny".to_owned(),
        step: None,
        outcome,
    }
}

/// A closed loop or a constant rate of 32 connections.
fn case(name: &str, payload_bytes: u64, arrivals: Arrivals) -> Case {
    Case {
        name: name.to_owned(),
        scheme: ClientScheme::Http,
        version: ClientVersion::Http1,
        payload: "tiny".to_owned(),
        payload_bytes,
        connections: 32,
        arrivals,
        streams: None,
        workers: 1,
        requests: None,
        measured_seconds: None,
        upstream: OriginProtocol::Http,
        layer: Layer::Seven,
        features: Vec::new(),
        published: None,
        generator: OWN_GENERATOR.to_owned(),
    }
}

/// Vanward is cheaper than nginx beyond the spread, takes more memory, and is even with haproxy.
pub(crate) fn sample() -> Results {
    let proxies = Vec::from(
        [
            ("direct", ProxyRole::Direct),
            ("vanward", ProxyRole::Subject),
            ("nginx", ProxyRole::Peer),
            ("haproxy", ProxyRole::Peer),
        ]
        .map(|(name, role)| proxy(name, role)),
    );
    let cases = vec![
        case("tiny-closed", 128, Arrivals::Closed),
        case("tiny-constant", 128, Arrivals::Constant { rate_per_second: 12_000.0 }),
    ];
    let figures: [Figures; 4] = [
        (60_000, 0.0, 0.0, 0, 90),
        (40_000, 0.2, 0.78, 6, 180),
        (30_000, 0.4, 0.58, 4, 260),
        (39_800, 0.2, 0.78, 6, 181),
    ];
    let mut runs = Vec::new();
    for round in 1..=3u64 {
        for case in &cases {
            for (proxy, (requests, user, system, memory, lowest)) in proxies.iter().zip(figures) {
                let figures = (requests + 300 * round, user, system, memory, lowest + round);
                let outcome =
                    MeasurementOutcome::Measured(measured(figures, proxy.role == ProxyRole::Direct));
                runs.push(run(proxy, case, round as usize, outcome));
            }
        }
    }
    Results {
        schema: SCHEMA,
        title: "What a proxied request costs".to_owned(),
        measured_by: "vanward 0.1.0".to_owned(),
        command: "vanward demo --seconds 50".to_owned(),
        started_unix_seconds: 1_798_761_599,
        took_seconds: 49.0,
        machines: Vec::new(),
        machine: RunMachine {
            processor: "A & B <fast>".to_owned(),
            architecture: "x86_64".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "Linux 6.18".to_owned(),
            governor: None,
            settings: BTreeMap::from([("net.core.somaxconn".to_owned(), "4096".to_owned())]),
        },
        conditions: Conditions {
            load_before: [0.1, 0.2, 0.3],
            rounds: 3,
            measured_seconds: 1.0,
            warm_up_seconds: 0.2,
            seed: 1,
            cores: Cores { proxy: vec![0], origins: vec![1], load: vec![1] },
            alike: vec!["1 worker".to_owned()],
            changes: Vec::new(),
        },
        origins: vec![StartedProcess {
            command: "vanward origin --listen 127.0.0.1:0".to_owned(),
            files: Vec::new(),
        }],
        proxies,
        cases,
        runs,
        notes: Vec::new(),
        plan: None,
        absent: Vec::new(),
        lacking: Vec::new(),
        published: Vec::new(),
        expectations: Vec::new(),
        incomplete: None,
    }
}

/// Fails one of a proxy's runs.
pub(crate) fn refuse(
    results: &mut Results,
    proxy: &str,
    outcome: impl Fn(MeasuredFigures) -> MeasurementOutcome,
) {
    let run = results.runs.iter_mut().find(|run| run.proxy == proxy).expect("a run");
    let MeasurementOutcome::Measured(figures) = run.outcome.clone() else {
        panic!("a sample without failures")
    };
    run.outcome = outcome(figures);
}
