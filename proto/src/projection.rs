//! Projections on the wire. A filter travels in the same message as its text; this crate does not read it.

use terrane_types::{Columns, Error, FamilyName, Invalid, Projection, QualifierRange};

use crate::v1;

/// The message has no filter, and nothing that only reads within a server have.
impl From<&Projection> for v1::Projection {
    fn from(projection: &Projection) -> Self {
        let Projection {
            families,
            within: _,
            versions,
            time_min,
            time_max,
            family_times: _,
            raw: _,
            with_ttl: _,
            cell_offset,
            cell_limit,
            keys_only,
            first_cell_only,
        } = projection;
        let range = |QualifierRange { start, end }: &QualifierRange| v1::QualifierRange {
            start: start.clone(),
            end: end.clone(),
        };
        let columns = |(family, columns): &(FamilyName, Columns)| v1::FamilyColumns {
            family: family.as_str().to_owned(),
            qualifiers: columns.qualifiers.clone(),
            ranges: columns.ranges.iter().map(range).collect(),
        };
        Self {
            families: families.iter().map(columns).collect(),
            versions: *versions,
            time_min: *time_min,
            time_max: if *time_max == i64::MAX { 0 } else { *time_max },
            cell_offset: *cell_offset,
            cell_limit: *cell_limit,
            keys_only: *keys_only,
            first_cell_only: *first_cell_only,
            filter: String::new(),
        }
    }
}

/// The checked projection and the text of its filter, which is empty if there is none.
///
/// # Errors
/// [`Error::Invalid`] for a projection that breaks a rule.
pub fn projection(projection: v1::Projection) -> Result<(Projection, String), Error> {
    let v1::Projection {
        families,
        versions,
        time_min,
        time_max,
        cell_offset,
        cell_limit,
        keys_only,
        first_cell_only,
        filter,
    } = projection;
    let time_max = if time_max == 0 { i64::MAX } else { time_max };
    if time_min < 0 || time_max < time_min {
        return Err(Error::Invalid(Invalid::new(format!(
            "a time range runs from 0 upwards and its end is not below its start; this one is [{time_min}, {time_max})"
        ))));
    }
    let columns = |columns: v1::FamilyColumns| {
        let ranges = columns.ranges.into_iter().map(|range| QualifierRange { start: range.start, end: range.end });
        let name = FamilyName::new(&columns.family)?;
        Ok((name, Columns { qualifiers: columns.qualifiers, ranges: ranges.collect() }))
    };
    let families = families.into_iter().map(columns).collect::<Result<Vec<_>, Error>>()?;
    let projection = Projection {
        families,
        versions: versions.max(1),
        time_min,
        time_max,
        cell_offset,
        cell_limit,
        keys_only,
        first_cell_only,
        ..Projection::all()
    };
    Ok((projection.checked()?, filter))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn projections_come_back_as_they_went() {
        let family = |name: &str| FamilyName::new(name).unwrap();
        let all = [
            Projection::all(),
            Projection::all().with_column(family("f"), "q").with_family(family("g")).with_versions(3).with_times(5, 9),
            Projection::all().with_qualifier_prefix(family("f"), "air").with_column(family("f"), "q"),
            Projection::all().with_qualifier_range(family("f"), "x", "x"),
            Projection::all().with_cells(3, 9).with_keys_only(),
            Projection::all().with_first_cell_only(),
        ];
        for projection in all {
            let filter = "i32(f:q) > -7".to_owned();
            let wire = v1::Projection { filter: filter.clone(), ..v1::Projection::from(&projection) };
            assert_eq!(super::projection(wire).unwrap(), (projection, filter));
        }
    }

    #[test]
    fn what_is_wrong_with_a_projection_is_said() {
        let wrong = |projection: v1::Projection| super::projection(projection).unwrap_err().to_string();
        let ranges = vec![v1::QualifierRange { start: "b".into(), end: Bytes::from_static(b"a") }];
        let families = vec![v1::FamilyColumns { family: "f".into(), qualifiers: Vec::new(), ranges }];
        let error = wrong(v1::Projection { families, ..Default::default() });
        assert!(error.contains("reversed"), "{error}");
        let error = wrong(v1::Projection { time_min: 5, time_max: 4, ..Default::default() });
        assert!(error.contains("[5, 4)"), "{error}");
    }
}
