// The data browser: a table's rows, page by page.

import { h } from './dom.js';
import * as format from './format.js';
import { empty, head, key, link } from './parts.js';
import { tableList } from './page_tables.js';

const VALUE_WHOLE = 65536;

export const dataTablesPage = () => ({
  title: 'Browse rows',
  every: 5000,
  load: (page) => page.ask('tables'),
  view: (page, { tables }) => [head('Browse rows', 'Choose a table.'), tableList(page, tables, (table) => `/data/${encodeURIComponent(table.name)}`)],
});

// Rows are not asked for again by themselves: a scan costs more than a glance, and the page someone reads must not move.
export const dataPage = ({ parameters: [name] }) => ({
  title: `Rows of ${name}`,
  every: 0,
  keys: { n: () => document.getElementById('next')?.click(), p: () => document.getElementById('previous')?.click() },
  load: (page) => page.ask(`tables/${encodeURIComponent(name)}/rows`, Object.fromEntries([...page.query].filter(([parameter]) => parameter !== 'page'))),
  view,
  frame,
});

const FIELDS = [
  ['prefix', 'Prefix', 'leading key parts'],
  ['start', 'From row', 'key parts'],
  ['columns', 'Columns', 'family:qualifier, …'],
  ['filter', 'Filter', "d:kind = 'login'"],
];

function view(page, answer) {
  const at = Number(page.query.get('page') || 1);
  const whole = page.kept('whole', () => new Map());
  page.kept('example', () => (answer.key_parts.length > 0 ? `${answer.key_parts[0]}=…` : 'text or \\xHH'));
  return [
    frame(page, `${format.count(answer.rows.length, 'row')} in ${format.duration(answer.duration_us)}${at > 1 ? `, page ${at}` : ''}`),
    page.query.has('start_bytes') && h('p', { class: 'note' }, 'From ', key(page.query.get('start_bytes')), ' on.'),
    answer.rows.length === 0 ? empty(at > 1 ? 'No further rows.' : 'No rows match.') : rows(page, answer, whole),
    pages(page, answer, at),
  ];
}

/** The head and the form. */
function frame(page, about) {
  const [name] = page.parameters;
  const example = page.kept('example', () => '');
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(event.target)].map(([field, value]) => [field, value.trim()]));
    page.memory.delete('whole');
    page.turn({ start_bytes: null, prefix_bytes: null, after: null, page: null, ...given });
  };
  const field = ([parameter, label, hint]) => h('label', null, label, h('input', { name: parameter, value: page.query.get(parameter) || '', placeholder: parameter === 'prefix' || parameter === 'start' ? example : hint, autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off' }));
  const limit = page.query.get('limit') || '50';
  return [
    head(`Rows of ${name}`, about, link(`/tables/${encodeURIComponent(name)}`, 'Table'), link(`/heat/${encodeURIComponent(name)}`, 'Heat map')),
    h('form', { class: 'form', on: { submit } }, FIELDS.map(field),
      h('label', { class: 'small' }, 'Rows', h('select', { name: 'limit' }, ['20', '50', '100', '500'].map((value) => h('option', { value, selected: value === limit }, value)))),
      h('button', { class: 'main' }, 'Scan')),
  ];
}

function pages(page, answer, at) {
  const next = () => page.turn({ after: answer.next, page: at + 1 });
  return h('p', { class: 'pages' },
    at > 1 && h('button', { id: 'first', on: { click: () => page.turn({ after: null, page: null }) } }, 'First page'),
    at > 1 && h('button', { id: 'previous', on: { click: () => history.back() } }, 'Previous'),
    answer.next !== null && h('button', { id: 'next', class: 'main', on: { click: next } }, 'Next page'),
    answer.next === null && h('span', { class: 'note' }, 'End of the range.'));
}

function rows(page, answer, whole) {
  const parts = answer.key_parts;
  const one = (row) => {
    const cells = whole.get(row.key.bytes) || row.cells;
    return h('tr', null,
      parts.length > 0 ? parts.map((name, at) => h('td', { class: 'part', 'data-label': name }, key(row.parts[at] ?? ''))) : h('td', { class: 'part', 'data-label': 'Row' }, key(row.key.text)),
      h('td', { class: 'cells' }, h('ul', null, cells.map((cell) => cellLine(page, answer, row, cell, whole)))));
  };
  return h('div', { class: 'scroll' }, h('table', { class: 'rows' }, h('thead', null, h('tr', null, (parts.length > 0 ? parts : ['Row']).map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col' }, 'Cells'))), h('tbody', null, answer.rows.map(one))));
}

function cellLine(page, answer, row, cell, whole) {
  const cut = cell.typed === null && cell.value.length > 0 && isCut(cell);
  const all = async () => {
    const found = await page.ask(`tables/${encodeURIComponent(answer.table)}/rows`, { start_bytes: row.key.bytes, limit: 1, value_bytes: VALUE_WHOLE });
    if (found.rows[0]?.key.bytes === row.key.bytes) whole.set(row.key.bytes, found.rows[0].cells);
    page.show();
  };
  return h('li', null, h('span', { class: 'column' }, cell.column), h('span', { class: cell.typed !== null ? 'value typed' : 'value' }, cell.typed !== null ? cell.typed : cell.value, cut && h('button', { class: 'quiet', on: { click: all } }, `… all ${format.bytes(cell.value_bytes)}`)), h('time', { class: 'version', title: `version ${cell.timestamp}` }, version(cell.timestamp)));
}

/** Whether the answer has less of the value than there is. */
const isCut = (cell) => unescapedLength(cell.value) < cell.value_bytes;

/** How many bytes escaped text stands for. */
function unescapedLength(text) {
  const plain = text.replace(/\\x[0-9A-F]{2}|\\\\/g, '');
  const escapes = text.match(/\\x[0-9A-F]{2}|\\\\/g) || [];
  return escapes.length + new TextEncoder().encode(plain).length;
}

/** A version is mostly a time in milliseconds; others are shown as they are. */
function version(timestamp) {
  if (timestamp < 946684800000 || timestamp > 4102444800000) return String(timestamp);
  return format.iso(timestamp).replace('T', ' ').replace(/\.000Z$/, 'Z');
}
