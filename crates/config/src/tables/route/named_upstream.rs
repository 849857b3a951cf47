//! The option `upstream` with values: `"${app}"`.

use ::route::{RouteTemplate, TemplateScope, TemplateStage, TemplateUse};

use crate::document::reader::Reader;
use crate::option::kind::Located;
use crate::option::templates::template;
use crate::tables::names::Names;
use crate::tables::route::{Action, NamedUpstream};

const EXPECTED: &str = "the name of an upstream, or a value such as ${app}";

/// Converts the option; `None` if there is a mistake. All upstreams are checked that the text can name, if it is a value
/// that is one of several constants. Otherwise the text may name any upstream.
pub(crate) fn action(
    written: &Located<String>,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    let Located { value, at } = written;
    let made = RouteTemplate::new(value, TemplateUse::FieldValue, TemplateStage::Route, scope);
    let name = template(made, "upstream", at, EXPECTED, reader)?;
    let named = name.only_value().and_then(|value| value.possible_texts());
    let mut upstreams = Vec::new();
    match named {
        Some(texts) => {
            let refused_before = reader.refused();
            for text in texts {
                let text = String::from_utf8_lossy(text);
                if let Some(index) = names.http_upstream("upstream", &text, at, reader) {
                    upstreams.push((text.into_owned(), index));
                }
            }
            if reader.refused() > refused_before {
                return None;
            }
        }
        None => {
            let all = names.upstream_names.iter().enumerate();
            let of_http = all.filter(|(index, _)| !names.has_bytes_only[*index]);
            upstreams.extend(of_http.map(|(index, name)| ((*name).to_owned(), index)));
            let message = format!("upstream: it is not known which upstreams {value} can name");
            let warning = reader.mistake(at, message);
            reader.warn(
                warning.expecting("a value of constants; requests whose value names no upstream get 503"),
            );
        }
    }
    upstreams.sort_unstable();
    upstreams.dedup();
    Some(Action::Named(Box::new(NamedUpstream { name, upstreams })))
}
