// The parts that several pages share: heads, panels, tables of data, links to things, advice.

import { h } from './dom.js';
import * as format from './format.js';

/** The head of a page: a title, a line about it, and actions at the right. */
export function head(title, about, ...actions) {
  return h('div', { class: 'head' }, h('div', null, h('h1', null, title), about && h('p', { class: 'about' }, about)), actions.length > 0 && h('div', { class: 'actions' }, actions));
}

export function panel(title, ...children) {
  return h('section', { class: 'panel' }, title && h('h2', null, title), children);
}

/** What stands where there is nothing to list, and why that is so. */
export const empty = (...text) => h('p', { class: 'empty' }, text);

export const link = (href, ...text) => h('a', { href }, text);
export const tableHref = (name) => `/tables/${encodeURIComponent(name)}`;
export const tableLink = (name) => link(tableHref(name), name);
export const regionLink = (id) => (id === null || id === undefined ? '–' : link(`/regions/${id}`, `region ${id}`));
export const groupLink = (id) => link(`/groups/${id}`, `group ${id}`);
export const serverText = (id, address) => (id === null || id === undefined ? h('span', { class: 'bad' }, 'none') : h('span', { class: 'server', title: address || null }, `server ${id}`));

/** A link to what a problem, an event or a procedure is about. */
export function placeLink(place) {
  if ('table' in place) return tableLink(place.table);
  if ('region' in place) return regionLink(place.region);
  if ('group' in place) return groupLink(place.group);
  if ('master' in place) return h('span', null, `master ${place.master}`);
  if ('setting' in place) return link(`/settings#${encodeURIComponent(place.setting)}`, place.setting);
  return link(`/regions?server=${place.server}`, `server ${place.server}`);
}

/** A state: a dot and a word. */
export const state = (text, healthy) => h('span', { class: healthy ? 'state' : 'state bad' }, text);

/** A time: the clock here, the full one in UTC on hover. */
export const time = (ms) => h('time', { datetime: format.iso(ms), title: format.iso(ms) }, format.clock(ms));

/** A moment in the past days. */
export const moment = (ms) => h('time', { datetime: format.iso(ms), title: format.iso(ms) }, `${format.day(ms)} ${format.clock(ms)}`);

/** A row key, in type that shows each character. */
export const key = (text) => h('span', { class: 'key' }, text);
export const range = (start, end) => (end ? h('span', { class: 'key' }, format.startText(start), h('span', { class: 'to' }, ' → '), format.endText(end)) : key(start.text));

/** A sentence in which backquotes mark commands and names. */
export function sentence(text) {
  return text.split('`').map((part, at) => (at % 2 === 0 ? part : part.startsWith('terrane ') ? command(part) : h('code', null, part)));
}

/** A command, copied by a click. */
export function command(text) {
  const copy = async (event) => {
    event.preventDefault();
    event.stopPropagation();
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.dataset.at = 'copied';
    } catch (error) {
      // Without permission (plain HTTP from another machine) the text is selected, to be copied by hand.
      getSelection().selectAllChildren(button);
    }
    setTimeout(() => delete button.dataset.at, 1500);
  };
  return h('button', { class: 'command', title: 'Copy', type: 'button', on: { click: copy } }, text);
}

/** What to do about something hot. */
export function advice(given) {
  return h('div', { class: 'advice' }, h('span', { class: 'tag' }, ADVICE[given.kind] || given.kind), h('span', null, sentence(given.text)), given.command && command(given.command));
}

const ADVICE = { split: 'Split here', add_buckets: 'Add buckets', reverse_part: 'Reverse this part', move: 'Move', spread_key: 'Spread the key' };

/** Names and values. */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

/** A number that matters, with its name under it. */
export const figure = (value, name, href) => h(href ? 'a' : 'div', { class: 'figure', href: href || null }, h('strong', null, value), h('span', null, name));

/** How many rows a list shows before it is asked for more. */
const LIST_MAX = 200;

/**
 * A list of things. Columns: `{ name, cell(row), by(row) to sort, numeric, wide }`. `list` remembers order and length
 * between updates; `href(row)` is where Enter on a row leads.
 */
export function list(page, { name, columns, rows, href, order }) {
  const kept = page.kept(`list ${name}`, () => ({ by: order ? order[0] : null, down: order ? order[1] : false, all: false }));
  const by = columns.find((column) => column.name === kept.by && column.by);
  let sorted = rows;
  if (by) {
    const sign = kept.down ? -1 : 1;
    sorted = rows.map((row) => [by.by(row), row]).sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0)).map(([, row]) => row);
  }
  const shown = kept.all ? sorted : sorted.slice(0, LIST_MAX);
  const sort = (column) => () => {
    kept.down = kept.by === column.name ? !kept.down : Boolean(column.numeric);
    kept.by = column.name;
    page.show();
  };
  const heading = (column) => {
    const active = by === column;
    const inner = column.by ? h('button', { class: 'sort', on: { click: sort(column) } }, column.name, active && h('span', { class: 'order' }, kept.down ? ' ↓' : ' ↑')) : column.name;
    return h('th', { class: column.numeric ? 'number' : null, scope: 'col', 'aria-sort': active ? (kept.down ? 'descending' : 'ascending') : null }, inner);
  };
  const line = (row) => h('tr', { tabindex: href ? '-1' : null, data: href ? { href: href(row) } : {} }, columns.map((column) => h('td', { class: [column.numeric && 'number', column.wide && 'wide'].filter(Boolean).join(' ') || null, 'data-label': column.name }, column.cell(row))));
  return h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', null, h('tr', null, columns.map(heading))), h('tbody', null, shown.map(line))), sorted.length > shown.length && h('p', { class: 'more' }, `${format.number(shown.length)} of ${format.number(sorted.length)} shown. `, h('button', { on: { click: () => ((kept.all = true), page.show()) } }, 'Show all')));
}

/** A bar whose length is a share of the greatest in its column. */
export const bar = (value, greatest, text) => h('span', { class: 'bar' }, h('span', { class: 'fill', style: { width: `${greatest > 0 ? Math.round((value / greatest) * 100) : 0}%` } }), h('span', { class: 'amount' }, text));

/** Choices of which one holds, as links or buttons. */
export function choices(name, options, chosen, choose) {
  return h('div', { class: 'choices', role: 'group', 'aria-label': name }, options.map(([value, text]) => h('button', { class: value === chosen ? 'chosen' : null, 'aria-pressed': String(value === chosen), data: { value }, on: { click: () => choose(value) } }, text)));
}
