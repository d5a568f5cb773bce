//! Programs that live as long as a run, Python and local servers, behind a fence that their project declares: what they
//! may reach, and how they are started there. Where the fence cannot be had they are not started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Command;

use super::bounds::Tenancy;
use super::keep::{COMMAND, TENANT, THIN_TENANT};
use super::message::{self, KeeperReply};
use super::private::PrivateDirectory;
use super::shelter::{Listings, MOST_ENTRIES, MOST_MOUNTS, Repositories, ShelterSearch};
use super::{Accept, Bounds, Fence, FenceKind, Network, Shelter, Write};
use crate::beneath::read_regular;
use crate::escape::visible;
use crate::remedy::Remedy;
use crate::tools::protected::ProtectedFiles;
use crate::tools::source::Enclosure;
use crate::tools::working_directory::is_too_wide;

/// Why nothing can live behind a fence here, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceError {
    /// Why the program cannot live behind the fence.
    pub why: String,
    /// What can be done about it.
    pub hint: Remedy,
}

const ELSEWHERE: &str = "run it where there is one, or take the key out: then it runs with your rights";

impl Fence {
    /// Whether a program that is to live behind a fence can be started at all.
    pub fn houses(&self) -> Result<(), FenceError> {
        match (&self.kind, self.accept) {
            (FenceKind::None { why }, _) => {
                Err(FenceError { why: format!("there is no fence here: {why}"), hint: ELSEWHERE.into() })
            }
            (FenceKind::Thin { why, .. }, Accept::Full) => {
                let why = format!("only the thin fence can be had here, which hides no secrets: {why}");
                Err(FenceError { why, hint: Remedy::AcceptThinFence })
            }
            _ if self.keeper.is_none() => {
                let why = "no keeper was given".to_owned();
                Err(FenceError { why, hint: "whoever embeds this library gives the path of `llm-do-keeper`".into() })
            }
            (FenceKind::Thin { .. }, Accept::Thin) | (FenceKind::Full { .. }, _) => Ok(()),
        }
    }
}

/// A program that is to be started.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    /// A name is looked for on the path of its environment.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// All of its environment.
    pub variables: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// What of the project it is made of. Secrets in there are hidden.
    pub code: Vec<PathBuf>,
    /// What else it is made of, wherever that is.
    pub parts: Vec<PathBuf>,
}

/// Where a program is to live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Premises<'a> {
    pub fence: &'a Fence,
    pub project: &'a Path,
    pub protected: &'a ProtectedFiles,
    pub enclosure: &'a Enclosure,
}

/// A program about to move in; then what it needs as long as it lives.
#[derive(Debug)]
pub(crate) struct Tenant {
    keeper: PathBuf,
    role: &'static str,
    letter: Vec<u8>,
    _private: PrivateDirectory,
}

impl Premises<'_> {
    /// Does everything that comes before the start of the program.
    pub(crate) fn prepare(&self, resident: Resident) -> Result<Tenant, String> {
        self.fence.houses().map_err(|unfenced| unfenced.why)?;
        let keeper = self.fence.keeper.clone().ok_or("no keeper was given")?;
        let private = PrivateDirectory::default();
        let tenancy = self.tenancy(resident, private.path(&self.fence.temporary, self.project)?)?;
        let letter = message::framed(&tenancy).map_err(|error| format!("its keeper cannot be told of it: {error}"))?;
        let role = if self.fence.is_full() { TENANT } else { THIN_TENANT };
        Ok(Tenant { keeper, role, letter, _private: private })
    }

    fn tenancy(&self, resident: Resident, private: PathBuf) -> Result<Tenancy, String> {
        let Resident { program, arguments, mut variables, directory, code, parts } = resident;
        let named = located(&program, &directory, &variables)?;
        let file = named.canonicalize().map_err(|error| format!("`{}`: {error}", program.display()))?;
        let above = [Some(self.project.to_owned()), variables.get("HOME").map(PathBuf::from)];
        let above: Vec<PathBuf> = above.into_iter().flatten().filter_map(|path| path.canonicalize().ok()).collect();
        let mut own = made_of(&named, &variables, &above);
        own.extend(parts.iter().filter_map(|part| part.canonicalize().ok()));
        let bounds = self.bounds(own, &code, private.clone())?;
        let temporary = if self.fence.is_full() { PathBuf::from("/tmp") } else { private };
        variables.insert("TMPDIR".to_owned(), temporary.display().to_string());
        let directory = directory.canonicalize().map_err(|error| format!("`{}`: {error}", directory.display()))?;
        let name = named.to_str().ok_or_else(|| format!("`{}` is not UTF-8", named.display()))?.to_owned();
        Ok(Tenancy { bounds, program: file, name, arguments, environment: variables, directory })
    }

    fn bounds(&self, own: Vec<PathBuf>, code: &[PathBuf], private: PathBuf) -> Result<Bounds, String> {
        let read = self.declared(&self.enclosure.read)?;
        let written = self.declared(&self.enclosure.write)?;
        // A link must not bring in what lies outside of the project.
        let project = self.project.canonicalize().map_err(|error| format!("the project: {error}"))?;
        let code = code.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| path.starts_with(&project));
        let code: Vec<PathBuf> = code.collect();
        let seen: Vec<PathBuf> = read.iter().chain(&code).cloned().collect();
        let shelter = Shelter { private: Some(private.clone()), ..self.shelter(&seen, &written, &own)? };
        Ok(Bounds {
            read,
            run: own.into_iter().chain(code).collect(),
            write: Write::Beneath(written.into_iter().chain([private]).collect()),
            network: if self.enclosure.network { Network::Open } else { Network::None },
            shelter,
        })
    }

    /// Opens the declared paths. What is not there now is not there for the program.
    fn declared(&self, paths: &[String]) -> Result<Vec<PathBuf>, String> {
        let open = |path: &String| {
            let opened = self.fence.written.open(self.project, path)?;
            if opened.as_deref().is_some_and(is_too_wide) {
                return Err(format!("`{}` is too wide: name what is meant in it", visible(path)));
            }
            Ok(opened)
        };
        Ok(paths.iter().map(open).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Only the full fence can keep anything inside of what may be read and written.
    fn shelter(&self, read: &[PathBuf], written: &[PathBuf], own: &[PathBuf]) -> Result<Shelter, String> {
        if !self.fence.is_full() {
            return Ok(Shelter::default());
        }
        let (protected, hidden) = (self.protected, self.fence.hidden.as_slice());
        let home = self.fence.home.as_deref();
        let search = ShelterSearch { written, read, protected, hidden, home, repositories: Repositories::ReadOnly };
        let found = search.run(&mut Listings::default());
        if !found.is_whole {
            return Err(format!("more than {MOST_ENTRIES} files are in its roots, and not all secrets can be hidden"));
        }
        let mut shelter = found.shelter(&[], None);
        // Certificates of a library look like secrets.
        shelter.hidden.retain(|path| !own.iter().any(|own| path.starts_with(own)));
        shelter.read_only.extend(own.iter().filter(|own| written.iter().any(|root| own.starts_with(root))).cloned());
        match shelter.hidden.len() + shelter.read_only.len() {
            MOST_MOUNTS.. => Err(format!("more than {MOST_MOUNTS} files in its roots would have to be kept from it")),
            _ => Ok(shelter),
        }
    }
}

/// How long a keeper may take to come up. A program that is no keeper might never answer.
const PATIENCE: Duration = Duration::from_secs(20);

impl Tenant {
    /// What is started in its place. Its stdin and stdout are those of the program, once it has moved in.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.keeper);
        command.args([COMMAND, self.role]).env_clear().current_dir("/");
        command
    }

    /// Tells the keeper what it keeps, and waits until that is within its bounds.
    pub(crate) async fn move_in(
        &self,
        input: &mut (impl AsyncWrite + Unpin),
        output: &mut (impl AsyncRead + Unpin),
    ) -> Result<(), String> {
        let telling = async {
            // If this fails because the keeper has ended, its reply says why.
            let told = input.write_all(&self.letter).await;
            let reply = heard(output).await.map_err(|error| format!("the keeper is lost: {error}"))?;
            match reply {
                KeeperReply::Ready => told.map_err(|error| format!("the keeper is lost: {error}")),
                KeeperReply::Failed(reason) => Err(reason),
                KeeperReply::Finished { .. } => Err("the keeper says what nobody asked".to_owned()),
            }
        };
        let told = tokio::time::timeout(PATIENCE, telling).await;
        told.unwrap_or_else(|_| Err("the keeper says nothing".to_owned()))
    }
}

/// The reply of the keeper. No byte behind it is read: that is the program's.
async fn heard(output: &mut (impl AsyncRead + Unpin)) -> io::Result<KeeperReply> {
    let mut head = [0; 4];
    output.read_exact(&mut head).await?;
    let mut json = Vec::new();
    output.take(message::length(head)?.into()).read_to_end(&mut json).await?;
    Ok(serde_json::from_slice(&json)?)
}

/// Whether a program is a script that runs another one.
pub(crate) fn is_script(program: &Path, directory: &Path, variables: &BTreeMap<String, String>) -> bool {
    let located = located(program, directory, variables).ok();
    located.and_then(|located| start_of(&located)).is_some_and(|start| start.starts_with("#!"))
}

/// Whether a program's name leads to something that can be started.
pub(crate) fn can_be_run(program: &Path, directory: &Path, variables: &BTreeMap<String, String>) -> bool {
    located(program, directory, variables).is_ok_and(|located| is_run(&located))
}

fn is_run(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The file that a program's name leads to, as the system finds it; the directory that it lies in has no links.
fn located(program: &Path, directory: &Path, variables: &BTreeMap<String, String>) -> Result<PathBuf, String> {
    let missing = || format!("`{}`: there is no such program", program.display());
    let named = if program.components().count() > 1 {
        directory.join(program)
    } else {
        on_path(program.as_os_str(), variables).ok_or_else(missing)?
    };
    let above = named.parent().and_then(|above| above.canonicalize().ok()).ok_or_else(missing)?;
    Ok(above.join(named.file_name().ok_or_else(missing)?))
}

fn on_path(name: &OsStr, variables: &BTreeMap<String, String>) -> Option<PathBuf> {
    let path = variables.get("PATH").map_or("/bin:/usr/bin", String::as_str);
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute()).collect::<Vec<_>>();
    directories.into_iter().map(|directory| directory.join(name)).find(|path| is_run(path))
}

/// A program, what was installed with it, and the interpreter of a script; never a directory that these are beneath.
fn made_of(named: &Path, variables: &BTreeMap<String, String>, above: &[PathBuf]) -> Vec<PathBuf> {
    let mut parts = Vec::new();
    for program in std::iter::once(named.to_owned()).chain(interpreter(named, variables)) {
        let file = program.canonicalize().ok();
        parts.extend(file.iter().chain([&program]).flat_map(|program| installed_with(program, above)));
        parts.extend(file);
    }
    parts
}

/// An installation is a directory with `bin` in it, and `lib` beside that.
fn installed_with(program: &Path, above: &[PathBuf]) -> Vec<PathBuf> {
    let Some(bin) = program.parent().filter(|bin| bin.file_name() == Some(OsStr::new("bin"))) else {
        return Vec::new();
    };
    let prefix = bin.parent().unwrap_or(Path::new("/"));
    let is_wide = above.iter().any(|above| above.starts_with(prefix));
    let settings = prefix.join("pyvenv.cfg");
    let is_environment = settings.is_file() || prefix.join("conda-meta").is_dir();
    let mut parts = if is_environment && !is_wide { vec![prefix.to_owned()] } else { beside(bin) };
    parts.extend(home_of(&settings).map(|home| beside(&home)).unwrap_or_default());
    parts
}

fn beside(bin: &Path) -> Vec<PathBuf> {
    let prefix = bin.parent().unwrap_or(Path::new("/"));
    let parts = [bin.to_owned(), prefix.join("lib"), prefix.join("lib64")];
    parts.into_iter().filter_map(|part| part.canonicalize().ok()).collect()
}

/// Where the interpreter of a virtual environment was installed.
fn home_of(settings: &Path) -> Option<PathBuf> {
    let text = start_of(settings)?;
    let home = text.lines().find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('='))?;
    Some(PathBuf::from(home.trim())).filter(|home| home.ends_with("bin"))
}

/// What the first line of a script names.
fn interpreter(script: &Path, variables: &BTreeMap<String, String>) -> Option<PathBuf> {
    let first = start_of(script)?;
    let mut words = first.lines().next()?.strip_prefix("#!")?.split_whitespace();
    let program = Path::new(words.next()?);
    let named = match program.file_name() {
        Some(name) if name == "env" => on_path(OsStr::new(words.find(|word| !word.starts_with('-'))?), variables)?,
        Some(_) | None => program.to_owned(),
    };
    located(&named, Path::new("/"), variables).ok()
}

fn start_of(file: &Path) -> Option<String> {
    const MOST: u64 = 4096;
    read_regular(file, MOST).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
