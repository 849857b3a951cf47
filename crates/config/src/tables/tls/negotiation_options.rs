//! Options that limit the negotiation of TLS, the same for listeners and for upstreams, and their relations.

use crate::document::reader::{Reader, Span};
use crate::option::kind::{At, List, Located, Maybe, Word};
use crate::tables::tls::negotiation::{Negotiation, TlsCipher, TlsGroup, TlsPreset, TlsVersion};

#[derive(Debug, Clone, Default)]
pub(crate) struct NegotiationWritten {
    pub(crate) preset: Option<TlsPreset>,
    pub(crate) min_version: Option<Located<TlsVersion>>,
    pub(crate) max_version: Option<Located<TlsVersion>>,
    pub(crate) ciphers: Option<Located<Vec<TlsCipher>>>,
    pub(crate) groups: Option<Located<Vec<TlsGroup>>>,
}

pub(crate) const PRESET: Maybe<Word<TlsPreset>> =
    Maybe(Word { words: &[("modern", TlsPreset::Modern), ("intermediate", TlsPreset::Intermediate)] });
pub(crate) const VERSION: Maybe<At<Word<TlsVersion>>> = Maybe(At(Word { words: TlsVersion::WORDS }));
pub(crate) const CIPHERS: Maybe<At<List<Word<TlsCipher>>>> =
    Maybe(At(List { kind: Word { words: TlsCipher::ALL }, may_be_empty: false }));
pub(crate) const GROUPS: Maybe<At<List<Word<TlsGroup>>>> =
    Maybe(At(List { kind: Word { words: TlsGroup::ALL }, may_be_empty: false }));

pub(crate) const PRESET_DOC: &str = "Versions, cipher suites and groups of Mozilla's guideline for servers: \
    `\"modern\"` is TLS 1.3 only, `\"intermediate\"` TLS 1.2 and 1.3. The other options take precedence. Default: as \
    `\"intermediate\"`, but in the proxy's order of cipher suites.";
pub(crate) const MIN_VERSION_DOC: &str = "The lowest version of TLS. Default: 1.2, or that of the `preset`.";
pub(crate) const MAX_VERSION_DOC: &str = "The highest version of TLS. Default: 1.3.";

/// Adds mistakes about what cannot be negotiated together.
pub(crate) fn check(written: &NegotiationWritten, table_at: &Span, reader: &mut Reader<'_>) {
    let negotiation = settings(written.clone());
    let mut refuse = |at: &Span, message: String, expected: String| {
        let mistake = reader.mistake(at, message);
        reader.add(mistake.expecting(expected));
    };
    let (lowest, highest) = negotiation.versions();
    if lowest > highest {
        let at = written.max_version.as_ref().map_or(table_at, |version| &version.at);
        let (lowest, highest) = (lowest.word(), highest.word());
        return refuse(
            at,
            format!("max_version {highest} is below the lowest version, {lowest}"),
            format!("at least {lowest}, or a lower min_version"),
        );
    }
    if let Some(Located { value: ciphers, at }) = &written.ciphers {
        if let Some(cipher) = ciphers.iter().find(|cipher| !negotiation.permits(cipher.version())) {
            let (name, version) = (cipher.name(), cipher.version().word());
            let message = format!("ciphers: {name} is for TLS {version}, which is not permitted here");
            return refuse(at, message, "suites of the permitted versions alone".to_owned());
        }
        for (_, version) in TlsVersion::WORDS.iter().filter(|(_, version)| negotiation.permits(*version)) {
            if !ciphers.iter().any(|cipher| cipher.version() == *version) {
                let of_it = TlsCipher::ALL.iter().filter(|(_, cipher)| cipher.version() == *version);
                let names: Vec<&str> = of_it.map(|(name, _)| *name).collect();
                let word = version.word();
                let message = format!("ciphers has no suite for TLS {word}, which is permitted here");
                let limit = if *version == TlsVersion::Tls12 { "min_version" } else { "max_version" };
                return refuse(at, message, format!("some of {}, or another {limit}", names.join(", ")));
            }
        }
    }
    if let Some(Located { value: groups, at }) = &written.groups
        && negotiation.permits(TlsVersion::Tls12)
        && !groups.iter().any(|group| group.is_for_tls12())
    {
        let expected = "X25519, secp256r1 or secp384r1 as well, or min_version = \"1.3\"";
        refuse(
            at,
            "groups has no group for TLS 1.2, which is permitted here".to_owned(),
            expected.to_owned(),
        );
    }
}

/// Converts the parsed options to settings.
pub(crate) fn settings(written: NegotiationWritten) -> Negotiation {
    let NegotiationWritten { preset, min_version, max_version, ciphers, groups } = written;
    Negotiation {
        preset,
        min_version: min_version.map(|version| version.value),
        max_version: max_version.map(|version| version.value),
        ciphers: ciphers.map(|ciphers| ciphers.value),
        groups: groups.map(|groups| groups.value),
    }
}
