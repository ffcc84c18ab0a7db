//! What a hypervisor says of disruptions of its guest: the kernel's device of a VMClock.
//!
//! A machine that its host pauses, moves to another host or restores from a snapshot sees none of that on its own clocks: all
//! of them stand still. Where the hypervisor offers a VMClock (Linux 6.13 and later show it as `/dev/vmclock0`), two numbers
//! in it change when the guest was disrupted: the disruption marker, and the generation of the machine. The layout is that of
//! `linux/vmclock-abi.h`. Reading them is one system call without a lock.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const DEVICE: &str = "/dev/vmclock0";
/// The first four bytes: `VCLK` in little-endian.
const MAGIC: [u8; 4] = 0x4b4c_4356_u32.to_le_bytes();
/// The bytes that hold everything read here; older hypervisors leave zeros where they have no generation.
const BYTES: usize = 112;
const DISRUPTION_AT: usize = 16;
const GENERATION_AT: usize = 104;

/// The device, if there is one.
#[derive(Debug)]
pub(crate) struct VmClock {
    device: Option<File>,
    /// The two numbers when they were read last.
    seen: Option<[u64; 2]>,
}

impl VmClock {
    /// Opens the device of this machine.
    pub(crate) fn open() -> Self {
        Self::at(Path::new(DEVICE))
    }

    fn at(path: &Path) -> Self {
        let device = File::open(path).ok();
        let seen = device.as_ref().and_then(numbers);
        // A device of another kind says nothing.
        let device = device.filter(|_| seen.is_some());
        Self { device, seen }
    }

    /// Whether the machine was disrupted since the last call. A device that can no longer be read may hide that it was.
    pub(crate) fn was_disrupted(&mut self) -> bool {
        let Some(device) = &self.device else { return false };
        let now = numbers(device);
        let before = std::mem::replace(&mut self.seen, now);
        now.is_none() || now != before
    }
}

/// Disruption marker and generation.
fn numbers(device: &File) -> Option<[u64; 2]> {
    let mut bytes = [0; BYTES];
    let read = device.read_at(&mut bytes, 0).ok()?;
    if read < GENERATION_AT || bytes[..4] != MAGIC {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some([number(DISRUPTION_AT)?, number(GENERATION_AT)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(disruption: u64, generation: u64) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[DISRUPTION_AT..DISRUPTION_AT + 8].copy_from_slice(&disruption.to_le_bytes());
        bytes[GENERATION_AT..].copy_from_slice(&generation.to_le_bytes());
        bytes
    }

    #[test]
    fn a_disruption_and_a_restored_snapshot_are_noticed_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmclock0");
        std::fs::write(&path, clock(7, 1)).unwrap();
        let mut vm = VmClock::at(&path);
        assert!(!vm.was_disrupted());
        for next in [clock(8, 1), clock(8, 2)] {
            std::fs::write(&path, next).unwrap();
            assert!(vm.was_disrupted());
            assert!(!vm.was_disrupted());
        }
        std::fs::write(&path, b"gone").unwrap();
        assert!(vm.was_disrupted(), "what cannot be read may hide a disruption");
    }

    #[test]
    fn without_a_device_nothing_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let mut none = VmClock::at(&directory.path().join("none"));
        std::fs::write(directory.path().join("other"), [1; 4096]).unwrap();
        let mut other = VmClock::at(&directory.path().join("other"));
        assert!(!none.was_disrupted() && !other.was_disrupted());
    }
}
