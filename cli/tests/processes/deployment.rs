//! The files under `deploy/` agree with the binary and with each other.
//!
//! No container engine and no Kubernetes cluster runs in this test. It reads the files and checks what it can without: flags
//! and variables exist, settings pass `terrane config check`, ports, probes, names and selectors match, images have a version,
//! and files that are named exist. The settings of the compose file are also used as they are, by processes without
//! containers.

#[path = "../../src/config/list.rs"]
#[allow(dead_code, reason = "the binary uses more of it")]
mod list;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value as Yaml};

use crate::harness::{BINARY, Process, bounded, errors_of, eventually, free_ports, started};

/// Where the image has its binary.
const IN_THE_IMAGE: &str = "/usr/local/bin/terrane";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the checkout").to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The documents of a file, with their merge keys (`<<`) applied.
fn documents(file: &str) -> Vec<Yaml> {
    let text = read(file);
    let documents = Deserializer::from_str(&text).map(|document| {
        let mut value = Yaml::deserialize(document).unwrap_or_else(|error| panic!("{file}: {error}"));
        // Twice, since what is merged may itself merge something.
        for _ in 0..2 {
            value.apply_merge().unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        value
    });
    documents.collect()
}

fn text(value: &Yaml) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value:?} is no text"))
}

fn texts(value: &Yaml) -> Vec<String> {
    value.as_sequence().into_iter().flatten().map(|value| text(value).to_owned()).collect()
}

/// A map from text to scalars.
fn pairs(value: &Yaml) -> BTreeMap<String, String> {
    let entries = value.as_mapping().unwrap_or_else(|| panic!("{value:?} is no map"));
    let scalar = |value: &Yaml| match value {
        Yaml::Number(number) => number.to_string(),
        value => text(value).to_owned(),
    };
    entries.iter().map(|(key, value)| (text(key).to_owned(), scalar(value))).collect()
}

/// The command line is in the grammar: help is printed only if everything before it is.
fn assert_is_read(words: &[String]) {
    let output = bounded(Command::new(BINARY).args(words).arg("--help"));
    assert!(output.status.success(), "{words:?}: {}", errors_of(&output));
}

fn assert_is_setting(name: &str) {
    let known = list::SETTINGS.iter().any(|setting| list::variable(setting.key) == name);
    assert!(known || name == "TERRANE_OPTIONS", "{name} is no setting");
}

/// An image without a version changes under the feet of a cluster.
fn assert_is_pinned(image: &str) {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    assert!(tag.contains('.') && tag.starts_with(|c: char| c.is_ascii_digit() || c == 'v'), "{image} has no version");
}

mod compose {
    use super::*;

    const FILE: &str = "deploy/docker/compose.yaml";

    fn services() -> BTreeMap<String, Yaml> {
        let compose = documents(FILE).remove(0);
        let services = compose["services"].as_mapping().expect("services");
        services.iter().map(|(name, service)| (text(name).to_owned(), service.clone())).collect()
    }

    #[test]
    fn services_volumes_and_files_exist() {
        let (compose, services) = (documents(FILE).remove(0), services());
        let folder = root().join("deploy/docker");
        for (name, service) in &services {
            let image = text(&service["image"]);
            if image == "terrane" {
                assert!(folder.join(text(&service["build"]["context"])).join("deploy/docker/Dockerfile").is_file());
            } else {
                assert_is_pinned(image);
            }
            for other in texts(&service["depends_on"]) {
                assert!(services.contains_key(&other), "{name} depends on {other}");
            }
            for volume in texts(&service["volumes"]) {
                let source = volume.split(':').next().expect("a source");
                if !source.starts_with('.') {
                    assert!(compose["volumes"].as_mapping().expect("volumes").contains_key(source), "{name}: {source}");
                } else {
                    assert!(folder.join(source).exists(), "{name}: {source} does not exist");
                }
            }
        }
    }

    #[test]
    fn prometheus_scrapes_every_process() {
        let scraped = documents("deploy/docker/prometheus.yml").remove(0);
        let jobs = scraped["scrape_configs"].as_sequence().expect("jobs");
        let mut targets: Vec<String> =
            jobs.iter().flat_map(|job| texts(&job["static_configs"][0]["targets"])).collect();
        let mut consoles: Vec<String> = Vec::new();
        for (name, service) in services() {
            if let Some(console) = service["environment"]["TERRANE_CONSOLE"].as_str() {
                consoles.push(format!("{name}:{}", port_of(console)));
            }
        }
        targets.sort();
        consoles.sort();
        assert_eq!(targets, consoles);
        for rules in texts(&scraped["rule_files"]) {
            let file = rules.replace("/etc/prometheus/terrane", "deploy/prometheus");
            assert!(root().join(&file).is_file(), "{rules} would be {file}, which does not exist");
        }
        let source = documents("deploy/docker/grafana-datasource.yaml").remove(0);
        assert_eq!(text(&source["datasources"][0]["url"]), "http://prometheus:9090");
    }

    /// The processes of the file, without containers: host names become `localhost`, and ports free ones.
    #[test]
    fn its_settings_make_a_cluster() {
        let data = tempfile::tempdir().expect("a directory");
        let services = services();
        let ports: BTreeMap<(String, u16), u16> = services
            .iter()
            .filter(|(_, service)| !service["environment"]["TERRANE_LISTEN"].is_null())
            .flat_map(|(name, service)| {
                ["TERRANE_LISTEN", "TERRANE_CONSOLE"]
                    .map(|key| (name.clone(), port_of(text(&service["environment"][key]))))
            })
            .zip(free_ports::<12>())
            .collect();
        assert_eq!(ports.len(), 12);
        let here = |name: &str, address: &str| -> String {
            let (host, port) = address.rsplit_once(':').expect("an address");
            let port = port.parse::<u16>().expect("a port");
            match host {
                "0.0.0.0" => format!("127.0.0.1:{}", ports[&(name.to_owned(), port)]),
                other => format!("localhost:{}", ports[&(other.to_owned(), port)]),
            }
        };
        let arguments = |name: &str, service: &Yaml| -> Vec<String> {
            let mut arguments = texts(&service["command"]);
            for (variable, value) in pairs(&service["environment"]) {
                assert_is_setting(&variable);
                let flag = variable.trim_start_matches("TERRANE_").to_lowercase().replace('_', "-");
                let value = match flag.as_str() {
                    "insecure" => None,
                    "data" => Some(data.path().join(name).display().to_string()),
                    _ if value.contains(':') => {
                        Some(value.split(',').map(|address| here(name, address)).collect::<Vec<_>>().join(","))
                    }
                    _ => Some(value),
                };
                arguments.push(format!("--{flag}"));
                arguments.extend(value);
            }
            arguments
        };
        let start = |role: &str| -> Vec<Process> {
            let named = services.iter().filter(|(name, _)| name.starts_with(role));
            let lines: Vec<Vec<String>> = named.map(|(name, service)| arguments(name, service)).collect();
            assert_eq!(lines.len(), 3);
            // Together: the masters of a new cluster wait for each other.
            std::thread::scope(|scope| {
                let starting: Vec<_> = lines.iter().map(|line| scope.spawn(|| started(line))).collect();
                starting.into_iter().map(|one| one.join().expect("it starts")).collect()
            })
        };
        let masters = start("master-");
        let servers = start("server-");
        let addresses = text(&services["terrane"]["environment"]["TERRANE_MASTERS"]);
        let addresses: Vec<String> = addresses.split(',').map(|address| here("", address)).collect();
        let masters_of_all = addresses.join(",");
        eventually(crate::harness::READY_MAX, "the cluster is healthy", || {
            let status =
                bounded(Command::new(BINARY).args(["status", "--check", "--json", "--masters", &masters_of_all]));
            let line = String::from_utf8_lossy(&status.stdout).into_owned();
            let said: serde_json::Value =
                serde_json::from_str(line.trim()).map_err(|error| format!("{error}: {line}"))?;
            let counted = |key: &str| said[key].as_array().map_or(0, Vec::len);
            let is_whole = status.status.success() && (counted("masters"), counted("region_servers")) == (3, 3);
            if is_whole { Ok(()) } else { Err(line) }
        });
        drop((servers, masters));
    }
}

mod kubernetes {
    use super::*;

    const FILE: &str = "deploy/kubernetes/terrane.yaml";

    fn objects(kind: &str) -> Vec<Yaml> {
        documents(FILE).into_iter().filter(|object| object["kind"].as_str() == Some(kind)).collect()
    }

    fn name(object: &Yaml) -> &str {
        text(&object["metadata"]["name"])
    }

    /// The role of a stateful set, and its only container.
    fn sets() -> Vec<(String, Yaml, Yaml)> {
        let sets = objects("StatefulSet").into_iter().map(|set| {
            let containers = set["spec"]["template"]["spec"]["containers"].as_sequence().expect("containers");
            let [container] = containers.as_slice() else { panic!("{} has more than one container", name(&set)) };
            (texts(&container["args"])[0].clone(), set.clone(), container.clone())
        });
        let sets: Vec<_> = sets.collect();
        assert_eq!(sets.iter().map(|(role, ..)| role.as_str()).collect::<Vec<_>>(), ["master", "server"]);
        sets
    }

    fn settings() -> (String, toml::Table) {
        let config = objects("ConfigMap").remove(0);
        let text = text(&config["data"]["terrane.toml"]).to_owned();
        let table = text.parse().expect("TOML");
        (text, table)
    }

    #[test]
    fn every_object_is_in_the_namespace() {
        let namespace = name(&objects("Namespace")[0]).to_owned();
        for object in documents(FILE).iter().filter(|object| object["kind"].as_str() != Some("Namespace")) {
            assert_eq!(text(&object["metadata"]["namespace"]), namespace, "{}", name(object));
        }
    }

    #[test]
    fn the_settings_are_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("terrane.toml");
        fs::write(&file, settings().0).expect("written");
        let output = bounded(Command::new(BINARY).args(["config", "check"]).arg(&file).arg("--json"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn flags_variables_and_hooks_are_in_the_grammar() {
        for (role, set, container) in sets() {
            assert_is_read(&texts(&container["args"]));
            assert_is_pinned(text(&container["image"]));
            for variable in container["env"].as_sequence().expect("variables") {
                let variable = name_of(variable);
                assert!(
                    !variable.starts_with("TERRANE_")
                        || list::of(role_named(&role)).any(|setting| list::variable(setting.key) == variable),
                    "{role}: {variable}"
                );
            }
            let hook = texts(&container["lifecycle"]["preStop"]["exec"]["command"]);
            if let Some((program, words)) = hook.split_first() {
                assert_eq!(program, IN_THE_IMAGE);
                assert_is_read(words);
                let wait = hook.iter().position(|word| word == "--wait").map(|at| hook[at + 1].as_str());
                let minutes: i64 =
                    wait.and_then(|wait| wait.strip_suffix('m')).expect("minutes").parse().expect("a number");
                let grace = set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_i64().expect("a grace");
                assert!(grace >= minutes * 60 + 60, "no time is left to flush");
            }
            // Otherwise Kubernetes sets variables such as TERRANE_MASTER_PORT.
            assert_eq!(set["spec"]["template"]["spec"]["enableServiceLinks"].as_bool(), Some(false), "{role}");
        }
    }

    #[test]
    fn ports_and_probes_match_the_settings() {
        let (_, settings) = settings();
        for (role, _, container) in sets() {
            let ports: BTreeMap<String, String> = container["ports"]
                .as_sequence()
                .expect("ports")
                .iter()
                .map(|port| (name_of(port), port["containerPort"].as_i64().expect("a port").to_string()))
                .collect();
            let of = |key: &str| port_of(settings[&role][key].as_str().expect("an address")).to_string();
            assert_eq!(ports, BTreeMap::from([(role.clone(), of("listen")), ("console".to_owned(), of("console"))]));
            let service = objects("Service").into_iter().find(|service| name(service) == format!("terrane-{role}"));
            for port in service.expect("a service")["spec"]["ports"].as_sequence().expect("ports") {
                assert_eq!(port["port"].as_i64().expect("a port").to_string(), ports[text(&port["targetPort"])]);
            }
            for (probe, path) in
                [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
            {
                let get = &container[probe]["httpGet"];
                assert_eq!((text(&get["path"]), text(&get["port"])), (path, "console"), "{role}: {probe}");
            }
        }
    }

    #[test]
    fn names_and_selectors_lead_to_the_pods() {
        let (_, settings) = settings();
        for (role, set, container) in sets() {
            let (spec, pod) = (&set["spec"], &set["spec"]["template"]);
            let labels = pairs(&pod["metadata"]["labels"]);
            assert_eq!(pairs(&spec["selector"]["matchLabels"]), labels);
            let service_name = text(&spec["serviceName"]);
            let service =
                objects("Service").into_iter().find(|service| name(service) == service_name).expect("a service");
            assert_eq!(pairs(&service["spec"]["selector"]), labels);
            assert_eq!(text(&service["spec"]["clusterIP"]), "None");
            assert_eq!(service["spec"]["publishNotReadyAddresses"].as_bool(), Some(true));
            let budget = objects("PodDisruptionBudget").into_iter().find(|budget| name(budget) == name(&set));
            assert_eq!(pairs(&budget.expect("a budget")["spec"]["selector"]["matchLabels"]), labels);

            let port = port_of(settings[&role]["listen"].as_str().expect("an address"));
            let namespace = text(&set["metadata"]["namespace"]);
            let address = |pod: &str| format!("{pod}.{service_name}.{namespace}.svc.cluster.local:{port}");
            let variables = container["env"].as_sequence().expect("variables");
            let value =
                |name: &str| variables.iter().find(|variable| name_of(variable) == name).map(|one| text(&one["value"]));
            assert_eq!(value("TERRANE_ADVERTISE"), Some(address("$(POD_NAME)").as_str()));
            if role == "master" {
                let replicas = spec["replicas"].as_i64().expect("a number");
                let expected: Vec<String> =
                    (0..replicas).map(|index| address(&format!("{}-{index}", name(&set)))).collect();
                let listed = |role: &str, key: &str| -> Vec<String> {
                    let list = settings[role][key].as_array().expect("a list");
                    list.iter().map(|address| address.as_str().expect("text").to_owned()).collect()
                };
                assert_eq!(listed("master", "peers"), expected);
                assert_eq!(listed("server", "masters"), expected);
            } else {
                let masters = settings["server"]["masters"].as_array().expect("a list");
                let masters: Vec<&str> = masters.iter().filter_map(toml::Value::as_str).collect();
                assert_eq!(value("TERRANE_MASTERS"), Some(masters.join(",").as_str()));
            }
        }
    }

    #[test]
    fn volumes_hold_what_the_settings_name() {
        let (_, settings) = settings();
        for (role, set, container) in sets() {
            let mounts: BTreeMap<String, String> = container["volumeMounts"]
                .as_sequence()
                .expect("mounts")
                .iter()
                .map(|mount| (name_of(mount), text(&mount["mountPath"]).to_owned()))
                .collect();
            let claim = &set["spec"]["volumeClaimTemplates"][0];
            let data = settings[&role]["data"].as_str().expect("a directory");
            assert!(data.starts_with(&mounts[name(claim)]), "{role}: {data} is not in {mounts:?}");
            let volume = &set["spec"]["template"]["spec"]["volumes"][0];
            assert_eq!(text(&volume["configMap"]["name"]), name(&objects("ConfigMap")[0]));
            let file = format!("{}/terrane.toml", mounts[&name_of(volume)]);
            assert!(texts(&container["args"]).contains(&file), "{role} does not read {file}");
        }
    }

    fn name_of(value: &Yaml) -> String {
        text(&value["name"]).to_owned()
    }

    fn role_named(name: &str) -> list::Role {
        list::Role::ALL.into_iter().find(|role| role.name() == name).expect("a role")
    }
}

#[test]
fn the_image_has_the_binary_where_the_manifests_look_for_it() {
    let file = read("deploy/docker/Dockerfile");
    let lines = |word: &str| -> Vec<String> {
        let lines = file.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines("ENTRYPOINT"), [format!("[\"{IN_THE_IMAGE}\"]")]);
    assert!(file.contains(&format!("/image{IN_THE_IMAGE}")), "the binary is installed elsewhere");
    let [build, last] = lines("FROM").try_into().expect("two stages");
    assert_is_pinned(build.split(' ').next().expect("an image"));
    assert_eq!(last, "scratch");
    let defaults = ["listen", "console"].into_iter().flat_map(|key| {
        let setting = list::SETTINGS.iter().find(|setting| setting.key == key).expect("a setting");
        setting.roles.iter().map(move |(_, unset)| match unset {
            list::Unset::Value(address) => port_of(address).to_string(),
            list::Unset::Means(means) => panic!("{key} has the default {means}"),
        })
    });
    let mut defaults: Vec<String> = defaults.collect();
    defaults.sort();
    assert_eq!(lines("EXPOSE"), [defaults.join(" ")]);
    let user = lines("USER").remove(0);
    let manifest = read("deploy/kubernetes/terrane.yaml");
    let (uid, gid) = user.split_once(':').expect("a user and a group");
    assert!(manifest.contains(&format!("runAsUser: {uid}")) && manifest.contains(&format!("fsGroup: {gid}")));
}

mod systemd {
    use super::*;

    const UNITS: [&str; 2] = ["terrane-master.service", "terrane-server.service"];

    #[test]
    fn the_commands_of_the_units_are_in_the_grammar() {
        for unit in UNITS {
            let unit = read(&format!("deploy/{unit}"));
            let environment = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
            let variables: BTreeMap<&str, &str> = environment
                .flat_map(|line| line.split(' '))
                .map(|pair| pair.split_once('=').expect("a pair"))
                .collect();
            variables.keys().for_each(|name| assert_is_setting(name));
            let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
            let words = command.split(' ').map(|word| {
                let name = word.strip_prefix('$').map(|name| name.trim_matches(['{', '}']));
                name.map_or(word, |name| variables[name]).to_owned()
            });
            let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            assert_eq!(words[0], IN_THE_IMAGE);
            assert_is_read(&words[1..]);
        }
    }

    #[test]
    fn systemd_accepts_the_units() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = UNITS.map(|unit| {
            // It wants the program to exist.
            let text = read(&format!("deploy/{unit}")).replace(IN_THE_IMAGE, BINARY);
            let file = directory.path().join(unit);
            fs::write(&file, text).expect("written");
            file
        });
        let mut verify = Command::new("systemd-analyze");
        let Ok(output) = verify.args(["verify", "--man=no"]).args(&files).output() else {
            eprintln!("skipped: systemd-analyze is not installed");
            return;
        };
        let said = errors_of(&output);
        let ours = said.lines().filter(|line| line.contains("terrane"));
        assert_eq!(ours.collect::<Vec<_>>(), [""; 0], "{said}");
    }
}

fn port_of(address: &str) -> u16 {
    address.rsplit_once(':').expect("an address").1.parse().expect("a port")
}
