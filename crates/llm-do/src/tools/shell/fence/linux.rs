//! Landlock for files, TCP and signals; seccomp for what Landlock does not know: sockets of every kind, process groups,
//! modes and owners of files, the memory of others.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::process::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{Bounds, Network, Write};

/// The newest rules that are asked for; older kernels give what they have.
const NEWEST: ABI = ABI::V6;

/// Programs and libraries of the system, and little else.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/run/current-system",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
];
const DEVICES: &[&str] = &["/dev/zero", "/dev/urandom", "/dev/random"];
/// What names of hosts and certificates are found with.
const NETWORK_FILES: &[&str] = &[
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// A fence that is ready to be put around the thread that calls [`Fence::restrict_thread`].
pub struct Fence {
    ruleset: RulesetCreated,
    filter: BpfProgram,
}

impl Fence {
    /// Whatever is started behind it stays in one process group.
    pub fn new(bounds: &Bounds, group: Pid) -> Result<Self, String> {
        let ruleset = ruleset(bounds).map_err(|error| format!("Landlock: {error}"))?;
        Ok(Self { ruleset, filter: filter(bounds, group)? })
    }

    /// Restricts this thread, for ever, and all that it starts from now on.
    pub fn restrict_thread(self) -> Result<(), String> {
        self.restrict().map(drop)
    }

    fn restrict(self) -> Result<LandlockStatus, String> {
        let status = self.ruleset.restrict_self().map_err(|error| format!("Landlock: {error}"))?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err("Landlock is not enforced".to_owned());
        }
        seccompiler::apply_filter(&self.filter).map_err(|error| format!("seccomp: {error}"))?;
        Ok(status.landlock)
    }
}

pub fn offered() -> Result<String, String> {
    let bounds = Bounds { read: Vec::new(), run: Vec::new(), write: Write::Nothing, network: Network::None };
    let fence = Fence::new(&bounds, rustix::process::getpgrp())?;
    let tried = std::thread::Builder::new().spawn(move || fence.restrict()).map(std::thread::JoinHandle::join);
    let status = match tried {
        Ok(Ok(status)) => status?,
        Ok(Err(_)) | Err(_) => return Err("no thread could try it".to_owned()),
    };
    Ok(match status {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            format!("Landlock ABI {abi} and seccomp")
        }
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => "Landlock and seccomp".to_owned(),
    })
}

fn ruleset(bounds: &Bounds) -> Result<RulesetCreated, RulesetError> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = AccessFs::from_read(NEWEST);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .scope(Scope::Signal)?;
    if bounds.network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?.scope(Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    created = allow(created, SYSTEM, run)?;
    created = allow(created, DEVICES, read)?;
    created = allow(created, &["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    created = allow(created, &bounds.read, read)?;
    created = allow(created, &bounds.run, run)?;
    if let Write::Beneath(directories) = &bounds.write {
        // No devices: those that are there may be used only where they are named above.
        let write = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
        created = allow(created, directories, write)?;
    }
    if bounds.network == Network::Open {
        created = allow(created, NETWORK_FILES, read)?;
    }
    Ok(created)
}

/// Paths that do not exist need no rule.
fn allow<P: AsRef<Path>>(
    ruleset: RulesetCreated,
    paths: &[P],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let rules = paths.iter().filter_map(|path| {
        let is_directory = path.as_ref().is_dir();
        let open = PathFd::new(path).ok()?;
        let access = if is_directory { access } else { access & AccessFs::from_file(NEWEST) };
        Some(Ok::<_, RulesetError>(PathBeneath::new(open, access)))
    });
    ruleset.add_rules(rules)
}

type Calls = &'static [i64];

/// What no command needs and what would reach around Landlock: other processes, mounts, keys, the kernel itself.
const NEVER: Calls = &[
    libc::SYS_setsid,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Of every family, since Landlock knows TCP only.
const SOCKETS: Calls = &[libc::SYS_socket];

/// What Landlock does not count as writing.
const METADATA: Calls = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    libc::SYS_mknodat,
];
/// The same number on every architecture; newer than the list of names.
const SYS_FCHMODAT2: i64 = 452;

#[cfg(target_arch = "x86_64")]
const OLD_METADATA: Calls = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_METADATA: Calls = &[];

/// The second way in that x86-64 has: the same calls with a bit set.
#[cfg(target_arch = "x86_64")]
const OTHER_WAY_IN: Option<i64> = Some(0x4000_0000);
#[cfg(not(target_arch = "x86_64"))]
const OTHER_WAY_IN: Option<i64> = None;

fn filter(bounds: &Bounds, group: Pid) -> Result<BpfProgram, String> {
    let wrong = |error: seccompiler::BackendError| format!("seccomp: {error}");
    let mut denied: Vec<i64> = NEVER.to_vec();
    if bounds.network == Network::None {
        denied.extend(SOCKETS);
    }
    if bounds.write == Write::Nothing {
        denied.extend(METADATA.iter().chain(OLD_METADATA));
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = denied.into_iter().map(|call| (call, Vec::new())).collect();
    // Into the group and nowhere else: nothing that is started leaves it, and so nothing outlives it.
    let id = u64::from(group.as_raw_nonzero().get().unsigned_abs());
    let elsewhere = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, id).map_err(wrong)?;
    let elsewhere = SeccompRule::new(vec![elsewhere]).map_err(wrong)?;
    rules.insert(libc::SYS_setpgid, vec![elsewhere]);
    if let Some(bit) = OTHER_WAY_IN {
        let others: Vec<_> = rules.keys().map(|call| (call | bit, Vec::new())).collect();
        rules.extend(others);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().map_err(wrong)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).map_err(wrong)?;
    filter.try_into().map_err(wrong)
}
