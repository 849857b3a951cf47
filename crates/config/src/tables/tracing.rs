//! The table `[tracing]`.

use std::path::PathBuf;
use std::time::Duration;

use shape::Millionths;

use crate::document::reader::Reader;
use crate::document::value_error::ValueError;
use crate::option::kind::{Located, Maybe, Name, Switch, Text, Unless, Word};
use crate::option::path::{PATH_KIND, Path};
use crate::option::range::Wait;
use crate::option::server::Scheme;
use crate::option::table::{Table, key, required};
use crate::tables::fault::kinds::SHARE;
use crate::tables::jwt::KeyUrl;
use crate::tables::jwt::options::key_url;

/// Traces of requests, sent to a collector by OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The collector, with the path for traces.
    pub collector: KeyUrl,
    /// The CAs that sign the collector's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// A file with the value of Authorization for the collector.
    pub authorization_file: Option<PathBuf>,
    /// The service that spans are of (`service.name`).
    pub service: String,
    /// The share of traces that begin here and are recorded.
    pub sample: Millionths,
    /// The callers whose decision about recording a trace is followed.
    pub follow: FollowCallers,
    /// Requests that take at least this long are always recorded.
    pub slow: Option<Duration>,
    /// Whether failed requests and responses of class 5xx are always recorded.
    pub errors: bool,
    /// The use of B3 fields.
    pub b3: B3,
}

/// Callers whose decision about recording a trace, or whose ID of a request, holds here as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FollowCallers {
    /// Trusted proxies.
    #[default]
    Trusted,
    All,
    /// None: all is decided here.
    Nobody,
}

/// Fields of B3, the trace context of Zipkin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum B3 {
    /// B3 fields are neither read nor changed.
    #[default]
    Off,
    /// B3 fields are read, and written as one field.
    Single,
    /// B3 fields are read, and written as several fields.
    Multi,
}

/// The path for traces, where the URL of the collector has none.
pub(crate) const TRACES_PATH: &str = "/v1/traces";

#[derive(Debug, Clone)]
pub(crate) struct TracingWritten {
    collector: Option<KeyUrl>,
    ca: Path,
    authorization_file: Path,
    service: String,
    sample: Millionths,
    follow: FollowCallers,
    slow: Option<Duration>,
    errors: bool,
    b3: B3,
}

impl Default for TracingWritten {
    fn default() -> Self {
        Self {
            collector: None,
            ca: None,
            authorization_file: None,
            service: "vanward".to_owned(),
            // What a busy site can keep, and enough to see what is usual.
            sample: Millionths::of_millionths(10_000).unwrap_or(Millionths::WHOLE),
            follow: FollowCallers::default(),
            slow: Some(Duration::from_secs(1)),
            errors: true,
            b3: B3::default(),
        }
    }
}

pub(crate) static TRACING: Table<TracingWritten> = Table {
    options: &[
        required!(
            "collector",
            Maybe(COLLECTOR),
            TracingWritten.collector,
            "URL of the collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. Without a path spans go to \
             `/v1/traces`.",
        ),
        key!(
            "sample",
            SHARE,
            TracingWritten.sample,
            "Share of recorded traces, among those without a caller's decision. The trace ID decides, so \
             all proxies with the same share record the same traces.",
        ),
        key!(
            "follow",
            FOLLOW,
            TracingWritten.follow,
            "Callers whose decision about recording a trace is accepted: `\"trusted\"` (`trusted_proxies`), \
             `\"all\"`, or `\"nobody\"`. The trace itself always continues.",
        ),
        key!(
            "slow",
            Unless {
                word: "off",
                kind: Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            },
            TracingWritten.slow,
            "Requests that take at least this long are always recorded.",
        ),
        key!(
            "errors",
            Switch,
            TracingWritten.errors,
            "Always records requests that fail or get a status of class 5xx.",
        ),
        key!(
            "b3",
            Word { words: &[("off", B3::Off), ("single", B3::Single), ("multi", B3::Multi)] },
            TracingWritten.b3,
            "Fields of Zipkin (B3): `\"single\"` reads them and writes `b3`, `\"multi\"` reads them and writes \
             `X-B3-…`. `\"off\"` does not change them. `traceparent` is always written.",
        ),
        key!(
            "service",
            Name { expected: "a name such as \"edge\"" },
            TracingWritten.service,
            "Name of the service in spans (`service.name`).",
        ),
        key!(
            "ca",
            PATH_KIND,
            TracingWritten.ca,
            "The CA certificates that sign the collector's certificate, in PEM. Default: those of the system.",
        ),
        key!(
            "authorization_file",
            PATH_KIND,
            TracingWritten.authorization_file,
            "File with the value of Authorization for the collector, such as `Bearer TOKEN`. It is read for each \
             connection.",
        ),
    ],
};

/// The callers whose decision is followed.
pub(crate) const FOLLOW: Word<FollowCallers> = Word {
    words: &[
        ("trusted", FollowCallers::Trusted),
        ("all", FollowCallers::All),
        ("nobody", FollowCallers::Nobody),
    ],
};

pub(crate) const COLLECTOR: Text<KeyUrl> = Text {
    expected: "a URL such as http://127.0.0.1:4318 or https://collector.example.com/v1/traces",
    read: collector,
    print: ToString::to_string,
};

pub(crate) fn collector(text: &str) -> Result<KeyUrl, ValueError> {
    let refused = |error: ValueError| ValueError { expected: COLLECTOR.expected, ..error };
    let mut url = key_url(text).map_err(refused)?;
    if url.path == "/" {
        TRACES_PATH.clone_into(&mut url.path);
    }
    Ok(url)
}

impl TracingWritten {
    /// The file with the CAs that sign the collector's certificate.
    pub(crate) fn ca(&self) -> Option<&Located<PathBuf>> {
        self.ca.as_ref()
    }

    /// Adds mistakes about options that have no effect on how the collector is reached.
    pub(crate) fn check(&self, reader: &mut Reader<'_>) {
        let is_plain = self.collector.as_ref().is_some_and(|url| url.server.scheme != Scheme::Https);
        if let Some(ca) = self.ca.as_ref().filter(|_| is_plain) {
            let mistake = reader.mistake(&ca.at, "ca: the collector is reached without TLS");
            reader.add(mistake.expecting("a collector with https://, or no ca"));
        }
    }

    /// The settings that the options describe; `None` without a collector, which is reported elsewhere.
    pub(crate) fn meaning(self) -> Option<Tracing> {
        let Self { collector, ca, authorization_file, service, sample, follow, slow, errors, b3 } = self;
        let [ca, authorization_file] = [ca, authorization_file].map(|path| path.map(|path| path.value));
        Some(Tracing {
            collector: collector?,
            ca,
            authorization_file,
            service,
            sample,
            follow,
            slow,
            errors,
            b3,
        })
    }
}
