//! Published figures of the five experiments, with their sources, and the judge's findings about them.
//!
//! `published.csv` has the figures. This module has the conditions that the documents report; others are unknown.

use crate::judge::{self, Evidence, Finding, Ranking, Trait};

/// Lines of `experiment,system,case,metric,value,unit`.
const FIGURES: &str = include_str!("published.csv");

#[derive(Debug)]
pub struct PublishedExperiment {
    /// Name in the lab.
    pub name: &'static str,
    /// Author and document.
    pub source: &'static str,
    /// Conditions, and facts that the tables do not show.
    pub remarks: &'static [&'static str],
    /// Rate of the network line in bytes per second, if known.
    line_bytes_per_second: Option<f64>,
    /// Duration of each measurement, if known.
    seconds: Option<f64>,
    /// Settings of systems that differ from the others.
    setup: &'static [(&'static str, Trait, &'static str)],
    /// Offered rates: system, end of the case's name, rate.
    offers: &'static [(&'static str, &'static str, f64)],
    /// Answered and failed requests, as the generator printed them: system, case, answered, failed.
    failures: &'static [(&'static str, &'static str, f64, f64)],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedFigure {
    /// Measured system; for a proxy of the lab, its name.
    pub system: &'static str,
    pub case: &'static str,
    /// `requests_per_second`, `latency_mean`, …
    pub metric: &'static str,
    pub value: f64,
    /// `1/s`, `ms`, …
    pub unit: &'static str,
}

/// In the order of the documents.
pub const EXPERIMENTS: [PublishedExperiment; 5] = [
    PublishedExperiment {
        name: "monolake",
        source: "monolake's benchmark page: monolake, nginx, Traefik and Envoy on four cores, driven by wrk2",
        remarks: &[
            "Its scripts offered each proxy a different rate.",
            "CPU and memory were sampled of one process id, and nginx has one for each worker.",
            "With the large payload three of four stop between 1.52 and 1.55 GB/s, which is the line rate: 12.5 \
             Gbit/s.",
        ],
        line_bytes_per_second: Some(12.5e9 / 8.0),
        seconds: Some(60.0),
        setup: &[
            ("traefik", Trait::Logging, "every request"),
            ("nginx", Trait::Logging, "off"),
            ("monolake", Trait::Logging, "off"),
            ("envoy", Trait::Logging, "off"),
        ],
        offers: &[("traefik", "-tiny", 10_000.0)],
        failures: &[],
    },
    PublishedExperiment {
        name: "squid-wrk",
        source: "Squid before Apache with a CGI in Perl, on x86-64 and arm64, driven by wrk from near and distant \
                 clients",
        remarks: &[
            "From distant clients, 96 and 400 connections and both architectures end at the same 534 to 539 requests \
             a second: the network path was the limit.",
            "Every request starts a Perl interpreter behind Apache: the origin is measured as much as the proxy.",
        ],
        line_bytes_per_second: None,
        seconds: Some(30.0),
        setup: &[],
        offers: &[],
        failures: SQUID_FAILURES,
    },
    PublishedExperiment {
        name: "varnish-vs-squid",
        source: "Varnish 2.0.4 and Squid 2.6 on a Pentium 4 with 2 GB: hits by size and users, driven by ab",
        remarks: &[
            "The document gives no line rate; from 20 KB on, Varnish stops at 111 to 116 MB of bodies a second with \
             any number of users, which is the rate of a 1 Gbit/s line.",
            "ab has one thread, and opened a connection for each request.",
            "The figures of the mixed URL list exist as curves only.",
        ],
        line_bytes_per_second: Some(1e9 / 8.0),
        seconds: None,
        setup: &[],
        offers: &[],
        failures: &[],
    },
    PublishedExperiment {
        name: "chaos-proxy",
        source: "Chaos-Proxy's experiments with its Speed and Latency parameters, driven by ab",
        remarks: &[
            "Run 4.1 repeats run 2.2 to the last digit: it is the same measurement.",
            "In run 3.3 the requests end one after the other from 1 s to 100 s: the total rate was kept, but it was \
             not shared evenly among the requests.",
            "In run 4.2 connecting took 1021 ms at the median and 3051 ms at most: packets that open connections were \
             dropped and retransmitted, because their queue was full.",
            "Speed is documented in bit/s, but was applied in bytes per second.",
        ],
        line_bytes_per_second: None,
        seconds: None,
        setup: &[],
        offers: &[],
        failures: &[],
    },
    PublishedExperiment {
        name: "zproxy",
        source: "zproxy 0.1.2, HAProxy 1.8.19 and Pound 2.8a before two nginx, driven by wrk",
        remarks: &["HAProxy wrote its HTTP log; the generator was a desktop with ten threads."],
        line_bytes_per_second: None,
        seconds: Some(15.0),
        setup: &[
            ("haproxy", Trait::Logging, "every request"),
            ("zproxy", Trait::Logging, "not of requests"),
            ("pound", Trait::Logging, "not of requests"),
        ],
        offers: &[],
        failures: &[
            ("zproxy", "http-hello-42B", 3_599_282.0, 1.0),
            ("haproxy", "http-hello-42B", 2_243_804.0, 7.0),
        ],
    },
];

/// Socket errors and timeouts that wrk printed.
const SQUID_FAILURES: &[(&str, &str, f64, f64)] = &[
    ("squid-x86_64", "driver-t12-c400", 16_089.0 + 16_047.0, 679.0 + 803.0),
    ("squid-arm64", "driver-t12-c400", 16_033.0 + 16_007.0, 816.0 + 820.0),
    ("squid-x86_64", "client-external-t12-c400", 63_446.0 + 65_566.0, 25_181.0 + 17_898.0),
    ("squid-arm64", "client-external-t12-c400", 26_141.0 + 10_656.0, 96_542.0 + 176_173.0),
    ("squid-arm64", "client-external-t8-c96", 46_584.0 + 43_050.0, 52.0),
    ("squid-x86_64", "client-internal-t12-c400", 18_576.0 + 36_100.0, 2_914_534.0 + 1_823_561.0),
    ("squid-arm64", "client-internal-t12-c400", 14_853.0 + 13_259.0, 2_869_145.0 + 3_008_285.0),
];

pub fn experiment(name: &str) -> Option<&'static PublishedExperiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

impl PublishedExperiment {
    pub fn figures(&self) -> impl Iterator<Item = PublishedFigure> {
        FIGURES.lines().skip(1).filter_map(move |line| {
            let mut fields = line.strip_prefix(self.name)?.strip_prefix(',')?.split(',');
            let mut next = || fields.next();
            let (system, case, metric) = (next()?, next()?, next()?);
            Some(PublishedFigure { system, case, metric, value: next()?.parse().ok()?, unit: next()? })
        })
    }

    /// Rankings of the published tables: one for each case, with all systems and all rounds.
    pub fn rankings(&self) -> Vec<Ranking> {
        let mut rankings: Vec<Ranking> = Vec::new();
        for figure in self.figures().filter(|figure| figure.metric == "requests_per_second") {
            let case = without_round(figure.case);
            let index = rankings.iter().position(|ranking| ranking.case == case).unwrap_or_else(|| {
                rankings.push(Ranking { case: case.to_owned(), ranks_rates: true, entries: Vec::new() });
                rankings.len() - 1
            });
            let entries = &mut rankings[index].entries;
            match entries.iter_mut().find(|entry| entry.name == figure.system) {
                Some(entry) => entry.repeats.push(figure.value),
                None => entries.push(self.evidence(&figure)),
            }
        }
        rankings
    }

    /// The judge's findings about the published tables: each broken rule, its cases, and the first case's facts.
    pub fn findings(&self) -> Vec<(Vec<String>, Finding)> {
        let mut all: Vec<(Vec<String>, Finding)> = Vec::new();
        for ranking in self.rankings() {
            for finding in judge::judge(&ranking) {
                match all.iter_mut().find(|(_, known)| known.rule == finding.rule) {
                    Some((cases, known)) => {
                        cases.push(ranking.case.clone());
                        let new = finding.entries.into_iter().filter(|name| !known.entries.contains(name));
                        known.entries.extend(new.collect::<Vec<_>>());
                    }
                    None => all.push((vec![ranking.case.clone()], finding)),
                }
            }
        }
        all
    }

    fn evidence(&self, figure: &PublishedFigure) -> Evidence {
        let case = without_round(figure.case);
        let bytes_per_second = self
            .figures()
            .find(|other| {
                (other.system, other.case, other.metric)
                    == (figure.system, figure.case, "transfer_per_second")
            })
            .map(|other| other.value)
            .or_else(|| Some(figure.value * kilobytes(case)? * 1024.0));
        let ends_in =
            |&&(system, end, _): &&(&str, &str, f64)| system == figure.system && case.ends_with(end);
        Evidence {
            name: figure.system.to_owned(),
            repeats: vec![figure.value],
            per_second: Some(figure.value),
            offered_per_second: self.offers.iter().find(ends_in).map(|offer| offer.2),
            failed_share: self.failed_share(figure),
            response_bytes: bytes_per_second.map(|bytes| bytes / figure.value),
            line_share: bytes_per_second.zip(self.line_bytes_per_second).map(|(bytes, line)| bytes / line),
            setup: self
                .setup
                .iter()
                .filter(|(system, ..)| *system == figure.system)
                .map(|(_, which, value)| (*which, (*value).to_owned()))
                .collect(),
            ..Evidence::default()
        }
    }

    fn failed_share(&self, figure: &PublishedFigure) -> Option<f64> {
        let case = without_round(figure.case);
        let printed = self.failures.iter().find(|(system, of, ..)| *system == figure.system && *of == case);
        if let Some((_, _, answered, failed)) = printed {
            return Some(failed / (answered + failed));
        }
        let failed: f64 = self
            .figures()
            .filter(|other| (other.system, other.case) == (figure.system, figure.case))
            .filter(|other| matches!(other.metric, "server_errors" | "timeouts"))
            .map(|other| other.value)
            .sum();
        Some(failed / (failed + figure.value * self.seconds?))
    }
}

/// Case name without its round: `driver-t12-c400` for `driver-t12-c400-round1`.
fn without_round(case: &'static str) -> &'static str {
    case.split_once("-round").map_or(case, |(case, _)| case)
}

/// Kilobytes in a case name: 25 for `cached-25k-c10`.
fn kilobytes(case: &str) -> Option<f64> {
    case.strip_prefix("cached-")?.split_once("k-")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_belongs_to_an_experiment() {
        let read: usize = EXPERIMENTS.iter().map(|experiment| experiment.figures().count()).sum();
        assert_eq!(read, FIGURES.lines().count() - 1);
        let monolake = experiment("monolake").expect("it is one of the five");
        let traefik = monolake.figures().find(|figure| figure.system == "traefik").expect("it was measured");
        assert_eq!((traefik.case, traefik.value, traefik.unit), ("http-tiny", 9991.09, "1/s"));
    }

    /// Rule, a case and a system that breaks it: findings that a reader of the documents makes by hand.
    #[test]
    fn the_published_tables_fail_where_their_documents_show_it() {
        let known: [(&str, &str, &str, &str); 8] = [
            ("monolake", "offer-taken-for-capacity", "http-tiny", "traefik"),
            ("monolake", "different-logging", "https-medium", "traefik"),
            ("monolake", "line-full", "http-large", "nginx"),
            ("monolake", "errors", "http-large", "monolake"),
            ("squid-wrk", "errors", "client-external-t12-c400", "squid-arm64"),
            ("varnish-vs-squid", "line-full", "cached-50k-c400", "varnish"),
            ("chaos-proxy", "noise", "4.2-latency-2000ms-800-clients", "chaos-proxy"),
            ("zproxy", "different-logging", "http-hello-42B", "haproxy"),
        ];
        for (name, rule, case, system) in known {
            let rankings = experiment(name).expect("it is one of the five").rankings();
            let ranking = rankings.iter().find(|ranking| ranking.case == case).expect("it was published");
            let findings = judge::judge(ranking);
            let finding = findings
                .iter()
                .find(|finding| finding.rule == rule)
                .unwrap_or_else(|| panic!("{name}, {case}: {findings:?}"));
            assert!(finding.entries.iter().any(|entry| entry == system), "{finding:?}");
        }
    }

    #[test]
    fn what_is_in_order_is_not_accused() {
        let varnish = experiment("varnish-vs-squid").expect("it is one of the five");
        let small =
            varnish.rankings().into_iter().find(|ranking| ranking.case == "cached-10k-c10").expect("a case");
        assert!(judge::judge(&small).iter().all(|finding| finding.rule == "noise"));
        let monolake = experiment("monolake").expect("it is one of the five");
        for (cases, finding) in monolake.findings() {
            if finding.rule == "line-full" {
                assert!(cases.iter().all(|case| case.ends_with("-large")), "{cases:?}");
            }
        }
    }
}
