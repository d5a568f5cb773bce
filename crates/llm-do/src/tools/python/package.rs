//! The Python package, as it is put where the interpreter finds it.
//!
//! Written to a directory that is kept, not passed as text or as an archive: Python keeps compiled modules beside files
//! only, and compiling them anew at each start costs more than the rest of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::tools::approval::digest;

macro_rules! package {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../python/llm_do/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = package![
    "__init__.py",
    "py.typed",
    "_args.py",
    "_offer.py",
    "_serve.py",
    "approval.py",
    "ctx.py",
    "entries.py",
    "errors.py",
    "execution.py",
    "faults.py",
    "models.py",
    "protocols.py",
    "providers.py",
    "tools.py",
    "workers.py",
    "project/__init__.py",
    "project/host_toolsets.py",
    "runtime/__init__.py",
    "runtime/approval.py",
    "runtime/args.py",
    "runtime/call.py",
    "runtime/delegation.py",
    "runtime/deps.py",
    "runtime/events.py",
    "runtime/shared.py",
    "runtime/toolsets.py",
    "toolsets/__init__.py",
    "toolsets/agent.py",
    "toolsets/approval.py",
    "toolsets/builtins.py",
    "toolsets/filesystem.py",
    "toolsets/loader.py",
    "toolsets/shell.py",
    "ui/__init__.py",
    "ui/adapter.py",
    "ui/display.py",
    "_host/__init__.py",
    "_host/channel.py",
    "_host/classes.py",
    "_host/exports.py",
    "_host/faults.py",
    "_host/function.py",
    "_host/host.py",
    "_host/main.py",
    "_host/output.py",
    "_host/pydantic_tools.py",
    "_host/signature.py",
    "_host/successors.py",
    "_host/threads.py",
    "_host/tools.py",
    "_host/values.py",
    "_host/violations.py",
    "_host/wire.py",
];

/// The directory that holds `llm_do`, beneath the cache. Every file in it is what it should be: one that is not is
/// written again, at once and in its place, so that several programs may do so at the same time.
pub fn unpacked(cache: &Path) -> io::Result<PathBuf> {
    let texts = FILES.iter().flat_map(|(path, text)| [*path, *text]);
    let directory = cache.join(format!("python-{}", &digest(texts)[..16]));
    for (path, text) in FILES {
        let file = directory.join("llm_do").join(path);
        if fs::read(&file).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        let parent = file.parent().unwrap_or(&directory);
        create_private(parent)?;
        let temporary = parent.join(format!(".{}-{:016x}", std::process::id(), fastrand::u64(..)));
        fs::write(&temporary, text)?;
        fs::rename(&temporary, &file)?;
    }
    Ok(directory)
}

fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_whole_and_is_repaired() {
        let cache = tempfile::tempdir().unwrap();
        let directory = unpacked(cache.path()).unwrap();
        let host = directory.join("llm_do/_host/main.py");
        let text = fs::read_to_string(&host).unwrap();
        fs::write(&host, "raise SystemExit").unwrap();
        assert_eq!(unpacked(cache.path()).unwrap(), directory);
        assert_eq!(fs::read_to_string(&host).unwrap(), text);
    }

    #[test]
    fn no_file_of_the_package_is_forgotten() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/llm_do");
        let mut waiting = vec![root.clone()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() && !name.ends_with("__pycache__") {
                    waiting.push(path);
                } else if path.is_file() {
                    assert!(FILES.iter().any(|(file, _)| *file == name), "{name} is not embedded");
                }
            }
        }
    }
}
