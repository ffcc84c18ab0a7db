//! A job queue: every job is taken by one worker, is taken over when its worker died, and is finished once.
//!
//! Nothing is locked. A worker takes a job by check-and-mutate: the servers evaluate the condition in the order of the row's
//! writes, so that of many who try one gets it. A job that is taken has a lease; when that is over, anybody may take it.
//! To finish, a worker must still own the job, and the job's row goes and the result appears as one: both rows
//! begin with the same queue, which is the table's atomic key prefix.
//!
//! `cargo run -p terrane-examples --example job_queue [MASTER]`

use anyhow::ensure;
use futures::future::try_join_all;
use terrane_client::{
    Client, Condition, Delete, Error, KeyedTable, Put, RowKey, RowMutation, Table, TableSpec, column,
};

/// Jobs that wait or run lie before those that are done, oldest first.
#[derive(Clone, Debug, PartialEq, RowKey)]
struct JobKey {
    queue: String,
    done: u32,
    number: u64,
}

const QUEUE: &str = "thumbnails";
const JOBS: u64 = 24;
const WORKERS: u64 = 5;
/// When this story happens, in milliseconds since 1970, and how long a worker may be silent.
const NOW_MS: i64 = 1_767_225_600_000;
const LEASE_MS: i64 = 30_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    // The declared key says where parts end; rows with the same first part can be written as one.
    let spec = TableSpec::new("example.jobs")?.family("job", &[])?.keyed_by::<JobKey>().set("atomic", "1")?;
    let jobs: KeyedTable<JobKey> = KeyedTable::new(client.open_or_create(spec).await?)?;
    for number in 0..JOBS {
        let result = key(1, number).encode()?;
        jobs.table().delete(Delete::new(&result)).await?;
        jobs.put(&key(0, number), |row| row.set("job", "file", format!("photo-{number}.png"))).await?;
    }

    // A worker that takes a job and is never heard of again.
    let lost = take(&jobs, 99, NOW_MS).await?;
    println!("worker 99 took job {lost:?} and died");
    ensure!(lost == Some(0));

    // Others leave it alone while its lease runs.
    let taken = try_join_all((0..WORKERS).map(|worker| work(&jobs, worker, NOW_MS + 1))).await?;
    println!("jobs done by each of {WORKERS} workers: {taken:?}");
    ensure!(taken.iter().sum::<u64>() == JOBS - 1, "each job but one was done once");

    // When it is over, one of them gets the job, and the dead worker comes back too late.
    let late = NOW_MS + LEASE_MS + 1;
    let taken = try_join_all((0..WORKERS).map(|worker| work(&jobs, worker, late))).await?;
    ensure!(taken.iter().sum::<u64>() == 1, "one took it over: {taken:?}");
    let back = finish(jobs.table(), 99, 0).await?;
    println!("worker 99 comes back; may it finish job 0? {back}");
    ensure!(!back);

    let waiting = jobs.count(JobKey::prefix().queue(QUEUE).done(0)).await?;
    let done = jobs.count(JobKey::prefix().queue(QUEUE).done(1)).await?;
    println!("{waiting} jobs wait, {done} are done");
    ensure!((waiting, done) == (0, JOBS));
    client.close().await;
    Ok(())
}

fn key(done: u32, number: u64) -> JobKey {
    JobKey { queue: QUEUE.to_owned(), done, number }
}

/// Takes jobs and finishes them until none is left to take.
async fn work(jobs: &KeyedTable<JobKey>, worker: u64, now_ms: i64) -> Result<u64, Error> {
    let mut finished = 0;
    while let Some(number) = take(jobs, worker, now_ms).await? {
        finished += u64::from(finish(jobs.table(), worker, number).await?);
    }
    Ok(finished)
}

/// A job without an owner, or whose owner's lease has expired, and that still exists: a finished job has no owner either.
fn is_free(now_ms: i64) -> Condition {
    let left = column("job", "owner").is_absent().or(column("job", "lease").as_i64().less_than(now_ms));
    column("job", "file").exists().and(left)
}

/// The first free job, now this worker's.
async fn take(jobs: &KeyedTable<JobKey>, worker: u64, now_ms: i64) -> Result<Option<u64>, Error> {
    // The scan only says which jobs are worth trying: others take from the same list.
    let free = format!("absent(job:owner) or i64(job:lease) < {now_ms}");
    let mut waiting = jobs.scan(JobKey::prefix().queue(QUEUE).done(0)).filter(free).await?;
    while let Some(job) = waiting.next().await {
        let job = job?;
        let mine = Put::new(job.data.row()).set("job", "owner", worker.to_be_bytes()).set(
            "job",
            "lease",
            (now_ms + LEASE_MS).to_be_bytes(),
        );
        if jobs.table().check_and_put(is_free(now_ms), mine).await? {
            return Ok(Some(job.key.number));
        }
    }
    Ok(None)
}

/// Moves a job to those that are done, if this worker still has it.
async fn finish(jobs: &Table, worker: u64, number: u64) -> Result<bool, Error> {
    let (job, result) = (key(0, number).encode()?, key(1, number).encode()?);
    let still_mine = column("job", "owner").equals(worker.to_be_bytes());
    let gone = RowMutation::new(&job).delete(Delete::new(&job)).when(still_mine);
    let done = RowMutation::new(&result).set("job", "by", worker.to_be_bytes());
    Ok(jobs.atomic(vec![gone, done]).await?.held)
}
