//! The states of servers, masters, groups, regions and tables, each with one name: on the wire, in `--json` and on the pages.

use crate::named::named;

named! {
    /// The state of a region server, as a master sees it.
    ServerState, else Silent {
        /// It has reported recently, and answers at its address.
        Live = "live",
        /// It has not reported for some time, or not since this master started.
        Silent = "silent",
        /// It has announced its stop.
        Stopped = "stopped",
        /// It has reported recently, and does not answer at its address.
        Unreachable = "unreachable",
    }
}

named! {
    /// How far the drain of a region server is.
    DrainState, else Draining {
        /// It still has replicas.
        Draining = "draining",
        /// It has none any more.
        Drained = "drained",
    }
}

named! {
    /// The state of a master, as another one sees it.
    MasterState, else Follower {
        /// It leads.
        Leader = "leader",
        /// It follows.
        Follower = "follower",
        /// It is being added.
        Joining = "joining",
        /// It does not answer.
        Unreachable = "unreachable",
    }
}

named! {
    /// The state of a log group.
    GroupState, else Partial {
        /// Its members are creating their replicas.
        Creating = "creating",
        /// It serves with a majority; the other members create their replicas when their servers are live.
        Partial = "partial",
        /// Every member has its replica.
        Open = "open",
        /// It has lost the majority of its members.
        NoMajority = "no majority",
    }
}

named! {
    /// The state of a region.
    RegionState, else Open {
        /// Its table is being created.
        Creating = "creating",
        /// It serves.
        Open = "open",
        /// It serves, exceeds its size, and has no row to split at.
        Unsplittable = "unsplittable",
        /// Its table is being dropped.
        Dropping = "dropping",
    }
}

named! {
    /// The state of a table.
    TableState, else Altering {
        /// Its regions are being created in their groups.
        Creating = "creating",
        /// In use.
        Enabled = "enabled",
        /// It takes neither reads nor writes.
        Disabled = "disabled",
        /// In use; the newest schema is being rolled out to its groups.
        Altering = "altering",
        /// Its regions are being removed.
        Dropping = "dropping",
    }
}

named! {
    /// How far the move of a region to another group is.
    MoveStage, else Copying {
        /// Its files are copied.
        Copying = "copying",
        /// The last of it is copied, and requests to the region wait.
        Frozen = "frozen",
        /// It is in its new group.
        Moved = "moved",
        /// It stays where it was.
        Undone = "undone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_by_its_name() {
        for state in GroupState::ALL {
            assert_eq!(GroupState::named(state.name()), *state);
        }
        assert_eq!(GroupState::named("of a later build"), GroupState::Partial);
        assert_eq!(format!("{:>5}", ServerState::Live), " live");
    }
}
