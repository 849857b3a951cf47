//! Colour, dash and marker of each series: the palette of Okabe and Ito, made lighter or darker for contrast.

use std::fmt::Write as _;

use super::escaped;
use crate::results::{ComparedProxy, ProxyRole};

/// Number of colours with dashes.
const STYLES: usize = 8;
const SHAPES: usize = 6;
/// Look of measurements without a proxy.
const DIRECT: Look = Look { style: STYLES - 1, shape: 3 };
/// Look of the first proxy in a comparison without known names.
const SUBJECT: Look = Look { style: 0, shape: 0 };

/// Dashes of the lines, by style.
const DASHES: [Option<&str>; STYLES] = [
    None,
    Some("7 3"),
    Some("2 3"),
    Some("9 3 2 3"),
    Some("12 4"),
    Some("4 2"),
    Some("6 3 1 3 1 3"),
    Some("1 4"),
];

/// Looks of proxies, the same in every report. Proxies that are often measured together differ in colour.
const KNOWN: &[(&str, Look)] = &[
    ("vanward", SUBJECT),
    ("direct", DIRECT),
    ("haproxy", Look { style: 1, shape: 1 }),
    ("nginx", Look { style: 2, shape: 2 }),
    ("envoy", Look { style: 3, shape: 3 }),
    ("varnish", Look { style: 4, shape: 0 }),
    ("traefik", Look { style: 5, shape: 1 }),
    ("squid", Look { style: 6, shape: 2 }),
    ("monolake", Look { style: 4, shape: 4 }),
    ("zproxy", Look { style: 3, shape: 5 }),
    ("pound", Look { style: 6, shape: 4 }),
    ("toxiproxy", Look { style: 1, shape: 5 }),
    ("apache", Look { style: 1, shape: 2 }),
    ("caddy", Look { style: 5, shape: 3 }),
    ("h2o", Look { style: 3, shape: 1 }),
    ("trafficserver", Look { style: 4, shape: 2 }),
    ("pingap", Look { style: 6, shape: 0 }),
];

/// Style sheet for pages with these charts. `--paper` is the background of the page.
pub const STYLE: &str = include_str!("chart.css");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    style: usize,
    shape: usize,
}

/// Returns the look of each proxy. An unknown name has a look that depends on it, or the next free one.
pub(crate) fn looks(proxies: &[&ComparedProxy]) -> Vec<Look> {
    let known: Vec<Option<Look>> = proxies.iter().map(|proxy| known(&proxy.name)).collect();
    let mut taken: Vec<Look> = known.iter().flatten().copied().collect();
    let look = |(proxy, known): (&&ComparedProxy, Option<Look>)| {
        known.unwrap_or_else(|| {
            let begin = match proxy.role {
                ProxyRole::Subject => SUBJECT,
                ProxyRole::Direct => DIRECT,
                ProxyRole::Peer => Look::following_from(&proxy.name),
            };
            let look = begin.free(&taken);
            taken.push(look);
            look
        })
    };
    proxies.iter().zip(known).map(look).collect()
}

/// Whether a name has a fixed look in every report.
pub fn has_own_look(name: &str) -> bool {
    known(name).is_some()
}

fn known(name: &str) -> Option<Look> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, look)| *look)
}

impl Look {
    /// Derives a look from a name by FNV-1a, so that it is the same in every report.
    fn following_from(name: &str) -> Self {
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let place = hash as usize % ((STYLES - 2) * SHAPES);
        Self { style: 1 + place % (STYLES - 2), shape: place / (STYLES - 2) }
    }

    /// Returns a free look: this one, or else one with a free colour, or else any; if all are taken, this one.
    fn free(self, taken: &[Self]) -> Self {
        let colour_is_free = |look: &Self| !taken.iter().any(|other| other.style == look.style);
        let is_free = |look: &Self| !taken.contains(look);
        let others = || {
            let places = (0..STYLES - 2).flat_map(|colour| (0..SHAPES).map(move |shape| (colour, shape)));
            places.map(|(colour, shape)| Self {
                style: 1 + (self.style + colour) % (STYLES - 2),
                shape: (self.shape + shape) % SHAPES,
            })
        };
        let all = || std::iter::once(self).chain(others());
        all().find(colour_is_free).or_else(|| all().find(is_free)).unwrap_or(self)
    }

    /// Dashes of the lines of a style; `None` for a solid line.
    pub(super) fn dash(style: usize) -> Option<&'static str> {
        DASHES.get(style).copied().flatten()
    }

    /// CSS class for colour and dash.
    pub(crate) fn class(self) -> String {
        format!("s{}", self.style)
    }

    /// CSS class for the shape of a marker in HTML.
    pub(super) fn shape_class(self) -> String {
        format!("m{}", self.shape)
    }

    /// SVG marker of about 8 by 8 around a point.
    pub(super) fn marker(self, x: f64, y: f64) -> String {
        let class = self.class();
        let polygon = |points: &[(f64, f64)]| {
            let points: Vec<String> =
                points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
            format!("<polygon class=\"marker {class}\" points=\"{}\"/>", points.join(" "))
        };
        match self.shape {
            0 => format!("<circle class=\"marker {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.8\"/>"),
            1 => polygon(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
            2 => polygon(&[(0.0, -4.5), (4.2, 3.4), (-4.2, 3.4)]),
            3 => polygon(&[(0.0, -4.8), (4.4, 0.0), (0.0, 4.8), (-4.4, 0.0)]),
            4 => polygon(&[(0.0, 4.5), (4.2, -3.4), (-4.2, -3.4)]),
            // A plus sign.
            _ => polygon(&[
                (-1.6, -4.2),
                (1.6, -4.2),
                (1.6, -1.6),
                (4.2, -1.6),
                (4.2, 1.6),
                (1.6, 1.6),
                (1.6, 4.2),
                (-1.6, 4.2),
                (-1.6, 1.6),
                (-4.2, 1.6),
                (-4.2, -1.6),
                (-1.6, -1.6),
            ]),
        }
    }
}

pub fn legend(proxies: &[&ComparedProxy]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (proxy, look) in proxies.iter().zip(looks(proxies)) {
        let _ = write!(
            out,
            "<li><svg class=\"chart key\" viewBox=\"0 0 44 12\" width=\"44\" height=\"12\" aria-hidden=\"true\">\
             <line class=\"curve {}\" x1=\"1\" y1=\"6\" x2=\"43\" y2=\"6\"/>{}</svg>{}</li>",
            look.class(),
            look.marker(22.0, 6.0),
            escaped(&proxy.name)
        );
    }
    out.push_str("</ul>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(name: &str, role: ProxyRole) -> ComparedProxy {
        ComparedProxy { name: name.to_owned(), role, version: String::new(), started: Vec::new() }
    }

    #[test]
    fn every_known_name_has_a_look_of_its_own() {
        for (place, (name, look)) in KNOWN.iter().enumerate() {
            assert!(!KNOWN[..place].iter().any(|(other, same)| other == name || same == look), "{name}");
            assert!(look.style < STYLES && look.shape < SHAPES, "{name}");
        }
    }

    #[test]
    fn a_look_depends_on_the_name_and_not_on_the_others() {
        let (known, unknown) = (["nginx", "envoy", "pound"], ["mine", "vanward@old", "mine2", ""]);
        for name in known.into_iter().chain(unknown) {
            let alone = looks(&[&proxy(name, ProxyRole::Peer)]);
            let subject = proxy("vanward", ProxyRole::Subject);
            let beside =
                looks(&[&proxy("direct", ProxyRole::Direct), &subject, &proxy(name, ProxyRole::Peer)]);
            assert_eq!(alone[0], beside[2], "{name}");
        }
    }

    #[test]
    fn many_unknown_names_have_looks_of_their_own() {
        let mut proxies = vec![proxy("direct", ProxyRole::Direct), proxy("vanward", ProxyRole::Subject)];
        proxies.extend((0..30).map(|number| proxy(&format!("proxy {number}"), ProxyRole::Peer)));
        let looks = looks(&proxies.iter().collect::<Vec<_>>());
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}: {look:?}");
        }
        let colours: std::collections::HashSet<usize> = looks[2..8].iter().map(|look| look.style).collect();
        assert_eq!(colours.len(), 6, "the first have colours of their own");
    }
}
