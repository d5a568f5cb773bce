//! A text in the person's editor: a private file outside the project, gone afterwards.

use llm_do::escape::visible_lines;
use llm_do::fence::{PrivateDirectory, TemporaryPlace};
use llm_do::{WorkingDirectory, process};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::console;
use crate::environment::Environment;
use crate::terminal::Terminal;
use llm_do_launch::state::KEY_VARIABLE;

pub struct Editor {
    /// A program and its arguments, as a shell would split them.
    command: String,
    /// Where private files are made.
    directory: PathBuf,
    project: PathBuf,
    /// Where it is started.
    working: WorkingDirectory,
}

impl Editor {
    /// `$VISUAL`, `$EDITOR`, else `vi`. A directory for temporary files inside the project would show the tools of a
    /// run what is being edited.
    pub fn of(environment: &Environment, project: &Path, working: WorkingDirectory) -> Self {
        let command = environment.get("VISUAL").or_else(|| environment.get("EDITOR")).unwrap_or("vi").to_owned();
        let temporary = environment.get("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let is_outside = |directory: &PathBuf| match (directory.canonicalize(), project.canonicalize()) {
            (Ok(directory), Ok(project)) => !directory.starts_with(project),
            (Err(_), _) | (_, Err(_)) => false,
        };
        let directory = [Some(temporary), environment.home()].into_iter().flatten().find(is_outside);
        let directory = directory.unwrap_or_else(|| PathBuf::from("/tmp"));
        Self { command, directory, project: project.to_owned(), working }
    }
}

/// A text that is edited until it is right, or left as it was. `read` says what it means, or what is wrong with it: then the
/// person has their text again, with that on top. `None` if nothing was changed.
pub async fn edit_until_right<T>(
    editor: &Editor,
    terminal: &Terminal,
    name: &str,
    text: &str,
    read: impl AsyncFn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let (mut before, mut reason) = (text.to_owned(), String::new());
    loop {
        let edited = edit_file(editor, terminal, name, &format!("{reason}{before}")).await?;
        let edited = edited.strip_prefix(&reason).unwrap_or(&edited);
        // Many editors end the last line of a text, which is no change of it.
        let edited = edited.strip_suffix('\n').filter(|_| !text.ends_with('\n')).unwrap_or(edited);
        // Whoever leaves a mistake as it is gives up.
        if edited == text || (edited == before && !reason.is_empty()) {
            return Ok(None);
        }
        match read(edited).await {
            Ok(meant) => return Ok(Some(meant)),
            Err(wrong) => {
                before = edited.to_owned();
                let lines = visible_lines(&wrong);
                reason = lines.lines().flat_map(|line| ["# llm-do: ", line, "\n"]).collect();
                reason.push_str("# llm-do: these lines are taken away; leave the text as it is to give up\n");
            }
        }
    }
}

/// What the text is after the editor has ended. The editor sees a file of this name.
pub async fn edit_file(editor: &Editor, terminal: &Terminal, name: &str, text: &str) -> Result<String, String> {
    let place = PrivateDirectory::default();
    let file = place.path(&TemporaryPlace::new(Some(&editor.directory)), &editor.project)?.join(name);
    let mut options = OpenOptions::new();
    let written = options.write(true).create_new(true).mode(0o600).open(&file);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("the file cannot be written: {error}"))?;
    let words = shlex::split(&editor.command).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| format!("`{}` is no command", editor.command))?;
    let lent = || Terminal::lend().map_err(|error| format!("the terminal cannot be lent: {error}"));
    console::told().await;
    let lent_out = terminal.as_before();
    let mut command = Command::new(editor.working.program(&words[0]));
    if let Some(directory) = editor.working.for_child() {
        command.current_dir(directory);
    }
    command.env_remove(KEY_VARIABLE);
    command.args(&words[1..]).arg(&file).stdin(lent()?).stdout(lent()?).stderr(lent()?);
    let status = async {
        let mut started = command.kill_on_drop(true).spawn()?;
        process::give_back(started.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)));
        started.wait().await
    };
    let status = status.await;
    drop(lent_out);
    let status = status.map_err(|error| format!("`{}` cannot be started: {error}", editor.command))?;
    if !status.success() {
        return Err(format!("`{}` ended with {status}", editor.command));
    }
    let unreadable = |error| format!("the file cannot be read: {error}");
    if std::fs::metadata(&file).map_err(unreadable)?.len() > LARGEST {
        return Err(format!("the file is larger than {} MiB", LARGEST >> 20));
    }
    std::fs::read_to_string(&file).map_err(unreadable)
}

/// No answer to a question is larger.
const LARGEST: u64 = 2 * 1024 * 1024;
