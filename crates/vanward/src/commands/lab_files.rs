//! Reads and writes the files of a lab run. The crate `report` makes their content.

use std::fs::{self, File};
use std::io::{BufReader, Error, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use report::{Results, Summary, chart, export, markdown, page};

/// Maximum size of a results file, far above that of the largest matrix.
const RESULTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Name of the results file.
const RESULTS: &str = "results.json";
/// Name of a results file compressed with gzip, which needs a fifth of the space.
const RESULTS_GZIPPED: &str = "results.json.gz";

/// Writes all files of a run; `plots` adds a file for each chart.
///
/// The results are written first, because they matter most on a disk that is nearly full.
pub(super) fn write(
    folder: &Path,
    results: &Results,
    summary: &Summary<'_>,
    plots: bool,
) -> Result<(), String> {
    make(folder)?;
    keep(folder, results)?;
    put(folder, "report.md", &markdown::render(summary))?;
    put(folder, "results.csv", &export::csv(results))?;
    if !results.expectations.is_empty() {
        put(folder, "junit.xml", &::lab::expect::junit(&results.title, &results.expectations))?;
    }
    let mut folders =
        vec![("latency", export::distributions(summary)), ("usage", export::collections(summary))];
    folders.extend(plots.then(|| ("plots", export::plots(summary, &[chart::LIGHT, chart::DARK]))));
    for (name, files) in folders {
        let inside = folder.join(name);
        // What an earlier run left of cases that this one has not would be taken for its own.
        match fs::remove_dir_all(&inside) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(&inside, &error));
            }
            _ => {}
        }
        if !files.is_empty() {
            make(&inside)?;
        }
        for (name, text) in files {
            put(&inside, &name, &text)?;
        }
    }
    // The one that can be too much: a page has an end, the others have not.
    let page = page::render(summary).map_err(|error| error.to_string())?;
    put(folder, "report.html", &page)
}

/// Writes the results file.
pub(super) fn keep(folder: &Path, results: &Results) -> Result<(), String> {
    put(folder, RESULTS, &results.to_json())
}

/// Reads the results of a directory or a file, also if compressed with gzip.
pub(super) fn read_results(at: &Path) -> Result<Results, String> {
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
    Results::from_json(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))
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
fn put(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let (path, beside) = (folder.join(name), folder.join(format!("{name}.part")));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
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
