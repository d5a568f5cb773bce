//! The cases of a project: found beside the files that they test, read only for whoever tests or checks, linked with the
//! project, and what they ask of whoever tests it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::load::TestLoader;
use super::{Code, Layout, Program, Project, ToolsetUse};
use crate::beneath;
use crate::escape::visible_start;
use crate::journal::digest::{digest, of_bytes};
use crate::syntax::claim::{Claim, ClaimClass};
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, FileId, Located, Report, Sources, Span};
use crate::syntax::names;
use crate::testing::case_file;
use crate::testing::{TEST_ENDING, TestFile};
use crate::tools::source::{BUILT_INS, ToolsetSource};

/// Beyond these a directory of records is none.
const MOST_RECORDS: usize = 100_000;
const LARGEST_RECORD: u64 = 64 * 1024 * 1024;

/// Files with cases as they were read.
struct ReadTests {
    files: Vec<(FileId, TestFile)>,
    sources: Sources,
    problems: Diagnostics,
}

impl Project {
    /// The same project with its cases. Their mistakes are reported with its own, and what they ask for needs trust beside
    /// what the project asks for: who tests it, agrees to both.
    #[must_use]
    pub fn with_tests(mut self) -> Self {
        let sources = std::mem::take(Arc::make_mut(&mut self.sources));
        let ReadTests { files, sources, problems } = self.read_tests(sources);
        self.sources = Arc::new(sources);
        self.problems.extend(problems);
        for (file, test) in files {
            self.test_claims.extend(self.claims_of(file, &test));
            self.tests.push(test);
        }
        self
    }

    /// The files with cases, where they were read.
    pub fn tests(&self) -> &[TestFile] {
        &self.tests
    }

    /// The files that it consists of, beneath its root: each scratch project has them.
    pub fn own_files(&self) -> BTreeSet<PathBuf> {
        let read = self.sources.iter().map(|file| file.path.strip_prefix(&self.root).unwrap_or(&file.path).to_owned());
        read.chain(self.python_files()).chain(self.stand_in_files()).collect()
    }

    /// What is wrong with the cases of a linked project, how many there are, and the agents that have none.
    pub fn inspect_tests(&self, program: &Program) -> (Report, usize, Vec<String>) {
        let ReadTests { files, sources, mut problems } = self.read_tests(Sources::default());
        let known = known_tools(program);
        let tested: BTreeSet<&str> = files.iter().map(|(_, file)| file.agent.as_str()).collect();
        for (_, file) in &files {
            check_tools(file, known.as_ref(), &mut problems);
        }
        let untested = program.agents.keys().filter(|name| !tested.contains(name.as_str())).cloned().collect();
        let cases = files.iter().map(|(_, file)| file.cases.len()).sum();
        (Report::new(Arc::new(sources), problems), cases, untested)
    }

    /// The same as mistakes, of the cases that were read with the project.
    pub fn test_mistakes(&self, program: &Program) -> Report {
        let mut problems = Diagnostics::default();
        let known = known_tools(program);
        self.tests.iter().for_each(|file| check_tools(file, known.as_ref(), &mut problems));
        Report::new(Arc::clone(&self.sources), problems)
    }

    fn read_tests(&self, sources: Sources) -> ReadTests {
        let mut loader = match TestLoader::open(self, sources) {
            Ok(loader) => loader,
            Err((sources, _)) => return ReadTests { files: Vec::new(), sources, problems: Diagnostics::default() },
        };
        let mut files = Vec::new();
        for (path, place) in self.test_paths(&mut loader) {
            let Some(file) = loader.add_source(&path, place) else { continue };
            let (text, mut problems) = (loader.text(file), Diagnostics::default());
            let test = case_file::parse(file, path.clone(), &stem_of(&path), &text, &mut problems);
            loader.problems().extend(problems);
            if let Some(test) = test {
                self.check_agents(file, &test, loader.problems());
                files.push((file, test));
            }
        }
        let (sources, problems) = loader.done();
        ReadTests { files, sources, problems }
    }

    /// Those beside worker and Python files, and those that the manifest lists; each once.
    fn test_paths(&self, loader: &mut TestLoader) -> BTreeMap<PathBuf, DiagnosticPlace> {
        let mut paths = BTreeMap::new();
        if matches!(self.layout, Layout::SingleFile) {
            for worker in &self.workers {
                let path = worker.path.with_extension(&TEST_ENDING[1..]);
                if loader.exists(&path) {
                    paths.insert(path.clone(), DiagnosticPlace::Path(self.root.join(path)));
                }
            }
            return paths;
        }
        let directory = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let mut directories: BTreeSet<PathBuf> = self.workers.iter().map(|worker| directory(&worker.path)).collect();
        directories.extend(self.python_files().iter().map(|path| directory(path)));
        for path in directories.iter().flat_map(|directory| loader.tests_in(directory)) {
            paths.insert(path.clone(), DiagnosticPlace::Path(self.root.join(path)));
        }
        if let Layout::Manifest(manifest) = &self.layout {
            for listed in &manifest.tests {
                if !listed.value.ends_with(TEST_ENDING) {
                    let fact = format!("`{}` is no test file", visible_start(&listed.value, 120));
                    let problem = Diagnostic::error(listed.span, fact);
                    loader.problems().push(problem.hint(format!("test files end in `{TEST_ENDING}`")));
                } else if let Some(path) = loader.beneath(listed) {
                    paths.insert(path, DiagnosticPlace::At(listed.span));
                }
            }
        }
        paths
    }

    /// Names of agents in a file with cases that no agent has.
    fn check_agents(&self, file: FileId, test: &TestFile, problems: &mut Diagnostics) {
        let names: BTreeSet<&str> = self.workers.iter().map(|worker| worker.worker.name.value.as_str()).collect();
        let is_known = |name: &str| names.contains(name) || self.broken.contains(name);
        let unknown = |name: &str, span: Span, known: &BTreeSet<&str>| {
            let fact = format!("there is no agent `{}` to test", visible_start(name, 80));
            Diagnostic::error(span, fact).hint(names::instead(name, "agents", known.iter().copied()))
        };
        // What Python defines under its name may be tested as well.
        let may_be_code = !matches!(self.code, Code::Absent);
        if !is_known(&test.agent) && !may_be_code {
            let start = Span { file, start: 0, end: 0 };
            problems.push(unknown(&test.agent, test.agent_at.unwrap_or(start), &names));
        }
        for judge in test.cases.iter().filter_map(|case| case.names.judge.as_ref()) {
            if !is_known(&judge.value) {
                problems.push(unknown(&judge.value, judge.span, &names));
            }
        }
    }

    /// What cases ask for: their `approve`, and the content of their records, which decide what is called.
    fn claims_of(&self, file: FileId, test: &TestFile) -> Vec<Located<Claim>> {
        let owner = format!("tests of `{}`", test.agent);
        let approvals = test.claims.iter().cloned().map(|located| {
            let Located { value, span } = located;
            value.of(owner.clone()).at(span)
        });
        let records = records_of(&test.path);
        let start = Span { file, start: 0, end: 0 };
        let content = match content_of(&self.root.join(&records)) {
            Ok(None) => None,
            Ok(Some(content)) => Some(content),
            // What cannot be read now is not agreed to as it will be.
            Err(error) => Some(format!("unreadable: {error}")),
        };
        let content = content.map(|content| {
            let words = format!("whatever {} lets its tests call", records.display());
            Claim::text(ClaimClass::Allow, words).with([content]).of(owner.clone()).at(start)
        });
        approvals.chain(content).collect()
    }
}

/// The directory of the records of a file with cases: `notes.test.records`.
pub fn records_of(path: &Path) -> PathBuf {
    path.with_extension("records")
}

/// A digest of all records in a directory, by their names; nothing if there are none.
fn content_of(directory: &Path) -> io::Result<Option<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        if files.len() >= MOST_RECORDS {
            return Err(io::Error::other(format!("more than {MOST_RECORDS} records")));
        }
        files.insert(name, of_bytes(&beneath::read_regular(&entry.path(), LARGEST_RECORD)?));
    }
    let parts = files.iter().flat_map(|(name, content)| [name.as_str(), content.as_str()]);
    Ok(if files.is_empty() { None } else { Some(digest(parts)) })
}

/// The agent that a file with cases tests if it does not say: `notes` of `notes.test.yaml`.
fn stem_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(TEST_ENDING).unwrap_or(name).to_owned()
}

/// Every tool that a case may name; nothing if some are not known.
fn known_tools(program: &Program) -> Option<BTreeSet<String>> {
    let mut known: BTreeSet<String> = program.agents.keys().cloned().collect();
    let built_in = BUILT_INS.iter().filter_map(|toolset| {
        let source = (toolset.source)();
        Some(source.declared_tools()?.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>())
    });
    known.extend(built_in.flatten());
    for agent in program.agents.values() {
        let creates = |used: &ToolsetUse| matches!(used.source.origin(), ToolsetSource::DynamicAgents(_));
        if agent.toolsets.iter().any(creates) {
            return None;
        }
        for tool in program.tools_of(agent) {
            if tool.name == "*" {
                return None;
            }
            known.insert(tool.name.into_owned());
        }
    }
    Some(known)
}

fn check_tools(file: &TestFile, known: Option<&BTreeSet<String>>, problems: &mut Diagnostics) {
    let Some(known) = known else { return };
    for tool in file.cases.iter().flat_map(|case| &case.names.tools).filter(|tool| !known.contains(&tool.value)) {
        let fact = format!("there is no tool `{}`", visible_start(&tool.value, 80));
        let hint = names::instead(&tool.value, "tools", known.iter().map(String::as_str));
        problems.push(Diagnostic::error(tool.span, fact).hint(hint));
    }
}
