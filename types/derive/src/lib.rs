//! `#[derive(RowKey)]`: a struct of typed parts becomes an order-preserving row key. `#[derive(Row)]`: a struct becomes
//! a row of a table.
//!
//! The macro only generates calls; `terrane_types::keycodec` defines how a part is encoded and where it may stand. What
//! the macro cannot see in tokens (such as a tail behind a type alias) is checked by constants that the compiler
//! evaluates, so that a wrong layout never compiles.

#![warn(missing_docs)]

mod prefix;
mod row;

use proc_macro::TokenStream;
use proc_macro2::{Group, TokenStream as Tokens, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Fields, Ident, Type, parse_macro_input};

/// Derives `RowKey` for a struct with named fields, each a part of the key in order, and gives it `prefix_1(&a)`,
/// `prefix_2(&a, &b)` and so on, and `prefix()`, whose methods take the parts one after another. See
/// `terrane_types::keycodec`.
#[proc_macro_derive(RowKey)]
pub fn derive_row_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives `TableRow` for a struct with named fields: parts of the key, and columns. See `terrane_types::table_row`.
#[proc_macro_derive(Row, attributes(row))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// `RowKey` for programs that depend only on `terrane_client`.
#[proc_macro_derive(ClientRowKey)]
pub fn derive_client_row_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).map_or_else(Error::into_compile_error, through_client).into()
}

/// `Row` for programs that depend only on `terrane_client`.
#[proc_macro_derive(ClientRow, attributes(row))]
pub fn derive_client_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::expand(&input).map_or_else(Error::into_compile_error, through_client).into()
}

/// The same tokens, with `terrane_types` replaced by the client's re-export.
fn through_client(tokens: Tokens) -> Tokens {
    let moved = |token| match token {
        TokenTree::Ident(name) if name == "terrane_types" => quote_spanned!(name.span()=> terrane_client::types),
        TokenTree::Group(group) => {
            let mut moved = Group::new(group.delimiter(), through_client(group.stream()));
            moved.set_span(group.span());
            TokenTree::Group(moved).into()
        }
        other => other.into(),
    };
    tokens.into_iter().flat_map(moved).collect()
}

/// Most parts of a key. Equal to `KEY_PARTS_MAX` of `terrane_types`, on which this crate cannot depend.
const PARTS_MAX: usize = 32;

/// One field of the struct.
struct Part<'a> {
    name: &'a Ident,
    kind: &'a Type,
}

fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let parts = parts_of(input)?;
    let key = &input.ident;
    let implementation = implement_row_key(key, &parts);
    let placement = check_placement(&parts);
    let prefixes = prefix_functions(input, &parts);
    let builders = prefix::builders(input, &parts[usize::from(is_bucket(parts[0].kind))..], is_bucket(parts[0].kind));
    Ok(quote! {
        #implementation
        #placement
        #prefixes
        #builders
    })
}

fn parts_of(input: &DeriveInput) -> Result<Vec<Part<'_>>, Error> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a row key has no type parameters: its bytes depend on them"));
    }
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "RowKey is derived for a struct whose fields are the parts"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "the parts of a row key need names: use named fields"));
    };
    if fields.named.is_empty() {
        return Err(Error::new_spanned(&input.ident, "a row key needs at least one part"));
    }
    if fields.named.len() > PARTS_MAX {
        return Err(Error::new_spanned(&input.ident, format!("a row key has at most {PARTS_MAX} parts")));
    }
    fields.named.iter().filter_map(|field| Some((field.ident.as_ref()?, &field.ty))).map(part_of).collect()
}

/// The names of parts are those of the fields; a declaration allows only ASCII.
fn part_of<'a>((name, kind): (&'a Ident, &'a Type)) -> Result<Part<'a>, Error> {
    if name.to_string().is_ascii() {
        return Ok(Part { name, kind });
    }
    Err(Error::new_spanned(name, "the name of a key part is made of A-Z a-z 0-9 _"))
}

fn implement_row_key(key: &Ident, parts: &[Part<'_>]) -> Tokens {
    let names: Vec<&Ident> = parts.iter().map(|part| part.name).collect();
    let texts = names.iter().map(|name| {
        let text = name.to_string();
        text.strip_prefix("r#").unwrap_or(&text).to_owned()
    });
    let kinds: Vec<&Type> = parts.iter().map(|part| part.kind).collect();
    quote! {
        impl ::terrane_types::row_key::RowKey for #key {
            const PARTS: &'static [&'static str] = &[#(#texts),*];
            const KINDS: &'static [::terrane_types::keycodec::PartKind] =
                &[#(<#kinds as ::terrane_types::keycodec::KeyPart>::KIND),*];

            fn encode_into(&self, out: &mut ::std::vec::Vec<u8>) {
                let start = out.len();
                #(::terrane_types::keycodec::KeyPart::encode_part(&self.#names, out);)*
                ::terrane_types::keycodec::fill_bucket(Self::KINDS, &mut out[start..]);
            }

            fn decode(row: &[u8]) -> ::std::result::Result<Self, ::terrane_types::Invalid> {
                let mut input = ::terrane_types::keycodec::PartReader::new(row);
                // Fields of a struct expression are evaluated in the order written, which is the order of the parts.
                let key = Self {
                    #(#names: <#kinds as ::terrane_types::keycodec::KeyPart>::decode_part(&mut input)?,)*
                };
                ::terrane_types::keycodec::check_decoded(Self::KINDS, row, &input)?;
                ::std::result::Result::Ok(key)
            }
        }
    }
}

/// Constants whose evaluation fails the build if a part is in a place where it is not allowed.
fn check_placement(parts: &[Part<'_>]) -> Tokens {
    let last = parts.len() - 1;
    let checks = parts.iter().enumerate().map(|(at, part)| {
        let kind = part.kind;
        let kind = quote!(<#kind as ::terrane_types::keycodec::KeyPart>::KIND);
        let tail = (at != last).then(|| {
            let message = format!("part `{}` is a Tail, which can only be the last part of a key", part.name);
            quote!(assert!(!#kind.is_tail(), #message);)
        });
        let bucket = if at > 0 {
            let message = format!("part `{}` is a Bucket, which can only be the first part of a key", part.name);
            quote!(assert!(!#kind.is_bucket(), #message);)
        } else {
            // The generated prefix functions depend on the tokens, so these must agree with what the compiler knows.
            let seen = is_bucket(part.kind);
            let message = "write the type of the first part as Bucket<N>, not behind another name";
            let alone = (last == 0).then(|| quote!(assert!(!#kind.is_bucket(), "a key is more than a bucket");));
            quote!(assert!(#kind.is_bucket() == #seen, #message); #alone)
        };
        quote!(#tail #bucket)
    });
    quote! {
        const _: () = { #(#checks)* };
    }
}

fn is_bucket(kind: &Type) -> bool {
    let Type::Path(path) = kind else {
        return false;
    };
    path.path.segments.last().is_some_and(|segment| segment.ident == "Bucket")
}

fn prefix_functions(input: &DeriveInput, parts: &[Part<'_>]) -> Tokens {
    let key = &input.ident;
    let visibility = &input.vis;
    let bucketed = is_bucket(parts[0].kind);
    let given = &parts[usize::from(bucketed)..];
    let functions = (1..=given.len()).map(|count| prefix_function(visibility, &given[..count], bucketed));
    quote! {
        impl #key {
            #(#functions)*
        }
    }
}

fn prefix_function(visibility: &syn::Visibility, parts: &[Part<'_>], bucketed: bool) -> Tokens {
    let name = format_ident!("prefix_{}", parts.len());
    let names: Vec<&Ident> = parts.iter().map(|part| part.name).collect();
    let kinds = parts.iter().map(|part| part.kind);
    let listed: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let listed = listed.join(", ");
    let encode = quote! {
        let mut prefix = ::std::vec::Vec::new();
        #(::terrane_types::keycodec::KeyPart::encode_part(#names, &mut prefix);)*
    };
    let (doc, output, result) = if bucketed {
        (
            format!("The ranges, one per bucket, that together hold exactly the keys with this {listed}."),
            quote!(::std::vec::Vec<::terrane_types::KeyRange>),
            quote!(::terrane_types::keycodec::bucket_ranges(
                <Self as ::terrane_types::row_key::RowKey>::KINDS,
                &prefix
            )),
        )
    } else {
        (
            format!("The range that holds exactly the keys with this {listed}."),
            quote!(::terrane_types::KeyRange),
            quote!(::terrane_types::KeyRange::prefix(&prefix)),
        )
    };
    quote! {
        #[doc = #doc]
        #[must_use]
        #[allow(dead_code, clippy::ptr_arg, clippy::too_many_arguments, reason = "a key seldom needs every prefix, and each takes its parts as the fields are")]
        #visibility fn #name(#(#names: &#kinds),*) -> #output {
            #encode
            #result
        }
    }
}
