//! Values of a plan, as they are written.

use std::num::NonZeroUsize;
use std::time::Duration;

use report::quantity;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::expect::Bound;
use crate::generator::{self, Generator};
use crate::plan::{OriginPayload, PlanLoad};

/// A single value or a list.
#[derive(Deserialize)]
#[serde(try_from = "toml::Value", bound(deserialize = "T: DeserializeOwned"))]
pub(super) struct Each<T>(pub(super) Vec<T>);

impl<T: DeserializeOwned> TryFrom<toml::Value> for Each<T> {
    type Error = String;

    fn try_from(written: toml::Value) -> Result<Self, String> {
        let values = match written {
            toml::Value::Array(values) => values,
            one => vec![one],
        };
        let read = |value| T::deserialize(value).map_err(|error: toml::de::Error| error.message().to_owned());
        values.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl<T: Default> Default for Each<T> {
    fn default() -> Self {
        Self(vec![T::default()])
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawPayload {
    Path(String),
    Named { name: String, path: String },
}

impl RawPayload {
    pub(super) fn payload(&self) -> OriginPayload {
        match self {
            Self::Path(path) => OriginPayload::from_written(path),
            Self::Named { name, path } => {
                OriginPayload { name: name.clone(), ..OriginPayload::from_written(path) }
            }
        }
    }

    pub(super) fn is_in(&self, paths: &[String]) -> bool {
        let (Self::Path(path) | Self::Named { path, .. }) = self;
        paths.contains(path)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUrls {
    pub(super) total: NonZeroUsize,
    #[serde(default)]
    pub(super) seed: u64,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) struct Workers(pub(super) NonZeroUsize);

impl Default for Workers {
    fn default() -> Self {
        Self(NonZeroUsize::MIN)
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
pub(super) struct RawGenerator(pub(super) &'static Generator);

impl Default for RawGenerator {
    fn default() -> Self {
        Self(generator::ALL[0])
    }
}

impl TryFrom<String> for RawGenerator {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = || format!("no generator is called {name:?}; expected one of {}", generator::names());
        generator::named(&name).map(Self).ok_or_else(known)
    }
}

#[derive(Deserialize, Clone)]
#[serde(try_from = "WrittenLoad")]
pub(super) struct RawLoad(pub(super) PlanLoad);

impl Default for RawLoad {
    fn default() -> Self {
        Self(PlanLoad::Closed)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"closed\", a share such as \"50%\", a bound such as \"p99 < 10ms\", or requests a second"
)]
pub(super) enum WrittenLoad {
    Word(String),
    PerSecond(f64),
}

impl TryFrom<WrittenLoad> for RawLoad {
    type Error = String;

    fn try_from(written: WrittenLoad) -> Result<Self, String> {
        let load = match &written {
            WrittenLoad::Word(word) if word == "closed" => Some(PlanLoad::Closed),
            WrittenLoad::Word(word) if word.contains('<') => {
                Some(PlanLoad::Search(Bound::try_from(word.clone())?))
            }
            WrittenLoad::Word(word) => word
                .strip_suffix('%')
                .and_then(|number| number.trim().parse::<f64>().ok())
                .filter(|share| *share > 0.0 && *share <= 100.0)
                .map(|share| PlanLoad::ShareOfSlowest(share / 100.0)),
            WrittenLoad::PerSecond(rate) => Some(*rate).filter(|rate| *rate > 0.0).map(PlanLoad::Rate),
        };
        load.map(Self).ok_or_else(|| {
            "a load is \"closed\", a share such as \"50%\" of the slowest closed loop, a bound such as \"p99 < 10ms\" \
             to search the highest rate for, or requests a second"
                .to_owned()
        })
    }
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(try_from = "String")]
pub(super) struct ValueSpan(pub(super) Duration);

impl TryFrom<String> for ValueSpan {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        quantity::duration(&text).map(Self)
    }
}

/// In bytes.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
pub(super) struct Size(pub(super) u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        quantity::size(&text).map(Self)
    }
}

/// In bytes per second.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
pub(super) struct Rate(pub(super) u64);

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        quantity::rate(&text).map(Self)
    }
}

pub(super) fn three() -> NonZeroUsize {
    const { NonZeroUsize::new(3).expect("not zero") }
}

pub(super) fn ten_seconds() -> ValueSpan {
    ValueSpan(Duration::from_secs(10))
}
