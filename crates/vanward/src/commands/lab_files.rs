//! Reads and writes the files of a lab run. The crate `report` makes their content.

use std::fs::{self, File};
use std::io::{BufReader, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use report::chart::Theme;
use report::export::Plot;
use report::{Results, Summary, export, markdown, page};

/// Maximum size of a results file, far above that of the largest matrix.
const RESULTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Name of the results file.
const RESULTS: &str = "results.json";
/// Name of a results file compressed with gzip, which needs a fifth of the space.
const RESULTS_GZIPPED: &str = "results.json.gz";

/// Writes all files of a run; each chart also as files for these themes.
///
/// The results are written first, because they matter most on a disk that is nearly full.
pub(super) fn write(
    folder: &Path,
    results: &Results,
    summary: &Summary<'_>,
    themes: &[Theme],
) -> Result<(), String> {
    make(folder)?;
    keep(folder, results)?;
    write_reports(folder, results, summary, themes)
}

/// Writes everything but the results.
pub(super) fn write_reports(
    folder: &Path,
    results: &Results,
    summary: &Summary<'_>,
    themes: &[Theme],
) -> Result<(), String> {
    put(folder, "report.md", markdown::render(summary))?;
    put(folder, "results.csv", export::csv(results))?;
    if !results.expectations.is_empty() {
        put(folder, "junit.xml", ::lab::expect::junit(&results.title, &results.expectations))?;
    }
    let texts =
        |files: Vec<(String, String)>| files.into_iter().map(|(name, text)| (name, text.into_bytes()));
    put_folder(folder, "latency", texts(export::distributions(summary)))?;
    put_folder(folder, "usage", texts(export::collections(summary)))?;
    if !themes.is_empty() {
        let plots = export::plots(summary, themes);
        let drawn = |plot: &Plot| {
            let png = plot.png().map(|png| (format!("{}.png", plot.name), png));
            std::iter::once((format!("{}.svg", plot.name), plot.svg().into_bytes())).chain(png)
        };
        put_folder(folder, "plots", plots.iter().flat_map(drawn))?;
    }
    // The one that can be too much: a page has an end, the others have not.
    write_page(folder, summary)
}

/// Writes files into a folder of their own. What an earlier run left there of cases that this one has not would be taken
/// for its own.
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

/// Writes the page.
pub(super) fn write_page(folder: &Path, summary: &Summary<'_>) -> Result<(), String> {
    let page = page::render(summary).map_err(|error| error.to_string())?;
    put(folder, "report.html", page)
}

/// Writes the files of a resilience run.
pub(super) fn write_resilience(folder: &Path, results: &report::resilience::Results) -> Result<(), String> {
    make(folder)?;
    put(folder, RESULTS, results.to_json())?;
    let required = results.expectations.iter().filter(|each| each.is_required);
    let cases: Vec<_> = required
        .map(|each| report::results::Expectation {
            text: each.text.clone(),
            proxy: each.proxy.clone(),
            case: each.phase.clone(),
            measured: each.measured.clone(),
            is_met: each.is_met,
        })
        .collect();
    put(folder, "junit.xml", ::lab::expect::junit(&results.title, &cases))?;
    write_resilience_page(folder, results)
}

/// Writes the page of a resilience run.
pub(super) fn write_resilience_page(
    folder: &Path,
    results: &report::resilience::Results,
) -> Result<(), String> {
    let page = report::resilience::page(results).map_err(|error| error.to_string())?;
    put(folder, "report.html", page)
}

/// Writes the results file.
pub(super) fn keep(folder: &Path, results: &Results) -> Result<(), String> {
    put(folder, RESULTS, results.to_json())
}

/// Results of either kind.
pub(super) enum Kept {
    Lab(Box<Results>),
    Resilience(Box<report::resilience::Results>),
}

/// Reads the results of an experiment or of a resilience run.
pub(super) fn read_kept(at: &Path) -> Result<Kept, String> {
    let (path, text) = read_text(at)?;
    // Their fields differ: what one kind is read as is not the other.
    match Results::from_json(&text) {
        Ok(results) => Ok(Kept::Lab(Box::new(results))),
        Err(error) => match report::resilience::Results::from_json(&text) {
            Ok(results) => Ok(Kept::Resilience(Box::new(results))),
            Err(_) => Err(format!("cannot read {}: {error}", path.display())),
        },
    }
}

/// Reads the results of a directory or a file, also if compressed with gzip.
pub(super) fn read_results(at: &Path) -> Result<Results, String> {
    let (path, text) = read_text(at)?;
    Results::from_json(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read_text(at: &Path) -> Result<(PathBuf, String), String> {
    let (plain, gzipped) = (at.join(RESULTS), at.join(RESULTS_GZIPPED));
    let path = match at.is_dir() {
        true if gzipped.exists() && !plain.exists() => gzipped,
        true => plain,
        false => at.to_owned(),
    };
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
        return Err(format!("{} is larger than {most} bytes: it is not what it should be", path.display()));
    }
    Ok(text)
}

fn unreadable(path: &Path, error: &Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::UnexpectedEof => "; it is not whole: copy it again",
        _ => "",
    };
    format!("cannot read {}: {error}{remedy}", path.display())
}

/// Creates a directory if it does not exist.
pub(super) fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// Writes a file under another name, then renames it: on a full disk, the previous file stays intact.
fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<(), String> {
    let (path, beside) = (folder.join(name), folder.join(format!("{name}.part")));
    let written = fs::write(&beside, content).and_then(|()| fs::rename(&beside, &path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        failed(&path, &error)
    })
}

fn failed(path: &Path, error: &Error) -> String {
    format!(
        "cannot write {}: {error}; check the free space, or choose another folder with --out",
        path.display()
    )
}
