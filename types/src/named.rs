//! Enums whose values have one name each, on the wire, in `--json` and on the pages.

/// Declares values with their names. `$unknown` is what a name of a later build counts as.
macro_rules! named {
    ($(#[$about:meta])* $set:ident, else $unknown:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $set {
            $(
                $(#[$doc])*
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                $variant,
            )*
        }

        impl $set {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one of this name; of a name that only later builds know, the nearest.
            #[must_use]
            pub fn named(name: &str) -> Self {
                Self::ALL.iter().copied().find(|one| one.name() == name).unwrap_or(Self::$unknown)
            }
        }

        impl Default for $set {
            fn default() -> Self {
                Self::$unknown
            }
        }

        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use named;
