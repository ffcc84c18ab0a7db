//! `#[derive(Row)]`: fields of a struct become parts of a key and columns of a row.
//!
//! `terrane_types::table_row` defines how values are encoded; the macro fills in the key, families and qualifiers and
//! assigns the fields. Destructuring the key verifies that all its parts are present: a pattern without a field does
//! not compile.

use proc_macro2::{Ident, TokenStream as Tokens};
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Field, Fields, LitStr, Type};

/// The attributes of the struct.
#[derive(Default)]
struct Table {
    key: Option<Type>,
    family: Option<String>,
}

/// The role of a field.
enum Role {
    /// The whole key.
    Key,
    /// A part of it.
    Part,
    Column {
        family: String,
        qualifier: String,
    },
}

struct Member<'a> {
    name: &'a Ident,
    kind: &'a Type,
    role: Role,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a row has no type parameters: its bytes depend on them"));
    }
    let table = table_of(input)?;
    let members = members_of(input, &table)?;
    let columns: Vec<&Member<'_>> =
        members.iter().filter(|member| matches!(member.role, Role::Column { .. })).collect();
    if columns.is_empty() {
        return Err(Error::new_spanned(&input.ident, "a row needs at least one column; without any there is no row"));
    }
    check_columns(&columns)?;
    let (key, take, make, into) = key_of(input, &table, &members)?;
    let row = &input.ident;
    let places = columns.iter().map(|column| match &column.role {
        Role::Column { family, qualifier } => quote!((#family, #qualifier)),
        Role::Key | Role::Part => quote!(),
    });
    let names: Vec<&Ident> = columns.iter().map(|column| column.name).collect();
    let kinds = columns.iter().map(|column| column.kind);
    let at = 0..columns.len();
    Ok(quote! {
        impl ::terrane_types::table_row::TableRow for #row {
            type Key = #key;

            const COLUMNS: &'static [(&'static str, &'static str)] = &[#(#places),*];

            fn key(&self) -> Self::Key {
                #make
            }

            fn columns(
                &self,
            ) -> ::std::result::Result<::std::vec::Vec<::std::option::Option<::std::vec::Vec<u8>>>, ::terrane_types::Invalid>
            {
                ::std::result::Result::Ok(
                    ::std::vec![#(::terrane_types::table_row::ColumnField::to_column(&self.#names)?),*]
                )
            }

            fn from_columns(
                key: Self::Key,
                values: &[::std::option::Option<&[u8]>],
            ) -> ::std::result::Result<Self, ::terrane_types::Invalid> {
                #take
                ::std::result::Result::Ok(Self {
                    #into
                    #(#names: ::terrane_types::table_row::read_column::<#kinds>(Self::COLUMNS, values, #at)?,)*
                })
            }
        }
    })
}

/// The key's type, and code to destructure it, build it from the row and store it in the row.
fn key_of(
    input: &DeriveInput,
    table: &Table,
    members: &[Member<'_>],
) -> Result<(Tokens, Tokens, Tokens, Tokens), Error> {
    let whole: Vec<&Member<'_>> = members.iter().filter(|member| matches!(member.role, Role::Key)).collect();
    let parts: Vec<&Ident> =
        members.iter().filter(|member| matches!(member.role, Role::Part)).map(|member| member.name).collect();
    match (&table.key, &whole[..], &parts[..]) {
        (None, [key], []) => {
            let (name, kind) = (key.name, key.kind);
            let make = quote!(::std::clone::Clone::clone(&self.#name));
            Ok((quote!(#kind), quote!(), make, quote!(#name: key,)))
        }
        (Some(key), [], [_, ..]) => {
            let take = quote!(let #key { #(#parts),* } = key;);
            let make = quote!(#key { #(#parts: ::std::clone::Clone::clone(&self.#parts)),* });
            Ok((quote!(#key), take, make, quote!(#(#parts,)*)))
        }
        _ => Err(Error::new_spanned(
            &input.ident,
            "say what the key is: either `#[row(key)]` on the one field that holds it, or `#[row(key = Key)]` on the \
             struct and `#[row(part)]` on each field that is a part of it",
        )),
    }
}

fn table_of(input: &DeriveInput) -> Result<Table, Error> {
    let mut table = Table::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("row")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("key") {
                let value = meta.value()?;
                // `key = Key` and `key = "Key"` are equivalent.
                let text: Option<LitStr> = if value.peek(LitStr) { Some(value.parse()?) } else { None };
                table.key = Some(text.map_or_else(|| value.parse(), |text| text.parse())?);
                Ok(())
            } else if meta.path.is_ident("family") {
                table.family = Some(meta.value()?.parse::<LitStr>()?.value());
                Ok(())
            } else {
                Err(meta.error("of a row there is `key = Key` and `family = \"name\"`"))
            }
        })?;
    }
    Ok(table)
}

fn members_of<'a>(input: &'a DeriveInput, table: &Table) -> Result<Vec<Member<'a>>, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "Row is derived for a struct whose fields are columns"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "columns need names: use named fields"));
    };
    fields
        .named
        .iter()
        .filter_map(|field| Some((field.ident.as_ref()?, field)))
        .map(|(name, field)| Ok(Member { name, kind: &field.ty, role: role_of(name, field, table)? }))
        .collect()
}

fn role_of(name: &Ident, field: &Field, table: &Table) -> Result<Role, Error> {
    let (mut family, mut qualifier, mut of_key) = (table.family.clone(), None, None);
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("row")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("key") {
                of_key = Some(Role::Key);
            } else if meta.path.is_ident("part") {
                of_key = Some(Role::Part);
            } else if meta.path.is_ident("family") {
                family = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("qualifier") {
                qualifier = Some(meta.value()?.parse::<LitStr>()?.value());
            } else {
                return Err(
                    meta.error("of a field there is `key`, `part`, `family = \"name\"` and `qualifier = \"name\"`")
                );
            }
            Ok(())
        })?;
    }
    if let Some(role) = of_key {
        return Ok(role);
    }
    let family = family.ok_or_else(|| {
        Error::new(
            field.span(),
            "which family is this column in? `#[row(family = \"name\")]` on the struct or the field",
        )
    })?;
    let text = name.to_string();
    let qualifier = qualifier.unwrap_or_else(|| text.strip_prefix("r#").unwrap_or(&text).to_owned());
    Ok(Role::Column { family, qualifier })
}

/// Two fields with the same column would overwrite each other.
fn check_columns(columns: &[&Member<'_>]) -> Result<(), Error> {
    let place = |member: &Member<'_>| match &member.role {
        Role::Column { family, qualifier } => Some((family.clone(), qualifier.clone())),
        Role::Key | Role::Part => None,
    };
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|earlier| place(earlier) == place(column)) {
            return Err(Error::new_spanned(column.name, "another field is this column already"));
        }
    }
    Ok(())
}
