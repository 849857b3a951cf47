//! Plan files, and their conversion to a [`LabPlan`]: every combination of a case's lists becomes a case.
//!
//! Mistakes are reported with line and column. Nothing here searches the system for programs; the caller does that.

/// Reports all mistakes of a text.
mod every;
/// Cases that are impossible to measure.
mod impossible;
/// Tables of the machines.
mod machines;
/// The user's own origins and requests.
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

use mistake::{LineMap, Mistake, nearest};
use report::results::{ClientScheme, ClientVersion, Layer, OriginProtocol, ProxyRole, StreamKind};
use serde::Deserialize;
use toml::Spanned;

use crate::agent::words::{AgentService, WantedProxies};
use crate::expect::Expect;
use crate::experiment::{Forecast, Takers};
use crate::generator::Generator;
use crate::plan::{CasePlan, Deviation, Features, OriginPayload, OriginPlan, PlanLoad, Timing, UrlList};
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
    Each, Rate, RawGenerator, RawLoad, RawPayload, RawUrls, Size, ValueSpan, Workers, ten_seconds, three,
};

/// A service that is measured in place of the proxies of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredService {
    pub server: AgentService,
    /// Certificates of authorities to trust, in PEM; `None` trusts those of the system.
    pub authority: Option<String>,
}

/// Maximum number of cases: a longer report would not be read.
const CASES_MOST: usize = 2_000;

#[derive(Debug, Clone)]
pub struct WrittenPlan {
    pub title: String,
    /// Experiment whose published figures are shown next to the measured ones.
    pub published: Option<String>,
    pub wanted: WantedProxies,
    /// Machines for the parts of the lab.
    pub placement: Placement,
    pub origins: OriginPlan,
    pub timing: Timing,
    pub cases: Vec<CasePlan>,
    pub expectations: Vec<Expect>,
    /// Whether clients and origins send `Connection: keep-alive`.
    pub says_keep_alive: bool,
    /// Certificates of authorities in PEM for services that run already, by service name.
    pub authorities: BTreeMap<String, String>,
}

impl WrittenPlan {
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
        target: Option<MeasuredService>,
        text: &str,
        file: &str,
        quick: bool,
    ) -> Result<Self, Vec<Mistake>> {
        let mut every = every::read::<RawPlan>(text, file);
        let mut mistakes = std::mem::take(&mut every.mistakes);
        // If lines were removed, the plan's cases are not completely known.
        let is_whole = mistakes.is_empty();
        let Some(mut raw) = every.value.take() else { return Err(mistakes) };
        let mut authorities = BTreeMap::new();
        if let Some(MeasuredService { server, authority }) = target {
            authorities.extend(raw.measure_only(server).zip(authority));
        }
        let places = LineMap::new(text, file);
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
        let given = GivenPlan { quick, clients, origins: &origins, says_keep_alive: raw.say_keep_alive };
        let mut lists = Lists::new(text, file);
        let mut cases =
            if is_whole { cases_of(&raw.case, given, &mut lists, &mut refuse) } else { Vec::new() };
        without_its_loop(&cases).into_iter().for_each(|alone| refuse(0..0, alone));
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        // Mistakes in other files come after the plan's.
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
            if name == proxies::direct::DRIVER.name { ProxyRole::Direct } else { ProxyRole::Peer }
        };
        let takers = |case: &CasePlan| {
            let is_in = |role: &ProxyRole| case.includes_role(*role);
            Takers::from_roles(self.wanted.names.iter().map(role).filter(is_in))
        };
        Forecast::new(self.cases.iter().map(|case| (case, takers(case))), self.timing)
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

/// Mistake: the rate of a case follows from a closed loop that the plan does not have. Without this check it would be
/// found only at the end of a run.
fn without_its_loop(cases: &[CasePlan]) -> Option<String> {
    let is_alone = |case: &&CasePlan| {
        matches!(case.load, PlanLoad::ShareOfSlowest(_))
            && !cases.iter().any(|one| one.is_closed_loop_of(case))
    };
    let alone = cases.iter().find(is_alone)?;
    Some(format!(
        "the rate of {:?} is a share of a closed loop with otherwise equal settings, and the plan has none; add \
         \"closed\" to its load, or add such a case",
        alone.name
    ))
}

impl RawPlan {
    /// Replaces all proxies by one service that runs already. Returns its name.
    fn measure_only(&mut self, server: AgentService) -> Option<String> {
        let name = proxies::target::DRIVER.name.to_owned();
        self.proxies = vec![Spanned::new(0..0, name.clone())];
        let target = RawTarget { server, ca: None };
        self.target = BTreeMap::from([(Spanned::new(0..0, name.clone()), target)]);
        self.origin = None;
        self.command.clear();
        self.proxy.clear();
        Some(name)
    }

    fn has_streams(&self) -> bool {
        self.case.iter().any(|case| case.get_ref().stream.is_some())
    }

    /// Whether the plan measures only services that run already.
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
    duration: Option<ValueSpan>,
    #[serde(default)]
    warm_up: ValueSpan,
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

fn wanted(
    proxies: Vec<Spanned<String>>,
    (commands, targets, programs): Tables,
    deviations: BTreeMap<String, RawDeviation>,
) -> WantedProxies {
    WantedProxies {
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
struct NamedProxies<'r> {
    proxies: &'r [Spanned<String>],
    command: &'r BTreeMap<Spanned<String>, RawCommand>,
    target: &'r BTreeMap<Spanned<String>, RawTarget>,
    program: &'r BTreeMap<Spanned<String>, PathBuf>,
}

impl RawPlan {
    fn named(&self) -> NamedProxies<'_> {
        let Self { proxies, command, target, program, .. } = self;
        NamedProxies { proxies, command, target, program }
    }
}

/// Reports settings for proxies that the plan does not have.
fn check_deviations(raw: &RawPlan, refuse: &mut dyn FnMut(Range<usize>, String)) {
    for name in raw.proxy.keys().filter(|name| !raw.proxies.iter().any(|one| one.get_ref() == *name)) {
        refuse(0..0, format!("[proxy.{name}] names none of the plan's proxies"));
    }
}

/// Reports unknown proxies, and tables about proxies that the plan does not have.
fn check_proxies(raw: &NamedProxies<'_>, refuse: &mut dyn FnMut(Range<usize>, String)) {
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
                "[program] has {written:?}; expected a known proxy, @ and a label of your choice, such as \
                 \"nginx@1.22\""
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
                format!("[{table}] has {written:?}, a name that the lab already uses; choose another one"),
            );
        } else if !is_measured(written) {
            refuse(name.span(), format!("[{table}] has {written:?}, which is none of the plan's proxies"));
        }
    }
}

/// Facts about a plan, besides its cases.
#[derive(Clone, Copy)]
struct GivenPlan<'g> {
    quick: bool,
    /// Number of machines that send load.
    clients: usize,
    origins: &'g OriginPlan,
    /// Whether requests have `Connection: keep-alive`.
    says_keep_alive: bool,
}

impl GivenPlan<'_> {
    fn has_own_origins(&self) -> bool {
        self.origins.is_own()
    }
}

fn cases_of(
    written: &[Spanned<RawCase>],
    given: GivenPlan<'_>,
    lists: &mut Lists<'_>,
    refuse: &mut dyn FnMut(Range<usize>, String),
) -> Vec<CasePlan> {
    let mut cases = Vec::new();
    let mut names = HashSet::new();
    for case in written {
        // All combinations of a case have the same mistakes, so they are reported once.
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
        if let (false, Some(message)) = (is_refused, case.get_ref().compares_nothing()) {
            refuse(case.span(), message.to_owned());
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
                    "two cases are called {:?}; add to name the setting that differs: {{scheme}}, {{version}}, \
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
    duration: Option<ValueSpan>,
    warm_up: Option<ValueSpan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: Option<String>,
    #[serde(default)]
    scheme: Each<ClientScheme>,
    /// Defaults to HTTP/2 for gRPC, which has no other version.
    version: Option<Each<ClientVersion>>,
    upstream: Option<Each<OriginProtocol>>,
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
    duration: Option<ValueSpan>,
    #[serde(default = "ten_seconds")]
    timeout: ValueSpan,
    responses: Option<load::Responses>,
    urls: Option<RawUrls>,
    requests_from: Option<Spanned<RawRequestsFrom>>,
    #[serde(default)]
    hosts: Vec<String>,
    request: Option<RawRequest>,
    stream: Option<Spanned<RawStreams>>,
    cache: Option<Size>,
    delay: Option<ValueSpan>,
    rate: Option<Rate>,
    published: Option<String>,
    quick: Option<QuickCase>,
}

/// Values of a case that `--quick` may reduce.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickCase {
    scheme: Option<Each<ClientScheme>>,
    payload: Option<Each<String>>,
    connections: Option<Each<NonZeroUsize>>,
    requests: Option<u64>,
}

impl RawCase {
    /// Makes a case for each combination of the lists.
    fn plans(&self, quick: bool) -> Vec<CasePlan> {
        let short = self.quick.as_ref().filter(|_| quick);
        let schemes = short.and_then(|short| short.scheme.as_ref()).unwrap_or(&self.scheme);
        let connections = short.and_then(|short| short.connections.as_ref()).unwrap_or(&self.connections);
        let payloads: Vec<OriginPayload> = self
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
            true => (Each(vec![ClientVersion::Http2]), Each(vec![OriginProtocol::H2])),
            false => <(Each<ClientVersion>, Each<OriginProtocol>)>::default(),
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

    /// The reason why `responses` has no effect, if it is set.
    fn compares_nothing(&self) -> Option<&'static str> {
        self.responses?;
        let has_others = self.generator.0.iter().any(|one| one.0.name != crate::generator::ALL[0].name);
        if self.stream.is_some() {
            Some("responses applies to requests, but the case has streams; leave it out")
        } else {
            has_others.then_some("only the generator vanward compares responses; leave responses out")
        }
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
            responses: self.responses.unwrap_or(load::Responses::Same),
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

/// A combination of values from a case's lists.
struct Variant<'p> {
    scheme: ClientScheme,
    version: ClientVersion,
    upstream: OriginProtocol,
    layer: Layer,
    workers: NonZeroUsize,
    generator: &'static Generator,
    payload: &'p OriginPayload,
    connections: NonZeroUsize,
    load: &'p PlanLoad,
    streams: Option<StreamKind>,
}

impl Variant<'_> {
    /// A case name with its `{…}` placeholders replaced.
    fn filled(&self, template: &str) -> String {
        let load = match self.load {
            PlanLoad::Closed => "closed".to_owned(),
            PlanLoad::ShareOfSlowest(share) => format!("{}%", share * 100.0),
            PlanLoad::Rate(rate) => format!("{rate}"),
            PlanLoad::Search(_) => "highest".to_owned(),
        };
        template
            .replace("{scheme}", if self.scheme == ClientScheme::Https { "https" } else { "http" })
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
