//! Which Python runs a project's files, and what it sees.

use llm_do::WorkingDirectory;
use llm_do::fence::FenceConfig;
use llm_do::python::{CompiledStore, Python, Tracebacks};
use std::path::{Path, PathBuf};

use crate::children;
use crate::config::Config;
use crate::settings::Variables;

/// What was decided about Python before the project was read.
#[derive(Clone, Debug, Default)]
pub struct PythonPlan {
    named: Option<PathBuf>,
    variables: Variables,
    /// Variables of the configuration that hold keys.
    keys: Vec<String>,
    tracebacks: Tracebacks,
}

impl PythonPlan {
    pub fn of(named: Option<PathBuf>, environment: &Variables, config: &Config) -> Self {
        Self {
            named,
            variables: environment.clone(),
            keys: children::configured_keys(config),
            tracebacks: Tracebacks::Nothing,
        }
    }

    /// With `--debug`.
    #[must_use]
    pub fn telling(self, tracebacks: Tracebacks) -> Self {
        Self { tracebacks, ..self }
    }

    /// Whether the whole of each exception is told.
    pub fn tells_tracebacks(&self) -> bool {
        self.tracebacks == Tracebacks::Whole
    }

    /// The interpreter that was named, as it was typed.
    pub fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// The same with this interpreter, if one is named.
    #[must_use]
    pub fn naming(self, named: Option<PathBuf>) -> Self {
        Self { named, ..self }
    }

    /// For a project with this root, which may ask to be put behind a fence. It works in this directory.
    pub fn python(
        &self,
        root: &Path,
        compiled: Option<CompiledStore>,
        fence: &FenceConfig,
        directory: &WorkingDirectory,
    ) -> Python {
        let program = match &self.named {
            Some(named) => directory.program(named),
            None => {
                let found = interpreter(root, self.variables.get("VIRTUAL_ENV"));
                // It was found from where the process is; a bare name is looked for later.
                if found.exists() { directory.import(&found).unwrap_or(found) } else { found }
            }
        };
        Python {
            program,
            environment: children::seen(&self.variables, &self.keys),
            directory: directory.clone(),
            compiled,
            tracebacks: self.tracebacks,
            fence: fence.clone(),
        }
    }
}

/// Which interpreter a project uses: that of its own environment, that of the active one, or
/// the first on the path.
fn interpreter(root: &Path, virtual_env: Option<&str>) -> PathBuf {
    let of = |environment: &Path| environment.join("bin").join("python");
    let own = of(&root.join(".venv"));
    let active = virtual_env.map(|path| of(Path::new(path)));
    std::iter::once(own).chain(active).find(|program| program.exists()).unwrap_or_else(|| PathBuf::from("python3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_named_one_the_projects_the_active_one_or_the_first_on_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let make = |environment: &str| {
            let bin = directory.path().join(environment).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("python"), "").unwrap();
            bin.join("python")
        };
        let active = make("active");
        let path = directory.path().join("active").to_str().unwrap().to_owned();
        let environment = Variables::of([("VIRTUAL_ENV", path.as_str())]);
        let chosen = |named: Option<&str>, environment: &Variables| {
            let plan = PythonPlan::of(named.map(PathBuf::from), environment, &Config::default());
            plan.python(directory.path(), None, &FenceConfig::default(), &WorkingDirectory::of_process()).program
        };
        assert_eq!(chosen(None, &Variables::default()), Path::new("python3"));
        assert_eq!(chosen(None, &environment), active);
        let own = make(".venv");
        assert_eq!(chosen(None, &environment), own);
        assert_eq!(chosen(Some("/opt/python"), &environment), Path::new("/opt/python"));
    }
}
