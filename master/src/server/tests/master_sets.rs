//! Masters are added, replaced and removed online, in one process.

use super::several::free_addresses;
use super::*;

/// Masters at addresses, each with a directory of its number here.
struct Masters {
    addresses: Vec<String>,
    running: Vec<Option<Master>>,
    directories: tempfile::TempDir,
}

impl Masters {
    /// One master, and the addresses of others.
    async fn one_of(count: usize) -> Self {
        let (directories, addresses) = (tempfile::tempdir().unwrap(), free_addresses(count).await);
        let mut running: Vec<Option<Master>> = addresses.iter().map(|_| None).collect();
        let config = MasterConfig {
            data_dir: directories.path().join("0"),
            listen: addresses[0].clone(),
            ..MasterConfig::default()
        };
        running[0] = Some(Master::start(config).await.unwrap());
        Self { addresses, running, directories }
    }

    fn config(&self, index: usize) -> MasterConfig {
        MasterConfig {
            data_dir: self.directories.path().join(index.to_string()),
            listen: self.addresses[index].clone(),
            join: vec![self.addresses[0].clone()],
            ..MasterConfig::default()
        }
    }

    fn list(&self, which: &[usize]) -> Vec<String> {
        which.iter().map(|index| self.addresses[*index].clone()).collect()
    }

    fn running(&self) -> impl Iterator<Item = &Master> {
        self.running.iter().flatten()
    }

    async fn leader(&self) -> &Master {
        eventually("an election", async || self.running().find(|master| master.leads())).await
    }

    async fn describe(&self, which: &[usize]) -> Result<v1::SetMastersReply, Error> {
        let masters = self.list(which);
        let leader = self.leader().await;
        crate::fleet::masters::set(&leader.context, &v1::SetMastersRequest { masters, ..Default::default() }).await
    }

    async fn refusal(&self, which: &[usize]) -> String {
        self.describe(which).await.unwrap_err().to_string()
    }

    /// Begins the change, once the new processes wait.
    async fn begin(&self, which: &[usize]) {
        let described = eventually("processes that wait", async || self.describe(which).await.ok()).await;
        let (masters, version, confirmed) = (self.list(which), described.version, true);
        let request = v1::SetMastersRequest { masters, version, confirmed, ..Default::default() };
        let leader = self.leader().await;
        assert!(crate::fleet::masters::set(&leader.context, &request).await.unwrap().begun);
    }

    async fn until_changed(&self) {
        eventually("the end of the change", async || {
            let leader = self.running().find(|master| master.leads())?;
            leader.context.journal.read(|catalog| catalog.masters().change.is_none().then_some(()))
        })
        .await;
    }

    /// Changes the masters; those that are new are started meanwhile.
    async fn change(&mut self, which: &[usize]) {
        let new: Vec<usize> = which.iter().copied().filter(|index| self.running[*index].is_none()).collect();
        let starts = new.iter().map(|index| Master::start(self.config(*index)));
        let (started, ()) = futures::future::join(futures::future::try_join_all(starts), self.begin(which)).await;
        for (index, master) in new.into_iter().zip(started.unwrap()) {
            self.running[index] = Some(master);
        }
        self.until_changed().await;
    }

    async fn voters(&self) -> usize {
        self.leader().await.context.journal.group_status().voters.len()
    }

    async fn add_server(&self, address: &str) -> v1::RegisterReply {
        let mut client = client(self.leader().await);
        client.register(fake::registration(address.to_owned())).await.unwrap().into_inner()
    }

    async fn stop(&mut self, index: usize) {
        self.running[index].take().unwrap().shutdown().await;
    }

    async fn end(self) {
        futures::future::join_all(self.running().map(Master::shutdown)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_becomes_three_one_is_replaced_and_one_is_left() {
    let mut masters = Masters::one_of(4).await;
    let cluster = masters.leader().await.cluster_id();
    masters.add_server("s:1").await;
    masters.change(&[0, 1, 2]).await;
    assert_eq!(masters.voters().await, 3);
    assert!(masters.running().all(|master| master.cluster_id() == cluster));
    assert_eq!(masters.add_server("s:2").await.masters, masters.list(&[0, 1, 2]));

    // A restart with what was true before.
    masters.stop(0).await;
    let outdated = MasterConfig { peers: masters.list(&[0]), join: Vec::new(), ..masters.config(0) };
    masters.running[0] = Some(Master::start(outdated).await.unwrap());

    // The leader is replaced: it hands over first.
    let leader = masters.leader().await.address().to_owned();
    let leaving = masters.addresses.iter().position(|address| *address == leader).unwrap();
    let wanted: Vec<usize> = (0..4).filter(|index| *index != leaving).collect();
    let join = masters.list(&[0, 1, 2]);
    let new = MasterConfig { join, ..masters.config(3) };
    let (started, ()) = futures::future::join(Master::start(new), masters.begin(&wanted)).await;
    masters.running[3] = Some(started.unwrap());
    let left = masters.running[leaving].take().unwrap();
    masters.until_changed().await;
    assert_eq!(masters.voters().await, 3);
    tokio::time::timeout(Duration::from_secs(20), left.removed()).await.expect("it notices that it was removed");
    left.shutdown().await;
    let refused = Master::start(masters.config(leaving)).await.err().unwrap();
    assert!(matches!(refused, StartError::Replaced { .. }), "{refused}");

    let stays = masters.addresses.iter().position(|address| *address == masters.list(&wanted)[0]).unwrap();
    masters.change(&[stays]).await;
    assert_eq!((masters.voters().await, masters.leader().await.address()), (1, masters.addresses[stays].as_str()));
    assert_eq!(masters.add_server("s:3").await.servers.len(), 3);
    assert_eq!(masters.add_server("s:4").await.masters, masters.list(&[stays]));
    masters.stop(stays).await;
    masters.running[stays] = Some(Master::start(masters.config(stays)).await.unwrap());
    assert_eq!(masters.add_server("s:5").await.servers.len(), 5);
    masters.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_that_cannot_be_added_are_refused_with_what_would_work() {
    let masters = Masters::one_of(5).await;
    assert!(masters.refusal(&[0, 1]).await.contains("an even number tolerates no more failures"));
    let silent = masters.refusal(&[0, 1, 2]).await;
    assert!(silent.contains("no master answers at") && silent.contains("--join"), "{silent}");
    // A master of another cluster, and two that wait for another cluster.
    let other = Masters::one_of(1).await;
    let stranger = masters.addresses.len();
    let mut mixed = masters;
    mixed.addresses.push(other.addresses[0].clone());
    let refused = mixed.refusal(&[stranger]).await;
    assert!(refused.contains("is a master of another cluster"), "{refused}");
    let elsewhere = MasterConfig { join: vec!["127.0.0.1:1".to_owned()], ..mixed.config(1) };
    let waiting = tokio::spawn(Master::start(elsewhere));
    let refused = eventually("a process that waits", async || {
        let refused = mixed.refusal(&[1]).await;
        (!refused.contains("no master answers")).then_some(refused)
    })
    .await;
    assert!(refused.contains("waits to be added to another cluster (127.0.0.1:1)"), "{refused}");
    waiting.abort();
    let alone = MasterConfig { join: vec![mixed.addresses[2].clone()], ..mixed.config(2) };
    let refused = Master::start(alone).await.err().unwrap();
    assert!(refused.to_string().contains("--join names only this process"), "{refused}");
    other.end().await;
    mixed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_processes_are_gone_can_be_undone() {
    let mut masters = Masters::one_of(3).await;
    let waiting: Vec<_> = [1, 2].map(|index| tokio::spawn(Master::start(masters.config(index)))).into();
    let described = eventually("processes that wait", async || masters.describe(&[0, 1, 2]).await.ok()).await;
    for process in waiting {
        process.abort();
        process.await.err();
    }
    let version = described.version;
    let edit = |edit| crate::catalog::CatalogEdit::Masters(edit);
    let plan = crate::catalog::masters::MastersPlan {
        version,
        present: vec![crate::masters::numbers::Peer { number: 1, address: masters.addresses[0].clone() }],
        add: [(1, 10), (2, 11)]
            .map(|(index, number)| crate::masters::numbers::Peer { number, address: masters.addresses[index].clone() })
            .into(),
        remove: Vec::new(),
    };
    let journal = &masters.leader().await.context.journal;
    journal.record(&edit(crate::catalog::masters::MastersEdit::Begin(plan))).await.unwrap();
    assert!(masters.refusal(&[0]).await.contains("terrane admin cancel masters"));
    // A restart resumes it.
    masters.stop(0).await;
    masters.running[0] = Some(Master::start(masters.config(0)).await.unwrap());
    let context = &masters.leader().await.context;
    eventually("the procedure waits", async || {
        let listed = crate::fleet::listing::procedures(context);
        listed
            .into_iter()
            .find(|procedure| procedure.id == "masters" && procedure.waits_for.contains("does not take its number"))
    })
    .await;
    crate::fleet::intents::cancel(context, "masters").await.unwrap();
    masters.until_changed().await;
    assert_eq!(masters.voters().await, 1);
    masters.end().await;
}

#[test]
fn a_catalog_from_before_a_master_was_added_does_not_refuse_it() {
    use crate::catalog::masters::{MastersEdit, MastersPlan};
    use crate::masters::numbers::Peer;
    let peer = |number, address: &str| Peer { number, address: address.to_owned() };
    let (present, add) = (vec![peer(1, "a:1"), peer(2, "b:1"), peer(3, "c:1")], vec![peer(12, "d:1")]);
    let plan = MastersPlan { version: 0, present: present.clone(), add: add.clone(), remove: vec!["a:1".to_owned()] };
    let mut catalog = Catalog::default();
    for edit in [MastersEdit::Begin(plan), MastersEdit::End { version: 0, undone: false }] {
        catalog.apply(&crate::catalog::CatalogEdit::Masters(edit), 1);
    }
    let masters = |number, met: Vec<Peer>, address: &str| {
        let identity = Identity::added(ClusterId([7; 16]), number, met);
        masters_of(&MasterConfig::default(), &identity, address, &catalog).map(|peers| peers.addresses())
    };
    let met = vec![peer(2, "b:1"), peer(3, "c:1"), peer(12, "d:1"), peer(97, "e:1")];
    assert_eq!(masters(97, met, "e:1").unwrap(), ["b:1", "c:1", "d:1", "e:1"]);
    assert_eq!(masters(2, Vec::new(), "b:1").unwrap(), ["b:1", "c:1", "d:1"]);
    // A founder that was removed, and a master whose place another one has.
    assert!(matches!(masters(1, Vec::new(), "a:1").err().unwrap(), StartError::Replaced { .. }));
    assert!(matches!(masters(4, Vec::new(), "x:1").err().unwrap(), StartError::Replaced { .. }));
}
