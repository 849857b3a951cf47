//! A reader of markup, for tests that check its structure. It rejects markup that is not well nested.

#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// Text of the element and of all elements in it.
    pub(crate) text: String,
    /// Indices of the elements around it, outermost first.
    pub(crate) around: Vec<usize>,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        self.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    }
}

/// All elements, in the order of their start tags.
pub(crate) struct Markup(pub(crate) Vec<Element>);

impl Markup {
    pub(crate) fn of(mut rest: &str) -> Self {
        let (mut all, mut open): (Vec<Element>, Vec<usize>) = (Vec::new(), Vec::new());
        while let Some((text, tag)) = rest.split_once('<') {
            open.iter().for_each(|&place| all[place].text.push_str(&decoded(text)));
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                let place = open.pop().expect("something is open");
                assert_eq!(all[place].name, name, "not well nested");
            } else if !tag.starts_with('!') {
                let element = element(tag.trim_end_matches('/'), open.clone());
                let is_void = tag.ends_with('/') || matches!(element.name.as_str(), "meta" | "br");
                if matches!(element.name.as_str(), "script" | "style") {
                    let end = rest.find(&format!("</{}>", element.name)).expect("it ends");
                    rest = &rest[end + element.name.len() + 3..];
                } else if !is_void {
                    open.push(all.len());
                }
                all.push(element);
            }
        }
        assert!(open.is_empty(), "left open: {:?}", all[open[0]].name);
        Self(all)
    }

    pub(crate) fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Element> {
        self.0.iter().filter(move |element| element.name == name)
    }

    pub(crate) fn of_class<'s>(&'s self, class: &'s str) -> impl Iterator<Item = &'s Element> {
        self.0.iter().filter(move |element| element.has_class(class))
    }

    pub(crate) fn inside<'s>(&'s self, outer: &'s Element) -> impl Iterator<Item = &'s Element> {
        let place =
            self.0.iter().position(|element| std::ptr::eq(element, outer)).expect("it is one of these");
        self.0.iter().filter(move |element| element.around.contains(&place))
    }

    pub(crate) fn with_id(&self, id: &str) -> &Element {
        let mut found = self.0.iter().filter(|element| element.attribute("id") == Some(id));
        let one = found.next().unwrap_or_else(|| panic!("nothing is called {id}"));
        assert!(found.next().is_none(), "{id} is there twice");
        one
    }
}

fn element(tag: &str, around: Vec<usize>) -> Element {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    let mut attributes = Vec::new();
    while let Some(begin) = rest.find(|letter: char| !letter.is_whitespace()) {
        rest = &rest[begin..];
        let end = rest.find([' ', '=']).unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(end);
        let value = after.strip_prefix("=\"").map(|quoted| quoted.split_once('"').expect("it is quoted"));
        let (value, after) = value.unwrap_or(("", after));
        attributes.push((attribute.to_owned(), decoded(value)));
        rest = after;
    }
    Element { name: name.to_owned(), attributes, text: String::new(), around }
}

fn decoded(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter))
}
