//! Metrics of certificates.

use std::collections::BTreeMap;

use crate::directory::NAMED_MAX;
use crate::text::{MetricsText, Type};

/// A certificate, when the metrics are read.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateSample {
    /// The name of its listener.
    pub listener: String,
    /// The first name in the certificate.
    pub name: String,
    /// `file`, `auto`, `stand-in` or `self-signed`.
    pub source: &'static str,
    /// In seconds since the epoch.
    pub not_after_seconds: i64,
    /// Failed renewals in a row, for an automatic certificate.
    pub renewal_failures: Option<u32>,
}

/// Renders the metrics of certificates. Writes nothing if there are none.
pub(crate) fn write(samples: &[CertificateSample], text: &mut MetricsText) {
    if samples.is_empty() {
        return;
    }
    // By name: among several with the same name, the first to expire is shown.
    let mut named: BTreeMap<(&str, &str), &CertificateSample> = BTreeMap::new();
    for sample in samples {
        let kept = named.entry((&sample.listener, &sample.name)).or_insert(sample);
        if sample.not_after_seconds < kept.not_after_seconds {
            *kept = sample;
        }
    }
    let help = "When a certificate ends, in seconds since the epoch.";
    let mut family = text.family("vanward_certificate_not_after_timestamp_seconds", Type::Gauge, help);
    for ((listener, name), sample) in named.iter().take(NAMED_MAX) {
        let labels = [("listener", *listener), ("name", *name), ("source", sample.source)];
        family.sample(&labels, sample.not_after_seconds);
    }
    let help = "Attempts to renew an automatic certificate that have failed in a row.";
    let mut family = text.family("vanward_certificate_renewal_failures", Type::Gauge, help);
    for ((listener, name), sample) in named.iter().take(NAMED_MAX) {
        if let Some(failures) = sample.renewal_failures {
            family.sample(&[("listener", *listener), ("name", *name)], failures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Syntax;

    #[test]
    fn certificates_are_listed_once_by_name() {
        let sample = |name: &str, not_after_seconds, renewal_failures: Option<u32>| CertificateSample {
            listener: "web".to_owned(),
            name: name.to_owned(),
            source: if renewal_failures.is_some() { "auto" } else { "file" },
            not_after_seconds,
            renewal_failures,
        };
        let samples = [
            sample("a.example", 1_900_000_000, None),
            sample("a.example", 1_800_000_000, None),
            sample("b.example", 1_850_000_000, Some(2)),
        ];
        let mut text = MetricsText::new(Syntax::accepted(""));
        write(&samples, &mut text);
        let page = String::from_utf8(text.finish()).expect("it is text");
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "vanward_certificate_not_after_timestamp_seconds{listener=\"web\",name=\"a.example\",\
                    source=\"file\"} 1800000000",
                "vanward_certificate_not_after_timestamp_seconds{listener=\"web\",name=\"b.example\",\
                    source=\"auto\"} 1850000000",
                "vanward_certificate_renewal_failures{listener=\"web\",name=\"b.example\"} 2",
            ]
        );
        let mut text = MetricsText::new(Syntax::accepted(""));
        write(&[], &mut text);
        assert!(text.finish().is_empty());
    }
}
