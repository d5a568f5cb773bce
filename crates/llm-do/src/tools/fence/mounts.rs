//! The files of a keeper: an empty root, and in it what its commands may see. Runs as process 1 of new namespaces,
//! before anything else does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::thin::{DEVICES, NETWORK_FILES, SYSTEM};
use super::{Bounds, Network};

/// Where the old root lies while the new one is made, and where the new one is made.
const OLD: &str = "/old";
const NEW: &str = "/new";
/// What hidden files and directories look like.
const NO_FILE: &str = "/no-file";
const NO_DIRECTORY: &str = "/no-directory";
/// A directory that every system has.
const BASE: &str = "/usr";

const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// A root that is ours, beside which the old one still stands.
pub(crate) struct FenceRoot {
    /// Where the system has something mounted.
    mounted: Vec<PathBuf>,
    system: Vec<SystemPath>,
}

/// A path of the system, and where it leads.
struct SystemPath {
    path: PathBuf,
    real: PathBuf,
    /// As it is written, if it is a link.
    link: Option<PathBuf>,
}

type MountResult = Result<(), String>;

impl FenceRoot {
    /// Takes the first steps, which fail where a user has no namespaces.
    pub(crate) fn set() -> Result<Self, String> {
        let table = fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("the mounts: {error}"))?;
        let system = SYSTEM.iter().chain(DEVICES).chain(&["/dev/null"]).chain(NETWORK_FILES);
        let system = system.filter_map(|path| SystemPath::find(Path::new(path))).collect();
        let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", all).map_err(|error| format!("mounts cannot be made private: {error}"))?;
        let wrong = |error| format!("no root of its own: {error}");
        mount("tmpfs", BASE, "tmpfs", PLAIN, c"mode=0755").map_err(wrong)?;
        let old = Path::new(BASE).join("old");
        let made = fs::create_dir(&old).and_then(|()| fs::create_dir(Path::new(BASE).join("new")));
        made.map_err(|error| format!("no root of its own: {error}"))?;
        pivot_root(BASE, &old).map_err(wrong)?;
        chdir("/").map_err(wrong)?;
        mount("tmpfs", NEW, "tmpfs", PLAIN, c"mode=0755").map_err(wrong)?;
        Ok(Self { mounted: mount_points(&table), system })
    }

    /// Brings in what commands may see, and makes it the root. A directory that they do not see, and are in, is empty.
    pub(crate) fn enter(self, bounds: &Bounds, directory: Option<&Path>) -> MountResult {
        self.bind_system(bounds)?;
        self.bind_declared(bounds)?;
        self.shelter(bounds)?;
        if let Some(directory) = directory.map(new).filter(|directory| !directory.exists()) {
            make_directory(&directory)?;
        }
        // It is read-only, because root's own number is enough to change settings of the kernel there, even without
        // privileges. In some containers parts of `/proc` are covered, and the kernel mounts no other one; then there
        // is none.
        make_directory(&new(Path::new("/proc")))?;
        let own = PLAIN | MountFlags::NOEXEC | MountFlags::RDONLY;
        let _ = mount("proc", new(Path::new("/proc")), "proc", own, c"");
        leave_the_old()
    }

    fn bind_system(&self, bounds: &Bounds) -> MountResult {
        for SystemPath { path, real, link } in &self.system {
            let is_device = path.starts_with("/dev");
            let is_for_network = NETWORK_FILES.iter().any(|file| Path::new(file) == path);
            match link {
                _ if is_for_network && bounds.network == Network::None => {}
                Some(link) if real.starts_with("/usr") => {
                    make_directory(new(path).parent().unwrap_or(Path::new(NEW)))?;
                    symlink(link, new(path)).map_err(|error| failed("link", path, error))?;
                }
                Some(_) | None => self.bind(real, path, !is_device)?,
            }
        }
        if bounds.shelter.private.is_some() {
            // Where programs keep what they share among their processes.
            symlink("/tmp", new(Path::new("/dev/shm")))
                .map_err(|error| failed("link", Path::new("/dev/shm"), error))?;
        }
        for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
            let path = Path::new("/dev").join(name);
            let target = Path::new("/proc/self").join(target);
            symlink(target, new(&path)).map_err(|error| failed("link", &path, error))?;
        }
        Ok(())
    }

    /// Brings in what the bounds declare. What lies further up comes first, so that nothing covers what was brought in
    /// before.
    fn bind_declared(&self, bounds: &Bounds) -> MountResult {
        if let Some(private) = &bounds.shelter.private {
            self.bind(private, Path::new("/tmp"), false)?;
        }
        let mut declared: BTreeMap<(usize, &Path), bool> = BTreeMap::new();
        for path in bounds.read.iter().chain(&bounds.run) {
            declared.insert((depth(path), path), true);
        }
        for path in bounds.written() {
            declared.insert((depth(path), path), false);
        }
        let mut seen: Vec<(&Path, bool)> = Vec::new();
        for ((_, path), read_only) in declared {
            let above = seen.iter().rev().find(|(above, _)| path.starts_with(above)).map(|(_, read_only)| *read_only);
            let is_there = read_only && (above.is_some() || SYSTEM.iter().any(|system| path.starts_with(system)));
            if is_there || !old(path).exists() || bounds.shelter.private.as_deref() == Some(path) {
                continue;
            }
            hold_in_private(bounds, path)?;
            self.bind(path, path, read_only)?;
            seen.push((path, read_only));
        }
        Ok(())
    }

    /// Brings a file or a directory in, with everything that is mounted beneath it.
    fn bind(&self, source: &Path, path: &Path, read_only: bool) -> MountResult {
        let (from, to) = (old(source), new(path));
        make_place(&from, &to)?;
        mount_bind_recursive(&from, &to).map_err(|error| failed("bring in", source, error))?;
        if read_only {
            make_read_only(&to)?;
            let beneath = self.mounted.iter().filter_map(|point| point.strip_prefix(source).ok());
            for point in beneath.filter(|point| !point.as_os_str().is_empty()) {
                make_read_only(&to.join(point))?;
            }
        }
        Ok(())
    }

    /// Inside of what was brought in: what stays as it is, and what cannot be looked at.
    fn shelter(&self, bounds: &Bounds) -> MountResult {
        let mut kept: BTreeMap<(usize, &Path), MountProtection> = BTreeMap::new();
        let written = bounds.written();
        let all = bounds.shelter.held.iter().map(|path| (path, MountProtection::Held));
        let all = all.chain(bounds.shelter.read_only.iter().map(|path| (path, MountProtection::ReadOnly)));
        for (path, how) in all.chain(bounds.shelter.hidden.iter().map(|path| (path, MountProtection::Hidden))) {
            kept.insert((depth(path), path), how);
            if how == MountProtection::ReadOnly {
                kept.extend(
                    written.iter().filter(|root| root.starts_with(path)).map(|root| ((depth(root), &**root), how)),
                );
            }
            for root in written.iter().filter(|root| path.starts_with(root)) {
                let above = path.ancestors().skip(1).take_while(|above| above != root);
                for above in above {
                    kept.entry((depth(above), above)).or_insert(MountProtection::Held);
                }
            }
        }
        let (mut read_only, mut covered): (Vec<&Path>, Vec<&Path>) = (Vec::new(), Vec::new());
        for ((_, path), how) in kept {
            // Nothing of it is there to be kept any more, and not everybody may even look.
            if covered.iter().any(|above| path.starts_with(above)) {
                continue;
            }
            let target = new(path);
            // What may be written is a mount of its own, so a mount above it does not protect what is in it.
            let is_parted = |above: &Path| {
                written.iter().any(|root| root != above && root.starts_with(above) && path.starts_with(root))
            };
            let is_kept = how != MountProtection::Hidden
                && read_only.iter().any(|above| path.starts_with(above) && !is_parted(above));
            let metadata = match target.symlink_metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                // What cannot be reached now may be reached by a command that opens the way again.
                Err(error) => return Err(failed("keep", path, error)),
            };
            if is_kept || metadata.is_symlink() {
                continue;
            }
            let done = match how {
                MountProtection::Held => hold(&target),
                MountProtection::ReadOnly => {
                    read_only.push(path);
                    let kept = hold(&target).and_then(|()| remount_read_only(&target));
                    kept.map_err(|error| failed("keep", path, error))?;
                    for open in bounds.shelter.open.iter().filter(|open| open.starts_with(path) && old(open).exists()) {
                        self.bind(open, open, false)?;
                    }
                    continue;
                }
                MountProtection::Hidden if bounds.run.iter().any(|run| run == path) => continue,
                MountProtection::Hidden
                    if bounds.run.iter().chain(&bounds.shelter.open).any(|one| one.starts_with(path)) =>
                {
                    self.hide_around(path, bounds)?;
                    continue;
                }
                // It is mounted read-only: a command could otherwise change its mode, as its owner, and lose what it
                // writes there.
                MountProtection::Hidden => {
                    covered.push(path);
                    let nothing = if metadata.is_dir() { NO_DIRECTORY_PATH } else { NO_FILE_PATH };
                    mount_bind_recursive(nothing.make()?, &target).and_then(|()| remount_read_only(&target))
                }
            };
            done.map_err(|error| failed("keep", path, error))?;
        }
        Ok(())
    }

    /// Hides a directory except for what is run from beneath it, and what the approver agreed to.
    fn hide_around(&self, path: &Path, bounds: &Bounds) -> MountResult {
        let target = new(path);
        let wrong = |error| failed("keep", path, error);
        mount("tmpfs", &target, "tmpfs", PLAIN, c"mode=0755").map_err(wrong)?;
        let is_written = |one: &PathBuf| bounds.written().iter().any(|root| one.starts_with(root));
        let open = bounds.shelter.open.iter().map(|open| (open, !is_written(open)));
        let shown = bounds.run.iter().map(|run| (run, true)).chain(open);
        for (one, read_only) in shown.filter(|(one, _)| one.starts_with(path) && old(one).exists()) {
            self.bind(one, one, read_only)?;
        }
        remount_read_only(&target).map_err(wrong)
    }
}

impl SystemPath {
    fn find(path: &Path) -> Option<Self> {
        let real = path.canonicalize().ok()?;
        Some(Self { path: path.to_owned(), real, link: fs::read_link(path).ok() })
    }
}

/// Holds the directories between `/tmp`, which commands write, and what is brought in below it, so that no command
/// moves them away.
fn hold_in_private(bounds: &Bounds, path: &Path) -> MountResult {
    if bounds.shelter.private.is_none() || !path.starts_with("/tmp") {
        return Ok(());
    }
    let mut above: Vec<&Path> = path.ancestors().skip(1).take_while(|above| *above != Path::new("/tmp")).collect();
    above.reverse();
    for above in above {
        make_directory(&new(above))?;
        hold(&new(above)).map_err(|error| failed("hold", above, error))?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MountProtection {
    /// Stays where it is.
    Held,
    ReadOnly,
    Hidden,
}

/// An empty file or directory that no command may look into.
struct Nothing {
    path: &'static str,
    is_directory: bool,
}

const NO_FILE_PATH: Nothing = Nothing { path: NO_FILE, is_directory: false };
const NO_DIRECTORY_PATH: Nothing = Nothing { path: NO_DIRECTORY, is_directory: true };

impl Nothing {
    fn make(&self) -> Result<&'static str, String> {
        let path = Path::new(self.path);
        if path.exists() {
            return Ok(self.path);
        }
        let made = if self.is_directory { fs::create_dir(path) } else { fs::write(path, "") };
        let closed = made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o000)));
        closed.map_err(|error| failed("make", path, error))?;
        Ok(self.path)
    }
}

/// Makes a path a mount point, which can neither be moved nor removed.
fn hold(target: &Path) -> rustix::io::Result<()> {
    mount_bind_recursive(target, target)
}

fn make_read_only(target: &Path) -> MountResult {
    remount_read_only(target).map_err(|error| failed("make read-only", target, error))
}

/// Makes a mount read-only. What is already restricted stays so, because the kernel refuses to loosen it.
fn remount_read_only(target: &Path) -> rustix::io::Result<()> {
    let present = statvfs(target)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    for (is_set, flag) in [
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if present.contains(is_set) {
            flags |= flag;
        }
    }
    mount_remount(target, flags, c"")
}

fn leave_the_old() -> MountResult {
    let wrong = |error| format!("the old root stays: {error}");
    unmount(OLD, UnmountFlags::DETACH).map_err(wrong)?;
    chdir(NEW).map_err(wrong)?;
    pivot_root(".", ".").map_err(wrong)?;
    unmount(".", UnmountFlags::DETACH).map_err(wrong)?;
    chdir("/").map_err(wrong)?;
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | PLAIN, c"").map_err(wrong)
}

fn make_place(source: &Path, target: &Path) -> MountResult {
    if source.is_dir() {
        return make_directory(target);
    }
    make_directory(target.parent().unwrap_or(Path::new(NEW)))?;
    if target.exists() { Ok(()) } else { fs::write(target, "").map_err(|error| failed("make", target, error)) }
}

fn make_directory(path: &Path) -> MountResult {
    fs::create_dir_all(path).map_err(|error| failed("make", path, error))
}

fn failed(what: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn old(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

fn new(path: &Path) -> PathBuf {
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// The mount points of a table: the fifth word of each line, in which blanks and the like are written as octal numbers.
fn mount_points(table: &str) -> Vec<PathBuf> {
    let point = |line: &str| line.split(' ').nth(4).map(unescaped);
    table.lines().filter_map(point).collect()
}

fn unescaped(word: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, others @ ..] = rest {
        let octal = others.first_chunk::<3>().and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &others[3..];
            }
            Some(_) | None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_they_are_named() {
        let table =
            "22 27 0:21 / /proc rw,relatime - proc proc rw\n23 27 0:2 /x /a\\040b\\134c\\011 ro - ext4 /dev/x ro\n";
        assert_eq!(mount_points(table), [PathBuf::from("/proc"), PathBuf::from("/a b\\c\t")]);
        assert_eq!(mount_points("short line\n\n"), Vec::<PathBuf>::new());
    }
}
