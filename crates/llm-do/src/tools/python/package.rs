//! The Python package, as it is handed to the interpreter: from our memory to its own, over the channel.
//!
//! Nothing of it is a file that Python reads, so an attacker cannot put another one there. Compiling it costs more than
//! the rest of a start; that is done once, before any code of a project runs, and kept as [`super::CompiledStore`]
//! says.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::Python;
use crate::tools::approval::digest;

macro_rules! package {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../python/llm_do/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = package![
    "__init__.py",
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
    "_host/places.py",
    "_host/pydantic_tools.py",
    "_host/signature.py",
    "_host/successors.py",
    "_host/threads.py",
    "_host/tools.py",
    "_host/values.py",
    "_host/violations.py",
    "_host/wire.py",
];

/// What the interpreter says first: which compiled code it can read.
const MAGIC_DIGITS: usize = 8;
/// The length of what follows, in decimal digits.
const LENGTH_DIGITS: usize = 16;
/// Far more than the package compiles to.
const MOST_COMPILED: usize = 16 << 20;

/// Hands the package to an interpreter that has just begun, in its own code if that was kept. What it compiled is kept
/// for the next one.
pub(super) async fn hand_over(channel: &mut UnixStream, python: &Python, is_fenced: bool) -> io::Result<()> {
    let mut magic = [0; MAGIC_DIGITS];
    channel.read_exact(&mut magic).await?;
    let store = python.compiled.as_ref().map(|store| (store, identity(python, &magic, is_fenced)));
    let kept = store.as_ref().and_then(|(store, identity)| store.read(identity));
    let codes = kept.as_deref().and_then(Codes::of);
    // If the result cannot be kept, it is not worth while to compile the whole package.
    let place = store.filter(|(store, _)| codes.is_none() && store.is_writable());
    channel.write_all(&message(codes.as_ref(), place.is_some())).await?;
    if let Some((store, identity)) = place {
        let compiled = answer(channel).await?;
        if Codes::of(&compiled).is_some() {
            // If this cannot be kept, the next interpreter compiles it again.
            let _ = store.write(&identity, &compiled);
        }
    }
    Ok(())
}

/// What compiled code is for: these sources, and this interpreter. Another program may be a project's own, and what
/// that one compiled is used for no other; the same holds for what was compiled while another library was loaded into
/// it. What comes from behind a fence stays behind one.
fn identity(python: &Python, magic: &[u8], is_fenced: bool) -> String {
    let (named, real) = program(&python.program, python.environment.fixed.get("PATH"));
    let about = std::fs::metadata(&real).map_or_else(
        |_| String::new(),
        |found| format!("{} {} {} {} {}", found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()),
    );
    let magic = String::from_utf8_lossy(magic).into_owned();
    let loads = |name: &str| name.starts_with("LD_") || name.starts_with("DYLD_") || name.starts_with("__");
    let loaded = python.environment.fixed.iter().filter(|(name, _)| loads(name));
    let loaded = loaded.flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    let texts = FILES.iter().flat_map(|(path, text)| [*path, *text]);
    let fenced = is_fenced.then_some("fenced");
    digest(texts.chain(fenced).chain([named.as_str(), &real, &about, &magic]).chain(loaded))
}

/// The path of a program as it is started, and where that leads.
fn program(program: &Path, path: Option<&String>) -> (String, String) {
    let is_named = program.components().count() == 1;
    let found = path.filter(|_| is_named).and_then(|path| {
        std::env::split_paths(path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
    });
    let named = found.unwrap_or_else(|| program.to_owned());
    let named = std::path::absolute(&named).unwrap_or(named);
    let real = named.canonicalize().unwrap_or_else(|_| named.clone());
    (named.to_string_lossy().into_owned(), real.to_string_lossy().into_owned())
}

/// The files in order: an index with their lengths, then sources and codes.
fn message(codes: Option<&Codes<'_>>, wants_codes: bool) -> Vec<u8> {
    let code = |at: usize| codes.map_or(&[][..], |codes| codes.0[at]);
    let mut index = String::from(if wants_codes { "compile\n" } else { "use\n" });
    for (at, (path, text)) in FILES.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(index, "llm_do/{path} {} {}", text.len(), code(at).len());
    }
    let mut message = format!("{:0LENGTH_DIGITS$}{index}", index.len()).into_bytes();
    for (at, (_, text)) in FILES.iter().enumerate() {
        message.extend_from_slice(text.as_bytes());
        message.extend_from_slice(code(at));
    }
    message
}

async fn answer(channel: &mut UnixStream) -> io::Result<Vec<u8>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut length = [0; LENGTH_DIGITS];
    channel.read_exact(&mut length).await?;
    let length = std::str::from_utf8(&length).ok().and_then(|digits| digits.parse().ok()).ok_or_else(malformed)?;
    if length > MOST_COMPILED {
        return Err(malformed());
    }
    let mut whole = vec![0; length];
    channel.read_exact(&mut whole).await?;
    Ok(whole)
}

/// The codes of all files, in their order: a line with the lengths, then one behind the other.
struct Codes<'a>(Vec<&'a [u8]>);

impl<'a> Codes<'a> {
    fn of(whole: &'a [u8]) -> Option<Self> {
        let end = whole.iter().position(|byte| *byte == b'\n')?;
        let lengths = std::str::from_utf8(&whole[..end]).ok()?.split(' ');
        let mut rest = &whole[end + 1..];
        let mut codes = Vec::with_capacity(FILES.len());
        for length in lengths {
            let (code, behind) = rest.split_at_checked(length.parse().ok()?)?;
            codes.push(code);
            rest = behind;
        }
        (rest.is_empty() && codes.len() == FILES.len()).then_some(Self(codes))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn codes_are_those_of_all_files_or_none() {
        let lengths = vec!["1"; FILES.len()].join(" ");
        let whole = |lengths: &str, bytes: usize| format!("{lengths}\n{}", "x".repeat(bytes)).into_bytes();
        assert_eq!(Codes::of(&whole(&lengths, FILES.len())).unwrap().0.len(), FILES.len());
        for (lengths, bytes) in
            [(&lengths[..], FILES.len() + 1), (&lengths, FILES.len() - 1), (&lengths[2..], FILES.len())]
        {
            assert!(Codes::of(&whole(lengths, bytes)).is_none(), "{lengths} {bytes}");
        }
        for other in ["", "\n", "x\n", "18446744073709551616\n"] {
            assert!(Codes::of(other.as_bytes()).is_none(), "{other}");
        }
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
                } else if path.is_file() && name != "py.typed" {
                    assert!(FILES.iter().any(|(file, _)| *file == name), "{name} is not embedded");
                }
            }
        }
    }
}
