//! Metric families in Prometheus' protobuf format (`io.prometheus.client.MetricFamily`, delimited), the only one with
//! native histograms. Of its messages there is what is written here.

use prost::Message;

use crate::exemplars::Exemplar;
use crate::histogram::{BOUNDS, Histogram, SCHEMA, ZERO_THRESHOLD};
use crate::text::{Label, Type};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// A counter or a gauge: both have their value in the same place.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    deltas: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<ExemplarMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    /// The buckets left out before it; of the first one, the index that it begins at.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl MetricFamily {
    pub(crate) fn new(name: String, of: Type, help: &str) -> Self {
        let kind = match of {
            Type::Counter => MetricType::Counter,
            Type::Gauge | Type::Info => MetricType::Gauge,
            Type::Histogram => MetricType::Histogram,
        };
        Self { name: Some(name), help: Some(help.to_owned()), kind: Some(kind.into()), metrics: Vec::new() }
    }

    pub(crate) fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        let number = Some(Number { value: Some(value) });
        let labels = pairs(labels);
        self.metrics.push(match self.kind() {
            MetricType::Counter => Metric { labels, counter: number, ..Metric::default() },
            _ => Metric { labels, gauge: number, ..Metric::default() },
        });
    }

    pub(crate) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        histogram: &Histogram,
        exemplars: &[Option<Exemplar>],
    ) {
        let (mut buckets, mut count) = (Vec::with_capacity(BOUNDS.len() + 1), 0);
        let bounds = BOUNDS.iter().map(|(nanoseconds, _)| *nanoseconds as f64 / 1e9).chain([f64::INFINITY]);
        for ((bound, observed), bucket) in bounds.zip(histogram.buckets()).zip(0..) {
            count += observed;
            let exemplar = exemplars.get(bucket).copied().flatten();
            buckets.push(Bucket {
                cumulative_count: Some(count),
                upper_bound: Some(bound),
                exemplar: exemplar.as_ref().map(ExemplarMessage::of),
            });
        }
        let native = histogram.native();
        let (spans, deltas) = spans(&native.buckets);
        // Read apart from the others, so that both views and the count agree.
        let count = native.zero_count + native.buckets.iter().map(|(_, count)| count).sum::<u64>();
        if let Some(last) = buckets.last_mut() {
            last.cumulative_count = Some(count);
        }
        let message = HistogramMessage {
            count: Some(count),
            sum: Some(histogram.sum().as_secs_f64()),
            buckets,
            schema: Some(SCHEMA),
            zero_threshold: Some(ZERO_THRESHOLD),
            zero_count: Some(native.zero_count),
            spans,
            deltas,
        };
        self.metrics.push(Metric { labels: pairs(labels), histogram: Some(message), ..Metric::default() });
    }

    /// Appends the family with its length before it. One without samples is left out, as the format wants it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if !self.metrics.is_empty() {
            // A Vec grows as needed.
            let _ = self.encode_length_delimited(out);
        }
    }
}

impl ExemplarMessage {
    fn of(exemplar: &Exemplar) -> Self {
        let since = exemplar.since_epoch();
        Self {
            labels: pairs(&[("trace_id", &exemplar.trace_id())]),
            value: Some(exemplar.value.as_secs_f64()),
            timestamp: Some(Timestamp {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos().cast_signed(),
            }),
        }
    }
}

fn pairs(labels: &[Label<'_>]) -> Vec<LabelPair> {
    let pair = |(name, value): &Label<'_>| LabelPair {
        name: Some((*name).to_owned()),
        value: Some((*value).to_owned()),
    };
    labels.iter().map(pair).collect()
}

/// Runs of buckets that follow each other, and how much each has more than the one before.
fn spans(buckets: &[(i32, u64)]) -> (Vec<Span>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<Span>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some(span) if index == next => span.length = span.length.map(|length| length + 1),
            _ => spans.push(Span { offset: Some(index - next), length: Some(1) }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn runs_of_buckets_become_spans() {
        let span = |offset, length| Span { offset: Some(offset), length: Some(length) };
        for (buckets, expected) in [
            (&[][..], (vec![], vec![])),
            (&[(-4, 3)], (vec![span(-4, 1)], vec![3])),
            (
                &[(-4, 3), (-3, 1), (0, 5), (1, 5), (9, 1)],
                (vec![span(-4, 2), span(2, 2), span(7, 1)], vec![3, -2, 4, 0, -4]),
            ),
        ] {
            assert_eq!(spans(buckets), expected);
        }
    }

    #[test]
    fn both_views_of_a_histogram_are_written() {
        let histogram = Histogram::default();
        for microseconds in [5, 900, 900, 1_000_000] {
            histogram.observe(Duration::from_micros(microseconds));
        }
        let exemplar = Exemplar {
            trace_id: 0xabc,
            value: Duration::from_micros(900),
            at: UNIX_EPOCH + Duration::new(9, 5),
        };
        let mut exemplars = [None; BOUNDS.len() + 1];
        exemplars[6] = Some(exemplar);
        let mut family = MetricFamily::new("d_seconds".to_owned(), Type::Histogram, "Durations.");
        family.histogram(&[("route", "/")], &histogram, &exemplars);
        let mut out = Vec::new();
        family.write(&mut out);
        MetricFamily::new("empty".to_owned(), Type::Gauge, "Nothing.").write(&mut out);

        let read = MetricFamily::decode_length_delimited(out.as_slice()).expect("it is one family");
        assert_eq!(read, family);
        let message = read.metrics[0].histogram.as_ref().expect("a histogram");
        assert_eq!((message.count, message.zero_count, message.schema), (Some(4), Some(1), Some(2)));
        assert_eq!((message.spans.len(), message.deltas.as_slice()), (2, &[2, -1][..]));
        // 900 µs are in the bucket that ends at 2^(-40/4) seconds, 977 µs; 1 s is a bound itself.
        assert_eq!((message.spans[0].offset, message.spans[1].offset), (Some(-40), Some(39)));
        let bucket = &message.buckets[6];
        assert_eq!((bucket.upper_bound, bucket.cumulative_count), (Some(0.001), Some(3)));
        let told = bucket.exemplar.as_ref().expect("an exemplar");
        assert_eq!(told.labels[0].value.as_deref(), Some("00000000000000000000000000000abc"));
        assert_eq!(told.timestamp, Some(Timestamp { seconds: 9, nanos: 5 }));
    }
}
