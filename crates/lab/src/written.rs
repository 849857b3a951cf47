//! Plan files, and their conversion to a [`Plan`]: every combination of a case's lists becomes a case.
//!
//! Mistakes are reported with line and column. Nothing here searches the system for programs; the caller does that.

/// Reports all mistakes of a text.
mod every;
/// Cases that nobody could measure.
mod impossible;
/// Tables of the machines.
mod machines;
/// Origins and requests of one's own.
mod own_services;
/// Lists of requests.
mod lists;
/// Plans of resilience runs.
mod resilience;
/// Streams in place of requests.
mod streams;
/// Values.
mod values;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use mistake::{Mistake, Places, nearest};
use report::results::{Layer, Role, Scheme, StreamKind, Upstream, Version};
use serde::Deserialize;
use toml::Spanned;

use crate::agent::words::{Server, Wanted};
use crate::expect::Expect;
use crate::experiment::{Forecast, Takers};
use crate::generator::Generator;
use crate::plan::{CasePlan, Deviation, Features, Load, OriginPlan, Payload, Timing, UrlList};
use crate::proxies;
use crate::sites::Placement;
pub use resilience::Grammar;

use impossible::impossible;
use lists::{Lists, RawRequestsFrom};
use machines::RawMachines;
pub use own_services::authority_of;
use own_services::{RawCommand, RawOrigin, RawRequest, RawTarget};
use streams::RawStreams;
use values::{
    Each, Rate, RawGenerator, RawLoad, RawPayload, RawUrls, Size, Span, Workers, ten_seconds, three,
};

/// A service that is measured in place of the proxies of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The service.
    pub server: Server,
    /// Certificates of authorities to trust, in PEM; `None` trusts those of the system.
    pub authority: Option<String>,
}

/// Maximum number of cases: nobody reads more.
const CASES_MOST: usize = 2_000;

/// Content of a plan file.
#[derive(Debug, Clone)]
pub struct Written {
    /// Heading of the report.
    pub title: String,
    /// Experiment whose published figures are shown next to the measured ones.
    pub published: Option<String>,
    /// Proxies of the plan.
    pub wanted: Wanted,
    /// Machines for the parts of the lab.
    pub placement: Placement,
    /// Servers behind each proxy.
    pub origins: OriginPlan,
    /// Number of rounds, and durations.
    pub timing: Timing,
    /// Cases of the plan.
    pub cases: Vec<CasePlan>,
    /// Expectations of figures.
    pub expectations: Vec<Expect>,
    /// Whether clients and origins send `Connection: keep-alive`.
    pub says_keep_alive: bool,
    /// Certificates of authorities, in PEM, for services that run already, by their names.
    pub authorities: BTreeMap<String, String>,
}

impl Written {
    /// Reads the text of `file`. With `quick`, values of its `quick` tables replace the others.
    ///
    /// # Errors
    /// Every mistake, in the order of the file.
    pub fn read(text: &str, file: &str, quick: bool) -> Result<Self, Vec<Mistake>> {
        Self::read_for(None, text, file, quick)
    }

    /// Reads the text of `file` for a service that runs already, in the place of the plan's proxies.
    ///
    /// # Errors
    /// Every mistake, in the order of the file.
    pub fn read_for(
        target: Option<Target>,
        text: &str,
        file: &str,
        quick: bool,
    ) -> Result<Self, Vec<Mistake>> {
        let mut every = every::read::<RawPlan>(text, file);
        let mut mistakes = std::mem::take(&mut every.mistakes);
        // Of a plan that has lost something it is not known which cases it has.
        let is_whole = mistakes.is_empty();
        let Some(mut raw) = every.value.take() else { return Err(mistakes) };
        let mut authorities = BTreeMap::new();
        if let Some(Target { server, authority }) = target {
            authorities.extend(raw.measure_only(server).zip(authority));
        }
        let places = Places::new(text, file);
        let there =
            [raw.title.is_some(), !raw.proxies.is_empty(), raw.duration.is_some(), !raw.case.is_empty()];
        for (key, is_there) in ["title", "proxies", "duration", "case"].into_iter().zip(there) {
            if !is_there && every.lacks(key) {
                mistakes.push(places.mistake(&(0..0), format!("the plan has no {key}")));
            }
        }
        let mut refuse = |at: Range<usize>, message: String| mistakes.push(places.mistake(&at, message));
        let names: Vec<&str> = raw.proxies.iter().map(|name| name.get_ref().as_str()).collect();
        check_proxies(&raw.named(), &mut refuse);
        check_deviations(&raw, &mut refuse);
        let has_targets_alone = raw.has_targets_alone();
        let has_streams = raw.has_streams();
        let expectations = expectations(raw.expect, &names, has_streams, &mut refuse);
        let placement = raw.machine.placement().map_err(|message| refuse(0..0, message));
        let clients = placement.as_ref().map_or(1, |placement| placement.clients.len());
        let origins = RawOrigin::plan(raw.origin.as_ref(), raw.origins.as_ref(), file, &mut refuse);
        let origins = if has_targets_alone { origins.unless_own() } else { origins };
        authorities.extend(own_services::authorities(&raw.target, file, &mut refuse));
        let given = Given { quick, clients, origins: &origins, says_keep_alive: raw.say_keep_alive };
        let mut lists = Lists::new(text, file);
        let mut cases =
            if is_whole { cases_of(&raw.case, given, &mut lists, &mut refuse) } else { Vec::new() };
        without_its_loop(&cases).into_iter().for_each(|alone| refuse(0..0, alone));
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        // Those of other files come behind the plan's own.
        mistakes.extend(lists.mistakes);
        let (Ok(placement), Some(title), Some(duration), true) =
            (placement, raw.title, raw.duration, mistakes.is_empty())
        else {
            return Err(mistakes);
        };
        let short = raw.quick.filter(|_| quick).unwrap_or_default();
        if short.duration.is_some() {
            cases.iter_mut().for_each(|case| case.measured = None);
        }
        Ok(Self {
            title,
            published: raw.published,
            wanted: wanted(raw.proxies, (raw.command, raw.target, raw.program), raw.proxy),
            placement,
            origins,
            timing: Timing {
                rounds: short.repeats.unwrap_or(raw.repeats).get(),
                measured: short.duration.unwrap_or(duration).0,
                warm_up: short.warm_up.unwrap_or(raw.warm_up).0,
            },
            cases,
            expectations,
            says_keep_alive: raw.say_keep_alive,
            authorities,
        })
    }

    /// Duration of a run, if all proxies are installed and support all cases.
    pub fn forecast(&self) -> Forecast {
        let role = |name: &String| {
            if name == proxies::direct::DRIVER.name { Role::Direct } else { Role::Peer }
        };
        let takers = |case: &CasePlan| {
            let is_in = |role: &Role| case.includes_role(*role);
            Takers::of(self.wanted.names.iter().map(role).filter(is_in))
        };
        Forecast::of(self.cases.iter().map(|case| (case, takers(case))), self.timing)
    }
}

/// The expectations of a plan with these proxies.
fn expectations(
    written: Vec<Spanned<String>>,
    names: &[&str],
    has_streams: bool,
    refuse: &mut dyn FnMut(Range<usize>, String),
) -> Vec<Expect> {
    let mut expectations = Vec::new();
    for expect in written {
        let at = expect.span();
        let read = Expect::try_from(expect.into_inner());
        match read.and_then(|expect| expect.about(names)?.of_streams(has_streams)) {
            Ok(expect) => expectations.push(expect),
            Err(message) => refuse(at, message),
        }
    }
    expectations
}

/// Mistake: a case whose rate follows from a closed loop that the plan does not have. Otherwise found only at the end
/// of a run.
fn without_its_loop(cases: &[CasePlan]) -> Option<String> {
    let is_alone = |case: &&CasePlan| {
        matches!(case.load, Load::ShareOfSlowest(_)) && !cases.iter().any(|one| one.is_closed_loop_of(case))
    };
    let alone = cases.iter().find(is_alone)?;
    Some(format!(
        "the rate of {:?} follows from a closed loop that is otherwise alike, and there is none; add \"closed\" to its load, \
         or a case with it",
        alone.name
    ))
}

impl RawPlan {
    /// Replaces all proxies by one service that runs already. Returns its name.
    fn measure_only(&mut self, server: Server) -> Option<String> {
        let name = proxies::target::DRIVER.name.to_owned();
        self.proxies = vec![Spanned::new(0..0, name.clone())];
        let target = RawTarget { server, ca: None };
        self.target = BTreeMap::from([(Spanned::new(0..0, name.clone()), target)]);
        self.origin = None;
        self.command.clear();
        self.proxy.clear();
        Some(name)
    }

    /// Whether a case has streams.
    fn has_streams(&self) -> bool {
        self.case.iter().any(|case| case.get_ref().stream.is_some())
    }

    /// Whether all that is measured runs already.
    fn has_targets_alone(&self) -> bool {
        !self.proxies.is_empty()
            && self.proxies.iter().all(|name| self.target.contains_key(name.get_ref().as_str()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    title: Option<String>,
    published: Option<String>,
    #[serde(default)]
    proxies: Vec<Spanned<String>>,
    #[serde(default)]
    command: BTreeMap<Spanned<String>, RawCommand>,
    #[serde(default)]
    proxy: BTreeMap<String, RawDeviation>,
    #[serde(default)]
    machine: RawMachines,
    origins: Option<Spanned<NonZeroUsize>>,
    origin: Option<Spanned<RawOrigin>>,
    #[serde(default)]
    target: BTreeMap<Spanned<String>, RawTarget>,
    #[serde(default)]
    program: BTreeMap<Spanned<String>, PathBuf>,
    #[serde(default = "three")]
    repeats: NonZeroUsize,
    duration: Option<Span>,
    #[serde(default)]
    warm_up: Span,
    #[serde(default)]
    expect: Vec<Spanned<String>>,
    #[serde(default)]
    say_keep_alive: bool,
    #[serde(default)]
    case: Vec<Spanned<RawCase>>,
    quick: Option<Quick>,
}

/// Tables of proxies that only the plan knows.
type Tables = (
    BTreeMap<Spanned<String>, RawCommand>,
    BTreeMap<Spanned<String>, RawTarget>,
    BTreeMap<Spanned<String>, PathBuf>,
);

/// The proxies of a plan.
fn wanted(
    proxies: Vec<Spanned<String>>,
    (commands, targets, programs): Tables,
    deviations: BTreeMap<String, RawDeviation>,
) -> Wanted {
    Wanted {
        names: proxies.into_iter().map(Spanned::into_inner).collect(),
        commands: unplaced(commands).into_iter().map(|(name, raw)| (name, raw.template())).collect(),
        targets: unplaced(targets).into_iter().map(|(name, raw)| (name, raw.server)).collect(),
        programs: unplaced(programs),
        deviations: deviations.into_iter().map(|(name, raw)| (name, raw.into())).collect(),
    }
}

/// A table's entries, without their places in the file.
fn unplaced<V>(table: BTreeMap<Spanned<String>, V>) -> Vec<(String, V)> {
    table.into_iter().map(|(name, value)| (name.into_inner(), value)).collect()
}

/// Names of proxies in a plan, and the tables about them.
struct Named<'r> {
    proxies: &'r [Spanned<String>],
    command: &'r BTreeMap<Spanned<String>, RawCommand>,
    target: &'r BTreeMap<Spanned<String>, RawTarget>,
    program: &'r BTreeMap<Spanned<String>, PathBuf>,
}

impl RawPlan {
    fn named(&self) -> Named<'_> {
        let Self { proxies, command, target, program, .. } = self;
        Named { proxies, command, target, program }
    }
}

/// Reports settings for proxies that the plan does not have.
fn check_deviations(raw: &RawPlan, refuse: &mut dyn FnMut(Range<usize>, String)) {
    for name in raw.proxy.keys().filter(|name| !raw.proxies.iter().any(|one| one.get_ref() == *name)) {
        refuse(0..0, format!("[proxy.{name}] is about none of the plan's proxies"));
    }
}

/// Reports unknown proxies, and tables about proxies that the plan does not have.
fn check_proxies(raw: &Named<'_>, refuse: &mut dyn FnMut(Range<usize>, String)) {
    for name in raw.proxies {
        let written = name.get_ref();
        if proxies::is_known(written)
            || raw.command.contains_key(written.as_str())
            || raw.target.contains_key(written.as_str())
            || raw.program.contains_key(written.as_str())
        {
            continue;
        }
        if proxies::is_known(proxies::driver_of(written)) {
            refuse(
                name.span(),
                format!(
                    "{written:?} has no program; expected one in [program]: {written:?} = \"/path/to/it\""
                ),
            );
            continue;
        }
        let names = proxies::names();
        let meant = nearest(written, names.iter().copied());
        let meant = meant.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
        let names = names.join(", ");
        let message = format!(
            "no proxy is called {written:?}{meant}; expected one of {names}, or a name in [command], [target] or [program]"
        );
        refuse(name.span(), message);
    }
    for name in raw.program.keys() {
        let (written, driver) = (name.get_ref(), proxies::driver_of(name.get_ref()));
        if !written.contains('@') || !proxies::is_known(driver) || driver == proxies::direct::DRIVER.name {
            let message = format!(
                "[program] has {written:?}; expected a known proxy and a word of yours, such as \"nginx@1.22\""
            );
            refuse(name.span(), message);
        }
    }
    for (name, wrong) in raw.command.iter().filter_map(|(name, raw)| Some((name, raw.impossible()?))) {
        refuse(name.span(), format!("[command.{}]: {wrong}", name.get_ref()));
    }
    let is_measured = |name: &str| raw.proxies.iter().any(|one| one.get_ref() == name);
    for (table, name) in
        raw.command.keys().map(|name| ("command", name)).chain(raw.target.keys().map(|name| ("target", name)))
    {
        let written = name.get_ref();
        if proxies::is_known(written) {
            refuse(
                name.span(),
                format!("[{table}] has {written:?}, which the lab knows by itself; expected another name"),
            );
        } else if !is_measured(written) {
            refuse(name.span(), format!("[{table}] has {written:?}, which is none of the plan's proxies"));
        }
    }
}

/// What is known of a plan besides its cases.
#[derive(Clone, Copy)]
struct Given<'g> {
    quick: bool,
    /// Number of machines that send load.
    clients: usize,
    origins: &'g OriginPlan,
    /// Whether requests have `Connection: keep-alive`.
    says_keep_alive: bool,
}

impl Given<'_> {
    /// Whether responses are those of `vanward origin`.
    fn has_own_origins(&self) -> bool {
        self.origins.is_own()
    }
}

/// Every combination of every case.
fn cases_of(
    written: &[Spanned<RawCase>],
    given: Given<'_>,
    lists: &mut Lists<'_>,
    refuse: &mut dyn FnMut(Range<usize>, String),
) -> Vec<CasePlan> {
    let mut cases = Vec::new();
    let mut names = HashSet::new();
    for case in written {
        // The combinations of a case have the same mistakes.
        let mut is_refused = false;
        if let Some(message) = case.get_ref().request.as_ref().and_then(RawRequest::impossible) {
            refuse(case.span(), message);
        }
        if let Some(streams) = &case.get_ref().stream
            && let Some(message) = streams.get_ref().impossible()
        {
            refuse(streams.span(), message);
            is_refused = true;
        }
        let list = case.get_ref().requests_from.as_ref();
        let list = list.and_then(|written| lists.read(written, &case.get_ref().hosts, refuse));
        for mut plan in case.get_ref().plans(given.quick) {
            plan.requests_from = list.clone();
            if !given.has_own_origins() || plan.streams.is_some() {
                plan.payload.bytes = None;
            }
            let wrong = if names.insert(plan.name.clone()) {
                impossible(&plan, given).or_else(|| streams::impossible(&plan, given))
            } else {
                Some(format!(
                    "there are two cases called {:?}; put what tells them apart into name: {{scheme}}, {{version}}, \
                     {{upstream}}, {{layer}}, {{payload}}, {{connections}}, {{workers}}, {{load}}, {{generator}}, {{stream}}",
                    plan.name
                ))
            };
            if let Some(message) = wrong.filter(|_| !std::mem::replace(&mut is_refused, true)) {
                refuse(case.span(), message);
            }
            cases.push(plan);
        }
    }
    if !written.is_empty() && (cases.is_empty() || cases.len() > CASES_MOST) {
        refuse(0..0, format!("the plan has {} cases; expected 1 to {CASES_MOST}", cases.len()));
    }
    cases
}

/// Settings that differ for one proxy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDeviation {
    workers: Option<NonZeroUsize>,
    access_log: Option<bool>,
    keep_alive: Option<bool>,
}

impl From<RawDeviation> for Deviation {
    fn from(raw: RawDeviation) -> Self {
        let RawDeviation { workers, access_log, keep_alive } = raw;
        Self { workers, access_log, keep_alive }
    }
}

/// Values that `--quick` uses instead.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Quick {
    repeats: Option<NonZeroUsize>,
    duration: Option<Span>,
    warm_up: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: Option<String>,
    #[serde(default)]
    scheme: Each<Scheme>,
    /// HTTP/2 for gRPC, which knows no other.
    version: Option<Each<Version>>,
    upstream: Option<Each<Upstream>>,
    #[serde(default)]
    layer: Each<Layer>,
    #[serde(default)]
    generator: Each<RawGenerator>,
    payload: Each<RawPayload>,
    connections: Each<NonZeroUsize>,
    #[serde(default)]
    load: Each<RawLoad>,
    #[serde(default)]
    workers: Each<Workers>,
    threads: Option<NonZeroUsize>,
    requests: Option<u64>,
    duration: Option<Span>,
    #[serde(default = "ten_seconds")]
    timeout: Span,
    urls: Option<RawUrls>,
    requests_from: Option<Spanned<RawRequestsFrom>>,
    #[serde(default)]
    hosts: Vec<String>,
    request: Option<RawRequest>,
    stream: Option<Spanned<RawStreams>>,
    cache: Option<Size>,
    delay: Option<Span>,
    rate: Option<Rate>,
    published: Option<String>,
    quick: Option<QuickCase>,
}

/// Values of a case that `--quick` may reduce.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickCase {
    scheme: Option<Each<Scheme>>,
    payload: Option<Each<String>>,
    connections: Option<Each<NonZeroUsize>>,
    requests: Option<u64>,
}

impl RawCase {
    /// One case for each combination of the lists.
    fn plans(&self, quick: bool) -> Vec<CasePlan> {
        let short = self.quick.as_ref().filter(|_| quick);
        let schemes = short.and_then(|short| short.scheme.as_ref()).unwrap_or(&self.scheme);
        let connections = short.and_then(|short| short.connections.as_ref()).unwrap_or(&self.connections);
        let payloads: Vec<Payload> = self
            .payload
            .0
            .iter()
            .filter(|payload| {
                short.and_then(|short| short.payload.as_ref()).is_none_or(|kept| payload.is_in(&kept.0))
            })
            .map(RawPayload::payload)
            .collect();
        let mut plans = Vec::new();
        let is_grpc = self.stream.as_ref().is_some_and(|streams| streams.get_ref().kind.is_grpc());
        let usual = match is_grpc {
            true => (Each(vec![Version::Http2]), Each(vec![Upstream::H2])),
            false => <(Each<Version>, Each<Upstream>)>::default(),
        };
        let protocols: Vec<_> = both(schemes, self.version.as_ref().unwrap_or(&usual.0)).collect();
        let behind: Vec<_> = both(self.upstream.as_ref().unwrap_or(&usual.1), &self.layer).collect();
        let ways = protocols.iter().flat_map(|way| behind.iter().map(move |behind| (*way, *behind)));
        for ((&scheme, &version), (&upstream, &layer)) in ways {
            for (&workers, &generator) in both(&self.workers, &self.generator) {
                for payload in &payloads {
                    for (&connections, load) in both(connections, &self.load) {
                        let variant = Variant {
                            scheme,
                            version,
                            upstream,
                            layer,
                            workers: workers.0,
                            generator: generator.0,
                            payload,
                            connections,
                            load: &load.0,
                            streams: self.stream.as_ref().map(|streams| streams.get_ref().kind),
                        };
                        plans.push(self.plan(short, &variant));
                    }
                }
            }
        }
        plans
    }

    fn plan(&self, short: Option<&QuickCase>, variant: &Variant<'_>) -> CasePlan {
        let name = variant.filled(self.name.as_deref().unwrap_or("{scheme}-{payload}-c{connections}-{load}"));
        let published = self.published.as_deref().map_or_else(|| name.clone(), |text| variant.filled(text));
        CasePlan {
            published: Some(published),
            name,
            scheme: variant.scheme,
            version: variant.version,
            upstream: variant.upstream,
            layer: variant.layer,
            payload: variant.payload.clone(),
            urls: self.urls.as_ref().map(|urls| UrlList { total: urls.total.get(), seed: urls.seed }),
            requests_from: None,
            message: self.request.as_ref().map(RawRequest::message).unwrap_or_default(),
            streams: self.stream.as_ref().map(|streams| streams.get_ref().plan()),
            load: variant.load.clone(),
            generator: variant.generator,
            connections: variant.connections,
            threads: self.threads,
            workers: variant.workers,
            requests: short.and_then(|short| short.requests).or(self.requests),
            measured: self.duration.map(|span| span.0),
            timeout: self.timeout.0,
            features: Features {
                cache_bytes: self.cache.map(|size| size.0),
                delay: self.delay.map(|span| span.0),
                rate_bytes_per_second: self.rate.map(|rate| rate.0),
            },
        }
    }
}

/// Every combination of two lists; the first changes slowest.
fn both<'l, A, B>(one: &'l Each<A>, other: &'l Each<B>) -> impl Iterator<Item = (&'l A, &'l B)> {
    one.0.iter().flat_map(|a| other.0.iter().map(move |b| (a, b)))
}

/// One combination of a case's lists.
struct Variant<'p> {
    scheme: Scheme,
    version: Version,
    upstream: Upstream,
    layer: Layer,
    workers: NonZeroUsize,
    generator: &'static Generator,
    payload: &'p Payload,
    connections: NonZeroUsize,
    load: &'p Load,
    streams: Option<StreamKind>,
}

impl Variant<'_> {
    /// A case name with its `{…}` placeholders replaced.
    fn filled(&self, template: &str) -> String {
        let load = match self.load {
            Load::Closed => "closed".to_owned(),
            Load::ShareOfSlowest(share) => format!("{}%", share * 100.0),
            Load::Rate(rate) => format!("{rate}"),
            Load::Search(_) => "highest".to_owned(),
        };
        template
            .replace("{scheme}", if self.scheme == Scheme::Https { "https" } else { "http" })
            .replace("{version}", self.version.number())
            .replace("{upstream}", self.upstream.word())
            .replace("{layer}", &u8::from(self.layer).to_string())
            .replace("{payload}", &self.payload.name)
            .replace("{connections}", &self.connections.to_string())
            .replace("{workers}", &self.workers.to_string())
            .replace("{generator}", self.generator.name)
            .replace("{stream}", self.streams.map_or("requests", StreamKind::word))
            .replace("{load}", &load)
    }
}

#[cfg(test)]
mod tests;
