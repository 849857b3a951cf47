//! Options of `[tracing]`, declared once.

use std::path::PathBuf;
use std::time::Duration;

use shape::Share;

use crate::fault_kinds::SHARE;
use crate::jwt_options::key_url;
use crate::kind::{Located, Maybe, Name, Switch, Text, Unless, Word, located};
use crate::range::Wait;
use crate::reader::Reader;
use crate::settings::{B3, FollowCallers, KeyUrl, Scheme, Tracing};
use crate::table::{Table, key, required};
use crate::tls_options::{PATH_KIND, Path};
use crate::value_error::ValueError;

/// The path for traces, where the URL of the collector has none.
const TRACES_PATH: &str = "/v1/traces";

/// The parsed table `[tracing]`.
#[derive(Debug, Clone)]
pub(crate) struct TracingWritten {
    collector: Option<KeyUrl>,
    ca: Path,
    authorization_file: Path,
    service: String,
    sample: Share,
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
            sample: Share::of_millionths(10_000).unwrap_or(Share::WHOLE),
            follow: FollowCallers::default(),
            slow: Some(Duration::from_secs(1)),
            errors: true,
            b3: B3::default(),
        }
    }
}

pub(crate) static TRACING: Table<TracingWritten> = Table {
    options: &[
        &required(
            "collector",
            Maybe(COLLECTOR),
            |tracing: &mut TracingWritten| &mut tracing.collector,
            "URL of the collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. Without a path spans go to \
             `/v1/traces`.",
        ),
        &key(
            "sample",
            SHARE,
            |tracing: &mut TracingWritten| &mut tracing.sample,
            "Share of the traces that are recorded, of those that nobody has decided about. The trace ID decides, so \
             all proxies with the same share record the same traces.",
        ),
        &key(
            "follow",
            FOLLOW,
            |tracing: &mut TracingWritten| &mut tracing.follow,
            "Callers whose decision about recording a trace holds here as well: `\"trusted\"` (`trusted_proxies`), \
             `\"all\"`, or `\"nobody\"`. The trace continues whoever the caller is.",
        ),
        &key(
            "slow",
            Unless {
                word: "off",
                kind: Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            },
            |tracing: &mut TracingWritten| &mut tracing.slow,
            "Requests that take at least this long are always recorded.",
        ),
        &key(
            "errors",
            Switch,
            |tracing: &mut TracingWritten| &mut tracing.errors,
            "Always records requests that fail or get a status of class 5xx.",
        ),
        &key(
            "b3",
            Word { words: &[("off", B3::Off), ("single", B3::Single), ("multi", B3::Multi)] },
            |tracing: &mut TracingWritten| &mut tracing.b3,
            "Fields of Zipkin (B3): `\"single\"` reads them and writes `b3`, `\"multi\"` reads them and writes \
             `X-B3-…`. `\"off\"` leaves them as they are. `traceparent` is written in any case.",
        ),
        &key(
            "service",
            Name { expected: "a name such as \"edge\"" },
            |tracing: &mut TracingWritten| &mut tracing.service,
            "Name of the service in spans (`service.name`).",
        ),
        &key(
            "ca",
            PATH_KIND,
            |tracing: &mut TracingWritten| &mut tracing.ca,
            "The CA certificates that sign the collector's certificate, in PEM. Default: those of the system.",
        ),
        &key(
            "authorization_file",
            PATH_KIND,
            |tracing: &mut TracingWritten| &mut tracing.authorization_file,
            "File with the value of Authorization for the collector, such as `Bearer TOKEN`. It is read for each \
             connection.",
        ),
    ],
};

/// Whom to follow.
pub(crate) const FOLLOW: Word<FollowCallers> = Word {
    words: &[
        ("trusted", FollowCallers::Trusted),
        ("all", FollowCallers::All),
        ("nobody", FollowCallers::Nobody),
    ],
};

const COLLECTOR: Text<KeyUrl> = Text {
    expected: "a URL such as http://127.0.0.1:4318 or https://collector.example.com/v1/traces",
    read: collector,
    print: ToString::to_string,
};

fn collector(text: &str) -> Result<KeyUrl, ValueError> {
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

    /// The settings that the options describe; `None` without a collector, which is a mistake of its own.
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

impl From<&Tracing> for TracingWritten {
    fn from(tracing: &Tracing) -> Self {
        let Tracing { collector, ca, authorization_file, service, sample, follow, slow, errors, b3 } =
            tracing.clone();
        let [ca, authorization_file] = [ca, authorization_file].map(|path| path.map(located));
        Self { collector: Some(collector), ca, authorization_file, service, sample, follow, slow, errors, b3 }
    }
}
