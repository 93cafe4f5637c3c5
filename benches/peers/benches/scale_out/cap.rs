//! Caps on what a process may use of a core, by control groups, version 1 or 2.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The kernel takes no quota below a millisecond.
pub(crate) const LEAST_QUOTA: u32 = 1_000;

/// Waits until the bench is gone, however it went, then ends whatever is left in the groups and removes them. A group can
/// only be removed when it is empty, and nothing but a process of its own outlives a Ctrl-C.
const JANITOR: &str = r#"
trap '' INT HUP TERM
cat >/dev/null
for group in "$@"; do
  for try in 1 2 3 4 5 6 7 8 9 10; do
    for process in $(cat "$group/cgroup.procs" 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
    rmdir "$group" 2>/dev/null && break
    sleep 0.1
  done
done
"#;

/// One group for each process, all with the same quota. Removed when dropped, with what still runs in them.
#[derive(Debug)]
pub(crate) struct Caps(Child);

impl Caps {
    /// Lets each of these processes run for `quota` µs in every `period` µs, on all cores together.
    pub(crate) fn new(processes: &[u32], quota: u32, period: u32) -> io::Result<Self> {
        let hierarchy = Hierarchy::find()?;
        let name = |process: &u32| format!("shardlimit-bench-{}-{process}", std::process::id());
        let groups: Vec<PathBuf> = processes.iter().map(|process| hierarchy.root().join(name(process))).collect();
        let mut janitor = Command::new("sh");
        janitor.args(["-c", JANITOR, "janitor"]).args(&groups).stdin(Stdio::piped());
        // Before the first group is made, so that none is ever left.
        let caps = Self(janitor.spawn()?);
        for (group, process) in groups.iter().zip(processes) {
            hierarchy.cap(group, quota, period)?;
            fs::write(group.join("cgroup.procs"), process.to_string())?;
        }
        Ok(caps)
    }
}

impl Drop for Caps {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Where groups with a CPU quota can be made.
enum Hierarchy {
    One(PathBuf),
    Two(PathBuf),
}

impl Hierarchy {
    fn find() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        for mount in mounts.lines() {
            let mut words = mount.split_whitespace().skip(1);
            let (Some(path), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else { continue };
            let path = Path::new(path);
            match kind {
                "cgroup" if options.split(',').any(|option| option == "cpu") => return Ok(Self::One(path.into())),
                "cgroup2" if controllers(path)?.split_whitespace().any(|name| name == "cpu") => {
                    // For the groups below it. Refused where it is ours only to look at.
                    fs::write(path.join("cgroup.subtree_control"), "+cpu")?;
                    return Ok(Self::Two(path.into()));
                }
                _ => {}
            }
        }
        Err(io::Error::new(ErrorKind::NotFound, "no control groups with CPU quotas are mounted"))
    }

    fn root(&self) -> &Path {
        match self {
            Self::One(root) | Self::Two(root) => root,
        }
    }

    fn cap(&self, group: &Path, quota: u32, period: u32) -> io::Result<()> {
        fs::create_dir(group)?;
        match self {
            Self::One(_) => {
                fs::write(group.join("cpu.cfs_period_us"), period.to_string())?;
                fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())
            }
            Self::Two(_) => fs::write(group.join("cpu.max"), format!("{quota} {period}")),
        }
    }
}

fn controllers(root: &Path) -> io::Result<String> {
    fs::read_to_string(root.join("cgroup.controllers"))
}
