// All tables, and one table.

import { h } from './dom.js';
import * as format from './format.js';
import { command, empty, facts, head, link, list, panel, sentence, state, tableHref } from './parts.js';
import { regionList } from './page_regions.js';

export const tablesPage = () => ({
  title: 'Tables',
  every: 5000,
  load: (page) => page.ask('tables'),
  view: (page, { tables }) => [head('Tables', format.count(tables.length, 'table')), tableList(page, tables, (table) => tableHref(table.name))],
});

/** A list of tables; a line leads to `href`. */
export function tableList(page, tables, href) {
  if (tables.length === 0) return empty('There are no tables yet. Make one with ', sentence("`terrane table create actions --family d --key 'user:u64, time:desc i64'`"), '.');
  return list(page, {
    name: 'tables',
    rows: tables,
    href,
    columns: [
      { name: 'Table', by: (table) => table.name, cell: (table) => [link(href(table), table.name), table.disabled && h('span', { class: 'tag' }, 'disabled')] },
      { name: 'Families', cell: (table) => table.families.join(', ') },
      { name: 'Key', wide: true, cell: (table) => (table.key ? h('span', { class: 'key' }, table.key) : 'bytes') },
      { name: 'Regions', numeric: true, by: (table) => table.regions, cell: (table) => format.number(table.regions) },
      { name: 'Data', numeric: true, by: (table) => table.bytes, cell: (table) => format.bytes(table.bytes) },
      { name: 'Reads', numeric: true, by: (table) => table.load.reads_per_second, cell: (table) => format.rate(table.load.reads_per_second) },
      { name: 'Writes', numeric: true, by: (table) => table.load.writes_per_second, cell: (table) => format.rate(table.load.writes_per_second) },
    ],
  });
}

export const tablePage = ({ parameters: [name] }) => ({
  title: name,
  every: 5000,
  load: (page) => page.ask(`tables/${encodeURIComponent(name)}`),
  view: (page, detail) => {
    const { table } = detail;
    const encoded = encodeURIComponent(table.name);
    return [
      head(table.name, [format.count(table.regions, 'region'), ', ', format.bytes(table.bytes), ', ', format.rate(table.load.reads_per_second), ' read, ', format.rate(table.load.writes_per_second), ' written', table.disabled && [' ', state('disabled', false)]],
        link(`/heat/${encoded}`, 'Heat map'), link(`/data/${encoded}`, 'Browse rows')),
      panel('Row key', detail.key_parts.length === 0 ? empty('Bytes: the table declares no key.') : h('ol', { class: 'parts' }, detail.key_parts.map((part) => h('li', null, h('strong', null, part.name || 'bucket'), h('span', { class: 'key' }, part.kind))))),
      panel('Families', detail.family_details.map(family)),
      panel('Attributes', attributes(page, 'table', detail.attributes), detail.create_command && h('p', { class: 'note' }, 'A table like it: ', command(detail.create_command))),
      panel('Regions', regionList(page, detail.regions, 'Table')),
    ];

    function family(given) {
      return h('div', { class: 'family' }, h('h3', null, given.name), attributes(page, given.name, given.attributes), given.columns.length > 0 && h('p', { class: 'note' }, 'Columns with a type: ', given.columns.map(([column, kind], at) => [at > 0 && ', ', h('span', { class: 'key' }, `${given.name}:${column} ${kind}`)])));
    }
  },
});

/** Attributes: those that differ from their defaults first, the others on demand. */
function attributes(page, name, given) {
  const kept = page.kept(`attributes ${name}`, () => ({ all: false }));
  const own = given.filter((attribute) => !attribute.default);
  const shown = kept.all ? given : own;
  const others = given.length - own.length;
  return [
    shown.length > 0 && facts(shown.map((attribute) => [attribute.name, h('span', { class: attribute.default ? 'key default' : 'key' }, attribute.value)])),
    others > 0 && h('p', { class: 'note' }, own.length === 0 && !kept.all ? 'All attributes have their defaults. ' : '', h('button', { class: 'quiet', on: { click: () => ((kept.all = !kept.all), page.show()) } }, kept.all ? 'Hide defaults' : `Show ${format.count(others, 'default')}`)),
  ];
}
