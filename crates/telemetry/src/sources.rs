//! Metrics of the sources of servers and of the configuration.

use crate::text::{MetricsText, Type};

/// A source of servers, when the metrics are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSample {
    /// `dns`, `srv`, `consul`, `docker` or `kubernetes`.
    pub source: String,
    /// Names and services for which the source gives no usable answer.
    pub failing: usize,
    /// Start of the first of these failures, in seconds since the epoch.
    pub since_seconds: Option<u64>,
}

/// A configuration that several instances share, when the metrics are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationSample {
    /// The version in force.
    pub version: String,
    /// When it came into force, in seconds since the epoch.
    pub since_seconds: u64,
    /// The instance's state with respect to the shared version.
    pub state: &'static str,
    /// Whether etcd answers.
    pub is_up: bool,
    /// Number of times that the connection to etcd was lost.
    pub losses: u64,
}

/// Renders the metrics of both. Writes nothing if there are none.
pub(crate) fn write(
    sources: &[SourceSample],
    configuration: Option<&ConfigurationSample>,
    text: &mut MetricsText,
) {
    if !sources.is_empty() {
        let help =
            "Names and services whose source gives no valid answer, by source; their last servers stay.";
        let mut family = text.family("vanward_discovery_failing", Type::Gauge, help);
        for SourceSample { source, failing, .. } in sources {
            family.sample(&[("source", source)], *failing);
        }
    }
    if sources.iter().any(|sample| sample.since_seconds.is_some()) {
        let help = "Start of the first of these failures, in seconds since the epoch.";
        let mut family = text.family("vanward_discovery_failing_since_timestamp_seconds", Type::Gauge, help);
        for SourceSample { source, since_seconds, .. } in sources {
            if let Some(since) = since_seconds {
                family.sample(&[("source", source)], *since);
            }
        }
    }
    let Some(ConfigurationSample { version, since_seconds, state, is_up, losses }) = configuration else {
        return;
    };
    let help =
        "The version of the shared configuration in force, and what the instance does with the one in etcd.";
    let labels = [("version", version.as_str()), ("state", state)];
    text.family("vanward_configuration_info", Type::Gauge, help).sample(&labels, 1);
    let help = "When the version in force came into force, in seconds since the epoch.";
    let name = "vanward_configuration_since_timestamp_seconds";
    text.family(name, Type::Gauge, help).sample(&[], *since_seconds);
    let help = "Whether etcd, which has the shared configuration, responds.";
    text.family("vanward_etcd_up", Type::Gauge, help).sample(&[], u8::from(*is_up));
    let help = "Number of times that the connection to etcd was lost.";
    text.family("vanward_etcd_losses", Type::Counter, help).sample(&[], *losses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Syntax;

    #[test]
    fn failures_and_the_version_in_force_are_reported() {
        let sample = |source: &str, failing, since_seconds| SourceSample {
            source: source.to_owned(),
            failing,
            since_seconds,
        };
        let configuration = ConfigurationSample {
            version: "1a2b".to_owned(),
            since_seconds: 1_800_000_000,
            state: "waiting",
            is_up: false,
            losses: 2,
        };
        let mut text = MetricsText::new(Syntax::accepted(""));
        write(&[sample("consul", 0, None), sample("dns", 2, Some(60))], Some(&configuration), &mut text);
        let page = String::from_utf8(text.finish()).expect("it is text");
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "vanward_discovery_failing{source=\"consul\"} 0",
                "vanward_discovery_failing{source=\"dns\"} 2",
                "vanward_discovery_failing_since_timestamp_seconds{source=\"dns\"} 60",
                "vanward_configuration_info{version=\"1a2b\",state=\"waiting\"} 1",
                "vanward_configuration_since_timestamp_seconds 1800000000",
                "vanward_etcd_up 0",
                "vanward_etcd_losses_total 2",
            ]
        );
        let mut text = MetricsText::new(Syntax::accepted(""));
        write(&[], None, &mut text);
        assert!(text.finish().is_empty());
    }
}
