//! A job queue: one worker takes each job, another one takes it over if that worker dies, and each job is finished once.
//!
//! There are no locks. A worker takes a job by check-and-mutate: the servers evaluate the condition in the order of the row's
//! writes, so only one of many workers gets the job. A job that is taken has a lease; when the lease expires, any worker may
//! take the job. To finish a job, a worker must still own it. Deleting the job's row and writing its result is one atomic batch:
//! both rows start with the same queue, which is the table's atomic key prefix.
//!
//! `cargo run -p terrane-examples --example job_queue [MASTER]`

use anyhow::ensure;
use futures::future::try_join_all;
use terrane_client::{
    Client, Condition, Delete, Error, KeyedTable, Put, RowKey, RowMutation, Table, TableSpec, column,
};

/// Waiting and running jobs sort before finished ones, oldest first.
#[derive(Clone, Debug, PartialEq, RowKey)]
struct JobKey {
    queue: String,
    done: u32,
    number: u64,
}

const QUEUE: &str = "thumbnails";
const JOBS: u64 = 24;
const WORKERS: u64 = 5;
/// The time of this example in milliseconds since 1970, and the length of a lease.
const NOW_MS: i64 = 1_767_225_600_000;
const LEASE_MS: i64 = 30_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    // The declared key says where parts end; rows with the same first part can be written atomically.
    let spec = TableSpec::new("example.jobs")?.family("job", &[])?.keyed_by::<JobKey>().set("atomic", "1")?;
    let jobs: KeyedTable<JobKey> = KeyedTable::new(client.open_or_create(spec).await?)?;
    for number in 0..JOBS {
        let result = key(1, number).encode()?;
        jobs.table().delete(Delete::new(&result)).await?;
        jobs.put(&key(0, number), |row| row.set("job", "file", format!("photo-{number}.png"))).await?;
    }

    // A worker that takes a job and dies.
    let lost = take(&jobs, 99, NOW_MS).await?;
    println!("worker 99 took job {lost:?} and died");
    ensure!(lost == Some(0));

    // Others leave the job alone while its lease runs.
    let taken = try_join_all((0..WORKERS).map(|worker| work(&jobs, worker, NOW_MS + 1))).await?;
    println!("jobs done by each of {WORKERS} workers: {taken:?}");
    ensure!(taken.iter().sum::<u64>() == JOBS - 1, "each job but one was done once");

    // When the lease has expired, one of them gets the job, and the first worker comes back too late.
    let late = NOW_MS + LEASE_MS + 1;
    let taken = try_join_all((0..WORKERS).map(|worker| work(&jobs, worker, late))).await?;
    ensure!(taken.iter().sum::<u64>() == 1, "one took it over: {taken:?}");
    let back = finish(jobs.table(), 99, 0).await?;
    println!("worker 99 is back: may it finish job 0? {back}");
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

/// Takes and finishes jobs until none is free.
async fn work(jobs: &KeyedTable<JobKey>, worker: u64, now_ms: i64) -> Result<u64, Error> {
    let mut finished = 0;
    while let Some(number) = take(jobs, worker, now_ms).await? {
        finished += u64::from(finish(jobs.table(), worker, number).await?);
    }
    Ok(finished)
}

/// The job has no owner, or the lease of its owner has expired. And it exists: a job that was finished meanwhile has no owner
/// either.
fn is_free(now_ms: i64) -> Condition {
    let left = column("job", "owner").is_absent().or(column("job", "lease").as_i64().less_than(now_ms));
    column("job", "file").exists().and(left)
}

/// Takes the first free job for this worker.
async fn take(jobs: &KeyedTable<JobKey>, worker: u64, now_ms: i64) -> Result<Option<u64>, Error> {
    // The scan only finds candidates: other workers take from the same list.
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

/// Moves a job to the finished ones, if this worker still owns it.
async fn finish(jobs: &Table, worker: u64, number: u64) -> Result<bool, Error> {
    let (job, result) = (key(0, number).encode()?, key(1, number).encode()?);
    let still_mine = column("job", "owner").equals(worker.to_be_bytes());
    let gone = RowMutation::new(&job).delete(Delete::new(&job)).when(still_mine);
    let done = RowMutation::new(&result).set("job", "by", worker.to_be_bytes());
    Ok(jobs.atomic(vec![gone, done]).await?.held)
}
