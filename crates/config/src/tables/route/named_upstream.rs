//! The option `upstream` with values: `"${app}"`, `"${map.color}"`.

use std::collections::BTreeSet;

use ::route::{RouteTemplate, TemplateScope, TemplateStage, TemplateUse};

use crate::document::reader::Reader;
use crate::option::kind::Located;
use crate::option::templates::template;
use crate::tables::map::Map;
use crate::tables::names::{Names, WrongTexts, listed};
use crate::tables::route::{Action, NamedUpstream};
use crate::tables::settings::Settings;

const EXPECTED: &str = "the name of an upstream, or a value such as ${app}";

/// Converts the option; `None` if there is a mistake. All upstreams are checked that the text can name, if it is a value
/// of constants and maps. Maps change while the proxy runs, so with them the text may name any upstream.
pub(crate) fn action(
    written: &Located<String>,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    let Located { value, at } = written;
    let made = RouteTemplate::new(value, TemplateUse::FieldValue, TemplateStage::Authenticated, scope);
    let name = template(made, "upstream", at, EXPECTED, reader)?;
    let mut upstreams: Vec<(String, usize)> =
        names.http_upstreams().map(|(name, index)| (name.to_owned(), index)).collect();
    if let Some(possible) = name.only_value().and_then(|value| value.possible_texts()) {
        // An empty text says that there is no upstream, and such requests get 503.
        let is_upstream = |text: &str| text.is_empty() || upstreams.iter().any(|(name, _)| name == text);
        let wrong = WrongTexts::find("upstream", &possible, names.maps, is_upstream);
        for (option, text) in &wrong.configured {
            names.http_upstream(option, text, at, reader);
        }
        if !wrong.configured.is_empty() {
            return None;
        }
        let expected = "names of upstreams; requests with other names get 503";
        wrong.warn_of_files("names of no upstream", expected, at, reader);
        if possible.maps.is_empty() {
            upstreams.retain(|(name, _)| possible.constants.iter().any(|text| **text == *name.as_bytes()));
        }
    } else {
        let message = format!("upstream: it is not known which upstreams {value} can name");
        let expected = "a value of constants or of a map; requests whose value names no upstream get 503";
        reader.warn(reader.mistake(at, message).expecting(expected));
    }
    upstreams.sort_unstable();
    Some(Action::Named(Box::new(NamedUpstream { name, upstreams })))
}

impl Settings {
    /// Lists the upstreams that a text can name: at most the first 20, and how many there are. `None` if that is unknown.
    pub fn possible_upstreams(&self, named: &NamedUpstream) -> Option<String> {
        let possible = named.name.only_value()?.possible_texts()?;
        let maps = possible.maps.iter().filter_map(|map| self.maps.get(usize::from(*map)));
        let of_maps = maps.flat_map(Map::texts).map(String::into_bytes);
        let texts = possible.constants.into_iter().chain(of_maps.map(Into::into));
        let found: BTreeSet<&str> =
            texts.filter_map(|text| Some(self.upstreams.get(named.find(&text)?)?.name.as_str())).collect();
        Some(listed(&found))
    }
}
