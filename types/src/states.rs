//! The states of servers, masters, groups, regions and tables, each with one name: on the wire, in `--json` and on the pages.

/// Declares a set of states with their names. `$unknown` is what a name of a later build counts as.
macro_rules! states {
    ($(#[$about:meta])* $state:ident, else $unknown:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $state {
            $(
                $(#[$doc])*
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                $variant,
            )*
        }

        impl $state {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The state of this name; of one that only later builds know, the nearest.
            #[must_use]
            pub fn named(name: &str) -> Self {
                Self::ALL.iter().copied().find(|state| state.name() == name).unwrap_or(Self::$unknown)
            }
        }

        impl std::fmt::Display for $state {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

states! {
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

states! {
    /// How far the drain of a region server is.
    DrainState, else Draining {
        /// It still has replicas.
        Draining = "draining",
        /// It has none any more.
        Drained = "drained",
    }
}

states! {
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

states! {
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

states! {
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

states! {
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

states! {
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
