//! Lists as JSON, from another program of this version, such as the lab, which has read and checked them.

use super::ListReading;
use crate::listed::Listed;
use crate::url::Url;

pub(super) fn read(reading: &mut ListReading<'_>) {
    let listed: Vec<Listed> = match serde_json::from_str(reading.source.text) {
        Ok(listed) => listed,
        Err(error) => return reading.wrong(&(0..0), format!("this is not a list of requests: {error}")),
    };
    for mut request in listed {
        if let (true, Some(base)) = (request.url.starts_with('/'), reading.source.base) {
            request.url.insert_str(0, super::draft::authority(base));
        }
        if let Err(reason) = Url::parse(&request.url) {
            let message =
                format!("{}: URL {:?}: {reason}", request.place, crate::url::shortened(&request.url));
            return reading.wrong(&(0..0), message);
        }
        reading.add(request, &(0..0));
        if reading.is_full() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ListFormat, RequestSource, here, hosts, parse};

    #[test]
    fn what_was_handed_over_is_what_was_read_at_another_host() {
        let file = |_: &str| Err("none".to_owned());
        let source =
            |text, base| RequestSource { text, file: "r", base, hosts: &[], given: &[], read: &file };
        let toml = "[[request]]\npath = \"/a\"\nweight = 3\nbody = \"hi\"\n[[request]]\nurl = \"http://b:8/c?d#e\"\n";
        let mut listed = parse(ListFormat::Toml, &source(toml, Some("http://a/"))).expect("a list");
        assert_eq!(hosts(&listed), ["http://a", "http://b:8"]);
        listed.iter_mut().for_each(here);
        assert_eq!((listed[0].url.as_str(), listed[1].url.as_str()), ("/a", "/c?d#e"));
        let text = serde_json::to_string(&listed).expect("JSON");
        let again =
            parse(ListFormat::Handed, &source(&text, Some("http://127.0.0.1:1/x"))).expect("the list");
        assert_eq!(again[1].url, "http://127.0.0.1:1/c?d#e");
        assert_eq!(
            (again[0].weight, again[0].body.as_slice(), again[0].place.as_str()),
            (3, &b"hi"[..], "r:1:1")
        );
        for text in ["", "[{}]", "[]", "[{\"url\": \"/x\", \"weight\": 1}]"] {
            assert!(parse(ListFormat::Handed, &source(text, None)).is_err(), "{text}");
        }
    }
}
