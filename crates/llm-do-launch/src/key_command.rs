//! A key out of the user's store of passwords: the first line that a command of the user's configuration prints.

use llm_do::providers::KeySource;
use llm_do::runs::Redactor;
use llm_do::{BoxFuture, Secret, WorkingDirectory, process};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::state::KEY_VARIABLE;

/// The user may have to touch a token or type a password.
const PATIENCE: Duration = Duration::from_secs(30);
/// In bytes; longer than any key.
const LONGEST_OUTPUT: u64 = 64 * 1024;

pub struct KeyCommand {
    provider: String,
    /// An argument vector, no shell.
    command: Vec<String>,
    patience: Duration,
    /// Where it is started.
    directory: WorkingDirectory,
    /// The code that gets the key says that it is one.
    redactor: Redactor,
}

impl KeyCommand {
    pub fn new(provider: &str, command: &[String], directory: WorkingDirectory, redactor: Redactor) -> Self {
        Self { provider: provider.to_owned(), command: command.to_vec(), patience: PATIENCE, directory, redactor }
    }

    async fn run(&self) -> Result<Secret, String> {
        let [program, args @ ..] = self.command.as_slice() else { return Err("is empty".to_owned()) };
        let printed = tokio::time::timeout(self.patience, output(program, args, &self.directory)).await;
        let printed = printed.map_err(|_| format!("took longer than {} seconds", self.patience.as_secs_f64()))??;
        let printed = String::from_utf8(printed).map_err(|_| "gave something that is no text".to_owned())?;
        let key = printed.lines().next().unwrap_or_default().trim();
        self.redactor.learn(key);
        if key.is_empty() { Err("gave no key".to_owned()) } else { Ok(Secret::new(key)) }
    }
}

impl KeySource for KeyCommand {
    fn obtain(&self) -> BoxFuture<'_, Result<Secret, String>> {
        Box::pin(async { self.run().await.map_err(|reason| format!("`api_key_cmd` of `{}` {reason}", self.provider)) })
    }
}

/// What it prints is the key, or may hold it: nothing of it is shown, on neither stream.
async fn output(program: &str, args: &[String], directory: &WorkingDirectory) -> Result<Vec<u8>, String> {
    let mut command = Command::new(directory.program(program));
    if let Some(directory) = directory.for_child() {
        command.current_dir(directory);
    }
    // It stays in our process group: what asks for a password at the terminal must be in its foreground.
    let mut child = command
        .env_remove(KEY_VARIABLE)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    process::give_back(child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)));
    let failed = |error: std::io::Error| format!("failed: {error}");
    let mut printed = Vec::new();
    let stdout = child.stdout.take().ok_or("has no output")?;
    stdout.take(LONGEST_OUTPUT + 1).read_to_end(&mut printed).await.map_err(failed)?;
    if printed.len() as u64 > LONGEST_OUTPUT {
        return Err("printed more than any key".to_owned());
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() { Ok(printed) } else { Err(format!("ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn obtained(words: &[&str]) -> Result<Secret, String> {
        let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let patience = if words[0] == "sleep" { Duration::from_millis(10) } else { PATIENCE };
        let key = KeyCommand::new("acme", &command, WorkingDirectory::of_process(), Redactor::default());
        KeyCommand { patience, ..key }.obtain().await
    }

    #[tokio::test]
    async fn the_first_line_is_the_key() {
        assert_eq!(obtained(&["printf", " k-1 \nrest"]).await, Ok(Secret::new("k-1")));
    }

    #[tokio::test]
    async fn why_there_is_no_key_is_said_without_the_output() {
        let cases: [(&[&str], &str); 7] = [
            (&["sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"], "ended with exit status: 3"),
            (&["true"], "gave no key"),
            (&["printf", "\n hunter2"], "gave no key"),
            (&["printf", "\\377"], "gave something that is no text"),
            (&["/no/such/program"], "cannot be started: No such file or directory (os error 2)"),
            (&["head", "-c", "70000", "/dev/zero"], "printed more than any key"),
            (&["sleep", "600"], "took longer than 0.01 seconds"),
        ];
        for (words, reason) in cases {
            assert_eq!(obtained(words).await, Err(format!("`api_key_cmd` of `acme` {reason}")));
        }
    }
}
