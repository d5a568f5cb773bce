//! Which working directories are too wide: whoever starts the program there does not mean everything beneath.

use std::path::Path;

use crate::escape::visible;

/// Beneath these lies more than files of people: other processes, devices, sockets, secrets of services.
const OF_THE_SYSTEM: &[&str] = &["/proc", "/sys", "/dev", "/run"];
/// But for this one: desktops put disks there.
const OF_PEOPLE: &str = "/run/media";

/// Whether more lies beneath a directory (absolute, without links) than anybody means.
pub fn is_too_wide(path: &Path) -> bool {
    let is_of_system = OF_THE_SYSTEM.iter().any(|system| path.starts_with(system)) && !path.starts_with(OF_PEOPLE);
    path == Path::new("/") || is_of_system
}

/// Why a working directory (absolute, without links) is no place to look around in.
pub(crate) fn refusal(path: &Path) -> Option<String> {
    is_too_wide(path).then(|| {
        let path = path.display().to_string();
        format!("the working directory is `{}`: everything would lie beneath it", visible(&path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_no_working_directory() {
        for path in ["/", "/proc", "/proc/self", "/sys/kernel", "/dev/shm", "/run", "/run/secrets"] {
            assert!(refusal(Path::new(path)).is_some(), "{path}");
        }
        for path in ["/home/somebody", "/tmp", "/processes", "/srv/run", "/run/media/somebody/disk", "/var/lib"] {
            assert_eq!(refusal(Path::new(path)), None, "{path}");
        }
    }
}
