//! The operation of a bulk load: takes store files into a region.
//!
//! The files are not in the log. They were built, verified and synced on a quorum before the operation was proposed, and
//! their lengths and checksums are here, so that every replica takes in the same bytes. The rows of all files share one
//! fate, so they have one operation number, in the client's window of the region like that of any other write.

use bytes::Bytes;
use terrane_types::{ByteWriter as _, FamilyName, RegionEpoch, RegionId, ServerId};

use super::FORMAT;
use crate::record::{Malformed, Reader};
use crate::window::ClientId;

pub(super) const LOAD: u8 = 12;
/// The least that a file takes.
const FILE_BYTES_MIN: usize = 2 + 8 + 8 + 4;

/// The files of one load. A load that is built again, at another leader or after an error, has another id: the bytes of
/// its files may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StagingId(pub [u8; 16]);

impl std::fmt::Display for StagingId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for StagingId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed("a staging id has 32 hexadecimal digits");
        let number = u128::from_str_radix(text, 16).map_err(|_| malformed)?;
        let id = Self(number.to_be_bytes());
        if id.to_string() == text { Ok(id) } else { Err(malformed) }
    }
}

/// Takes files into a region, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    /// The version under which the rows were checked.
    pub schema_version: u64,
    pub client: ClientId,
    /// The client waits for no number below it.
    pub lowest_unsettled: u64,
    /// The number of this load, after those of the loads that it was cut from when regions split: the rows are here
    /// already if any of them is recorded.
    pub operations: Vec<u64>,
    pub first_try_ms: u64,
    pub staging: StagingId,
    /// The server that built the files.
    pub source: ServerId,
    pub files: Vec<LoadedFile>,
}

/// One file of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    pub family: FamilyName,
    /// Its number among the files of the load.
    pub number: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl Load {
    /// The number that is recorded when it is applied; 0 for a load without any.
    #[must_use]
    pub fn operation(&self) -> u64 {
        self.operations.last().copied().unwrap_or(0)
    }

    /// About what it takes in the log.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let files: usize = self.files.iter().map(|file| FILE_BYTES_MIN + file.family.as_bytes().len()).sum();
        2 + 3 * 8 + 16 + 8 + 4 + 8 * self.operations.len() + 8 + 16 + 8 + 4 + files
    }

    /// Bytes of all files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, LOAD]);
        [self.region.0, self.epoch.0, self.schema_version].into_iter().for_each(|number| out.u64(number));
        out.extend_from_slice(&self.client);
        out.u64(self.lowest_unsettled);
        out.list(self.operations.iter(), |out, operation| out.u64(*operation));
        out.u64(self.first_try_ms);
        out.extend_from_slice(&self.staging.0);
        out.u64(self.source.0);
        out.list(self.files.iter(), |out, file| {
            out.short(file.family.as_bytes()).expect("the name of a family is short");
            out.u64(file.number);
            out.u64(file.bytes);
            out.u32(file.crc);
        });
    }

    /// Reads what [`Load::encode`] wrote, from a server.
    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        match super::Operation::decode(record)? {
            super::Operation::Load(load) => Ok(load),
            _ => Err(Malformed("the operation is not a load")),
        }
    }

    pub(super) fn read(mut reader: Reader) -> Result<Self, Malformed> {
        let (region, epoch, schema_version) = (RegionId(reader.u64()?), RegionEpoch(reader.u64()?), reader.u64()?);
        let (client, lowest_unsettled) = (reader.array()?, reader.u64()?);
        let count = reader.count(8)?;
        let operations = (0..count).map(|_| Ok(reader.u64()?)).collect::<Result<_, Malformed>>()?;
        let (first_try_ms, staging, source) = (reader.u64()?, StagingId(reader.array()?), ServerId(reader.u64()?));
        let count = reader.count(FILE_BYTES_MIN)?;
        let files = (0..count).map(|_| LoadedFile::read(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self {
            region,
            epoch,
            schema_version,
            client,
            lowest_unsettled,
            operations,
            first_try_ms,
            staging,
            source,
            files,
        })
    }
}

impl LoadedFile {
    fn read(reader: &mut Reader) -> Result<Self, Malformed> {
        let family = reader.short()?;
        let family = std::str::from_utf8(&family).ok().and_then(|name| FamilyName::new(name).ok());
        let family = family.ok_or(Malformed("a file of a load is of no family"))?;
        Ok(Self { family, number: reader.u64()?, bytes: reader.u64()?, crc: u32::from_le_bytes(reader.array()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            region: RegionId(7),
            epoch: RegionEpoch(3),
            schema_version: 2,
            client: [9; 16],
            lowest_unsettled: 4,
            operations: vec![5, 8],
            first_try_ms: 1_000,
            staging: StagingId([0xab; 16]),
            source: ServerId(2),
            files: vec![LoadedFile { family: FamilyName::new("f").unwrap(), number: 1, bytes: 77, crc: 0xdead }],
        }
    }

    #[test]
    fn a_load_comes_back_from_the_log() {
        let mut out = Vec::new();
        load().encode(&mut out);
        assert_eq!(out.len(), load().encoded_len());
        assert_eq!(Load::decode(out.into()).unwrap(), load());
        assert_eq!(load().operation(), 8);
    }

    #[test]
    fn a_load_that_is_cut_short_is_refused() {
        let mut out = Vec::new();
        load().encode(&mut out);
        for length in 0..out.len() {
            assert!(Load::decode(Bytes::copy_from_slice(&out[..length])).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn the_name_of_a_staging_directory_is_read_back_and_nothing_else_passes_for_one() {
        let id = StagingId([0x0f; 16]);
        assert_eq!(id.to_string().parse::<StagingId>().unwrap(), id);
        for other in ["", "0f", "+f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "0F0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"] {
            assert!(other.parse::<StagingId>().is_err(), "{other}");
        }
    }
}
