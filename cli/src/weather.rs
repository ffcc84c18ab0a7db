//! Generates weather in the fixed-width format of the National Climatic Data Center.
//!
//! The demo imports these lines with the code that imports real records, so the parser must accept them: they have the
//! mandatory section of 105 characters and the cloud section that most records of 1901 have, with the length of the
//! latter in the first four characters. Lines are in order of time, one per station and hour. The same seed gives the
//! same lines, since all arithmetic is on integers.

use terrane_types::Time;

use crate::random::Random;

/// The year of the first readings.
const FIRST_YEAR: i32 = 2001;
const HOUR_MS: i64 = 3_600_000;
/// One reading in this many is missing.
const MISSING_ONE_IN: u64 = 50;
/// One reading in this many is doubtful.
const DOUBTFUL_ONE_IN: u64 = 100;

/// The section after the mandatory one: a cloud report.
const ADDITIONAL: &str = "ADDGF108991999999999999999999";

/// A generated weather station.
struct Station {
    usaf: u32,
    /// Thousandths of a degree.
    latitude: i64,
    longitude: i64,
    elevation: u64,
    /// The year's mean in tenths of °C.
    mean: i64,
}

/// An endless iterator of weather records.
pub struct Weather {
    random: Random,
    stations: Vec<Station>,
    /// Hours since the first reading.
    hour: i64,
    /// The station whose reading of this hour is next.
    next: usize,
}

impl Weather {
    /// Weather of this many stations, at least one.
    pub fn new(seed: u64, stations: u32) -> Weather {
        let mut random = Random::new(seed);
        let stations = (0..stations.max(1)).map(|number| Station::random(number, &mut random)).collect();
        Weather { random, stations, hour: 0, next: 0 }
    }

    /// The station's name in row keys, `USAF-WBAN`.
    pub fn station_name(&self, number: usize) -> String {
        format!("{:06}-99999", self.stations[number % self.stations.len()].usaf)
    }
}

impl Iterator for Weather {
    type Item = String;

    /// The next line, without a line end; never `None`.
    fn next(&mut self) -> Option<String> {
        let station = &self.stations[self.next];
        let line = record(station, self.hour, &mut self.random);
        self.next += 1;
        if self.next == self.stations.len() {
            self.next = 0;
            self.hour += 1;
        }
        Some(line)
    }
}

impl Station {
    fn random(number: u32, random: &mut Random) -> Station {
        let latitude = signed(random.below(140_000)) - 70_000;
        Station {
            usaf: 10_010 + number * 10,
            latitude,
            longitude: signed(random.below(360_000)) - 180_000,
            elevation: random.below(2_000),
            // 28 °C at the equator, falling by half a degree with every degree of latitude.
            mean: 280 - latitude.abs() * 5 / 1000,
        }
    }

    /// The temperature without noise, in tenths of °C: seasons by latitude, opposite in the two hemispheres, and a
    /// daily cycle.
    fn expected(&self, day_of_year: i64, hour_of_day: i64) -> i64 {
        let season = triangle(day_of_year - 15, 365) * self.latitude * 3 / 1_000_000;
        let daily = triangle(hour_of_day - 3, 24) * 40 / 1000;
        self.mean + season + daily
    }
}

/// A triangle wave between -1000 (at 0) and 1000 (at half the period).
fn triangle(position: i64, period: i64) -> i64 {
    let phase = position.rem_euclid(period);
    let distance = phase.min(period - phase);
    distance * 4000 / period - 1000
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("the generator's bounds are far below 2^63")
}

fn new_year(year: i32) -> Time {
    Time::from_date(year, 1, 1).expect("every year has a first of January")
}

fn record(station: &Station, hour: i64, random: &mut Random) -> String {
    let first = new_year(FIRST_YEAR).millis();
    let time = Time::from_millis(first + hour * HOUR_MS);
    let (year, month, day_of_month) = time.date().expect("a calendar has the years that are generated");
    let day_of_year = (time.millis() - new_year(year).millis()) / (24 * HOUR_MS);
    let noise = signed(random.below(61)) - 30;
    let tenths = (station.expected(day_of_year, hour % 24) + noise).clamp(-932, 618);
    let (temperature, quality) = reading(tenths, random);
    let (wind_from, wind_speed) = (random.below(36) * 10 + 10, random.below(250));
    let pressure = 9_700 + random.below(700);
    format!(
        "{additional:04}{usaf:06}99999{year:04}{month:02}{day_of_month:02}{hour:02}004{latitude:+06}{longitude:+07}FM-12\
         {elevation:+05}99999V020{wind_from:03}1N{wind_speed:04}19999999N0000001N9{temperature}{quality}+99999\
         {pressure:05}1{ADDITIONAL}",
        additional = ADDITIONAL.len(),
        usaf = station.usaf,
        hour = hour % 24,
        latitude = station.latitude,
        longitude = station.longitude,
        elevation = station.elevation,
    )
}

/// The temperature's five characters and its quality code.
fn reading(tenths: i64, random: &mut Random) -> (String, char) {
    if random.below(MISSING_ONE_IN) == 0 {
        return ("+9999".to_owned(), '9');
    }
    let quality = if random.below(DOUBTFUL_ONE_IN) == 0 { '2' } else { '1' };
    (format!("{tenths:+05}"), quality)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::formats::{Parsed, TextFormat};

    #[test]
    fn a_seed_determines_every_line() {
        let lines = |seed| Weather::new(seed, 60).take(5_000).collect::<Vec<_>>();
        assert_eq!(lines(1), lines(1));
        assert_ne!(lines(1), lines(2));
    }

    #[test]
    fn the_reader_accepts_every_line_and_keys_differ() {
        let mut rows = BTreeSet::new();
        let mut skipped = 0;
        for line in Weather::new(42, 60).take(50_000) {
            assert_eq!(line.len(), 134, "{line}");
            assert_eq!(&line[..4], "0029");
            match TextFormat::Ncdc.parse(line.as_bytes()).expect(&line) {
                Parsed::Record(record) => assert!(rows.insert(record.row), "{line} has the key of another"),
                Parsed::Skipped => skipped += 1,
            }
        }
        assert_eq!(rows.len() + skipped, 50_000);
        // Two in a hundred are missing and one is doubtful.
        assert!((1_000..2_000).contains(&skipped), "{skipped} skipped");
    }

    #[test]
    fn temperatures_are_those_of_this_earth() {
        for line in Weather::new(3, 60).take(60 * 24 * 400) {
            if let Ok(Parsed::Record(record)) = TextFormat::Ncdc.parse(line.as_bytes()) {
                let tenths = i32::from_be_bytes(record.cells[0].value[..].try_into().expect("four bytes"));
                assert!((-700..=600).contains(&tenths), "{line}");
            }
        }
    }

    #[test]
    fn station_names_are_those_in_the_rows() {
        let mut weather = Weather::new(1, 3);
        let names: Vec<String> = (0..3).map(|number| weather.station_name(number)).collect();
        assert_eq!(names, ["010010-99999", "010020-99999", "010030-99999"]);
        assert_eq!(&weather.next().expect("endless")[4..15], "01001099999");
    }
}
