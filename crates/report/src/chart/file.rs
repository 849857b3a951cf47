//! Charts as separate files: with title, legend and source, and with fixed colours in place of a page's style.

use std::fmt::Write as _;

#[cfg(feature = "pictures")]
use super::png::png;
use super::{Chart, Look, escaped};

const MARGIN: f64 = 16.0;
const TITLE_SIZE: f64 = 15.0;
const SOURCE_SIZE: f64 = 10.5;
/// Average width of a letter, as a share of the font size. Our font is wide.
const LETTER: f64 = 0.6;
const LINE: f64 = 1.35;
/// Width of a key of the legend with the space around it, and height of a row.
const KEY: f64 = 50.0;
const KEY_ROW: f64 = 18.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// End of the names of its files: empty, `-dark`, `-paper`.
    pub ending: &'static str,
    pub(super) paper: &'static str,
    pub(super) ink: &'static str,
    pub(super) quiet: &'static str,
    pub(super) line: &'static str,
    pub(super) band: &'static str,
    /// Colours of lines and markers, by style.
    pub(super) strokes: [&'static str; 8],
    /// Colours of bars, by style.
    pub(super) fills: [&'static str; 8],
}

const LIGHT_COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#008563", "#b3568c", "#a87700", "#2b8fc4", "#7a7300", "#5f6670"];
const DARK_COLOURS: [&str; 8] =
    ["#56b4e9", "#f0803c", "#2cc79a", "#e29ac4", "#e69f00", "#8fd0f5", "#f0e442", "#a9b0ba"];

pub const LIGHT: Theme = Theme {
    ending: "",
    paper: "#ffffff",
    ink: "#1b1f24",
    quiet: "#57606a",
    line: "#d8dde3",
    band: "#f5f7f9",
    strokes: LIGHT_COLOURS,
    fills: LIGHT_COLOURS,
};

pub const DARK: Theme = Theme {
    ending: "-dark",
    paper: "#14171b",
    ink: "#e6e9ed",
    quiet: "#a3abb5",
    line: "#333a42",
    band: "#1c2127",
    strokes: DARK_COLOURS,
    fills: DARK_COLOURS,
};

/// For print without colours: dashes, markers and names tell the series apart.
pub const PAPER: Theme = Theme {
    ending: "-paper",
    paper: "#ffffff",
    ink: "#000000",
    quiet: "#303030",
    line: "#d0d0d0",
    band: "#f2f2f2",
    strokes: ["#000000", "#505050", "#000000", "#707070", "#303030", "#606060", "#404040", "#808080"],
    fills: ["#202020", "#909090", "#b8b8b8", "#606060", "#d0d0d0", "#a4a4a4", "#484848", "#ececec"],
};

impl Chart {
    /// Renders the chart as an SVG file. `source` is the source of the figures.
    pub fn svg(&self, theme: &Theme, source: &str) -> String {
        let (inside, [width, height]) = self.framed(source);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"'DejaVu Sans', system-ui, sans-serif\" font-size=\"12\" role=\"img\"><title>{}</title><style>{}</style>\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>{inside}</svg>\n",
            escaped(&self.title),
            theme.style(),
            theme.paper
        )
    }

    /// Renders the chart as a PNG file; `None` if it does not fit into memory.
    #[cfg(feature = "pictures")]
    pub fn png(&self, theme: &Theme, source: &str) -> Option<Vec<u8>> {
        let (inside, size) = self.framed(source);
        png(&inside, size, theme)
    }

    /// Returns the elements of a file, with title, legend and source, and its size.
    fn framed(&self, source: &str) -> (String, [f64; 2]) {
        let width = self.width + 2.0 * MARGIN;
        let title = wrapped(&self.title, self.width / (TITLE_SIZE * LETTER));
        let source = wrapped(source, self.width / (SOURCE_SIZE * LETTER * 0.95));
        let mut inside = String::new();
        let mut top = MARGIN;
        for line in &title {
            top += TITLE_SIZE;
            let line = escaped(line);
            let _ = write!(
                inside,
                "<text class=\"strong\" font-size=\"{TITLE_SIZE}\" x=\"{MARGIN}\" y=\"{top:.1}\">{line}</text>"
            );
            top += TITLE_SIZE * (LINE - 1.0);
        }
        top = self.legend(&mut inside, top + 6.0) + 10.0;
        let _ = write!(inside, "<g transform=\"translate({MARGIN} {top:.1})\">{}</g>", self.body);
        top += self.height + 8.0;
        for line in &source {
            top += SOURCE_SIZE;
            let line = escaped(line);
            let _ = write!(
                inside,
                "<text class=\"quiet\" font-size=\"{SOURCE_SIZE}\" x=\"{MARGIN}\" y=\"{top:.1}\">{line}</text>"
            );
            top += SOURCE_SIZE * (LINE - 1.0);
        }
        (inside, [width, (top + MARGIN).ceil()])
    }

    /// Draws the legend from `top`, and returns its end.
    fn legend(&self, out: &mut String, top: f64) -> f64 {
        let (mut left, mut middle) = (0.0, top + KEY_ROW / 2.0);
        for (look, name) in &self.named {
            let wide = KEY + name.chars().count() as f64 * 12.0 * LETTER + 14.0;
            if left > 0.0 && left + wide > self.width {
                (left, middle) = (0.0, middle + KEY_ROW);
            }
            key(out, *look, MARGIN + left, middle);
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                MARGIN + left + KEY,
                middle + 4.0,
                escaped(name)
            );
            left += wide;
        }
        middle + KEY_ROW / 2.0
    }
}

/// Draws the line and marker of a series.
fn key(out: &mut String, look: Look, left: f64, middle: f64) {
    let (class, right, marker) = (look.class(), left + 42.0, look.marker(left + 21.0, middle));
    let _ = write!(
        out,
        "<line class=\"curve {class}\" x1=\"{left:.1}\" y1=\"{middle:.1}\" x2=\"{right:.1}\" y2=\"{middle:.1}\"/>{marker}"
    );
}

impl Theme {
    /// Width of the edge of a bar: without colours, a bright bar needs one.
    pub(super) fn edge(&self, style: usize) -> f32 {
        if self.strokes[style] == self.fills[style] { 0.0 } else { 0.75 }
    }

    /// Style sheet without variables, because some programs that show SVG do not support them.
    fn style(&self) -> String {
        let Self { paper, ink, quiet, line, band, .. } = self;
        let mut out = format!(
            "text{{fill:{ink}}}.quiet{{fill:{quiet}}}.end{{text-anchor:end}}.middle{{text-anchor:middle}}\
             .strong{{font-weight:600}}.head{{fill:{band}}}.grid{{stroke:{line};stroke-width:1}}\
             .base{{stroke:{quiet};stroke-width:1}}.none{{fill:none;stroke:{quiet};stroke-dasharray:3 3}}\
             .curve,.cross{{fill:none;stroke-width:2;stroke-linejoin:round}}.marker{{stroke:{paper};stroke-width:1}}\
             .whisker{{fill:none;stroke:{ink};stroke-width:1.5}}"
        );
        for (style, (stroke, fill)) in self.strokes.iter().zip(self.fills).enumerate() {
            let dash = Look::dash(style).map(|dash| format!(";stroke-dasharray:{dash}")).unwrap_or_default();
            let _ = write!(
                out,
                ".curve.s{style}{{stroke:{stroke}{dash}}}.cross.s{style}{{stroke:{stroke}}}.marker.s{style}{{fill:{stroke}}}\
                 .user.s{style}{{fill:{fill};stroke:{ink};stroke-width:{}}}\
                 .system.s{style}{{fill:{fill};fill-opacity:0.35;stroke:{fill}}}",
                self.edge(style),
            );
        }
        out
    }
}

/// Breaks text into lines of at most this many letters, between words.
fn wrapped(text: &str, letters: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if (line.chars().count() + 1 + word.chars().count()) as f64 <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_colours_of_the_page() {
        let css = super::super::STYLE;
        for (style, [light, dark]) in
            LIGHT_COLOURS.iter().zip(DARK_COLOURS).map(|(light, dark)| [*light, dark]).enumerate()
        {
            assert_eq!(css.matches(&format!("--s{style}: {light};")).count(), 2, "light and print");
            assert_eq!(css.matches(&format!("--s{style}: {dark};")).count(), 1);
            let dash = Look::dash(style).map(|dash| format!(".curve.s{style} {{ stroke-dasharray: {dash};"));
            assert!(dash.is_none_or(|dash| css.contains(&dash)), "{style}");
        }
    }

    /// Contrast of two colours, after WCAG 2.2.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let part = |at: usize| {
                let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal digits");
                let share = f64::from(value) / 255.0;
                if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_colour_stands_out_from_its_background() {
        for theme in [LIGHT, DARK, PAPER] {
            for colour in theme.strokes {
                assert!(contrast(colour, theme.paper) >= 3.0, "{colour} on {}", theme.paper);
            }
            for colour in [theme.ink, theme.quiet] {
                assert!(contrast(colour, theme.band) >= 4.5, "{colour} on {}", theme.band);
            }
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7.0), ["one two", "three"]);
        assert_eq!(wrapped("longer-than-a-line b", 5.0), ["longer-than-a-line", "b"]);
        assert!(wrapped(" ", 5.0).is_empty());
    }
}
