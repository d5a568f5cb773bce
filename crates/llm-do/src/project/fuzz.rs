//! What must hold for any bytes at all, as plain functions: the property tests and the fuzzer drive the same ones. They
//! panic when something does not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reach::Graph;
use super::worker::{Format, WorkerFile, render};
use super::{Code, Layout, LoadedWorker, Project, manifest, worker};
use crate::escape::deceives;
use crate::model::name::ModelChoices;
use crate::syntax::diagnostic::{Colour, DiagnosticPlace, Diagnostics, FileId, Report, Sources, Span};

/// A manifest is read, linked and reported on, whatever its bytes.
pub fn manifest(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (sources, file) = source(text);
    let mut problems = Diagnostics::default();
    let manifest = manifest::parse(file, text, &mut problems);
    check_places(text, &problems);
    let layout = manifest.map_or(Layout::Unreadable, |manifest| Layout::Manifest(Box::new(manifest)));
    check_linking(&project(layout, Vec::new(), Code::Unread, sources, problems), text);
}

/// A worker file is read, linked and reported on, whatever its bytes; what is good survives being written and read.
pub fn worker(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for format in [Format::FrontMatter, Format::Yaml] {
        let (sources, file) = source(text);
        let mut problems = Diagnostics::default();
        let worker = worker::parse(file, "fuzzed", text, format, &mut problems);
        check_places(text, &problems);
        assert!(worker.is_some() || problems.has_errors(), "no worker, and nobody said why");
        if let Some(worker) = worker.as_ref().filter(|_| !problems.has_errors()) {
            check_round_trip(worker);
        }
        let workers =
            worker.into_iter().map(|worker| LoadedWorker { path: "fuzzed".into(), worker, rests: false }).collect();
        check_linking(&project(Layout::SingleFile, workers, Code::Absent, sources, problems), text);
    }
}

/// A worker file that is written in either format and read again is the same.
pub fn check_round_trip(worker: &WorkerFile) {
    for format in [Format::FrontMatter, Format::Yaml] {
        let text = render(worker, format);
        let (_, file) = source(&text);
        let mut problems = Diagnostics::default();
        let read = worker::parse(file, "fuzzed", &text, format, &mut problems);
        assert!(!problems.has_errors(), "{problems:?} in\n{text}");
        // What needs trust is made from the keys as they are written, so a worker that was never written has none of it.
        let read = read.map(|read| WorkerFile { claims: worker.claims.clone(), ..read });
        assert_eq!(read.as_ref(), Some(worker), "\n{text}");
    }
}

fn source(text: &str) -> (Sources, FileId) {
    let mut sources = Sources::default();
    let file = sources.add("fuzzed".into(), text.to_owned());
    (sources, file)
}

fn project(layout: Layout, workers: Vec<LoadedWorker>, code: Code, sources: Sources, problems: Diagnostics) -> Project {
    Project {
        root: "root".into(),
        shown_root: "root".into(),
        directory: crate::tools::working_directory::WorkingDirectory::of_process(),
        layout,
        workers,
        references: BTreeMap::new(),
        outside: super::skills::OutsideTexts::default(),
        broken: BTreeSet::new(),
        generated: BTreeMap::new(),
        code,
        offered: BTreeMap::new(),
        registry: crate::tools::function::Registry::default(),
        programs: Vec::new(),
        tests: Vec::new(),
        test_claims: Vec::new(),
        sources: Arc::new(sources),
        problems,
    }
}

/// Every place is a range of the text, between characters.
fn check_places(text: &str, problems: &Diagnostics) {
    for problem in problems.iter() {
        let place = match problem.place {
            DiagnosticPlace::At(span) => Some(span),
            DiagnosticPlace::Path(_) | DiagnosticPlace::Outside => None,
        };
        for Span { start, end, .. } in place.into_iter().chain(problem.related.as_ref().map(|(span, _)| *span)) {
            assert!(text.get(start..end).is_some(), "{start}..{end} of {}: {problem:?}", text.len());
        }
    }
}

fn check_linking(project: &Project, text: &str) {
    let models = ModelChoices::of("ollama:fallback").unwrap_or_default();
    let report = match project.survey(&models, None) {
        Ok(linked) => {
            let graph = Graph::new(&linked.program);
            graph.worst_cases();
            graph.cyclic();
            linked.notes
        }
        Err(report) => report,
    };
    check_report(&report, text);
}

/// A report cannot paint over itself, and its places are lines of the text.
fn check_report(report: &Report, text: &str) {
    let shown = report.render(Colour::Plain);
    assert!(!shown.chars().any(|c| c != '\n' && deceives(c)), "{shown:?}");
    let json = serde_json::to_value(report.json()).expect("a report is JSON");
    let lines = text.matches('\n').count() as u64 + 1;
    for problem in json.as_array().into_iter().flatten() {
        assert!(problem["line"].as_u64().is_none_or(|line| (1..=lines).contains(&line)), "{problem}");
    }
}
