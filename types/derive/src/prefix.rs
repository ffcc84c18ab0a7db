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

/// The first parts convert into a span: one part as itself, several as a tuple.
fn leading_parts(key: &Ident, parts: &[Part<'_>]) -> Tokens {
    let kinds = parts.iter().map(|part| part.kind);
    let (given, places) = if let [only] = parts {
        let kind = only.kind;
        (quote!(#kind), vec![quote!(self)])
    } else {
        let places = (0..parts.len()).map(|at| {
            let at = syn::Index::from(at);
            quote!(self.#at)
        });
        (quote!((#(#kinds),*)), places.collect())
    };
    let borrowed = parts.first().filter(|part| parts.len() == 1 && is_text(part.kind)).map(|_| {
        quote! {
            impl ::terrane_types::row_key::IntoSpan<#key> for &str {
                fn into_span(self) -> ::terrane_types::row_key::KeySpan<#key> {
                    ::terrane_types::row_key::IntoSpan::<#key>::into_span(::std::string::String::from(self))
                }
            }
        }
    });
    quote! {
        #borrowed

        impl ::terrane_types::row_key::IntoSpan<#key> for #given {
            fn into_span(self) -> ::terrane_types::row_key::KeySpan<#key> {
                let mut bytes = ::std::vec::Vec::new();
                #(::terrane_types::keycodec::KeyPart::encode_part(&#places, &mut bytes);)*
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
