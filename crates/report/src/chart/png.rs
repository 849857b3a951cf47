//! Draws charts as PNG, with an embedded font, because a machine that measures may have none.
//!
//! Reads only this crate's SVG: rectangles, lines, paths without curves, circles, polygons, text, shifted groups.

use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};
use ttf_parser::{Face, OutlineBuilder};

use super::Look;
use super::file::Theme;

/// DejaVu Sans, reduced to Latin letters, digits and signs.
static FONT: &[u8] = include_bytes!("../../vendor/dejavu/DejaVuSans.ttf");
/// Pixels per unit of the drawing, so that it is sharp on dense screens and in print.
const SCALE: f32 = 2.0;
/// Maximum height in pixels; a higher drawing is less sharp.
const PIXELS_MOST: f32 = 16_384.0;
/// Default size of text.
const TEXT_SIZE: f32 = 12.0;
/// Thickness of the edge that makes letters bold, as a share of their size.
const BOLD: f32 = 0.05;

/// Draws elements on the background of the theme. `None` if the drawing has no area or does not fit into memory.
pub(super) fn png(elements: &str, [width, height]: [f64; 2], theme: &Theme) -> Option<Vec<u8>> {
    let (width, height) = (width as f32, height as f32);
    let scale = SCALE.min(PIXELS_MOST / height);
    let mut canvas = Canvas {
        pixels: Pixmap::new((width * scale).ceil() as u32, (height * scale).ceil() as u32)?,
        at: Transform::from_scale(scale, scale),
        face: Face::parse(FONT, 0).ok()?,
        theme,
    };
    canvas.pixels.fill(colour(theme.paper)?);
    let mut groups = Vec::new();
    let mut rest = elements;
    while let Some((tag, after)) = rest.split_once('<').and_then(|(_, begun)| begun.split_once('>')) {
        rest = after;
        let element = PngElement(tag.trim_end_matches('/'));
        match element.name() {
            "g" => {
                groups.push(canvas.at);
                let [x, y] = element.shift();
                canvas.at = canvas.at.pre_translate(x, y);
            }
            "/g" => canvas.at = groups.pop()?,
            "text" => {
                let (text, after) = rest.split_once("</text>")?;
                rest = after;
                canvas.write(element, &unescaped(text));
            }
            _ => canvas.draw(element),
        }
    }
    canvas.pixels.encode_png().ok()
}

/// A tag without its brackets.
#[derive(Clone, Copy)]
struct PngElement<'t>(&'t str);

impl<'t> PngElement<'t> {
    fn name(self) -> &'t str {
        self.0.split(' ').next().unwrap_or_default()
    }

    fn text(self, attribute: &str) -> Option<&'t str> {
        let (_, quoted) = self.0.split_once(&format!(" {attribute}=\""))?;
        quoted.split('"').next()
    }

    fn number(self, attribute: &str) -> Option<f32> {
        self.text(attribute)?.parse().ok()
    }

    fn has_class(self, class: &str) -> bool {
        self.text("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    }

    fn style(self) -> usize {
        let classes = self.text("class").unwrap_or_default();
        classes.split(' ').find_map(|class| class.strip_prefix('s')?.parse().ok()).unwrap_or(0)
    }

    /// Both distances of `translate(x y)`.
    fn shift(self) -> [f32; 2] {
        let inside =
            self.text("transform").and_then(|text| text.strip_prefix("translate(")?.strip_suffix(')'));
        let mut numbers = inside.unwrap_or_default().split(' ').map(|number| number.parse().unwrap_or(0.0));
        [(); 2].map(|()| numbers.next().unwrap_or(0.0))
    }

    fn path(self) -> Option<Path> {
        let number = |attribute: &str| self.number(attribute);
        match self.name() {
            "rect" => {
                let rect = Rect::from_xywh(number("x")?, number("y")?, number("width")?, number("height")?)?;
                Some(PathBuilder::from_rect(rect))
            }
            "circle" => PathBuilder::from_circle(number("cx")?, number("cy")?, number("r")?),
            "line" => {
                let mut path = PathBuilder::new();
                path.move_to(number("x1")?, number("y1")?);
                path.line_to(number("x2")?, number("y2")?);
                path.finish()
            }
            "polygon" => {
                let mut path = PathBuilder::new();
                for (index, point) in self.text("points")?.split(' ').enumerate() {
                    let (x, y) = point.split_once(',')?;
                    let (x, y) = (x.parse().ok()?, y.parse().ok()?);
                    if index == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
                }
                path.close();
                path.finish()
            }
            "path" => path(self.text("d")?),
            _ => None,
        }
    }
}

/// Path of straight lines: `M`, `m`, `L`, `l`, `H` and `v`, as our charts use them.
fn path(steps: &str) -> Option<Path> {
    let mut path = PathBuilder::new();
    let (mut x, mut y) = (0.0, 0.0);
    let mut rest = steps;
    while let Some(command) = rest.chars().next() {
        let after = &rest[command.len_utf8()..];
        let end = after.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let numbers: Vec<f32> = after[..end].split(' ').filter_map(|number| number.parse().ok()).collect();
        rest = &after[end..];
        for pair in numbers.chunks(2) {
            (x, y) = match (command, pair) {
                ('M' | 'L', &[right, down]) => (right, down),
                ('m' | 'l', &[right, down]) => (x + right, y + down),
                ('H', &[right, ..]) => (right, y),
                ('v', &[down, ..]) => (x, y + down),
                _ => return None,
            };
            if command.eq_ignore_ascii_case(&'m') { path.move_to(x, y) } else { path.line_to(x, y) }
        }
    }
    path.finish()
}

struct Canvas<'t> {
    pixels: Pixmap,
    /// Origin of the current group.
    at: Transform,
    face: Face<'static>,
    theme: &'t Theme,
}

impl Canvas<'_> {
    fn draw(&mut self, element: PngElement<'_>) {
        let Some(path) = element.path() else { return };
        let ink = self.theme.ink_of(element);
        if let Some(fill) = ink.fill {
            self.pixels.fill_path(&path, &paint(fill), FillRule::Winding, self.at, None);
        }
        // A width of 0 would draw a hairline.
        if let Some((colour, width)) = ink.stroke.filter(|(_, width)| *width > 0.0) {
            let dash = ink.dash.and_then(|dash| {
                StrokeDash::new(dash.split(' ').filter_map(|number| number.parse().ok()).collect(), 0.0)
            });
            let stroke = Stroke { width, dash, ..Stroke::default() };
            self.pixels.stroke_path(&path, &paint(colour), &stroke, self.at, None);
        }
    }

    fn write(&mut self, element: PngElement<'_>, text: &str) {
        let size = element.number("font-size").unwrap_or(TEXT_SIZE);
        let (Some(x), Some(y)) = (element.number("x"), element.number("y")) else { return };
        let unit = size / f32::from(self.face.units_per_em());
        let glyphs = text.chars().map(|letter| self.face.glyph_index(letter).unwrap_or_default());
        let advances =
            glyphs.map(|glyph| (glyph, f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0))));
        let advances: Vec<_> = advances.collect();
        let width = unit * advances.iter().map(|(_, advance)| advance).sum::<f32>();
        let begin = match () {
            () if element.has_class("end") => x - width,
            () if element.has_class("middle") => x - width / 2.0,
            () => x,
        };
        let mut outline = GlyphOutline { path: PathBuilder::new(), x: begin, y, unit };
        for (glyph, advance) in advances {
            self.face.outline_glyph(glyph, &mut outline);
            outline.x += unit * advance;
        }
        let Some(path) = outline.path.finish() else { return };
        let ink = if element.has_class("quiet") { self.theme.quiet } else { self.theme.ink };
        let Some(ink) = colour(ink) else { return };
        self.pixels.fill_path(&path, &paint(ink), FillRule::Winding, self.at, None);
        if element.has_class("strong") {
            let stroke = Stroke { width: BOLD * size, ..Stroke::default() };
            self.pixels.stroke_path(&path, &paint(ink), &stroke, self.at, None);
        }
    }
}

/// Outline of letters. The font's vertical axis points up, a picture's points down.
struct GlyphOutline {
    path: PathBuilder,
    x: f32,
    y: f32,
    unit: f32,
}

impl GlyphOutline {
    fn to(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + self.unit * x, self.y - self.unit * y)
    }
}

impl OutlineBuilder for GlyphOutline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.to(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.to(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.to(x1, y1), self.to(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.to(x1, y1), self.to(x2, y2), self.to(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

/// Fill, stroke and dash of an element.
#[derive(Default)]
struct Ink {
    fill: Option<Color>,
    stroke: Option<(Color, f32)>,
    dash: Option<&'static str>,
}

impl Theme {
    /// Follows the style sheet of an SVG file.
    fn ink_of(&self, element: PngElement<'_>) -> Ink {
        let style = element.style();
        let of_series = |colours: [&'static str; 8]| colours.get(style).copied().and_then(colour);
        let [line, fill] = [of_series(self.strokes), of_series(self.fills)];
        let line_of = |name: &str, width: f32| colour(name).map(|colour| (colour, width));
        match () {
            () if element.has_class("head") => Ink { fill: colour(self.band), ..Ink::default() },
            () if element.has_class("grid") => Ink { stroke: line_of(self.line, 1.0), ..Ink::default() },
            () if element.has_class("base") => Ink { stroke: line_of(self.quiet, 1.0), ..Ink::default() },
            () if element.has_class("none") => {
                Ink { stroke: line_of(self.quiet, 1.0), dash: Some("3 3"), ..Ink::default() }
            }
            () if element.has_class("whisker") => Ink { stroke: line_of(self.ink, 1.5), ..Ink::default() },
            () if element.has_class("marker") => {
                Ink { fill: line, stroke: line_of(self.paper, 1.0), ..Ink::default() }
            }
            () if element.has_class("curve") => {
                Ink { stroke: line.map(|line| (line, 2.0)), dash: Look::dash(style), ..Ink::default() }
            }
            () if element.has_class("cross") => {
                Ink { stroke: line.map(|line| (line, 2.0)), ..Ink::default() }
            }
            () if element.has_class("user") => {
                Ink { fill, stroke: line_of(self.ink, self.edge(style)), ..Ink::default() }
            }
            () if element.has_class("system") => {
                let light = fill.map(|mut fill| {
                    fill.set_alpha(0.35);
                    fill
                });
                Ink { fill: light, stroke: fill.map(|fill| (fill, 1.0)), ..Ink::default() }
            }
            () => Ink::default(),
        }
    }
}

/// Parses `#rrggbb`.
fn colour(text: &str) -> Option<Color> {
    let part = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    Some(Color::from_rgba8(part(1)?, part(3)?, part(5)?, 255))
}

fn paint(colour: Color) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(colour);
    paint
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::super::file::{LIGHT, PAPER};
    use super::*;

    fn drawn(elements: &str, theme: &Theme) -> Pixmap {
        let png = png(elements, [40.0, 20.0], theme).expect("a picture");
        Pixmap::decode_png(&png).expect("it can be read")
    }

    /// Returns the colour of a pixel, in the units of the drawing.
    fn at(pixels: &Pixmap, x: u32, y: u32) -> String {
        let pixel = pixels.pixel(2 * x, 2 * y).expect("it is inside").demultiply();
        format!("#{:02x}{:02x}{:02x}", pixel.red(), pixel.green(), pixel.blue())
    }

    #[test]
    fn shapes_are_where_the_drawing_has_them_in_the_colours_of_the_theme() {
        let elements = "<rect class=\"user s1\" x=\"2\" y=\"2\" width=\"10\" height=\"10\"/>\
                        <g transform=\"translate(20 0)\"><polygon class=\"marker s2\" points=\"2,2 12,2 12,12 2,12\"/></g>\
                        <path class=\"whisker\" d=\"M2.0 16.0H30.0M2.0 14.0v4\"/>";
        let light = drawn(elements, &LIGHT);
        assert_eq!((light.width(), light.height()), (80, 40));
        assert_eq!(at(&light, 7, 7), "#d55e00");
        assert_eq!(at(&light, 27, 7), "#008563", "in a shifted group");
        assert_eq!(at(&light, 10, 16), "#1b1f24");
        assert_eq!(at(&light, 17, 5), "#ffffff");
        assert_eq!(at(&drawn(elements, &PAPER), 7, 7), "#909090");
    }

    #[test]
    fn text_leaves_ink_before_its_end() {
        let is_blank = |pixels: &Pixmap, columns: std::ops::Range<u32>| {
            columns.clone().all(|x| (0..20).all(|y| at(pixels, x, y) == "#ffffff"))
        };
        let end = drawn("<text class=\"end\" x=\"30\" y=\"14\">µ&lt;</text>", &LIGHT);
        assert!(is_blank(&end, 30..40) && !is_blank(&end, 10..30));
        let begin = drawn("<text x=\"30\" y=\"14\">1</text>", &LIGHT);
        assert!(is_blank(&begin, 0..30) && !is_blank(&begin, 30..40));
    }

    #[test]
    fn every_letter_that_charts_write_is_in_the_font() {
        let face = Face::parse(FONT, 0).expect("a font");
        for letter in "aZ09 .,:;%/()±×÷µσκλ≈—–·✕éß".chars() {
            assert!(face.glyph_index(letter).is_some(), "{letter}");
        }
    }

    #[test]
    fn nothing_is_no_picture() {
        assert!(png("", [0.0, 10.0], &LIGHT).is_none());
        assert!(png("<text x=\"1\" y=\"1\">without an end", [9.0, 9.0], &LIGHT).is_none());
    }
}
