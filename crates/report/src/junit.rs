//! JUnit reports for CI servers: a test case for each expectation, and one for the run itself if it failed otherwise.

#[derive(Debug)]
pub struct Suite {
    name: String,
    cases: Vec<TestCase>,
}

#[derive(Debug)]
pub struct TestCase {
    class: String,
    name: String,
    seconds: f64,
    /// The expected and the measured value.
    failure: Option<String>,
}

impl TestCase {
    /// `seconds` is the duration of the measurement.
    pub fn expectation(
        class: String,
        text: &str,
        measured: Option<&str>,
        is_met: bool,
        seconds: f64,
    ) -> Self {
        let measured =
            measured.map_or_else(|| "nothing was measured".to_owned(), |value| format!("measured {value}"));
        let failure = (!is_met).then(|| format!("expected {text}, {measured}"));
        Self { class, name: text.to_owned(), seconds, failure }
    }
}

impl Suite {
    /// Makes a suite with these expectations.
    ///
    /// `problem` is another reason for which the run fails. It becomes a case, because a suite has to fail whenever its
    /// run does. Without expectations there is this case, too: a file without cases looks like a run that did nothing.
    pub fn new(name: &str, seconds: f64, mut cases: Vec<TestCase>, problem: Option<&str>) -> Self {
        if problem.is_some() || cases.is_empty() {
            let failure = problem.map(|why| format!("expected a complete and valid run, but {why}"));
            cases.push(TestCase { class: name.to_owned(), name: "the run".to_owned(), seconds, failure });
        }
        Self { name: name.to_owned(), cases }
    }

    pub fn has_failed(&self) -> bool {
        self.failures() > 0
    }

    fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.failure.is_some()).count()
    }

    pub fn xml(&self) -> String {
        let seconds: f64 = self.cases.iter().map(|case| case.seconds).sum();
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" time=\"{seconds:.3}\">\n",
            escaped(&self.name),
            self.cases.len(),
            self.failures()
        );
        for TestCase { class, name, seconds, failure } in &self.cases {
            let (class, name) = (escaped(class), escaped(name));
            out += &format!("  <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\"");
            out += &match failure {
                None => "/>\n".to_owned(),
                Some(failure) => {
                    format!(">\n    <failure message=\"{}\"/>\n  </testcase>\n", escaped(failure))
                }
            };
        }
        out + "</testsuite>\n"
    }
}

/// Escapes an attribute. XML has no control characters (XML 1.0 §2.2), and reads a line break here as a space.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str, is_met: bool) -> TestCase {
        TestCase::expectation("tiny.vanward".to_owned(), text, Some("60 ms"), is_met, 1.5)
    }

    #[test]
    fn a_failure_says_what_was_expected_and_measured_and_how_long_it_took() {
        let text =
            Suite::new("a & b", 3.0, vec![case("errors = 0", true), case("p99 < 50ms", false)], None).xml();
        for part in [
            "name=\"a &amp; b\" tests=\"2\" failures=\"1\" time=\"3.000\"",
            "classname=\"tiny.vanward\" name=\"errors = 0\" time=\"1.500\"/>",
            "name=\"p99 &lt; 50ms\" time=\"1.500\">\n    <failure message=\"expected p99 &lt; 50ms, measured 60 ms\"/>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_suite_fails_whenever_its_run_does() {
        for (cases, problem, tests, failures) in [
            (vec![], None, 1, 0),
            (vec![case("a", true)], None, 1, 0),
            (vec![case("a", false)], None, 1, 1),
            (vec![], Some("it was late"), 1, 1),
            (vec![case("a", true)], Some("it was late"), 2, 1),
            (vec![case("a", false)], Some("it was late"), 2, 2),
        ] {
            let suite = Suite::new("run", 1.0, cases, problem);
            assert_eq!((suite.cases.len(), suite.failures()), (tests, failures), "{suite:?}");
            assert_eq!(suite.has_failed(), failures > 0);
        }
    }

    #[test]
    fn what_a_program_printed_is_well_formed() {
        let text = Suite::new("run", 1.0, Vec::new(), Some("\u{1b}[1m\"a\"\0\nb")).xml();
        assert!(text.contains("but \u{fffd}[1m&quot;a&quot;\u{fffd}&#10;b\"/>"), "{text}");
    }
}
