//! Reads and writes the files of a lab run. The crate `report` renders their content.

use std::fs::{self, File};
use std::io::{BufReader, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use report::chart::Theme;
use report::export::Plot;
use report::{Results, Summary, export, markdown, page};

use super::features;

/// Maximum size of a results file, far above that of the largest matrix.
const RESULTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
const RESULTS: &str = "results.json";
/// Compressed results need a fifth of the space.
const RESULTS_GZIPPED: &str = "results.json.gz";
const EARLIER: [&str; 2] = [RESULTS, RESULTS_GZIPPED];

const JUNIT: &str = "junit.xml";

/// Directory of a run, for its results and reports.
pub(super) struct RunFolder {
    path: PathBuf,
    /// Whether it has results of an earlier run, which new ones must not replace.
    has_earlier: bool,
}

impl RunFolder {
    /// Creates the directory, and checks before the measurement that files can be written there. Removes the
    /// verdict of an earlier run, so that it is not taken for that of an interrupted run. With `is_resumed`,
    /// earlier results are replaced.
    pub(super) fn open(path: &Path, is_resumed: bool) -> Result<Self, String> {
        fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
        put(path, JUNIT, "")?;
        let junit = path.join(JUNIT);
        fs::remove_file(&junit).map_err(|error| failed(&junit, &error))?;
        let has_earlier = !is_resumed && EARLIER.iter().any(|name| path.join(name).exists());
        Ok(Self { path: path.to_owned(), has_earlier })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the results file. Earlier results are moved to a separate directory, once the new ones are on disk.
    pub(super) fn keep(&mut self, results: &str) -> Result<(), String> {
        let beside = write_beside(&self.path, RESULTS, results)?;
        if self.has_earlier {
            if let Err(message) = set_aside(&self.path) {
                let _ = fs::remove_file(&beside);
                return Err(message);
            }
            self.has_earlier = false;
        }
        put_in_place(&self.path, RESULTS, &beside)
    }

    /// Writes all files of a lab run except its verdict; each chart also as files in these themes.
    ///
    /// The results are written first, because they matter most on an almost full disk.
    pub(super) fn write(
        &mut self,
        results: &Results,
        summary: &Summary<'_>,
        themes: &[Theme],
    ) -> Result<(), String> {
        self.keep(&results.to_json())?;
        write_reports(&self.path, results, summary, themes)
    }

    pub(super) fn write_demo(&mut self, results: &Results, summary: &Summary<'_>) -> Result<(), String> {
        self.keep(&results.to_json())?;
        write_page(&self.path, summary)
    }

    pub(super) fn write_resilience(&mut self, results: &report::resilience::Results) -> Result<(), String> {
        self.keep(&results.to_json())?;
        write_resilience_page(&self.path, results)
    }

    /// Writes the JUnit file. It comes last, so that its verdict includes all other files and the printed output.
    pub(super) fn judge(&self, junit: &str) -> Result<(), String> {
        judge(&self.path, junit)
    }
}

pub(super) fn judge(folder: &Path, junit: &str) -> Result<(), String> {
    put(folder, JUNIT, junit)
}

/// Moves the results of an earlier run to the first free `earlier-N`. Their reports can be rendered again.
fn set_aside(folder: &Path) -> Result<(), String> {
    let aside = (1..).map(|number| folder.join(format!("earlier-{number}"))).find(|path| !path.exists());
    let aside = aside.expect("some number is free");
    fs::create_dir(&aside).map_err(|error| failed(&aside, &error))?;
    for name in EARLIER {
        match fs::rename(folder.join(name), aside.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&aside, &error)),
            _ => {}
        }
    }
    super::say(format_args!("{} had results already: they are in {} now", folder.display(), aside.display()));
    Ok(())
}

/// Writes everything except the results and the verdict.
pub(super) fn write_reports(
    folder: &Path,
    results: &Results,
    summary: &Summary<'_>,
    themes: &[Theme],
) -> Result<(), String> {
    put(folder, "report.md", markdown::render(summary))?;
    put(folder, "results.csv", export::csv(results))?;
    let texts =
        |files: Vec<(String, String)>| files.into_iter().map(|(name, text)| (name, text.into_bytes()));
    put_folder(folder, "latency", texts(export::distributions(summary)))?;
    put_folder(folder, "usage", texts(export::collections(summary)))?;
    if !themes.is_empty() {
        let plots = export::plots(summary, themes);
        put_folder(folder, "plots", plots.iter().flat_map(drawn))?;
        if let Some(missing) = features::PICTURES.missing() {
            super::say(format_args!("plots are SVG alone: {missing}"));
        }
    }
    // The page has a size limit and may fail; the others cannot.
    write_page(folder, summary)
}

/// Renders a plot as SVG, and in a build with pictures also as PNG.
fn drawn(plot: &Plot) -> impl Iterator<Item = (String, Vec<u8>)> {
    let svg = std::iter::once((format!("{}.svg", plot.name), plot.svg().into_bytes()));
    #[cfg(feature = "pictures")]
    let svg = svg.chain(plot.png().map(|png| (format!("{}.png", plot.name), png)));
    svg
}

/// Replaces a folder of files. Otherwise files of cases that only an earlier run had would seem to belong to this one.
fn put_folder(
    folder: &Path,
    name: &str,
    files: impl Iterator<Item = (String, Vec<u8>)>,
) -> Result<(), String> {
    let inside = folder.join(name);
    match fs::remove_dir_all(&inside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&inside, &error)),
        _ => {}
    }
    let mut files = files.peekable();
    if files.peek().is_some() {
        make(&inside)?;
    }
    files.try_for_each(|(name, content)| put(&inside, &name, content))
}

pub(super) fn write_page(folder: &Path, summary: &Summary<'_>) -> Result<(), String> {
    let page = page::render(summary).map_err(|error| error.to_string())?;
    put(folder, "report.html", page)
}

pub(super) fn write_resilience_page(
    folder: &Path,
    results: &report::resilience::Results,
) -> Result<(), String> {
    let page = report::resilience::page(results).map_err(|error| error.to_string())?;
    put(folder, "report.html", page)
}

pub(super) enum SavedResults {
    Lab(Box<Results>),
    Resilience(Box<report::resilience::Results>),
}

/// Reads the results of an experiment or of a resilience run.
pub(super) fn read_kept(at: &Path) -> Result<SavedResults, String> {
    let (path, text) = read_text(at)?;
    // Their fields differ, so neither is parsed as the other.
    match Results::from_json(&text) {
        Ok(results) => Ok(SavedResults::Lab(Box::new(results))),
        Err(error) => match report::resilience::Results::from_json(&text) {
            Ok(results) => Ok(SavedResults::Resilience(Box::new(results))),
            Err(_) => Err(format!("cannot read {}: {error}", path.display())),
        },
    }
}

/// Reads the results in a directory or a file, also if compressed with gzip.
pub(super) fn read_results(at: &Path) -> Result<Results, String> {
    let (path, text) = read_text(at)?;
    Results::from_json(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub(super) fn has_results(at: &Path) -> bool {
    results_file(at).exists()
}

/// The file with the results of a directory, or the file itself.
fn results_file(at: &Path) -> PathBuf {
    let (plain, gzipped) = (at.join(RESULTS), at.join(RESULTS_GZIPPED));
    match at.is_dir() {
        true if gzipped.exists() && !plain.exists() => gzipped,
        true => plain,
        false => at.to_owned(),
    }
}

fn read_text(at: &Path) -> Result<(PathBuf, String), String> {
    let path = results_file(at);
    let text = if path.extension().is_some_and(|extension| extension == "gz") {
        let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
        read_from(&path, MultiGzDecoder::new(BufReader::new(file)), RESULTS_BYTES_MAX)?
    } else {
        read(&path, RESULTS_BYTES_MAX)?
    };
    Ok((path, text))
}

/// Reads a text file of at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<String, String> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    read_from(path, file, most)
}

/// Reads at most `most` bytes, so that neither a device nor a compressed file can fill the memory.
fn read_from(path: &Path, content: impl Read, most: u64) -> Result<String, String> {
    let mut text = String::new();
    content.take(most + 1).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > most {
        return Err(format!("{} is larger than {most} bytes, so it is not such a file", path.display()));
    }
    Ok(text)
}

fn unreadable(path: &Path, error: &Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::UnexpectedEof => "; the file is incomplete: copy it again",
        _ => "",
    };
    format!("cannot read {}: {error}{remedy}", path.display())
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// Writes a file under another name, then renames it: on a full disk, the previous file stays intact.
fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<(), String> {
    let beside = write_beside(folder, name, content)?;
    put_in_place(folder, name, &beside)
}

/// Writes the content of a file under another name, which it returns.
fn write_beside(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, String> {
    let beside = folder.join(format!("{name}.part"));
    fs::write(&beside, content).map_err(|error| {
        let _ = fs::remove_file(&beside);
        failed(&folder.join(name), &error)
    })?;
    Ok(beside)
}

fn put_in_place(folder: &Path, name: &str, beside: &Path) -> Result<(), String> {
    let path = folder.join(name);
    fs::rename(beside, &path).map_err(|error| {
        let _ = fs::remove_file(beside);
        failed(&path, &error)
    })
}

fn failed(path: &Path, error: &Error) -> String {
    format!(
        "cannot write {}: {error}; check the free space, or choose another folder with --out",
        path.display()
    )
}
