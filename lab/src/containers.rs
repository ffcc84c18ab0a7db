//! `cargo xtask containers`: the image and the compose file, as containers.
//!
//! The image is built by the last stage of `deploy/docker/Dockerfile`, word for word; its first stage, which compiles inside of
//! another image, is replaced by the binary that is asked for. Then `podman-compose` starts the masters and servers of
//! `deploy/docker/compose.yaml` as they are written, and the check does what their users do: commands, a stop, a kill, a start over
//! the same volumes. A last container runs under the restrictions of `deploy/kubernetes/terrane.yaml`.
//!
//! Everything of podman's is in a directory of its own, so that images and volumes of the machine's users stay as they are. It needs
//! root and podman with a runtime (Debian: podman, runc, netavark, aardvark-dns, iptables).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;
use terrane_lab::process::quietly;
use terrane_lab::{builds, eventually};

const DOCKERFILE: &str = "deploy/docker/Dockerfile";
const COMPOSE: &str = "deploy/docker/compose.yaml";
/// The binary inside of the image.
const TERRANE: &str = "/usr/local/bin/terrane";
/// The user of the image.
const USER: u32 = 10_001;
const SERVICES: [&str; 6] = ["master-1", "master-2", "master-3", "server-1", "server-2", "server-3"];
/// A stop hands leaderships over and flushes.
const STOP_MAX: Duration = Duration::from_secs(60);

/// The image and the compose file, as containers of podman.
#[derive(Args)]
pub struct Asked {
    /// Put this binary into the image instead of the release build. The image has no libraries, so it should be static (musl);
    /// the libraries of another one are copied beside it.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    for program in ["podman", "podman-compose"] {
        ensure!(
            quietly(Command::new(program).arg("--version")),
            "{program} is missing; install it (Debian: podman, runc, netavark, aardvark-dns, iptables; PyPI: podman-compose)"
        );
    }
    let binary = builds::release_unless(asked.binary.as_deref(), root)?;
    let engine = Engine::new(root)?;
    engine.build(&binary)?;
    println!(
        "{}",
        engine.podman(&["run", "--rm", "--network=none", "terrane", "version"])?.lines().next().unwrap_or_default()
    );
    engine.cluster()?;
    engine.restricted()
}

/// Podman with storage, networks and settings of its own.
struct Engine {
    root: PathBuf,
    settings: Vec<(&'static str, PathBuf)>,
    /// Where master 1 shows its console on this machine.
    console_port: u16,
    /// Last, so that it is removed after the containers.
    folder: tempfile::TempDir,
}

impl Engine {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("creating a directory")?;
        let at = |name: &str| folder.path().join(name);
        let runtime = ["runc", "crun"].into_iter().find(|name| quietly(Command::new(name).arg("--version")));
        let runtime = runtime.context("no container runtime; install runc")?;
        // Podman asks for more than a machine may allow.
        let containers = format!(
            "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n[engine]\nruntime = \"{runtime}\"\n\
             [network]\nnetwork_config_dir = {:?}\n",
            at("networks")
        );
        let storage =
            format!("[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = {:?}\n", at("storage"), at("run"));
        fs::write(at("containers.conf"), containers).context("writing podman's settings")?;
        fs::write(at("storage.conf"), storage).context("writing podman's settings")?;
        let settings =
            vec![("CONTAINERS_CONF", at("containers.conf")), ("CONTAINERS_STORAGE_CONF", at("storage.conf"))];
        let console_port = terrane_lab::ports::free(1)?[0];
        Ok(Self { root: root.to_owned(), settings, console_port, folder })
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).envs(self.settings.iter().map(|(name, file)| (name, file)));
        command.env("TERRANE_CONSOLE_PORT", self.console_port.to_string()).stdin(Stdio::null());
        command
    }

    fn podman(&self, words: &[&str]) -> anyhow::Result<String> {
        succeeded(&mut self.command("podman", words))
    }

    fn compose(&self, words: &[&str]) -> anyhow::Result<String> {
        let file = self.root.join(COMPOSE).display().to_string();
        succeeded(&mut self.command("podman-compose", &[&["--file", &file], words].concat()))
    }

    /// A command as the documents have it, in a container of its own.
    fn terrane(&self, words: &[&str]) -> anyhow::Result<String> {
        self.compose(&[&["--profile", "commands", "run", "--rm", "-T", "terrane"], words].concat())
    }

    /// Builds the image around a binary.
    fn build(&self, binary: &Path) -> anyhow::Result<()> {
        let context = self.folder.path().join("context");
        let image = context.join("image");
        let here = image.join(TERRANE.trim_start_matches('/'));
        for folder in ["usr/local/bin", "var/lib/terrane"] {
            fs::create_dir_all(image.join(folder)).context("creating a directory")?;
        }
        fs::copy(binary, &here).with_context(|| format!("copying {}", binary.display()))?;
        let libraries = copy_libraries(&here, &context)?;
        let dockerfile = fs::read_to_string(self.root.join(DOCKERFILE)).context("reading the Dockerfile")?;
        fs::write(context.join("Dockerfile"), around_a_binary(&dockerfile, libraries > 0)?).context("writing it")?;
        self.podman(&["build", "--quiet", "--tag", "terrane", &context.display().to_string()])?;
        let bytes = self.podman(&["image", "inspect", "terrane", "--format", "{{.Size}}"])?;
        let megabytes = bytes.trim().parse::<f64>().context("reading the size")? / 1e6;
        match libraries {
            0 => println!("image: {megabytes:.1} MB, a static binary and nothing else"),
            count => println!("image: {megabytes:.1} MB, a dynamic binary and its {count} libraries: not what ships"),
        }
        Ok(())
    }

    /// The cluster of the compose file: started, used, stopped, killed, and started again over its volumes.
    fn cluster(&self) -> anyhow::Result<()> {
        self.up()?;
        self.check_isolation("server-1")?;
        self.terrane(&["table", "create", "notes", "--family", "text"])?;
        self.terrane(&["put", "notes", "monday", "text:body", "draft"])?;

        let begun = Instant::now();
        self.podman(&["stop", "--time", "300", &container("server-1")])?;
        let status = self.podman(&["inspect", &container("server-1"), "--format", "{{.State.ExitCode}}"])?;
        ensure!(status.trim() == "0", "a stopped server ended with {}", status.trim());
        ensure!(begun.elapsed() < STOP_MAX, "the stop took {} s", begun.elapsed().as_secs());
        self.expect_row()?;
        println!("a server is stopped in {:.1} s; the row is read without it", begun.elapsed().as_secs_f64());
        self.podman(&["start", &container("server-1")])?;
        self.wait_until_well()?;

        self.podman(&["kill", "--signal", "KILL", &container("server-2")])?;
        self.expect_row()?;
        self.podman(&["start", &container("server-2")])?;
        self.wait_until_well()?;
        println!("a server is killed; the row is read without it");

        self.compose(&["down", "--timeout", "300"])?;
        self.up()?;
        self.expect_row()?;
        println!("new containers continue with the volumes of the old ones");
        self.compose(&["down", "--timeout", "300", "--volumes"]).map(drop)
    }

    fn up(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        self.compose(&[&["up", "--detach", "--no-build"], &SERVICES[..]].concat())?;
        self.wait_until_well()?;
        println!("three masters and three servers are well after {:.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn wait_until_well(&self) -> anyhow::Result<()> {
        eventually("the cluster is well", || {
            let status: Value = serde_json::from_str(self.terrane(&["status", "--check", "--json"])?.trim())?;
            let count = |what: &str| status[what].as_array().map_or(0, Vec::len);
            ensure!((count("masters"), count("region_servers")) == (3, 3), "{status}");
            Ok(())
        })
    }

    fn expect_row(&self) -> anyhow::Result<()> {
        let row = eventually("the row is read", || self.terrane(&["get", "notes", "monday"]))?;
        ensure!(row.contains("draft"), "the row is {row}");
        Ok(())
    }

    /// The process is the first of its namespace, not root, and without capabilities.
    fn check_isolation(&self, service: &str) -> anyhow::Result<()> {
        let pid = self.podman(&["inspect", &container(service), "--format", "{{.State.Pid}}"])?;
        let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).context("reading /proc")?;
        let field = |name: &str| -> anyhow::Result<Vec<&str>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc")?;
            Ok(line.split_whitespace().collect())
        };
        ensure!(field("NSpid:")?.last() == Some(&"1"), "it is not process 1 of its container");
        ensure!(field("Uid:")?.first() == Some(&USER.to_string().as_str()), "it does not run as user {USER}");
        ensure!(field("CapEff:")?.iter().all(|set| set.chars().all(|bit| bit == '0')), "it has capabilities");
        Ok(())
    }

    /// One process under the restrictions of the pods: no writable root, no capabilities, no new privileges, bounded memory.
    fn restricted(&self) -> anyhow::Result<()> {
        let run = [
            "run",
            "--detach",
            "--name",
            "restricted",
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--memory=2g",
            "terrane",
            "dev",
            "--data",
            "/var/lib/terrane/dev",
        ];
        self.podman(&run)?;
        eventually("a restricted process serves", || {
            let said = self.podman(&["logs", "restricted"])?;
            ensure!(said.lines().any(|line| line.starts_with("ready ")), "{said}");
            Ok(())
        })?;
        self.podman(&["exec", "restricted", TERRANE, "status", "--check"])?;
        self.podman(&["stop", "--time", "300", "restricted"])?;
        let status = self.podman(&["wait", "restricted"])?;
        ensure!(status.trim() == "0", "a restricted process ended with {}", status.trim());
        println!("under the restrictions of the pods, a cluster serves and stops");
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // After a failure. None of it may be there any more.
        self.podman(&["rm", "--all", "--force", "--time", "0", "--volumes"]).ok();
        self.podman(&["network", "prune", "--force"]).ok();
        self.podman(&["rmi", "--all", "--force"]).ok();
    }
}

fn container(service: &str) -> String {
    format!("terrane_{service}_1")
}

fn succeeded(command: &mut Command) -> anyhow::Result<String> {
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("running {:?}", command.get_program()))?;
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success(), "{:?} ended with {status}: {said}{errors}", command.get_args().collect::<Vec<_>>());
    Ok(said.into_owned())
}

/// The Dockerfile with a first stage that compiles nothing.
fn around_a_binary(dockerfile: &str, with_libraries: bool) -> anyhow::Result<String> {
    let last = dockerfile.rfind("\nFROM ").context("the Dockerfile has one stage")?;
    let (last, libraries) = (&dockerfile[last..], if with_libraries { "COPY libraries /\n" } else { "" });
    ensure!(last.contains("--from=build /image"), "the last stage takes nothing from the first");
    // The libraries go to the end: whatever the stage says comes before them.
    Ok(format!("FROM scratch AS build\nCOPY image /image\n{}\n{libraries}", last.trim_end()))
}

/// Copies what a dynamic binary needs to `libraries` in the context; returns how many files.
fn copy_libraries(binary: &Path, context: &Path) -> anyhow::Result<usize> {
    let needed = Command::new("ldd").arg(binary).output().context("running ldd")?;
    let needed = libraries_in(&String::from_utf8_lossy(&needed.stdout));
    for library in &needed {
        let copy = context.join("libraries").join(library.trim_start_matches('/'));
        let folder = copy.parent().context("a library has a directory")?;
        fs::create_dir_all(folder).context("creating a directory")?;
        fs::copy(library, &copy).with_context(|| format!("copying {library}"))?;
    }
    Ok(needed.len())
}

/// The files that `ldd` lists; none for a static binary.
fn libraries_in(listed: &str) -> Vec<String> {
    let files = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    files.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stage_of_the_dockerfile_is_kept_as_it_is() {
        let dockerfile = fs::read_to_string(builds::root().join(DOCKERFILE)).unwrap();
        let last = dockerfile.split("\nFROM ").last().unwrap().trim_end();
        for (with_libraries, added) in [(false, ""), (true, "COPY libraries /\n")] {
            let built = around_a_binary(&dockerfile, with_libraries).unwrap();
            assert_eq!(built, format!("FROM scratch AS build\nCOPY image /image\n\nFROM {last}\n{added}"));
        }
        assert!(around_a_binary("FROM scratch\n", false).is_err());
    }

    #[test]
    fn ldd_lists_the_files_of_a_dynamic_binary() {
        let listed =
            "\tlinux-vdso.so.1 (0x00007f)\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x7f)\n";
        assert_eq!(libraries_in(listed), ["/lib/libm.so.6", "/lib64/ld-linux.so.2"]);
        assert!(libraries_in("\tstatically linked\n").is_empty());
    }
}
