//! Metrics of certificates.

use std::collections::BTreeMap;

use crate::directory::NAMED_MAX;
use crate::text::{Text, Type};

/// A certificate, when the metrics are read.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateSample {
    /// The name of its listener.
    pub listener: String,
    /// Its first name.
    pub name: String,
    /// `file`, `auto`, `stand-in` or `self-signed`.
    pub source: &'static str,
    /// The time until it ends, in days; negative if that has passed.
    pub days_left: f64,
    /// Of an automatic one: attempts to renew it that have failed in a row.
    pub renewal_failures: Option<u32>,
}

/// Renders the metrics of certificates; nothing without any.
pub(crate) fn write(samples: &[CertificateSample], text: &mut Text) {
    if samples.is_empty() {
        return;
    }
    // By name: of several with the same one the first to end is told.
    let mut named: BTreeMap<(&str, &str), &CertificateSample> = BTreeMap::new();
    for sample in samples {
        let kept = named.entry((&sample.listener, &sample.name)).or_insert(sample);
        if sample.days_left < kept.days_left {
            *kept = sample;
        }
    }
    let help = "Days until a certificate ends; negative if that has passed.";
    let mut family = text.family("vanward_certificate_days_left", Type::Gauge, help);
    for ((listener, name), sample) in named.iter().take(NAMED_MAX) {
        let labels = [("listener", *listener), ("name", *name), ("source", sample.source)];
        family.sample(&labels, sample.days_left);
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
    fn certificates_are_told_once_by_name() {
        let sample = |name: &str, days_left, renewal_failures: Option<u32>| CertificateSample {
            listener: "web".to_owned(),
            name: name.to_owned(),
            source: if renewal_failures.is_some() { "auto" } else { "file" },
            days_left,
            renewal_failures,
        };
        let samples = [
            sample("a.example", 30.5, None),
            sample("a.example", -1.0, None),
            sample("b.example", 60.0, Some(2)),
        ];
        let mut text = Text::new(Syntax::accepted(""));
        write(&samples, &mut text);
        let page = text.finish();
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "vanward_certificate_days_left{listener=\"web\",name=\"a.example\",source=\"file\"} -1",
                "vanward_certificate_days_left{listener=\"web\",name=\"b.example\",source=\"auto\"} 60",
                "vanward_certificate_renewal_failures{listener=\"web\",name=\"b.example\"} 2",
            ]
        );
        let mut text = Text::new(Syntax::accepted(""));
        write(&[], &mut text);
        assert!(!text.finish().contains("certificate"));
    }
}
