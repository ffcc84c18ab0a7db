//! Connection strings: a cluster's addresses and the client's settings in one line of configuration.

use std::time::Duration;

use terrane_types::{ClusterId, Invalid, parse_duration_ms};

use crate::api::client::ClientBuilder;
use crate::error::Error;
use crate::route::budget::RetryBudget;

const SCHEME: &str = "terrane://";
const SETTINGS: &str =
    "timeout, connect_timeout, cluster, hedge_reads, retry_percent, retries_per_second, retries_saved";

impl ClientBuilder {
    /// Parses a connection string, `terrane://HOST:PORT,HOST:PORT/?SETTING=VALUE&SETTING=VALUE`: the masters' addresses and any
    /// of these settings:
    ///
    /// | setting | value |
    /// |---|---|
    /// | `timeout` | the timeout of each call, such as `5s`, `300ms`, `2m`: [`ClientBuilder::timeout`] |
    /// | `connect_timeout` | the timeout of connecting: [`ClientBuilder::connect_timeout`] |
    /// | `cluster` | the cluster's id, 32 hexadecimal digits: [`ClientBuilder::cluster`] |
    /// | `hedge_reads` | `true` or `false`: [`ClientBuilder::hedge_reads`] |
    /// | `retry_percent`, `retries_per_second`, `retries_saved` | the fields of [`RetryBudget`] |
    ///
    /// ```
    /// use terrane_client::ClientBuilder;
    /// let builder = ClientBuilder::from_url("terrane://m1:7600,m2:7600/?timeout=5s&retry_percent=10")?;
    /// # Ok::<(), terrane_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`], which names what cannot be parsed.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let Some(rest) = url.strip_prefix(SCHEME) else {
            return Err(invalid(format!("a connection string starts with {SCHEME}; this one is {url}")));
        };
        let (masters, settings) = match rest.split_once('?') {
            Some((masters, settings)) => (masters, settings),
            None => (rest, ""),
        };
        let masters = masters.strip_suffix('/').unwrap_or(masters);
        if masters.is_empty() || masters.contains('/') {
            return Err(invalid(format!(
                "a connection string names masters, as in {SCHEME}HOST:PORT; this one is {url}"
            )));
        }
        let mut builder = Self::default().masters(masters);
        let mut budget = RetryBudget::default();
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            builder = match name {
                "timeout" => builder.timeout(duration(name, value)?),
                "connect_timeout" => builder.connect_timeout(duration(name, value)?),
                "cluster" => builder.cluster(cluster(value)?),
                "hedge_reads" => {
                    let hedge = value.parse();
                    builder.hedge_reads(hedge.map_err(|_| invalid(format!("{name} is true or false, not {value:?}")))?)
                }
                _ => {
                    let field = match name {
                        "retry_percent" => &mut budget.percent,
                        "retries_per_second" => &mut budget.per_second,
                        "retries_saved" => &mut budget.saved_max,
                        _ => return Err(invalid(format!("{name} is not a setting; the settings are {SETTINGS}"))),
                    };
                    *field = value.parse().map_err(|_| invalid(format!("{name} is a number, not {value:?}")))?;
                    builder
                }
            };
        }
        Ok(builder.retry_budget(budget))
    }
}

fn duration(name: &str, value: &str) -> Result<Duration, Error> {
    let millis = parse_duration_ms(value).map_err(|why| invalid(format!("{name}: {why}")))?;
    if millis == 0 {
        return Err(invalid(format!("{name} must be longer than zero")));
    }
    Ok(Duration::from_millis(millis))
}

fn cluster(value: &str) -> Result<ClusterId, Error> {
    let wrong = || invalid(format!("a cluster id has 32 hexadecimal digits; {value:?} does not"));
    if value.len() != 32 || !value.is_ascii() {
        return Err(wrong());
    }
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(value.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(ClusterId(id))
}

fn invalid(what: String) -> Error {
    Error::Invalid(Invalid::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_parsed() {
        let url = "terrane://a:1,b:2/?timeout=5s&connect_timeout=300ms&cluster=000102030405060708090a0b0c0d0e0f&retry_percent=5";
        let shown = format!("{:?}", ClientBuilder::from_url(url).unwrap());
        for part in ["a:1,b:2", "timeout: 5s", "connect_timeout: 300ms", "percent: 5", "per_second: 10", "000102"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(format!("{:?}", ClientBuilder::from_url("terrane://a:1").unwrap()).contains("\"a:1\""));
    }

    #[test]
    fn errors_name_what_cannot_be_parsed() {
        let told = |url: &str| ClientBuilder::from_url(url).unwrap_err().to_string();
        assert!(told("http://a:1").contains("terrane://"));
        assert!(told("terrane:///").contains("names masters"));
        assert!(told("terrane://a:1/table").contains("names masters"));
        assert!(told("terrane://a:1/?tiemout=5s").contains("tiemout is not a setting"));
        assert!(told("terrane://a:1/?timeout=soon").contains("timeout"));
        assert!(told("terrane://a:1/?cluster=12").contains("32 hexadecimal"));
        assert!(told("terrane://a:1/?retry_percent=many").contains("retry_percent"));
    }
}
