//! Calls to the masters, in the configured order, starting with the one that answered last.
//!
//! A read goes to the next master as soon as one does not answer quickly, and the first answer counts, unless its master
//! could not ask the leader what has changed: such an answer counts if no master gives a better one. A change is taken by
//! the leader only; a master that does not lead names it, and the call goes there, also if it was not configured.
//!
//! A change with a request id (create, alter, drop) is sent again too: masters recognise it. Any other change (split) goes to the next
//! master only if it certainly did not reach the first; otherwise its outcome is unknown, and the caller gets
//! [`Error::Uncertain`].

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use terrane_proto::v1;
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{MESSAGE_BYTES_MAX, OUTDATED, error, hello};
use terrane_types::{ClusterId, Error as Wire, GroupId, ServerId};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::deadline::{TRY_MAX, after};
use crate::error::Error;

/// The pause before a master is asked again that has not reached a group's leader.
const GROUP_RETRY: Duration = Duration::from_millis(100);
/// Between two rounds over all masters.
const ROUND_WAIT_MIN: Duration = Duration::from_millis(50);
const ROUND_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a master may take to answer a read before the read goes to the next one too.
const HEDGE_WAIT: Duration = Duration::from_millis(300);
/// Masters that a client is given or remembers: more are refused, and newly named ones replace others.
const MASTERS_MAX: usize = 16;

/// Whether a call to a master may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Changes nothing: any master may answer, and it may be sent any number of times.
    Read,
    /// Changes something: never sent again if it may have arrived.
    Change,
    /// Changes something under a request id: may be sent again under the same id. Its answer may take the whole timeout.
    Once,
}

/// The masters of one cluster.
#[derive(Debug)]
pub(crate) struct Masters {
    /// The configured masters and those that others named.
    masters: RwLock<Vec<(String, MasterClient<Channel>)>>,
    /// The one to try first.
    first: AtomicUsize,
    /// Counts the places that were given to newly named masters.
    next_replaced: AtomicUsize,
    boot: u64,
    /// `None` only until the first call has found the cluster out.
    cluster: Option<ClusterId>,
}

/// The answer of a master.
struct Answer<T> {
    value: T,
    /// Recent changes may be missing.
    is_outdated: bool,
}

/// How one try failed.
enum Failed {
    /// The answer is final.
    Final(Error),
    /// This master cannot answer, but the one at the address, if any, can; nothing happened.
    Next(Error, Option<String>),
    /// Not now; nothing happened.
    Later(Error, Duration),
}

impl Masters {
    /// Checks the addresses. Connects to none of them yet.
    pub(crate) fn new(addresses: &str, boot: u64) -> Result<Self, Error> {
        let mut masters = Vec::new();
        for address in addresses.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            let client = client(address).map_err(|invalid| Error::invalid(format!("master: {invalid}")))?;
            masters.push((address.to_owned(), client));
        }
        if masters.is_empty() || masters.len() > MASTERS_MAX {
            return Err(Error::invalid(format!(
                "a client is given 1 to {MASTERS_MAX} masters, as HOST:PORT,HOST:PORT; this one has {}",
                masters.len()
            )));
        }
        let (first, next_replaced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { masters: RwLock::new(masters), first, next_replaced, boot, cluster: None })
    }

    /// The place of the master at an address that another master named.
    fn place_of(&self, address: &str) -> Option<usize> {
        let mut masters = self.masters.write();
        if let Some(known) = masters.iter().position(|(known, _)| known == address) {
            return Some(known);
        }
        let named = (address.to_owned(), client(address).ok()?);
        if masters.len() < MASTERS_MAX {
            masters.push(named);
            return Some(masters.len() - 1);
        }
        // Masters that were removed make room. The one that answered last is kept: it may lead.
        let kept = self.first.load(Ordering::Relaxed);
        let replaced = (self.next_replaced.fetch_add(1, Ordering::Relaxed)..)
            .map(|turn| turn % MASTERS_MAX)
            .find(|place| *place != kept)
            .expect("there is more than one place");
        masters[replaced] = named;
        Some(replaced)
    }

    /// Notes the masters that another one named, for when those that were configured are gone.
    pub(crate) fn learn(&self, addresses: &[String]) {
        let is_news = {
            let known = self.masters.read();
            addresses.iter().any(|address| known.iter().all(|(known, _)| known != address))
        };
        if is_news {
            for address in addresses {
                self.place_of(address);
            }
        }
    }

    /// The same masters, known to be those of this cluster.
    pub(crate) fn of_cluster(mut self, cluster: ClusterId) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// The hello of a call.
    pub(super) fn hello(&self) -> Option<v1::Hello> {
        Some(self.hello_to(self.cluster))
    }

    /// The hello to the masters of a cluster; `None`: of any cluster.
    pub(super) fn hello_to(&self, cluster: Option<ClusterId>) -> v1::Hello {
        hello::ours(cluster, ServerId(0), ServerId(0), self.boot)
    }

    /// Calls masters until one answers or the time is over.
    pub(super) async fn call<T, F, R>(&self, kind: Kind, timeout: Duration, ask: F) -> Result<T, Error>
    where
        F: Fn(MasterClient<Channel>, Duration) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = after(timeout);
        let mut round_wait = ROUND_WAIT_MIN;
        let arrived = AtomicBool::new(false);
        loop {
            let (last, wait) = match self.round(kind, deadline, &ask, &arrived).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Final(error) | Failed::Next(error @ Error::NotAMaster { .. }, _)) => return Err(error),
                Err(Failed::Next(error, _)) => (error, round_wait),
                Err(Failed::Later(error, wait)) => (error, wait.max(ROUND_WAIT_MIN)),
            };
            round_wait = (round_wait * 2).min(ROUND_WAIT_MAX);
            if Instant::now() + wait >= deadline {
                return Err(self.out_of_time(timeout, last, arrived.load(Ordering::Relaxed)));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// One try at each master, until one answers: one after another, and a read goes to the next also while the one before
    /// is silent. Sets `arrived` when a change may have reached a master that did not answer, or one that continues with it.
    async fn round<T, F, R>(&self, kind: Kind, deadline: Instant, ask: &F, arrived: &AtomicBool) -> Result<T, Failed>
    where
        F: Fn(MasterClient<Channel>, Duration) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        let first = self.first.load(Ordering::Relaxed);
        let count = self.masters.read().len();
        let mut order: VecDeque<usize> = (0..count).map(|step| (first + step) % count).collect();
        let (mut asked, mut tried) = (FuturesUnordered::new(), Vec::new());
        let (mut outdated, mut last) = (None, None);
        loop {
            if let Some(index) = order.pop_front() {
                tried.push(index);
                asked.push(self.ask(index, kind, deadline, ask, arrived));
            }
            let answer = tokio::select! {
                biased;
                answer = asked.next() => answer,
                () = tokio::time::sleep(HEDGE_WAIT), if !order.is_empty() && kind == Kind::Read => continue,
            };
            match answer {
                Some(Ok(Answer { value, is_outdated: false })) => return Ok(value),
                Some(Ok(Answer { value, .. })) => outdated = Some(value),
                Some(Err(Failed::Next(error, leader))) => {
                    if let Some(leader) = leader.and_then(|address| self.place_of(&address))
                        && !tried.contains(&leader)
                    {
                        order.retain(|index| *index != leader);
                        order.push_front(leader);
                    }
                    last = more_informative(last, error);
                }
                // Another master may know more, unless it is the leader's wait for something.
                Some(Err(Failed::Later(error, _))) if kind == Kind::Read => last = more_informative(last, error),
                Some(Err(decided)) => return Err(decided),
                None => {
                    let failed = || Failed::Next(last.expect("there is at least one master"), None);
                    return outdated.ok_or_else(failed);
                }
            }
        }
    }

    /// One try at one master.
    async fn ask<T, F, R>(
        &self,
        index: usize,
        kind: Kind,
        deadline: Instant,
        ask: &F,
        arrived: &AtomicBool,
    ) -> Result<Answer<T>, Failed>
    where
        F: Fn(MasterClient<Channel>, Duration) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        let (address, client) = self.masters.read()[index].clone();
        let until = match kind {
            Kind::Read => deadline.min(Instant::now() + TRY_MAX),
            Kind::Change | Kind::Once => deadline,
        };
        let left = until.saturating_duration_since(Instant::now());
        match tokio::time::timeout_at(until, ask(client, left)).await {
            Ok(Ok(answer)) => {
                let is_outdated = answer.metadata().contains_key(OUTDATED);
                if !is_outdated {
                    self.first.store(index, Ordering::Relaxed);
                }
                Ok(Answer { value: answer.into_inner(), is_outdated })
            }
            Ok(Err(status)) => {
                let may_be_made = continues(&status) || (kind == Kind::Once && is_lost(&status));
                arrived.fetch_or(may_be_made, Ordering::Relaxed);
                Err(judge(kind, &address, &status))
            }
            Err(_) => {
                arrived.fetch_or(kind == Kind::Once, Ordering::Relaxed);
                Err(silent(kind, &address))
            }
        }
    }

    /// The error of a call whose time is over. `arrived`: its change may have been made.
    fn out_of_time(&self, timeout: Duration, last: Error, arrived: bool) -> Error {
        match last {
            Error::Unreachable { .. } if arrived => Error::Uncertain { cause: last.to_string() },
            Error::Unreachable { .. } => {
                let masters = self.masters.read();
                let addresses: Vec<&str> = masters.iter().map(|(address, _)| address.as_str()).collect();
                let Error::Unreachable { last, .. } = last else { unreachable!("matched above") };
                Error::Unreachable { masters: addresses.join(","), last }
            }
            last => Error::Timeout { after: timeout, uncertain: arrived, last: Some(Box::new(last)) },
        }
    }
}

/// Whether the call may have arrived and its answer is lost.
fn is_lost(status: &Status) -> bool {
    status.details().is_empty() && !is_answer(status) && !never_connected(status)
}

/// Whether a master has accepted the change and continues with it.
fn continues(status: &Status) -> bool {
    matches!(error::from_status(status), Wire::InProgress { .. })
}

fn judge(kind: Kind, address: &str, status: &Status) -> Failed {
    if let Some(found) = not_a_master(status) {
        return Failed::Next(Error::NotAMaster { address: address.to_owned(), found: found.to_owned() }, None);
    }
    if status.details().is_empty() && !is_answer(status) {
        return match kind {
            Kind::Change if !never_connected(status) => Failed::Final(Error::Uncertain {
                cause: format!("the connection to the master at {address} broke: {}", status.message()),
            }),
            _ => Failed::Next(unreachable_at(address, status.message()), None),
        };
    }
    match error::from_status(status) {
        Wire::NotLeader { group: GroupId::MASTER, address: leader, .. } => {
            Failed::Next(not_leader(address, leader.as_deref()), leader)
        }
        // Of a group whose leader the master could not reach: that one is no master.
        Wire::NotLeader { group, .. } => {
            let message = format!("the master has not reached the leader of group {group} yet");
            Failed::Later(Error::Unavailable { message, retry_after: GROUP_RETRY }, GROUP_RETRY)
        }
        Wire::Unavailable { message, retry_after } | Wire::InProgress { message, retry_after } => {
            Failed::Later(Error::Unavailable { message, retry_after }, retry_after)
        }
        error @ Wire::Busy { retry_after } => Failed::Later(error.into(), retry_after),
        error @ Wire::LogFull { retry_after, .. } => Failed::Later(error.into(), retry_after),
        error => Failed::Final(error.into()),
    }
}

/// What answers at an address at which there is no master. The call did not arrive anywhere.
fn not_a_master(status: &Status) -> Option<&'static str> {
    if status.code() != tonic::Code::Unimplemented || !status.details().is_empty() {
        return None;
    }
    // tonic answers a call of an unknown service without a message, and reports other HTTP servers by their status.
    if status.message().is_empty() {
        Some("it is a region server, or a master of an earlier build that does not know this call")
    } else {
        Some("it speaks HTTP but not gRPC, as a console does")
    }
}

/// Whether a status without our details is an answer all the same: one that tonic's own layer gave.
fn is_answer(status: &Status) -> bool {
    use tonic::Code::{InvalidArgument, OutOfRange, PermissionDenied, Unauthenticated, Unimplemented};
    matches!(status.code(), InvalidArgument | OutOfRange | PermissionDenied | Unauthenticated | Unimplemented)
}

fn silent(kind: Kind, address: &str) -> Failed {
    match kind {
        Kind::Read | Kind::Once => Failed::Next(unreachable_at(address, "no answer in time"), None),
        Kind::Change => {
            Failed::Final(Error::Uncertain { cause: format!("the master at {address} did not answer in time") })
        }
    }
}

fn client(address: &str) -> Result<MasterClient<Channel>, terrane_env::net::InvalidAddress> {
    Ok(MasterClient::new(terrane_env::net::channel(address)?)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}

/// What a master said is worth more to the caller than that another one is gone.
fn more_informative(last: Option<Error>, error: Error) -> Option<Error> {
    match last {
        Some(last) if matches!(error, Error::Unreachable { .. }) => Some(last),
        _ => Some(error),
    }
}

fn not_leader(address: &str, leader: Option<&str>) -> Error {
    let leader = leader.map_or_else(
        || "it knows no master that does: a majority of them must run".to_owned(),
        |leader| format!("the last leader it knows is at {leader}"),
    );
    let message = format!("the master at {address} does not lead; {leader}");
    Error::Unavailable { message, retry_after: ROUND_WAIT_MIN }
}

fn unreachable_at(address: &str, message: &str) -> Error {
    let last = Error::Unavailable { message: format!("{address}: {message}"), retry_after: Duration::ZERO };
    Error::Unreachable { masters: address.to_owned(), last: Some(Box::new(last)) }
}

/// Whether the connection itself failed, so that the call cannot have arrived.
pub(crate) fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_checked_by_what_is_wrong_with_them() {
        for wrong in ["", " , ", "localhost", "host:port", "a:1,b"] {
            assert!(Masters::new(wrong, 1).is_err_and(|error| error.is_invalid()), "{wrong:?}");
        }
        let many = vec!["h:1"; MASTERS_MAX + 1].join(",");
        assert!(Masters::new(&many, 1).is_err());
    }

    #[test]
    fn a_change_that_may_have_arrived_is_uncertain_and_a_read_continues() {
        let broken = Status::unavailable("connection reset");
        assert!(matches!(judge(Kind::Change, "a", &broken), Failed::Final(Error::Uncertain { .. })));
        assert!(matches!(judge(Kind::Read, "a", &broken), Failed::Next(Error::Unreachable { .. }, None)));
        assert!(matches!(silent(Kind::Change, "a"), Failed::Final(Error::Uncertain { .. })));
        assert!(matches!(judge(Kind::Once, "a", &broken), Failed::Next(Error::Unreachable { .. }, None)));
        assert!(is_lost(&broken));
    }

    #[test]
    fn the_port_of_another_process_is_named() {
        let found = |message: &str| match judge(Kind::Change, "a:1", &Status::unimplemented(message)) {
            Failed::Next(error @ Error::NotAMaster { .. }, None) => error.to_string(),
            _ => panic!("not the next master: {message}"),
        };
        assert!(found("").contains("a:1 is not a master: it is a region server"), "{}", found(""));
        assert!(found("grpc-status header missing, mapped from HTTP status code 404").contains("console"));
    }

    #[tokio::test]
    async fn a_change_that_goes_on_after_its_deadline_is_uncertain() {
        let masters = Masters::new("a:1", 1).unwrap();
        let waits = || Error::Unavailable { message: "table t is still altering".into(), retry_after: Duration::ZERO };
        let error = masters.out_of_time(Duration::from_millis(5), waits(), true);
        assert!(error.is_uncertain() && !error.is_retry_safe(), "{error:?}");
        let source = std::error::Error::source(&error).expect("the last answer is the source");
        assert!(source.to_string().contains("still altering"));
        assert!(masters.out_of_time(Duration::from_millis(5), waits(), false).is_retry_safe());
    }

    #[tokio::test]
    async fn a_change_follows_the_redirect_to_a_master_that_was_not_configured() {
        let redirect = Wire::NotLeader {
            group: terrane_types::GroupId::MASTER,
            term: 4,
            leader: Some(ServerId(2)),
            address: Some("b:1".into()),
            members: Vec::new(),
        };
        let redirect = error::status(&redirect);
        let masters = Masters::new("a:1", 1).unwrap();
        let asked = AtomicUsize::new(0);
        let first_redirects = |_: MasterClient<Channel>, _: Duration| {
            let answer = match asked.fetch_add(1, Ordering::Relaxed) {
                0 => Err(redirect.clone()),
                _ => Ok(Response::new(7)),
            };
            std::future::ready(answer)
        };
        assert_eq!(masters.call(Kind::Change, Duration::from_secs(5), first_redirects).await.unwrap(), 7);
        assert_eq!((asked.into_inner(), masters.masters.read()[1].0.as_str()), (2, "b:1"));
        assert_eq!(masters.first.into_inner(), 1, "the next call begins there");
    }

    #[tokio::test]
    async fn masters_that_were_removed_make_room_for_new_ones() {
        let masters = Masters::new("kept:1", 1).unwrap();
        for number in 0..3 * MASTERS_MAX {
            let address = format!("h{number}:1");
            masters.learn(std::slice::from_ref(&address));
            let known: Vec<String> = masters.masters.read().iter().map(|(known, _)| known.clone()).collect();
            assert!(known.contains(&address) && known.len() <= MASTERS_MAX, "{known:?}");
            assert_eq!(known[0], "kept:1", "the master that answered last stays");
        }
    }

    #[test]
    fn the_leader_of_another_group_is_not_asked_as_a_master() {
        let group = terrane_types::GroupId(7);
        let address = Some("server:1".into());
        let refusal = Wire::NotLeader { group, term: 4, leader: Some(ServerId(2)), address, members: Vec::new() };
        let tried = judge(Kind::Once, "a:1", &error::status(&refusal));
        assert!(matches!(tried, Failed::Later(Error::Unavailable { .. }, _)));
    }

    #[tokio::test]
    async fn an_outdated_answer_counts_if_no_master_has_a_better_one() {
        let outdated = |number| {
            let mut answer = Response::new(number);
            answer.metadata_mut().insert(OUTDATED, tonic::metadata::MetadataValue::from_static("1"));
            answer
        };
        let masters = Masters::new("a:1,b:1", 1).unwrap();
        let asked = AtomicUsize::new(0);
        let second_is_better = |_: MasterClient<Channel>, _: Duration| {
            let turn = asked.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(if turn == 0 { outdated(1) } else { Response::new(2) }))
        };
        assert_eq!(masters.call(Kind::Read, Duration::from_secs(5), second_is_better).await.unwrap(), 2);
        let all_outdated = |_: MasterClient<Channel>, _: Duration| std::future::ready(Ok(outdated(3)));
        assert_eq!(masters.call(Kind::Read, Duration::from_secs(5), all_outdated).await.unwrap(), 3);
    }

    #[test]
    fn what_a_master_says_is_taken_at_its_word() {
        let status = |error: Wire| error::status(&error);
        let waits = Wire::Unavailable { message: "waiting for servers".into(), retry_after: Duration::from_millis(9) };
        assert!(matches!(judge(Kind::Change, "a", &status(waits)), Failed::Later(_, wait) if wait.as_millis() == 9));
        let altering = Wire::InProgress { message: "still altering".into(), retry_after: Duration::from_millis(9) };
        assert!(continues(&status(altering.clone())));
        assert!(matches!(judge(Kind::Once, "a", &status(altering)), Failed::Later(_, wait) if wait.as_millis() == 9));
        let exists = Wire::AlreadyExists { what: "table t".into() };
        assert!(matches!(judge(Kind::Change, "a", &status(exists)), Failed::Final(Error::AlreadyExists { .. })));
    }
}
