//! `Key::prefix()`: one type per number of leading parts, each with methods only for the next part.

use proc_macro2::{Ident, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::{DeriveInput, GenericArgument, PathArguments, Type};

use crate::Part;

/// `parts` are the parts without a bucket.
pub(crate) fn builders(input: &DeriveInput, parts: &[Part<'_>], bucketed: bool) -> Tokens {
    let key = &input.ident;
    let visibility = &input.vis;
    let first = name_of(key, 0);
    let types = (0..=parts.len()).map(|given| builder(input, parts, given, bucketed));
    let leading = (1..=parts.len()).map(|given| leading_parts(key, &parts[..given]));
    quote! {
        impl #key {
            /// The keys that start with some parts, which are given one by one in the order of the key.
            #[allow(dead_code, reason = "not every key is read by its prefixes")]
            #visibility const fn prefix() -> #first {
                #first { bytes: ::std::vec::Vec::new() }
            }
        }
        #(#types)*
        #(#leading)*
    }
}

fn name_of(key: &Ident, given: usize) -> Ident {
    format_ident!("{}Prefix{}", key, given)
}

fn builder(input: &DeriveInput, parts: &[Part<'_>], given: usize, bucketed: bool) -> Tokens {
    let key = &input.ident;
    let visibility = &input.vis;
    let name = name_of(key, given);
    let doc = match given {
        0 => format!("Keys of [`{key}`]; `{}` comes first.", parts[0].name),
        _ => {
            let listed: Vec<String> = parts[..given].iter().map(|part| format!("`{}`", part.name)).collect();
            format!("Keys of [`{key}`] that begin with a known {}.", listed.join(", "))
        }
    };
    let next = parts.get(given).map(|part| next_part(input, part, given));
    let range = (!bucketed).then(|| {
        quote! {
            impl ::std::convert::From<#name> for ::terrane_types::KeyRange {
                fn from(prefix: #name) -> Self {
                    ::terrane_types::KeyRange::prefix(&prefix.bytes)
                }
            }

            impl ::terrane_types::IntoPrefix for #name {
                fn prefixed_rows(self) -> ::terrane_types::KeyRange {
                    ::terrane_types::KeyRange::prefix(&self.bytes)
                }
            }
        }
    });
    quote! {
        #[doc = #doc]
        #[derive(Clone, Debug)]
        #[must_use = "a prefix only says which keys are meant"]
        #[allow(dead_code, reason = "a key seldom needs every prefix")]
        #visibility struct #name {
            bytes: ::std::vec::Vec<u8>,
        }

        #next

        impl ::terrane_types::row_key::IntoSpan<#key> for #name {
            fn into_span(self) -> ::terrane_types::row_key::KeySpan<#key> {
                ::terrane_types::row_key::KeySpan::new(::terrane_types::KeyRange::prefix(&self.bytes))
            }
        }

        #range
    }
}

/// The two methods for the next part: its value, or bounds of it.
fn next_part(input: &DeriveInput, part: &Part<'_>, given: usize) -> Tokens {
    let key = &input.ident;
    let visibility = &input.vis;
    let (name, after) = (name_of(key, given), name_of(key, given + 1));
    let (method, bounded) = (part.name, format_ident!("{}_between", part.name));
    let (value, desc) = meant(part.kind);
    let taken = if is_built_from_many(value) { quote!(impl ::std::convert::Into<#value>) } else { quote!(#value) };
    let given_value = if is_built_from_many(value) {
        quote!(let value: #value = ::std::convert::Into::into(value);)
    } else {
        quote!()
    };
    let wrapped = if desc { quote!(::terrane_types::Desc(value)) } else { quote!(value) };
    let one = format!("Of these the keys with this `{method}`.");
    let many = format!("Of these the keys whose `{method}` lies in these bounds, by the order of values.");
    quote! {
        #[allow(dead_code, reason = "a key seldom needs every prefix")]
        impl #name {
            #[doc = #one]
            #visibility fn #method(self, value: #taken) -> #after {
                #given_value
                let mut bytes = self.bytes;
                ::terrane_types::keycodec::KeyPart::encode_part(&#wrapped, &mut bytes);
                #after { bytes }
            }

            #[doc = #many]
            #[must_use]
            #visibility fn #bounded(
                self,
                bounds: impl ::std::ops::RangeBounds<#value>,
            ) -> ::terrane_types::row_key::KeySpan<#key> {
                ::terrane_types::row_key::between::<#key, #value>(&self.bytes, #desc, &bounds)
            }
        }
    }
}

/// The first parts convert into a span: one part as itself, several as a tuple. Each may be given as its field has it or as the plain
/// value (`(7, 1_000)` for a `u64` and a `Desc<i64>`), and text may be borrowed.
fn leading_parts(key: &Ident, parts: &[Part<'_>]) -> Tokens {
    let kinds = || parts.iter().map(|part| part.kind);
    let as_fields = span_of(key, &kinds().map(Given::Field).collect::<Vec<_>>());
    let has_desc = kinds().any(|kind| meant(kind).1);
    let plain = has_desc.then(|| span_of(key, &kinds().map(Given::plain).collect::<Vec<_>>()));
    let has_text = kinds().any(|kind| is_text(meant(kind).0));
    let borrowed = has_text.then(|| span_of(key, &kinds().map(Given::borrowed).collect::<Vec<_>>()));
    quote!(#as_fields #plain #borrowed)
}

/// How the caller gives one leading part.
enum Given<'a> {
    /// As the field has it.
    Field(&'a Type),
    /// The plain value; whether the field has it in a `Desc`.
    Plain(&'a Type, bool),
    /// A borrowed text; whether the field has it in a `Desc`.
    Text(bool),
}

impl<'a> Given<'a> {
    fn plain(kind: &'a Type) -> Self {
        let (value, desc) = meant(kind);
        Self::Plain(value, desc)
    }

    /// Plain, and text without owning it.
    fn borrowed(kind: &'a Type) -> Self {
        let (value, desc) = meant(kind);
        if is_text(value) { Self::Text(desc) } else { Self::Plain(value, desc) }
    }
}

fn span_of(key: &Ident, given: &[Given<'_>]) -> Tokens {
    let kinds = given.iter().map(|part| match part {
        Given::Field(kind) | Given::Plain(kind, _) => quote!(#kind),
        Given::Text(_) => quote!(&str),
    });
    let kinds: Vec<Tokens> = kinds.collect();
    let encoded = given.iter().enumerate().map(|(at, part)| {
        let place = if given.len() == 1 {
            quote!(self)
        } else {
            let at = syn::Index::from(at);
            quote!(self.#at)
        };
        let value = match part {
            Given::Field(_) | Given::Plain(_, false) => place,
            Given::Plain(_, true) => quote!(::terrane_types::Desc(#place)),
            Given::Text(false) => quote!(::std::string::String::from(#place)),
            Given::Text(true) => quote!(::terrane_types::Desc(::std::string::String::from(#place))),
        };
        quote!(::terrane_types::keycodec::KeyPart::encode_part(&#value, &mut bytes);)
    });
    let taken = if let [only] = &kinds[..] { only.clone() } else { quote!((#(#kinds),*)) };
    quote! {
        impl ::terrane_types::row_key::IntoSpan<#key> for #taken {
            fn into_span(self) -> ::terrane_types::row_key::KeySpan<#key> {
                let mut bytes = ::std::vec::Vec::new();
                #(#encoded)*
                ::terrane_types::row_key::KeySpan::new(::terrane_types::KeyRange::prefix(&bytes))
            }
        }
    }
}

/// The type of the logical value (for a `Desc`, the inner type), and whether it sorts from high to low.
fn meant(kind: &Type) -> (&Type, bool) {
    if let Type::Path(path) = kind
        && let Some(segment) = path.path.segments.last()
        && segment.ident == "Desc"
        && let PathArguments::AngleBracketed(arguments) = &segment.arguments
        && let Some(GenericArgument::Type(inner)) = arguments.args.first()
    {
        return (inner, true);
    }
    (kind, false)
}

/// Text, which callers mostly have as a literal.
fn is_text(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == "String"))
}

/// Text, bytes and times, which callers have in several forms. Numbers are taken by their exact type, so that a literal has
/// one.
fn is_built_from_many(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return false };
    let many = ["String", "Vec", "Bytes", "Time"];
    path.path.segments.last().is_some_and(|segment| many.iter().any(|many| segment.ident == many))
}
