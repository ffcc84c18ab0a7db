//! Settings of the cluster, of which some change while it runs.

use serde::{Deserialize, Serialize};

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name, with the process or part it belongs to, as `server.log-limit`.
    pub name: String,
    /// Its value now, in the form in which it is set.
    pub value: String,
    /// Its default, in the same form.
    pub default: Option<String>,
    /// Where the value comes from: `default`, `file /etc/terrane.toml`, `flag`, `environment`, `set at run time`.
    pub origin: String,
    /// Whether it can be changed while the process runs.
    pub live: bool,
    /// What it is for, in a sentence, with the unit.
    pub help: String,
    /// The values to choose from, if there are few.
    pub choices: Vec<String>,
}

/// A change of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name.
    pub name: String,
    /// Its new value; `None` for the default.
    pub value: Option<String>,
}
