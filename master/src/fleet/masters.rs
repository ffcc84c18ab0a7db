//! What an administrator asks of the set of masters. Everything that cannot work is refused at once, with what would.

use std::collections::BTreeSet;

use futures::future::join_all;
use terrane_proto::{v1, versions};
use terrane_types::{Error, Invalid};

use crate::catalog::masters::{MasterSet, MastersEdit, MastersPlan};
use crate::catalog::{Catalog, CatalogEdit};
use crate::context::MasterContext;
use crate::masters::numbers::{Peer, check_count, free_places, numbered, place_of};

fn invalid(what: String) -> Error {
    Error::Invalid(Invalid::new(what))
}

/// Describes a change of the masters, and begins it if the administrator has confirmed the description.
pub async fn set(context: &MasterContext, request: &v1::SetMastersRequest) -> Result<v1::SetMastersReply, Error> {
    let wanted = wanted(&request.masters)?;
    let set = context.journal.read(|catalog| catalog.masters().clone());
    if let Some(change) = &set.change {
        return Err(invalid(format!(
            "the masters are being changed already ({}); wait for that, or undo it with `terrane admin cancel masters`",
            if change.undo { "it is being undone" } else { "`terrane admin procedures` shows how far it is" }
        )));
    }
    let present = if set.present.is_empty() { present(context) } else { set.present.clone() };
    let before: BTreeSet<String> = present.iter().map(|peer| peer.address.clone()).collect();
    let add: Vec<String> = wanted.difference(&before).cloned().collect();
    let remove: Vec<String> = before.difference(&wanted).cloned().collect();
    let version = set.version;
    let reply = v1::SetMastersReply {
        version,
        before: before.into_iter().collect(),
        add: add.clone(),
        remove: remove.clone(),
        begun: false,
    };
    if add.is_empty() && remove.is_empty() {
        return Ok(reply);
    }
    // The level that the processes to add can work at is not left before they are recorded.
    let _turn = context.versions.turn().await;
    check_added(context, &add).await?;
    check_majority(context, &present, &wanted, &add)?;
    let plan = plan(&present, &add, remove, &set, context.journal.read_index().await?)?;
    let edit = CatalogEdit::Masters(MastersEdit::Begin(plan));
    if !request.confirmed {
        return Ok(reply);
    }
    if request.version != version {
        return Err(invalid("the masters have changed since this was described; look again".to_owned()));
    }
    context.journal.record(&edit).await?;
    tracing::info!(?add, ?reply.remove, "an administrator changes the masters");
    Ok(v1::SetMastersReply { begun: true, ..reply })
}

/// The masters of a cluster whose set was never changed.
fn present(context: &MasterContext) -> Vec<Peer> {
    let places = context.journal.peers().places();
    places.into_iter().map(|(place, address)| Peer { number: numbered(place, 0), address }).collect()
}

fn wanted(masters: &[String]) -> Result<BTreeSet<String>, Error> {
    let wanted: BTreeSet<String> = masters.iter().cloned().collect();
    if wanted.len() != masters.len() {
        return Err(invalid("an address is named twice; name each master once".to_owned()));
    }
    if let Err(why) = check_count(wanted.len()) {
        return Err(invalid(format!("a cluster has 1, 3 or 5 masters, not {}: {why}", wanted.len())));
    }
    for address in &wanted {
        if let Err(error) = terrane_env::net::channel(address) {
            return Err(invalid(error.to_string()));
        }
    }
    Ok(wanted)
}

/// Each process to add must wait for this cluster.
async fn check_added(context: &MasterContext, add: &[String]) -> Result<(), Error> {
    let peers = context.journal.peers();
    let known = peers.addresses().join(",");
    let start = |address: &str| format!("start it with `terrane master --listen {address} --join {known}`");
    let replies = join_all(add.iter().map(|address| peers.join(address, 0, &[]))).await;
    for (address, reply) in add.iter().zip(replies) {
        let reply = reply.map_err(|why| {
            invalid(format!("no master answers at {address} ({why}); {} and an empty directory", start(address)))
        })?;
        check_process(context, address, &reply, &start(address)).map_err(invalid)?;
    }
    Ok(())
}

fn check_process(context: &MasterContext, address: &str, reply: &v1::JoinReply, start: &str) -> Result<(), String> {
    let peers = context.journal.peers();
    if reply.address != *address {
        return Err(format!(
            "the process at {address} names itself {}; use that address, or start it with --advertise {address}",
            reply.address
        ));
    }
    if reply.waits {
        let known = peers.addresses();
        if reply.join.iter().any(|master| known.contains(master)) {
            return check_level(context, address, reply);
        }
        let join = reply.join.join(",");
        return Err(format!("the process at {address} waits to be added to another cluster ({join}); {start}"));
    }
    if reply.cluster_id.is_empty() {
        return Err(format!("the process at {address} founds a cluster of its own; {start} and an empty directory"));
    }
    if reply.cluster_id != peers.cluster().0.as_slice() {
        return Err(format!("the process at {address} is a master of another cluster; {start} and an empty directory"));
    }
    Err(format!(
        "the process at {address} has the directory of a master that was removed; {start} and an empty directory"
    ))
}

/// Refuses a process whose build cannot work in this cluster: it would end once it has applied the catalog's log.
fn check_level(context: &MasterContext, address: &str, reply: &v1::JoinReply) -> Result<(), String> {
    let levels = versions::levels(reply.versions.as_ref().unwrap_or(&v1::Versions::default()));
    let refusal = levels.refusal(context.journal.read(Catalog::level));
    refusal.map_or(Ok(()), |why| Err(format!("the process at {address} cannot be added: {why}")))
}

/// Refuses a set that could not confirm anything, because too few of the masters that stay answer.
fn check_majority(
    context: &MasterContext,
    present: &[Peer],
    wanted: &BTreeSet<String>,
    add: &[String],
) -> Result<(), Error> {
    let members = context.journal.group().members();
    let alive = |peer: &Peer| members.iter().any(|member| member.alive && place_of(member.server.0) == peer.place());
    let kept = present.iter().filter(|peer| wanted.contains(&peer.address));
    let silent: Vec<&str> = kept.filter(|peer| !alive(peer)).map(|peer| peer.address.as_str()).collect();
    let up = wanted.len() - silent.len();
    if up > wanted.len() / 2 {
        return Ok(());
    }
    let added = if add.is_empty() { "" } else { ", or name running ones instead" };
    Err(invalid(format!(
        "only {up} of the {} masters would answer: {} does not; start it first{added}",
        wanted.len(),
        silent.join(", ")
    )))
}

fn plan(
    present: &[Peer],
    add: &[String],
    remove: Vec<String>,
    set: &MasterSet,
    read_index: u64,
) -> Result<MastersPlan, Error> {
    let places: Vec<usize> = free_places(present).collect();
    if add.len() > places.len() {
        return Err(invalid(format!(
            "at most {} masters can be added to {} at once; change the others after that",
            places.len(),
            present.len()
        )));
    }
    let peer =
        |(place, address): (&usize, &String)| Peer { number: numbered(*place, read_index), address: address.clone() };
    let add = places.iter().zip(add).map(peer).collect();
    Ok(MastersPlan { version: set.version, present: present.to_vec(), add, remove })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_cannot_work_is_refused_with_the_reason() {
        let refused = |masters: &[&str]| {
            let masters: Vec<String> = masters.iter().map(|address| (*address).to_owned()).collect();
            wanted(&masters).unwrap_err().to_string()
        };
        assert!(refused(&["a:1", "b:1"]).contains("1, 3 or 5 masters, not 2: an even number"));
        assert!(refused(&["a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1"]).contains("not 7: more would only"));
        assert!(refused(&["a:1", "a:1", "b:1"]).contains("named twice"));
        assert!(refused(&["a"]).contains('a'));
    }

    #[test]
    fn new_masters_get_free_places_and_new_numbers() {
        let present = [1, 2, 3].map(|number| Peer { number, address: format!("{number}:1") });
        let set = MasterSet::default();
        let plan = plan(&present, &["d:1".to_owned()], vec!["2:1".to_owned()], &set, 40).unwrap();
        assert_eq!(plan.add, [Peer { number: 8 * 40 + 4, address: "d:1".to_owned() }]);
        let five = [1, 2, 3, 4, 5].map(|number| Peer { number, address: format!("{number}:1") });
        let four: Vec<String> = (6..10).map(|number| format!("{number}:1")).collect();
        let refused = super::plan(&five, &four, Vec::new(), &set, 40).unwrap_err().to_string();
        assert!(refused.contains("at most 3 masters"), "{refused}");
    }
}
