//! Whether Python files can be read as Python: they are parsed by an interpreter that runs nothing of them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::Python;

/// Parsing takes milliseconds; whatever takes longer is no interpreter.
const LONGEST: Duration = Duration::from_secs(20);

const PARSER: &str = r#"
import ast, json, sys
for name in sys.argv[1:]:
    try:
        with open(name, "rb") as file:
            ast.parse(file.read(), name)
    except SyntaxError as error:
        print(json.dumps({"file": name, "line": error.lineno or 1, "message": error.msg}))
    except (OSError, ValueError, MemoryError, RecursionError):
        pass
"#;

/// Where a file is not Python.
#[derive(Debug, Deserialize)]
pub(crate) struct SyntaxMistake {
    pub file: PathBuf,
    pub line: usize,
    pub message: String,
}

/// The first such place of each file. Nothing if there is no interpreter: who wants to run the files is told of that.
pub(crate) async fn mistakes(python: &Python, files: &[PathBuf]) -> Vec<SyntaxMistake> {
    let mut command = Command::new(&python.program);
    // Isolated: neither the directory nor variables decide what `ast` and `json` are.
    command.arg("-I").arg("-c").arg(PARSER).args(files);
    command.env_clear().envs(&python.environment.fixed).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(Ok(output)) = tokio::time::timeout(LONGEST, command.output()).await else { return Vec::new() };
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
