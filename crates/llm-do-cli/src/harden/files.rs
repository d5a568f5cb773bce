//! The files of a hardened name: what is written, in which order, and the way back. After each step the project can be used,
//! so that whoever is killed in the middle finds it whole.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use llm_do::files::{self, FileAccess};
use llm_do::program::{AgentSpec, AnswerMode, MANIFEST_NAME};
use llm_do::records::digest;
use serde_json::Value;

use super::manifest_text;
use super::records::Example;
use crate::failure::Failure;

/// Code that answers nothing, to find out whether code can run at all.
pub fn unsure(function: &str) -> String {
    format!("from llm_do import NotSure\n\n\ndef {function}(*values, **fields):\n    raise NotSure(\"only tried\")\n")
}

/// How the first line of a file begins that was written here.
const SEAL: &str = "# Written by `llm-do harden`";
const SEAL_DIGITS: usize = 16;

/// A text with a first line that tells later whether somebody has changed it.
pub fn sealed(body: &str) -> String {
    format!("{SEAL} ({}); change it as you like.\n{body}", seal(body))
}

fn seal(body: &str) -> String {
    digest([body]).chars().take(SEAL_DIGITS).collect()
}

/// Whether a file is as it was written here.
fn is_untouched(text: &str) -> bool {
    let Some((first, body)) = text.split_once('\n') else { return false };
    first.starts_with(SEAL) && first.contains(&format!("({})", seal(body)))
}

/// The word for a mode in files.
pub fn word(mode: AnswerMode) -> &'static str {
    match mode {
        AnswerMode::Agent => "agent",
        AnswerMode::Shadow => "shadow",
        AnswerMode::Fallback => "fallback",
        AnswerMode::Code => "code",
    }
}

/// Where the files of a name are, beneath the root of its project.
#[derive(Clone, Debug)]
pub struct HardenedFiles {
    pub root: PathBuf,
    pub name: String,
    pub function: String,
    /// The worker file, where it is when its agent is asked.
    pub worker: PathBuf,
    pub code: PathBuf,
    pub tests: PathBuf,
}

impl HardenedFiles {
    pub fn of(root: &Path, agent: &AgentSpec) -> Self {
        let worker = match agent.file.extension() {
            Some(ending) if ending == "softened" => agent.file.with_extension(""),
            Some(_) | None => agent.file.clone(),
        };
        let function = agent.name.replace('-', "_");
        let beside = |name: String| worker.parent().unwrap_or(Path::new("")).join(name);
        let code = match &agent.stand_in {
            Some(stand_in) => stand_in.file.clone(),
            None => beside(format!("{function}.py")),
        };
        let mut tests = beside(format!("{}.test.yaml", agent.name));
        let exists = |path: &Path| root.join(path).exists();
        if exists(&tests) && !std::fs::read_to_string(root.join(&tests)).is_ok_and(|text| is_untouched(&text)) {
            // The cases that are there already are somebody's own.
            tests = beside(format!("{}.recorded.test.yaml", agent.name));
        }
        Self { root: root.to_owned(), name: agent.name.clone(), function, worker, code, tests }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    pub fn resting(&self) -> PathBuf {
        let mut name = self.worker.as_os_str().to_owned();
        name.push(".softened");
        PathBuf::from(name)
    }

    fn manifest(&self) -> Result<String, Failure> {
        let path = self.at(Path::new(MANIFEST_NAME));
        std::fs::read_to_string(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
    }

    /// The manifest with the name as a toolset.
    pub fn hardened_manifest(&self, mode: AnswerMode) -> Result<String, Failure> {
        let quoted = |text: String| Value::from(text).to_string();
        let definition = format!(
            "{{\"python\": {}, \"mode\": \"{}\", \"approval\": \"allow\"}}",
            quoted(format!("{}:{}", self.code.display(), self.function)),
            word(mode)
        );
        manifest_text::with_toolset(&self.manifest()?, &self.name, &definition).ok_or_else(|| unwritable(&self.name))
    }

    /// Refuses what is there already and is somebody's own.
    pub fn check_free(&self) -> Result<(), Failure> {
        for path in [&self.code, &self.tests, &self.resting()] {
            if self.at(path).symlink_metadata().is_ok() {
                let fact = format!("{} is there already", path.display());
                return Err(Failure::usage(fact).hint("rename it or remove it: it would be written over"));
            }
        }
        Ok(())
    }

    /// `+ sorter.py (41 lines)`, and so on.
    pub fn told(&self, code: &str, cases: usize, mode: AnswerMode) -> String {
        let lines = code.lines().count();
        let mut text = format!(
            "+ {} ({lines} lines)   + {} ({cases} cases)   ~ {MANIFEST_NAME}",
            self.code.display(),
            self.tests.display()
        );
        if mode == AnswerMode::Code {
            let _ = write!(text, "   {} → {}", self.worker.display(), self.resting().display());
        }
        text.push('\n');
        text
    }

    /// Writes all of it. The manifest comes when all that it names is there; the worker file moves at last, since a project
    /// in whose manifest the code answers alone works with the file in either place. What fails is taken back.
    pub fn apply(&self, code: &str, tests: &str, mode: AnswerMode) -> Result<(), Failure> {
        let manifest = self.hardened_manifest(mode)?;
        let before = self.manifest()?;
        let wrote = (|| {
            write(&self.at(&self.code), code)?;
            write(&self.at(&self.tests), tests)?;
            write(&self.at(Path::new(MANIFEST_NAME)), &manifest)?;
            self.place_worker(mode)
        })();
        if wrote.is_err() {
            let _ = self.place_worker(AnswerMode::Agent);
            let _ = write(&self.at(Path::new(MANIFEST_NAME)), &before);
            let _ = std::fs::remove_file(self.at(&self.tests));
            let _ = std::fs::remove_file(self.at(&self.code));
        }
        wrote
    }

    /// Puts the worker file where the mode needs it.
    fn place_worker(&self, mode: AnswerMode) -> Result<(), Failure> {
        let (awake, resting) = (self.at(&self.worker), self.at(&self.resting()));
        let (from, to) = if mode == AnswerMode::Code { (awake, resting) } else { (resting, awake) };
        if from.symlink_metadata().is_err() {
            return Ok(());
        }
        std::fs::rename(&from, &to).map_err(|error| Failure::failed(format!("{}: {error}", from.display())))
    }

    /// Changes who answers. An agent is there before a mode asks it, and rests when none does any more.
    pub fn change_mode(&self, mode: AnswerMode) -> Result<(), Failure> {
        let changed = manifest_text::with_mode(&self.manifest()?, &self.name, word(mode));
        let changed = changed.ok_or_else(|| unwritable(&self.name))?;
        if mode != AnswerMode::Code {
            self.place_worker(mode)?;
        }
        write(&self.at(Path::new(MANIFEST_NAME)), &changed)?;
        self.place_worker(mode)
    }

    /// The way back: the worker file, the manifest, and then what was written and nobody has changed. What stays is told.
    pub fn soften(&self) -> Result<Vec<PathBuf>, Failure> {
        let without = manifest_text::without_toolset(&self.manifest()?, &self.name);
        let without = without.ok_or_else(|| unwritable(&self.name))?;
        self.place_worker(AnswerMode::Agent)?;
        write(&self.at(Path::new(MANIFEST_NAME)), &without)?;
        let recorded = self.tests.with_file_name(format!("{}.recorded.test.yaml", self.name));
        let mut kept = Vec::new();
        for path in [&self.code, &self.tests, &recorded] {
            let at = self.at(path);
            match std::fs::read_to_string(&at) {
                Ok(text) if is_untouched(&text) => {
                    std::fs::remove_file(&at).map_err(|error| Failure::failed(format!("{}: {error}", at.display())))?;
                }
                Ok(_) if path == &self.code => kept.push(path.clone()),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(kept)
    }
}

fn unwritable(name: &str) -> Failure {
    Failure::usage(format!("{MANIFEST_NAME} cannot be changed by a program at `toolsets.{name}`"))
        .hint("it is written otherwise than expected; change it by hand")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = files::replace_path(path, text.as_bytes(), FileAccess::of_path(path));
    written.map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

/// The records as cases.
pub fn cases(agent: &str, examples: &[&Example]) -> String {
    let mut text = format!("agent: {agent}\ncases:\n");
    for (index, example) in examples.iter().enumerate() {
        let said = match &example.input {
            Value::Object(fields) => fields.values().map(said).collect::<Vec<_>>().join(" "),
            other => said(other),
        };
        let words: String = said.split_whitespace().take(6).collect::<Vec<_>>().join(" ").chars().take(50).collect();
        let quoted = |text: &str| Value::from(text).to_string();
        let expected = match &example.output {
            Value::Object(_) => format!("json: {}", example.output),
            other => format!("equals: {other}"),
        };
        let _ = writeln!(
            text,
            "  - name: {}\n    from: {}\n    input: {}\n    expect:\n      output: {{ {expected} }}",
            quoted(format!("{:02} {words}", index + 1).trim_end()),
            quoted(&example.run),
            example.input,
        );
    }
    text
}

fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_tells_whether_somebody_changed_it() {
        let text = sealed("x = 1\n");
        assert!(is_untouched(&text));
        for other in [text.replace('1', "2"), format!("{text}\n"), "x = 1\n".to_owned(), String::new()] {
            assert!(!is_untouched(&other), "{other}");
        }
    }

    #[test]
    fn records_are_cases_that_can_be_read() {
        let example = |input: Value, output: Value| Example { input, output, run: "06gy3k9x7wqe4t2m".to_owned() };
        let examples = [
            example(json!({"change": "a \"b\"\nc # d"}), json!({"kind": "new"})),
            example(json!({"input": ""}), json!([1, "2"])),
            example(json!("x"), json!("y: z")),
        ];
        let text = cases("sorter", &examples.iter().collect::<Vec<_>>());
        let expected = "agent: sorter\ncases:\n  - name: \"01 a \\\"b\\\" c # d\"\n    from: \"06gy3k9x7wqe4t2m\"\n    \
                        input: {\"change\":\"a \\\"b\\\"\\nc # d\"}\n    expect:\n      output: { json: {\"kind\":\"new\"} }\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("      output: { equals: [1,\"2\"] }\n"), "{text}");
        assert!(text.ends_with("      output: { equals: \"y: z\" }\n"), "{text}");
    }
}
